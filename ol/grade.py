"""`ol grade`: a learner's own tests, first held to be valid, then counted by the planted bugs that they catch.

Valid means that they pass on every correct implementation: the reference and the alternatives. Tests that do not have
asked for more than the contract, and what they reject says nothing, so nothing is credited. Then the reference runs
with one bug at a time, and a bug is caught when a test fails, or when the tests hang or break off, which they did not
do on correct code. What is told of a missed bug is its pitfall's number and the public name it concerns. The method is
that of Wrenn, Krishnamurthi and Fisler, "Who Tests the Testers?" (ICER 2018).
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ol import bugs as planted
from ol.bugs import Bug, StaleEdit, bugs_of
from ol.course import MODULES, ROOT, Module, module, reference, slug, tests_folder
from ol.progress import PASS_MARK
from ol.sandbox import Limits, Outcome, Run
from ol.side_by_side import WORKERS, Correct, OnEvent, Runner, correct_ones, warm_for, with_bug
from ol.start import first_tests
from ol.workspace import digest_of, write_whole

Status = Literal["pass", "fail", "not started", "blocked", "broken"]
EXIT_CODES: dict[Status, int] = {"pass": 0, "fail": 1, "blocked": 3, "not started": 4, "broken": 5}
# What a suite may take on a correct implementation. It runs dozens of times.
LIMITS = Limits(seconds=60.0, quiet_seconds=20.0)
# A bug may slow the tests down by this much before it counts as a hang, and never less than so many seconds.
SLOWER, LEAST_SECONDS = 10.0, 5.0
WIDTH = 80


@dataclass(frozen=True)
class Missed:
    """What may be said of a bug that was not caught: its pitfall's number, if it has one, and the name it is about."""

    pitfall: int | None
    about: str


