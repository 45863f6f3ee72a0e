"""The Pass cost explorable: what a pass over n tokens takes, against what the machine allows at best.

A pass reads every weight once however many tokens it scores, and computes once for each token. The roofline (Williams,
Waterman and Patterson 2009) is the longer of the two times at full speed; where the first rules, further tokens are
nearly free, and that is the slack which speculative decoding spends.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tinyllm.explore import timing
from tinyllm.explore.figure import FRAME, PALETTE, Canvas, key, new_figure, show
from tinyllm.explore.shell import Explorable, Slider
from tinyllm.zoo import smollm2, why_not

PATH = Path(__file__).with_name("pass_cost.json")  # written by bench/pass_cost.py --json
REPETITIONS = 10  # when the reader measures
HEIGHT = 2.9  # of the picture, in inches


class PassCost(NamedTuple):
    """What `compute` finds, for each number of tokens in `n`; times in seconds, float64 `[len(n)]` each."""

    n: NDArray[np.int64]
    seconds: NDArray[np.float64]  # the fastest pass
    ratio: NDArray[np.float64]  # seconds over those of one token
    memory: float  # seconds to read the weights
    arithmetic: NDArray[np.float64]  # seconds to compute
    roof: NDArray[np.float64]  # the longer of the two, over the seconds of one token
    pays: NDArray[np.float64]  # alpha above which n - 1 free draft tokens pay for the pass; nan where none does


def recorded() -> dict[str, Any]:
    """A stored measurement, with the machine it was made on."""
    return dict(_read())


@cache
def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def compute(measured: Mapping[str, Any]) -> PassCost:
    """Ratios, limits and what a pass must bring; `measured` is what `tinyllm.explore.timing.pass_cost` returns.

    ValueError when it has no pass over one token.
    """
    passes = {int(n): float(one["best_s"]) for n, one in measured["pass"].items()}
    if 1 not in passes:
        raise ValueError(f"passes over {sorted(passes)} tokens were measured; one over 1 token is needed to compare.")
    n = np.array(sorted(passes))
    seconds = np.array([passes[rows] for rows in n.tolist()])
    memory = measured["bytes"] / measured["bandwidth_bytes_per_s"]
    arithmetic = n * (measured["flops_per_token"] / measured["float32_flops_per_s"])
    ratio = seconds / passes[1]
    pays = np.array([break_even(cost, rows - 1) for cost, rows in zip(ratio.tolist(), n.tolist(), strict=True)])
    return PassCost(n, seconds, ratio, memory, arithmetic, np.maximum(memory, arithmetic) / passes[1], pays)


def break_even(cost: float, k: int) -> float:
    """The alpha at which a round of k free draft tokens emits `cost` tokens: 1 + alpha + ... + alpha^k = cost.

    0 when `cost` is at most 1, nan when even k + 1 tokens would not do.
    """
    if cost <= 1:
        return 0.0
    if cost > k + 1:
        return float("nan")
    low, high = 0.0, 1.0
    for _ in range(60):  # halving: the sum grows with alpha
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(k + 1)) < cost else (low, middle)
    return high


def where(measured: Mapping[str, Any]) -> str:
    """The machine of a measurement, in words."""
    of = measured["machine"]
    return f"{of['processor']}, {of['threads']} thread{'' if of['threads'] == 1 else 's'}"


def in_words(measured: Mapping[str, Any], n: int, source: str) -> str:
    """The cost of a pass over `n` tokens as sentences; `source` says whose measurement it is."""
    found = compute(measured)
    i = found.n.tolist().index(n)
    words = (
        f"A pass over {n} token{'' if n == 1 else 's'} takes {1e3 * found.seconds[i]:.1f} ms, {found.ratio[i]:.2f} "
        f"times as long as over one. The machine allows {1e3 * max(found.memory, found.arithmetic[i]):.1f} ms at "
        f"best: reading the weights takes {1e3 * found.memory:.1f} ms, computing {1e3 * found.arithmetic[i]:.1f} ms."
    )
    if n == 1:
        words += " It checks no draft."
    else:
        drafts = f"{n - 1} free draft token{'' if n == 2 else 's'}"
        words += (
            f" Not even {drafts} that are always kept would pay for it."
            if np.isnan(found.pays[i])
            else f" With {drafts} it pays when alpha exceeds {found.pays[i]:.2f}."
        )
    return f"{words} {source}"


def draw(axes: Sequence[Axes], measured: Mapping[str, Any], n: int) -> None:
    """Two pictures over n: T(n)/T(1) under n separate passes and over the roofline, and the alpha that pays for it."""
    cost, pays = axes
    found = compute(measured)
    i = found.n.tolist().index(n)
    top = float(2 * np.ceil((1.15 * max(found.ratio.max(), found.roof.max()) + 0.5) / 2))
    cost.fill_between(found.n, found.roof, color=PALETTE["prompt"], alpha=0.35, linewidth=0, gid=FRAME)
    cost.plot(found.n, found.n, ":", color=PALETTE["line"], linewidth=1, gid=FRAME)
    cost.plot(found.n, found.ratio, ".-", color=PALETTE["target"], gid=FRAME)
    cost.plot([n], [found.ratio[i]], "o", color=PALETTE["rejected"], markersize=8)
    keys = (
        ("··", "line", "n passes over one"),
        ("─", "target", "one pass over n"),
        ("■", "prompt", "below the roofline"),
    )
    for line, (mark, colour, label) in enumerate(keys):
        key(cost, 0.4, 0.99 - 0.09 * line, mark, colour, label)
    cost.set(xlabel="tokens in the pass, n", title="T(n) / T(1)", xlim=(0.4, found.n[-1] + 0.6), ylim=(0, top))
    pays.plot(found.n[1:], found.pays[1:], ".-", color=PALETTE["target"], gid=FRAME)
    if n > 1:
        pays.plot([n], [found.pays[i]], "o", color=PALETTE["rejected"], markersize=8)
    pays.fill_between(found.n[1:], found.pays[1:], 1, color=PALETTE["kept"], alpha=0.35, linewidth=0, gid=FRAME)
    pays.text(found.n[-1], 0.93, "faster than plain decoding", ha="right", va="top", fontsize=9, gid=FRAME)
    pays.set(xlabel="tokens in the pass, n", title="alpha that pays for it", xlim=(0.4, found.n[-1] + 0.6), ylim=(0, 1))


def picture(measured: Mapping[str, Any] | None = None, n: int = 5) -> None:
    """Show `draw` with its words under it; the recorded measurement if none is given."""
    held, source = _held(measured)
    figure, axes = new_figure(columns=2, height=HEIGHT)
    draw(axes, held, n)
    show(figure, in_words(held, n, source))


def _held(measured: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str]:
    held = recorded() if measured is None else measured
    kind = "A recorded run" if measured is None else "Measured here"
    return held, f"{kind}: SmolLM2 on {where(held)}."


def widget(measured: Mapping[str, Any] | None = None) -> Explorable:
    """Move n over the measured passes. Without `measured` it replays a recorded run, says so, and can measure here."""
    return _PassCost(measured)


class _PassCost(Explorable):
    """The widget, with a button that measures in a thread while the slider stays alive."""

    def __init__(self, measured: Mapping[str, Any] | None) -> None:
        self.measured, self.source = _held(measured)
        found = compute(self.measured)
        super().__init__(
            "pass_cost",
            [Slider("n", "n, tokens in a pass", "one pending token and n - 1 drafts", 1, int(found.n[-1]), 1, 5)],
            lambda axes, n: draw(axes, self.measured, n),
            lambda n: in_words(self.measured, n, self.source),
            Canvas(columns=2, height=HEIGHT),
            {
                "where": self.source,
                "n": found.n.tolist(),
                "ratio": found.ratio.tolist(),
                "roof": found.roof.tolist(),
                "pays": [None if np.isnan(alpha) else alpha for alpha in found.pays.tolist()],
                "words": [in_words(self.measured, n, self.source) for n in found.n.tolist()],
            },
        )
        self.button = widgets.Button(description="Measure here", tooltip="takes some ten seconds")
        self.bar = widgets.FloatProgress(max=1.0, layout=widgets.Layout(width="200px", visibility="hidden"))
        self.answer = widgets.Label()
        self.button.on_click(lambda _button: self.measure())
        if measured is None:
            self.children: Any = [widgets.HBox([self.button, self.bar, self.answer]), *self.children]

    def measure(self) -> threading.Thread | None:
        """Start to measure; None, with the reason beside the button, when that cannot be."""
        reason = why_not()
        if reason is not None:
            self.answer.value = reason
            return None
        self.button.disabled, self.bar.value, self.bar.layout.visibility = True, 0.0, "visible"
        self.answer.value = "Measuring: leave the machine alone for a moment."
        thread = threading.Thread(target=self._measure, daemon=True)
        thread.start()
        return thread

    def _measure(self) -> None:
        try:
            model, _tok = smollm2()
            found = timing.pass_cost(model, REPETITIONS, lambda done: setattr(self.bar, "value", done))
        except Exception as fault:  # whatever it is, it is told where the reader looks, and the button works again
            self.answer.value = f"Nothing was measured: {fault}"
        else:
            self.measured, self.source = _held(found)
            self.answer.value = "Measured here."
            self.redraw()
        finally:
            self.button.disabled, self.bar.layout.visibility = False, "hidden"
