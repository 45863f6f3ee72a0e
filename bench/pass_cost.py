"""What a pass over n tokens costs: T(n)/T(1) on SmolLM2, beside what the machine could do at best.

    python bench/pass_cost.py [--json PATH] [--plot PATH]

A pass computes logits for all its n rows, as verification does, after a context of 64 tokens.
"""

from __future__ import annotations

from pathlib import Path

from _measure import arguments, finish, table  # isort: split  # before NumPy is loaded

from tinyllm.explore.timing import pass_cost
from tinyllm.zoo import smollm2


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
    found = pass_cost(model, options.repetitions)
    passes = found["pass"]
    ratio = {int(n): one["median_s"] / passes["1"]["median_s"] for n, one in passes.items()}
    best = {int(n): one["best_s"] / passes["1"]["best_s"] for n, one in passes.items()}
    floor_bytes = found["bytes"] / found["bandwidth_bytes_per_s"]
    floor_flops = found["flops_per_token"] / found["float32_flops_per_s"]

    print(
        f"weights read in a pass: {found['bytes'] / 1e6:.0f} MB; {found['flops_per_token'] / 1e6:.0f} million float "
        "operations a token"
    )
    print(
        f"memory {found['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s, float32 {found['float32_flops_per_s'] / 1e9:.0f} "
        "GFLOP/s, both measured here\n"
    )
    table(
        ["n", "ms", "spread", "best ms", "T(n)/T(1)", "of best", "memory floor ms", "float floor ms"],
        [
            [
                n,
                f"{one['median_s'] * 1e3:.2f}",
                f"{one['spread']:.0%}",
                f"{one['best_s'] * 1e3:.2f}",
                f"{ratio[int(n)]:.2f}",
                f"{best[int(n)]:.2f}",
                f"{floor_bytes * 1e3:.2f}",
                f"{int(n) * floor_flops * 1e3:.2f}",
            ]
            for n, one in passes.items()
        ],
    )
    if options.plot:
        plot(options.plot, ratio)
    finish(options, {"ratio": ratio, "ratio_of_best": best, **found})


if __name__ == "__main__":
    main()
