"""Practice copies: the chapter as it is, without its solutions, and gradable against the outputs that stay."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from ol.course import MODULES, ROOT, module, notebook
from ol.practice import practice_copy, write_practice
from ol.start import start
from ol.workspace import Workspace

SPEC = module("L8.6")
CHAPTERS = list(dict.fromkeys(chapter for one in MODULES.values() for chapter in one.chapters))


def stored(chapter: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(notebook(chapter).read_text(encoding="utf-8"))
    return found


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_solutions_are_emptied_and_everything_else_is_as_it_was(chapter: str) -> None:
    """The copy must not give the answer away, and must still be the chapter.

    KIND: property, smoke.
    """
    whole, copy = stored(chapter), practice_copy(stored(chapter))
    nbformat.validate(nbformat.from_dict(copy))
    added = next(i for i, cell in enumerate(copy["cells"]) if cell["cell_type"] == "code")
    assert "ol.use_mine()" in source(copy["cells"].pop(added))
    emptied = 0
    for ours, theirs in zip(copy["cells"], whole["cells"], strict=True):
        assert ours.get("outputs") == theirs.get("outputs")
        if "solution" in theirs["metadata"].get("tags", []):
            emptied += 1
            assert all(line.startswith("#") for line in source(ours).splitlines())
            assert "solution" in ours["metadata"]["tags"] and "hide-cell" not in ours["metadata"]["tags"]
            assert ours["metadata"]["jupyter"] == {"outputs_hidden": True}, "open to write in, its answer folded"
        else:
            assert ours == theirs
    assert emptied >= 1


def test_no_line_of_a_solution_is_anywhere_in_the_copy() -> None:
    """Not in the metadata either.

    KIND: property.
    """
    for chapter in CHAPTERS:
        whole, copied = stored(chapter), json.dumps(practice_copy(stored(chapter)), ensure_ascii=False)
        elsewhere = {
            line.strip()
            for cell in whole["cells"]
            if "solution" not in cell["metadata"].get("tags", [])
            for line in source(cell).splitlines()
        }
        for cell in whole["cells"]:
            if "solution" in cell["metadata"].get("tags", []):
                for line in source(cell).splitlines():
                    own = line.strip()
                    if len(own) > 12 and own not in elsewhere and own != "# Solution":
                        assert json.dumps(own, ensure_ascii=False)[1:-1] not in copied, f"{chapter}: {own}"


def test_links_still_lead_somewhere(tmp_path: Path) -> None:
    """Pictures and files beside the book are not copied, so links to them are turned there.

    KIND: property.
    """
    workspace = Workspace(tmp_path / "work")
    written = write_practice(SPEC, workspace)
    assert [path.name for path in written] == [f"{chapter}.ipynb" for chapter in SPEC.chapters]
    for path in written:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for link in re.findall(r"\]\(([^)#\s]+)", source(cell)) if cell["cell_type"] == "markdown" else []:
                if "://" not in link and not link.endswith(".ipynb"):
                    assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_a_copy_that_is_there_is_kept(tmp_path: Path) -> None:
    """It holds the learner's answers.

    KIND: boundary.
    """
    workspace = Workspace(tmp_path / "work")
    write_practice(SPEC, workspace)
    first = workspace.practice(SPEC.chapters[0])
    first.write_text("mine", encoding="utf-8")
    workspace.practice(SPEC.chapters[1]).unlink()
    assert write_practice(SPEC, workspace) == [workspace.practice(SPEC.chapters[1])]
    assert first.read_text(encoding="utf-8") == "mine"
    assert ROOT not in first.parents


def in_a_fresh_process(program: str, home: Path) -> str:
    environment = {**os.environ, "OL_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8", env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_was_written_stands_in_and_an_untouched_stub_does_not(tmp_path: Path) -> None:
    """A chapter can be worked before its module is built, and runs on the learner's code once there is some.

    KIND: unit.
    """
    workspace = Workspace(tmp_path / "work")
    program = "import ol; ol.use_mine(); from tinyllm.infer import spec; print(spec.__file__, hasattr(spec, 'MINE'))"
    assert in_a_fresh_process(program, workspace.path).endswith("False"), "nothing was started"
    start(SPEC, workspace)
    assert str(ROOT) in in_a_fresh_process(program, workspace.path)
    file = workspace.file(SPEC.files[0])
    file.write_text(file.read_text(encoding="utf-8") + "\nMINE = True\n", encoding="utf-8")
    assert in_a_fresh_process(program, workspace.path) == f"{file} True"


def test_solutions_put_back_grade_as_right_and_left_out_as_wrong(tmp_path: Path) -> None:
    """The copy is there to be graded by `pytest --nbval`, so it must pass when solved and fail when not.

    A chapter of two cells: its solution prints what the first cell made.

    KIND: differential.
    """
    whole = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("Your turn"),
            nbformat.v4.new_code_cell("x = 6"),
            nbformat.v4.new_code_cell(
                "# Solution\nprint(7 * x)",
                execution_count=2,
                metadata={"tags": ["solution"]},
                outputs=[nbformat.v4.new_output("stream", text="42\n")],
            ),
        ],
        metadata=stored(SPEC.chapters[0])["metadata"],
    )
    whole = json.loads(nbformat.writes(whole))
    copy = practice_copy(whole)
    (tmp_path / "unsolved.ipynb").write_text(json.dumps(copy), encoding="utf-8")
    copy["cells"][-1]["source"] = ["answer = 7 * x\n", "print(answer)"]
    (tmp_path / "solved.ipynb").write_text(json.dumps(copy), encoding="utf-8")
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*pytest_here, "--rootdir", str(tmp_path), "--nbval", str(tmp_path)],
        env={**os.environ, "OL_HOME": str(tmp_path / "work")},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert "1 failed, 5 passed" in done.stdout, done.stdout
    assert "unsolved.ipynb::Cell 2" in done.stdout
