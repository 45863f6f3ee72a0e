"""What a failing verdict says: which failure is explained, which others there are, and of what the numbers are."""

from pathlib import Path

import pytest

from ol import catalogue
from ol.check import _judge, check, explanation, results_of
from ol.course import module, reference
from ol.sandbox import Outcome, TestOutcome
from ol.verdict import TestResult, Verdict, most_basic, narrowest
from ol.workspace import Workspace

SPEC = module("L8.6")
SAMPLING = module("M07.1")
FILE = SAMPLING.files[0]


def failed(name: str, *kinds: str, pitfalls: tuple[int, ...] = ()) -> TestResult:
    return TestResult(name, False, "failed", 0.0, kinds=kinds, pitfalls=pitfalls)


def submitted(folder: Path, text: str) -> Workspace:
    workspace = Workspace(folder / "work")
    workspace.file(FILE).parent.mkdir(parents=True)
    workspace.file(FILE).write_text(text, encoding="utf-8")
    return workspace


def test_the_most_basic_failure_is_explained_and_the_narrowest_others_are_named() -> None:
    """A differential test over everything fails first and says least.

    KIND: unit.
    """
    wide = failed("wide", "differential", pitfalls=(5, 6, 7))
    narrow = failed("narrow", "property", pitfalls=(10,))
    unit = failed("unit", "unit", "smoke", pitfalls=(6, 10))
    about_itself = failed("about_itself", "unit")
    tests = [wide, about_itself, narrow, unit]
    assert most_basic(tests) == [unit, wide, about_itself, narrow]
    assert narrowest(tests) == [narrow, unit, wide, about_itself]
    assert most_basic([wide, narrow]) == [wide, narrow], "the order of the catalogue"
    never = TestResult("never", False, "not run", 0.0, kinds=("unit",), pitfalls=(1,))
    assert Verdict("L8.6", "fail", "", tests=(never, *tests)).first_failure == unit
    assert Verdict("L8.6", "fail", "", tests=(never,)).first_failure == never


def test_the_test_of_a_rollback_is_named_where_all_that_notice_a_wrong_one_fail() -> None:
    """Whatever is explained first, the test that is about the mistake is among the few that are named.

    KIND: property.
    """
    infos = catalogue.tests_of(SPEC)
    outcomes = [TestOutcome(i.name, i.name, "failed" if 10 in i.pitfalls else "passed") for i in infos]
    results = results_of(infos, outcomes)
    verdict = _judge(SPEC, Outcome("finished", tests=tuple(outcomes)), infos, results, None, "ol check L8.6")
    first = verdict.first_failure
    assert first is not None and "unit" in first.kinds and verdict.explanation.startswith(first.name)
    said = " ".join(verdict.text().split())
    assert f"{sum(10 in i.pitfalls for i in infos) - 1} others fail: " in said
    assert "test_rejected_drafts_are_rolled_back" in said and " more." in said
    assert all(len(line) <= 80 for line in verdict.text().splitlines())


def test_the_explained_failure_is_told_in_full_though_it_is_not_the_first_to_run(tmp_path: Path) -> None:
    """The child tells two failures in full: the first, and the first of a basic test. The hint is for the same one.

    KIND: unit.
    """
    workspace = submitted(
        tmp_path, reference(FILE).read_text(encoding="utf-8") + "\n\ndef sample_categorical(p, u):\n    return 0\n"
    )
    verdict = check("M07.1", workspace)
    first = verdict.first_failure
    assert verdict.exit_code == 1 and first is not None and first.why.get("test_line")
    assert verdict.explanation.startswith(first.name)
    assert workspace.state.failing["M07.1"] == first.name


@pytest.mark.parametrize("call", ["", "f(x)"])
def test_numbers_come_with_what_they_are_of(call: str) -> None:
    """An "expected 3, got 2" says nothing where no call is shown.

    KIND: boundary.
    """
    about = next(info for info in catalogue.tests_of(SPEC) if info.name == "test_hand_example")
    why: dict[str, str] = {"expected": "3", "got": "2", "asserted": "rng.used == 3", **({"call": call} if call else {})}
    (result,) = results_of([about], [TestOutcome("test_hand_example", "test_hand_example", "failed", 0.0, why)])
    said = explanation(SPEC, about, result)
    assert ("false      rng.used == 3\n    expected   3\n    got        2" in said) == (not call)


def test_an_empty_file_is_called_empty_and_a_syntax_error_has_one_place(tmp_path: Path) -> None:
    """Neither lets a test run; the sentence must say what to do about which line.

    KIND: boundary.
    """
    workspace = submitted(tmp_path, "\n")
    empty = check("M07.1", workspace, kind="smoke")
    assert empty.exit_code == 1 and f"{FILE} is empty" in empty.reason and "ol reset M07.1" in empty.next
    workspace.file(FILE).write_text("x = 1\ndef draw(p, u:\n    return 0\n", encoding="utf-8")
    broken = check("M07.1", workspace, kind="smoke")
    assert broken.exit_code == 1 and "SyntaxError" in broken.reason and "def draw(p, u:" in broken.reason
    assert broken.reason.count("line 2") == 1 and "ol check M07.1" in broken.next
