"""The Overlap explorable: what two distributions share is what a draft keeps.

A token drawn from q is kept with probability min(1, p/q), over all tokens that is alpha, the sum of min(p, q). It is
1 - TV, and what is still missing, max(0, p - q), is what a rejected token is replaced from (Leviathan, Kalman and
Matias 2023, section 2.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from tinyllm.explore.figure import PALETTE, Canvas, key, new_figure, show
from tinyllm.explore.shell import Explorable, Slider
from tinyllm.info.entropy import total_variation
from tinyllm.num.exact import ascending_sum, check_distribution
from tinyllm.prob.rejection import acceptance_probability, residual_distribution

TOKENS = "abcdefgh"
FEWEST = 3
HEIGHT = 2.7  # of the picture, in inches


class Overlap(NamedTuple):
    """What `compute` finds for two distributions, float64 `[n]` each array."""

    p: NDArray[np.float64]
    q: NDArray[np.float64]
    shared: NDArray[np.float64]  # min(p, q)
    alpha: float  # the sum of `shared`
    tv: float  # total variation, 1 - alpha
    residual: NDArray[np.float64]  # what replaces a rejected token is drawn from it


def shares(weights: ArrayLike, name: str = "p") -> NDArray[np.float64]:
    """Weights >= 0 as shares of their sum, float64 `[n]`; what sums to 1 stays as it is.

    ValueError, saying `name`, unless they are 3 to 8 finite numbers >= 0 of which one is above 0.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not FEWEST <= w.size <= len(TOKENS):
        raise ValueError(f"{name} has shape {w.shape}; the picture has room for {FEWEST} to {len(TOKENS)} tokens.")
    if not w.min() >= 0 or not np.isfinite(w.max()):
        raise ValueError(f"{name} has weights from {w.min()} to {w.max()}; a weight is finite and >= 0.")
    total = ascending_sum(w)
    if total == 0:
        raise ValueError(f"Every weight of {name} is 0, so there is nothing to draw a token from: move one of them up.")
    return w / total


def compute(p: ArrayLike, q: ArrayLike) -> Overlap:
    """The overlap of two distributions, given as weights `[n]`, n from 3 to 8. ValueError as for `shares`."""
    p, q = shares(p, "p"), shares(q, "q")
    return Overlap(
        p, q, np.minimum(p, q), acceptance_probability(p, q), total_variation(p, q), residual_distribution(p, q)
    )


def in_words(p: ArrayLike, q: ArrayLike) -> str:
    """The state of the explorable as a sentence."""
    found = compute(p, q)
    words = f"alpha {found.alpha:.2f}, total variation {found.tv:.2f}, together 1: "
    if f"{found.tv:.2f}" == "0.00":
        return words + "p and q agree, so a token drawn from q is always kept."
    parts = ", ".join(f"{token} {r:.2f}" for token, r in zip(TOKENS, found.residual, strict=False) if r > 0)
    return (
        words + f"a token drawn from q is kept {round(100 * found.alpha)} times in 100; a rejected one is replaced by "
        f"a draw from the residual: {parts}."
    )


def draw(axes: Sequence[Axes], p: ArrayLike, q: ArrayLike) -> None:
    """Two pictures: p and q over each other with what they share, and the residual."""
    both, rest = axes
    found = compute(p, q)
    places, tokens = np.arange(found.p.size), list(TOKENS[: found.p.size])
    both.bar(places, found.shared, color=PALETTE["kept"])
    for more, less, colour, hatch in ((found.p, found.q, "target", ""), (found.q, found.p, "draft", "///")):
        height = np.maximum(more - less, 0)
        both.bar(places, height, bottom=found.shared, color=PALETTE[colour], hatch=hatch, ec="white", lw=0)
    keys = (
        ("kept", f"both: kept, {found.alpha:.2f}"),
        ("target", f"only p: still missing, {found.tv:.2f}"),
        ("draft", f"only q: rejected, {found.tv:.2f}"),
    )
    for line, (colour, label) in enumerate(keys):
        key(both, 0.03, 0.97 - 0.09 * line, "■", colour, label)
    rest.bar(places, found.residual, color=PALETTE["target"])
    for ax, title in ((both, f"overlap, alpha = {found.alpha:.2f}"), (rest, "residual")):
        ax.set(xlim=(-0.6, found.p.size - 0.4), title=title)
        ax.set_xticks(places, tokens)
    both.set(ylim=(0, 1.4), ylabel="probability", yticks=[0, 0.5, 1])
    rest.set(ylim=(0, 1.05), yticks=[0, 0.5, 1])


def picture(p: ArrayLike, q: ArrayLike) -> None:
    """Show `draw` with its words under it."""
    figure, axes = new_figure(columns=2, height=HEIGHT)
    draw(axes, p, q)
    show(figure, in_words(p, q))


def widget(p: ArrayLike | None = None, q: ArrayLike | None = None) -> Explorable:
    """Two columns of sliders, the weights of p and of q, over the picture.

    `p` and `q` are where it starts: distributions over the same 3 to 8 tokens; by default (1/2, 1/4, 1/4) and
    (1/4, 1/2, 1/4). ValueError for others.
    """
    start_p = check_distribution([0.5, 0.25, 0.25] if p is None else p, "p")
    start_q = check_distribution([0.25, 0.5, 0.25] if q is None else q, "q")
    compute(start_p, start_q)  # refuses what it cannot show
    controls = [Slider("n", "tokens", "size of the vocabulary", FEWEST, len(TOKENS), 1, start_p.size)]
    for name, start, whose in (("p", start_p, "the target"), ("q", start_q, "the draft")):
        for i, token in enumerate(TOKENS):
            value = float(start[i]) if i < start.size else 0.25
            means = f"weight of token {token} in {name}, {whose}; {name} is its share of all weights"
            controls.append(Slider(f"{name}{i}", f"{name}({token})", means, 0.0, 1.0, 0.01, value))
    return Explorable(
        "overlap",
        controls,
        lambda axes, **state: draw(axes, *_weights(state)),
        lambda **state: in_words(*_weights(state)),
        Canvas(columns=2, height=HEIGHT),
        {"tokens": list(TOKENS)},
        _arrange,
    )


def _weights(state: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """The weights of p and q in the state of the widget, of as many tokens as it has."""
    p, q = ([state[f"{name}{i}"] for i in range(state["n"])] for name in "pq")
    return p, q


def _arrange(inputs: dict[str, Any]) -> list[Any]:
    """p on the left, q on the right, a row a token, and no row for a token that is not there."""
    columns = []
    for name, whose in (("p", "p, the target: weights"), ("q", "q, the draft: weights")):
        sliders = [inputs[f"{name}{i}"] for i in range(len(TOKENS))]
        for slider in sliders:
            slider.style.description_width = "36px"
        head = widgets.HTML(f"<b>{whose}</b>")
        columns.append(widgets.VBox([head, *sliders], layout=widgets.Layout(width="50%", max_width="300px")))

    def show_rows(_change: Any = None) -> None:
        for i in range(len(TOKENS)):
            for name in "pq":
                inputs[f"{name}{i}"].layout.display = None if i < inputs["n"].value else "none"

    inputs["n"].observe(show_rows, names="value")
    show_rows()
    return [inputs["n"], widgets.HBox(columns)]
