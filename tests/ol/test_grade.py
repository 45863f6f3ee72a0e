"""Grades: suites that are good, weak, invalid, empty or endless, and a folder of submissions graded in two goes."""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ol import cli
from ol import grade as grading
from ol.bugs import bugs_of
from ol.course import module, slug
from ol.grade import Grade, Missed, grade, grade_all
from ol.sandbox import Limits
from ol.side_by_side import Runner, warm_for
from ol.workspace import Workspace

SUITES = Path(__file__).parent / "suites"
SHORT = Limits(seconds=60.0, quiet_seconds=30.0)

GOOD = """
import pytest
from tinyllm.prob.sampling import sample_categorical as draw

def test_boundaries_go_up():
    assert [draw([0.25, 0.5, 0.25], u) for u in (0.0, 0.2, 0.25, 0.7, 0.75, 0.99)] == [0, 0, 1, 1, 2, 2]

def test_zeros_are_never_drawn():
    assert draw([0.0, 1.0, 0.0], 0.0) == 1 and draw([0.0, 1.0, 0.0], 1 - 2**-53) == 1

def test_a_sum_that_rounds_below_one_ends_at_the_last_possible_id():
    p = [0.1] * 10 + [0.0]
    assert draw(p, 1 - 2**-53) == 9

def test_what_is_no_distribution_and_what_is_no_uniform():
    for p in ([0.5, 0.4], [], [1.5, -0.5], [float("nan"), 1.0], [2.0, 2.0]):
        with pytest.raises(ValueError):
            draw(p, 0.5)
    for u in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError):
            draw([0.5, 0.5], u)

def test_left_to_right():
    assert draw([0.1, 0.2, 0.7], 0.30000000000000004) == 2 and draw([0.1, 0.2, 0.7], 0.3) == 1
"""
WEAK = """
from tinyllm.prob.sampling import sample_categorical

def test_it_returns_an_id():
    assert sample_categorical([0.5, 0.5], 0.25) == 0
"""
TOO_STRICT = (
    """
import pytest
from tinyllm.prob.sampling import sample_categorical

def test_the_words_of_an_error():
    with pytest.raises(ValueError, match="Purple"):
        sample_categorical([0.5, 0.5], 2.0)
"""
    + WEAK
)
NO_TESTS = "def check_something(): assert False\n"
SKIPPED = "import pytest\n\n@pytest.mark.skip\ndef test_later(): assert False\n"
UNREADABLE = "def test_this(:\n"
ENDLESS = "def test_waits():\n    while True: pass\n" + WEAK
ENDLESS_ON_A_BUG = """
from tinyllm.prob.sampling import sample_categorical

def test_a_boundary():
    while sample_categorical([0.5, 0.5], 0.5) != 1:
        pass
"""
LEAVES = WEAK + "\nimport os\n\ndef test_goes():\n    os._exit(0)\n"
LEAVES_ON_A_BUG = ENDLESS_ON_A_BUG.replace("pass", "__import__('os')._exit(0)")
READS_THE_BUGS = WEAK + "\ndef test_looks():\n    import ol.bugs\n    ol.bugs.bugs_of('M07.1')\n"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner(2, warm_for(module("M07.1"))) as at_work:
        yield at_work


def suite(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test_mine.py").write_text(text, encoding="utf-8")
    return folder


def test_a_good_suite_catches_what_is_planted(tmp_path: Path, runner: Runner) -> None:
    """A learner who tests each sentence of the contract gets the credit, and sees the runs go by.

    KIND: unit, smoke.
    """
    events: list[dict[str, Any]] = []
    found = grade("M07.1", suite(tmp_path / "mine", GOOD), runner=runner, on_event=events.append)
    assert (found.status, found.exit_code, found.valid, found.tests) == ("pass", 0, True, 5), found.text()
    assert found.bugs == len(bugs_of("M07.1")) and found.share >= 0.8
    assert [event["done"] for event in events] == list(range(1, found.bugs + 3))
    assert [event["of"] for event in events] == ["correct"] * 2 + ["bug"] * found.bugs


def test_a_careful_suite_of_the_worked_module_catches_every_bug(tmp_path: Path) -> None:
    """Every one of the bugs can be told from correct code by tests that know only the contract and the toys.

    KIND: unit.
    """
    own = suite(tmp_path / "l8-6-spec", (SUITES / "good.py").read_text(encoding="utf-8"))
    found = grade("L8.6", own, workers=2)
    assert found.valid, found.text()
    assert (found.bugs, found.caught, found.missed, found.exit_code) == (28, 28, (), 0), found.text()


def test_a_weak_suite_is_valid_and_fails_with_names_and_without_edits(tmp_path: Path, runner: Runner) -> None:
    """What was missed is told by pitfall and public name; never how, and never by the name of the bug.

    KIND: unit, smoke.
    """
    found = grade("M07.1", suite(tmp_path / "mine", WEAK), runner=runner)
    assert (found.status, found.exit_code, found.valid) == ("fail", 1, True)
    assert 0 < len(found.missed) == found.bugs - found.caught
    text = found.text()
    assert "80% is a pass" in text and "sample_categorical" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    said = text + json.dumps(found.to_json())
    for bug in bugs_of("M07.1"):
        assert bug.id not in said and bug.misconception not in said
        assert not any(edit.new.strip() in said for edit in bug.edits)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TOO_STRICT, "test_the_words_of_an_error fails a correct implementation"),
        (NO_TESTS, "No test was found"),
        ("", "No test was found"),
        (SKIPPED, "Every test was skipped"),
        (UNREADABLE, "test_mine.py cannot be run: SyntaxError"),
        (LEAVES, "ended the process with exit code 0 while test_goes was running"),
        (READS_THE_BUGS, "which is not for it, while test_looks was running"),
    ],
    ids=["too strict", "no tests", "empty", "skipped", "unreadable", "leaves", "reads the bugs"],
)
def test_a_suite_that_is_not_valid_catches_nothing_and_is_told_why(
    text: str, says: str, tmp_path: Path, runner: Runner
) -> None:
    """Rejecting correct code, or running nothing, says nothing about a bug: no credit, and the reason in a sentence.

    KIND: boundary.
    """
    found = grade("M07.1", suite(tmp_path / "mine", text), runner=runner)
    assert (found.status, found.exit_code, found.valid, found.caught, found.share) == ("fail", 1, False, 0, 0.0)
    assert says in found.reasons[0], found.text()
    assert all(len(line) <= 80 for line in found.text().splitlines())


