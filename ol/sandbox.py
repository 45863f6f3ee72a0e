"""Run learners' code in a child process that cannot harm the course, the learner's files or the verdict by accident.

`run` copies the files and the tests into a folder that is thrown away, starts `ol.child` there with a home folder of
its own, limits its time, memory and disk, and ends it together with everything it started. The outcome says what
happened in sentences; only a run that came back whole, with every collected test reported and signed, is `finished`.

What this does not stop, so do not run code of people who mean harm on a computer that matters:

- Code in the same process as its judge can search that process's memory, find the key of the last record and sign a
  result of its own; it can also change what no seal looks at, by machine code or through ctypes.
- It can read every file that you can read, your home folder included, but for the files that a run hides.
- On macOS and Windows, and on Linux without Landlock, the audit hook alone guards files, processes and the network:
  libraries that write by themselves, without Python's open, pass it by, and so does ctypes. Windows sets no limits on
  memory, and macOS does not hold the one it is given.
- On Linux, UDP is not closed, and a fork by machine code is noticed and ended rather than prevented.
- A notebook's kernel (`ol check --book`) may start processes and use sockets.
- In a notebook, `ol.check(...)` and `ol.overlay.use()` run the code in that notebook's kernel, with nothing contained.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import hmac
import json
import os
import queue
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Protocol

from ol import kernels
from ol.course import ROOT
from ol.overlay import VARIABLE, Overlay

PREFIX = "ol-run-"
MARK = "OL_RUN"  # in the environment of a run's processes: the name of its folder
WARM = ("numpy", "pytest", "hypothesis", "tinyllm.num.exact", "ol.explain")
NEVER_READ = ("ol/bugs", "ol/alternatives")
Ending = Literal["finished", "unloadable", "uncollected", "timeout", "ended", "tampered", "broken"]

KERNEL = "ol"
_NBVAL = ["-p", "nbval.plugin", "--nbval", f"--nbval-kernel-name={KERNEL}", "--nbval-cell-timeout=600"]

PYTEST_INI = """[pytest]
addopts = --import-mode=importlib -p no:cacheprovider -p no:unraisableexception -p no:threadexception
markers =
    module(id): the course module
    model: needs the real model
    browser: opens the book in a browser
"""


class Process(Protocol):
    """What a run needs of its child; a `subprocess.Popen` is one."""

    @property
    def pid(self) -> int:
        """Its process id, not used again before `kill`."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """Where its job goes."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Where its records come from."""

    def poll(self) -> int | None:
        """Its exit code, the negative number of the signal that ended it, or None while it runs."""

    def wait(self, timeout: float) -> int:
        """Its exit code once it has ended; subprocess.TimeoutExpired when it has not."""

    def kill(self) -> None:
        """End it."""


class Forks(Protocol):
    """What makes a child without starting Python anew; see `ol.nursery`."""

    def fork(self, setting: dict[str, Any], environment: dict[str, str], folder: Path) -> Process:
        """A child with this setting and environment, working in `folder`, whose `log` there it writes."""


@dataclass(frozen=True)
class Limits:
    """How much a run may take: `seconds` in all, `quiet_seconds` between signs of life (a test begun or done)."""

    seconds: float = 600.0
    quiet_seconds: float = 60.0
    memory_bytes: int = 4 << 30  # address space: libraries reserve far more than they use
    file_bytes: int = 64 << 20


@dataclass(frozen=True)
class Run:
    """One run: whose files stand in for which modules, and which tests judge them.

    tests: files and folders, each copied into the run under its own name. select: names of test functions, None for
    all. first: stop after the first test that fails. brief: nobody will read how a test failed. secret: files that the
    code may not read, besides the planted bugs. model: the code may use the real model, where there is one. notebooks:
    `tests` are notebooks, for nbval. call, argument: instead of tests, a function of the course, such as
    "ol.milestone:in_child", called as function(send, argument) and returning plain data.
    """

    overlay: Overlay = field(default_factory=Overlay)
    tests: tuple[Path, ...] = ()
    select: frozenset[str] | None = None
    first: bool = False
    brief: bool = False
    limits: Limits = field(default_factory=Limits)
    secret: tuple[Path, ...] = ()
    model: bool = False
    notebooks: bool = False
    call: str = ""
    argument: Any = None


