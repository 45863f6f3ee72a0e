"""The Draft shape explorable: how much of a draft is kept, as a histogram and position by position.

The share kept at a position is taken among the rounds that reached it: those that kept every earlier position. If it
were the same everywhere, it would be alpha and the formula of the Acceptance explorable would hold; it seldom is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tinyllm.explore import recordings
from tinyllm.explore.figure import PALETTE, Canvas, new_figure, show
from tinyllm.explore.shell import Choice, Explorable
from tinyllm.infer.generate import Generation

ALL = "all texts"
FEW = 10  # a share of fewer rounds than this is drawn hollow
HEIGHT = 2.7  # of the picture, in inches

Runs = Mapping[str, Generation] | Mapping[tuple[str, str], Generation]


class Shape(NamedTuple):
    """What `compute` finds; k is the longest draft."""

    k: int
    lengths: NDArray[np.int64]  # [k + 1]: rounds that kept 0, 1, ... k of their draft
    reached: NDArray[np.int64]  # [k]: rounds that judged this position
    kept: NDArray[np.int64]  # [k]: of them, those that kept it
    silent: int  # rounds in which nothing was drafted

    @property
    def rounds(self) -> int:
        """Rounds that drafted something."""
        return int(self.lengths.sum())

    @property
    def alpha(self) -> float:
        """Kept over judged positions; nan when there are none."""
        judged = int(self.reached.sum())
        return int(self.kept.sum()) / judged if judged else float("nan")


def compute(generations: Iterable[Generation]) -> Shape:
    """The shape of the drafts in one or more generations, added up."""
    rounds = [done for made in generations for done in made.rounds]
    drafting = [done for done in rounds if done.draft]
    k = max((len(done.draft) for done in drafting), default=0)
    lengths = np.bincount([done.accepted for done in drafting], minlength=k + 1).astype(np.int64)  # [k + 1]
    places = range(k)
    reached = [sum(len(done.draft) > i and done.accepted >= i for done in drafting) for i in places]
    kept = [sum(done.accepted > i for done in drafting) for i in places]
    return Shape(k, lengths, np.array(reached, np.int64), np.array(kept, np.int64), len(rounds) - len(drafting))


def select(runs: Runs, text: str, draft: str) -> list[Generation]:
    """The runs of a draft on one text or on `ALL`. ValueError when there is none."""
    found = [made for name, made in _by_pair(runs).items() if name[1] == draft and text in (name[0], ALL)]
    if not found:
        raise ValueError(f"there is no run of {draft} on {text}.")
    return found


def _by_pair(runs: Runs) -> dict[tuple[str, str], Generation]:
    """Runs by text and draft; a name alone is a draft, and its text has no name."""
    return {name if isinstance(name, tuple) else (ALL, name): made for name, made in runs.items()}


def in_words(runs: Runs, text: str, draft: str) -> str:
    """The shape as sentences."""
    shape = compute(select(runs, text, draft))
    if not shape.rounds:
        return f"{draft} on {text}: nothing was drafted in {shape.silent} rounds, so each gave one token."
    mean = int(shape.kept.sum()) / shape.rounds
    shares = ", ".join(f"{a} of {b}" for a, b in zip(shape.kept, shape.reached, strict=True) if b)
    further = "" if shape.reached.all() else ", and no round got further"
    hollow = ((shape.reached > 0) & (shape.reached < FEW)).any()
    return (
        f"{draft} on {text}: {shape.rounds} rounds with a draft, {shape.silent} without. A draft of up to {shape.k} "
        f"tokens kept {mean:.2f} on average; {shape.lengths[0]} kept none, {shape.lengths[-1]} kept {shape.k}. Kept "
        f"where reached, position by position: {shares}{further}; alpha about {shape.alpha:.2f}."
        + (f" Hollow points rest on fewer than {FEW} rounds." if hollow else "")
    )


def draw(axes: Sequence[Axes], runs: Runs, text: str, draft: str) -> None:
    """Two pictures: rounds by accepted length, and the share kept at each position with alpha across."""
    by_length, by_position = axes
    shape = compute(select(runs, text, draft))
    lengths, places = np.arange(shape.k + 1), np.arange(1, shape.k + 1)
    share = shape.lengths / max(1, shape.rounds)
    by_length.bar(lengths, share, color=[PALETTE["rejected"], *[PALETTE["kept"]] * shape.k])
    for length, height in zip(lengths, share, strict=True):
        by_length.text(float(length), height + 0.02, f"{shape.lengths[length]}", ha="center", fontsize=9)
    by_length.set(
        xlabel="draft tokens kept",
        title=f"{shape.rounds} rounds with a draft",
        xlim=(-0.6, max(shape.k, 1) + 0.6),
        ylim=(0, 1.1),
    )
    kept = np.divide(shape.kept, shape.reached, out=np.full(shape.k, np.nan), where=shape.reached > 0)
    enough = shape.reached >= FEW
    by_position.plot(places, kept, "-", color=PALETTE["target"], linewidth=1)
    whole: dict[str, Any] = {"clip_on": False, "in_layout": False}  # an empty line would spoil the layout
    point: dict[str, Any] = {"color": PALETTE["target"], "markersize": 7, "zorder": 3, **whole}
    by_position.plot(places[enough], kept[enough], "o", **point)
    by_position.plot(places[~enough], kept[~enough], "o", markerfacecolor="white", **point)
    if shape.rounds:
        by_position.axhline(shape.alpha, color=PALETTE["line"], linestyle=":", linewidth=1)
        label = f"dotted: all positions, alpha = {shape.alpha:.2f}"
        by_position.text(0.5, 1.04, label, fontsize=9, va="bottom", in_layout=False)
    by_position.set(
        xlabel="position in the draft", title="kept, where reached", xlim=(0.4, max(shape.k, 1) + 0.6), ylim=(0, 1.1)
    )
    for ax, ticks, label in ((by_length, lengths, "share of rounds"), (by_position, places, "share kept")):
        ax.set_ylabel(label)
        ax.set_xticks(ticks)
        ax.set_yticks([0, 0.5, 1])


def picture(runs: Runs, text: str = ALL, draft: str | None = None) -> None:
    """Show `draw` with its words under it; the first draft if none is named."""
    named = draft or next(iter(_by_pair(runs)))[1]
    figure, axes = new_figure(columns=2, height=HEIGHT)
    draw(axes, runs, text, named)
    show(figure, in_words(runs, text, named))


def widget(runs: Runs | None = None) -> Explorable:
    """Choose a text and a draft. `runs` are generations by (text, draft), or by draft alone; None: the recorded ones.

    ValueError when `runs` is empty.
    """
    held = recordings.runs() if runs is None else runs
    names = _by_pair(held)
    if not names:
        raise ValueError("there are no runs to show; give at least one.")
    texts = tuple(dict.fromkeys((ALL, *(text for text, _ in names))))
    drafts = tuple(dict.fromkeys(draft for _, draft in names))
    return Explorable(
        "draft_shape",
        [
            Choice("draft", "draft", "what guesses", drafts, drafts[0]),
            Choice("text", "text", "what is written", texts, ALL),
        ],
        partial(draw, runs=held),
        partial(in_words, runs=held),
        Canvas(columns=2, height=HEIGHT),
        {"shapes": {text: {d: _as_json(held, text, d) for d in drafts} for text in texts}},
    )


def _as_json(runs: Runs, text: str, draft: str) -> dict[str, Any]:
    try:
        shape = compute(select(runs, text, draft))
    except ValueError as fault:
        return {"words": str(fault)}
    counts = {name: getattr(shape, name).tolist() for name in ("lengths", "reached", "kept")}
    return {"words": in_words(runs, text, draft), "k": shape.k, **counts}
