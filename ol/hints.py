"""Hints in stages: from what a test wants, by way of a question, to nearly the answer.

The texts are data in `hint_texts/`. The tests of the worked module have hints of their own; for any other, the hints
come from its description, its pitfalls, and what it calls.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from ol.catalogue import TestInfo, find, tests_of
from ol.course import MODULES, Module

TEXTS = Path(__file__).parent / "hint_texts"
PITFALLS_OF = "L8.6"  # the module whose pitfalls are numbered


@cache
def _texts(kind: str) -> dict[str, list[str]]:
    """One file of hints: "tests", "pitfalls" or "names", each key with its hints."""
    tables = tomllib.loads((TEXTS / f"{kind}.toml").read_text(encoding="utf-8"))
    return {key: table["hints"] for key, table in tables.items()}


def pitfalls_with_hints() -> set[int]:
    """The numbers of the pitfalls that have hints."""
    return {int(number) for number in _texts("pitfalls")}


def hints_for(test_name: str, module: Module | None = None) -> list[str]:
    """The hints for a course test, mildest first, at least three. ValueError for a name that no course test has.

    `module`: whose test it is; the first module with a test of that name when None.
    """
    for one in MODULES.values() if module is None else [module]:
        tests = tests_of(one)
        try:
            info = find(tests, test_name)
        except ValueError:
            continue
        return _staged(info, one.id)
    raise ValueError(f"there is no test {test_name!r}; `ol tests` lists them.")


def _staged(info: TestInfo, module_id: str) -> list[str]:
    own = _texts("tests").get(info.name) if module_id == PITFALLS_OF else None
    if own is None:
        own = [f"What it wants: {' '.join(filter(None, [info.why, info.detail]))}"]
        by_pitfall = [_texts("pitfalls")[str(n)] for n in info.pitfalls] if module_id == PITFALLS_OF else []
        by_name = [hints for name in info.uses if (hints := _texts("names").get(name))]
        # Few good ones: with many pitfalls or names, the first two that say something.
        own += [hint for hints in (by_pitfall or by_name)[:2] for hint in hints]
    last = (
        f"Read the test itself: {info.file}, line {info.line}. Copy its smallest call, print each step, and compare "
        f"with what you worked out by hand; the first number that differs is where to look."
    )
    return [*own, last] if len(own) > 1 else [*own, _contract_hint(info), last]


def _contract_hint(info: TestInfo) -> str:
    names = ", ".join(f"`{name}`" for name in info.uses) or "what it calls"
    return f"Read what the contract says about {names}, the `.pyi` beside your file: shapes, errors, order of draws."
