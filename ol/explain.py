"""What pytest found, told the way a teacher would: what was called, with what, what was expected, what came.

Runs in the child, beside the tests, as a pytest plugin: `Reporter` sends one record a test. For a failure it looks at
the line that failed, at the values that pytest compared, and at the call of the learner's code that led there.
"""

from __future__ import annotations

import ast
import linecache
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, is_hypothesis_test, settings

SHOWN_CHARACTERS = 600
SETTINGS = "_hypothesis_internal_use_settings"  # where Hypothesis, and its own pytest plugin, keep a test's settings
BASIC = re.compile(r"^\s*KIND: [a-z, ]*\bunit\b.* Pitfalls: ", re.MULTILINE)  # as `ol.verdict.most_basic` has it
BRIEF_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


class Reporter:
    """A pytest plugin: keeps the chosen tests, reports each, and remembers what a complete run must contain.

    `select`: names of test functions to run, None for all. `own`: the files of the overlay by module name. `folder`:
    where the tests are. `brief`: nobody will read how a test failed. Only the first failure and the first of a
    basic test are told in full, and Hypothesis looks for the smallest case in a first failure and nowhere else: the
    search takes far longer than all other tests.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        select: list[str] | None,
        own: Mapping[str, Path],
        folder: Path,
        brief: bool = False,
    ) -> None:
        self._send = send
        self._brief = brief
        self._basic_told = brief
        self._select = None if select is None else set(select)
        self._own = dict(own)
        self._folder = folder
        self._collected: list[str] = []
        self._codes: dict[str, tuple[Any, CodeType | None]] = {}
        self._done: dict[str, str] = {}
        self._compared: tuple[str, Any, Any] | None = None
        self._current: dict[str, Any] = {}

    def summary(self, code: int) -> dict[str, Any]:
        """What ran, for the signed record: pytest's exit code, tests and outcomes, tests whose code changed."""
        codes = self._codes.items()
        changed = [node for node, (function, was) in codes if getattr(function, "__code__", None) is not was]
        return {"code": code, "collected": self._collected, "outcomes": self._done, "changed": changed}

    # pytest's hooks, in the order in which they come.

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            call = getattr(report, "ol_fault", {})
            self._send({"is": "uncollected", "file": report.nodeid, "text": str(report.longrepr)[-2000:], **call})
        elif report.skipped:
            self._send({"is": "uncollected", "file": report.nodeid, "text": "the file skips itself", "type": "Skipped"})

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        report = yield
        if report.failed and (call := getattr(report, "call", None)) is not None and call.excinfo is not None:
            fault = call.excinfo.value
            fault = fault.__cause__ or fault  # pytest wraps what an import raised
            where = list(traceback.extract_tb(fault.__traceback__))[-1:]
            report.ol_fault = {
                "type": type(fault).__name__,
                "message": str(fault)[:SHOWN_CHARACTERS],
                "line": where[0].lineno if where else None,
            }
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._select is not None:
            dropped = [item for item in items if _function_name(item) not in self._select]
            items[:] = [item for item in items if _function_name(item) in self._select]
            config.hook.pytest_deselected(items=dropped)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._collected.append(item.nodeid)
            function = getattr(item, "function", None)
            self._codes[item.nodeid] = (function, getattr(function, "__code__", None))
        self._send({"is": "collected", "tests": self._collected})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._compared = None
        self._current = {"outcome": "passed", "seconds": 0.0}
        self._send({"is": "started", "test": nodeid})

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        function = getattr(item, "obj", None)
        if self._brief and function is not None and is_hypothesis_test(function):
            known = getattr(function, SETTINGS)
            setattr(getattr(function, "__func__", function), SETTINGS, settings(known, phases=BRIEF_PHASES))

    def pytest_assertrepr_compare(self, op: str, left: object, right: object) -> None:
        self._compared = (op, left, right)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        now = self._current
        now["seconds"] += report.duration
        if report.skipped and now["outcome"] == "passed":
            by_mark = report.when == "setup" and item.get_closest_marker("model") is not None
            reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            now |= {"outcome": "skipped", "no_model": by_mark, "message": str(reason)}
        elif report.failed and now["outcome"] in ("passed", "skipped"):
            basic = BASIC.search(getattr(getattr(item, "function", None), "__doc__", None) or "") is not None
            brief = self._brief and (self._basic_told or not basic)
            self._brief, self._basic_told = True, self._basic_told or basic
            now["outcome"] = "failed" if report.when == "call" else "error"
            if call.excinfo is not None and brief:
                now |= {"type": type(call.excinfo.value).__name__, "message": _message(call.excinfo.value)}
            elif call.excinfo is not None:
                try:
                    now |= explain(call.excinfo.value, self._own, self._folder, self._compared)
                except Exception as fault:  # a value whose repr raises must not cost the verdict
                    kind = type(call.excinfo.value).__name__
                    now["message"] = f"{kind} (it could not be shown: {type(fault).__name__})"
            if item.path.suffix == ".ipynb":
                now["report"] = report.longreprtext[-4 * SHOWN_CHARACTERS :]
            printed = "".join(text for name, text in report.sections if "Captured std" in name)
            now["printed"] = printed[-SHOWN_CHARACTERS:]
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._done[nodeid] = self._current["outcome"]
        self._send({"is": "result", "test": nodeid, **self._current})


