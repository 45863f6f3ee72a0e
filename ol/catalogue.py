"""The catalogue of a module's tests, read from the tests themselves: name, kind, claim, reason, pitfalls.

A course test's name is its claim; its docstring says why the claim matters and ends with a line such as
`KIND: unit, smoke. Pitfalls: 4, 7.`. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from ol.course import ROOT, Module, dotted, tests_folder

KINDS = ("unit", "smoke", "boundary", "property", "differential", "statistical")
_LAST_LINE = re.compile(r"^KIND: (?P<kinds>[a-z, ]+)\.(?: Pitfalls: (?P<pitfalls>[\d, ]+)\.)?$")


@dataclass(frozen=True)
class TestInfo:
    """One course test, as its own text describes it."""

    __test__ = False  # pytest: this is about tests and is none

    name: str
    file: str  # relative to the course, such as "tests/L8.6/test_spec.py"
    line: int
    kinds: tuple[str, ...]
    claim: str  # the name as a sentence
    why: str  # the first paragraph: why it matters
    detail: str  # the paragraphs after it, "" where there are none
    pitfalls: tuple[int, ...]
    uses: tuple[str, ...]  # public names of the module's files that the test mentions


def tests_of(module: Module) -> list[TestInfo]:
    """Every test of the module, in the order of its files. ValueError for one that does not say its KIND."""
    return [info for path in _files(module) for info in _read(path, module)]


def find(tests: list[TestInfo], name: str) -> TestInfo:
    """The test of that name; parameters in brackets and the file in front are ignored. ValueError for none."""
    bare = name.rpartition("::")[2].partition("[")[0].strip()
    for info in tests:
        if info.name in (bare, f"test_{bare}"):
            return info
    raise ValueError(f"there is no test {name!r}; `ol tests` lists them.")


def _files(module: Module) -> list[Path]:
    return sorted(tests_folder(module).glob("test_*.py"), key=lambda path: (path.name != _main_file(module), path.name))


def _main_file(module: Module) -> str:
    """The test file that is named like a file of the module comes first: it holds the hand examples."""
    return f"test_{Path(module.files[-1]).stem}.py" if module.files else ""


def _read(path: Path, module: Module) -> list[TestInfo]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    ours = _names_of(tree, module)
    shared = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    file = path.relative_to(ROOT).as_posix()
    return [
        _describe(node, file, ours, shared)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def _describe(
    node: ast.FunctionDef, file: str, ours: set[str], shared: dict[str, ast.FunctionDef | ast.ClassDef]
) -> TestInfo:
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    last = _LAST_LINE.match(paragraphs[-1].strip())
    if last is None or len(paragraphs) < 2:
        raise ValueError(f"{file}, line {node.lineno}: the docstring of {node.name} does not end with its KIND.")
    kinds = tuple(kind.strip() for kind in last["kinds"].split(","))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"{file}, line {node.lineno}: {node.name} has the KIND {unknown[0]!r}; there is none.")
    return TestInfo(
        name=node.name,
        file=file,
        line=node.lineno,
        kinds=kinds,
        claim=node.name.removeprefix("test_").replace("_", " ").capitalize(),
        why=" ".join(paragraphs[0].split()),
        detail="\n\n".join(" ".join(p.split()) for p in paragraphs[1:-1]),
        pitfalls=tuple(int(number) for number in re.findall(r"\d+", last["pitfalls"] or "")),
        uses=tuple(sorted(_mentioned(node, shared) & ours)),
    )


def _names_of(tree: ast.Module, module: Module) -> set[str]:
    """Names that a test file imports from the module's own files."""
    own = {dotted(file) for file in module.files}
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module in own
        for alias in node.names
    }


def _mentioned(node: ast.AST, shared: dict[str, ast.FunctionDef | ast.ClassDef]) -> set[str]:
    """Names in a test, and in what it calls of its own file."""
    names: set[str] = set()
    open_nodes: list[ast.AST] = [node]
    while open_nodes:
        for part in ast.walk(open_nodes.pop()):
            if isinstance(part, ast.Name) and part.id not in names:
                names.add(part.id)
                if part.id in shared:
                    open_nodes.append(shared[part.id])
    return names
