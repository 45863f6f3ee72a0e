"""Keep each chapter's notebook and its reviewed text the same, and run the notebooks.

A chapter exists twice: `book/text/NN-name.py` (Jupytext's percent format, which is reviewed and edited) and
`book/NN-name.ipynb` (the same cells with their outputs, which is read). The notebook carries a fingerprint of
the cells it was last paired with, so an edit is found on whichever side it was made, whatever the files' dates
are, and an edit on both sides is never resolved by guessing.

    python book/pairing.py check         say what is wrong with texts, notebooks and stored outputs
    python book/pairing.py run           pair and execute every chapter
    python book/pairing.py run 09 13     these chapters only
    python book/pairing.py run 09 --keep text        both sides were edited: take the text
    python book/pairing.py run 09 --keep notebook    or the notebook
"""

import argparse
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode

BOOK = Path(__file__).resolve().parent
CHAPTER = re.compile(r"\d\d-[a-z0-9-]+")
CELL_SECONDS = 600  # a cell that takes longer hangs
PERCENT = {"extension": ".py", "format_name": "percent"}
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_NOTE = "The controls appear when this cell is run."

# How JupyterLab and Jupyter Book know that a solution is to be folded. Authors write the tag `solution` only.
FOLD_TAG = "hide-cell"
FOLD = {"source_hidden": True, "outputs_hidden": True}


class Cell(NamedTuple):
    """What a cell is on both sides: its kind ("markdown", "code", "raw"), its source, its sorted tags."""

    kind: str
    source: str
    tags: tuple[str, ...] = ()


class EditedTwice(Exception):
    """Text and notebook were both edited since they were last paired."""


# Reading and writing the two sides ----------------------------------------------------------------


def chapters(book: Path = BOOK) -> list[str]:
    """Names of the chapters in order, such as "09-the-verifier": every one that has a text or a notebook."""
    found = [*book.glob("*.ipynb"), *(book / "text").glob("*.py")]
    return sorted({path.stem for path in found if CHAPTER.fullmatch(path.stem)})


def text_path(name: str, book: Path = BOOK) -> Path:
    """The reviewed text of a chapter."""
    return book / "text" / f"{name}.py"


def notebook_path(name: str, book: Path = BOOK) -> Path:
    """The notebook of a chapter."""
    return book / f"{name}.ipynb"


def cells_of(notebook: NotebookNode) -> list[Cell]:
    """A notebook's cells as both sides know them: without empty cells and the tags that pairing adds."""
    cells = []
    for cell in notebook.cells:
        tags = sorted(set(cell.metadata.get("tags", ())) - {FOLD_TAG})
        if source := cell.source.strip("\n"):
            cells.append(Cell(cell.cell_type, source, tuple(tags)))
    return cells


def read_text(path: Path) -> list[Cell]:
    """The cells of a chapter's text; a header that Jupytext wrote into it says nothing about them."""
    return cells_of(jupytext.reads(_headless(path.read_text(encoding="utf-8")), fmt=PERCENT))


def read_notebook(path: Path) -> NotebookNode:
    """A notebook file, in the current notebook format."""
    return nbformat.read(path, as_version=4)


