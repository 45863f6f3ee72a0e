"""Handing out a module: everything one needs is there, and nothing a learner wrote is ever replaced."""

import ast
import zipfile
from pathlib import Path

import pytest

from ol.course import MODULES, module
from ol.start import reset, start
from ol.workspace import Workspace

SPEC = module("L8.6")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


def test_start_writes_stub_contract_tests_folder_and_practice_copies(workspace: Workspace) -> None:
    """The four things that the chapter promises, where it says they are.

    KIND: unit, smoke.
    """
    handed = start(SPEC, workspace)
    names = [path.relative_to(workspace.path).as_posix() for path in handed.written]
    assert names[:3] == ["tinyllm/infer/spec.py", "tinyllm/infer/spec.pyi", "tests/l8-6-spec/test_mine.py"]
    assert names[3:] == [f"book/{chapter}.ipynb" for chapter in SPEC.chapters]
    assert handed.kept == []


def test_start_again_changes_nothing_and_says_what_it_kept(workspace: Workspace) -> None:
    """Typing it twice, or after a week of work, must be safe.

    KIND: property.
    """
    first = start(SPEC, workspace).written
    for path in first:
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    before = {path: path.read_bytes() for path in first}
    handed = start(SPEC, workspace)
    assert handed.written == [] and handed.kept == first
    assert {path: path.read_bytes() for path in first} == before


def test_start_after_one_file_was_lost_writes_that_one(workspace: Workspace) -> None:
    """A module of two files is half there when one was deleted.

    KIND: boundary.
    """
    two = module("L8.2")
    start(two, workspace)
    lost = workspace.file(two.files[0])
    lost.unlink()
    assert not workspace.started(two)
    assert start(two, workspace).written == [lost]
    assert workspace.started(two)


@pytest.mark.parametrize("module_id", [m.id for m in MODULES.values() if m.files])
def test_the_file_for_own_tests_holds_no_test(module_id: str, workspace: Workspace) -> None:
    """It says how, and gives no credit away; zero tests catch nothing.

    KIND: boundary.
    """
    one = module(module_id)
    start(one, workspace)
    tree = ast.parse((workspace.own_tests(one) / "test_mine.py").read_text(encoding="utf-8"))
    assert len(tree.body) == 1 and f"ol grade {module_id}" in (ast.get_docstring(tree) or "")


def test_reset_backs_up_and_keeps_own_tests_and_practice(workspace: Workspace) -> None:
    """A fresh start of one module must cost nothing else, and can be undone.

    KIND: unit, smoke.
    """
    start(SPEC, workspace)
    stub = workspace.file(SPEC.files[0]).read_text(encoding="utf-8")
    workspace.write(workspace.file(SPEC.files[0]), "my work\n")
    workspace.write(workspace.own_tests(SPEC) / "test_mine.py", "my tests\n")
    workspace.write(workspace.practice(SPEC.chapters[0]), "my answers\n")
    pack, fresh = reset(SPEC, workspace)
    assert workspace.file(SPEC.files[0]).read_text(encoding="utf-8") == stub
    assert workspace.file(SPEC.files[0]) in fresh
    assert (workspace.own_tests(SPEC) / "test_mine.py").read_text(encoding="utf-8") == "my tests\n"
    assert workspace.practice(SPEC.chapters[0]).read_text(encoding="utf-8") == "my answers\n"
    with zipfile.ZipFile(pack) as held:
        assert held.read("tinyllm/infer/spec.py") == b"my work\n"
    reset(SPEC, workspace, book=True)
    assert workspace.practice(SPEC.chapters[0]).read_text(encoding="utf-8") != "my answers\n"
