"""The command line: what is printed, what is remembered, and the exit code, where no learner code is run."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ol import cli
from ol.course import ROOT, module, needed, notebook, reference
from ol.start import start
from ol.workspace import Workspace

SPEC = module("L8.6")
SAMPLING = module("M07.1")
COMMANDS = ["", "doctor", "start", "tests", "check", "hint", "diff", "grade", "reset", "milestone", "conform"]
COMMANDS += ["dev", "dev check"]


class Printed(NamedTuple):
    code: int
    out: str
    err: str


Ol = Callable[[str], Printed]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OL_HOME", str(tmp_path / "work"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "work"


@pytest.fixture
def ol(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ol:
    """Run a command line in this process, as the entry point does."""

    def run(line: str) -> Printed:
        monkeypatch.setattr(sys, "argv", ["ol", *line.split()])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return Printed(int(ended.value.code or 0), printed.out, printed.err)

    return run


def remembered(home: Path) -> Any:
    return Workspace(home).state


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example_in_eighty_columns(command: str, ol: Ol) -> None:
    """Someone who knows nothing must see what to type.

    KIND: property, smoke.
    """
    printed = ol(f"{command} --help")
    assert printed.code == 0
    assert f"ol {command}".strip() + " " in printed.out.partition("\n")[2], "no example"
    assert all(len(line) <= 80 for line in printed.out.splitlines())
    assert "\x1b" not in printed.out


def test_help_lists_every_command_in_a_whole_sentence(ol: Ol) -> None:
    """A sentence that is cut says the less the longer it is.

    KIND: property.
    """
    for line in ("-h", "dev -h"):
        listed = ol(line).out.partition("Commands:")[2]
        assert listed and "..." not in listed


def test_ol_alone_shows_every_module_and_one_next_step(ol: Ol, home: Path) -> None:
    """The first thing one types.

    KIND: unit, smoke.
    """
    printed = ol("")
    assert printed.code == 0 and printed.out.count("\nNext: ") == 1
    for module_id in ("M06.3", "M07.1", "M07.6", "M11.1", "L2.1", "L8.1", "L8.2", "L8.6", "L10.8"):
        assert module_id in printed.out
    assert all(len(line) <= 80 for line in printed.out.splitlines() if str(home) not in line)
    told = json.loads(ol("--json").out)
    assert told["next"]["command"] == "ol start L8.6" and len(told["modules"]) == 9


def test_start_says_what_it_wrote_and_what_comes_next(ol: Ol, home: Path) -> None:
    """And the second time, what it kept.

    KIND: unit, smoke.
    """
    printed = ol("start L8.6")
    assert printed.code == 0
    assert f"wrote  {home / 'tinyllm' / 'infer' / 'spec.py'}\n" in printed.out and "\nkept " not in printed.out
    assert "ol tests L8.6" in printed.out and "ol check L8.6 --ref-deps" in printed.out
    printed = ol("start l8.6")
    lines = printed.out.splitlines()
    assert printed.code == 0 and sum(line.startswith("kept ") for line in lines) == 3 + len(SPEC.chapters)
    assert not any(line.startswith("wrote ") for line in lines)


@pytest.mark.parametrize(
    "line", ["start L99", "tests L99", "hint L99", "diff L99", "reset L99", "check L99", "grade L99"]
)
def test_an_unknown_module_is_a_usage_error_that_names_near_ones(line: str, ol: Ol) -> None:
    """Exit code 2, as for a wrong option.

    KIND: boundary.
    """
    printed = ol(line)
    assert printed.code == 2 and "There is no module 'L99'" in printed.err and "did you mean" in printed.err


def test_a_milestone_is_no_module_and_is_told_apart(ol: Ol) -> None:
    """Both have short names; the command for the other kind is what one wants to read.

    KIND: boundary.
    """
    for line in ("start MS-L8", "grade ms-l8", "check MS-L8"):
        printed = ol(line)
        assert printed.code == 2 and "`ol milestone MS-L8`" in printed.err, line
        assert all(len(one) <= 80 for one in printed.err.splitlines())


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(
    ol: Ol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody builds a thing that cannot be kept. A file in the way is one such place for everybody.

    KIND: boundary.
    """
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("OL_HOME", str(tmp_path / "file" / "work"))
    for line, code in (("", 0), ("check L8.6 --ref-deps", 2), ("start L8.6", 2), ("doctor", 1)):
        printed = ol(line)
        said = " ".join((printed.out if line == "doctor" else printed.err).split())
        assert printed.code == code and "cannot be written" in said and "OL_HOME" in said, line
        assert "Traceback" not in printed.err


