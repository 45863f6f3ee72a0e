"""What a prompt lookup costs while a text grows, against the length of the context.

    python bench/lookup.py [--json PATH] [--plot PATH]

The draft follows a growing context as it does while generating: one id more, one proposal. The plain scan, which is the
definition, is timed beside it.
"""

from __future__ import annotations

import time
from pathlib import Path

from _measure import Timing, arguments, finish, table  # isort: split  # before NumPy is loaded

from tinyllm.infer.spec import PromptLookupDraft
from tinyllm.num.rng import PCG32

LENGTHS = (100, 1_000, 8_000, 30_000, 100_000)
STEPS = 200


def scan(ctx: list[int], k: int, max_ngram: int = 3, min_ngram: int = 1) -> list[int]:
    """The definition: the longest suffix first, its most recent earlier start, and what followed."""
    for n in range(min(max_ngram, len(ctx) - 1), min_ngram - 1, -1):
        for start in range(len(ctx) - n - 1, -1, -1):
            if ctx[start : start + n] == ctx[-n:]:
                return ctx[start + n : start + n + k]
    return []


def growing(length: int) -> tuple[Timing, Timing]:
    """Seconds of a proposal by the index and by the scan, at contexts of `length` ids and a few more."""
    words = PCG32(length).substream("shuffle")
    ctx = [words.below(5_000) for _ in range(length)]
    draft = PromptLookupDraft()
    draft.propose(ctx, 8)
    indexed: list[float] = []
    scanned: list[float] = []
    for _ in range(STEPS):
        ctx.append(words.below(5_000))
        context = list(ctx)  # the loop makes a new list each round
        started = time.perf_counter()
        found, _ = draft.propose(context, 8)
        between = time.perf_counter()
        if len(scanned) < 20:
            assert found == scan(context, 8)
            scanned.append(time.perf_counter() - between)
        indexed.append(between - started)
    return Timing(tuple(indexed)), Timing(tuple(scanned))


def plot(path: Path, found: dict[int, tuple[Timing, Timing]]) -> None:
    """Draw the table."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure()
    for i, (label, colour) in enumerate((("index", "kept"), ("scan", "rejected"))):
        ax.loglog(list(found), [t[i].median * 1e6 for t in found.values()], "o-", color=PALETTE[colour], label=label)
    ax.set(xlabel="ids in the context", ylabel="microseconds a proposal")
    ax.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    options = arguments(__doc__ or "").parse_args()
    found = {length: growing(length) for length in LENGTHS}
    table(
        ["ids in context", "index us", "spread", "scan us"],
        [
            [f"{n:,}", f"{index.median * 1e6:.1f}", f"{index.spread:.0%}", f"{by_scan.median * 1e6:.0f}"]
            for n, (index, by_scan) in found.items()
        ],
    )
    if options.plot:
        plot(options.plot, found)
    finish(options, {"propose": {str(n): {"index": a.as_json(), "scan": b.as_json()} for n, (a, b) in found.items()}})


if __name__ == "__main__":
    main()