def write_text(path: Path, cells: Sequence[Cell]) -> None:
    """Write a chapter's text; ValueError, and nothing written, when the format cannot carry the cells."""
    notebook = nbformat.v4.new_notebook(cells=[_new_cell(cell, id=None) for cell in cells])
    only_tags = {**PERCENT, "cell_metadata_filter": "tags,-all", "notebook_metadata_filter": "-all"}
    text = _headless(jupytext.writes(notebook, fmt=only_tags))
    if cells_of(jupytext.reads(text, fmt=PERCENT)) != list(cells):
        raise ValueError(
            f"{path.name}: written as text, the notebook's cells do not read back as they are; "
            f"look for a line in the cell edited last that starts like a cell marker"
        )
    _replace(path, text)


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook file, whole or not at all."""
    nbformat.validate(notebook)
    _replace(path, nbformat.writes(notebook) + "\n")


def _headless(text: str) -> str:
    # The header names Jupytext's own version, so it would change with every upgrade.
    return re.sub(r"\A# ---\n.*?^# ---\n+", "", text, flags=re.DOTALL | re.MULTILINE)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(path)


# Which side was edited ----------------------------------------------------------------------------


def fingerprint(cells: Sequence[Cell]) -> str:
    """SHA-256 of cells, as 64 hex digits."""
    return hashlib.sha256(json.dumps(cells, ensure_ascii=False).encode("utf-8")).hexdigest()


def current_cells(name: str, keep: str | None = None, book: Path = BOOK) -> tuple[list[Cell], str]:
    """The cells a chapter has now, and where they are from: "text", "notebook", or "both" when the two agree.

    keep: "text" or "notebook", the side to take when both were edited; None refuses with EditedTwice.
    """
    text, notebook = text_path(name, book), notebook_path(name, book)
    if not notebook.exists():
        return read_text(text), "text"
    stored = read_notebook(notebook)
    in_notebook = cells_of(stored)
    if not text.exists():
        return in_notebook, "notebook"
    in_text = read_text(text)
    if in_text == in_notebook:
        return in_text, "both"
    paired = stored.metadata.get("tinyllm", {}).get("paired")
    if keep == "text" or (keep is None and paired == fingerprint(in_notebook)):
        return in_text, "text"
    if keep == "notebook" or (keep is None and paired == fingerprint(in_text)):
        return in_notebook, "notebook"
    raise EditedTwice(
        f"{name}: the text and the notebook were both edited since they were last paired, so nothing was "
        f"changed. Compare them, carry the edits over to one side, then run\n"
        f"    python book/pairing.py run {name[:2]} --keep text        (the notebook's edits are dropped)\n"
        f"    python book/pairing.py run {name[:2]} --keep notebook    (the text's edits are dropped)"
    )


# Making and executing the notebook ----------------------------------------------------------------


def build(cells: Sequence[Cell]) -> NotebookNode:
    """A notebook of these cells, no outputs. Same cells, same bytes: a cell's id follows from its content."""
    seen: Counter[str] = Counter()
    made = []
    for cell in cells:
        digest = fingerprint([cell])[:12]
        made.append(_new_cell(cell, id=f"{digest}-{seen[digest]}"))
        seen[digest] += 1
    metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
        "tinyllm": {"paired": fingerprint(cells)},
    }
    notebook = nbformat.v4.new_notebook(cells=made, metadata=metadata)
    notebook.nbformat_minor = 5
    return notebook


def _new_cell(cell: Cell, id: str | None) -> NotebookNode:
    make = {
        "markdown": nbformat.v4.new_markdown_cell,
        "code": nbformat.v4.new_code_cell,
        "raw": nbformat.v4.new_raw_cell,
    }[cell.kind]
    made = make(cell.source)
    if cell.tags:
        made.metadata["tags"] = list(cell.tags)
    if id is not None:
        made["id"] = id
        if "solution" in cell.tags:
            made.metadata["tags"] = sorted([*cell.tags, FOLD_TAG])
            made.metadata["jupyter"] = dict(FOLD)
    return made


def execute(notebook: NotebookNode, folder: Path = BOOK) -> None:
    """Run every cell in a new kernel and keep what it shows, less the parts that differ every time."""
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        store_widget_state=True,  # without it nbclient cannot route what a widget's own output area shows
        record_timing=False,
    )
    metadata = json.loads(json.dumps(notebook.metadata))
    client.execute()
    notebook.metadata = nbformat.from_dict(metadata)  # the kernel wrote its version over it
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [_portable(output) for output in cell.outputs if not _of_the_moment(output)]


def _of_the_moment(output: NotebookNode) -> bool:
    # Whether the kernels take long enough to say this depends on what else the machine does.
    return bool(output.output_type == "stream" and output.text.startswith("Compiling the kernels: "))


def _portable(output: NotebookNode) -> NotebookNode:
    # A stored view has no model to show: JupyterLab would print an error box in its place. What stands in for it is the
    # form that an explorable has for a page without a kernel.
    if WIDGET in output.get("data", {}):
        html = output.data.get("text/html", "")
        standing_in = {"text/html": html} if "tinyllm-explorable" in html else {}
        return nbformat.v4.new_output("display_data", data={"text/plain": WIDGET_NOTE, **standing_in})
    return output


def needs_model(notebook: NotebookNode) -> bool:
    """Whether a chapter loads the real model: some cell of it carries the tag `needs-model`."""
    return any("needs-model" in cell.metadata.get("tags", ()) for cell in notebook.cells)


def run(name: str, keep: str | None = None, book: Path = BOOK) -> str:
    """Pair and execute one chapter; returns a sentence on what was done.

    Raises EditedTwice, RuntimeError when the real model is needed and absent, and nbclient's errors when a
    cell fails; in each case both files are as they were.
    """
    began = time.perf_counter()
    cells, side = current_cells(name, keep, book)
    notebook = build(cells)
    if needs_model(notebook):
        from tinyllm.zoo import why_not  # only here: the other chapters run without the loader

        if reason := why_not():
            raise RuntimeError(f"{name} needs the real model: {reason}")
    execute(notebook, book)
    if side == "notebook":
        write_text(text_path(name, book), cells)
    path = notebook_path(name, book)
    before = path.read_bytes() if path.exists() else b""
    write_notebook(path, notebook)
    came = {"text": "made from its text", "notebook": "its text made from it", "both": "paired"}[side]
    outputs = "unchanged" if path.read_bytes() == before else "written"
    return f"{name}: {came}; executed in {time.perf_counter() - began:.1f} s; notebook {outputs}"


