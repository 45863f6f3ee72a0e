"""The figure habits of the book, in one place: one palette, one size, and words under every picture.

The colours are those of Okabe and Ito (2008), which people with the common kinds of colour blindness can tell apart.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, Markdown, display
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from PIL import Image as Pixels

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
FRAME = "frame"  # the gid of what stays the same in most drawings: see `Canvas`
WIDTH, HEIGHT, DPI = 6.4, 3.2, 110  # inches and dots an inch: legible in half a JupyterLab window


def new_figure(columns: int = 1, rows: int = 1, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """An empty figure and its axes, left to right and top to bottom, with the habits of the book."""
    figure = plt.figure(figsize=(WIDTH, height), layout="constrained")
    return figure, _axes(figure, columns, rows)


def _axes(figure: Figure, columns: int, rows: int) -> list[Axes]:
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))  # few ticks, at round numbers
    return axes


def key(ax: Axes, x: float, y: float, mark: str, colour: str, label: str) -> None:
    """A line of a legend at a place in `ax`, as shares of it: a mark in a colour of the palette, then dark words."""
    ax.text(x, y, mark, color=PALETTE[colour], transform=ax.transAxes, fontsize=9, va="top", gid=FRAME)
    ax.text(x + 0.07, y, label, transform=ax.transAxes, fontsize=9, va="top")


def show(figure: Figure, alt: str) -> None:
    """Show `figure` as a PNG with `alt`, a sentence that says what is to be seen, under it; then close it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    plt.close(figure)
    display(Image(buffer.getvalue(), alt=alt))
    display(Markdown(f"*{alt}*"))


class Canvas:
    """A figure that is drawn on again and again, as fast as a slider moves.

    Laying out and drawing the frame (axes, ticks, labels) is most of the work and rarely changes, so the layout is
    found once, each frame is kept as pixels, and only what `draw` adds is drawn anew. `draw` must set the limits and
    labels of its axes itself: nothing of an earlier drawing is left to rely on. Texts, lines and collections that it
    marks with the gid `FRAME` belong to the frame.
    """

    def __init__(self, columns: int = 1, rows: int = 1, height: float = HEIGHT, hold: int = 40) -> None:
        room = ConstrainedLayoutEngine(w_pad=0.11)  # inches, as tick labels may grow by a digit
        self.figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout=room)  # outside pyplot: safe in a thread
        self.axes = _axes(self.figure, columns, rows)
        self._agg: Any = FigureCanvasAgg(self.figure)
        self._hold = hold  # frames kept, at about a megabyte each
        self._frames: dict[tuple[Any, ...], Any] = {}

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels."""
        width, height = self._agg.get_width_height()
        return int(width), int(height)

    def png(self, draw: Callable[[Sequence[Axes]], None]) -> bytes:
        """What `draw` draws on the empty axes, as a PNG."""
        for ax in self.axes:
            for artist in _drawn(ax):
                artist.remove()
            ax.set_title("")
            ax.set_prop_cycle(None)  # the next line without a colour takes the first one again
        draw(self.axes)
        changing = [(ax, a) for ax in self.axes for a in [*_drawn(ax), ax.title] if a.get_gid() != FRAME]
        self._agg.restore_region(self._frame([artist for _, artist in changing]))
        for ax in self.axes:
            ax.title.set_y(1.0)  # drawing a frame may have moved it
        for ax, artist in sorted(changing, key=lambda pair: pair[1].get_zorder()):
            ax.draw_artist(artist)
        buffer = io.BytesIO()
        pixels = np.asarray(self._agg.buffer_rgba())[..., :3]  # [height, width, 3]
        Pixels.fromarray(np.ascontiguousarray(pixels)).save(buffer, "png", compress_level=1)
        return buffer.getvalue()

    def _frame(self, changing: Sequence[Artist]) -> Any:
        """The pixels of everything but `changing`, as the axes are now."""
        key = tuple(
            (ax.get_xlim(), ax.get_ylim(), ax.get_xlabel(), ax.get_ylabel(), ax.axison, *_ticks(ax), *_framed(ax))
            for ax in self.axes
        )
        if key not in self._frames:
            if not self._frames:
                self.figure.draw_without_rendering()
                self.figure.set_layout_engine("none")  # as it was arranged for the first drawing
            shown = [artist for artist in changing if artist.get_visible()]
            for artist in shown:
                artist.set_visible(False)
            self._agg.draw()
            for artist in shown:
                artist.set_visible(True)
            if len(self._frames) >= self._hold:
                self._frames.clear()
            self._frames[key] = self._agg.copy_from_bbox(self.figure.bbox)
        return self._frames[key]


def _drawn(ax: Axes) -> list[Artist]:
    """What a drawing added to the empty axes."""
    found: list[Artist] = [*ax.lines, *ax.patches, *ax.collections, *ax.images, *ax.texts]
    legend = ax.get_legend()
    return found if legend is None else [*found, legend]


def _ticks(ax: Axes) -> list[tuple[Any, ...]]:
    """Places and labels of ticks that were set by hand; ticks that follow from the limits need no telling apart."""
    return [
        (tuple(axis.get_majorticklocs()), tuple(getattr(axis.get_major_formatter(), "seq", ())))
        for axis in (ax.xaxis, ax.yaxis)
    ]


def _framed(ax: Axes) -> list[tuple[Any, ...]]:
    """What belongs to the frame, so that two frames can be told apart."""
    found: list[tuple[Any, ...]] = [(t.get_text(), t.get_position()) for t in ax.texts if t.get_gid() == FRAME]
    drawn: Any
    for drawn in [*ax.lines, *ax.collections]:
        if drawn.get_gid() == FRAME:
            paths = drawn.get_paths() if drawn in ax.collections else [drawn.get_path()]
            colours = np.asarray(drawn.get_facecolor() if drawn in ax.collections else to_rgba(drawn.get_color()))
            found.append((b"".join(path.vertices.tobytes() for path in paths), colours.tobytes()))
    return found
