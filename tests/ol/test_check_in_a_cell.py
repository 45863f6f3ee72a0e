"""`ol.check(...)` in a notebook's cell: which tests run, what the table says, and that nothing stays behind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.pathlib import import_path  # as pytest loads a test file

import ol
from ol.course import ROOT
from tinyllm.infer import spec
from tinyllm.prob import sampling


def draws(p: Sequence[float], u: float) -> int:
    """A learner's function: correct, and another object than the reference."""
    return sampling.sample_categorical(p, u)


def always_first(p: Sequence[float], u: float) -> int:
    """A wrong one, which raises nothing."""
    return 0


def test_what_is_right_passes_all_that_concerns_it() -> None:
    """The table is what the reader sees, and its truth is what the cell asserts.

    KIND: unit, smoke.
    """
    right = spec.PromptLookupDraft
    table = ol.check("L8.6", PromptLookupDraft=type("Mine", (right,), {}))
    assert table and table.explanation == ""
    assert table.concerned == len(table.tests) > 3
    assert all("lookup" in test.name for test in table.tests)
    assert f"{table.concerned} of {table.concerned} tests pass" in repr(table) and "pass" in table._repr_html_()


def test_what_is_wrong_is_shown_up_to_the_first_failure_and_explained() -> None:
    """The first failure is the one to read; the others often follow from it.

    KIND: unit.
    """
    table = ol.check("M07.1", sample_categorical=always_first)
    assert not table
    assert [test.passed for test in table.tests][-1] is False and all(test.passed for test in table.tests[:-1])
    assert table.tests[-1].name in repr(table) and "up to the first that does not" in table.headline
    assert table.explanation and table.explanation in repr(table)
    assert "<script" not in table._repr_html_()


def test_some_tests_can_be_asked_for_by_name() -> None:
    """A chapter that has built half of a thing asks for the tests of that half.

    KIND: unit.
    """
    names = ["test_prompt_lookup_hand_example", "test_prompt_lookup_draws_nothing"]
    table = ol.check("L8.6", only=" ".join(names), PromptLookupDraft=type("Mine", (spec.PromptLookupDraft,), {}))
    assert sorted(test.name for test in table.tests) == sorted(names) and table


def test_afterwards_the_reference_is_back_and_the_next_check_starts_afresh() -> None:
    """A wrong answer in one cell must not reach the cells below it.

    KIND: property.
    """
    before = sampling.sample_categorical
    assert not ol.check("M07.1", sample_categorical=always_first)
    assert sampling.sample_categorical is before
    wrong, right = always_first, lambda p, u: before(p, u)
    assert not ol.check("M07.1", sample_categorical=wrong)
    assert ol.check("M07.1", sample_categorical=right)


def test_a_test_file_that_is_loaded_already_does_not_judge_the_reference_instead() -> None:
    """A test file found again holds the reference by name, and would pass any answer; it is put aside, and put back.

    KIND: boundary.
    """
    file = ROOT / "tests" / "M07.1" / "test_sampling.py"
    loaded = import_path(file, mode="importlib", root=ROOT, consider_namespace_packages=False)
    assert sys.modules[loaded.__name__] is loaded
    assert not ol.check("M07.1", sample_categorical=always_first)
    assert sys.modules[loaded.__name__] is loaded
    assert loaded.sample_categorical is sampling.sample_categorical


@pytest.mark.parametrize(
    ("module", "handed", "says"),
    [
        ("L8.6", {}, "hand something over"),
        ("L8.6", {"verify_drafts": draws}, "did you mean verify_draft"),
        ("L8.6", {"only": "test_nothing_of_the_kind", "verify_draft": draws}, "test_nothing_of_the_kind"),
        ("L9.9", {"verify_draft": draws}, "L9.9"),
    ],
)
def test_what_cannot_be_checked_is_said(module: str, handed: dict[str, Any], says: str) -> None:
    """A slip in the call is the caller's, and gets a sentence.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match=says):
        ol.check(module, **handed)

