"""Rules of the house that a linter does not know: names that say something, types and docstrings, nothing local."""

import ast
import re
from collections.abc import Iterator

from _source import ROOT, committed_files, modules

EMPTY_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "misc", "common", "base_utils", "lib"}
# Each pattern is in two pieces so that this file does not match it.
NOT_OURS = {
    "a package registry's host": r"pypi" r"\.org|python" r"hosted\.org|npm" r"js\.|crates" r"\.io|proxy\.go" r"lang",
    "a path of one machine": r"(?<![\w.~*/-])/(?:root|home|Users|work|tmp|opt)" r"/\w|[A-Z]:\\" r"Users",
}


def test_no_module_has_a_name_that_says_nothing() -> None:
    """A reader finds a line's home from its name, so a name must be about something.

    KIND: unit.
    """
    python = [path for path in committed_files() if path.suffix == ".py"]
    assert [path for path in python if path.stem.strip("_") in EMPTY_NAMES] == []


def test_nothing_in_the_repository_names_a_registry_or_a_machine() -> None:
    """A clone must work with whatever index its user has, in whatever folder.

    KIND: property.
    """
    found = []
    for path in committed_files():
        if path.name == ".gitignore":  # its patterns begin with a slash
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or an array
        for what, pattern in NOT_OURS.items():
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line} has {what}: {match[0]}")
    assert not found, "\n".join(found)


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Functions and classes that others may use: those of the module and those of its public classes."""
    inside: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    while inside:
        prefix, node = inside.pop()
        for child in node.body:
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if child.name.startswith(("_", "pytest_")):  # a hook's name and meaning are pytest's
                continue
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                inside.append((f"{prefix}{child.name}.", child))


def shortcomings(name: str, tree: ast.Module) -> list[str]:
    """What is missing in a module: its docstring, and a docstring and types for each public definition."""
    found = [] if ast.get_docstring(tree) else [f"{name}: the module has no docstring"]
    for called, node in public_definitions(tree):
        if not ast.get_docstring(node):
            found.append(f"{name}: {called} has no docstring")
        if isinstance(node, ast.ClassDef):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [extra for extra in (node.args.vararg, node.args.kwarg) if extra]
        untyped = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
        if untyped or node.returns is None:
            found.append(f"{name}: {called} lacks types: {', '.join(untyped) or 'what it returns'}")
    return found


def test_everything_public_has_types_and_a_docstring() -> None:
    """The package is read as a book: each public name says what it does, in which shapes, and when it refuses.

    KIND: property.
    """
    trees = modules()
    for folder in ("bench", "book", "ol"):
        for path in sorted((ROOT / folder).glob("*.py")):
            trees[f"{folder}/{path.name}"] = ast.parse(path.read_text(encoding="utf-8"))
    found = [missing for name, tree in trees.items() for missing in shortcomings(name, tree)]
    assert not found, "\n".join(found)


def test_what_lacks_types_or_a_docstring_is_found() -> None:
    """The check above must see methods, keyword arguments and missing return types.

    KIND: boundary.
    """
    source = '"""m"""\nclass C:\n    """c"""\n    def f(self, *, x):\n        """f"""\ndef g() -> int:\n    return 1\n'
    assert shortcomings("m", ast.parse(source)) == ["m: g has no docstring", "m: C.f lacks types: x"]
    assert shortcomings("m", ast.parse("def _private(x):\n    return x")) == ["m: the module has no docstring"]
