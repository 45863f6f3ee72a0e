"""The command `ol`: what a learner types, what it prints, and the exit code that scripts read.

Each command is a few lines over the module that does the work; nothing here knows how tests are run or bugs are
planted. Exit codes: 0 pass, 1 fail, 2 usage, 3 blocked, 4 not started, 5 the course itself is broken.
"""

from __future__ import annotations

import dataclasses
import difflib
import errno
import io
import json
import os
import signal
import sys
import textwrap
import traceback
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ol.catalogue import KINDS, TestInfo, find, tests_of
from ol.commands import command, lacking
from ol.course import ROOT, Module, module, reference
from ol.workspace import Workspace, WorkspaceError

if TYPE_CHECKING:
    from ol.verdict import Verdict

PASS, FAIL, USAGE, BLOCKED, NOT_STARTED, BROKEN = range(6)
STOPPED = 130  # what a shell reports for Ctrl-C
_UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EBADF)

app = typer.Typer(
    name="ol",
    add_completion=False,
    rich_markup_mode=None,  # help is plain text: it reads the same in a pipe and without colour
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dev = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
app.add_typer(dev, name="dev")

ModuleId = Annotated[str, typer.Argument(metavar="MODULE", help="Such as L8.6; `ol` lists them.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else.")]


def main() -> None:
    """Run the command line and end the process with the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what learners' code says may hold what no encoding has
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="ol")
    except WorkspaceError as error:
        _say(_wrapped(str(error), 0))
        sys.exit(USAGE)
    except SystemExit as ended:
        if ended.code == STOPPED:
            _say("Stopped. Your files and your progress are as they were.")
        raise
    except Exception as fault:
        if isinstance(fault, OSError) and fault.filename is None and fault.errno in _UNWRITABLE:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python tries to write the rest while it ends
            _say(f"What there was to say could not be written: {fault.strerror}.")
            sys.exit(USAGE)
        traceback.print_exc()
        _say("This is a fault of the course, not of your code. `ol doctor` may say what is wrong.")
        sys.exit(BROKEN)


def _terminated(number: int, frame: object) -> None:
    """End as an exception does, so that what was started here ends too."""
    sys.exit(128 + number)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _capital(error: ValueError) -> str:
    """What is wrong, as a sentence of its own."""
    return f"{str(error)[0].upper()}{str(error)[1:]}"


def _usage(error: ValueError) -> typer.Exit:
    """Say what the caller got wrong; the exit to raise."""
    _say(_capital(error))
    return typer.Exit(USAGE)


def _out() -> Console:
    # No guessing at what a number or a path is; colour only where the text says so, and only in a terminal.
    return Console(highlight=False, emoji=False, markup=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value) if isinstance(value, Path) else list(value)


def _module(module_id: str) -> Module:
    try:
        return module(module_id)
    except ValueError as error:
        from ol.milestone import MILESTONES

        _say(_wrapped(_capital(error), 0))
        if (wanted := module_id.strip().upper()) in MILESTONES:
            _say(f"{wanted} is a milestone: `ol milestone {wanted}`.")
        raise typer.Exit(USAGE) from error


def _started(chosen: Module, workspace: Workspace) -> None:
    if not workspace.started(chosen):
        _say(f"{chosen.id} is not started: `ol start {chosen.id}` writes what you begin with.")
        raise typer.Exit(NOT_STARTED)


def _of_this_folder() -> None:
    """Judge nothing with another copy's code: a right solution would be called a fraud."""
    from ol.doctor import INSTALL, another_copy

    if other := another_copy():
        _say(_wrapped(f"This is the course in {ROOT}, but this Python has the copy in {other} installed.", 0))
        _say(f"In {ROOT}, type: {INSTALL}")
        raise typer.Exit(BROKEN)


def _relative(path: Path) -> str:
    """A path as one would type it here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or this folder is not there any more
        return str(path)


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(text, 80, initial_indent=" " * indent, subsequent_indent=" " * indent, break_on_hyphens=False)


# Where you are.

_COLOURS = {"passed": "green", "started": "yellow", "changed": "yellow", "ok": "green", "bad": "red", "note": "yellow"}


@app.callback(invoke_without_command=True)
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Build speculative decoding yourself, module by module, and have it checked.

    \b
    ol                  where you are, and what to do next
    ol start L8.6       write the stub, its contract, a folder for your tests
    ol tests L8.6       what the tests claim, before you write code
    ol check L8.6       run them on your code; the exit code is the verdict
    ol hint L8.6        a hint for the first test that fails
    ol diff L8.6        after passing: your code against the reference
    ol grade L8.6       the share of planted bugs that your own tests catch

    Your files are in work/ beside the book, or in the folder that OL_HOME names.

    Exit codes: 0 pass, 1 fail, 2 usage, 3 blocked, 4 not started, 5 the course itself is broken.
    """
    if context.invoked_subcommand != "doctor":
        _of_this_folder()
    if context.invoked_subcommand is not None:
        return
    from ol.progress import next_step, standings

    workspace = Workspace()
    if unwritable := workspace.why_unwritable():
        _say(_wrapped(unwritable, 0))
    now, step = standings(workspace), next_step(workspace)
    if as_json:
        rows = [{"module": s.module.id, "title": s.module.title, "state": s.state, "note": s.note} for s in now]
        _print_json({"folder": workspace.path, "modules": rows, "next": step._asdict()})
        return
    out = _out()
    done = sum(s.state == "passed" for s in now)
    here = sum(bool(s.module.files) for s in now)
    out.print(f"{done} of the {here} modules that are built here passed, in {_relative(workspace.path)}\n")
    table = Table.grid(padding=(0, 2))
    for s in now:
        table.add_row(f"  {s.module.id}", s.module.title, Text(s.state, _COLOURS.get(s.state, "")), s.note)
    out.print(table, soft_wrap=False)
    out.print(f"\nNext: {step.command}")
    out.print(_wrapped(step.why, 6))


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """See whether this machine is ready, and if not, what to type.

    \b
    ol doctor
    ol doctor --json
    """
    from ol.doctor import examine

    findings = examine(Workspace())
    bad = any(finding.state == "bad" for finding in findings)
    if as_json:
        _print_json({"ready": not bad, "findings": [finding._asdict() for finding in findings]})
    else:
        out = _out()
        for finding in findings:
            out.print(
                Text.assemble((f"{finding.state:5}", _COLOURS[finding.state]), f"{finding.what:13}", finding.found)
            )
            if finding.fix:
                out.print(f"{'':18}{finding.fix}")
        out.print("\nSomething is missing: run the lines shown, then `ol doctor` again." if bad else "\nReady.")
    raise typer.Exit(FAIL if bad else PASS)


# Building a module.


_ENGINE = "15-holding-another-engine"


@app.command()
def start(module_id: ModuleId) -> None:
    """Write what you begin a module with. What is there already is never overwritten.

    \b
    ol start L8.6
      work/tinyllm/infer/spec.py     the stub: signatures, docstrings, your bodies
      work/tinyllm/infer/spec.pyi    the contract, to read beside it
      work/tests/l8-6-spec/          for your own tests
      work/book/                     the chapters with the solutions emptied
    """
    from ol.start import start as hand_out

    chosen, workspace, out = _module(module_id), Workspace(), _out()
    if not chosen.files:
        needs = ", ".join(chosen.needs)
        out.print(_wrapped(f"{chosen.id} has no files here: {chosen.title}, in a language of your choice.", 0))
        out.print(
            _wrapped(f"It needs {needs}. ports/rust is one such engine, and book/{_ENGINE}.ipynb explains it.", 0)
        )
        out.print("\nNext: ol conform -- YOUR_PROGRAM")
        return
    handed = hand_out(chosen, workspace)
    for verb, paths in (("wrote", handed.written), ("kept", handed.kept)):
        for path in paths:
            out.print(f"{verb:6} {_relative(path)}")
    missing = [need.id for need in lacking(chosen, workspace)]
    out.print(f"\n{chosen.id}, {chosen.title}.")
    if missing:
        out.print(
            _wrapped(f"Needed, and not passed yet: {', '.join(missing)}. Build them, or let the course lend them.", 0)
        )
    steps = [f"ol tests {chosen.id}", f"edit {_relative(workspace.file(chosen.files[-1]))}"]
    steps += [command("check", chosen, workspace)]
    if chosen.chapters:
        steps.insert(0, f"read {_relative(workspace.practice(chosen.chapters[0]))}")
    for word, step in zip(["Next:", *[""] * len(steps)], steps, strict=False):
        out.print(f"{word:6}{step}")


@app.command()
def tests(
    module_id: ModuleId,
    kind: Annotated[str | None, typer.Option(help=f"Only these: {', '.join(KINDS)}.")] = None,
    as_json: AsJson = False,
) -> None:
    """The test catalogue: what each test claims, and why it matters.

    \b
    ol tests L8.6
    ol tests L8.6 --kind smoke      the few to begin with
    """
    chosen = _module(module_id)
    found = [info for info in tests_of(chosen) if _kind(kind) is None or kind in info.kinds]
    if as_json:
        _print_json({"module": chosen.id, "tests": found})
        return
    out = _out()
    if not chosen.files:
        out.print(f"{chosen.id} has no tests here: {chosen.title}.")
        return
    for info in found:
        _print_test(out, info)
    smoke = sum("smoke" in info.kinds for info in found)
    out.print(f"{len(found)} tests of {chosen.id}" + (f", {smoke} of them smoke." if kind is None else "."))


def _print_test(out: Console, info: TestInfo) -> None:
    word = "pitfall" if len(info.pitfalls) == 1 else "pitfalls"
    pitfalls = f"; {word} {', '.join(map(str, info.pitfalls))}" if info.pitfalls else ""
    out.print(Text(info.name, "bold"))
    out.print(f"    {', '.join(info.kinds)}{pitfalls}")
    for paragraph in filter(None, [info.why, *info.detail.split("\n\n")]):
        out.print(_wrapped(paragraph, 4))
    out.print()


def _kind(kind: str | None) -> str | None:
    if kind is not None and kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        _say(
            f"There is no kind {kind!r}; " + (f"did you mean {near[0]}?" if near else f"kinds are {', '.join(KINDS)}.")
        )
        raise typer.Exit(USAGE)
    return kind


@app.command()
def check(
    module_id: ModuleId,
    ref_deps: Annotated[
        bool, typer.Option("--ref-deps", help="Lend the course's code for needed modules that have not passed.")
    ] = False,
    kind: Annotated[str | None, typer.Option(help=f"Only these tests: {', '.join(KINDS)}.")] = None,
    book: Annotated[bool, typer.Option("--book", help="Your practice notebooks instead of the tests.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again after every save, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a module's tests on your code and get a verdict.

    \b
    ol check L8.6                          all tests of L8.6
    ol check L8.6 --ref-deps               only if you skipped what it needs
    ol check L8.6 --kind smoke --watch     the quick ones, after every save
    ol check L8.6 --book                   the practice chapters, on your code

    Exit codes: 0 all pass, 1 a test fails, 3 a needed module has not passed,
    4 not started, 5 the course itself is broken. Only 0 of a whole check counts
    as passed.
    """
    from ol.check import check as judge
    from ol.check import watch as judge_again

    chosen, workspace, out = _module(module_id), Workspace(), _out()
    _kind(kind)
    if (watch and (as_json or book)) or (book and kind):
        _say("Ask for one thing: --watch goes with neither --json nor --book, and --book not with --kind.")
        raise typer.Exit(USAGE)
    try:
        if watch:

            def show(verdict: Verdict) -> None:
                if out.is_terminal:
                    out.clear()
                _print_verdict(out, verdict)
                out.print(f"\n{datetime.now():%H:%M:%S}, waiting for the next save; Ctrl-C ends it.\n")

            judge_again(chosen.id, workspace, on_verdict=show, ref_deps=ref_deps, kind=kind)
            return
        with _Counting(out if not as_json else None) as counting:
            verdict = judge(chosen.id, workspace, ref_deps=ref_deps, kind=kind, book=book, on_event=counting.see)
    except ValueError as error:
        raise _usage(error) from error
    if as_json:
        _print_json(verdict.to_json())
    else:
        _print_verdict(out, verdict)
    raise typer.Exit(verdict.exit_code)


def _print_headed(out: Console, text: str, good: bool) -> None:
    """Text whose first line is the verdict."""
    head, newline, rest = text.partition("\n")
    out.print(Text.assemble((head, "bold green" if good else "bold red"), newline, rest))


def _print_verdict(out: Console, verdict: Verdict) -> None:
    _print_headed(out, verdict.text(), verdict.status == "pass")
    if last := verdict.output.strip().splitlines()[-8:]:
        out.print("\nIts last lines:\n" + "\n".join(f"    {line[:76]}" for line in last))


class _Counting:
    """One line that counts tests while they run, in a terminal; nothing anywhere else."""

    def __init__(self, out: Console | None) -> None:
        self._status = out.status("loading") if out is not None and out.is_terminal else None
        self._total = self._done = 0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *fault: object) -> None:
        if self._status is not None:
            self._status.stop()

    def see(self, record: dict[str, Any]) -> None:
        """Take note of what a run reports."""
        if record.get("is") == "collected":
            self._total += len(record["tests"])
        elif record.get("is") in ("result", "request"):
            self._done += 1
        if self._status is not None:
            self._status.update(f"{self._done} of {self._total} cases" if self._total else f"{self._done} done")


class _Bar:
    """A bar for many runs, in a terminal; nothing anywhere else."""

    def __init__(self, out: Console | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        shown = out is not None and out.is_terminal
        columns = (TextColumn("{task.description:14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=out, transient=True, disable=not shown)
        self._runs = self._bar.add_task("loading", total=None)
        self._learners: Any = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self._bar.stop()

    def see(self, event: dict[str, Any]) -> None:
        """Take note of what a grade or a check of the course reports."""
        done, total = event["done"], event["total"]
        if event["is"] == "run":
            what = {"correct": "correct code", "bug": "planted bugs"}.get(event["of"], "runs")
            self._bar.update(self._runs, description=what, completed=done, total=total)
        elif event["is"] == "learner":
            if self._learners is None:
                self._learners = self._bar.add_task("learners", total=total)
            self._bar.update(self._learners, completed=done)


@app.command()
def hint(
    module_id: ModuleId,
    test: Annotated[str | None, typer.Argument(help="A test's name; the first that failed when left out.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Show the hints seen so far, no new one.")] = False,
) -> None:
    """One hint more for the failing test that `ol check` explained.

    \b
    ol check L8.6
    ol hint L8.6                        the first hint
    ol hint L8.6                        the next one
    ol hint L8.6 test_hand_example      for a test of your choice
    """
    from ol.hints import hints_for

    chosen, workspace, out = _module(module_id), Workspace(), _out()
    name = test or workspace.state.failing.get(chosen.id)
    if name is None:
        _started(chosen, workspace)
        if workspace.passed(chosen):
            out.print(f"{chosen.id} passes: nothing needs a hint. Next: ol diff {chosen.id}")
            return
        check_it = command("check", chosen, workspace)
        if fault := workspace.state.faults.get(chosen.id):
            _say(_wrapped(f"No test of {chosen.id} could run. The last check said: {fault}", 0))
            _say(_wrapped(f"Mend that first; then `{check_it}` finds the first test that fails.", 0))
            raise typer.Exit(USAGE)
        _say(f"No test of {chosen.id} is known to fail. `{check_it}` finds the first that does.")
        raise typer.Exit(USAGE)
    try:
        name = find(tests_of(chosen), name).name
    except ValueError as error:
        raise _usage(error) from error
    stages = hints_for(name, chosen)
    key = f"{chosen.id} {name}"
    seen = min(workspace.state.hints.get(key, 0), len(stages))
    shown = seen if again else min(seen + 1, len(stages))
    if shown > seen:
        with workspace.remember() as state:
            state.hints[key] = shown
    first = 0 if again or shown == seen else shown - 1
    out.print(Text(name, "bold"))
    for number, text in enumerate(stages[first:shown], start=first + 1):
        out.print(f"\nHint {number} of {len(stages)}")
        out.print(_wrapped(text, 4))
    if shown < len(stages):
        out.print(f"\nStill stuck? `ol hint {chosen.id}{f' {name}' if test else ''}` goes further.")


@app.command()
def diff(
    module_id: ModuleId,
    spoil: Annotated[bool, typer.Option("--spoil", help="Show it before you pass; this is recorded.")] = False,
) -> None:
    """Your code against the reference, once it passes.

    \b
    ol diff L8.6
    ol diff L8.6 --spoil      before it passes; your progress will say so
    """
    chosen, workspace, out = _module(module_id), Workspace(), _out()
    _started(chosen, workspace)
    if not chosen.files:
        out.print(f"{chosen.id} has no files here: {chosen.title}.")
        return
    if not workspace.passed(chosen):
        if not spoil:
            changed = chosen.id in workspace.state.passed
            why = "was edited since it passed" if changed else "has not passed yet"
            check_it = command("check", chosen, workspace)
            _say(f"{chosen.id} {why}: run `{check_it}` first, or add --spoil, which is recorded.")
            raise typer.Exit(BLOCKED)
        with workspace.remember() as state:
            state.spoiled.setdefault(chosen.id, datetime.now().isoformat(timespec="seconds"))
    for file in chosen.files:
        yours = workspace.file(file).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        theirs = reference(file).read_text(encoding="utf-8").splitlines(keepends=True)
        lines = list(difflib.unified_diff(yours, theirs, f"yours/{file}", f"reference/{file}"))
        if not lines:
            out.print(f"{file}: the same as the reference, to the letter.")
        for line in lines:
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[0], "")
            out.print(Text(line.rstrip("\n"), colour))


@app.command()
def grade(
    module_id: ModuleId,
    tests_dir: Annotated[
        Path | None, typer.Option("--tests", metavar="DIR", help="Tests in another folder than your own.")
    ] = None,
    everybody: Annotated[
        Path | None, typer.Option("--all", metavar="DIR", help="A folder of submissions, one sub-folder a learner.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time; as many as processors.")] = None,
    as_json: AsJson = False,
) -> None:
    """Your own tests: what share of the planted bugs do they catch?

    \b
    ol grade L8.6                           the tests in work/tests/l8-6-spec/
    ol grade L8.6 --tests other/folder      those of somebody else
    ol grade L8.6 --all submissions/        a folder a learner, to CSV and JSON

    Valid: they pass on every correct implementation, the reference and others.
    One test that does not voids all credit. Then the reference runs with one bug
    at a time; 80% caught is a pass. What is missed is told by pitfall number.
    With --all, what was graded before with the same tests is not graded again.

    Exit codes: 0 pass (with --all: everybody has a grade), 1 fail, 2 usage, 3 no
    bugs are planted in that module, 4 no tests yet, 5 the course is broken.
    """
    from ol.grade import grade as judge
    from ol.side_by_side import WORKERS

    chosen, out = _module(module_id), _out()
    if everybody is not None:
        if tests_dir is not None:
            _say("Ask for one thing: --all grades a folder of submissions, --tests one folder of tests.")
            raise typer.Exit(USAGE)
        _grade_all(out, chosen, everybody, workers or WORKERS, as_json)
    if tests_dir is not None and not tests_dir.is_dir():
        _say(f"{tests_dir} is not a folder.")
        raise typer.Exit(USAGE)
    workspace = Workspace()
    with _Bar(out if not as_json else None) as bar:
        found = judge(chosen.id, tests_dir or workspace.own_tests(chosen), workers=workers or WORKERS, on_event=bar.see)
    if found.valid and tests_dir is None:
        with workspace.remember() as state:
            state.grades[chosen.id] = found.share
    if as_json:
        _print_json(found.to_json())
    else:
        _print_headed(out, found.text(), found.status == "pass")
    raise typer.Exit(found.exit_code)


def _grade_all(out: Console, chosen: Module, folder: Path, workers: int, as_json: bool) -> None:
    from ol.grade import grade_all

    try:
        with _Bar(out if not as_json else None) as bar:
            found = grade_all(chosen.id, folder, workers=workers, on_event=bar.see)
    except ValueError as error:
        raise _usage(error) from error
    broken = any(row["status"] == "broken" for row in found.grades.values())
    if as_json:
        _print_json({"module": found.module, "grades": found.grades, "csv": found.csv, "json": found.json})
    else:
        table = Table.grid(padding=(0, 2))
        for name, row in found.grades.items():
            said = " ".join(" ".join(row["reasons"]).split())
            if row["valid"]:
                said = f"{row['caught']} of {row['bugs']} bugs caught ({row['share']:.0%})"
            table.add_row(f"  {name}", Text(row["status"], "green" if row["status"] == "pass" else "yellow"), said)
        out.print(table, soft_wrap=False)
        out.print(f"\nwritten to {_relative(found.csv)} and {_relative(found.json)}")
    raise typer.Exit(BROKEN if broken else PASS)


@app.command()
def reset(
    module_id: ModuleId,
    book: Annotated[bool, typer.Option("--book", help="Also write the practice copies anew.")] = False,
) -> None:
    """A fresh stub, after a backup of your whole folder. Your own tests stay.

    \b
    ol reset L8.6
    ol reset L8.6 --book      the practice chapters too
    """
    from ol.start import reset as hand_out_again

    chosen, workspace, out = _module(module_id), Workspace(), _out()
    _started(chosen, workspace)
    if not chosen.files:
        out.print(f"{chosen.id} has no files here: {chosen.title}.")
        return
    pack, fresh = hand_out_again(chosen, workspace, book)
    out.print(f"backup {_relative(pack)}")
    for path in fresh:
        out.print(f"wrote  {_relative(path)}")
    out.print("\nThe backup is a zip of everything as it was: unpack it to get your code back.")


@app.command()
def milestone(
    milestone_id: Annotated[str, typer.Argument(metavar="MILESTONE", help="Such as MS-L8.")],
    ref_deps: Annotated[
        bool, typer.Option("--ref-deps", help="Lend the course's code for needed modules that have not passed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the real model with your code: same tokens, fewer passes.

    \b
    ol milestone MS-L8                 after L8.6 passes; needs SmolLM2
    ol milestone MS-L8 --ref-deps      only if you skipped what L8.6 needs

    Each step (spec-ngram-greedy, spec-lookup-greedy) must give the tokens of
    plain decoding, and reports its acceptance_rate.
    """
    from ol.milestone import milestone as reach

    out = _out()
    try:
        with _Counting(out if not as_json else None) as counting:
            verdict = reach(milestone_id, Workspace(), ref_deps=ref_deps, on_event=counting.see)
    except ValueError as error:
        raise _usage(error) from error
    if as_json:
        _print_json(verdict.to_json())
    else:
        _print_verdict(out, verdict)
    raise typer.Exit(verdict.exit_code)


@app.command()
def conform(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Any program, with its arguments.")],
    section: Annotated[
        list[str] | None, typer.Option(help="Only this part, such as lookup; may be given again.")
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0.1, help="Seconds that may pass between two answers (the first answer may take three times as long)."
        ),
    ] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Hold another engine to this one, by the shared vectors.

    \b
    ol conform -- python -m tinyllm.infer.vectors answer      the package itself
    ol conform -- ports/rust/target/release/conform           the Rust port
    ol conform --section lookup -- ./my-engine --vectors      a part of it

    The program answers each line of its standard input with one line on its
    standard output; chapter 15 says what is asked and how to answer.

    Exit codes: 0 every case agrees, 1 a case differs or the program does not
    answer as agreed, 2 it cannot be started.
    """
    from ol.conform import hold, read

    try:
        report = hold(command, read(only=section or ()), patience)
    except ValueError as error:
        raise _usage(error) from error
    except OSError as error:
        program = Path(command[0])
        why = error.strerror
        if program.is_dir():
            why = "it is a folder" if command[0] else "its name is empty"
        elif isinstance(error, FileNotFoundError) and program.is_file():
            why = "what its first line says to run it with is not there"
        _say(f"{command[0]!r} cannot be started: {why}.")
        raise typer.Exit(USAGE) from error
    if as_json:
        _print_json(report.to_json())
    else:
        out, text = _out(), report.text()
        head, verdict, rest = text.partition("PASS" if report.passed else "FAIL")
        out.print(Text.assemble(head, (verdict, "bold green" if report.passed else "bold red"), rest))
    raise typer.Exit(report.exit_code)


# For authors.


@dev.callback()
def authors() -> None:
    """For authors of the course.

    \b
    ol dev check      after a change to the package, its tests or the bugs
    """


@dev.command("check")
def dev_check(
    module_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[MODULE]...", help="Only these; all of them when left out.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time; as many as processors.")] = None,
    as_json: AsJson = False,
) -> None:
    """Prove that the course holds together.

    \b
    ol dev check            every module, some minutes
    ol dev check L8.6       one of them

    Stubs fail, the reference and each alternative pass, every planted bug fits
    its file and is caught by the course tests that its data names, and the tables
    of pitfalls agree with the tests.

    Exit codes: 0 all of it holds, 5 something does not.
    """
    from ol.dev import dev_check as prove
    from ol.side_by_side import WORKERS

    out = _out()
    chosen = [_module(module_id).id for module_id in module_ids or ()]
    with _Bar(out if not as_json else None) as bar:
        report = prove(chosen, workers=workers or WORKERS, on_event=bar.see)
    if as_json:
        _print_json(report.to_json())
    else:
        _print_headed(out, report.text(), not report.faults)
    raise typer.Exit(report.exit_code)