@dataclass(frozen=True)
class Grade:
    """What a suite came to. `reasons`: sentences, why it is not valid or what else there is to say."""

    module: str
    status: Status
    valid: bool = False
    tests: int = 0  # that ran on the reference
    bugs: int = 0
    caught: int = 0
    missed: tuple[Missed, ...] = ()
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """Of the planted bugs, the share that was caught; 0 for a suite that is not valid."""
        return self.caught / self.bugs if self.bugs else 0.0

    @property
    def pitfalls(self) -> list[int]:
        """The numbers of the pitfalls with a bug that was missed."""
        return sorted({one.pitfall for one in self.missed if one.pitfall is not None})

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 blocked, 4 not started, 5 the course is broken."""
        return EXIT_CODES[self.status]

    def to_json(self) -> dict[str, Any]:
        """The grade as plain data."""
        return {**asdict(self), "share": self.share, "missed_pitfalls": self.pitfalls, "exit_code": self.exit_code}

    def text(self) -> str:
        """The grade for a terminal: headline, what was missed, what to do now; lines of at most 80 columns."""
        return "\n\n".join(part for part in (self._headline(), *self._reasons(), self._missed(), self._next()) if part)

    def _headline(self) -> str:
        head = f"{self.module} {self.status.upper()}: "
        if not self.valid:
            told = {
                "fail": f"these tests are not valid, so none of {self.bugs} planted bugs counts as caught.",
                "not started": "there are no tests of your own yet.",
                "blocked": "there is nothing to grade here.",
                "broken": "the course itself is at fault, not your tests.",
            }
            return _wrap(head + told.get(self.status, ""))
        tests = "1 test is valid and catches" if self.tests == 1 else f"{self.tests} tests are valid and catch"
        caught = f"{self.caught} of {self.bugs} planted bugs ({self.share:.0%})"
        return _wrap(f"{head}your {tests} {caught}.") + f"\n{PASS_MARK:.0%} is a pass."

    def _reasons(self) -> Iterator[str]:
        for reason in self.reasons:
            yield "\n".join(_wrap(line) if len(line) > WIDTH else line for line in reason.splitlines())

    def _missed(self) -> str:
        if not self.missed:
            return ""
        rows = []
        counts = Counter(self.missed)
        for one in sorted(counts, key=lambda one: (one.pitfall is None, one.pitfall or 0, one.about)):
            what = "a bug" if one.pitfall is None else f"pitfall {one.pitfall}"
            more = f", {counts[one]} bugs" if counts[one] > 1 else ""
            rows.append(f"    {what:14} {one.about}{more}")
        return "Not caught:\n" + "\n".join(rows)

    def _next(self) -> str:
        if self.status == "not started":
            return _wrap(
                f"Next: ol start {self.module} gives you a file to begin in; write a test there, "
                f"then ol grade {self.module}"
            )
        if self.missed:
            numbered = f"`ol tests {self.module}` shows which course tests guard each pitfall." if self.pitfalls else ""
            return _wrap(f"{numbered} Next: a test for one of them, then ol grade {self.module}".strip())
        return "Next: ol shows where you are" if self.status == "pass" else ""


def grade(
    module_id: str,
    tests_dir: Path,
    *,
    workers: int = WORKERS,
    on_event: OnEvent | None = None,
    limits: Limits = LIMITS,
    runner: Runner | None = None,
) -> Grade:
    """Grade the tests in a folder. `on_event` sees {"is": "run", "of": "correct" or "bug", "done", "total"}.

    limits: of one run on a correct implementation. runner: one that is at work, instead of a new one with `workers`.
    ValueError for an unknown module.
    """
    chosen = module(module_id)
    bugs = bugs_of(chosen.id)
    if not bugs:
        return Grade(chosen.id, "blocked", reasons=(f"No bugs are planted in {chosen.id}, {chosen.title}.",))
    if not tests_dir.is_dir():
        return Grade(chosen.id, "not started", bugs=len(bugs), reasons=(f"{tests_dir} is not there.",))
    if _untouched(tests_dir, chosen):
        reason = f"{tests_dir} is as `ol start` wrote it."
        return Grade(chosen.id, "not started", bugs=len(bugs), reasons=(reason,))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ol-grade-") as scratch:
        tests = Path(scratch, tests_dir.resolve().name or "tests")
        try:
            shutil.copytree(tests_dir, tests, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        except (OSError, shutil.Error) as fault:
            reason = f"The folder cannot be copied: {_first_line(fault)}."
            return Grade(chosen.id, "fail", bugs=len(bugs), reasons=(reason,))
        if runner is not None:
            found = _grade(chosen, bugs, tests, runner, on_event, limits, Path(scratch, "bugs"))
        else:
            with Runner(workers, warm_for(chosen)) as own:
                found = _grade(chosen, bugs, tests, own, on_event, limits, Path(scratch, "bugs"))
    return replace(found, seconds=time.monotonic() - started)


def _untouched(tests_dir: Path, chosen: Module) -> bool:
    """Whether the folder's only Python file is the one that `ol start` wrote, as it was."""
    try:
        texts = [path.read_text(encoding="utf-8") for path in tests_dir.rglob("*.py")]
    except (OSError, ValueError):
        return False
    return texts == [first_tests(chosen)]


