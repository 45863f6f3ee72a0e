"""What a prompt lookup costs while a text grows, against the length of the context.

    python bench/lookup.py [--json PATH] [--plot PATH]

The draft follows a growing context as it does while generating: one id more, one proposal. The plain scan, which is the
definition, is timed beside it; so is what any index pays that trusts nothing, one comparison of two equal lists.
"""

from __future__ import annotations

import time
from pathlib import Path

from _measure import Timing, arguments, finish, table  # isort: split  # before NumPy is loaded

from tinyllm.infer.spec import PromptLookupDraft
from tinyllm.num.rng import PCG32

LENGTHS = (100, 1_000, 8_000, 30_000, 100_000)
STEPS, SCANS = 200, 20


def scan(ctx: list[int], k: int, max_ngram: int = 3, min_ngram: int = 1) -> list[int]:
    """The definition: the longest suffix first, its most recent earlier start, and what followed."""
    for n in range(min(max_ngram, len(ctx) - 1), min_ngram - 1, -1):
        for start in range(len(ctx) - n - 1, -1, -1):
            if ctx[start : start + n] == ctx[-n:]:
                return ctx[start + n : start + n + k]
    return []


def growing(length: int) -> dict[str, Timing]:
    """Seconds of a proposal by the index and by the scan, and of a comparison, at `length` ids and a few more.

    The comparison is of what the index compares, a list that it keeps with one that is new: neither is in a fast cache.
    """
    words = PCG32(length).substream("shuffle")
    ctx = [words.below(5_000) for _ in range(length)]
    kept = list(ctx)
    draft = PromptLookupDraft()
    draft.propose(ctx, 8)
    seconds: dict[str, list[float]] = {"index": [], "comparison": [], "scan": []}
    for step in range(STEPS):
        ctx.append(words.below(5_000))
        kept.append(ctx[-1])
        contexts = {"index": list(ctx), "comparison": list(ctx)}  # the loop makes a new list each round
        for what in sorted(contexts, reverse=step % 2 == 0):  # in turn, as both push the other's lists out of the cache
            started = time.perf_counter()
            if what == "index":
                found, _ = draft.propose(contexts[what], 8)
            else:
                equal = kept == contexts[what]
            seconds[what].append(time.perf_counter() - started)
        assert equal
        if step < SCANS:
            started = time.perf_counter()
            assert found == scan(ctx, 8)
            seconds["scan"].append(time.perf_counter() - started)
    return {what: Timing(tuple(taken)) for what, taken in seconds.items()}


def plot(path: Path, found: dict[int, dict[str, Timing]]) -> None:
    """Draw the table."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure()
    for what, colour in (("index", "kept"), ("comparison", "line"), ("scan", "rejected")):
        ax.loglog(list(found), [t[what].median * 1e6 for t in found.values()], "o-", color=PALETTE[colour], label=what)
    ax.set(xlabel="ids in the context", ylabel="microseconds a proposal")
    ax.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    options = arguments(__doc__ or "").parse_args()
    found = {length: growing(length) for length in LENGTHS}
    table(
        ["ids in context", "index us", "spread", "comparison alone us", "scan us"],
        [
            [f"{n:,}", f"{at['index'].median * 1e6:.1f}", f"{at['index'].spread:.0%}",
             f"{at['comparison'].median * 1e6:.1f}", f"{at['scan'].median * 1e6:.0f}"]
            for n, at in found.items()
        ],
    )
    if options.plot:
        plot(options.plot, found)
    finish(options, {"propose": {str(n): {what: t.as_json() for what, t in at.items()} for n, at in found.items()}})


if __name__ == "__main__":
    main()
