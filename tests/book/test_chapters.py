"""Every chapter as it is stored: paired, executed, described, portable. What its cells print is nbval's to check."""

import re
from collections.abc import Iterator
from pathlib import Path

import pairing
import pytest
import yaml
from nbformat import NotebookNode

ROOT = pairing.BOOK.parent
CHAPTERS = pairing.chapters()
PAGES = ["glossary", "references"]  # Markdown pages behind the chapters
every_chapter = pytest.mark.parametrize("name", CHAPTERS)


def notebook(name: str) -> NotebookNode:
    return pairing.read_notebook(pairing.notebook_path(name))


def prose(name: str) -> str:
    return "\n\n".join(cell.source for cell in notebook(name).cells if cell.cell_type == "markdown")


def page(name: str) -> str:
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


def outputs(name: str) -> Iterator[tuple[str, NotebookNode]]:
    for number, cell in enumerate(notebook(name).cells, start=1):
        for output in cell.get("outputs", ()):
            yield f"cell {number}", output


def shown_text(name: str) -> str:
    """Everything a reader can read of a chapter: sources and textual outputs, without pictures."""
    parts = [cell.source for cell in notebook(name).cells]
    for _, output in outputs(name):
        parts.append(output.get("text", ""))
        parts += [str(value) for kind, value in output.get("data", {}).items() if not kind.startswith("image/png")]
    return "\n".join(parts)


@every_chapter
def test_text_and_notebook_agree_and_every_cell_was_executed_in_order(name: str) -> None:
    """nbval passes a cell that never ran, and readers and reviewers must see the same chapter.

    KIND: unit.
    """
    assert pairing.problems(name) == []


@every_chapter
def test_nothing_of_the_machine_that_ran_it_is_stored(name: str) -> None:
    """A version, a path or an address in a notebook changes with every author and every run.

    KIND: unit.
    """
    found = notebook(name)
    assert found.metadata == pairing.build(pairing.cells_of(found)).metadata
    for cell in found.cells:
        assert set(cell.metadata) <= {"tags", "jupyter"}, cell.metadata
    text = shown_text(name)
    assert not re.search(r"(?<![\w.~])/(?:root|home|Users|work|tmp|private|var)/|[A-Z]:\\", text), "a machine's path"
    assert not re.search(r"\bat 0x[0-9a-f]{6,}", text), "an object's address"