@dataclass(frozen=True)
class TestOutcome:
    """One test: its name without parameters, pytest's id of it, how it came out, and, when it failed, why."""

    __test__ = False

    name: str
    id: str
    outcome: Literal["passed", "failed", "error", "skipped"]
    seconds: float = 0.0
    why: Mapping[str, Any] = field(default_factory=dict)  # see ol.explain.explain; for a skip: no_model, message


@dataclass(frozen=True)
class Outcome:
    """What a run came to. `reason` is a sentence, empty when it finished; only `finished` means it came back whole.

    ending: finished; unloadable (a file of the overlay cannot be imported); uncollected (a test file cannot); timeout;
    ended (the process ended early); tampered (it changed its judge, or reached outside); broken (the course's fault).
    """

    ending: Ending
    reason: str = ""
    tests: tuple[TestOutcome, ...] = ()
    seconds: float = 0.0
    output: str = ""  # the end of what was printed
    running: str = ""  # the test that was running when the run was cut short
    detail: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None  # of `call`
    notes: tuple[str, ...] = ()  # limits that this system does not have

    @property
    def finished(self) -> bool:
        """Whether the run came back whole and untampered, with whatever verdicts."""
        return self.ending == "finished"

    @property
    def passed(self) -> bool:
        """Whether it finished, ran at least one test, and every test passed or lacked the real model."""
        done = [test for test in self.tests if test.outcome == "passed"]
        rest = [test for test in self.tests if test.outcome != "passed" and not test.why.get("no_model")]
        return self.finished and bool(done) and not rest


