"""Planted bugs: small named edits of the reference, each with the misconception behind it.

A learner's tests are graded by how many of them they catch, and the course's own tests are held to catch them all. The
edits are data (one file a module, beside this one) and are never shown before they are caught: what a learner may see
of a missed one is its pitfall number and the public name that it concerns. The method is that of Wrenn, Krishnamurthi
and Fisler, "Who Tests the Testers?" (ICER 2018).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ol import course

FOLDER = Path(__file__).parent


class StaleEdit(ValueError):
    """An edit whose text no longer stands exactly once in the reference."""


@dataclass(frozen=True)
class Edit:
    """One exact replacement in a file of the reference."""

    file: str  # relative to the course, such as "tinyllm/infer/spec.py"
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """One thing that somebody got wrong, planted in the reference."""

    id: str
    module: str
    pitfall: int | None  # its number in the module's table of pitfalls, where the table names it
    about: str  # the public name whose behaviour is wrong
    misconception: str
    tests: tuple[str, ...]  # course tests that must catch it
    edits: tuple[Edit, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it changes, each once; not always files of its own module."""
        return tuple(dict.fromkeys(edit.file for edit in self.edits))


@dataclass(frozen=True)
class Pitfall:
    """One row of a module's table of pitfalls."""

    number: int
    test: str  # the course test that the table names
    bugs: tuple[str, ...]


def bugs_of(module_id: str) -> tuple[Bug, ...]:
    """The planted bugs of a module, in the order of its file; none for a module without one."""
    return tuple(_bug(module_id, row) for row in _table(module_id).get("bug", []))


def pitfalls_of(module_id: str) -> tuple[Pitfall, ...]:
    """The module's table of pitfalls, by number; empty for a module that numbers none."""
    rows = _table(module_id).get("pitfall", [])
    return tuple(Pitfall(row["number"], row["test"], tuple(row["bugs"])) for row in rows)


def plant(bug: Bug, root: Path = course.ROOT) -> dict[str, str]:
    """The whole text of each file that `bug` changes, with the bug in it. StaleEdit where an edit no longer fits."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        text = texts.get(edit.file) or (root / edit.file).read_text(encoding="utf-8")
        if (found := text.count(edit.old)) != 1:
            first = edit.old.strip().partition("\n")[0]
            raise StaleEdit(
                f"bug {bug.id} edits the line {first!r} of {edit.file}, which stands there {found} times; "
                "it must stand there once, so the edit has to be written anew."
            )
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def _table(module_id: str) -> dict[str, Any]:
    path = FOLDER / f"{course.module(module_id).id}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _bug(module_id: str, row: dict[str, Any]) -> Bug:
    edits = row.get("edits") or [{name: row[name] for name in ("file", "old", "new")}]
    return Bug(
        id=row["id"],
        module=course.module(module_id).id,
        pitfall=row.get("pitfall"),
        about=row["about"],
        misconception=row["misconception"],
        tests=tuple(row["tests"]),
        edits=tuple(Edit(**edit) for edit in edits),
    )