def _function_name(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name


def explain(
    fault: BaseException, own: Mapping[str, Path], folder: Path, compared: tuple[str, Any, Any] | None = None
) -> dict[str, Any]:
    """A failure as plain data.

    type, message; test_line (file:line); call and given (the call of the learner's code and its arguments as text);
    expected, got and asserted (what was compared, as written); yours (file, line, function, text) when the exception
    came from the learner's own file; example (what Hypothesis found).
    """
    files = {str(path): name for name, path in own.items()}
    frames = list(_frames(fault.__traceback__))
    in_tests = [(frame, line) for frame, line in frames if _within(frame.f_code.co_filename, folder)]
    ours = [(frame, line) for frame, line in frames if frame.f_code.co_filename in files]
    out: dict[str, Any] = {"type": type(fault).__name__, "message": _message(fault)}
    if in_tests:
        frame, line = in_tests[-1]
        out["test_line"] = f"{Path(frame.f_code.co_filename).relative_to(folder)}:{line}"
    for frame, line in reversed(in_tests):
        if found := _call_at(frame, line, set(own)):
            out["call"], out["given"] = found
            break
    out |= _expected_and_got(fault, in_tests, set(own), compared)
    # The innermost frame of the learner's own code, unless the tests were called back from there and failed.
    if ours and (not in_tests or frames.index(ours[-1]) > frames.index(in_tests[-1])):
        frame, line = ours[-1]
        text = linecache.getline(frame.f_code.co_filename, line).strip()
        out["yours"] = {
            "module": files[frame.f_code.co_filename],
            "line": line,
            "function": frame.f_code.co_qualname,
            "text": text,
        }
        frame, _ = ours[0] if not in_tests else next(o for o in ours if frames.index(o) > frames.index(in_tests[-1]))
        entered = frame.f_code
        names = entered.co_varnames[: entered.co_argcount + entered.co_kwonlyargcount]
        out["call"] = f"{entered.co_qualname}({', '.join(name for name in names if name != 'self')})"
        out["given"] = [
            (name, shown(value))
            for name in names
            if name != "self" and (value := frame.f_locals.get(name)) is not None and not _empty(value)
        ]
    notes = getattr(fault, "__notes__", [])
    examples = [str(note) for note in notes if "alsifying example" in str(note)]
    if examples:
        out["example"] = examples[0][:SHOWN_CHARACTERS]
    return out


def _empty(value: Any) -> bool:
    return isinstance(value, tuple | str) and not value


def shown(value: Any) -> str:
    """A value as short text: arrays with their shape, long things cut."""
    try:
        if isinstance(value, np.ndarray) and value.ndim > 0:
            body = np.array2string(value, precision=6, separator=", ", threshold=60, edgeitems=4)
            text = body if value.size <= 12 else f"{body}  shape {value.shape}"
        elif isinstance(value, np.generic):
            text = repr(value.item())
        elif is_dataclass(value) and not isinstance(value, type):
            text = f"{type(value).__name__}({', '.join(_told(value))})"
        elif getattr(type(value), "__repr__", None) is object.__repr__:
            text = f"{type(value).__name__}({', '.join(f'{n}={_brief(v)}' for n, v in vars(value).items())})"
        else:
            text = repr(value)
    except Exception as fault:
        text = f"<a {type(value).__name__} whose repr raises {type(fault).__name__}>"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 4] + " ..."