def run(
    what: Run,
    on_record: Callable[[dict[str, Any]], None] | None = None,
    nursery: Forks | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Run once, in a fresh child or one forked from `nursery`.

    `on_record` sees each record as it comes ("collected", "started", "result", ...). `stop`, when set, ends the run.
    """
    with Child(what.limits, model=what.model, warm=() if what.call else WARM, nursery=nursery) as child:
        return child.run(what, on_record, stop)


class Child:
    """A child process that is loaded and waiting for its one run; start it early and the run answers at once.

    `model`: it gets to know where the real model is. `processes`: it may start others (notebook kernels). `nursery`: it
    is forked from there instead of started afresh. Close it, or use it as a context manager: it and all it started end,
    and its folder goes.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        model: bool = False,
        processes: bool = False,
        warm: Iterable[str] = WARM,
        nursery: Forks | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._processes = processes
        self._nursery = nursery
        self.used = False
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")).resolve()
        self._process: Process | None = None
        try:
            for name in ("home", "tmp", "tests", "work"):
                (self.folder / name).mkdir()
            (self.folder / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
            kernels.lend(self.folder / "numba", model)
            self._start(model, processes, warm)
        except BaseException:
            self.close()
            raise

    def _start(self, model: bool, processes: bool, warm: Iterable[str]) -> None:
        setting = {
            "folder": str(self.folder),
            "processes": processes,
            "warm": list(warm),
            "memory_bytes": self.limits.memory_bytes,
            "file_bytes": self.limits.file_bytes,
            "cpu_seconds": int(self.limits.seconds * (os.cpu_count() or 1) + 3600),  # should the clock here die
        }
        environment = environment_for(self.folder, model)
        if self._nursery is not None:
            self._process = self._nursery.fork(setting, environment, self.folder)
        else:
            environment["OL_SETTING"] = json.dumps(setting)
            with (self.folder / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-B", str(ROOT / "ol" / "child.py")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.folder,
                    env=environment,
                    start_new_session=True,
                )
        self._records: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._digest = hashlib.sha256()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Pass the child's records on until its pipe closes; what is no record ends them."""
        assert self._process is not None and self._process.stdout is not None
        with self._process.stdout as pipe, contextlib.suppress(OSError, ValueError):
            for line in pipe:
                record = json.loads(line)
                record["before"] = self._digest.copy()
                self._digest.update(line)
                self._records.put(record)
        self._records.put(None)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child and everything it started, and remove its folder."""
        if self._process is not None:
            end(self._process, self.folder)
            for pipe in (self._process.stdin,):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(
        self,
        what: Run,
        on_record: Callable[[dict[str, Any]], None] | None = None,
        stop: threading.Event | None = None,
    ) -> Outcome:
        """Copy the files and tests in, run them, and say what happened. Once per child."""
        self.used = True
        started = time.monotonic()
        key = secrets.token_bytes(32)
        copies = self._copy(what)
        job = {
            "key": key.hex(),
            "overlay": copies.to_json(),
            "secret": [*(str(ROOT / name) for name in NEVER_READ), *(str(path) for path in what.secret)],
            "files": [str(self.folder / "tests" / path.name) for path in what.tests],
            "path": [str(self.folder / "tests" / path.name) for path in what.tests if path.is_dir()],
            "select": None if what.select is None else sorted(what.select),
            "arguments": [*(["-x"] if what.first else []), *(_NBVAL if what.notebooks else ["--tb=no"])],
            "brief": what.brief,
            "call": what.call,
            "argument": what.argument,
        }
        if what.notebooks:
            self._write_kernel(copies, job["secret"])
        judged = _digests(self.folder / "tests")
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already: the records say how
            self._process.stdin.write(json.dumps(job).encode("utf-8") + b"\n")
            self._process.stdin.flush()
        story = _Story(what, key, self.folder)
        story.tell(self._next_records(what.limits, started, stop), on_record)
        code = self._process.poll() if story.last is not None else _wait(self._process)
        end(self._process, self.folder)
        outcome = story.outcome(code, self._log(), time.monotonic() - started)
        if outcome.finished and _digests(self.folder / "tests") != judged:
            return _with(outcome, "tampered", "It changed the tests that judge it.")
        if outcome.finished:
            kernels.keep(self.folder / "numba", copies.files.values())
        return outcome

    def _copy(self, what: Run) -> Overlay:
        """Copy tests, the toys and what all tests share, and the files of the overlay, into the run's folder."""
        tests = self.folder / "tests"
        for path in what.tests:
            if path.is_dir():
                shutil.copytree(path, tests / path.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            elif what.select is not None and path.suffix == ".py":
                (tests / path.name).write_text(_only(path.read_text(encoding="utf-8"), what.select), encoding="utf-8")
            else:
                shutil.copy2(path, tests / path.name)
        shutil.copy2(ROOT / "conftest.py", self.folder / "conftest.py")
        shutil.copy2(ROOT / "tests" / "conftest.py", tests / "conftest.py")
        (tests / "L8.6").mkdir(exist_ok=True)
        for toy in (ROOT / "tests" / "L8.6").glob("_*.py"):
            shutil.copy2(toy, tests / "L8.6" / toy.name)
        copies = {}
        for name, path in what.overlay.files.items():
            placed = kernels.settle(path, self.folder / "numba")
            copies[name] = placed or self.folder / "work" / Path(*name.split(".")).with_suffix(".py")
            if placed is None:
                copies[name].parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copies[name])
        return Overlay(copies)

    def _write_kernel(self, copies: Overlay, secret: list[str]) -> None:
        """Describe, where Jupyter looks for it, the kernel in which the overlay is at work."""
        place = self.folder / "jupyter" / "kernels" / KERNEL
        place.mkdir(parents=True)
        argv = [sys.executable, "-I", "-B", str(ROOT / "ol" / "child.py"), "{connection_file}"]
        watched = {"folder": str(self.folder), "processes": True, "secret": secret}
        environment = {VARIABLE: copies.to_json(), "OL_KERNEL": json.dumps(watched)}
        described = {"argv": argv, "display_name": "ol", "language": "python", "env": environment}
        (place / "kernel.json").write_text(json.dumps(described), encoding="utf-8")

    def _next_records(
        self, limits: Limits, started: float, stop: threading.Event | None
    ) -> Iterator[dict[str, Any] | str]:
        """The child's records; at the end "closed", "stopped", "processes", or "timeout"/"quiet" past a limit."""
        heard = time.monotonic()
        while True:
            now = time.monotonic()
            left = min(started + limits.seconds, heard + limits.quiet_seconds) - now
            if left <= 0:
                yield "timeout" if now - started >= limits.seconds else "quiet"
                return
            try:
                record = self._records.get(timeout=min(left, 0.5))
            except queue.Empty:
                if stop is not None and stop.is_set():
                    yield "stopped"
                    return
                if not self._processes and self._started_others():
                    yield "processes"
                    return
                continue
            heard = time.monotonic()
            if record is None:
                yield "closed"
                return
            yield record

    def _started_others(self) -> bool:
        """Whether the child has children (Linux), which a hook refuses and machine code could start all the same."""
        assert self._process is not None
        for task in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                if task.read_bytes().strip():
                    return True
        return False

    def _log(self) -> str:
        with contextlib.suppress(OSError), (self.folder / "log").open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 4000))
            return log.read().decode("utf-8", errors="replace")
        return ""


