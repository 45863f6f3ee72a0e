"""How long a move of a slider takes, until the picture and its words are ready to be sent to the page.

    python bench/explore.py [--json PATH] [--plot PATH]

Every explorable that draws is moved through its controls, in alternation. The ratio says what holding on to frames
saves: the same drawing on a new figure, laid out anew, over a move. The goal is a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from _measure import alternate, arguments, finish, table

from tinyllm.explore import acceptance, draft_shape, overlap, pass_cost, round_player
from tinyllm.explore.figure import Canvas

WIDGETS: dict[str, Callable[[], Any]] = {
    "overlap": overlap.widget,
    "acceptance": acceptance.widget,
    "round player": round_player.widget,
    "pass cost": pass_cost.widget,
    "draft shape": draft_shape.widget,
}
GOAL = 0.1  # seconds


def mover(control: Any) -> Callable[[], None]:
    """A function that moves a slider or a choice to its next place at each call."""
    if hasattr(control, "options"):
        places = cycle(control.options)
    else:
        places = cycle([control.min + (control.max - control.min) * i / 10 for i in range(11)])
    kind = type(control.value)

    def move() -> None:
        value = kind(next(places))
        if value == control.value:
            value = kind(next(places))
        control.value = value

    return move


def anew(shown: Any) -> bytes:
    """The picture of a widget drawn on a new figure."""
    held = shown._canvas.figure
    fresh = Canvas(columns=len(held.axes), height=held.get_figheight())
    return fresh.png(partial(shown._draw, **shown.state))


def plot(path: Path, medians: dict[str, float]) -> None:
    """Draw the medians."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure(height=4.2)
    ax.barh(list(medians), [1e3 * seconds for seconds in medians.values()], color=PALETTE["target"])
    ax.axvline(1e3 * GOAL, color=PALETTE["line"], linestyle=":")
    ax.invert_yaxis()
    ax.set(xlabel="milliseconds a move, median")
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    options = arguments(__doc__ or "").parse_args()
    jobs: dict[str, Callable[[], object]] = {}
    sizes: dict[str, int] = {}
    for name, widget in WIDGETS.items():
        shown = widget()
        jobs[f"{name}, drawn anew"] = partial(anew, shown)
        for control in list(shown.inputs.values())[:3]:
            jobs[f"{name}, {control.description}"] = mover(control)
        sizes[name] = len(shown.shown.value)
    found = alternate(jobs, options.repetitions)
    fresh = {name: found[f"{name}, drawn anew"].median for name in WIDGETS}
    moves = {job: timing for job, timing in found.items() if "drawn anew" not in job}
    table(
        ["move", "ms", "spread", "slowest", "anew/move", "kB sent"],
        [
            [
                job,
                f"{1e3 * timing.median:.0f}",
                f"{timing.spread:.0%}",
                f"{1e3 * max(timing.seconds):.0f}",
                f"{fresh[job.split(',')[0]] / timing.median:.1f}",
                f"{sizes[job.split(',')[0]] / 1e3:.0f}",
            ]
            for job, timing in moves.items()
        ],
    )
    medians = {job: timing.median for job, timing in moves.items()}
    slow = [job for job, seconds in medians.items() if seconds > GOAL]
    print(f"\nunder {GOAL} s: {len(medians) - len(slow)} of {len(medians)}; not: {', '.join(slow) or 'none'}")
    if options.plot:
        plot(options.plot, medians)
    times = {job: timing.as_json() for job, timing in moves.items()}
    finish(options, {"move": times, "drawn_anew_s": fresh, "bytes_sent": sizes})


if __name__ == "__main__":
    main()
