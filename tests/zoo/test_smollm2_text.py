"""The text that the n-gram draft is fitted on: small, readable, and what SmolLM2 writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tinyllm import smollm2_text as TEXT
from tinyllm import zoo

ROOT = Path(__file__).parents[2]
KINDS = ["quoting", "code", "list", "prose", "multilingual", "arithmetic"]
ENTRIES: list[dict[str, Any]] = TEXT.read()


def test_the_file_is_small_and_covers_every_kind() -> None:
    """A repository carries it in every clone; and a kind without text would leave its chapter's draft blind.

    KIND: unit.
    """
    assert TEXT.PATH.stat().st_size < 1_000_000
    assert list(dict.fromkeys(entry["kind"] for entry in ENTRIES)) == KINDS
    for kind in KINDS:
        ids = [entry["ids"] for entry in ENTRIES if entry["kind"] == kind]
        assert len(ids) >= 36
        assert sum(map(len, ids)) > 2000
    assert {entry["temperature"] for entry in ENTRIES} == {0.0, TEXT.SAMPLED_TEMPERATURE}
    assert all(0 <= i < 49152 for entry in ENTRIES for i in entry["ids"])


def test_no_prompt_of_the_training_text_occurs_elsewhere() -> None:
    """A draft fitted on the answers to the very prompts it is measured on would flatter itself.

    KIND: boundary.
    """
    files = [path for folder in ("book", "tests", "bench", "tinyllm") for path in (ROOT / folder).rglob("*")]
    own = {TEXT.PATH, TEXT.PATH.with_suffix(".py")}
    sources = [path for path in files if path.suffix in {".py", ".ipynb", ".md", ".json"} and path not in own]
    texts = {path: path.read_text(encoding="utf-8") for path in sources}
    found = [
        (path, part)
        for part in [
            *TEXT.PASSAGES,
            *TEXT.LIST_TASKS,
            *TEXT.PROSE_TASKS,
            *TEXT.MULTILINGUAL_TASKS,
            *TEXT.ARITHMETIC_TASKS,
        ]
        for path, text in texts.items()
        if part[:40] in text
    ]
    assert found == []


@pytest.mark.model
def test_the_requests_are_those_of_the_script() -> None:
    """The file belongs to the prompts that stand in the script, in their order, and its ids are text.

    KIND: unit.
    """
    _, tok = zoo.smollm2()
    assert [{k: v for k, v in entry.items() if k != "ids"} for entry in ENTRIES] == TEXT.requests(tok)
    assert "\ufffd" not in "".join(tok.decode(entry["ids"]) for entry in ENTRIES if entry["kind"] == "prose")
    assert not any(set(entry["ids"]) & tok.special_ids - {0} for entry in ENTRIES if entry["temperature"] == 0)


@pytest.mark.model
def test_smollm2_writes_the_same_text_again() -> None:
    """The text is evidence only if the script really made it: same model, same ids.

    KIND: differential.
    """
    model, tok = zoo.smollm2()
    for n, kind in enumerate(KINDS):
        of_kind = [entry for entry in ENTRIES if entry["kind"] == kind]
        entry = of_kind[4 + n % 2]  # greedy for every other kind, sampled for the rest
        ids = TEXT.continue_request(model, tok, entry, max_tokens=40)
        assert ids == entry["ids"][:40]
