"""How long a grade takes: a careful suite of L8.6 against every correct implementation and every planted bug.

    python bench/grade.py [--json PATH] [--plot PATH]

One run of one small test is timed first, in a child started afresh and in one forked from a process that is loaded
already, in alternation; then whole grades, with one worker and with as many as there are processors. The goal is 15 s
on 2 cores.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from _measure import Timing, alternate, arguments, finish, table

from ol.course import ROOT, dotted, module, reference
from ol.grade import grade
from ol.nursery import AVAILABLE, Nursery
from ol.overlay import Overlay
from ol.sandbox import Run, run
from ol.side_by_side import warm_for

SPEC = module("L8.6")
GOAL_SECONDS = 15.0


@contextmanager
def suite() -> Iterator[Path]:
    """A folder with the careful suite in it, as a learner has it."""
    with tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch, "l8-6-spec")
        own.mkdir()
        shutil.copyfile(ROOT / "tests" / "ol" / "suites" / "good.py", own / "test_mine.py")
        yield own


def one_run(own: Path, repetitions: int) -> dict[str, Timing]:
    """Seconds of a run of one small test, afresh and forked."""
    what = Run(
        Overlay({dotted(rel): reference(rel) for rel in SPEC.files}),
        (own / "test_mine.py",),
        select=frozenset({"test_worked_example_greedy"}),
    )
    if not AVAILABLE:
        return alternate({"afresh": lambda: run(what)}, repetitions, warm_up=1)
    with Nursery(warm_for(SPEC)) as nursery:
        jobs = {"afresh": lambda: run(what), "forked": lambda: run(what, nursery=nursery)}
        return alternate(jobs, repetitions, warm_up=1)


def whole(own: Path, repetitions: int) -> dict[int, Timing]:
    """Seconds of whole grades by the number of workers; each must give the same full marks."""

    def graded(workers: int) -> None:
        found = grade(SPEC.id, own, workers=workers)
        assert found.valid and found.caught == found.bugs, found.text()

    counts = sorted({1, os.cpu_count() or 1})
    return alternate({n: partial(graded, n) for n in counts}, repetitions, warm_up=0)


def plot(path: Path, grades: dict[int, Timing]) -> None:
    """Draw the grades and the goal."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure(height=1.8)
    names = [f"{n} worker{'s' if n > 1 else ''}" for n in grades]
    ax.barh(names, [timing.median for timing in grades.values()], color=PALETTE["draft"])
    ax.axvline(GOAL_SECONDS, color=PALETTE["rejected"], linestyle="--", label=f"goal: {GOAL_SECONDS:g} s")
    ax.set(xlabel="seconds for a whole grade of L8.6")
    ax.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(repetitions=3)
    options = parser.parse_args()
    with suite() as own:
        single = one_run(own, 2 * options.repetitions)
        grades = whole(own, options.repetitions)
    rows: list[list[object]] = [
        [f"one run, {name}", f"{t.median:.2f}", f"{t.best:.2f}", f"{t.spread:.0%}"] for name, t in single.items()
    ]
    rows += [
        [f"whole grade, {n} worker{'s' if n > 1 else ''}", f"{t.median:.2f}", f"{t.best:.2f}", f"{t.spread:.0%}"]
        for n, t in grades.items()
    ]
    table(["what", "median s", "best s", "spread"], rows)
    if options.plot:
        plot(options.plot, grades)
    found: dict[str, Any] = {
        "run": {name: timing.as_json() for name, timing in single.items()},
        "grade": {str(n): timing.as_json() for n, timing in grades.items()},
        "goal_s": GOAL_SECONDS,
    }
    finish(options, found)


if __name__ == "__main__":
    main()