def test_a_syntax_error_is_told_with_the_line_it_is_in(tmp_path: Path, runner: Runner) -> None:
    """A second line number, of Python's own parser, would send the learner to the wrong place.

    KIND: unit.
    """
    found = grade("M07.1", suite(tmp_path / "mine", "X = 1\n\n\n" + UNREADABLE), runner=runner)
    assert found.reasons[0].endswith("(test_mine.py, line 4)."), found.reasons[0]


def test_a_suite_without_an_end_on_correct_code_catches_nothing(tmp_path: Path, runner: Runner) -> None:
    """Otherwise a sleep would catch every bug there is.

    KIND: boundary.
    """
    limits = Limits(seconds=60.0, quiet_seconds=2.0)
    found = grade("M07.1", suite(tmp_path / "mine", ENDLESS), runner=runner, limits=limits)
    assert (found.status, found.valid, found.caught) == ("fail", False, 0)
    assert "does not come to an end" in found.reasons[0] and "test_waits" in found.reasons[0]


@pytest.mark.parametrize("text", [ENDLESS_ON_A_BUG, LEAVES_ON_A_BUG], ids=["hangs", "leaves"])
def test_a_hang_that_only_a_bug_causes_counts_as_caught(
    text: str, tmp_path: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that waits for what a bug never gives has told it from correct code.

    KIND: boundary.
    """
    monkeypatch.setattr(grading, "LEAST_SECONDS", 1.0)
    found = grade("M07.1", suite(tmp_path / "mine", text), runner=runner)
    assert found.valid and found.caught >= 1, found.text()


def test_where_there_is_nothing_to_grade_it_says_so(tmp_path: Path) -> None:
    """Exit codes as everywhere: 4 before anything is written, 3 where no bugs are planted.

    KIND: boundary.
    """
    assert grade("L8.6", tmp_path / "none").exit_code == 4
    assert grade("L10.8", tmp_path).exit_code == 3
    with pytest.raises(ValueError, match="did you mean"):
        grade("L8.7", tmp_path)
    with pytest.raises(ValueError, match="workers"):
        Runner(0)


def test_a_reference_that_a_bug_no_longer_fits_breaks_the_course_not_the_suite(
    tmp_path: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner must not look for it in their tests.

    KIND: boundary.
    """

    def stale(*arguments: object) -> None:
        raise grading.StaleEdit("bug x edits what is not there.")

    monkeypatch.setattr(grading, "with_bug", stale)
    found = grade("M07.1", suite(tmp_path / "mine", WEAK), runner=runner)
    assert (found.status, found.exit_code) == ("broken", 5) and "not your tests" in found.text()


def test_a_grade_reads_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missed pitfalls in order, those without a number last, each name once.

    KIND: unit.
    """
    missed = (Missed(None, "NGramDraft.propose"), Missed(12, "f"), Missed(3, "verify_draft"), Missed(12, "f"))
    found = Grade("L8.6", "pass", True, tests=9, bugs=28, caught=24, missed=missed)
    assert found.text() == (
        "L8.6 PASS: your 9 tests are valid and catch 24 of 28 planted bugs (86%).\n80% is a pass.\n\n"
        "Not caught:\n"
        "    pitfall 3      verify_draft\n"
        "    pitfall 12     f, 2 bugs\n"
        "    a bug          NGramDraft.propose\n\n"
        "`ol tests L8.6` shows which course tests guard each pitfall. Next: a test for\n"
        "one of them, then ol grade L8.6"
    )
    assert found.pitfalls == [3, 12]


# A folder of submissions.


class Stopped(Exception):
    """In place of Ctrl-C."""


def test_a_folder_is_graded_in_two_goes_as_in_one(tmp_path: Path) -> None:
    """An instructor's run over many submissions is interrupted and goes on; only what changed is graded again.

    KIND: boundary.
    """
    slugged = slug(module("M07.1"))
    suite(tmp_path / "ada" / "tests" / slugged, GOOD)  # a whole folder, as `ol start` makes it
    suite(tmp_path / "bob", WEAK)  # the tests alone
    suite(tmp_path / "cleo" / "work" / "tests" / slugged, TOO_STRICT)
    (tmp_path / "dan").mkdir()
    (tmp_path / ".hidden").mkdir()
    seen: list[str] = []

    def until_bob(event: dict[str, Any]) -> None:
        if event["is"] == "learner":
            seen.append(event["name"])
            if event["name"] == "bob":
                raise Stopped

    with pytest.raises(Stopped):
        grade_all("M07.1", tmp_path, workers=2, on_event=until_bob)
    assert seen == ["ada", "bob"]
    table = tmp_path / f"grades-{slugged}.csv"
    assert [row["learner"] for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())] == seen

    runs: list[dict[str, Any]] = []
    found = grade_all("M07.1", tmp_path, workers=2, on_event=runs.append)
    assert (found.csv, found.json) == (table, table.with_suffix(".json"))
    statuses = {name: row["status"] for name, row in found.grades.items()}
    assert statuses == {"ada": "pass", "bob": "fail", "cleo": "fail", "dan": "fail"}
    assert sum(event["is"] == "run" for event in runs) == 2 * 2, "two on correct code for cleo, two for dan"
    rows = {row["learner"]: row for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())}
    assert float(rows["ada"]["share"]) >= 0.8 and rows["ada"]["valid"] == "True"
    assert rows["cleo"]["tests"] == "2", "the one that is wrong ran too"
    assert rows["cleo"]["share"] == "0.000" and "fails a correct implementation" in rows["cleo"]["reasons"]
    stored = json.loads(found.json.read_text(encoding="utf-8"))
    assert set(stored["learners"]) == set(rows) and stored["pass_mark"] == 0.8

    suite(tmp_path / "dan", UNREADABLE)
    runs.clear()
    again = grade_all("M07.1", tmp_path, workers=2, on_event=runs.append)
    assert sum(event["is"] == "run" for event in runs) == 2, "dan's alone, on correct code"
    assert "SyntaxError" in again.grades["dan"]["reasons"][0]
    assert again.grades["ada"] == found.grades["ada"]


def test_stored_grades_that_cannot_be_read_or_are_of_another_course_are_made_anew(tmp_path: Path) -> None:
    """A file that somebody edited must not stand in for a grade.

    KIND: boundary.
    """
    path = tmp_path / "grades.json"
    for text in ("", "[]", '{"course": 1}', '{"course": "c", "learners": {"ada": {}}}', '{"course": "old"}'):
        path.write_text(text, encoding="utf-8")
        assert grading._graded_before(path, "c") == {}
    path.write_text('{"course": "c", "learners": {"ada": {"digest": "d"}}}', encoding="utf-8")
    assert grading._graded_before(path, "c") == {"ada": {"digest": "d"}}
    assert grading._graded_before(path, "other") == {}


# The command.


def typed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["ol", *line.split()])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_the_command_grades_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code, text, JSON, and the share that `ol` shows afterwards.

    KIND: unit, smoke.
    """
    monkeypatch.setenv("OL_HOME", str(tmp_path / "work"))
    assert typed("grade M07.1", monkeypatch, capsys)[0] == 4
    suite(Workspace().own_tests(module("M07.1")), WEAK)
    code, out, err = typed("grade M07.1 --workers 2", monkeypatch, capsys)
    assert code == 1 and out.startswith("M07.1 FAIL: your 1 test is valid and catch") and not err
    assert 0 <= Workspace().state.grades["M07.1"] < 0.8
    other = suite(tmp_path / "other", NO_TESTS)
    code, out, _ = typed(f"grade M07.1 --json --tests {other}", monkeypatch, capsys)
    told = json.loads(out)
    assert (code, told["valid"], told["share"], told["exit_code"]) == (1, False, 0.0, 1)
    for line in (f"--all {other} --tests {other}", f"--tests {tmp_path}/no", f"--all {tmp_path}/no", f"--all {other}"):
        assert typed(f"grade M07.1 {line}", monkeypatch, capsys)[0] == 2, line


def test_the_command_grades_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a learner, and where the files are.

    KIND: unit.
    """
    suite(tmp_path / "all" / "ada", NO_TESTS)
    code, out, err = typed(f"grade M07.1 --all {tmp_path / 'all'}", monkeypatch, capsys)
    assert code == 0 and "ada" in out and "No test was found" in out and "grades-m07-1-sampling.csv" in out and not err
