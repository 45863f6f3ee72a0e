"""The catalogue says about each test what the test says about itself."""

import re
from pathlib import Path

import pytest

from ol.catalogue import KINDS, find
from ol.catalogue import tests_of as course_tests
from ol.course import MODULES, ROOT, module

SPEC = module("L8.6")

# The chapter's own table: name, kinds, and the pitfalls that name it as their catcher.
SEVENTEEN = {
    "test_hand_example": ({"unit", "smoke"}, {4}),
    "test_hand_example_greedy": ({"unit", "smoke"}, {5, 6}),
    "test_one_token_output_is_the_target_exactly": ({"statistical"}, {1, 3}),
    "test_two_token_draft_is_exact_at_each_position": ({"statistical"}, set()),
    "test_deterministic_draft_is_exact": ({"statistical"}, {2}),
    "test_penalties_see_the_accepted_drafts": ({"unit"}, {7}),
    "test_verify_checks_shapes": ({"boundary"}, set()),
    "test_prompt_lookup_hand_example": ({"unit", "smoke"}, {8}),
    "test_ngram_draft_follows_the_model": ({"unit"}, set()),
    "test_model_draft_syncs_its_cache": ({"unit"}, {9}),
    "test_speculative_greedy_equals_greedy": ({"differential"}, set()),
    "test_rejected_drafts_are_rolled_back": ({"property"}, {10}),
    "test_stats_and_one_pass_per_round": ({"unit"}, set()),
    "test_sampled_speculation_matches_the_target_distribution": ({"statistical"}, set()),
    "test_eos_stop_and_budget": ({"boundary"}, {11, 12}),
    "test_bad_arguments": ({"boundary"}, set()),
    "test_logprobs_are_the_targets": ({"unit"}, set()),
}


def test_the_tests_of_the_chapter_are_there_with_their_kinds_and_pitfalls() -> None:
    """A learner reads the catalogue before writing code; it must be the chapter's.

    KIND: differential, smoke.
    """
    found = {info.name: info for info in course_tests(SPEC)}
    for name, (kinds, pitfalls) in SEVENTEEN.items():
        assert kinds <= set(found[name].kinds), name
        assert pitfalls <= set(found[name].pitfalls), name


@pytest.mark.parametrize("module_id", [m.id for m in MODULES.values() if m.files])
def test_every_test_is_found_and_described(module_id: str) -> None:
    """A test that the catalogue overlooks would be checked and never announced.

    KIND: property.
    """
    infos = course_tests(module(module_id))
    in_files = {
        name
        for path in (ROOT / "tests" / module_id).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert {info.name for info in infos} == in_files
    for info in infos:
        assert info.kinds and set(info.kinds) <= set(KINDS)
        assert info.why and "KIND" not in info.why + info.detail
        lines = (ROOT / info.file).read_text(encoding="utf-8").splitlines()
        assert f"def {info.name}(" in lines[info.line - 1]
    assert sum("smoke" in info.kinds for info in infos) >= 1


def test_a_test_says_which_public_names_it_is_about() -> None:
    """A cell that hands over one function runs the tests that concern it, also those that call it through another.

    KIND: unit.
    """
    found = {info.name: info.uses for info in course_tests(SPEC)}
    assert found["test_hand_example"] == ("verify_draft",)
    assert found["test_prompt_lookup_hand_example"] == ("PromptLookupDraft",)
    assert "speculative_generate" in found["test_eos_stop_and_budget"]
    assert "ModelDraft" in found["test_speculative_greedy_equals_greedy"], "through a function of the same file"


def test_a_test_is_found_by_the_name_that_pytest_prints() -> None:
    """File in front and parameters behind are pytest's, not the test's.

    KIND: boundary.
    """
    infos = course_tests(SPEC)
    want = find(infos, "test_hand_example")
    assert find(infos, "hand_example") == want
    assert find(infos, "tests/L8.6/test_spec.py::test_hand_example[1-2]") == want
    with pytest.raises(ValueError, match="test_nothing"):
        find(infos, "test_nothing")


def test_a_test_without_its_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue is for learners; what is missing in it must be told to the author.

    KIND: boundary.
    """
    monkeypatch.setattr("ol.catalogue.ROOT", tmp_path)
    monkeypatch.setattr("ol.catalogue.tests_folder", lambda module: tmp_path)
    file = tmp_path / "test_x.py"
    for docstring, said in (('"""Why."""', "KIND"), ('"""Why.\n\n    KIND: sloppy.\n    """', "sloppy")):
        file.write_text(f"def test_one() -> None:\n    {docstring}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=said):
            course_tests(SPEC)
