"""The shared vectors: fresh, portable, broad, and in agreement with what the contract says in plain words."""

import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ol.conform import ORDER, VECTORS, Judge, Section, read
from tinyllm.infer import vectors
from tinyllm.infer.vector_cases import CASES, PLAIN, RULES

every_section = pytest.mark.parametrize("name", vectors.SECTIONS)


@cache
def sections() -> list[Section]:
    return read()


def section(name: str) -> Section:
    return next(found for found in sections() if found.name == name)


def case(name: str, called: str) -> Any:
    return next(found for found in section(name).cases if found["name"] == called)


@every_section
def test_the_committed_files_are_what_the_package_answers_today(name: str) -> None:
    """A port is held to the files, so they must be the package's answers and not those of last year.

    Where the platform's exp and log are not those that wrote the files, what goes through them may differ by ulps, and
    then it is compared so; everything else is the same everywhere. `python -m tinyllm.infer.vectors` writes them anew.

    KIND: property.
    """
    committed, today = (VECTORS / f"{name}.json").read_text(encoding="utf-8"), vectors.document(name)
    if committed == today:
        return
    old, new = section(name), json.loads(today)
    assert [old.asked(c) for c in old.cases] == [old.asked(c) for c in new["cases"]], "other questions"
    assert (dict(old.rules), dict(old.answers)) == (new["rules"], new["answers"])
    judge = Judge([section("exp_log"), old])
    for number, asked in enumerate(judge.sections[0].cases):
        judge.take(0, number, vectors.answer("exp_log", dict(asked)))
    for number, answered in enumerate(new["cases"]):
        judge.take(1, number, answered)
    assert judge.report.passed, judge.report.text()
    assert not judge.report.same_library, "the text differs although exp and log do not"


@pytest.mark.parametrize("name", ["generator", "lookup", "verification"])
def test_writing_is_deterministic(name: str) -> None:
    """A file that changes from run to run would hide the change that matters.

    KIND: property.
    """
    assert vectors.document(name) == vectors.document(name)


