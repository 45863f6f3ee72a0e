"""Correct, different implementations of each module: what a learner's tests must accept.

A test that fails on one of these asks for more than the contract does (a private name, one way to word an error, one
way to feed a prompt) and so says nothing about a bug. Each is a whole file with every public name of the reference and
behaves as the contract says, to the bit; everything that the contract leaves open is done otherwise on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ol import course

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Alternative:
    """One correct implementation of a module; `files` are its files by the reference's, as "tinyllm/num/rng.py"."""

    name: str
    module: str
    files: dict[str, Path]


def alternatives_of(module_id: str) -> tuple[Alternative, ...]:
    """Every alternative implementation of a module, by name; none for a module without files."""
    module = course.module(module_id)
    folder = FOLDER / module.id.lower().replace(".", "_")
    found = []
    for way in sorted(folder.iterdir()) if folder.is_dir() else []:
        files = {file: way / Path(file).name for file in module.files if (way / Path(file).name).exists()}
        if files:
            found.append(Alternative(way.name, module.id, files))
    return tuple(found)