# Checking -----------------------------------------------------------------------------------------


def problems(name: str, book: Path = BOOK) -> list[str]:
    """What is wrong with a chapter as it is stored, a sentence each; nothing is executed."""
    text, path = text_path(name, book), notebook_path(name, book)
    for side in (text, path):
        if not side.exists():
            return [f"{name}: {side.name} is missing; `python book/pairing.py run {name[:2]}` makes it"]
    notebook = read_notebook(path)
    found = [*_disagreements(read_text(text), notebook), *_stored(notebook)]
    return [f"{name}: {problem}" for problem in found]


def _disagreements(in_text: list[Cell], notebook: NotebookNode) -> list[str]:
    in_notebook = cells_of(notebook)
    found = []
    for number, (ours, theirs) in enumerate(zip(in_text, in_notebook, strict=False), start=1):
        if ours != theirs:
            found.append(f"cell {number} differs: the text has {_head(ours)}, the notebook {_head(theirs)}")
            break
    if not found and len(in_text) != len(in_notebook):
        found.append(f"the text has {len(in_text)} cells and the notebook {len(in_notebook)}")
    if not found and notebook.metadata.get("tinyllm", {}).get("paired") != fingerprint(in_notebook):
        found.append("the notebook was not written by book/pairing.py, or was edited on both sides since")
    return found


def _stored(notebook: NotebookNode) -> list[str]:
    found = []
    expected = 0
    for number, cell in enumerate(notebook.cells, start=1):
        where = f"cell {number} ({_head(Cell(cell.cell_type, cell.source))})"
        if "solution" in cell.metadata.get("tags", ()) and cell.metadata.get("jupyter") != FOLD:
            found.append(f"{where} is a solution and is not folded")
        if cell.cell_type != "code":
            continue
        expected += 1
        if cell.execution_count != expected:
            found.append(f"{where} has execution count {cell.execution_count}, and {expected} is its place")
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"{where} stores an error: {output.ename}: {output.evalue}")
            elif output.output_type == "stream" and output.name == "stderr":
                found.append(f"{where} stores text from stderr: {_head(Cell('code', output.text))}")
            elif output.get("data", {}).get("text/plain") == WIDGET_NOTE:
                if "nbval-ignore-output" not in cell.metadata.get("tags", ()):
                    found.append(f"{where} shows controls: tag it nbval-ignore-output")
            elif WIDGET in output.get("data", {}):
                found.append(f"{where} stores a widget, which shows as an error until it is run")
    return found


def _head(cell: Cell) -> str:
    line = cell.source.strip().partition("\n")[0]
    return f'{cell.kind} "{line[:50]}"'


def _chosen(wanted: Sequence[str]) -> list[str]:
    names = chapters()
    if not names:
        raise SystemExit(f"there are no chapters in {BOOK}")
    for prefix in wanted:
        if not any(name.startswith(prefix) for name in names):
            raise SystemExit(f"there is no chapter {prefix!r}; there are {', '.join(names)}")
    return [name for name in names if not wanted or any(name.startswith(prefix) for prefix in wanted)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(prog="pairing.py", description="Pair, execute and check the chapters.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command, summary in (("check", "look, change nothing"), ("run", "pair and execute")):
        sub = commands.add_parser(command, help=summary)
        sub.add_argument("chapters", nargs="*", help="chapter numbers, such as 09; all when none is given")
        if command == "run":
            sub.add_argument("--keep", choices=("text", "notebook"), help="the side to take if both were edited")
    options = parser.parse_args(arguments)
    names = _chosen(options.chapters)
    failed = False
    for name in names:
        if options.command == "check":
            for problem in problems(name):
                failed = True
                print(problem)
            continue
        try:
            print(run(name, options.keep), flush=True)
        except EditedTwice as error:
            failed = True
            print(error, flush=True)
        except (ValueError, RuntimeError, CellExecutionError, CellTimeoutError) as error:
            failed = True
            print(f"{error}\n{name}: nothing was written", flush=True)
    if options.command == "check" and not failed:
        print(f"{len(names)} chapters: text and notebook agree, every code cell was executed in order")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