def test_there_is_one_file_a_section_and_they_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are read by people and by ports, and cloned by everyone.

    KIND: unit.
    """
    monkeypatch.setattr(vectors, "document", lambda name: f"{name}\n")
    paths = vectors.write(tmp_path)
    assert [path.read_bytes() for path in paths] == [f"{name}\n".encode() for name in ORDER]
    assert list(vectors.SECTIONS) == list(CASES) == list(ORDER)
    assert vectors.FOLDER == VECTORS
    assert {path.name for path in VECTORS.iterdir()} == {path.name for path in paths}
    assert sum(path.stat().st_size for path in VECTORS.iterdir()) < 1_000_000


def test_nothing_in_the_files_needs_more_than_plain_json() -> None:
    """NaN and Infinity are no JSON, and many readers keep integers as floats, exact only up to 2^53.

    KIND: boundary.
    """

    def no_constant(name: str) -> None:
        raise AssertionError(f"a bare {name}")

    def integers(text: str) -> int:
        assert abs(int(text)) <= 2**53, f"{text} must be a string"
        return int(text)

    for path in VECTORS.iterdir():
        text = path.read_text(encoding="utf-8")
        json.loads(text, parse_constant=no_constant, parse_int=integers)
        assert text.isascii()
    assert any("-inf" in c["logits"] for c in section("sampler").cases)
    assert {type(c["seed"]) for c in section("verification").cases} == {str}
    assert any(int(c["state"]) > 2**53 for c in section("generator").cases)


def test_every_logit_is_a_float32() -> None:
    """An engine that computes in float32 can be given these very logits.

    KIND: property.
    """
    rows = [c["logits"] for c in section("sampler").cases]
    rows += [row for c in section("verification").cases for row in c["logits"]]
    rows += [row for c in section("generation").cases for row in c["rows"]]
    values = np.array([float(value) for row in rows for value in row])
    assert np.array_equal(values, values.astype(np.float32).astype(np.float64))


def test_the_cases_cover_every_knob_and_every_corner() -> None:
    """Hundreds of cases prove little when all of them are alike.

    KIND: property.
    """
    found = {part.name: part.cases for part in sections()}
    assert sum(map(len, found.values())) > 600
    for name in ("sampler", "verification", "generation"):
        for knob, off in PLAIN.items():
            used = Counter(c["params"][knob] for c in found[name])
            assert used[off] >= 10 and len(used) >= 3, (name, knob, used)
        assert sum(c["params"]["temperature"] == 0 for c in found[name]) >= 10
    ties = [c for c in found["sampler"] if sorted(c["logits"], key=str)[-1:] * 2 == sorted(c["logits"], key=str)[-2:]]
    assert len(ties) >= 20
    verify = found["verification"]
    assert sum(not c["draft"] for c in verify) >= 5
    assert sum(any("-inf" in row for row in c["logits"]) for c in verify) >= 20
    assert sum(c["draft_probs"] is None and bool(c["draft"]) for c in verify) >= 20
    assert {(c["n_accepted"] == len(c["draft"])) for c in verify if len(c["draft"]) > 1} == {True, False}
    edge = [c for c in verify if c["rule"] == "accept"]
    assert Counter(c["n_accepted"] for c in edge) == {0: 8, 1: 8}, "a uniform at the edge and just beside it"
    requests = found["generation"]
    assert {c["finish"] for c in requests} == {"length", "stop"}
    assert {None if c["draft"] is None else c["draft"]["kind"] for c in requests} >= {None, "lookup", "context_ngram"}
    assert sum(0 < r[1] < len(r[0]) for c in requests for r in c["rounds"]) >= 10, "rounds that keep a part"


def test_cases_have_names_of_their_own_and_rules_that_are_told() -> None:
    """A difference is reported by the case's name and its rule.

    KIND: unit.
    """
    used = set()
    for part in sections():
        names = [c["name"] for c in part.cases]
        assert len(names) == len(set(names)), Counter(names).most_common(1)
        assert {c["rule"] for c in part.cases} <= set(part.rules)
        assert not set(part.answers) & {"id", "section", "error", "name", "rule"}, "keys that the talk itself uses"
        used |= {c["rule"] for c in part.cases}
    assert used == set(RULES)


def test_the_known_values_of_the_contract_are_in_the_files() -> None:
    """The files come from the package, so a few answers are held to values written down before it.

    KIND: unit, smoke.
    """
    assert case("generator", "outputs of seed 42")["returns"][:6] == [
        0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E,
    ]  # fmt: skip
    assert case("generator", "uniforms of seed 0")["returns"][:2] == [0.2803122753265841, 0.4892241428740438]
    assert case("generator", "below 10")["returns"] == [1, 3, 4, 2, 5, 7, 2, 6]
    assert case("generator", "stream sample of seed 0")["returns"][:2] == [3444971639, 4260714914]
    by_hand = case("rejection", "the example by hand, rejected")
    assert (by_hand["token"], by_hand["accepted"], by_hand["residual"]) == (0, False, [1.0, 0.0, 0.0])
    assert case("verification", "by hand, draft [2, 1]")["emitted"] == [2, 0]
    assert case("verification", "by hand, draft [2, 0]")["emitted"] == [2, 0, 1]
    assert case("verification", "frequency")["emitted"] == [0, 1, 0, 1, 2]
    assert case("lookup", "the example by hand")["draft"] == [3, 9, 1]
    for name, draft in (
        ("two occurrences", [5, 1, 2]),
        ("runs into the suffix", [1, 2]),
        ("all the same", [7]),
        ("most recent of one id", [2, 3]),
        ("too few for the least", []),
    ):
        assert case("lookup", name)["draft"] == draft, name
    assert set(case("lookup", "two occurrences")) == {"name", "rule", "ctx", "k", "max_ngram", "min_ngram", "draft"}


def test_the_silent_cases_can_only_differ_in_the_number_of_draws() -> None:
    """Where nothing but one id is possible, ids agree whatever is drawn; `next_u32` is what tells.

    KIND: unit.
    """
    for m in (1, 2, 3):
        found = case("verification", f"{m} kept, nothing else is possible")
        assert found["emitted"] == list(range(m + 1)) and found["n_accepted"] == m
        rng = vectors.request_rng(0)
        for _ in range(2 * m + 1):
            rng.uniform()
        assert rng.next_u32() == found["next_u32"]


def test_greedy_requests_of_the_files_end_as_plain_decoding_ends() -> None:
    """The answers come from the speculative loop; the plain one must give the same ids.

    KIND: differential.
    """
    greedy = [c for c in section("generation").cases if c["params"]["temperature"] == 0 and c["draft"] is not None]
    assert len(greedy) > 40
    for found in greedy:
        plain = vectors.answer("generation", {**found, "draft": None})
        assert all(plain[key] == found[key] for key in ("ids", "logprobs", "finish")), found["name"]


def test_floats_that_are_not_finite_go_to_text_and_back() -> None:
    """The reader of the package's own program must undo what the writer does.

    KIND: unit.
    """
    value = {"a": [math.inf, -math.inf, 0.5, np.float64(1.5), np.int64(3)], "b": None, "c": "x", "d": np.arange(2)}
    text = json.dumps(vectors.plain(value), allow_nan=False)
    assert vectors.revived(json.loads(text)) == {
        "a": [math.inf, -math.inf, 0.5, 1.5, 3],
        "b": None,
        "c": "x",
        "d": [0, 1],
    }
    assert math.isnan(vectors.revived(vectors.plain(math.nan)))


def test_the_command_writes_answers_or_says_what_it_can_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m tinyllm.infer.vectors` is what the chapter and this folder's freshness tell people to type.

    KIND: unit.
    """
    monkeypatch.setattr(vectors, "write", lambda: [VECTORS / "lookup.json"])
    assert vectors.main([]) == 0 and "wrote lookup.json" in capsys.readouterr().out
    assert vectors.main(["ansewr"]) == 2 and "'ansewr' is neither" in capsys.readouterr().err
