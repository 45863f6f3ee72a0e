"""The Acceptance explorable: how the acceptance probability, the draft length and the draft's cost make a speedup.

If each draft token is kept independently with probability alpha, a round of k drafts keeps
alpha + ... + alpha^k of them on average (Leviathan, Kalman and Matias 2023, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from tinyllm.explore.figure import PALETTE, Canvas, key, new_figure, show
from tinyllm.explore.shell import Explorable, Slider

LONGEST = 16  # the largest k that is drawn
HEIGHT = 2.7  # of the picture, in inches


class Acceptance(NamedTuple):
    """What `compute` finds, for each draft length in `k`, float64 `[len(k)]` each."""

    k: NDArray[np.int64]
    tokens: NDArray[np.float64]  # emitted per target pass
    rate: NDArray[np.float64]  # accepted over drafted; nan where nothing is drafted
    speedup: NDArray[np.float64]  # against one token a pass


class Run(NamedTuple):
    """A measured run: drafts proposed and kept, rounds that ended in a rejection, and tokens per target pass."""

    name: str
    k: int
    drafted: int
    accepted: int
    rejected: int
    tokens_per_pass: float

    @property
    def alpha(self) -> float:
        """alpha estimated from the positions that were judged: kept over kept and rejected; nan when there are none."""
        judged = self.accepted + self.rejected
        return self.accepted / judged if judged else float("nan")


def compute(alpha: float, cost: float, k: ArrayLike) -> Acceptance:
    """Expected tokens per pass, acceptance rate and speedup for each draft length.

    `alpha` in [0, 1]; `cost` >= 0 is one draft token's time in target passes; `k` is an array of integers >= 0.
    ValueError outside these ranges.
    """
    k = np.asarray(k, dtype=np.int64)
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; a probability lies in [0, 1].")
    if not cost >= 0:
        raise ValueError(f"cost is {cost}; a draft cannot take less than no time.")
    if k.ndim != 1 or k.size == 0 or k.min() < 0:
        raise ValueError(f"k is {k}; it must be a list of integers >= 0.")
    kept = np.array([sum(alpha**i for i in range(1, n + 1)) for n in k.tolist()])  # [len(k)]
    rate = np.divide(kept, k, out=np.full(k.size, np.nan), where=k > 0)
    return Acceptance(k, 1 + kept, rate, (1 + kept) / (1 + cost * k))


def best_k(alpha: float, cost: float, longest: int = LONGEST) -> int:
    """The shortest draft length up to `longest` with the highest expected speedup."""
    return int(np.argmax(compute(alpha, cost, np.arange(longest + 1)).speedup))


def in_words(alpha: float, cost: float, k: int, runs: Iterable[Run] = ()) -> str:
    """The state of the explorable as a sentence, and the runs at this `k`, or where there are any, as a second one."""
    held = list(runs)
    now = compute(alpha, cost, [k])
    rate = f", acceptance rate {now.rate[0]:.2f}" if k else ""
    here = "; ".join(f"{r.name} {r.tokens_per_pass:.2f} at alpha {r.alpha:.2f}" for r in held if r.k == k)
    elsewhere = ", ".join(map(str, sorted({r.k for r in held})))
    measured = f" The measured runs, drawn as squares, are at k {elsewhere}." if elsewhere else ""
    if here:
        measured = f" Squares, tokens per pass of measured runs: {here}."
    return (
        f"alpha {alpha:.2f}, k {k}: {now.tokens[0]:.2f} tokens per pass{rate}; at a draft cost of {cost:.2f} passes a "
        f"token the speedup is {now.speedup[0]:.2f}, and the best k up to {LONGEST} is {best_k(alpha, cost)}."
        + measured
    )


def draw(axes: Iterable[Axes], alpha: float, cost: float, k: int, runs: Iterable[Run] = ()) -> None:
    """Three pictures: tokens per pass and acceptance rate over alpha at this `k`, speedup over k at this `alpha`."""
    tokens_ax, rate_ax, speed_ax = axes
    grid = np.linspace(0, 1, 51)
    curves = [compute(a, cost, [k]) for a in grid]
    now = compute(alpha, cost, [k])
    whole: dict[str, Any] = {"clip_on": False, "in_layout": False}  # at the ends of an axis too
    dot: dict[str, Any] = {"color": PALETTE["rejected"], "markersize": 8, **whole}
    square: dict[str, Any] = {"color": PALETTE["draft"], "markersize": 5, **whole}
    tokens_ax.plot(grid, [c.tokens[0] for c in curves], color=PALETTE["target"])
    tokens_ax.plot([alpha], now.tokens, "o", **dot)
    highest = next(room for room in (5, 9, LONGEST + 1) if k < room)  # an axis that changes rarely is easier to compare
    tokens_ax.set(xlabel="alpha", title=f"tokens per pass, k = {k}", xlim=(-0.02, 1.02), ylim=(0, highest + 0.6))
    rate_ax.plot(grid, grid, ":", color=PALETTE["line"], linewidth=1)
    key(rate_ax, 0.05, 0.97, "··", "line", "alpha itself")
    rate_ax.plot(grid, [c.rate[0] for c in curves], color=PALETTE["target"])
    rate_ax.plot([alpha], now.rate, "o", **dot)
    rate_ax.set(xlabel="alpha", title="acceptance rate", xlim=(-0.02, 1.02), ylim=(0, 1.05))
    for run in runs:
        if run.k == k:
            tokens_ax.plot([run.alpha], [run.tokens_per_pass], "s", **square)
            rate_ax.plot([run.alpha], [run.accepted / max(1, run.drafted)], "s", **square)
    lengths = compute(alpha, cost, np.arange(LONGEST + 1))
    best = best_k(alpha, cost)
    speed_ax.plot(lengths.k, lengths.speedup, ".-", color=PALETTE["target"])
    speed_ax.plot([best], [lengths.speedup[best]], "*", color=PALETTE["kept"], markersize=13)
    speed_ax.plot([k], now.speedup, "o", **dot)
    speed_ax.axhline(1, color=PALETTE["line"], linewidth=0.8)
    top = math.ceil(2.2 * lengths.speedup.max()) / 2  # in halves, so that the axis does not creep along with a slider
    speed_ax.set(xlabel="k", title=f"speedup, best k = {best}", xlim=(-0.6, LONGEST + 0.6), ylim=(0, top))


def picture(alpha: float, cost: float, k: int, runs: Iterable[Run] = ()) -> None:
    """Show `draw` with its words under it."""
    held = list(runs)
    figure, axes = new_figure(columns=3, height=HEIGHT)
    draw(axes, alpha, cost, k, held)
    show(figure, in_words(alpha, cost, k, held))


def widget(runs: Iterable[Run] = ()) -> Explorable:
    """Sliders for alpha, k and the draft's cost over the picture; `runs` are drawn as squares at their k."""
    held = list(runs)
    return Explorable(
        "acceptance",
        [
            Slider("alpha", "alpha", "how often a draft token is kept", 0.0, 1.0, 0.01, 0.8),
            Slider("k", "k, draft tokens", "draft tokens per round", 0, LONGEST, 1, 4),
            Slider("cost", "cost of a draft token", "its time, in target passes", 0.0, 1.0, 0.01, 0.05),
        ],
        partial(draw, runs=held),
        partial(in_words, runs=held),
        Canvas(columns=3, height=HEIGHT),
        {"longest": LONGEST, "runs": [run._asdict() for run in held]},
    )
