"""`ol.check(...)` in a cell: the course's tests against functions and classes of this very notebook.

What was handed over takes the place of the reference's names while the tests that concern it run, in this process, with
nothing contained: the code already runs here. Afterwards everything is as before, and nothing is remembered; `ol check`
in a terminal gives the verdict that counts.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import html
import importlib
import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ol.catalogue import TestInfo, find, tests_of
from ol.check import explanation, results_of
from ol.course import ROOT, Module, dotted, module, reference
from ol.sandbox import TestOutcome, test_outcome
from ol.verdict import TestResult


@dataclass(frozen=True)
class Table:
    """What the tests said, one row a test: a table in a notebook, else text. True when all pass."""

    module: str
    names: tuple[str, ...]
    tests: tuple[TestResult, ...]  # up to the first that fails
    concerned: int  # how many tests concern these names
    explanation: str  # of the first failure; "" when there is none

    def __bool__(self) -> bool:
        return sum(test.passed for test in self.tests) == self.concerned > 0

    @property
    def headline(self) -> str:
        """One line: what was handed over and how many tests pass."""
        passed = sum(test.passed for test in self.tests)
        stop = "" if self else ", up to the first that does not"
        return f"{self.module}, {', '.join(self.names)}: {passed} of {self.concerned} tests pass{stop}"

    def __repr__(self) -> str:
        rows = [f"  {'pass' if test.passed else 'FAIL'}  {test.name}" for test in self.tests]
        return "\n".join([self.headline, *rows, *(["", self.explanation] if self.explanation else [])])

    def _repr_html_(self) -> str:
        mark = {True: ("#00695c", "pass"), False: ("#b00020", "FAIL")}
        rows = "".join(
            f'<tr><td style="color:{mark[test.passed][0]};text-align:left"><b>{mark[test.passed][1]}</b></td>'
            f'<td style="text-align:left"><code>{html.escape(test.name)}</code></td></tr>'
            for test in self.tests
        )
        more = f"<pre>{html.escape(self.explanation)}</pre>" if self.explanation else ""
        return f"<table><caption>{html.escape(self.headline)}</caption>{rows}</table>{more}"


def check(module_id: str, only: str = "", **handed_over: Any) -> Table:
    """Run the tests of a module that concern what was handed over, as in check("L8.6", verify_draft=verify_draft).

    A test concerns it when every name of the module in its body was handed over. `only`: names of tests, with spaces
    between, of which just these run. ValueError when nothing was handed over, for a name that the module does not have,
    for a test that is not there, and when no test concerns these names alone.
    """
    chosen = module(module_id)
    homes = _homes(chosen, handed_over)
    said = _said(chosen)
    infos = [info for info in tests_of(chosen) if _concerns(info, said[info.name], set(handed_over))]
    if only:
        wanted = [find(tests_of(chosen), name).name for name in only.split()]
        infos = [info for info in infos if info.name in wanted]
    if not infos:
        raise ValueError(f"no test of {chosen.id} is about {' and '.join(handed_over)} alone; `ol tests` lists them.")
    records: list[dict[str, Any]] = []
    with _standing_in(homes, handed_over):
        _run(infos, handed_over, records)
    outcomes = [test_outcome(record) for record in records if record["is"] == "result"]
    uncollected = [record for record in records if record["is"] == "uncollected"]
    if uncollected:
        raise RuntimeError(f"the course's tests cannot be run here: {uncollected[0].get('text')}")
    return _table(chosen, tuple(handed_over), infos, outcomes)


def _table(chosen: Module, names: tuple[str, ...], infos: list[TestInfo], outcomes: list[TestOutcome]) -> Table:
    found = [result for result in results_of(infos, outcomes) if result.outcome != "skipped"]
    results = [result for result in found if result.outcome != "not run"]
    failed = next((result for result in results if result.outcome in ("failed", "error")), None)
    said = ""
    if failed is not None:
        said = explanation(chosen, next(info for info in infos if info.name == failed.name), failed)
    elif len(results) < len(found):
        said = "It was stopped before every test had run."
    return Table(chosen.id, names, tuple(results), len(found), said)


def _homes(chosen: Module, handed_over: Mapping[str, Any]) -> dict[str, str]:
    """In which module of the package each name is at home."""
    homes = {}
    for rel in chosen.files:
        for node in ast.parse(reference(rel).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name] = dotted(rel)
    if not handed_over:
        example = "verify_draft" if "verify_draft" in homes else next(iter(homes), "f")
        raise ValueError(f'hand something over, as in ol.check("{chosen.id}", {example}={example}).')
    for name in handed_over:
        if name not in homes:
            near = difflib.get_close_matches(name, homes, n=1)
            known = f"did you mean {near[0]}?" if near else f"it has {', '.join(homes)}."
            raise ValueError(f"{chosen.id} has no {name}; {known}")
    return {name: homes[name] for name in handed_over}


def _said(chosen: Module) -> dict[str, set[str]]:
    """The names in the body of each test function of the module."""
    trees = [ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in {info.file for info in tests_of(chosen)}]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {f.name: {node.id for node in ast.walk(f) if isinstance(node, ast.Name)} for f in functions}


def _concerns(info: TestInfo, said: set[str], names: set[str]) -> bool:
    """Whether the test is about these names: its own body names some of them, and no other of the module's."""
    about = said & set(info.uses) or set(info.uses)
    return bool(about) and about <= names


