"""Tokens a second on SmolLM2: plain decoding and each draft, on each kind of text.

    python bench/decode.py [--json PATH] [--plot PATH] [--tokens 128]

Greedy, so every run of a request writes the same ids. For each draft the bound says what its speed would be if nothing
were ever accepted: T(1) / (T(k + 1) + the draft's own time). The course's requests are joined by one in which all that
is written was read before, and at the end stands a prompt lookup that never finds anything to propose.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from _measure import alternate, arguments, finish, table  # isort: split  # before NumPy is loaded

from tinyllm import smollm2
from tinyllm.infer.generate import Generation, generate, last_logits, new_cache
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import DraftModel, PromptLookupDraft, Proposal, speculative_generate
from tinyllm.prob.sampling import UniformSource
from tinyllm.tok.bpe import BPETokenizer
from tinyllm.xfmr.llama import Llama
from tinyllm.zoo import smollm2 as load

K = {"prompt lookup": 8, "n-gram": 4, "model": 2}
PASSAGE = (
    "The old bridge over the river Alm was built by three brothers. They carried every stone from the hill by hand, "
    "and it took them eleven years. In the first winter the water rose and took two of the arches away, so they began "
    "again with larger stones. The youngest brother drew the plan, the second cut the stones, and the eldest laid "
    "them. Today only walkers may cross it. On the last stone, close to the water, you can still read their names."
)
# SmolLM2 goes on with the passage to the letter once it stands there twice; quoted once, it soon paraphrases.
WORD_FOR_WORD = f"{PASSAGE}\n\n{PASSAGE}\n\nThe old bridge over"
NEVER = 64  # ids: a match this long is never found in the request it is tried on

Run = Callable[[str], Generation]


class Timed:
    """A draft that adds up the seconds of its proposals."""

    def __init__(self, draft: DraftModel) -> None:
        self.draft, self.seconds, self.calls = draft, 0.0, 0

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """The draft's own proposal, timed."""
        started = time.perf_counter()
        proposal = self.draft.propose(ctx, k, rng)
        self.seconds += time.perf_counter() - started
        self.calls += 1
        return proposal


def pass_seconds(model: Llama, repetitions: int) -> dict[int, float]:
    """Median T(n) for one row and for the rows of a full draft of each length."""
    cache = new_cache(model, 200)
    last_logits(model, range(100, 164), cache, 1)

    def run(n: int) -> None:
        last_logits(model, range(100, 100 + n), cache, n)
        cache.truncate(64)

    jobs = {n: partial(run, n) for n in sorted({1, *(k + 1 for k in K.values())})}
    return {n: timing.median for n, timing in alternate(jobs, repetitions).items()}


def nothing_found(model: Llama, tok: BPETokenizer, p: SamplingParams, repetitions: int) -> float:
    """Speed against plain decoding of a prompt lookup that looks in every round and never proposes."""
    prompt = smollm2.requests(tok)["chat"]
    draft = PromptLookupDraft(max_ngram=NEVER, min_ngram=NEVER)
    speeds: dict[str, list[float]] = {"plain": [], "lookup": []}

    def plain() -> None:
        speeds["plain"].append(generate(model, tok, prompt, p).stats["tokens_per_s"])

    def lookup() -> None:
        run = speculative_generate(model, draft, tok, prompt, p, k=K["prompt lookup"])
        assert run.stats["drafted"] == 0
        speeds["lookup"].append(run.stats["tokens_per_s"])

    alternate({"plain": plain, "lookup": lookup}, max(repetitions, 15), warm_up=1)
    pairs = zip(speeds["plain"][1:], speeds["lookup"][1:], strict=True)  # neighbours in time, for they are nearly equal
    return statistics.median(looked / never for never, looked in pairs)


def plot(path: Path, speed: dict[str, dict[str, float]]) -> None:
    """Draw the table."""
    import numpy as np

    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure(height=3.6)
    rows = np.arange(len(speed))
    for i, (kind, colour) in enumerate(zip(K, ("kept", "draft", "target"), strict=True)):
        ratios = [found[kind] / found["plain"] for found in speed.values()]
        ax.barh(rows + (i - 1) * 0.25, ratios, 0.22, color=PALETTE[colour], label=f"{kind}, k = {K[kind]}")
    ax.axvline(1, color=PALETTE["line"], linewidth=0.8)
    ax.set(yticks=rows, yticklabels=list(speed), xlabel="tokens a second, against plain decoding")
    ax.invert_yaxis()
    ax.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(repetitions=5)
    parser.add_argument("--tokens", type=int, default=128, help="to write for each request")
    options = parser.parse_args()
    model, tok = load()
    p = SamplingParams(temperature=0, max_tokens=options.tokens)
    speed: dict[str, dict[str, float]] = {}
    details: dict[str, dict[str, Any]] = {}
    passes = pass_seconds(model, 15)
    for name, prompt in {"quoting to the letter": WORD_FOR_WORD, **smollm2.requests(tok)}.items():
        prompt_ids = tok.encode(prompt)
        drafts = {kind: Timed(draft) for kind, draft in smollm2.drafts(model, prompt_ids).items()}
        results: dict[str, list[Generation]] = {kind: [] for kind in ("plain", *drafts)}

        def run(kind: str, prompt: str = prompt, drafts: dict[str, Timed] = drafts) -> Generation:
            if kind == "plain":
                return generate(model, tok, prompt, p)
            return speculative_generate(model, drafts[kind], tok, prompt, p, k=K[kind])

        def keep(kind: str, results: dict[str, list[Generation]] = results, run: Run = run) -> None:
            results[kind].append(run(kind))

        jobs = {kind: partial(keep, kind) for kind in results}
        alternate(jobs, options.repetitions, warm_up=1)
        assert all(one.ids == results["plain"][0].ids for runs in results.values() for one in runs)
        speed[name] = {
            kind: statistics.median(run.stats["tokens_per_s"] for run in runs[1:]) for kind, runs in results.items()
        }
        details[name] = {
            kind: {
                "acceptance_rate": results[kind][0].stats["acceptance_rate"],
                "target_calls": results[kind][0].stats["target_calls"],
                "bound": passes[1] / (passes[K[kind] + 1] + draft.seconds / draft.calls),
            }
            for kind, draft in drafts.items()
        }

    empty = nothing_found(model, tok, p, options.repetitions)

    rows: list[list[object]] = []
    for name, found in speed.items():
        row: list[object] = [name, f"{found['plain']:.1f}"]
        for kind in K:
            detail = details[name][kind]
            row += [f"{found[kind] / found['plain']:.2f}", f"{detail['acceptance_rate']:.2f}", f"{detail['bound']:.2f}"]
        rows.append(row)
    head = ["request", "plain tok/s"]
    for kind in K:
        head += [f"{kind} x", "rate", "bound x"]
    print("each draft: speed against plain, acceptance rate, and the speed if nothing were accepted\n")
    table(head, rows)
    print(f"\nprompt lookup that finds nothing: {empty:.2f} x plain")
    if options.plot:
        plot(options.plot, speed)
    pass_s = {str(n): seconds for n, seconds in passes.items()}
    finish(options, {"k": K, "tokens_per_s": speed, "drafts": details, "pass_s": pass_s, "nothing found": empty})


if __name__ == "__main__":
    main()
