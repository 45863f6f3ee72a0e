"""The commands that `ol` tells one to type: always one that works as things are, lending what has not passed."""

from __future__ import annotations

from ol.course import Module, needed
from ol.workspace import Workspace


def lacking(module: Module, workspace: Workspace) -> list[Module]:
    """The needed modules that have not passed as they are now, in the order in which one builds them."""
    return [other for other in needed(module) if not workspace.passed(other)]


def command(verb: str, module: Module, workspace: Workspace, target: str = "") -> str:
    """What to type to `verb` ("check", "milestone") a module, with --ref-deps where a needed one has not passed.

    target: what the command names and its options, such as "MS-L8"; the module's id when empty.
    """
    return f"ol {verb} {target or module.id}{' --ref-deps' if lacking(module, workspace) else ''}"
