"""`ol dev check`: what authors of the course must keep true, proved by running it.

For every module: the stub that a learner starts from fails, the reference and each alternative pass all course tests,
each planted bug still fits its file and is caught by every course test that its data names, and the table of pitfalls,
the bugs, the catalogue of tests and the hints speak of the same things. All runs go side by side, contained as
learners' are; a bug costs only the tests that it names.
"""

from __future__ import annotations

import ast
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ol.alternatives import alternatives_of
from ol.bugs import Bug, StaleEdit, bugs_of, pitfalls_of
from ol.catalogue import TestInfo, tests_of
from ol.course import MODULES, ROOT, Module, dotted, module, reference
from ol.grade import catches
from ol.hints import PITFALLS_OF, pitfalls_with_hints
from ol.overlay import Overlay
from ol.sandbox import Limits, Outcome, Run
from ol.side_by_side import WORKERS, OnEvent, Runner, correct_ones, with_bug
from ol.stubs import make_stub

LEAST_BUGS = 6
ALTERNATIVES = {"L8.1": 2, "L8.2": 2, "L8.6": 2}  # one for any other module
LIMITS = Limits(seconds=900.0, quiet_seconds=300.0)
BUG_LIMITS = Limits(seconds=120.0, quiet_seconds=30.0)
Claim = Literal[
    "the stub fails",
    "correct code passes",
    "bugs fit their files",
    "bugs are caught by the tests they name",
    "enough bugs and alternatives",
    "pitfall tables agree",
]


@dataclass(frozen=True)
class Fault:
    """Something that is not true of a module, in a sentence."""

    module: str
    claim: Claim
    said: str


@dataclass(frozen=True)
class Report:
    """What was checked, and what is not as it must be."""

    modules: tuple[str, ...]
    bugs: int
    runs: int
    faults: tuple[Fault, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """0 when everything holds, 5 (the course is broken) otherwise."""
        return 5 if self.faults else 0

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {**asdict(self), "exit_code": self.exit_code}

    def text(self) -> str:
        """The report for a terminal, in lines of at most 80 columns."""
        what = f"{', '.join(self.modules)}: {self.bugs} bugs, {self.runs} runs in {self.seconds:.0f} s."
        if not self.faults:
            said = "Stubs fail, correct code passes, every bug is caught by the tests it names, the tables agree."
            return f"PASS: {_wrap(what)}\n{_wrap(said)}"
        lines = [_wrap(f"BROKEN: {what}")]
        for fault in self.faults:
            lines += ["", f"{fault.module}, not so: {fault.claim}", _wrap(fault.said, "    ")]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Task:
    """A run, and what its outcome must be: `judge` gives the faults."""

    run: Run
    weight: int  # how long it may take, to begin with the longest
    judge: Callable[[Outcome], Iterable[Fault]]


def dev_check(
    module_ids: Iterable[str] = (),
    *,
    workers: int = WORKERS,
    on_event: OnEvent | None = None,
) -> Report:
    """Check these modules, all of them when none is named. ValueError for an unknown one.

    `on_event` sees {"is": "run", "of": a module, "done", "total"}.
    """
    started = time.monotonic()
    chosen = [module(module_id) for module_id in module_ids] or list(MODULES.values())
    chosen = [one for one in chosen if one.files]
    with tempfile.TemporaryDirectory(prefix="ol-dev-") as scratch:
        faults: list[Fault] = []
        tasks: list[_Task] = []
        for one in chosen:
            infos = tests_of(one)
            bugs = bugs_of(one.id)
            faults += _tables(one, infos, bugs)
            overlays, stale = _planted(one, bugs, Path(scratch))
            faults += stale
            tasks += [_stub(one, infos, Path(scratch)), *_correct(one, infos)]
            tasks += [_caught(one, infos, bug, overlay) for bug, overlay in overlays]
        tasks.sort(key=lambda task: -task.weight)
        done = 0

        def count(place: int, outcome: Outcome) -> None:
            nonlocal done
            done += 1
            if on_event is not None:
                on_event({"is": "run", "of": "run", "done": done, "total": len(tasks)})

        with Runner(workers) as runner:
            outcomes = runner.outcomes([task.run for task in tasks], count)
    for task, outcome in zip(tasks, outcomes, strict=True):
        faults += task.judge(outcome)
    ids = tuple(one.id for one in chosen)
    faults.sort(key=lambda fault: ids.index(fault.module))
    planted = sum(len(bugs_of(one.id)) for one in chosen)
    return Report(ids, planted, len(tasks), tuple(faults), time.monotonic() - started)


# What must come out of runs.


def _run(one: Module, infos: list[TestInfo], overlay: Overlay, limits: Limits, all_tests: bool = False) -> Run:
    """The course's own tests `infos` of a module on what stands in for it."""
    files = tuple(dict.fromkeys(ROOT / info.file for info in infos))
    select = None if all_tests else frozenset(info.name for info in infos)
    model = all_tests and any("mark.model" in path.read_text(encoding="utf-8") for path in files)
    return Run(overlay, files, select, brief=not all_tests, limits=limits, model=model)


def _stub(one: Module, infos: list[TestInfo], scratch: Path) -> _Task:
    """The stub can be imported, and every smoke test fails on it."""
    files = {}
    for rel in one.files:
        path = files[dotted(rel)] = scratch / "stub" / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make_stub(reference(rel).read_text(encoding="utf-8"), one.id), encoding="utf-8")
    smoke = [info for info in infos if "smoke" in info.kinds]

    def judge(outcome: Outcome) -> Iterator[Fault]:
        if not outcome.finished:
            yield Fault(one.id, "the stub fails", f"The stub does not even run: {outcome.reason}")
        passing = [test.name for test in outcome.tests if test.outcome == "passed"]
        if passing:
            yield Fault(one.id, "the stub fails", f"{', '.join(passing)} passes on a stub.")
        if not smoke:
            yield Fault(one.id, "the stub fails", "No test is of the KIND smoke, so there is none to begin with.")

    return _Task(_run(one, smoke or infos, Overlay(files), BUG_LIMITS), 1, judge)


