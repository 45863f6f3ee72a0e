"""Stubs and contracts: they show what a caller sees, and nothing of how the reference does it."""

import ast
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ol.course import MODULES, ROOT, dotted, reference
from ol.stubs import make_contract, make_stub

FILES = [(module.id, file) for module in MODULES.values() for file in module.files]


def source_of(file: str) -> str:
    return reference(file).read_text(encoding="utf-8")


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # dataclasses look their module up
    try:
        spec.loader.exec_module(made)
    finally:
        del sys.modules[name]
    return made


def public(module: ModuleType, name: str) -> dict[str, Any]:
    """Public functions and classes that a module defines itself."""
    return {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name and callable(value)
    }


@pytest.mark.parametrize(("module_id", "file"), FILES)
def test_a_stub_imports_and_has_the_signatures_of_the_reference(module_id: str, file: str, tmp_path: Path) -> None:
    """A learner begins with a file that works as far as it goes: names, parameters, defaults, docstrings.

    KIND: differential, smoke.
    """
    path = tmp_path / "stub.py"
    path.write_text(make_stub(source_of(file), module_id), encoding="utf-8")
    stub = public(loaded("stub", path), "stub")
    whole = public(importlib.import_module(dotted(file)), dotted(file))
    assert list(stub) == list(whole)
    for name, value in whole.items():
        assert inspect.getdoc(stub[name]) == inspect.getdoc(value), name
        if inspect.isclass(value):
            for method, ours in vars(value).items():
                if inspect.isfunction(ours) and not method.startswith("_"):
                    assert inspect.signature(getattr(stub[name], method)) == inspect.signature(ours), method
            assert str(inspect.signature(stub[name])) == str(inspect.signature(value)), name
        else:
            assert str(inspect.signature(stub[name])) == str(inspect.signature(value)), name


@pytest.mark.parametrize(("module_id", "file"), FILES)
def test_every_body_of_a_stub_raises_and_names_the_module(module_id: str, file: str) -> None:
    """Nothing of the solution may be left, and what is called too early says what to build.

    KIND: property.
    """
    tree = ast.parse(make_stub(source_of(file), module_id))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        body = function.body[1:] if ast.get_docstring(function) else function.body
        (only,) = body
        if isinstance(only, ast.Raise):
            text = ast.unparse(only)
            assert text.startswith("raise NotImplementedError('") and module_id in text
        else:
            assert ast.unparse(only) == "..."  # a protocol says what others do
    assert not [node.name for node in functions if node.name.startswith("_") and not node.name.startswith("__")]


@pytest.mark.parametrize(("module_id", "file"), FILES)
def test_constants_and_fields_of_records_stay(module_id: str, file: str) -> None:
    """Names such as PURPOSES or the fields of SamplingParams are the interface, not the work.

    KIND: property.
    """
    for made in (make_stub(source_of(file), module_id), make_contract(source_of(file))):
        kept = ast.unparse(ast.parse(made))
        for node in ast.parse(source_of(file)).body:
            if isinstance(node, ast.Assign) and not ast.unparse(node).startswith("_"):
                assert ast.unparse(node) in kept
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                fields = [ast.unparse(field) for field in node.body if isinstance(field, ast.AnnAssign)]
                assert all(field in kept for field in fields), node.name


def test_stubs_and_contracts_are_clean(tmp_path: Path) -> None:
    """The first thing a learner's editor says about the file should not be a complaint.

    KIND: unit.
    """
    for module_id, file in FILES:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make_stub(source_of(file), module_id), encoding="utf-8")
        path.with_suffix(".pyi").write_text(make_contract(source_of(file)), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("module_id", "file"), FILES)
def test_a_contract_holds_no_code(module_id: str, file: str) -> None:
    """It is what one reads: signatures and words, and the attributes that objects show.

    KIND: property.
    """
    tree = ast.parse(make_contract(source_of(file)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            assert [ast.unparse(statement) for statement in body] == ["..."]
    shown = {
        target.attr
        for node in ast.walk(ast.parse(source_of(file)))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
        if ast.unparse(target.value) == "self" and not target.attr.startswith("_")
    }
    declared = {ast.unparse(node.target) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)}
    assert shown <= declared


def test_private_names_go_unless_something_visible_mentions_them() -> None:
    """A private default or base class must stay, or the stub would not import; a private helper must not.

    KIND: boundary.
    """
    source = '''"""A module."""

import math
from functools import cache

_LIMIT = 3  # a default of something public
_TABLE = {1: 2}


class _Base:
    """What a public class is made from."""

    size: int = _LIMIT

    def go(self) -> int:
        return self._secret()

    def _secret(self) -> int:
        return 42


# A section.

# About the class.
class Thing(_Base):
    """Public."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self.limit, self._hidden = limit, math.pi


def _helper() -> int:
    return _TABLE[1]


@cache
def answer() -> int:
    """What it is."""
    return _helper()
'''
    stub = make_stub(source, "X1")
    assert "_LIMIT = 3" in stub and "class _Base" in stub
    for gone in ("_TABLE", "_secret", "_helper", "import math", "cache", "42", "_hidden"):
        assert gone not in stub, gone
    assert "# A section.\n" in stub and "# About the class.\nclass Thing(_Base):" in stub
    assert "# Public attributes: limit." in stub
    assert 'raise NotImplementedError("X1: Thing is yours to build.")' in stub
    assert 'raise NotImplementedError("X1: answer is yours to build.")' in stub
    namespace: dict[str, Any] = {}
    exec(compile(stub, "stub", "exec"), namespace)
    with pytest.raises(NotImplementedError, match="X1: answer"):
        namespace["answer"]()
    contract = make_contract(source)
    assert "limit: int" in contract and "raise" not in contract


def test_a_body_on_the_line_of_its_header_is_refused() -> None:
    """Better told to the author than a stub that gives the answer away.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match="own line"):
        make_stub("def answer() -> int: return 42\n", "X1")
