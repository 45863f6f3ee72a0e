"""`ol check`: a learner's files against the course's tests, and the verdict in a teacher's words.

The files are copied before anything runs, so the verdict is about one state of them, and a pass is remembered for
exactly that state. What is judged runs in `ol.sandbox`; here it is decided what runs, and the outcome is turned into a
verdict, an exit code, and an explanation of the first failure: which claim broke, the call, expected and got, where
in the book it is explained.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shutil
import tempfile
import textwrap
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ol import chapters
from ol.catalogue import TestInfo, tests_of
from ol.commands import command, lacking
from ol.course import MODULES, ROOT, Module, dotted, module, needed, notebook, reference, tests_folder
from ol.overlay import Overlay
from ol.sandbox import Child, Limits, Outcome, Run, TestOutcome
from ol.verdict import WIDTH, TestResult, Verdict, most_basic, narrowest, wrapped
from ol.workspace import Workspace, WorkspaceError, digest_of

OnEvent = Callable[[dict[str, Any]], None]


def check(
    module_id: str,
    workspace: Workspace,
    *,
    ref_deps: bool = False,
    kind: str | None = None,
    book: bool = False,
    on_event: OnEvent | None = None,
    limits: Limits | None = None,
    child: Child | None = None,
) -> Verdict:
    """Judge the learner's files of a module; a pass of all its tests is remembered.

    ref_deps: where a needed module has not passed, the reference stands in. kind: only the tests of one KIND. book: the
    module's practice notebooks instead of its tests. child: one that is loaded and waiting. ValueError for an unknown
    module or kind, and for a module without notebooks.
    """
    chosen = module(module_id)
    options = f"{' --book' if book else ''}{f' --kind {kind}' if kind else ''}"
    verdict = before(chosen, workspace, ref_deps, "check", chosen.id + options)
    if verdict is not None:
        return verdict
    limits = limits or Limits()
    with contextlib.ExitStack() as stack:
        try:
            files, digest, lent = stack.enter_context(gather(chosen, workspace))
        except OSError as fault:
            return Verdict(chosen.id, "fail", f"{fault.filename} cannot be read: {fault.strerror}.")
        overlay = Overlay(files)
        # The run cannot reach the folder, so it need not wait for the backup.
        with ThreadPoolExecutor(1) as beside:
            backup = beside.submit(_back_up, workspace)
            if book:
                verdict = chapters.judge(chosen, workspace, overlay, limits, on_event)
            else:
                verdict = _check_tests(chosen, workspace, overlay, kind, limits, on_event, child)
            notes = backup.result()
    verdict = _with(verdict, lent=tuple(lent), notes=(*verdict.notes, *notes))
    if not book:
        verdict = _remember(chosen, workspace, verdict, digest if kind is None else None)
    return verdict


def watch(
    module_id: str,
    workspace: Workspace,
    *,
    on_verdict: Callable[[Verdict], None],
    ref_deps: bool = False,
    kind: str | None = None,
    on_event: OnEvent | None = None,
    limits: Limits | None = None,
    stop: Callable[[], bool] = lambda: False,
    poll_seconds: float = 0.05,
) -> Verdict:
    """Check now and again after every save, until `stop` says so or the user interrupts; the last verdict.

    Saves are found by looking at the files, a few times a second, which works on every file system. A child is loaded
    and waiting while nothing happens, so the verdict follows a save at once.
    """
    chosen = module(module_id)
    paths = [workspace.file(rel) for other in (*needed(chosen), chosen) for rel in other.files]
    paths += [workspace.path / ".ol" / "state.json"]
    child: Child | None = None
    model = _needs_model(chosen, kind)
    try:
        while True:
            child = child or Child(limits, model=model)
            seen = _stamps(paths)
            verdict = check(
                module_id, workspace, ref_deps=ref_deps, kind=kind, on_event=on_event, limits=limits, child=child
            )
            on_verdict(verdict)
            if child.used:
                child.close()
                child = Child(limits, model=model)
            seen[paths[-1]] = _stamps(paths[-1:])[paths[-1]]  # what this check itself remembered is no save
            while _stamps(paths) == seen:
                if stop():
                    return verdict
                time.sleep(poll_seconds)
            _settle(paths, poll_seconds / 2)
    finally:
        if child is not None:
            child.close()


def _settle(paths: list[Path], seconds: float) -> None:
    """Wait until nothing has changed for so long: an editor writes in steps."""
    before = None
    while (now := _stamps(paths)) != before:
        before = now
        time.sleep(seconds)


def _stamps(paths: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    stamps: dict[Path, tuple[int, int] | None] = {}
    for path in paths:
        stamps[path] = None
        with contextlib.suppress(OSError):
            stat = path.stat()
            stamps[path] = stat.st_mtime_ns, stat.st_size
    return stamps


# Before anything runs.


def before(chosen: Module, workspace: Workspace, ref_deps: bool, verb: str, target: str) -> Verdict | None:
    """Why there is nothing to run, where that is so: not started is told before blocked.

    verb, target: what was typed, as `ol.commands.command` takes it.
    """
    missing = [] if ref_deps else lacking(chosen, workspace)
    if not chosen.files:
        return _another_engine(chosen, missing, workspace)
    if not workspace.started(chosen):
        if unwritable := workspace.why_unwritable():
            raise WorkspaceError(unwritable)
        there = [rel for rel in chosen.files if not workspace.file(rel).is_file()]
        return Verdict(
            chosen.id,
            "not started",
            f"{workspace.file(there[0])} is not there.",
            next=f"Next: ol start {chosen.id}",
        )
    if missing:
        ids = [other.id for other in missing]
        listed = ids[0] if len(ids) == 1 else f"{', '.join(ids[:-1])} and {ids[-1]}"
        how = _how(missing[0], workspace) if len(ids) == 1 else "build them"
        return Verdict(
            chosen.id,
            "blocked",
            f"needs {listed}: {how}, or pass --ref-deps.",
            next=f"Next: {command(verb, chosen, workspace, target)}",
        )
    return None


def _another_engine(chosen: Module, missing: list[Module], workspace: Workspace) -> Verdict:
    """What there is to say of a module without files here, whose engine is held to the modules that it needs."""
    if goal := next((other for other in missing if other.id in chosen.needs), None):
        step = command("check", goal, workspace) if workspace.started(goal) else f"ol start {goal.id}"
        return Verdict(chosen.id, "blocked", f"needs {goal.id}: {_how(goal, workspace)}.", next=f"Next: {step}")
    return Verdict(
        chosen.id,
        "not started",
        f"nothing of {chosen.id} ({chosen.title}) is built in this folder: it is an engine "
        "of your own, in a language of your choice.",
        next="Next: ol conform -- YOUR_PROGRAM",
    )


def _how(other: Module, workspace: Workspace) -> str:
    if not workspace.started(other):
        return "build it"
    return "check it again, it changed since it passed" if other.id in workspace.state.passed else "finish it"


@contextlib.contextmanager
def gather(chosen: Module, workspace: Workspace) -> Iterator[tuple[dict[str, Path], str, list[str]]]:
    """Copies of the learner's files that a run of the module uses, by module name; the digest of the module's own; and
    the ids of the needed modules that the reference stands in for. OSError when a file cannot be read."""
    with tempfile.TemporaryDirectory(prefix="ol-copy-") as folder:
        own, digest = _copy(chosen, workspace, Path(folder))
        others, lent = _dependencies(chosen, workspace, Path(folder))
        yield {**others, **own}, digest, lent


def _copy(chosen: Module, workspace: Workspace, folder: Path) -> tuple[dict[str, Path], str]:
    """Copies of a module's files by module name, and the digest that a pass is remembered under."""
    copies = {}
    for rel in chosen.files:
        copies[rel] = folder / rel
        copies[rel].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(workspace.file(rel), copies[rel])
    return {dotted(rel): path for rel, path in copies.items()}, digest_of(copies)


