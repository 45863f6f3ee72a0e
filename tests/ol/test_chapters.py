"""`ol check --book`: practice notebooks judged with the learner's code underneath."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

import ol.chapters
from ol.check import check
from ol.course import module, reference
from ol.practice import EMPTY, USE_MINE
from ol.start import start
from ol.workspace import Workspace

SPEC = module("M07.1")
ASK = "from tinyllm.prob import sampling\nprint(sampling.WHOSE, sampling.sample_categorical([0.5, 0.5], 0.7))"
# Numba's threads ask for a lock between processes, which a contained kernel is not given: a cell must not show that.
PARALLEL = "import numba\nnumba.set_num_threads(1)\nprint('one thread')"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """M07.1 started and built, with a chapter of two cells in place of its own."""
    made = Workspace(tmp_path / "work")
    start(SPEC, made)
    code = reference(SPEC.files[0]).read_text(encoding="utf-8")
    made.file(SPEC.files[0]).write_text(code + "\nWHOSE = 'mine'\n", encoding="utf-8")
    monkeypatch.setattr("ol.chapters.notebook", lambda chapter: tmp_path / f"{chapter}.ipynb")
    write_chapters(made, [(ASK, "mine 1\n"), (PARALLEL, "one thread\n")])
    return made


def write_chapters(workspace: Workspace, cells: list[tuple[str, str]]) -> None:
    """Each chapter of the module, and the learner's copy, become these cells, source and stored output."""
    made = [nbformat.v4.new_code_cell(USE_MINE, id="use-mine")]
    for count, (source, printed) in enumerate(cells, 1):
        outputs = [nbformat.v4.new_output("stream", text=printed)]
        tags = {"tags": ["solution"]} if source.startswith(EMPTY) else {}
        made.append(nbformat.v4.new_code_cell(source, execution_count=count, outputs=outputs, metadata=tags))
    for chapter in SPEC.chapters:
        notebook = nbformat.v4.new_notebook(
            cells=made, metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        )
        nbformat.write(notebook, workspace.practice(chapter))
        notebook.cells = made[1:]
        nbformat.write(notebook, ol.chapters.notebook(chapter))


def test_a_chapter_runs_on_the_learners_code_and_passes_when_every_cell_prints_what_it_should(
    workspace: Workspace,
) -> None:
    """The chapters are the course's other grade; contained as a run is, they must print what they print in JupyterLab.

    KIND: differential.
    """
    verdict = check(SPEC.id, workspace, ref_deps=True, book=True)
    cells = 3 * len(SPEC.chapters)
    assert (verdict.status, len(verdict.tests)) == ("pass", cells), verdict.text()
    assert f"All {cells} cells do what their chapter does" in verdict.text()


def test_the_first_cell_that_prints_something_else_is_named(workspace: Workspace) -> None:
    """And only a cell that differs: the one before it counts.

    KIND: unit.
    """
    write_chapters(workspace, [(PARALLEL, "one thread\n"), (ASK, "mine 0\n")])
    verdict = check(SPEC.id, workspace, ref_deps=True, book=True)
    assert verdict.status == "fail", verdict.text()
    said = verdict.text()
    assert f"{2 * len(SPEC.chapters)} of {3 * len(SPEC.chapters)} cells do what the chapter does" in said
    assert f"{SPEC.chapters[0]}, code cell 3" in said and "mine 0" in said and "mine 1" in said
    assert f"Next: run {workspace.practice(SPEC.chapters[0])}" in " ".join(said.split())
    assert verdict.next.endswith(f"ol check {SPEC.id} --book")
    assert all(len(line) <= 80 for line in said.replace(str(workspace.path), "work").splitlines())


def test_a_solution_that_is_not_written_yet_is_called_that(workspace: Workspace) -> None:
    """Not a difference in outputs: the learner would look for a fault.

    KIND: unit.
    """
    write_chapters(workspace, [(PARALLEL, "one thread\n"), (EMPTY, "mine 1\n"), (EMPTY + "print('2')", "2\n")])
    said = check(SPEC.id, workspace, ref_deps=True, book=True).text()
    assert f"{SPEC.chapters[0]}, code cell 3\n\n    Nothing is written in it yet" in said
    assert f"these cells for solutions: {SPEC.chapters[0]}, 3." in " ".join(said.split())


def test_what_a_run_has_saved_in_the_copy_does_not_count(workspace: Workspace) -> None:
    """JupyterLab saves the learner's outputs over the chapter's: a solution would be compared with itself.

    An answer that is written into a cell of the chapter, and a cell that the learner added, may print anything.

    KIND: unit.
    """
    write_chapters(workspace, [(EMPTY + ASK, "mine 1\n"), (PARALLEL, "one thread\n"), ("answer = None", "")])
    for chapter in SPEC.chapters:
        notebook = nbformat.read(workspace.practice(chapter), as_version=4)
        notebook.cells[1].source = "print('anything')"
        notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="anything\n")]
        notebook.cells[1].metadata.tags = ["nbval-ignore-output"]
        notebook.cells[2].outputs = []
        notebook.cells[3].source = "answer = 3\nprint('right')"
        notebook.cells.append(nbformat.v4.new_code_cell("print('a cell of my own')"))
        nbformat.write(notebook, workspace.practice(chapter))
    verdict = check(SPEC.id, workspace, ref_deps=True, book=True)
    assert f"{4 * len(SPEC.chapters)} of {5 * len(SPEC.chapters)} cells do" in verdict.text()
    assert f"{SPEC.chapters[0]}, code cell 2" in verdict.text()


def test_a_copy_that_lacks_cells_or_is_no_notebook_is_told_so(workspace: Workspace) -> None:
    """Without the cell there is nothing to fail.

    KIND: boundary.
    """
    path = workspace.practice(SPEC.chapters[0])
    notebook = nbformat.read(path, as_version=4)
    del notebook.cells[1]
    nbformat.write(notebook, path)
    verdict = check(SPEC.id, workspace, ref_deps=True, book=True)
    assert verdict.status == "fail" and f"{path} lacks the code cell that begins with `from tinyllm" in verdict.reason
    assert "ol start M07.1" in verdict.next and "your code stays" in verdict.next
    for text in ("{", "[]", '{"cells": 3}'):
        path.write_text(text, encoding="utf-8")
        verdict = check(SPEC.id, workspace, ref_deps=True, book=True)
        assert verdict.status == "fail" and "cannot be read as a notebook" in verdict.reason
