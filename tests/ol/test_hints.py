"""Hints go in stages, exist for every test, and speak about tests, pitfalls and names that exist."""

import functools
import tomllib
from collections.abc import Iterator

import pytest

from ol.catalogue import tests_of as course_tests
from ol.course import MODULES, module
from ol.hints import TEXTS, hints_for

SPEC = module("L8.6")


@pytest.fixture(autouse=True, scope="module")
def _parsed_once() -> Iterator[None]:
    """Each file of tests is read once here, not once a hint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ol.hints.tests_of", functools.cache(course_tests))
        yield


def texts(kind: str) -> dict[str, list[str]]:
    tables = tomllib.loads((TEXTS / f"{kind}.toml").read_text(encoding="utf-8"))
    return {key: table["hints"] for key, table in tables.items()}


@pytest.mark.parametrize("module_id", [m.id for m in MODULES.values() if m.files])
def test_every_test_has_hints_in_at_least_three_stages(module_id: str) -> None:
    """Whatever fails, there is help, and the last stage shows where the test itself is.

    KIND: property, smoke.
    """
    for info in course_tests(module(module_id)):
        stages = hints_for(info.name, module(module_id))
        assert len(stages) >= 3, info.name
        assert len(set(stages)) == len(stages), info.name
        assert info.file in stages[-1]


def test_the_texts_speak_about_what_exists() -> None:
    """A hint under a name that nothing has would never be shown.

    KIND: property.
    """
    names = {info.name for info in course_tests(SPEC)}
    own = texts("tests")
    assert len(own) == 17 and set(own) <= names
    assert all(len(hints) >= 3 for hints in own.values())
    used = {name for one in MODULES.values() for info in course_tests(one) for name in info.uses}
    assert set(texts("names")) <= used
    numbers = {str(n) for info in course_tests(SPEC) for n in info.pitfalls}
    assert set(texts("pitfalls")) == numbers == {str(n) for n in range(1, 13)}


def test_the_pitfalls_of_a_test_give_its_hints() -> None:
    """What went wrong is most likely what the test guards against.

    KIND: unit.
    """
    stages = hints_for("test_prompt_lookup_heeds_its_ngram_bounds")
    assert texts("pitfalls")["8"][0] in stages
    stages = hints_for("test_hand_example", module("L2.1"))
    assert texts("names")["NGramLM"][0] in stages, (
        "a name that two modules have is looked up in the one that is asked for"
    )


def test_a_name_that_no_test_has_is_refused() -> None:
    """Instead of hints for something else.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match="test_nothing"):
        hints_for("test_nothing")