def test_wrong_commands_and_options_are_usage_errors(ol: Ol) -> None:
    """Told on standard error, in a sentence.

    KIND: boundary.
    """
    for line in ("chek L8.6", "start", "start L8.6 --force", "tests L8.6 --kind smok", "check L8.6 --kind smok"):
        printed = ol(line)
        assert printed.code == 2 and printed.err and not printed.out, line


def test_the_catalogue_can_be_narrowed_and_read_by_machines(ol: Ol) -> None:
    """Seventy tests are much to read at once.

    KIND: unit.
    """
    everything, smoke = ol("tests L8.6"), ol("tests L8.6 --kind smoke")
    assert "test_eos_stop_and_budget\n    boundary; pitfalls 11, 12\n" in everything.out
    assert "test_hand_example\n" in smoke.out and "test_eos_stop_and_budget" not in smoke.out
    assert all(len(line) <= 80 for line in everything.out.splitlines())
    told = json.loads(ol("tests L8.6 --json").out)
    (one,) = [t for t in told["tests"] if t["name"] == "test_hand_example"]
    assert one["kinds"] == ["unit", "smoke"] and one["pitfalls"] == [1, 4]


def test_hints_come_one_by_one_and_are_counted(ol: Ol, home: Path) -> None:
    """Each call goes one step further; what was seen can be seen again.

    KIND: unit, smoke.
    """
    start(SPEC, Workspace(home))
    assert ol("hint L8.6").code == 2, "nothing is known to fail yet"
    Workspace(home).record_failure(SPEC, "test_hand_example_greedy")
    first, second = ol("hint L8.6").out, ol("hint L8.6").out
    assert "test_hand_example_greedy" in first and "Hint 1 of 4" in first and "Hint 2" not in first
    assert "Hint 2 of 4" in second and "Hint 1" not in second
    assert remembered(home).hints == {"L8.6 test_hand_example_greedy": 2}
    again = ol("hint L8.6 --again").out
    assert "Hint 1 of 4" in again and "Hint 2 of 4" in again and "Hint 3" not in again
    ol("hint L8.6")
    last, after = ol("hint L8.6").out, ol("hint L8.6").out
    assert "Hint 4 of 4" in last and "goes further" not in last
    assert "Hint 1 of 4" in after and "Hint 4 of 4" in after, "at the end all of them"
    other = ol("hint L8.6 test_bad_arguments").out
    assert "test_bad_arguments" in other and "Hint 1 of 4" in other
    assert ol("hint L8.6 test_nothing").code == 2


def test_a_hint_after_a_failed_import_says_what_to_mend(ol: Ol, home: Path) -> None:
    """No test has failed, and yet the check did: its own words are the hint.

    KIND: boundary.
    """
    workspace = Workspace(home)
    start(SAMPLING, workspace)
    workspace.record_failure(SAMPLING, "test_stale")
    workspace.write(workspace.file(SAMPLING.files[0]), "import nothing_of_that_name\n")
    assert ol("check M07.1").code == 1
    hint = ol("hint M07.1")
    said = " ".join(hint.err.split())
    assert hint.code == 2 and "nothing_of_that_name" in said and "Mend that first" in said and "test_stale" not in said
    workspace.record_failure(SAMPLING, "test_left_to_right")
    assert workspace.state.faults == {}


def test_the_untouched_template_is_no_suite_yet(ol: Ol, home: Path) -> None:
    """Exit code 4, as the help says; one line of one's own is a beginning.

    KIND: boundary.
    """
    start(SAMPLING, Workspace(home))
    graded = ol("grade M07.1")
    assert graded.code == 4 and "no tests of your own yet" in graded.out


def test_the_module_of_another_engine_points_where_it_is_built(ol: Ol) -> None:
    """It has no files, so `ol start` can only say where to look.

    KIND: boundary.
    """
    printed = ol("start L10.8")
    assert printed.code == 0 and "Next: ol conform" in printed.out and "ports/rust" in printed.out
    assert (ROOT / "ports" / "rust").is_dir() and notebook("15-holding-another-engine").is_file()
    assert "book/15-holding-another-engine.ipynb" in printed.out


