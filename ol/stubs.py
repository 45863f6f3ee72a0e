"""Stubs and contracts, made from the reference's own text and syntax tree, so that they cannot drift from it.

A stub keeps what a caller can see (signatures, docstrings, constants, records, protocols) and leaves every body to
the learner. A contract is the same for readers and editors, as a `.pyi`. Private names vanish from both, unless what
stays mentions them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

# What a decorator of these does is part of the interface; any other is how the reference does its work.
KEPT_DECORATORS = {"property", "staticmethod", "classmethod", "dataclass", "contextmanager", "overload"}
WIDTH = 110

Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Piece(NamedTuple):
    """A statement that stays: its lines of text, and whether it is a definition."""

    lines: list[str]
    defines: bool


def make_stub(source: str, module_id: str) -> str:
    """The file that a learner starts from: everything visible, bodies that raise NotImplementedError.

    source: the reference's text. It imports, and ruff finds nothing in it. Names from other modules of the course that
    the bodies may want are listed in a comment.
    """
    return _Skeleton(source, module_id).text()


def make_contract(source: str) -> str:
    """The `.pyi` of the same file: signatures, docstrings, constants, and the attributes that objects show."""
    return _Skeleton(source, None).text()


class _Skeleton:
    """The visible part of a source file. `module_id` names who is to build it; None makes a contract."""

    def __init__(self, source: str, module_id: str | None) -> None:
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.module_id = module_id

    def text(self) -> str:
        """The whole file."""
        body = self._body(self.tree.body, "", self._mentioned())
        apart = "\n" * (2 if self.module_id is None else 3)  # what stands between definitions, as the formatter has it
        kept = ""
        for before, piece in zip([None, *body], body, strict=False):
            if before is not None:
                kept += apart if piece.defines or before.defines else "\n"
            kept += "\n".join(piece.lines)
        head = [self._docstring(self.tree, "")] if ast.get_docstring(self.tree) else []
        used = {node.id for node in ast.walk(ast.parse(kept)) if isinstance(node, ast.Name)}
        head += self._imports(used)
        if self.module_id is not None and (wanted := self._offered(used)):
            head.append(wanted)
        return "\n\n".join(head) + (apart if body and body[0].defines else "\n\n") + kept + "\n"

    # What stays.

    def _mentioned(self) -> set[str]:
        """Private names at the top that something visible mentions, outside the bodies."""
        private = {name: node for node in self.tree.body for name in _defined(node) if name.startswith("_")}
        found: set[str] = set()
        open_nodes = [n for n in self.tree.body if any(not name.startswith("_") for name in _defined(n))]
        while open_nodes:
            for name in _surface_names(open_nodes.pop()):
                if name in private and name not in found:
                    found.add(name)
                    open_nodes.append(private[name])
        return found

    def _body(self, nodes: list[ast.stmt], owner: str, mentioned: set[str]) -> list[_Piece]:
        pieces: list[_Piece] = []
        heading: list[str] = []  # a comment that opens a section waits for the next thing that stays
        before = nodes[0].lineno - 1 if nodes else 0
        for node in nodes:
            start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            gap = self.lines[before : start - 1]
            own = _trailing_comment(gap)
            heading = [line for line in gap[: len(gap) - len(own)] if line.strip().startswith("#")] or heading
            before = node.end_lineno or node.lineno
            if isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node):
                continue
            names = _defined(node)
            if names and not any(_visible(name) or name in mentioned for name in names):
                continue
            lines = self._statement(node, owner)
            if heading:
                blank = (
                    [""]
                    if owner or self.module_id is None or not isinstance(node, Function | ast.ClassDef)
                    else ["", ""]
                )
                lines = [*heading, *blank, *own, *lines]
                heading = []
            else:
                lines = [*own, *lines]
            pieces.append(_Piece(lines, isinstance(node, Function | ast.ClassDef)))
        return pieces

    def _statement(self, node: ast.stmt, owner: str) -> list[str]:
        if isinstance(node, Function):
            return self._function(node, owner)
        if isinstance(node, ast.ClassDef):
            return self._class(node, owner)
        return self.lines[node.lineno - 1 : node.end_lineno]

    def _function(self, node: Function, owner: str) -> list[str]:
        indent = " " * node.col_offset
        lines = [f"{indent}@{ast.unparse(d)}" for d in node.decorator_list if _decorator(d) in KEPT_DECORATORS]
        lines += self.lines[node.lineno - 1 : _header_end(node, self.lines)]
        if ast.get_docstring(node):
            lines.append(self._docstring(node, indent + "    "))
        inner = indent + "    "
        if self.module_id is None or _is_ellipsis(node.body[-1]):
            return [*lines, f"{inner}..."]
        if node.name == "__init__" and (shown := _attributes(node)):
            lines.append(f"{inner}# Public attributes: {', '.join(shown)}.")
        what = owner if node.name == "__init__" else f"{owner}.{node.name}" if owner else node.name
        message = f'"{self.module_id}: {what} is yours to build."'
        raising = f"{inner}raise NotImplementedError({message})"
        if len(raising) > WIDTH:
            raising = f"{inner}raise NotImplementedError(\n{inner}    {message}\n{inner})"
        return [*lines, raising]

    def _class(self, node: ast.ClassDef, owner: str) -> list[str]:
        indent = " " * node.col_offset
        lines = [f"{indent}@{ast.unparse(d)}" for d in node.decorator_list if _decorator(d) in KEPT_DECORATORS]
        lines += self.lines[node.lineno - 1 : _header_end(node, self.lines)]
        if ast.get_docstring(node):
            lines.append(self._docstring(node, indent + "    "))
        body = self._body(node.body, f"{owner}.{node.name}" if owner else node.name, set())
        if self.module_id is None:
            declared = {name for stays in node.body for name in _defined(stays)}
            shown = {name: kind for name, kind in _shown_fields(node).items() if name not in declared}
            if shown:
                body.insert(0, _Piece([f"{indent}    {name}: {kind}" for name, kind in shown.items()], False))
        for piece in body:
            lines += ["", *piece.lines] if piece.defines or lines[-1].strip().startswith('"""') else piece.lines
        return lines if len(lines) > 1 else [*lines, f"{indent}    ..."]

    def _docstring(self, node: ast.Module | Function | ast.ClassDef, indent: str) -> str:
        text = node.body[0]
        lines = self.lines[text.lineno - 1 : text.end_lineno]
        return "\n".join([indent + lines[0].strip(), *lines[1:]])

    # What is imported.

    def _import_nodes(self) -> list[ast.Import | ast.ImportFrom]:
        return [node for node in self.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    def _imports(self, used: set[str]) -> list[str]:
        """The imports that what stays needs, in the groups of the original."""
        groups: list[list[str]] = []
        last = 0
        for node in self._import_nodes():
            if not groups or any(not line.strip() for line in self.lines[last : node.lineno - 1]):
                groups.append([])
            last = node.end_lineno or node.lineno
            future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            names = [a for a in node.names if future or (a.asname or a.name.partition(".")[0]) in used]
            if names:
                groups[-1].append(_import_line(node, names, WIDTH))
        return ["\n".join(group) for group in groups if group]

    def _offered(self, used: set[str]) -> str:
        """A comment with the names of the course's other modules that the bodies of the reference use."""
        lines = []
        for node in self._import_nodes():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tinyllm."):
                names = [a for a in node.names if (a.asname or a.name) not in used]
                if names:
                    lines += _import_line(node, names, WIDTH - 4).splitlines()
        if not lines:
            return ""
        return "\n".join(["# The modules below this one offer, among others:", *(f"#   {line}" for line in lines)])


def _visible(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def _defined(node: ast.stmt) -> list[str]:
    """Names that a statement gives to its surroundings; none for imports and bare expressions."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _surface_names(node: ast.stmt) -> Iterator[str]:
    """Names that a statement mentions where a stub keeps it: not in the bodies of functions."""
    if isinstance(node, Function):
        kept: list[ast.AST] = [node.args, *filter(None, [node.returns])]
        kept += [d for d in node.decorator_list if _decorator(d) in KEPT_DECORATORS]
    elif isinstance(node, ast.ClassDef):
        kept = [*node.bases, *node.keywords, *node.decorator_list]
        for inner in node.body:
            if any(_visible(name) for name in _defined(inner)):
                yield from _surface_names(inner)
    else:
        kept = [node]
    for part in kept:
        yield from (name.id for name in ast.walk(part) if isinstance(name, ast.Name))


def _decorator(node: ast.expr) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is Ellipsis


def _header_end(node: Function | ast.ClassDef, lines: list[str]) -> int:
    """The number of lines up to and including the colon that opens the body."""
    first = node.body[0]
    if first.lineno == node.lineno:
        raise ValueError(f"{node.name}: a body on the line of its header cannot be taken out; put it on its own line.")
    end = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", ()))]) - 1
    while not lines[end - 1].split("#")[0].rstrip().endswith(":"):
        end -= 1
    return end


def _trailing_comment(gap: list[str]) -> list[str]:
    """The comment that stands directly above a statement."""
    n = len(gap)
    while n > 0 and gap[n - 1].strip().startswith("#"):
        n -= 1
    return gap[n:]


def _attributes(init: Function) -> list[str]:
    """Public attributes that a method sets on self, in order."""
    return list(_fields_set_in(init))


def _shown_fields(node: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for method in node.body:
        if isinstance(method, Function):
            for name, kind in _fields_set_in(method).items():
                found.setdefault(name, kind)
    return found


def _fields_set_in(method: Function) -> dict[str, str]:
    """Public attributes that a method sets on self, and their types as far as the text says them."""
    arguments = {a.arg: ast.unparse(a.annotation) for a in method.args.args if a.annotation is not None}
    found: dict[str, str] = {}

    def note(target: ast.expr, value: ast.expr | None, kind: str | None) -> None:
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else [None] * len(target.elts)
            for one, its in zip(target.elts, values, strict=False):
                note(one, its, kind)
        elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and _visible(target.attr):
            known = arguments.get(value.id) if isinstance(value, ast.Name) else None
            found.setdefault(target.attr, kind or known or "object")

    for node in ast.walk(method):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                note(target, node.value, None)
        elif isinstance(node, ast.AnnAssign):
            note(node.target, node.value, ast.unparse(node.annotation))
    return found


def _import_line(node: ast.Import | ast.ImportFrom, names: list[ast.alias], width: int) -> str:
    """An import of some of a statement's names, as the formatter writes it."""
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(names))
    line = ast.unparse(ast.ImportFrom(node.module, names, node.level))
    if len(line) <= width:
        return line
    head = ast.unparse(ast.ImportFrom(node.module, [ast.alias("_")], node.level)).removesuffix("_")
    return "\n".join([f"{head}(", *(f"    {ast.unparse(name)}," for name in names), ")"])