@contextlib.contextmanager
def _standing_in(homes: Mapping[str, str], handed_over: Mapping[str, Any]) -> Iterator[None]:
    """The handed-over things under the reference's names; afterwards the reference's are back."""
    before = []
    try:
        for name, home in homes.items():
            there = importlib.import_module(home)
            before.append((there, name, vars(there).get(name)))
            setattr(there, name, handed_over[name])
        yield
    finally:
        for there, name, thing in before:
            setattr(there, name, thing)


def _run(infos: list[TestInfo], handed_over: Mapping[str, Any], records: list[dict[str, Any]]) -> None:
    """Run the tests with pytest in this process; what it prints is dropped, what it finds comes as records."""
    import pytest

    from ol.explain import Reporter

    # A function defined in a cell says that it comes from __main__; each cell is a file of its own.
    own = {}
    for i, thing in enumerate(handed_over.values()):
        for function in (thing, *vars(thing).values()) if isinstance(thing, type) else (thing,):
            if code := getattr(function, "__code__", None):
                own[thing.__module__ if i == 0 else f"{thing.__module__}#{i}"] = Path(code.co_filename)
    own = own or dict.fromkeys((getattr(thing, "__module__", "") for thing in handed_over.values()), Path())
    select = [info.name for info in infos]
    files = list(dict.fromkeys(str(ROOT / info.file) for info in infos))
    options = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", "-p", "no:terminal", "-p", "no:cacheprovider"]
    # Plugins that happen to be installed take seconds to load, and the tests need none.
    options += ["-o", "addopts=--import-mode=importlib", "--maxfail=1", "--disable-plugin-autoload"]
    quiet = io.StringIO()
    with _tests_imported_anew(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        pytest.main([*options, *files], plugins=[Reporter(records.append, select, own, ROOT / "tests")])


@contextlib.contextmanager
def _tests_imported_anew() -> Iterator[None]:
    """No test file that was imported before is found again, so each takes what is handed over now; then all is back."""

    def take_out() -> dict[str, Any]:
        files = {name: getattr(one, "__file__", None) for name, one in sys.modules.items()}
        ours = [name for name, file in files.items() if file and Path(file).is_relative_to(ROOT / "tests")]
        return {name: sys.modules.pop(name) for name in ours}

    before = take_out()
    try:
        yield
    finally:
        take_out()
        sys.modules.update(before)
