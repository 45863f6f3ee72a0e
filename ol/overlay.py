"""Overlay: inside one process, other files stand in for modules of the reference.

A finder at the front of Python's import path answers for the modules it was given and leaves every other name alone, so
`from tinyllm.infer.spec import verify_draft` reaches a learner's file from a test, from another module and from a
notebook alike, and no file of the course is touched. Which files: an `Overlay`, carried to a child process as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ol.workspace import Workspace

VARIABLE = "OL_OVERLAY"  # in a child's environment: an overlay as JSON


@dataclass(frozen=True)
class Overlay:
    """Module names, such as "tinyllm.infer.spec", and the files that stand in for them."""

    files: Mapping[str, Path] = field(default_factory=dict)

    def to_json(self) -> str:
        """The overlay as one line of JSON."""
        return json.dumps({name: str(path) for name, path in self.files.items()})

    @classmethod
    def from_json(cls, text: str) -> Overlay:
        """The overlay that `to_json` wrote."""
        return cls({name: Path(path) for name, path in json.loads(text).items()})

    def activate(self) -> None:
        """Put the files in front of the reference from now on, in this process.

        A module of the overlay that was imported before, and every module of the same package that may hold names of
        it, is forgotten, so the next import finds the new file.
        """
        deactivate()
        if self.files:
            _forget(self.files)
            sys.meta_path.insert(0, _Finder(dict(self.files)))


class _Finder(MetaPathFinder):
    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def active() -> dict[str, Path]:
    """The overlay of this process: module names and files; empty when there is none."""
    return {
        name: file for finder in sys.meta_path if isinstance(finder, _Finder) for name, file in finder.files.items()
    }


def deactivate() -> None:
    """Take the overlay of this process away; modules that came from it are forgotten."""
    _forget(active())
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


def _forget(names: Mapping[str, Path]) -> None:
    """Forget what was imported under these names, and all of their packages that could hold something of it."""
    if not any(name in sys.modules for name in names):
        return
    tops = {name.partition(".")[0] for name in names}
    for name in list(sys.modules):
        if name.partition(".")[0] in tops:
            del sys.modules[name]


def use(workspace: Workspace | None = None) -> list[str]:
    """In a notebook: let the learner's own files stand in for the reference from now on; returns their module names.

    Every module of the course that was started counts, passed or not. The files run in this process as they are, with
    nothing contained.
    """
    from ol.course import MODULES, dotted
    from ol.workspace import Workspace as Folder

    folder = workspace or Folder()
    files = {
        dotted(rel): folder.file(rel)
        for module in MODULES.values()
        if module.files and folder.started(module)
        for rel in module.files
    }
    Overlay(files).activate()
    return list(files)