class _Story:
    """The records of one run, and what they amount to."""

    def __init__(self, what: Run, key: bytes, folder: Path) -> None:
        self.what, self.key, self.folder = what, key, folder
        self.tests: list[TestOutcome] = []
        self.running = ""
        self.notes: tuple[str, ...] = ()
        self.unloadable: dict[str, Any] = {}
        self.uncollected: list[dict[str, Any]] = []
        self.broken = ""
        self.last: dict[str, Any] | None = None
        self.stopped = ""

    def tell(self, records: Iterator[dict[str, Any] | str], on_record: Callable[[dict[str, Any]], None] | None) -> None:
        for record in records:
            if isinstance(record, str):
                self.stopped = record
                return
            before = record.pop("before")
            kind = record.get("is")
            if kind == "ready":
                self.notes = tuple(record["notes"])
            elif kind == "started":
                self.running = record["test"]
            elif kind == "result":
                self.running = ""
                self.tests.append(test_outcome(record))
            elif kind == "unloadable":
                self.unloadable = record
            elif kind == "uncollected":
                self.uncollected.append(record)
            elif kind == "broken":
                self.broken = record["trace"]
            elif kind == "finished":
                self._finish(record, before)
                return
            if on_record is not None and kind != "ready":
                on_record(record)

    def _finish(self, record: dict[str, Any], before: Any) -> None:
        expected = hmac.new(self.key, before.digest() + str(record.get("record")).encode(), "sha256").hexdigest()
        if hmac.compare_digest(expected, str(record.get("signature"))):
            self.last = json.loads(record["record"])
        else:
            self.stopped = "forged"

    def outcome(self, code: int | None, output: str, seconds: float) -> Outcome:
        ending, reason, detail = self._ending(code, output)
        return Outcome(
            ending=ending,
            reason=reason,
            tests=tuple(self.tests),
            seconds=seconds,
            output=output[-2000:],
            running=self.running,
            detail=detail,
            result=self.last["tests"] if self.last and self.what.call else None,
            notes=self.notes,
        )

    def _ending(self, code: int | None, output: str) -> tuple[Ending, str, dict[str, Any]]:
        at = f" while {_name(self.running)} was running" if self.running else ""
        if self.stopped == "timeout":
            return "timeout", f"It was ended after {self.what.limits.seconds:g} seconds{at}.", {}
        if self.stopped == "quiet":
            wait = self.what.limits.quiet_seconds
            where = f"{_name(self.running)} did not end" if self.running else "nothing happened"
            return "timeout", f"It was ended because {where} for {wait:g} seconds: an endless loop, or a sleep?", {}
        if self.stopped == "stopped":
            return "ended", "It was stopped before it was done.", {}
        if self.stopped == "processes":
            return "tampered", f"It started another process{at}; the run and all it started were ended.", {}
        if self.stopped == "forged":
            return "tampered", "It sent a result that is not one: the last record has a wrong signature.", {}
        if self.last is None:
            if self.broken:
                last = self.broken.strip().splitlines()[-1]
                return "broken", f"The run itself failed: {last}", {"trace": self.broken}
            return "ended", f"It {_how_it_ended(code)}{at or self._before()}, so it was never judged.", {}
        if self.last["outside"]:
            return "tampered", _list(self.last["outside"]), {"outside": self.last["outside"]}
        changed = [*self.last["tampered"], *self._changed_tests()]
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            sentence = f"It changed {changed[0]}{more}, which belongs to its judge; such a run fails."
            return "tampered", sentence, {"changed": changed}
        if self.unloadable:
            return "unloadable", _why_unloadable(self.unloadable, self.folder), self.unloadable
        if self.uncollected:
            first = self.uncollected[0]
            return "uncollected", f"{Path(first['file']).name} cannot be run: {_one_line(first)}.", first
        if not self.what.call and not self._complete():
            return "ended", "Not every test that was collected came back with a result, so it was not judged.", {}
        return "finished", "", {}

    def _before(self) -> str:
        return " before a test began" if not self.tests else f" after {_name(self.tests[-1].id)}"

    def _changed_tests(self) -> list[str]:
        return list((self.last or {}).get("tests", {}).get("changed", [])) if self._has_summary() else []

    def _has_summary(self) -> bool:
        return not self.what.call and isinstance((self.last or {}).get("tests"), dict)

    def _complete(self) -> bool:
        """Every collected test has one result, that of the signed summary, unless stopped at the first failure."""
        if not self._has_summary():
            return False
        summary = (self.last or {})["tests"]
        outcomes = {test.id: test.outcome for test in self.tests}
        if outcomes != summary["outcomes"] or len(outcomes) != len(self.tests):
            return False
        if summary["code"] not in (0, 1, 5):  # 5: no tests were collected, which passes nothing
            return self.what.first and summary["code"] == 2
        stopped = self.what.first and any(test.outcome in ("failed", "error") for test in self.tests)
        return stopped or list(outcomes) == summary["collected"]


