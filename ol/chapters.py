"""`ol check --book`: a module's practice notebooks, run with the learner's code underneath and compared by nbval.

pytest and nbval run in one child; every notebook gets a kernel of its own, started by `ol.child`, in which the
learner's files stand in for the reference. What a cell prints must be what the chapter printed with its solution,
whatever the learner's runs have saved since.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ol.commands import command
from ol.course import Module, notebook, reference
from ol.overlay import Overlay
from ol.practice import as_judged, unwritten
from ol.sandbox import Child, Limits, Outcome, Run, TestOutcome
from ol.verdict import TestResult, Verdict
from ol.workspace import Workspace

CELL_SECONDS = 600  # chapters about the real model have cells that take minutes
# Lines of nbval's that say nothing, or number the cells from 0.
_OF_NBVAL = re.compile(r"Notebook cell execution failed|Cell \d+: |Traceback:$|assert reference_output == test_output")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def judge(
    chosen: Module,
    workspace: Workspace,
    overlay: Overlay,
    limits: Limits,
    on_event: Callable[[dict[str, Any]], None] | None,
) -> Verdict:
    """Run the practice copies of the module's chapters; ValueError for a module without chapters."""
    if not chosen.chapters:
        raise ValueError(f"{chosen.id} has no chapters; leave --book out.")
    copies = [workspace.practice(chapter) for chapter in chosen.chapters]
    lacking = [path for path in copies if not path.is_file()]
    if lacking:
        reason = f"{lacking[0]} is not there."
        return Verdict(chosen.id, "not started", reason, next=f"Next: ol start {chosen.id}")
    again = command("check", chosen, workspace, f"{chosen.id} --book")
    empty: dict[str, list[int]] = {}  # chapter -> its code cells in which nothing is written
    with tempfile.TemporaryDirectory(prefix="ol-book-") as folder:
        for chapter, path in zip(chosen.chapters, copies, strict=True):
            stored = json.loads(notebook(chapter).read_text(encoding="utf-8"))
            try:
                mine = json.loads(path.read_text(encoding="utf-8"))
                judged, lacks = as_judged(mine, stored)
                empty[chapter] = unwritten(mine)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
                return _anew(chosen, f"{path} cannot be read as a notebook: {fault}.")
            if lacks:
                begins = lacks[0].strip().partition("\n")[0]
                more = f" and {len(lacks) - 1} more" if len(lacks) > 1 else ""
                return _anew(chosen, f"{path} lacks the code cell that begins with `{begins}`{more}.")
            Path(folder, path.name).write_text(json.dumps(judged), encoding="utf-8")
        what = Run(
            overlay=overlay,
            tests=tuple(Path(folder, path.name) for path in copies),
            limits=Limits(seconds=3600.0, quiet_seconds=CELL_SECONDS + 60.0, memory_bytes=limits.memory_bytes),
            secret=tuple(reference(rel) for rel in chosen.files),
            model=True,
            notebooks=True,
        )
        with Child(what.limits, model=True, processes=True, warm=("pytest",)) as child:
            outcome = child.run(what, on_event)
    return _verdict(chosen, outcome, workspace, empty, again)


def _anew(chosen: Module, reason: str) -> Verdict:
    step = f"Next: move that file elsewhere, then ol start {chosen.id} writes it anew; your code stays"
    return Verdict(chosen.id, "fail", reason, next=step)


def _verdict(
    chosen: Module, outcome: Outcome, workspace: Workspace, empty: dict[str, list[int]], again: str
) -> Verdict:
    results = tuple(
        TestResult(_title(test), test.outcome == "passed", test.outcome, test.seconds, why=test.why)
        for test in outcome.tests
    )
    passed = sum(result.passed for result in results)
    absent = sum(bool(result.why.get("no_model")) for result in results)
    common: dict[str, Any] = {"tests": results, "seconds": outcome.seconds, "notes": outcome.notes}
    if outcome.ending == "broken":
        return Verdict(chosen.id, "broken", outcome.reason, output=outcome.output, **common)
    if outcome.ending != "finished":
        return Verdict(chosen.id, "fail", outcome.reason, output=outcome.output, **common)
    failed = [test for test in outcome.tests if test.outcome not in ("passed", "skipped")]
    without = f"; {absent} need the real model (ol doctor)" if absent else ""
    if failed:
        first = failed[0]
        chapter = _chapter(first)
        listed = "; ".join(f"{name}, {', '.join(map(str, cells))}" for name, cells in empty.items() if cells)
        if listed:
            common["notes"] = (f"Nothing is written yet in these cells for solutions: {listed}.", *outcome.notes)
        nothing = _number(first) in empty[chapter]
        excerpt = "    Nothing is written in it yet; the text above it says what it must do."
        return Verdict(
            chosen.id,
            "fail",
            f"{passed} of {len(results)} cells do what the chapter does{without}. The first that does not:",
            explanation=f"{_title(first)}\n\n{excerpt if nothing else _excerpt(first)}",
            next=f"Next: run {workspace.practice(chapter)} as far as that cell, and after mending it {again}",
            **common,
        )
    if not passed:
        return Verdict(chosen.id, "fail", f"No cell ran{without}.", **common)
    return Verdict(chosen.id, "pass", f"All {passed} cells do what their chapter does{without}.", **common)


def _chapter(test: TestOutcome) -> str:
    return Path(test.id.partition("::")[0]).stem


def _number(test: TestOutcome) -> int:
    """Which code cell it is, from 1 on, as JupyterLab shows beside it after a run from the top; nbval counts from 0."""
    return int(test.id.rpartition(" ")[2]) + 1


def _title(test: TestOutcome) -> str:
    return f"{_chapter(test)}, code cell {_number(test)}"


def _excerpt(test: TestOutcome, lines: int = 30) -> str:
    """What nbval said of a cell, without colours, its end where it is long."""
    report = COLOURS.sub("", str(test.why.get("report") or test.why.get("message") or "")).strip()
    said = [line for line in report.splitlines() if not _OF_NBVAL.match(line)]
    cut = said[-lines:]
    return "\n".join(f"    {line[:76]}" for line in (["..."] if len(cut) < len(said) else []) + cut)
