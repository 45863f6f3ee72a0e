"""What proposing and verifying cost, as a share of a round, with prompt lookup at k = 8.

    python bench/verify.py [--json PATH] [--plot PATH]

The loop runs as it is; the functions it calls are replaced by the same functions with a clock around them. Logprobs are
what a report of log-probabilities and entropies costs on top.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _measure import arguments, finish, table  # isort: split  # before NumPy is loaded

from tinyllm import smollm2
from tinyllm.infer import generate as loop
from tinyllm.infer import spec
from tinyllm.infer.sample import SamplingParams
from tinyllm.zoo import smollm2 as load

SETTINGS = {
    "greedy": SamplingParams(temperature=0, max_tokens=128),
    "sampled": SamplingParams(temperature=0.8, seed=1, max_tokens=128),
    "sampled, top-k 40, top-p 0.9": SamplingParams(temperature=0.8, top_k=40, top_p=0.9, seed=1, max_tokens=128),
}
PARTS = {"target pass": "last_logits", "verify": "verify_draft", "logprobs": "token_logprobs"}
ENTROPY = "sampled_entropy"  # reported with the logprobs


def timed(function: Callable[..., Any], clock: dict[str, float], part: str) -> Callable[..., Any]:
    """`function`, adding its seconds to `clock[part]`."""
    def run(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            clock[part] += time.perf_counter() - started

    return run


def shares(model: Any, tok: Any, prompt: str, p: SamplingParams, repetitions: int) -> dict[str, float]:
    """Seconds a round of each part, the median over repetitions by whole runs."""
    originals = {name: getattr(spec, name) for name in PARTS.values()}
    entropy = getattr(loop, ENTROPY)
    found: list[dict[str, float]] = []
    try:
        for _ in range(repetitions + 1):
            clock = dict.fromkeys(("propose", *PARTS), 0.0)
            for part, name in PARTS.items():
                setattr(spec, name, timed(originals[name], clock, part))
            setattr(loop, ENTROPY, timed(entropy, clock, "logprobs"))
            draft = spec.PromptLookupDraft()
            draft.propose = timed(draft.propose, clock, "propose")  # type: ignore[method-assign]
            run = spec.speculative_generate(model, draft, tok, prompt, p, k=8)
            rounds = len(run.rounds) - 1 or 1  # the first is the prompt's
            clock["target pass"] -= run.timings["prefill_s"]
            clock["round"] = run.timings["decode_s"]
            found.append({part: seconds / rounds for part, seconds in clock.items()})
    finally:
        for name, function in originals.items():
            setattr(spec, name, function)
        setattr(loop, ENTROPY, entropy)
    found = sorted(found[1:], key=lambda run: run["round"])
    return found[len(found) // 2]


def plot(path: Path, found: dict[str, dict[str, float]]) -> None:
    """Draw the table."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure(height=2.4)
    for row, parts in enumerate(found.values()):
        left = 0.0
        for part, colour in zip(("target pass", "propose", "verify", "logprobs"), list(PALETTE.values()), strict=False):
            ax.barh(row, parts[part] * 1e3, left=left, color=colour, label=part if row == 0 else None)
            left += parts[part] * 1e3
    ax.set(yticks=range(len(found)), yticklabels=list(found), xlabel="milliseconds a round")
    ax.legend(frameon=False, ncols=4, fontsize=8)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(repetitions=5)
    options = parser.parse_args()
    model, tok = load()
    prompt = smollm2.requests(tok)["quoting"]
    found = {name: shares(model, tok, prompt, p, options.repetitions) for name, p in SETTINGS.items()}
    rows = []
    for name, parts in found.items():
        share = (parts["propose"] + parts["verify"]) / (parts["round"] - parts["logprobs"])
        parts["propose + verify share"] = share
        rows.append(
            [name, *(f"{parts[part] * 1e3:.3f}" for part in ("round", "target pass", "propose", "verify", "logprobs")),
             f"{share:.1%}"]
        )
    table(["ms a round", "round", "pass", "propose", "verify", "logprobs", "propose + verify"], rows)
    print("\nthe share is of a round without its logprobs")
    if options.plot:
        plot(options.plot, found)
    finish(options, {"round": found})


if __name__ == "__main__":
    main()