def test_diff_waits_for_a_pass_or_is_recorded(ol: Ol, home: Path) -> None:
    """Seeing the solution early is a choice that one's progress shows.

    KIND: unit, smoke.
    """
    assert ol("diff L8.6").code == 4
    workspace = Workspace(home)
    start(SPEC, workspace)
    refused = ol("diff L8.6")
    assert refused.code == 3 and "--spoil" in refused.err and not refused.out
    assert remembered(home).spoiled == {}
    shown = ol("diff L8.6 --spoil")
    assert shown.code == 0 and "+++ reference/tinyllm/infer/spec.py" in shown.out
    assert list(remembered(home).spoiled) == ["L8.6"]
    file = SPEC.files[0]
    workspace.write(workspace.file(file), reference(file).read_text(encoding="utf-8"))
    workspace.record_pass(SPEC)
    assert "the same as the reference" in ol("diff L8.6").out


def test_every_command_that_is_named_works_with_what_was_lent(ol: Ol, home: Path) -> None:
    """After `ol check L8.6 --ref-deps`, a next command without the option would be refused.

    KIND: property.
    """
    lent, workspace = "ol check L8.6 --ref-deps", Workspace(home)
    listed = "M06.3, M07.1, M07.6, M11.1, L2.1, L8.1"
    assert f"{listed}, L8.2" in " ".join(ol("start L8.6").out.split())
    refused = ol("check L8.6 --kind smoke")
    assert refused.code == 3 and f"{listed} and L8.2" in " ".join(refused.out.split()), "the list that start gave"
    assert refused.out.endswith("\nNext: ol check L8.6 --kind smoke --ref-deps\n")
    assert f"`{lent}`" in ol("hint L8.6").err and f"`{lent}`" in ol("diff L8.6").err
    changed = ol("milestone MS-L8 --ref-deps")
    assert changed.code == 3 and changed.out.endswith(f"Next: {lent}\n")
    workspace.record_pass(SPEC)
    refused = ol("milestone MS-L8")
    assert refused.code == 3 and refused.out.endswith("\nNext: ol milestone MS-L8 --ref-deps\n")
    for one in needed(SPEC):
        start(one, workspace)
        workspace.record_pass(one)
    workspace.write(workspace.file(SPEC.files[0]), "changed = True\n")
    assert "`ol check L8.6`" in ol("diff L8.6").err, "no more than is needed"


def test_reset_says_where_the_backup_is(ol: Ol, home: Path) -> None:
    """So that one can change one's mind.

    KIND: unit.
    """
    assert ol("reset L8.6").code == 4
    start(SPEC, Workspace(home))
    workspace = Workspace(home)
    workspace.write(workspace.file(SPEC.files[0]), "my work\n")
    printed = ol("reset L8.6")
    (pack,) = workspace.backups.iterdir()
    assert printed.code == 0 and f"backup {pack}" in printed.out
    assert "NotImplementedError" in workspace.file(SPEC.files[0]).read_text(encoding="utf-8")


