"""Whether the code of a run has changed what judges it: pytest, the toys, the comparisons, the lent reference.

A `Seal` remembers, before the code is imported, everything in the judging modules that can be called, by identity and
functions also by their code; afterwards it names what is no longer the same. Lent modules of the reference, which are
imported together with the code, are held against their source instead. This finds tampering by assignment, not by
machine code.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

JUDGES = (
    *("pytest", "_pytest", "pluggy", "hypothesis", "numpy", "ol"),
    *("builtins", "math", "operator", "itertools", "fractions", "collections", "json", "hmac", "hashlib", "os", "time"),
)
# Names that Python or a judge changes by itself: the last result of an interactive shell, lazily filled places.
CHANGING = {"__warningregistry__", "__builtins__", "_", "__annotations__", "__doc__", "__abstractmethods__"}
METHODS = (FunctionType, classmethod, staticmethod, property)


class Seal:
    """What the judging modules, and those named in `also`, hold now; of modules in the seal `earlier`, what it says."""

    held: dict[str, tuple[Any, str, Any, CodeType | None]]  # by dotted name: owner, name, thing, its code
    modules: set[str]

    def __init__(self, also: Iterable[str] = (), earlier: Seal | None = None) -> None:
        judges = {*JUDGES, *also}
        modules = {n: m for n, m in list(sys.modules.items()) if m is not None and n.partition(".")[0] in judges}
        held = dict(earlier.held) if earlier else {}
        for name in modules.keys() - (earlier.modules if earlier else set()):
            for where, owner, attribute, thing in _things(modules[name]):
                held[where] = (owner, attribute, thing, _code(thing))
        self.held, self.modules = held, set(modules)

        def broken() -> list[str]:
            changed = []
            for where, (owner, name, thing, code) in held.items():
                now = vars(owner).get(name)
                if now is not thing or _code(now) is not code:
                    changed.append(where)
            return changed

        self.broken = broken


def _things(module: ModuleType) -> Iterator[tuple[str, Any, str, Any]]:
    """What can be called in a module, and the methods of its own classes: (dotted name, owner, name, thing)."""
    for name, thing in list(vars(module).items()):
        if name in CHANGING or isinstance(thing, ModuleType) or not callable(thing):
            continue
        yield f"{module.__name__}.{name}", module, name, thing
        if isinstance(thing, type) and thing.__module__ == module.__name__:
            for inner, function in list(vars(thing).items()):
                if inner not in CHANGING and isinstance(function, METHODS):
                    yield f"{module.__name__}.{name}.{inner}", thing, inner, function


def _code(thing: Any) -> CodeType | None:
    return getattr(getattr(thing, "__func__", thing), "__code__", None) if isinstance(thing, METHODS) else None


def changed_reference(root: Path, own: Mapping[str, Path]) -> list[str]:
    """Functions of the imported reference modules that are not what their source says. `own`: the overlay."""
    changed = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "tinyllm" or name in own or module is None:
            continue
        path = getattr(module, "__file__", None)
        if path is None or not Path(path).is_relative_to(root / "tinyllm"):
            changed.append(name)
            continue
        for function, inner, code in _said(path):
            now = vars(module).get(function)
            if inner:
                held = vars(now if now is not None else object).get(inner)
                if getattr(held, "__code__", None) != code:
                    changed.append(f"{name}.{function}.{inner}")
            else:
                plain = getattr(now, "py_func", getattr(now, "__wrapped__", now))
                if getattr(plain, "__code__", None) != code:
                    changed.append(f"{name}.{function}")
    return changed


def remember_reference(root: Path) -> None:
    """Read and compile now what `changed_reference` will compare the modules that are imported with."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.partition(".")[0] == "tinyllm" and path and Path(path).is_relative_to(root / "tinyllm"):
            _said(path)


@cache
def _said(path: str) -> tuple[tuple[str, str, CodeType], ...]:
    """The functions of a source file, ("f", "", code), and its classes' methods, ("C", "f", code)."""
    source = Path(path).read_bytes()
    codes = _codes(compile(source, path, "exec", dont_inherit=True))
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, "", codes[node.name]))
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and not inner.decorator_list:
                    found.append((node.name, inner.name, codes[f"{node.name}.{inner.name}"]))
    return tuple(found)


def _codes(code: CodeType) -> dict[str, CodeType]:
    """Every code object inside a module's, by qualified name."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname] = constant
            found |= _codes(constant)
    return found
