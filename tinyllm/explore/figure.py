"""The figure habits of the book, in one place: one palette, one size, and words under every picture.

The colours are those of Okabe and Ito (2008), which people with the common kinds of colour blindness can tell apart.
"""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
from IPython.display import Image, Markdown, display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PALETTE = {
    "target": "#0072B2",  # blue: the target's own distribution
    "draft": "#E69F00",  # orange: what a draft proposed
    "kept": "#009E73",  # green: accepted, overlap, kept in the cache
    "rejected": "#D55E00",  # vermilion: rejected, truncated
    "correction": "#CC79A7",  # purple: the token that replaces a rejected one
    "bonus": "#56B4E9",  # light blue: the token after a fully kept draft
    "prompt": "#999999",  # grey: what was given
    "line": "#333333",
}
WIDTH, HEIGHT, DPI = 6.4, 3.2, 110  # inches and dots an inch: legible in half a JupyterLab window


def new_figure(columns: int = 1, rows: int = 1, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """An empty figure and its axes, left to right and top to bottom, with the habits of the book."""
    figure, grid = plt.subplots(rows, columns, figsize=(WIDTH, height), squeeze=False, layout="constrained")
    axes = list(grid.ravel())
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def show(figure: Figure, alt: str) -> None:
    """Show `figure` as a PNG with `alt`, a sentence that says what is to be seen, under it; then close it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    plt.close(figure)
    display(Image(buffer.getvalue(), alt=alt))
    display(Markdown(f"*{alt}*"))