def test_a_folder_inside_the_course_is_a_usage_error(ol: Ol, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told in a sentence, before anything is written.

    KIND: boundary.
    """
    monkeypatch.setenv("OL_HOME", str(ROOT / "tests"))
    printed = ol("start L8.6")
    assert printed.code == 2 and "OL_HOME" in printed.err
    assert not (ROOT / "tests" / "tinyllm").exists()


def test_a_fault_of_the_course_is_told_as_one(ol: Ol, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner must not look for it in their own code.

    KIND: boundary.
    """

    def fault(module: object) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr(cli, "tests_of", fault)
    printed = ol("tests L8.6")
    assert printed.code == 5 and "fault of the course" in printed.err


def test_ctrl_c_ends_with_a_sentence(ol: Ol, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with a traceback, and with what a shell expects.

    KIND: boundary.
    """

    def interrupt(module: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "tests_of", interrupt)
    printed = ol("tests L8.6")
    assert printed.code == 130 and "Stopped." in printed.err and "Traceback" not in printed.err


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Make `ol check` get a given verdict without running anything; the calls it got."""
    checking = importlib.import_module("ol.check")

    def give(**verdict: Any) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def check(module_id: str, workspace: Workspace, **options: Any) -> Any:
            calls.append({"module": module_id, **options})
            options["on_event"]({"is": "collected", "tests": ["a", "b"]})
            options["on_event"]({"is": "result", "test": "a"})
            return checking.Verdict(module_id, **verdict)

        monkeypatch.setattr(checking, "check", check)
        return calls

    return give


@pytest.mark.parametrize(
    ("status", "code"), [("pass", 0), ("fail", 1), ("blocked", 3), ("not started", 4), ("broken", 5)]
)
def test_the_exit_code_of_a_check_is_its_verdict(status: str, code: int, ol: Ol, judged: Any) -> None:
    """Scripts and editors read nothing else.

    KIND: property, smoke.
    """
    judged(status=status, reason="it is so.", explanation="    because", next="Next: do that", output="the end")
    printed = ol("check L8.6")
    assert printed.code == code
    assert printed.out.startswith(f"L8.6 {status.upper()}: it is so.\n\n    because\n\nNext: do that\n")
    assert "Its last lines:\n    the end" in printed.out and "\x1b" not in printed.out and not printed.err
    told = ol("check L8.6 --json")
    assert told.code == code and json.loads(told.out)["status"] == status


def test_the_options_of_a_check_arrive(ol: Ol, judged: Any) -> None:
    """And those that contradict each other are refused.

    KIND: unit.
    """
    calls = judged(status="pass", reason="it is so.")
    ol("check l8.6")
    ol("check L8.6 --ref-deps --kind smoke")
    ol("check L8.6 --book")
    got = [(c["module"], c["ref_deps"], c["kind"], c["book"]) for c in calls]
    assert got == [("L8.6", False, None, False), ("L8.6", True, "smoke", False), ("L8.6", False, None, True)]
    for line in ("--watch --json", "--watch --book", "--book --kind smoke"):
        assert ol(f"check L8.6 {line}").code == 2
    assert len(calls) == 3


def test_nothing_is_judged_with_another_copy_of_the_course(ol: Ol, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong then is the environment: the line that mends it, and the doctor still answers.

    KIND: boundary.
    """
    monkeypatch.setattr("ol.doctor.another_copy", lambda: Path("the-other"))
    for line in ("", "start M07.1", "check M07.1", "grade M07.1"):
        printed = ol(line)
        assert printed.code == 5 and printed.out == ""
        assert "the-other" in printed.err and "pip install" in printed.err
    assert "the-other" in ol("doctor").out


def test_python_m_ol_is_ol_and_says_nothing_in_colour_to_a_pipe(home: Path) -> None:
    """The entry point works from any folder.

    KIND: unit.
    """
    done = subprocess.run(
        [sys.executable, "-m", "ol"], cwd=home.parent, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0 and "Next: ol start L8.6" in done.stdout and "\x1b" not in done.stdout
    assert done.stderr == ""


HALF = "raise ValueError('half a character: \\ud800')\n"


def test_what_no_encoding_has_is_printed_as_an_escape(home: Path, tmp_path: Path) -> None:
    """A learner's message may hold half a character; it must end neither a check nor the grading of a class.

    KIND: boundary.
    """
    start(SAMPLING, Workspace(home))
    Workspace(home).file(SAMPLING.files[0]).write_text(HALF, encoding="utf-8")
    for learner, text in (("a", f"def test_a():\n    {HALF}"), ("b", "def test_b():\n    assert False\n")):
        tests = tmp_path / "class" / learner
        tests.mkdir(parents=True)
        (tests / "test_mine.py").write_text(text, encoding="utf-8")
    for words, code in ((["check", "M07.1"], 1), (["grade", "M07.1", "--all", str(tmp_path / "class")], 0)):
        command = [sys.executable, "-m", "ol", *words]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=ROOT, check=False)
        assert done.returncode == code and "\\ud800" in done.stdout, done
        assert "Traceback" not in done.stderr
    table = (tmp_path / "class" / "grades-m07-1-sampling.csv").read_text(encoding="utf-8")
    assert "\\ud800" in table and "\nb," in table


@pytest.mark.skipif(sys.platform == "win32", reason="there a folder that is in use cannot be removed")
def test_ol_works_in_a_folder_that_was_removed(home: Path, tmp_path: Path) -> None:
    """The learner's own folder is somewhere else.

    KIND: boundary.
    """
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os, runpy, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); sys.argv = ['ol']; "
    program += "from ol.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0 and str(home) in done.stdout, done.stderr
