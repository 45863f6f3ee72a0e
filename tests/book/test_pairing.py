"""book/pairing.py on throw-away books: no edit is ever lost, and a second run changes nothing."""

import os
from pathlib import Path

import nbformat
import pairing
import pytest

from tinyllm.explore import acceptance

TEXT = '''# %% [markdown]
# # 01 A toy chapter
#
# You will add $x^2$ to nothing.

# %%
x = 3
print(x**2)

# %% [markdown]
# ## Your turn

# %% tags=["solution"]
[n * n for n in range(x)]
'''


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of one chapter whose text and notebook were paired, with no cell executed."""
    (tmp_path / "text").mkdir()
    pairing.text_path("01-toy", tmp_path).write_text(TEXT, encoding="utf-8")
    cells, _ = pairing.current_cells("01-toy", book=tmp_path)
    pairing.write_notebook(pairing.notebook_path("01-toy", tmp_path), pairing.build(cells))
    return tmp_path


def edit_text(book: Path, old: str, new: str) -> None:
    path = pairing.text_path("01-toy", book)
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def edit_notebook(book: Path, old: str, new: str) -> None:
    path = pairing.notebook_path("01-toy", book)
    notebook = pairing.read_notebook(path)
    for cell in notebook.cells:
        cell.source = cell.source.replace(old, new)
    pairing.write_notebook(path, notebook)


def test_running_a_chapter_twice_writes_the_same_bytes_and_leaves_nothing_to_complain_about(book: Path) -> None:
    """A run that rewrote files would bury real changes in noise; a solution must come out folded and executed.

    KIND: unit, smoke.
    """
    pairing.run("01-toy", book=book)
    path = pairing.notebook_path("01-toy", book)
    first = path.read_bytes()
    assert pairing.problems("01-toy", book) == []
    assert "notebook unchanged" in pairing.run("01-toy", book=book)
    assert path.read_bytes() == first
    assert pairing.text_path("01-toy", book).read_text(encoding="utf-8") == TEXT
    code = [cell for cell in pairing.read_notebook(path).cells if cell.cell_type == "code"]
    assert code[0].outputs[0].text == "9\n"
    assert code[1].outputs[0].data["text/plain"] == "[0, 1, 4]"
    assert code[1].metadata == {"jupyter": pairing.FOLD, "tags": [pairing.FOLD_TAG, "solution"]}


@pytest.mark.parametrize("newer", ["text", "notebook"])
def test_the_dates_of_the_files_decide_nothing(book: Path, newer: str) -> None:
    """A clone gives files whatever dates it likes, so an edit is found by content.

    KIND: property.
    """
    text, notebook = pairing.text_path("01-toy", book), pairing.notebook_path("01-toy", book)
    old, new = (text, notebook) if newer == "notebook" else (notebook, text)
    os.utime(old, (1, 1))
    os.utime(new, (2_000_000_000, 2_000_000_000))
    assert pairing.current_cells("01-toy", book=book)[1] == "both"
    edit_text(book, "x = 3", "x = 4")
    os.utime(text, (1, 1) if newer == "notebook" else (2_000_000_000, 2_000_000_000))
    cells, side = pairing.current_cells("01-toy", book=book)
    assert side == "text"
    assert cells[1].source.startswith("x = 4")


def test_an_edit_made_in_the_notebook_reaches_the_text(book: Path) -> None:
    """Authors edit where they like; the text is rewritten from the notebook when only the notebook changed.

    KIND: unit.
    """
    edit_notebook(book, "x = 3", "x = 5")
    pairing.run("01-toy", book=book)
    assert pairing.text_path("01-toy", book).read_text(encoding="utf-8") == TEXT.replace("x = 3", "x = 5")
    assert pairing.problems("01-toy", book) == []


def test_edits_on_both_sides_are_refused_and_nothing_is_written(book: Path) -> None:
    """The tool may not choose which of two edits to lose; it says how the author can.

    KIND: boundary.
    """
    edit_text(book, "x = 3", "x = 4")
    edit_notebook(book, "x = 3", "x = 5")
    paths = pairing.text_path("01-toy", book), pairing.notebook_path("01-toy", book)
    before = [path.read_bytes() for path in paths]
    with pytest.raises(pairing.EditedTwice, match=r"--keep text[\s\S]*--keep notebook"):
        pairing.run("01-toy", book=book)
    assert [path.read_bytes() for path in paths] == before
    assert pairing.current_cells("01-toy", "text", book)[0][1].source.startswith("x = 4")
    assert pairing.current_cells("01-toy", "notebook", book)[0][1].source.startswith("x = 5")


def test_a_notebook_of_unknown_origin_that_differs_from_the_text_is_refused(book: Path) -> None:
    """Without a fingerprint nobody knows which side is the newer, so neither is taken.

    KIND: boundary.
    """
    path = pairing.notebook_path("01-toy", book)
    notebook = pairing.read_notebook(path)
    del notebook.metadata["tinyllm"]
    pairing.write_notebook(path, notebook)
    assert pairing.current_cells("01-toy", book=book)[1] == "both"
    edit_text(book, "x = 3", "x = 4")
    with pytest.raises(pairing.EditedTwice):
        pairing.current_cells("01-toy", book=book)


def test_a_cell_that_fails_leaves_both_files_as_they_were(book: Path) -> None:
    """A broken chapter must not replace stored outputs with a traceback.

    KIND: boundary.
    """
    edit_text(book, "x = 3", "x = missing_name")
    paths = pairing.text_path("01-toy", book), pairing.notebook_path("01-toy", book)
    before = [path.read_bytes() for path in paths]
    with pytest.raises(Exception, match="missing_name"):
        pairing.run("01-toy", book=book)
    assert [path.read_bytes() for path in paths] == before


def test_cells_survive_the_way_through_the_text(tmp_path: Path) -> None:
    """What a notebook can hold must read back the same from the text, magics, markers and formulas included.

    KIND: property.
    """
    cells = [
        pairing.Cell("markdown", "# Title\n\n$$\\sum_i p_i = 1$$\n\n- a\n  - b\n\n```python\nx = 1\n```"),
        pairing.Cell("code", '%matplotlib inline\ntext = """\n# no heading\n"""', ("needs-model",)),
        pairing.Cell("code", "def f(x):\n\n\n    return x  # done", ("nbval-ignore-output", "solution")),
        pairing.Cell("markdown", "<details>\n<summary>Hint</summary>\n\nLook *up*.\n\n</details>"),
        pairing.Cell("code", "# only a comment"),
    ]
    path = tmp_path / "text" / "02-cells.py"
    pairing.write_text(path, cells)
    assert pairing.read_text(path) == cells
    assert pairing.cells_of(pairing.build(cells)) == cells