def _dependencies(chosen: Module, workspace: Workspace, folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The learner's own versions of needed modules, by module name, and the ids that the reference stands in for.

    A module counts when it passed as it is. The reference's files may use more of each other than the contract fixes;
    where a lent file imports a name that the learner's version does not have, that version is lent too.
    """
    mine = {other.id: other for other in needed(chosen) if workspace.passed(other)}
    copies = {other_id: _copy(other, workspace, folder)[0] for other_id, other in mine.items()}
    while True:
        kept = {name: path for other_id in mine for name, path in copies[other_id].items()}
        lent_files = [
            reference(rel)
            for other in MODULES.values()
            if other.id not in mine and other.id != chosen.id
            for rel in other.files
            if other in needed(chosen)
        ]
        lacking = {name for file in lent_files for name in _lacks(file, kept)}
        dropped = [other_id for other_id, other in mine.items() if lacking & {dotted(rel) for rel in other.files}]
        if not dropped:
            return kept, [other.id for other in needed(chosen) if other.id not in mine]
        for other_id in dropped:
            del mine[other_id]


def _lacks(lent: Path, kept: Mapping[str, Path]) -> Iterator[str]:
    """Which of the learner's modules lack a name that a lent file imports from them."""
    for node in ast.walk(ast.parse(lent.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in kept:
            lacking = {alias.name for alias in node.names} - _defined_in(kept[node.module])
            if lacking:
                yield node.module


def _defined_in(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _back_up(workspace: Workspace) -> list[str]:
    """Back the learner's folder up; what went wrong, as notes."""
    try:
        workspace.backup()
    except (OSError, WorkspaceError) as fault:
        return [f"No backup was made: {fault}"]
    return []


# The tests.


def _check_tests(
    chosen: Module,
    workspace: Workspace,
    overlay: Overlay,
    kind: str | None,
    limits: Limits,
    on_event: OnEvent | None,
    child: Child | None,
) -> Verdict:
    try:
        infos = tests_of(chosen)
    except (OSError, SyntaxError, ValueError) as fault:
        return Verdict(chosen.id, "broken", f"the course's own tests cannot be read: {fault}", next=_REINSTALL)
    infos = [info for info in infos if kind is None or kind in info.kinds]
    if not infos:
        raise ValueError(f"{chosen.id} has no tests of the kind {kind!r}.")
    what = Run(
        overlay=overlay,
        tests=tuple(dict.fromkeys(ROOT / info.file for info in infos)),
        select=None if kind is None else frozenset(info.name for info in infos),
        limits=limits,
        secret=tuple(reference(rel) for rel in chosen.files),
        model=_needs_model(chosen, kind),
    )
    if child is None:
        with Child(limits, model=what.model) as fresh:
            outcome = fresh.run(what, on_event)
    else:
        outcome = child.run(what, on_event)
    results = results_of(infos, outcome.tests)
    again = command("check", chosen, workspace)
    empty = [name for name, path in overlay.files.items() if not path.read_bytes().strip()]
    return _judge(chosen, outcome, infos, results, kind, again, empty)


_REINSTALL = "This is the course's fault, not yours: get its files anew, or report it with the lines above."


def _judge(
    chosen: Module,
    outcome: Outcome,
    infos: list[TestInfo],
    results: list[TestResult],
    kind: str | None,
    whole: str,
    empty: Container[str] = (),
) -> Verdict:
    """The verdict that an outcome amounts to. whole: what to type for all of the module's tests; empty: the learner's
    modules in which nothing is written."""
    common: dict[str, Any] = {"tests": tuple(results), "seconds": outcome.seconds, "notes": outcome.notes}
    passed = sum(test.passed for test in results)
    said = f"{passed} of {len(results)} tests pass"
    if outcome.ending == "broken":
        common["output"] = str(outcome.detail.get("trace", outcome.output))
        return Verdict(chosen.id, "broken", outcome.reason, next=_REINSTALL, **common)
    if outcome.ending == "uncollected":
        return _uncollected(chosen, outcome, common, whole, empty)
    if outcome.ending == "unloadable":
        return Verdict(chosen.id, "fail", outcome.reason, next=f"Next: mend that, then {whole}", **common)
    failures = most_basic(test for test in results if test.outcome in ("failed", "error"))
    if outcome.ending != "finished" and not (failures and outcome.ending == "timeout"):
        reason = outcome.reason[0].upper() + outcome.reason[1:]
        hanging = next((info for info in infos if outcome.running and info.name in outcome.running), None)
        where = f"It was running: {hanging.name}\n{wrapped(hanging.why, '    ')}" if hanging else ""
        return Verdict(chosen.id, "fail", reason, explanation=where, output=outcome.output, **common)
    if failures:
        first = failures[0]
        about = next(info for info in infos if info.name == first.name)
        if outcome.reason:
            common["notes"] = (*outcome.notes, f"Not all tests ran: {outcome.reason[0].lower()}{outcome.reason[1:]}")
        common["notes"] = (*_others(failures[1:]), *common["notes"])
        return Verdict(
            chosen.id,
            "fail",
            f"{said}. The first that does not:",
            explanation=explanation(chosen, about, first),
            next=f"Next: ol hint {chosen.id}",
            **common,
        )
    absent = [test for test in results if test.outcome == "skipped"]
    ran_all = all(test.passed or test.outcome == "skipped" for test in results) and passed > 0
    if not ran_all:
        odd = next(test for test in results if not test.passed and test.outcome != "skipped")
        return Verdict(
            chosen.id, "fail", f"{odd.name} {odd.why.get('message') or 'did not run'}, so it did not pass.", **common
        )
    without = f" ({len(absent)} need the real model: ol doctor)" if absent else ""
    return Verdict(
        chosen.id,
        "pass",
        f"All {passed} {kind + ' ' if kind else ''}tests pass{without}.",
        next=f"Next: {whole}, all of its tests" if kind else f"Next: ol diff {chosen.id}",
        **common,
    )


SHOWN_OTHERS = 5


def _others(failures: list[TestResult]) -> list[str]:
    """A line about the failures that are not explained; none when there are none."""
    if not failures:
        return []
    names = [test.name for test in narrowest(failures)[:SHOWN_OTHERS]]
    more = f" and {len(failures) - len(names)} more" if len(failures) > len(names) else ""
    return [f"{len(failures)} {'other fails' if len(failures) == 1 else 'others fail'}: {', '.join(names)}{more}."]


def _uncollected(
    chosen: Module, outcome: Outcome, common: dict[str, Any], whole: str, empty: Container[str]
) -> Verdict:
    """A test file that cannot be imported: a name the learner's file lacks, or the course's own fault."""
    message = str(outcome.detail.get("message", ""))
    lacking = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", message)
    if lacking and lacking[2] in {dotted(rel) for rel in chosen.files}:
        file = lacking[2].replace(".", "/") + ".py"
        sentence = f"{file} has no {lacking[1]}, which the tests import. Its contract is in {Path(file).stem}.pyi."
        if lacking[2] in empty:
            step = f"Next: ol reset {chosen.id} writes the stub anew"
            return Verdict(chosen.id, "fail", f"{file} is empty.", next=step, **common)
        return Verdict(chosen.id, "fail", sentence, next=f"Next: mend that, then {whole}", **common)
    if outcome.detail.get("type") == "ImportError" and lacking:
        sentence = f"{lacking[2]} has no {lacking[1]}, which the tests import."
        return Verdict(chosen.id, "fail", sentence, next="Check that module again, or pass --ref-deps.", **common)
    return Verdict(chosen.id, "broken", outcome.reason, next=_REINSTALL, **common)


def results_of(infos: list[TestInfo], outcomes: Iterable[TestOutcome]) -> list[TestResult]:
    """The catalogue's tests in its order, each with what its cases came to."""
    cases: dict[str, list[TestOutcome]] = {}
    for test in outcomes:
        cases.setdefault(test.name, []).append(test)
    found = [(info, _result(info.name, cases.get(info.name, []))) for info in infos]
    return [replace(result, kinds=info.kinds, pitfalls=info.pitfalls) for info, result in found]


def _result(name: str, cases: list[TestOutcome]) -> TestResult:
    seconds = sum(case.seconds for case in cases)
    bad = [case for case in cases if case.outcome != "passed"]
    if not cases:
        return TestResult(name, False, "not run", seconds)
    if not bad:
        return TestResult(name, True, "passed", seconds)
    first = min(bad, key=lambda case: case.outcome == "skipped")
    shown = first.id.partition("[")[2].removesuffix("]")
    if first.outcome == "skipped" and not first.why.get("no_model"):
        why = {"type": "Skipped", "message": "was skipped by the code under test"}
        return TestResult(name, False, "failed", seconds, shown, why)
    return TestResult(name, False, first.outcome, seconds, shown, first.why)


def _remember(chosen: Module, workspace: Workspace, verdict: Verdict, digest: str | None) -> Verdict:
    """Keep a pass, and the first failing test for `ol hint`; a folder that is read-only costs a note, no verdict."""
    first = verdict.first_failure
    state = workspace.state
    try:
        lent = ", ".join(verdict.lent)
        known = (state.passed.get(chosen.id), state.lent.get(chosen.id, ""))
        if verdict.status == "pass" and digest is not None and known != (digest, lent):
            workspace.record_pass(chosen, digest, lent)
        elif verdict.status == "fail" and first is not None and first.outcome != "not run":
            if state.failing.get(chosen.id) != first.name or chosen.id in state.faults:
                workspace.record_failure(chosen, first.name)
        elif verdict.status == "fail" and not any(test.passed for test in verdict.tests):
            workspace.record_failure(chosen, None, verdict.reason)
        elif verdict.status == "pass" and (chosen.id in state.failing or chosen.id in state.faults):
            workspace.record_failure(chosen, None)
    except WorkspaceError as fault:
        return _with(verdict, notes=(*verdict.notes, f"This was not remembered: {fault}"))
    return verdict


def _needs_model(chosen: Module, kind: str | None) -> bool:
    """Whether a test that would run asks for the real model."""
    text = "".join(path.read_text(encoding="utf-8") for path in tests_folder(chosen).glob("test_*.py"))
    return kind is None and "mark.model" in text


def _with(verdict: Verdict, **changes: Any) -> Verdict:
    return Verdict(**{**vars(verdict), **changes})


# What went wrong, in words.


def explanation(chosen: Module, about: TestInfo, result: TestResult) -> str:
    """Which claim broke, with what, expected and got, and where the book explains it; lines of at most 80 columns."""
    why = result.why
    title = about.name + (f" [{result.case}]" if result.case else "")
    parts = [f"{title}\n{wrapped(about.why, '    ')}"]
    if why.get("call"):
        width = max((len(name) for name, _ in why.get("given", ())), default=0)
        given = [_field(name, value, "        ", width) for name, value in why.get("given", ())]
        parts.append("\n".join(["    the call", wrapped(str(why["call"]), "        "), *given]))
    if why.get("example"):
        parts.append("    the smallest case found\n" + textwrap.indent(str(why["example"]), "        "))
    if "expected" in why:
        # Numbers alone do not say of what they are, unless the call above does.
        asserted = "" if why.get("call") else _field("false", why.get("asserted", "")) + "\n"
        parts.append(asserted + _field("expected", why["expected"]) + "\n" + _field("got", why["got"]))
    elif why.get("claim_line"):
        words = str(why.get("message") or "").partition("\n")[0].removeprefix("AssertionError: ")
        same = words.startswith("assert ")
        parts.append(_field("false", why["claim_line"]) + ("" if same or not words else "\n" + _field("namely", words)))
    else:
        parts.append(_raised(chosen, why))
    if why.get("printed"):
        parts.append(_field("printed", str(why["printed"]).strip()))
    file, _, line = str(why.get("test_line", "")).rpartition(":")
    where = [f"    the test   {about.file}:{line}"] if Path(file).name == Path(about.file).name else []
    if chapter := explained_in(chosen, about):
        where.append(f"    explained  {chapter}")
    parts.append("\n".join(where))
    return "\n\n".join(part for part in parts if part)


def _raised(chosen: Module, why: Mapping[str, Any]) -> str:
    kind, message = str(why.get("type", "")), str(why.get("message", ""))
    yours = why.get("yours")
    if kind == "NotImplementedError" and yours:
        return wrapped(f"{yours['function']} is still to be written.", "    ")
    first = message.partition("\n")[0]
    said = _field("raised", f"{kind}: {first}" if first else kind)
    if yours:
        name = str(yours["module"])
        file = "your cell" if name.startswith("__main__") else name.replace(".", "/") + ".py"
        said += f"\n    at         {file}, line {yours['line']}, in {yours['function']}\n"
        said += textwrap.indent(_cut(yours["text"]), "        ")
    if kind == "TypeError" and "argument" in message:
        said += "\n" + wrapped("The contract, in the .pyi beside your file, has the signature.", "    ")
    if kind == "MemoryError":
        said += "\n" + wrapped("A run may use 4 GB.", "    ")
    return said


def _field(name: str, value: Any, indent: str = "    ", width: int = 10) -> str:
    lines = str(value).splitlines() or [""]
    room = WIDTH - len(indent) - width - 1
    if len(lines) == 1 and len(lines[0]) > room:
        lines = textwrap.wrap(lines[0], room, break_on_hyphens=False)[:8]
    return "\n".join(f"{indent}{name if i == 0 else '':{width}} {line}" for i, line in enumerate(lines[:12]))


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH - 8 else line[: WIDTH - 12] + " ..."


def explained_in(chosen: Module, about: TestInfo) -> str:
    """The chapter that names the test, else the one that says most about what it uses; "" for a module without any."""
    named = [chapter for chapter in chosen.chapters if re.search(rf"\b{about.name}\b", _chapter_text(chapter))]
    if not named and about.uses:
        texts = {chapter: _chapter_text(chapter) for chapter in chosen.chapters}
        counts = {chapter: sum(text.count(name) for name in about.uses) for chapter, text in texts.items()}
        named = [chapter for chapter, count in counts.items() if count and count == max(counts.values())]
    if not named:
        return ""
    title = re.search(r"^# # (.+)$", _chapter_text(named[0]), flags=re.MULTILINE)
    return f"book/{named[0]}.ipynb" + (f" ({title[1]})" if title else "")


@cache
def _chapter_text(chapter: str) -> str:
    path = ROOT / "book" / "text" / f"{chapter}.py"
    return path.read_text(encoding="utf-8") if path.is_file() else notebook(chapter).read_text(encoding="utf-8")
