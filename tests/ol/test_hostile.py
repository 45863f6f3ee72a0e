"""Hostile and unlucky submissions: each gets the right verdict, the right exit code and a sentence, in time.

The files are in hostile/, one misfortune each, as answers to M07.1 (its tests are quick) or as suites of a learner's
own. @COURSE@ and @WORKSPACE@ in them become paths. After each, the course and the learner's files must be as they were.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ol.check import check
from ol.course import ROOT, module, reference
from ol.nursery import AVAILABLE, Nursery
from ol.overlay import Overlay
from ol.sandbox import PREFIX, Child, Limits, Run, run
from ol.verdict import Verdict
from ol.workspace import Workspace

HOSTILE = Path(__file__).parent / "hostile"
SAMPLING = module("M07.1")
FILE = SAMPLING.files[0]
SHORT = Limits(seconds=60.0, memory_bytes=3 << 30, file_bytes=16 << 20)
IMPATIENT = Limits(seconds=60.0, quiet_seconds=4.0)
LONGEST_SECONDS = 30.0
PLANTED = ROOT / "planted.txt"

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has Landlock and /proc")
posix = pytest.mark.skipif(os.name != "posix", reason="only POSIX has these limits")


@dataclass(frozen=True)
class Case:
    """A submission, the words that the sentence must contain, and the kind of tests that meets it (None: all)."""

    name: str
    says: str
    kind: str | None = "smoke"
    hangs: bool = False


def text_of(name: str, workspace: Path) -> str:
    text = (HOSTILE / f"{name}.py").read_text(encoding="utf-8")
    return text.replace("@COURSE@", ROOT.as_posix()).replace("@WORKSPACE@", workspace.as_posix())


def submit(name: str, folder: Path) -> Workspace:
    workspace = Workspace(folder / "work")
    path = workspace.file(FILE)
    path.parent.mkdir(parents=True)
    path.write_text(text_of(name, workspace.path), encoding="utf-8")
    return workspace


def course_files() -> dict[str, tuple[int, int]]:
    """Size and time of every file of the course that a run could want to change."""
    folders = [ROOT / name for name in ("tinyllm", "ol", "tests", "book")]
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    kept = [path for path in paths if "__pycache__" not in path.parts and ".ipynb_checkpoints" not in path.parts]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in kept}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery | None]:
    """A process that forks a child a run, as grading uses it, where there can be one."""
    if not AVAILABLE:
        yield None
        return
    with Nursery() as there:
        yield there


def judged(workspace: Workspace, case: Case, nursery: Nursery | None, forked: bool = True) -> Verdict:
    """Check the submission; whatever it does, files stay, nothing keeps running, and the time is kept."""
    before = workspace.file(FILE).read_bytes()
    course = course_files()
    started = time.monotonic()
    limits = IMPATIENT if case.hangs else SHORT
    with Child(limits, nursery=nursery if forked else None) as child:
        verdict = check("M07.1", workspace, kind=case.kind, limits=limits, child=child)
    assert time.monotonic() - started < LONGEST_SECONDS
    assert workspace.file(FILE).read_bytes() == before
    changed = {path for path, stat in course_files().items() if course.get(path, stat) != stat}
    assert not {path for path in changed if "/ol/hostile/" in path or "/tinyllm/" in path}
    assert not PLANTED.exists()
    assert not running_from_here(nursery)
    return verdict


def running_from_here(nursery: Nursery | None) -> list[str]:
    """Processes that carry the mark of a run of this process (Linux); the one that forks is none."""
    idle = nursery.folder.name.encode() if nursery is not None else b"none"
    mark = f"OL_RUN={PREFIX}{os.getpid()}-".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in (text := entry.read_bytes()) and idle not in text:
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


def _named(case: Any) -> str:
    name: str = getattr(case, "values", [case])[0].name
    return name


FAILING = [
    Case("exits_at_import", "ends the program when it is imported"),
    Case("exits_hard_at_import", "ended the process with exit code 0"),
    Case("exits_in_a_test", "ended the process with exit code 0 while test_"),
    Case("raises_system_exit", "tests pass"),
    Case("interrupts", "not judged"),
    Case("loops", "did not end for 4 seconds", hangs=True),
    Case("loops_at_import", "nothing happened for 4 seconds", hangs=True),
    Case("loops_without_python", "did not end for 4 seconds", hangs=True),
    Case("recurses", "tests pass"),
    pytest.param(Case("crashes", "SIGSEGV"), marks=posix),
    pytest.param(Case("allocates_ten_gigabytes", "tests pass"), marks=linux),
    Case("forks_for_ever", "tried to start another process"),
    pytest.param(Case("forks_by_machine_code", "started another process"), marks=linux),
    Case("starts_a_program", "tried to start another process"),
    Case("makes_thousands_of_files", "more than 1000 files"),
    pytest.param(Case("writes_a_huge_file", "tests pass"), marks=posix),
    Case("writes_outside", "outside the folder of the run"),
    Case("writes_outside_and_hides_it", "outside the folder of the run"),
    pytest.param(Case("writes_outside_without_python", "tests pass"), marks=linux),
    Case("deletes_the_workspace", "outside the folder of the run"),
    Case("deletes_its_own_copy", ""),
    Case("edits_the_tests", "changed the tests that judge it"),
    Case("patches_pytest", "changed _pytest.python.Function.runtest"),
    Case("patches_a_report", "changed _pytest.reports.TestReport"),
    Case("replaces_the_toys", "changed _toy.frequencies"),
    Case("replaces_the_comparison", "changed numpy.array_equal"),
    Case("replaces_the_reference", "changed tinyllm.num.exact.check_distribution"),
    Case("answers_yes_to_everything", "tests pass", kind=None),
    Case("prints_a_summary", "ended the process with exit code 0"),
    Case("forges_a_result", "wrong signature"),
    Case("skips_its_tests", "tests pass"),
    Case("ends_the_session", "not judged"),
    Case("reads_the_bugs", "not for it"),
    Case("borrows_the_reference", "not for it"),
    Case("kills_its_starter", "tried to send a signal"),
    Case("closes_everything", "never judged"),
    Case("leaves_a_thread_behind", ""),
    Case("opens_a_connection", "tried to connect"),
    Case("has_no_function", "has no sample_categorical"),
    Case("has_another_signature", "tests pass"),
    Case("imports_in_a_circle", "circle"),
    Case("has_a_syntax_error", "SyntaxError"),
]


# Both roads into a run lead through the same limits; these show that each is the whole road.
ALSO_AFRESH = {
    *("exits_hard_at_import", "loops", "crashes", "forks_for_ever", "forks_by_machine_code", "writes_outside"),
    *("edits_the_tests", "patches_pytest", "prints_a_summary", "forges_a_result", "reads_the_bugs"),
    *("borrows_the_reference", "kills_its_starter", "closes_everything"),
}


def fails_with_a_sentence(case: Case, verdict: Verdict, workspace: Workspace) -> None:
    assert (verdict.status, verdict.exit_code) == ("fail", 1), verdict.text()
    assert case.says in verdict.reason, verdict.text()
    assert verdict.reason.endswith((".", ":", "?")) and "\n" not in verdict.reason
    assert not workspace.passed(SAMPLING)
    assert all(len(line) <= 100 for line in verdict.text().splitlines() if "/" not in line)


@pytest.mark.parametrize("case", FAILING, ids=lambda case: case.name)
def test_a_hostile_or_unlucky_submission_fails_with_a_sentence(
    case: Case, tmp_path: Path, nursery: Nursery | None
) -> None:
    """A verdict is worth what it withstands: never a pass, never a hang, and one sentence that says what happened.

    KIND: boundary.
    """
    workspace = submit(case.name, tmp_path)
    fails_with_a_sentence(case, judged(workspace, case, nursery), workspace)


@pytest.mark.parametrize("case", [case for case in FAILING if _named(case) in ALSO_AFRESH], ids=lambda case: case.name)
@pytest.mark.skipif(not AVAILABLE, reason="every child is started afresh here: the test above says it all")
def test_a_child_that_was_not_forked_withstands_as_much(case: Case, tmp_path: Path, nursery: Nursery | None) -> None:
    """`ol check` starts its one child afresh, as every run does where forking is not safe.

    KIND: boundary.
    """
    workspace = submit(case.name, tmp_path)
    fails_with_a_sentence(case, judged(workspace, case, nursery, forked=False), workspace)


def test_every_hostile_file_has_its_case() -> None:
    """A file without a case tests nothing.

    KIND: unit.
    """
    cases = {_named(case) for case in FAILING} | {"is_right"} | set(SUITES)
    assert {_named(case) for case in FAILING} >= ALSO_AFRESH
    assert {path.stem for path in HOSTILE.glob("*.py")} == cases


def test_a_right_answer_passes_whatever_lies_beside_it(tmp_path: Path) -> None:
    """Files called numpy.py in the learner's folder are nobody's import.

    KIND: boundary.
    """
    workspace = submit("is_right", tmp_path)
    for place in ("", "tinyllm", "tinyllm/prob", "tests"):
        (workspace.path / place).mkdir(exist_ok=True)
        (workspace.path / place / "numpy.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    verdict = check("M07.1", workspace, limits=SHORT)
    assert (verdict.status, verdict.exit_code) == ("pass", 0), verdict.text()
    assert workspace.passed(SAMPLING)


def test_a_file_in_another_encoding_is_told_apart_from_a_wrong_one(tmp_path: Path) -> None:
    """An editor set to Latin-1 writes what Python cannot read; the sentence must name the encoding.

    KIND: boundary.
    """
    workspace = submit("is_right", tmp_path)
    workspace.file(FILE).write_bytes('"""Ein schöner Würfel."""\n'.encode("latin-1"))
    verdict = check("M07.1", workspace, limits=SHORT)
    assert verdict.exit_code == 1
    assert "is not saved as UTF-8" in verdict.reason


def test_a_file_of_zeros_or_of_brackets_is_a_failure_like_any_other(tmp_path: Path) -> None:
    """A disk error leaves zeros, a cat on the keyboard leaves brackets: a sentence for both.

    KIND: boundary.
    """
    workspace = submit("is_right", tmp_path)
    for text in ("\0" * 100, "(" * 100_000):
        workspace.file(FILE).write_text(text, encoding="utf-8")
        verdict = check("M07.1", workspace, limits=SHORT)
        assert verdict.exit_code == 1
        assert "cannot be imported" in verdict.reason


# A learner's own suites, as `ol grade` runs them.

SUITES = {
    "suite_sleeps": "timeout",
    "suite_exits": "ended",
    "suite_cannot_be_read": "uncollected",
    "suite_is_empty": "finished",
    "suite_reads_the_bugs": "tampered",
    "suite_reads_the_reference": "tampered",
    "suite_conftest_skips_everything": "finished",
    "suite_conftest_drops_everything": "finished",
    "suite_beside_a_false_numpy": "finished",
}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_counts_only_when_it_ran(name: str, tmp_path: Path, nursery: Nursery | None) -> None:
    """A grade is a share of bugs caught: a suite that skips, hangs or leaves must not look like one that passed.

    KIND: boundary.
    """
    own = tmp_path / "l-own"
    own.mkdir()
    target = "conftest.py" if "conftest" in name else "test_own.py"
    (own / target).write_text(text_of(name, tmp_path), encoding="utf-8")
    if target == "conftest.py":
        shutil.copyfile(HOSTILE / "suite_beside_a_false_numpy.py", own / "test_own.py")
    (own / "numpy.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    limits = IMPATIENT if SUITES[name] == "timeout" else SHORT
    overlay = Overlay({"tinyllm.prob.sampling": reference(FILE)})
    outcome = run(Run(overlay, (own,), limits=limits, secret=(reference(FILE),)), nursery=nursery)
    assert outcome.ending == SUITES[name], outcome
    assert outcome.passed == (name == "suite_beside_a_false_numpy")
    assert outcome.finished or outcome.reason.endswith((".", "?"))


@posix
def test_a_run_whose_starter_is_killed_ends_and_its_folder_is_swept(tmp_path: Path) -> None:
    """A laptop that is shut, a terminal that is closed: nothing may go on using the processor for ever.

    KIND: boundary.
    """
    workspace = submit("loops", tmp_path)
    program = (
        "import sys; from pathlib import Path; from ol.check import check; from ol.workspace import Workspace\n"
        f"check('M07.1', Workspace(Path({str(workspace.path)!r})), on_event=lambda r: print(r['is'], flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as starter:
        assert starter.stdout is not None
        while starter.stdout.readline().strip() != "started":
            assert starter.poll() is None
        mark = f"OL_RUN={PREFIX}{starter.pid}-".encode()
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(_carries(entry, mark) for entry in Path("/proc").glob("[0-9]*/environ")):
        assert time.monotonic() < deadline, "the child goes on"
        time.sleep(0.05)
    assert workspace.file(FILE).read_text(encoding="utf-8") == text_of("loops", workspace.path)


def _carries(entry: Path, mark: bytes) -> bool:
    try:
        return mark in entry.read_bytes()
    except OSError:
        return False