def _correct(one: Module, infos: list[TestInfo]) -> Iterator[_Task]:
    """Every course test passes on the reference and on each alternative; one run a file of tests."""
    for correct in correct_ones(one):
        for file in dict.fromkeys(info.file for info in infos):
            here = [info for info in infos if info.file == file]

            def judge(outcome: Outcome, name: str = correct.name, file: str = file) -> Iterator[Fault]:
                if not outcome.finished:
                    yield Fault(one.id, "correct code passes", f"{name}, {file}: {outcome.reason}")
                for test in outcome.tests:
                    if test.outcome in ("failed", "error"):
                        said = str(test.why.get("message", "")).strip().partition("\n")[0]
                        yield Fault(one.id, "correct code passes", f"{name} fails {test.name}: {said}")

            yield _Task(_run(one, here, correct.overlay, LIMITS, all_tests=True), 10 * len(here), judge)


def _caught(one: Module, infos: list[TestInfo], bug: Bug, overlay: Overlay) -> _Task:
    """Each course test that the bug's data names catches it."""
    named = [info for info in infos if info.name in bug.tests]

    def judge(outcome: Outcome) -> Iterator[Fault]:
        claim: Claim = "bugs are caught by the tests they name"
        if outcome.finished:
            failed = {test.name for test in outcome.tests if test.outcome in ("failed", "error")}
            for name in bug.tests:
                if name not in failed:
                    yield Fault(one.id, claim, f"{bug.id} is not caught by {name}.")
        elif outcome.ending == "unloadable" or not catches(outcome):
            yield Fault(one.id, claim, f"{bug.id} is no bug that runs: {outcome.reason}")

    return _Task(_run(one, named, overlay, BUG_LIMITS), 1, judge)


# What can be read off the data.


def _planted(one: Module, bugs: tuple[Bug, ...], scratch: Path) -> tuple[list[tuple[Bug, Overlay]], list[Fault]]:
    overlays, faults = [], []
    for bug in bugs:
        try:
            overlay = with_bug(bug, one, scratch / "bugs" / one.id)
        except (StaleEdit, OSError) as fault:
            faults.append(Fault(one.id, "bugs fit their files", str(fault)))
            continue
        try:
            for path in overlay.files.values():
                ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            faults.append(Fault(one.id, "bugs fit their files", f"With bug {bug.id} it is no Python: {error}."))
            continue
        overlays.append((bug, overlay))
    return overlays, faults


def _tables(one: Module, infos: list[TestInfo], bugs: tuple[Bug, ...]) -> Iterator[Fault]:
    """How many bugs and alternatives there are, and whether bugs, pitfalls, tests and hints agree."""
    enough: Claim = "enough bugs and alternatives"
    agree: Claim = "pitfall tables agree"
    if len(bugs) < LEAST_BUGS:
        yield Fault(one.id, enough, f"{len(bugs)} bugs are planted; there should be {LEAST_BUGS} or more.")
    wanted = ALTERNATIVES.get(one.id, 1)
    if len(alternatives_of(one.id)) < wanted:
        yield Fault(one.id, enough, f"{len(alternatives_of(one.id))} alternatives; there should be {wanted}.")
    ids = [bug.id for bug in bugs]
    for again in sorted({name for name in ids if ids.count(name) > 1}):
        yield Fault(one.id, agree, f"Two bugs are called {again}.")

    by_name = {info.name: info for info in infos}
    table = {row.number: row for row in pitfalls_of(one.id)}
    for bug in bugs:
        for name in bug.tests or ("no test",):
            if name not in by_name:
                yield Fault(one.id, agree, f"Bug {bug.id} names {name}, which is no test of the catalogue.")
        if bug.pitfall is not None and (bug.pitfall not in table or bug.id not in table[bug.pitfall].bugs):
            yield Fault(one.id, agree, f"Bug {bug.id} has pitfall {bug.pitfall}, whose row does not name it.")
    for number, row in table.items():
        planted = {bug.id: bug for bug in bugs if bug.pitfall == number}
        for name in row.bugs:
            if name not in planted:
                yield Fault(one.id, agree, f"Pitfall {number} names the bug {name}, which has not its number.")
            elif row.test not in planted[name].tests:
                yield Fault(one.id, agree, f"Pitfall {number} is caught by {row.test}; its bug {name} names others.")
        if row.test not in by_name:
            yield Fault(one.id, agree, f"Pitfall {number} names {row.test}, which is no test of the catalogue.")
        elif number not in by_name[row.test].pitfalls:
            yield Fault(one.id, agree, f"The docstring of {row.test} does not name pitfall {number}.")
    for info in infos:
        for number in info.pitfalls:
            if number not in table:
                yield Fault(one.id, agree, f"{info.name} guards pitfall {number}, which no table has.")
    if one.id == PITFALLS_OF and set(table) != pitfalls_with_hints():
        yield Fault(one.id, agree, "The hints are about other pitfalls than the table.")


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, 80, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