def _only(source: str, names: frozenset[str]) -> str:
    """A test file with its other tests as blank lines: pytest would spend most of a short run on rewriting them."""
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and node.name not in names:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or first) - first + 1)
    return "".join(lines)


def test_outcome(record: Mapping[str, Any]) -> TestOutcome:
    """The record of one test, as the reporter sends it, as an outcome."""
    why = {name: value for name, value in record.items() if name not in ("is", "test", "outcome", "seconds")}
    return TestOutcome(_name(record["test"]), record["test"], record["outcome"], record["seconds"], why)


def _name(node: str) -> str:
    """The name of a test function, from pytest's id of it."""
    return node.rpartition("::")[2].partition("[")[0]


def _with(outcome: Outcome, ending: Ending, reason: str) -> Outcome:
    return Outcome(**{**vars(outcome), "ending": ending, "reason": reason})


def _list(sentences: list[str]) -> str:
    first, more = sentences[0][0].upper() + sentences[0][1:], len(sentences) - 1
    return first + (f", and {more} more such attempt{'s' if more > 1 else ''}." if more else ".")


def _one_line(fault: Mapping[str, Any]) -> str:
    if fault.get("type"):
        message = str(fault.get("message") or "").strip().splitlines()
        placed = fault["type"] == "SyntaxError"  # its message ends with the place; the line is one of the parser's
        line = f", line {fault['line']}" if fault.get("line") and not placed else ""
        return f"{fault['type']}{': ' + message[0] if message else ''}{line}"
    lines = str(fault.get("text", "")).strip().splitlines()
    return lines[-1] if lines else "no reason given"


