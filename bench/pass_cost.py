"""What a pass over n tokens costs: T(n)/T(1) on SmolLM2, beside what the machine could do at best.

    python bench/pass_cost.py [--json PATH] [--plot PATH]

A pass computes logits for all its n rows, as verification does, after a context of 64 tokens.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numba
import numpy as np
from _measure import Timing, alternate, arguments, finish, table  # isort: split  # before NumPy is loaded

from tinyllm.infer.generate import last_logits, new_cache
from tinyllm.xfmr.llama import Llama
from tinyllm.zoo import smollm2

ROWS = range(1, 17)
CONTEXT = 64


@numba.njit(parallel=True, fastmath=True)
def _read(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in numba.prange(x.size):
        total += x[i]
    return total


def bandwidth() -> float:
    """Bytes a second that all threads together read from memory, at best."""
    x = np.ones(64_000_000, np.float32)  # 256 MB, far more than any cache holds
    return x.nbytes / alternate({"read": lambda: _read(x)}, 8)["read"].best


def float_peak() -> float:
    """Float32 operations a second in NumPy's matrix product, at best: as near the peak as software gets."""
    a = np.ones((1024, 1024), np.float32)
    return 2 * 1024**3 / alternate({"product": lambda: a @ a}, 8)["product"].best


def weights(model: Llama) -> tuple[int, int]:
    """Bytes and number of the weights that a pass reads."""
    shapes = model.config.shapes()
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    return model.nbytes(), count


def measure(model: Llama, repetitions: int) -> dict[int, Timing]:
    """T(n) for each n of ROWS, in alternation."""
    ids = list(range(100, 100 + CONTEXT + max(ROWS)))
    cache = new_cache(model, CONTEXT + max(ROWS))
    last_logits(model, ids[:CONTEXT], cache, 1)

    def run(n: int) -> None:
        last_logits(model, ids[CONTEXT : CONTEXT + n], cache, n)
        cache.truncate(CONTEXT)

    return alternate({n: partial(run, n) for n in ROWS}, repetitions)


def plot(path: Path, ratio: dict[int, float]) -> None:
    """Draw the table."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure()
    ax.plot(list(ratio), list(ratio.values()), "o-", color=PALETTE["target"], label="measured")
    ax.plot(list(ratio), list(ratio), ":", color=PALETTE["line"], label="n separate passes")
    ax.set(xlabel="tokens in the pass, n", ylabel="T(n) / T(1)", ylim=(0, 8))
    ax.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    options = arguments(__doc__ or "").parse_args()
    model, _ = smollm2()
    per_second, peak = bandwidth(), float_peak()
    n_bytes, count = weights(model)
    found = measure(model, options.repetitions)
    ratio = {n: timing.median / found[1].median for n, timing in found.items()}
    best = {n: timing.best / found[1].best for n, timing in found.items()}
    floor_bytes, floor_flops = n_bytes / per_second, 2 * count / peak

    print(f"weights read in a pass: {n_bytes / 1e6:.0f} MB; {2 * count / 1e6:.0f} million float operations a token")
    print(f"memory {per_second / 1e9:.1f} GB/s, float32 {peak / 1e9:.0f} GFLOP/s, both measured here\n")
    table(
        ["n", "ms", "spread", "best ms", "T(n)/T(1)", "of best", "memory floor ms", "float floor ms"],
        [
            [
                n,
                f"{timing.median * 1e3:.2f}",
                f"{timing.spread:.0%}",
                f"{timing.best * 1e3:.2f}",
                f"{ratio[n]:.2f}",
                f"{best[n]:.2f}",
                f"{floor_bytes * 1e3:.2f}",
                f"{n * floor_flops * 1e3:.2f}",
            ]
            for n, timing in found.items()
        ],
    )
    if options.plot:
        plot(options.plot, ratio)
    finish(
        options,
        {
            "ratio": {str(n): value for n, value in ratio.items()},
            "ratio_of_best": {str(n): value for n, value in best.items()},
            "pass": {str(n): timing.as_json() for n, timing in found.items()},
            "bytes": n_bytes,
            "flops_per_token": 2 * count,
            "bandwidth_bytes_per_s": per_second,
            "float32_flops_per_s": peak,
        },
    )


if __name__ == "__main__":
    main()