def test_cells_that_the_text_cannot_carry_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A line that looks like a cell marker would split the cell silently.

    KIND: boundary.
    """
    path = tmp_path / "text" / "03-bad.py"
    with pytest.raises(ValueError, match="do not read back"):
        pairing.write_text(path, [pairing.Cell("code", "x = 1\n# %% not a cell\ny = 2")])
    assert not path.exists()


def test_ids_follow_the_content_and_are_never_shared() -> None:
    """Stable ids keep a change of one cell from touching the others' lines in a review.

    KIND: property.
    """
    cells = [pairing.Cell("code", "a"), pairing.Cell("code", "b"), pairing.Cell("code", "a")]
    ids = [cell.id for cell in pairing.build(cells).cells]
    assert len(set(ids)) == 3
    assert [cell.id for cell in pairing.build([pairing.Cell("markdown", "new"), *cells]).cells][1:] == ids


def stored(*cells: nbformat.NotebookNode) -> list[str]:
    return pairing._stored(nbformat.v4.new_notebook(cells=list(cells)))


def test_what_must_not_be_stored_is_named() -> None:
    """Each of these would pass nbval or mislead a reader: skipped cells, errors, warnings, dead controls.

    KIND: unit.
    """
    new = nbformat.v4.new_code_cell
    output = nbformat.v4.new_output
    assert stored(new("a", execution_count=1), new("b", execution_count=2)) == []
    assert "execution count None" in stored(new("never_run()"))[0]
    skipping = stored(new("a", execution_count=1), new("b", execution_count=3))
    assert "execution count 3, and 2 is its place" in skipping[0]
    error = output("error", ename="NameError", evalue="no", traceback=[])
    assert "stores an error: NameError" in stored(new("a", execution_count=1, outputs=[error]))[0]
    warning = output("stream", name="stderr", text="UserWarning: hm")
    assert "stderr" in stored(new("a", execution_count=1, outputs=[warning]))[0]
    widget = output("display_data", data={pairing.WIDGET: {"model_id": "1"}, "text/plain": "IntSlider()"})
    assert "shows as an error" in stored(new("a", execution_count=1, outputs=[widget]))[0]
    portable = pairing._portable(widget)
    assert "tag it nbval-ignore-output" in stored(new("a", execution_count=1, outputs=[portable]))[0]
    tagged = new("a", execution_count=1, outputs=[portable], metadata={"tags": ["nbval-ignore-output"]})
    assert stored(tagged) == []
    assert "not folded" in stored(new("a", execution_count=1, metadata={"tags": ["solution"]}))[0]


def test_an_explorable_is_stored_in_the_form_that_needs_no_kernel() -> None:
    """The published page starts from it; a widget's own view would be an error box there.

    KIND: unit.
    """
    shown = acceptance.widget()
    view = nbformat.v4.new_output("display_data", data=shown._repr_mimebundle_())
    assert pairing.WIDGET in view.data
    stored_form = pairing._portable(view)
    assert dict(stored_form.data) == {"text/plain": pairing.WIDGET_NOTE, "text/html": shown.fallback()}