def _why_unloadable(fault: Mapping[str, Any], folder: Path) -> str:
    file = str(fault["module"]).replace(".", "/") + ".py"
    where = fault.get("where") or {}
    line = f", line {where['line']}" if where.get("line") else ""
    message = str(fault["message"]).replace(f"{folder}{os.sep}", "").strip()
    kind = fault["type"]
    if kind == "SystemExit":
        return f"{file}{line} ends the program when it is imported; take the call of exit out."
    if kind == "SyntaxError" and ("codec can't decode" in message or "Non-UTF-8" in message):
        return f"{file} is not saved as UTF-8: {message}. Save it again with that encoding."
    if kind == "SyntaxError" and where.get("line"):
        # Python's own message ends with the place, which is told already.
        what = re.sub(r" \([^()]*, line \d+\)$", "", message)
        text = f", in `{where['text'][:60]}`" if where.get("text") else ""
        return f"{file}{line} cannot be imported: SyntaxError: {what}{text}."
    if kind == "ImportError" and "partially initialized" in message:
        return f"{file}{line} is imported by a module that it imports itself, a circle: {message}."
    return f"{file}{line} cannot be imported: {kind}: {message}".rstrip(".") + "."


def _wait(process: Process) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=2)
    return None


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed the way back for its results"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        why = {"SIGSEGV": " (too deep a recursion, or memory it may not touch)", "SIGKILL": " (out of memory?)"}
        return f"was ended by signal {name}{why.get(name, '')}"
    return f"ended the process with exit code {code}"


def _digests(folder: Path) -> dict[str, str]:
    """The course's files among the tests and everything else there that is Python, by content."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.py"))
        if path.is_file()
    }


# The child's surroundings.

PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "NUMBER_OF_PROCESSORS"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT"),  # without these, Python does not start on Windows
)


def environment_for(folder: Path, model: bool) -> dict[str, str]:
    """The child's environment: little of ours, a home and a place for temporary files inside `folder`."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    home, temporary = str(folder / "home"), str(folder / "tmp")
    environment |= dict.fromkeys(("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CACHE_HOME"), home)
    environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
    environment |= {
        MARK: folder.name,  # by which whatever the child leaves running is found
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "HYPOTHESIS_STORAGE_DIRECTORY": temporary,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "JUPYTER_PATH": str(folder / "jupyter"),
        "JUPYTER_RUNTIME_DIR": temporary,
    }
    if model:
        from tinyllm import zoo  # only where a model is wanted: it loads slowly

        if zoo.why_not() is None:
            environment[zoo.VARIABLE] = str(zoo.smollm2_path().absolute())
    return environment


def end(process: Process, folder: Path) -> None:
    """End a child, its process group, and on Linux whatever else carries its mark; return when it is gone."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        _end_marked(folder.name)
    elif process.poll() is None:
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)], capture_output=True, check=False)
    with contextlib.suppress(OSError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)


def _end_marked(mark: str) -> None:
    """Kill the processes of this user whose environment says that a run with this mark started them (Linux)."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(5):
        found = False
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError, ValueError):
                if wanted in entry.read_bytes().split(b"\0"):
                    pid = int(entry.parent.name)
                    if pid != os.getpid():
                        os.kill(pid, signal.SIGKILL)
                        found = True
        if not found:
            return


def sweep() -> None:
    """Remove the folders of runs whose starter is gone (it was killed)."""
    if os.name != "posix":
        return
    for left in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(ValueError, OSError):
            pid = int(left.name.removeprefix(PREFIX).partition("-")[0])
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                _end_marked(left.name)
                shutil.rmtree(left, ignore_errors=True)