def _told(value: Any) -> Iterator[str]:
    """The fields of a record that differ from their defaults."""
    for one in fields(value):
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        now = getattr(value, one.name)
        if now is not default and repr(now) != repr(default):
            yield f"{one.name}={_brief(now)}"


def _brief(value: Any) -> str:
    text = shown(value) if isinstance(value, str | int | float | list | tuple | dict | None) else "..."
    return text if len(text) <= 60 else "..."


def _message(fault: BaseException) -> str:
    try:
        return str(fault)[:SHOWN_CHARACTERS]
    except Exception:
        return ""


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    seen = 0
    while trace is not None and seen < 2000:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
        seen += 1


def _within(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder) and not Path(file).name.startswith("_")


# The line that failed, as a syntax tree.


def _function_tree(frame: FrameType) -> ast.AST | None:
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    first = frame.f_code.co_firstlineno
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and min([node.lineno, *(d.lineno for d in node.decorator_list)]) <= first <= node.lineno
    ]
    return around[0] if around else tree


def _statement(tree: ast.AST, line: int) -> ast.stmt | None:
    """The innermost simple statement, or the head of a compound one, that covers a line."""
    covering = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(covering, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def _call_at(frame: FrameType, line: int, own: set[str]) -> tuple[str, list[tuple[str, str]]] | None:
    """The call of the learner's code on a line, or the latest one before it whose result the line uses."""
    tree = _function_tree(frame)
    statement = tree and _statement(tree, line)
    if tree is None or statement is None:
        return None
    call = _own_call(statement, frame, own)
    if call is None:
        used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        earlier = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and node.lineno < line
            and used & {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        ]
        for assignment in sorted(earlier, key=lambda node: -node.lineno):
            if call := _own_call(assignment, frame, own):
                break
    if call is None:
        return None
    given: list[tuple[str, str]] = []
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        for node in ast.walk(argument):
            if isinstance(node, ast.Name) and node.id not in dict(given):
                value = _lookup(frame, node.id)
                if value is not None and not callable(value):
                    given.append((node.id, shown(value)))
    return ast.unparse(call), given


def _own_call(node: ast.AST, frame: FrameType, own: set[str]) -> ast.Call | None:
    """The first call, in reading order, of a function, class or method that comes from the learner's modules."""
    calls = [found for found in ast.walk(node) if isinstance(found, ast.Call)]
    for call in sorted(calls, key=lambda found: (found.lineno, found.col_offset)):
        root = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Call):
            root = root.func
        if isinstance(root, ast.Name):
            thing = _lookup(frame, root.id)
            source = thing if hasattr(thing, "__module__") and callable(thing) else type(thing)
            if getattr(source, "__module__", None) in own:
                return call
    return None


def _lookup(frame: FrameType, name: str) -> Any:
    return frame.f_locals.get(name, frame.f_globals.get(name))


def _expected_and_got(
    fault: BaseException,
    in_tests: list[tuple[FrameType, int]],
    own: set[str],
    compared: tuple[str, Any, Any] | None,
) -> dict[str, Any]:
    """What an assertion wanted and what it met, from pytest's comparison or from the assertion's own words."""
    if isinstance(fault, pytest.fail.Exception) and "DID NOT RAISE" in str(fault):
        wanted = str(fault).partition("DID NOT RAISE")[2].strip().strip("<>").replace("class ", "").strip("'")
        return {"expected": f"a {wanted}", "got": "no error"}
    if not isinstance(fault, AssertionError) or not in_tests:
        return {}
    frame, line = in_tests[-1]
    tree = _function_tree(frame)
    statement = tree and _statement(tree, line)
    if not isinstance(statement, ast.Assert):
        return {}
    if compared is not None and not statement.msg and not isinstance(statement.test, ast.Call):
        op, left, right = compared
        swap = False
        for node in ast.walk(statement.test):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                swap = _own_call(node.comparators[0], frame, own) is not None and (
                    _own_call(node.left, frame, own) is None
                )
                break
        if swap:
            left, right = right, left
        relation = {"==": "", "!=": "anything but ", "in": "one of ", "is": ""}.get(op, f"something {op} ")
        asserted = ast.unparse(statement.test)[:SHOWN_CHARACTERS]
        return {"expected": relation + shown(right), "got": shown(left), "asserted": asserted}
    return {"claim_line": ast.unparse(statement.test)[:SHOWN_CHARACTERS]}
