"""Whether the code of a run has changed what judges it: pytest, the toys, the comparisons, the lent reference.

A `Seal` remembers, before the code is imported, everything in the judging modules that can be called, by identity and
functions also by their code; afterwards it names what is no longer the same. Lent modules of the reference, which are
imported together with the code, are held against their source instead. This finds tampering by assignment, not by
machine code.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
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
    """What the judging modules, and those named besides, hold now."""

    def __init__(self, also: list[str]) -> None:
        judges = {*JUDGES, *also}
        modules = [m for n, m in list(sys.modules.items()) if m is not None and n.partition(".")[0] in judges]
        held = {}
        for module in modules:
            for where, owner, name, thing in _things(module):
                held[where] = (owner, name, thing, _code(thing))

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
        source = Path(path).read_bytes()
        codes = _codes(compile(source, path, "exec", dont_inherit=True))
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                now = vars(module).get(node.name)
                function = getattr(now, "py_func", getattr(now, "__wrapped__", now))
                if getattr(function, "__code__", None) != codes[node.name]:
                    changed.append(f"{name}.{node.name}")
            elif isinstance(node, ast.ClassDef):
                held = vars(vars(module).get(node.name, object))
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.decorator_list:
                        code = getattr(held.get(inner.name), "__code__", None)
                        if code != codes[f"{node.name}.{inner.name}"]:
                            changed.append(f"{name}.{node.name}.{inner.name}")
    return changed


def _codes(code: CodeType) -> dict[str, CodeType]:
    """Every code object inside a module's, by qualified name."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname] = constant
            found |= _codes(constant)
    return found