def _grade(
    chosen: Module,
    bugs: tuple[Bug, ...],
    tests: Path,
    runner: Runner,
    on_event: OnEvent | None,
    limits: Limits,
    scratch: Path,
) -> Grade:
    correct = correct_ones(chosen)
    total, done = len(correct) + len(bugs), 0

    def count(of: str) -> Callable[[int, Outcome], None]:
        def one_more(place: int, outcome: Outcome) -> None:
            nonlocal done
            done += 1
            if on_event is not None:
                on_event({"is": "run", "of": of, "done": done, "total": total})

        return one_more

    secret = tuple(reference(rel) for rel in chosen.files)
    runs = [Run(one.overlay, (tests,), limits=limits, secret=secret) for one in correct]
    outcomes = runner.outcomes(runs, count("correct"))
    ran = sum(test.outcome != "skipped" for test in outcomes[0].tests)
    for one, outcome in zip(correct, outcomes, strict=True):
        if outcome.ending == "broken":
            return Grade(chosen.id, "broken", tests=ran, bugs=len(bugs), reasons=(outcome.reason,))
        if reason := _invalid(one, outcome, limits):
            return Grade(chosen.id, "fail", tests=ran, bugs=len(bugs), reasons=(reason,))

    unsaid = [test.name for test in outcomes[0].tests if test.outcome == "skipped"]
    skipped = (f"Skipped, so it says nothing: {', '.join(dict.fromkeys(unsaid))}.",) if unsaid else ()

    try:
        overlays = [with_bug(bug, chosen, scratch) for bug in bugs]
    except StaleEdit as fault:
        return Grade(chosen.id, "broken", tests=ran, bugs=len(bugs), reasons=(str(fault),))
    slowest = max(outcome.seconds for outcome in outcomes)
    patience = max(LEAST_SECONDS, SLOWER * slowest)
    hurried = replace(limits, seconds=2 * patience, quiet_seconds=patience)
    runs = [Run(overlay, (tests,), first=True, brief=True, limits=hurried, secret=secret) for overlay in overlays]
    outcomes = runner.outcomes(runs, count("bug"))
    for outcome in outcomes:
        if outcome.ending == "broken":
            return Grade(chosen.id, "broken", tests=ran, bugs=len(bugs), reasons=(outcome.reason,))
    missed = [bug for bug, outcome in zip(bugs, outcomes, strict=True) if not catches(outcome)]
    caught = len(bugs) - len(missed)
    return Grade(
        chosen.id,
        "pass" if caught >= PASS_MARK * len(bugs) else "fail",
        valid=True,
        tests=ran,
        bugs=len(bugs),
        caught=caught,
        missed=tuple(Missed(bug.pitfall, bug.about) for bug in missed),
        reasons=skipped,
    )


def catches(outcome: Outcome) -> bool:
    """Whether a run on a bug, by tests that are valid, has told it from correct code.

    A test failed; or the tests hung, broke off or could not be loaded, which they did not on correct code. A run that
    reached for what is not its own has told nothing.
    """
    if outcome.finished:
        return any(test.outcome in ("failed", "error") for test in outcome.tests)
    return outcome.ending in ("timeout", "ended", "uncollected", "unloadable")


def _invalid(one: Correct, outcome: Outcome, limits: Limits) -> str:
    """Why a run on a correct implementation voids the credit, as a sentence or a few lines; "" when it does not."""
    which = "the reference" if one.name == "reference" else f"{one.name}, written differently"
    where = f"a correct implementation ({which})"
    if outcome.ending == "timeout":
        return f"On {where} it does not come to an end. {outcome.reason} A whole suite has {limits.seconds:g} seconds."
    if outcome.ending in ("ended", "tampered"):
        return f"On {where}: {outcome.reason}"
    if not outcome.finished:
        return outcome.reason
    bad = [test for test in outcome.tests if test.outcome in ("failed", "error")]
    if bad:
        more = f" So do {len(bad) - 1} more." if len(bad) > 1 else ""
        return f"{bad[0].name} fails {where}.{more}\n{_what(bad[0].why)}".rstrip()
    if not outcome.tests:
        return "No test was found: pytest takes functions test_... in files test_*.py."
    if not any(test.outcome == "passed" for test in outcome.tests):
        return "Every test was skipped, so none said anything."
    return ""


def _what(why: Any) -> str:
    """What pytest met in a learner's test, indented: its line, and what was expected and what came."""
    lines = [f"at         {Path(str(why['test_line'])).name}"] if why.get("test_line") else []
    if "expected" in why:
        lines += [f"expected   {_first_line(why['expected'])}", f"got        {_first_line(why['got'])}"]
    elif why.get("type"):
        lines.append(f"raised     {why['type']}: {_first_line(why.get('message', ''))}".rstrip(": "))
    return "\n".join(f"    {line}"[:WIDTH] for line in lines)


def _first_line(what: object) -> str:
    return (str(what).strip().splitlines() or [""])[0].rstrip(".")


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


# A folder of submissions.

COLUMNS = (
    *("learner", "status", "valid", "share", "caught", "bugs", "tests", "missed_pitfalls", "missed_unnumbered"),
    *("reasons", "seconds"),
)


@dataclass(frozen=True)
class Grades:
    """The grades of a folder of submissions, by learner, and where they were written."""

    module: str
    grades: dict[str, dict[str, Any]]  # learner to `Grade.to_json()`
    csv: Path
    json: Path