@every_chapter
def test_a_chapter_opens_with_its_one_title_and_its_promise(name: str) -> None:
    """A reader decides in five lines whether to read on: the number, the title, what they will be able to do.

    KIND: unit.
    """
    first = notebook(name).cells[0]
    assert first.cell_type == "markdown"
    fenceless = re.sub(r"^```.*?^```", "", prose(name), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^# +(.+)$", fenceless, flags=re.MULTILINE)
    assert len(titles) == 1, titles
    title, _, rest = first.source.partition("\n")
    assert title == f"# {titles[0]}"
    promise = rest.strip().split("\n\n")[0]
    assert len(promise.split()) >= 8 and promise.rstrip("*_ ").endswith("."), f"no promise under the title: {promise!r}"


@every_chapter
def test_a_chapter_sets_exercises_and_gives_each_its_solution(name: str) -> None:
    """Reading is not learning: each chapter asks for something under "Your turn" and folds one answer to it away.

    KIND: unit.
    """
    asked = solved = 0  # "Your turn" headings and solutions so far
    for cell in notebook(name).cells:
        if cell.cell_type == "markdown":
            asked += len(re.findall(r"your turn", cell.source.partition("\n")[0], flags=re.IGNORECASE))
        elif "solution" in cell.metadata.get("tags", ()):
            solved += 1
            assert asked >= solved, "a solution comes before its exercise"
            # JupyterLab shows the first line of a folded cell.
            assert cell.source.startswith("# Solution"), "a solution begins with the line `# Solution`"
    assert solved >= 1
    assert asked == solved, f"{asked} times 'Your turn' in the first line of a cell, {solved} solutions"


@every_chapter
def test_nbval_runs_every_cell_and_a_solution_checks_itself(name: str) -> None:
    """A solution that nobody runs is wrong after the next change; a cell that nbval skips or forgives proves nothing.

    KIND: unit.
    """
    for number, cell in enumerate(notebook(name).cells, start=1):
        tags = set(cell.metadata.get("tags", ()))
        assert tags <= {"solution", "needs-model", "nbval-ignore-output", pairing.FOLD_TAG}, f"cell {number}: {tags}"
        if "solution" in tags:
            assert re.search(r"\bassert\b|\bol\.check\(", cell.source), f"cell {number}: the solution is not checked"


@every_chapter
def test_no_output_is_a_stray_representation(name: str) -> None:
    """A cell that ends in a bare expression shows `<Axes: ...>` or `[<Line2D>]`, which tells a reader nothing.

    KIND: unit.
    """
    for where, output in outputs(name):
        if output.output_type == "execute_result" and "text/html" not in output.data:
            shown = output.data.get("text/plain", "")
            assert not re.search(r"<[\w.]+[ :(]|^Text\(|^\(array\(|^None$", shown), f"{where} shows {shown[:60]!r}"


@every_chapter
def test_a_chapter_closes_by_saying_what_depends_on_it_and_where_to_go_on(name: str) -> None:
    """A reader who jumps about learns what they miss, and a curious one finds the sources.

    KIND: unit.
    """
    headings = re.findall(r"^#{2,4} +(.+)$", prose(name), flags=re.MULTILINE)
    assert any("if you skip this" in heading.lower() for heading in headings), headings
    assert any("going further" in heading.lower() for heading in headings), headings


def sources() -> list[tuple[str, str, str]]:
    """Every entry of the references: first author or system, year or "", title or ""."""
    entries = re.findall(r"^- (.+?)(?=\n- |\n\n|\Z)", page("references"), flags=re.MULTILINE | re.DOTALL)
    found = []
    for entry in (" ".join(entry.split()) for entry in entries):
        year = re.search(r"\((\d{4})\)", entry)
        title = re.search(r"(?<!\*)\*([^*]+)\*(?!\*)", entry)
        author = re.match(r"\*\*([^*]+?)(?:,| et al| and | \(|\.\*\*)", entry)
        found.append((author[1] if author else "", year[1] if year else "", title[1] if title else ""))
    return found


def is_cited(line: str, author: str, year: str, title: str) -> bool:
    """Whether a line names a source: by its title or the beginning of it, by author and year, or a system by name."""
    line = " ".join(line.split())
    shown = [cited.lower() for cited in re.findall(r"\*([^*]+)\*", line)]
    if title and any(title.lower().startswith(cited) for cited in shown):
        return True
    return bool(author) and re.search(rf"\b{re.escape(author)}\b", line) is not None and year in line


def test_the_references_say_of_each_source_what_it_contributed() -> None:
    """A list of titles helps nobody to choose; and an entry that cannot be read cannot be cited.

    KIND: unit.
    """
    entries = re.findall(r"^- (.+?)(?=\n- |\n\n|\Z)", page("references"), flags=re.MULTILINE | re.DOTALL)
    assert len(entries) == len(sources()) > 40
    for entry, (author, _, title) in zip(entries, sources(), strict=True):
        assert author or title, entry
        assert len(entry.split()) > 8 and entry.rstrip().endswith("."), f"what did it contribute? {entry}"
    titles = [title for _, _, title in sources() if title]
    assert len(titles) == len(set(titles)), "a source stands there twice"


@every_chapter
def test_every_citation_of_a_chapter_leads_to_the_references(name: str) -> None:
    """The reader finds what "Chen et al. (2023)" is; each line of "Going further" names a source that is listed.

    KIND: unit.
    """
    listed = sources()
    further = re.split(r"^## Going further *$", prose(name), flags=re.MULTILINE)[1]
    lines = re.findall(r"^- (.+?)(?=\n- |\n\n|\Z)", further, flags=re.MULTILINE | re.DOTALL)
    assert lines, "no sources under Going further"
    for line in lines:
        assert any(is_cited(line, *source) for source in listed) or re.search(r"\]\(\S+\)", line), f"not listed: {line}"


def test_the_glossary_is_in_order_and_its_links_lead_to_chapters() -> None:
    """A reader looks a word up by its first letter, and goes on to the chapter where it is at home.

    KIND: unit.
    """
    words = re.findall(r"^\*\*([^*]+?)\.\*\*", page("glossary"), flags=re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(words, key=lambda word: re.sub(r"[^a-z ]", "", word.split(",")[0].lower().replace("-", " ")))
    links = dict(re.findall(r"^\[(\d\d)\]: (\S+)$", page("glossary"), flags=re.MULTILINE))
    assert links == {number: f"{name}.ipynb" for name in CHAPTERS if (number := name[:2]) in links}
    cited = set(re.findall(r"\[(\d\d)\](?!:)", page("glossary")))
    assert {name[:2] for name in CHAPTERS} & cited <= set(links), "a chapter that exists is named without a link"


@every_chapter
def test_every_picture_says_in_words_what_it_shows(name: str) -> None:
    """A reader who cannot see a figure, or whose page did not load it, reads its alternative text.

    KIND: unit.
    """
    pictures = 0
    for where, output in outputs(name):
        data, metadata = output.get("data", {}), output.get("metadata", {})
        html = data.get("text/html", "")
        for tag in re.findall(r"<img\b[^>]*>", html):
            assert re.search(r"""\balt=["'][^"']{15,}""", tag), f"{where}: <img> without alt text"
            pictures += 1
        if "image/png" in data and "<img" not in html:
            assert len(metadata.get("image/png", {}).get("alt", "")) >= 15, f"{where}: a figure without alt text"
            pictures += 1
        for svg in [data.get("image/svg+xml", ""), *re.findall(r"<svg\b.*?</svg>", html, flags=re.DOTALL)]:
            if svg:
                assert re.search(r"aria-label=|<title>", svg), f"{where}: a drawing without a title"
                pictures += 1
    for alt, _ in re.findall(r"!\[(.*?)\]\((.*?)\)", prose(name)):
        assert len(alt) >= 15, "an image in the prose without alt text"
        pictures += 1
    assert pictures >= 1, "every chapter has at least one picture"


@every_chapter
def test_tests_and_files_that_a_chapter_names_exist(name: str) -> None:
    """A promise, "checked by test_x", breaks silently when the test is renamed.

    KIND: unit.
    """
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", tests))
    defined |= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    named = set(re.findall(r"\b(test_[a-z0-9_]+)\b", prose(name)))
    assert named - defined == set()
    folder = pairing.notebook_path(name).parent
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", prose(name)):
        assert (folder / target).exists(), f"a link to {target}, which is not there"


def test_the_table_of_contents_lists_exactly_the_chapters_and_the_pages_behind_them() -> None:
    """A chapter that is missing there is missing from the printed book, and a stale line breaks its build.

    KIND: unit.
    """
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    listed = [Path(entry["file"]) for entry in toc["chapters"] or []]
    assert listed == [Path("book") / name for name in (*CHAPTERS, *PAGES)]
    assert all((ROOT / "book" / f"{name}.md").exists() for name in PAGES)
    assert (ROOT / f"{toc['root']}.md").exists()


def test_the_readme_lists_exactly_the_chapters() -> None:
    """The front page sends readers to chapters, in order, by links that work.

    KIND: unit.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(book/(\d\d-[a-z0-9-]+)\.ipynb\)", readme) == CHAPTERS
