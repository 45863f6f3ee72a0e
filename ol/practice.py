"""Practice copies of the chapters: solutions emptied, what they print kept, links that still lead somewhere.

An emptied cell keeps the output that its solution gave, so `pytest --nbval` on the copy says whether yours gives the
same. One cell is added, which puts the learner's own files in the place of the reference. Everything else is the
chapter as it is in book/.
"""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

from ol.course import MODULES, ROOT, Module, dotted, notebook, reference
from ol.overlay import Overlay, active
from ol.stubs import make_stub
from ol.workspace import Workspace

SOLUTION = "solution"
FOLDED = "hide-cell"  # what the chapters add to a solution so that it is folded when the page is read
USE_MINE = """import ol

ol.use_mine()  # the files that you have written stand in for the reference; leave this out to run on the reference"""
EMPTY = "# Yours. When it prints what the solution prints (kept below, folded), this cell passes.\n"


def practice_copy(stored: dict[str, Any]) -> dict[str, Any]:
    """A notebook (as JSON holds it) with the code of its solution cells emptied and unfolded; outputs stay, folded.

    In front of its first code cell comes one that calls `use_mine`.
    """
    made = copy.deepcopy(stored)
    made["metadata"].pop("tinyllm", None)  # says with which text the chapter is paired, which a copy is not
    for cell in made["cells"]:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] == "code" and SOLUTION in tags:
            cell["source"] = [EMPTY]
            cell["metadata"]["tags"] = [tag for tag in tags if tag != FOLDED]
            cell["metadata"]["jupyter"] = {"outputs_hidden": True}  # they are the exercise's answer
    first = next(i for i, cell in enumerate(made["cells"]) if cell["cell_type"] == "code")
    added: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "use-mine",
        "metadata": {},
        "outputs": [],
    }
    made["cells"].insert(first, {**added, "source": USE_MINE.splitlines(keepends=True)})
    return made


def as_judged(mine: dict[str, Any], stored: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A practice copy with the chapter's outputs and tags, whatever was saved over them; the code cells that it lacks.

    JupyterLab saves what the learner's code printed in the place of what it should print. Cells are told apart by
    their ids. Solutions, and cells that are as they were handed out, have to print what the chapter does; one into
    which an answer was written, or that the learner added, only has to run.
    """
    made = copy.deepcopy(mine)
    wanted = {cell["id"]: cell for cell in practice_copy(stored)["cells"] if cell["cell_type"] == "code"}
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            known = wanted.pop(cell.get("id"), None)
            if known and (SOLUTION in known["metadata"].get("tags", []) or _source(cell) == _source(known)):
                cell["outputs"], cell["metadata"] = known["outputs"], known["metadata"]
            else:
                cell["outputs"], cell["metadata"] = [], {"tags": ["nbval-ignore-output"]}
    return made, [_source(cell) for cell in wanted.values()]


def unwritten(mine: dict[str, Any]) -> list[int]:
    """The code cells of a practice copy, from 1 on, that are as they were handed out: empty."""
    sources = [_source(cell).strip() for cell in mine["cells"] if cell["cell_type"] == "code"]
    return [number for number, source in enumerate(sources, 1) if source == EMPTY.strip()]


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def use_mine(workspace: Workspace | None = None) -> None:
    """Let the learner's files stand in for the reference in this process; a stub that nobody has touched does not.

    Where other files stand in already (a check of the chapters runs on copies) they stay. The files run as they are,
    with nothing contained.
    """
    if active():
        return
    folder = workspace or Workspace()
    mine: dict[str, Path] = {}
    for module in MODULES.values():
        stubs = {file: make_stub(reference(file).read_text(encoding="utf-8"), module.id) for file in module.files}
        if folder.started(module) and any(folder.file(file).read_bytes() != s.encode() for file, s in stubs.items()):
            mine |= {dotted(file): folder.file(file) for file in module.files}
    Overlay(mine).activate()


def write_practice(module: Module, workspace: Workspace) -> list[Path]:
    """Write the practice copies of a module's chapters that are not there yet; the paths written."""
    written = []
    for chapter in module.chapters:
        target = workspace.practice(chapter)
        made = practice_copy(json.loads(notebook(chapter).read_text(encoding="utf-8")))
        for cell in made["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = _relinked("".join(cell["source"]), target.parent).splitlines(keepends=True)
        if workspace.write_new(target, json.dumps(made, indent=1, ensure_ascii=False) + "\n"):
            written.append(target)
    return written


def _relinked(text: str, folder: Path) -> str:
    """Markdown whose links to files of the book lead there from `folder` too; chapters link to their copies."""

    def there(found: re.Match[str]) -> str:
        target = (ROOT / "book" / found[2]).resolve()
        if not target.exists() or target.suffix == ".ipynb":
            return found[0]
        return f"{found[1]}{Path(os.path.relpath(target, folder)).as_posix()}{found[3]}"

    return re.sub(r"(\]\()(?![a-z]+:|#)([^)#\s]+)([^)]*\))", there, text)