def grade_all(
    module_id: str,
    folder: Path,
    *,
    workers: int = WORKERS,
    on_event: OnEvent | None = None,
    limits: Limits = LIMITS,
) -> Grades:
    """Grade every sub-folder, one a learner, into grades-<module>.csv and .json there.

    A sub-folder is a learner's whole folder (with tests/l8-6-spec in it) or holds the tests themselves. Written after
    each learner; what was graded before, with the same tests and the same course, is not graded again. `on_event` also
    sees {"is": "learner", "name", "done", "total", "grade"}. ValueError for an unknown module or no folder.
    """
    chosen = module(module_id)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; it should hold one folder a learner.")
    learners = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not learners:
        raise ValueError(f"{folder} holds no folders; it should hold one a learner.")
    stem = folder / f"grades-{slug(chosen)}"
    out = Grades(chosen.id, {}, stem.with_suffix(".csv"), stem.with_suffix(".json"))
    course = course_digest(chosen)
    before = _graded_before(out.json, course)
    kept: dict[str, dict[str, Any]] = {}
    with Runner(workers, warm_for(chosen)) as runner:
        for done, learner in enumerate(learners, start=1):
            tests = _tests_in(learner, chosen)
            digest = _digest(tests)
            stored = before.get(learner.name)
            if stored is None or stored["digest"] != digest:
                found = grade(chosen.id, tests, on_event=on_event, limits=limits, runner=runner)
                stored = {"digest": digest, **found.to_json()}
            kept[learner.name] = stored
            out.grades[learner.name] = {name: value for name, value in stored.items() if name != "digest"}
            # Learners who are still to come keep what they had, so that an interrupted run loses nothing.
            waiting = {path.name: before[path.name] for path in learners[done:] if path.name in before}
            data = {"module": chosen.id, "course": course, "pass_mark": PASS_MARK, "learners": {**kept, **waiting}}
            write_whole(out.json, json.dumps(data, indent=1) + "\n")
            write_whole(out.csv, _as_csv({**kept, **waiting}))
            if on_event is not None:
                event = {"is": "learner", "name": learner.name, "done": done, "total": len(learners)}
                on_event({**event, "grade": out.grades[learner.name]})
    return out


def _tests_in(learner: Path, chosen: Module) -> Path:
    """Where a submission keeps its tests: in the place that `ol start` gave them, else in the folder itself."""
    for place in ("tests", "work/tests", "."):
        if (found := learner / place / slug(chosen)).is_dir():
            return found
    return learner


def _digest(folder: Path) -> str:
    """Of everything that a grade of the folder can depend on."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" not in path.parts and path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    try:
        return digest_of(files)
    except OSError:
        return ""  # the grade will say what cannot be read


def course_digest(chosen: Module) -> str:
    """Of what grades depend on besides the tests: reference, alternatives, bugs, toys, and the rules here."""
    paths = [reference(rel) for other in MODULES.values() for rel in other.files]
    paths += [path for one in correct_ones(chosen)[1:] for path in one.files.values()]
    paths += [planted.FOLDER / f"{chosen.id}.toml", Path(__file__), *tests_folder(MODULES["L8.6"]).glob("_*.py")]
    return digest_of({path.relative_to(ROOT).as_posix(): path for path in sorted(set(paths))})


def _graded_before(path: Path, course: str) -> dict[str, dict[str, Any]]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        same = stored["course"] == course
        return {name: dict(row) for name, row in stored["learners"].items() if same and row["digest"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _as_csv(learners: dict[str, dict[str, Any]]) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for name in sorted(learners):
        row = learners[name]
        told = {
            **row,
            "learner": name,
            "share": f"{row['share']:.3f}",
            "missed_pitfalls": " ".join(map(str, row["missed_pitfalls"])),
            "missed_unnumbered": sum(one["pitfall"] is None for one in row["missed"]),
            "reasons": " ".join(" ".join(row["reasons"]).split()),
            "seconds": f"{row['seconds']:.1f}",
        }
        table.writerow([told[column] for column in COLUMNS])
    return out.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")  # a message may hold half a character
