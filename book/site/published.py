"""Sphinx extension of the HTML book: all that its pages load is in the build, so it can be read without a network.

Jupyter Book loads MathJax from a content network; here it comes from a Python package. The pages that the front page
links to without listing them are built as well.
"""

import re
from importlib.metadata import files
from pathlib import Path
from shutil import copyfile, copytree
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

HERE = Path(__file__).parent
MATHJAX = "mathjax/tex-chtml.js"  # reads TeX, writes HTML with fonts of its own


def beside(app: Sphinx) -> set[str]:
    """Files of prose that the front page links to and the table of contents, which has chapters only, does not list."""
    front = Path(app.srcdir, "README.md").read_text(encoding="utf-8")
    return {link for link in re.findall(r"\]\(([\w./-]+\.md)\)", front) if not link.startswith("book/")}


def include_pages_beside_the_book(app: Sphinx, config: Config) -> None:
    """Build these pages as well."""
    config.exclude_patterns = [pattern for pattern in config.exclude_patterns if pattern not in beside(app)]


def expect_pages_beside_the_book(app: Sphinx, env: BuildEnvironment) -> None:
    """Tell Sphinx, which warns of forgotten pages, that these are meant to be outside the table of contents."""
    for name in beside(app):
        env.metadata[name.removesuffix(".md")]["orphan"] = True


def copy_what_pages_load(app: Sphinx, error: Exception | None) -> None:
    """Put MathJax and its fonts, and the book's own style and script, among the static files of a build that succeeded.

    Sphinx copies static files only when a page is out of date, so a script that alone was edited would stay as it was.
    """
    if error or app.builder.format != "html":
        return
    target = Path(app.outdir, "_static")
    copytree(HERE / "static", target, dirs_exist_ok=True)
    for file in files("sphinx-mathjax-offline") or ():
        _, _, name = file.as_posix().partition("/static/")
        if name == MATHJAX or name.startswith("mathjax/output/chtml/fonts/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(file.locate(), target / name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this when it loads the extension."""
    app.config.mathjax_path = MATHJAX
    app.connect("config-inited", include_pages_beside_the_book, priority=1000)  # after the table of contents is read
    app.connect("env-updated", expect_pages_beside_the_book)
    app.connect("build-finished", copy_what_pages_load)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
