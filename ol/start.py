"""Handing out a module: its stub, its contract, a folder for the learner's tests, practice copies of its chapters.

Nothing that exists is ever replaced, except by `reset`, which backs up first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ol.course import Module, dotted, reference
from ol.practice import write_practice
from ol.stubs import make_contract, make_stub
from ol.workspace import Workspace


@dataclass
class HandedOut:
    """What was written and what was there already."""

    written: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)


def start(module: Module, workspace: Workspace) -> HandedOut:
    """Write whatever of the module is not there yet. WorkspaceError when the folder cannot be written."""
    out = HandedOut()
    with workspace.locked():
        for file in module.files:
            source = reference(file).read_text(encoding="utf-8")
            _hand_out(workspace, workspace.file(file), make_stub(source, module.id), out)
            _hand_out(workspace, workspace.contract(file), make_contract(source), out)
        if module.files:
            _hand_out(workspace, workspace.own_tests(module) / "test_mine.py", first_tests(module), out)
        fresh = write_practice(module, workspace)
        out.written += fresh
        out.kept += [path for chapter in module.chapters if (path := workspace.practice(chapter)) not in fresh]
    return out


def reset(module: Module, workspace: Workspace, book: bool = False) -> tuple[Path, list[Path]]:
    """Back up the whole folder, then write the module's stub anew, with `book` its practice copies too.

    Returns the backup and what was written. The learner's tests stay as they are.
    """
    pack = workspace.backup()
    fresh: list[Path] = []
    with workspace.locked():
        for file in module.files:
            source = reference(file).read_text(encoding="utf-8")
            workspace.write(workspace.file(file), make_stub(source, module.id))
            workspace.write(workspace.contract(file), make_contract(source))
            fresh += [workspace.file(file), workspace.contract(file)]
        if book:
            for chapter in module.chapters:
                workspace.practice(chapter).unlink(missing_ok=True)
            fresh += write_practice(module, workspace)
    with workspace.remember() as state:
        state.passed.pop(module.id, None)  # begun anew, not edited since it passed
    return pack, fresh


def _hand_out(workspace: Workspace, path: Path, text: str, out: HandedOut) -> None:
    (out.written if workspace.write_new(path, text) else out.kept).append(path)


def first_tests(module: Module) -> str:
    """The file in which a learner's own tests begin: how to write one, and none of them."""
    toys = (
        """
The toy models of the course are at hand: `from _toy import BagLM, Uniforms` (see tests/L8.6/_toy.py)."""
        if module.id.startswith("L8.")
        else ""
    )
    return f'''"""Your tests of {module.id}, {module.title}.

`ol grade {module.id}` says what share of the planted bugs they catch. They run against several correct
implementations, which they must accept, and against the reference with one bug at a time, which they should reject.
A test that fails a correct implementation voids the credit, so claim only what the contract says. Write functions
whose names begin with test_ and import what you test by its usual name:

    from {dotted(module.files[-1])} import ...
{toys}"""
'''
