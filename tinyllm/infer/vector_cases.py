"""The questions of the shared vectors: hundreds of small cases that hold another engine to this one.

Each section goes through one part of the contract, from the generator up to whole requests. Its first cases have one
rule each, built so that breaking that rule changes the answer; the last ones mix everything. No case depends on the
platform: what is not written out comes from PCG32, and no exp or log is taken on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from tinyllm.infer.sample import request_rng
from tinyllm.num.exact import ascending_sum
from tinyllm.num.rng import PCG32, PURPOSES

Case = dict[str, Any]
Knobs = dict[str, Any]
INF = math.inf
PLAIN: Knobs = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}

# What a case is about, and what is said when an engine gets it wrong.
RULES: dict[str, str] = {
    # exp_log
    "c-library": "exp and log are the C library's, to the bit.",
    # generator
    "step": "PCG32: the output is a hash of the state before the step; inc is twice the stream number plus 1.",
    "uniform": "A uniform takes two draws, the first one high: ((a >> 5) 2^26 + (b >> 6)) 2^-53.",
    "below": "below(n) redraws while the draw is under (2^32 - n) mod n, then takes it mod n.",
    "shuffle": "shuffle goes from the last place down to the second and swaps place i with place below(i + 1).",
    "substream": "A substream depends on the seed and its purpose alone, never on what was drawn before.",
    # categorical
    "inverse-cdf": "The outcome is the first id whose running sum exceeds u: u < c, strictly.",
    "never-zero": "An id with probability 0 is never an outcome.",
    "last-positive": "When rounding leaves the whole sum at or below u, the outcome is the last id with p > 0.",
    "ascending-sum": "Sums are added left to right in ascending id order, in float64, with nothing compensated.",
    "rounding": "Each operation is rounded once, in float64, as it is written: sums left to right by ascending id, a "
    "division and not a product with an inverse, nothing fused.",
    # rejection
    "accept": "A draft is kept when u < p(x) / q(x): strictly, by one division in float64.",
    "residual": "A rejected draft is replaced from max(0, p - q) / Z, not from p; where Z is 0, it is p itself.",
    "resample": "u_resample picks the replacement from the residual by the inverse CDF, in ascending order.",
    "overlap": "The acceptance probability is the ascending sum of min(p, q).",
    # sampler
    "greedy": "Temperature 0 takes the largest penalised logit, ties go to the lowest id, and nothing is drawn.",
    "temperature": "Logits are divided by the temperature after the penalties and before the filters.",
    "repetition": "The repetition penalty acts once an id of prompt or history: l / r where l > 0, else l r.",
    "presence-frequency": "Presence and frequency count ids of the history alone: l - frequency * count - presence.",
    "logprobs": "Reported logprobs are log-softmax after the penalties and before temperature and filters: "
    "(l - max) - log(sum).",
    "top-k": "top-k keeps k ids by logit, ties by id; -inf never enters; 0 and k >= V switch it off.",
    "top-p": "top-p keeps up to and including the first id at which the running sum is >= p, largest first.",
    "min-p": "min-p keeps q >= min_p max(q), with q taken over what top-k and top-p left.",
    "filter-order": "Filters run in the order top-k, top-p, min-p, each on the softmax of what is left.",
    "masked": "A logit of -inf is never drawn, whatever the filters.",
    "one-uniform": 'A sampled token takes exactly one uniform, from the substream "sample" of the request\'s seed.',
    # lookup, context_ngram, ngram_draft
    "most-recent": "Prompt lookup copies what followed the most recent earlier occurrence.",
    "longest-first": "Prompt lookup tries the longest n-gram first, from max_ngram down to min_ngram.",
    "lookup-overlap": "A lookup's copy may run into the very n-gram that it matched.",
    "at-most-k": "A draft has at most k ids.",
    "most-frequent": "The context n-gram draft takes the most frequent follower; ties go to the lowest id.",
    "longest-suffix": "The longest suffix that occurred earlier decides, from max_ngram - 1 ids down to one.",
    "drafted-count": "Drafted ids count as context for the ones after them.",
    "no-match": "A context n-gram draft stops where nothing matches.",
    "argmax-chain": "Without a generator a model of counts drafts its argmax chain, ties to the lowest id.",
    "draft-draws": "A sampled draft takes one uniform an id and reports the distribution that it drew from.",
    "draft-own": "A model of counts drafts from the softmax of its row, without the request's temperature and filters.",
    # verification
    "greedy-match": "Greedy: drafts are kept while they are the target's own choice; no uniform is drawn.",
    "two-draws": "Each position visited draws u_accept and then u_resample, also when the draft is kept.",
    "given-q": "A draft with distributions is judged by the q(x) that they give, at every position.",
    "one-hot": "A draft without distributions counts as drawn from the one-hot at its own id.",
    "first-rejection": "The first rejection ends the step: its replacement is the last token emitted.",
    "bonus": "After m kept drafts the bonus is a sample of row m, with one uniform.",
    "row-history": "Penalties at each position see the drafts kept before it in the same step.",
    "filters-everywhere": "The filters shape the target's distribution at every position, not at the bonus alone.",
    "empty-draft": "With an empty draft the step is one plain sample of the only row.",
    "mixed": "Everything at once: each rule holds together with the others.",
    # generation
    "plain": "Plain decoding: one token a pass, and the last token is never in the cache.",
    "same-as-plain": "At temperature 0 a speculative request ends as the plain one: ids, logprobs and finish.",
    "rollback": "After a round the cache holds what was committed, the pending tokens and the kept drafts.",
    "budget": "A round drafts at most k, max_tokens - written - 1 and max_len - length - 1 ids.",
    "eos": "An EOS id ends the request where it stands in a round, and is not among the ids.",
    "one-stream": "The draft and the verifier draw from one generator, in program order.",
}


class _Pick:
    """Seeded choices, exact in float64 and so the same on every platform."""

    def __init__(self, seed: int) -> None:
        self.rng = PCG32(seed)

    def ids(self, n: int, below: int) -> list[int]:
        return [self.rng.below(below) for _ in range(n)]

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.rng.below(len(options))]

    def coarse(self, n: int) -> list[float]:
        """Logits that are multiples of 1/2, so that ties are common."""
        return [(self.rng.below(13) - 6) / 2 for _ in range(n)]

    def fine(self, n: int) -> list[float]:
        """Logits with the 24 bits of a float32."""
        return [(self.rng.below(2**24) - 2**23) * 2.0**-21 for _ in range(n)]  # in [-4, 4)

    def masked(self, logits: list[float], share: int = 4) -> list[float]:
        """About one in `share` becomes -inf, never the first."""
        return [logits[0]] + [-INF if self.rng.below(share) == 0 else x for x in logits[1:]]

    def distribution(self, n: int, zeros: bool = True) -> list[float]:
        weights = [self.rng.below(20) + (not zeros) for _ in range(n)]
        weights[self.rng.below(n)] += 1
        return _shares(weights)


def _shares(weights: Sequence[int]) -> list[float]:
    return [w / sum(weights) for w in weights]


def _with(**knobs: Any) -> Knobs:
    return {**PLAIN, **knobs}


def _equal(n: int, kept: Sequence[int]) -> list[float]:
    """Logits whose softmax is exactly 1 / len(kept) at each kept id, on any platform."""
    return [0.0 if i in kept else -INF for i in range(n)]


def _case(name: str, rule: str, **fields: Any) -> Case:
    return {"name": name, "rule": rule, **fields}


# The platform, and the generator.


def exp_log() -> Iterator[Case]:
    """Arguments of exp (as in a softmax) and of log (as of its sum)."""
    pick = _Pick(101)
    for part in range(1, 31):
        u = [pick.rng.uniform() for _ in range(18)]
        x = [-40.0 * v * v for v in u]  # denser near 0, as after a shift by the largest
        y = [1.0 + 63.0 * pick.rng.uniform() for _ in range(10)] + [pick.rng.uniform() for _ in range(4)]
        yield _case(f"exp and log, part {part} of 30", "c-library", x=[*x, 0.0, -INF], y=[*y, 1.0])


def generator() -> Iterator[Case]:
    """Streams by seed, stream number and purpose, and what is asked of them."""

    def ask(name: str, rule: str, seed: int, calls: list[list[Any]], seq: int = 54, **more: Any) -> Case:
        where: dict[str, Any] = {"purpose": None, "drawn_before": 0, **more}
        return _case(name, rule, seed=str(seed), seq=str(seq), **where, calls=calls)

    seeds = [0, 1, 42, 2**31, 2**32 + 7, 2**63, 2**64 - 1, 0xDEADBEEFCAFEBABE]
    for seed in seeds:
        yield ask(f"outputs of seed {seed}", "step", seed, [["next_u32"]] * 8)
    for seq in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        yield ask(f"outputs of stream {seq}", "step", 42, [["next_u32"]] * 4, seq=seq)
    for seed in (0, 7, 2**64 - 1):
        yield ask(f"uniforms of seed {seed}", "uniform", seed, [["uniform"]] * 6)
    yield ask("uniforms and outputs in turn", "uniform", 3, [["uniform"], ["next_u32"], ["uniform"]])
    for n in (1, 2, 3, 10, 255, 49152, 2**31, 2**31 + 1, 3 * 2**30, 2**32 - 1, 2**32):
        yield ask(f"below {n}", "below", 0, [["below", n]] * 8)
    yield ask("below of many bounds", "below", 5, [["below", n] for n in (1, 6, 2**31 + 1, 52, 2**32, 7)])
    for n in (1, 2, 10, 23):
        yield ask(f"shuffle of {n}", "shuffle", n, [["shuffle", n], ["next_u32"]])
    for purpose, seed in product(PURPOSES, (0, 42, 2**64 - 1)):
        yield ask(f"stream {purpose} of seed {seed}", "substream", seed, [["next_u32"]] * 4, purpose=purpose)
    for drawn in (1, 5):
        calls = [["next_u32"], ["uniform"]]
        yield ask(f"stream after {drawn} draws", "substream", 9, calls, purpose="sample", drawn_before=drawn)


# One uniform, one outcome; accept or replace.


def categorical() -> Iterator[Case]:
    """A distribution and a uniform."""
    below_one = math.nextafter(1.0, 0.0)
    half = math.nextafter(0.5, 0.0)
    for p, u in (
        ([0.5, 0.5], 0.0),
        ([0.5, 0.5], half),
        ([0.5, 0.5], 0.5),
        ([0.25, 0.25, 0.5], 0.25),
        ([0.25, 0.25, 0.5], math.nextafter(0.25, 0.0)),
        ([0.25, 0.25, 0.5], below_one),
        ([1.0], below_one),
    ):
        yield _case(f"{u!r} of {p}", "inverse-cdf", p=p, u=u)
    for p, u in (
        ([0.0, 1.0], 0.0),
        ([0.0, 0.0, 1.0, 0.0], 0.0),
        ([0.5, 0.0, 0.5], 0.5),
        ([0.5, 0.5, 0.0], below_one),
        ([0.0, 0.25, 0.0, 0.75], 0.25),
    ):
        yield _case(f"{u!r} of {p}", "never-zero", p=p, u=u)
    for n in (6, 10, 19):
        p = [1 / n] * n
        assert ascending_sum(p) < 1.0
        yield _case(f"{n} equal shares fall short of 1", "last-positive", p=p, u=below_one)
        yield _case(f"{n} equal shares, then zeros", "last-positive", p=[*p, 0.0, 0.0], u=below_one)
    pick, found = _Pick(103), 0
    while found < 10:  # a uniform between the sequential sum and the exactly rounded one
        p = pick.distribution(24, zeros=False)
        at = 4 + pick.rng.below(18)
        ascending, exact = ascending_sum(p[: at + 1]), math.fsum(p[: at + 1])
        if ascending != exact:
            found += 1
            yield _case(f"between two sums, {found}", "ascending-sum", p=p, u=min(ascending, exact))
    for i in range(12):
        p = pick.distribution(pick.one([2, 5, 9]))
        yield _case(f"any distribution, {i + 1}", "inverse-cdf", p=p, u=pick.rng.uniform())


def rejection() -> Iterator[Case]:
    """p, q, a draft x, and the two uniforms of one step."""

    def step(name: str, rule: str, p: list[float], q: list[float], x: int, u: float, v: float = 0.4) -> Case:
        return _case(name, rule, p=p, q=q, x=x, u_accept=u, u_resample=v)

    p, q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
    yield step("the example by hand, rejected", "accept", p, q, 1, 0.7)
    yield step("the example by hand, kept", "accept", p, q, 1, 0.3)
    yield step("u is the ratio: rejected", "accept", p, q, 1, 0.5)
    yield step("u just under the ratio: kept", "accept", p, q, 1, math.nextafter(0.5, 0.0))
    yield step("u = 0 keeps", "accept", p, q, 1, 0.0)
    yield step("u = 0 and p = 0: rejected", "accept", [0.0, 1.0], [0.5, 0.5], 0, 0.0)
    yield step("p above q: always kept", "accept", p, q, 0, math.nextafter(1.0, 0.0))
    p, q = [0.5, 0.25, 0.25], [0.125, 0.125, 0.75]
    for u in (0.0, 0.74, 0.75, 0.9, math.nextafter(0.75, 0.0)):
        yield step(f"residual at {u!r}", "residual", p, q, 2, 0.99, u)
    pick, found = _Pick(107), 0
    while found < 4:  # where u < p / q and u q < p disagree
        p, q = pick.distribution(6, zeros=False), pick.distribution(6, zeros=False)
        x = pick.rng.below(6)
        for u in (p[x] / q[x], math.nextafter(p[x] / q[x], 0.0)):
            if u < 1.0 and (u < p[x] / q[x]) != (u * q[x] < p[x]):
                found += 1
                yield step(f"one division, {found}", "accept", p, q, x, u, pick.rng.uniform())
    for share in ([0.5, 0.5], [0.25, 0.75], [1 / 3, 1 / 3, 1 / 3]):
        yield step(f"p = q = {share}", "residual", share, share, 0, 0.999, 0.3)
    yield step("p = q, u = 0", "residual", [0.5, 0.5], [0.5, 0.5], 1, 0.0, 0.0)
    one, other = [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]
    for x, v in product((2, 3), (0.0, 0.5)):
        yield step(f"disjoint, draft {x}, u_resample {v}", "resample", one, other, x, 0.0, v)
    for x in range(4):
        hot = [float(i == x) for i in range(4)]
        yield step(f"one-hot draft {x}", "resample", [0.125, 0.0, 0.375, 0.5], hot, x, 0.6, 0.85)
    for i in range(4):
        p, q = pick.distribution(24, zeros=False), pick.distribution(24, zeros=False)
        yield step(f"long sums, {i + 1}", "overlap", p, q, 0, 0.0, 0.5)
    for i in range(36):
        n = pick.one([2, 3, 5, 8, 16])
        p, q = pick.distribution(n), pick.distribution(n)
        x = pick.one([j for j in range(n) if q[j] > 0])
        yield step(f"any step, {i + 1}", "mixed", p, q, x, pick.rng.uniform(), pick.rng.uniform())


# From logits to a token.


def sampler() -> Iterator[Case]:
    """Logits, the knobs, the ids before, a seed, and how many tokens to draw from these logits one after another."""

    def draw(
        name: str,
        rule: str,
        logits: list[float],
        seed: int = 0,
        draws: int = 4,
        prompt: Sequence[int] = (),
        history: Sequence[int] = (),
        **knobs: Any,
    ) -> Case:
        ids = {"prompt": list(prompt), "history": list(history)}
        return _case(name, rule, logits=logits, params=_with(**knobs), **ids, seed=str(seed), draws=draws)

    pick = _Pick(109)
    for seed in (0, 1, 42, 2**64 - 1):
        yield draw(f"equal logits, seed {seed}", "one-uniform", [0.0] * 8, seed, draws=8)
    yield draw("only one id is possible", "one-uniform", _equal(5, [3]))
    yield draw("a single id in the vocabulary", "one-uniform", [0.25])
    yield draw("the largest", "greedy", [0.5, 2.0, -1.0], temperature=0.0)
    yield draw("a tie goes to the lowest id", "greedy", [1.0, 3.0, 3.0, 3.0], temperature=0.0)
    yield draw("a tie after -inf", "greedy", [-INF, 0.0, 0.0], temperature=0.0)
    yield draw("filters change nothing", "greedy", [1.0, 1.0, 0.5], temperature=0.0, top_k=1, top_p=0.1, min_p=1.0)
    yield draw("all negative", "greedy", [-3.0, -2.0, -2.0], temperature=0.0)
    for i in range(6):
        yield draw(f"plain, {i + 1}", "logprobs", pick.fine(12), i)
    yield draw("-inf has no logprob to report", "logprobs", pick.masked(pick.fine(12)), 3)
    yield draw("far apart", "logprobs", [0.0, -30.0, -300.0, -800.0], 4)
    for r in (1.25, 2.0, 0.5):
        logits = [2.0, -2.0, 1.0, -1.0, 0.0, -INF]
        yield draw(f"both signs, {r}", "repetition", logits, prompt=[0, 1], history=[5, 3], repetition_penalty=r)
        yield draw(f"once an id, {r}", "repetition", logits, 1, prompt=[0, 0, 0, 4], repetition_penalty=r)
        yield draw(f"greedy, {r}", "repetition", [1.0, 1.5, 1.25], temperature=0.0, repetition_penalty=r)
    yield draw("prompt alone", "repetition", [1.5, 1.0], prompt=[0], temperature=0.0, repetition_penalty=2.0, draws=3)
    for f, c in ((0.5, 0.0), (0.0, 0.75), (0.5, 0.25), (-0.5, 0.0), (0.0, -0.75)):
        knobs: Knobs = {"frequency_penalty": f, "presence_penalty": c}
        logits = [1.0, 0.5, 0.0, -0.5, -INF]
        yield draw(f"f {f}, p {c}", "presence-frequency", logits, history=[0, 0, 1, 4], prompt=[2, 3], **knobs)
        yield draw(f"f {f}, p {c}, greedy", "presence-frequency", logits, draws=6, temperature=0.0, **knobs)
        yield draw(f"f {f}, p {c}, prompt", "presence-frequency", logits, 2, prompt=[0] * 3, draws=1, **knobs)
    # Two ids that tie where f * count is rounded: neither a fused product nor f taken off count times has the tie.
    for f, logits in ((0.3, [1.625, 3.125]), (0.3, [2.0, 3.5]), (1.7, [7.5, 16.0])):
        knobs = {"temperature": 0.0, "frequency_penalty": f}
        yield draw(f"f {f}, a tie after {logits}", "rounding", logits, history=[0] * 2 + [1] * 7, draws=1, **knobs)
    order: Knobs = {"repetition_penalty": 2.0, "frequency_penalty": 1.5}
    yield draw("repetition comes first", "presence-frequency", [1.0, 0.0], history=[0], draws=2, **order)
    for t in (0.25, 0.5, 0.7, 1.5, 4.0):
        yield draw(f"temperature {t}", "temperature", pick.fine(10), temperature=t)
        weak: Knobs = {"temperature": t, "presence_penalty": 0.5}
        yield draw(f"penalty before temperature {t}", "temperature", pick.fine(6), 5, history=[0, 1], **weak)
    logits = [1.0, 3.0, 2.0, 3.0, 2.0, 3.0]
    for k in (1, 2, 3, 4, 5, 6, 7):
        yield draw(f"top {k} with ties", "top-k", logits, k, draws=6, top_k=k)
    for k in (2, 4):
        yield draw(f"top {k}, two are possible", "top-k", _equal(6, [1, 4]), draws=6, top_k=k)
    # Powers of two as shares: the running sums are exact, and hit p exactly.
    even = [0.0] * 4
    for top_p in (0.25, 0.5, math.nextafter(0.5, 1.0), math.nextafter(0.5, 0.0), 0.75, 1e-9, math.nextafter(1.0, 0.0)):
        yield draw(f"four equal, p {top_p!r}", "top-p", even, 7, draws=6, top_p=top_p)
        yield draw(f"two of six, p {top_p!r}", "top-p", _equal(6, [2, 5]), 8, draws=6, top_p=top_p)
    for i, top_p in enumerate((0.1, 0.3, 0.6, 0.9, 0.99)):
        yield draw(f"top-p {top_p}", "top-p", pick.fine(12), i, top_p=top_p)
    for min_p in (0.01, 0.1, 0.4, 1.0):
        yield draw(f"min-p {min_p}", "min-p", pick.fine(12), 2, min_p=min_p)
        yield draw(f"min-p {min_p}, ties", "min-p", pick.coarse(12), 3, min_p=min_p)
    yield draw("top-k before top-p", "filter-order", [2.0, 2.0, 2.0, 2.0, 0.0], 1, draws=8, top_k=2, top_p=0.5)
    yield draw("top-p before min-p", "filter-order", [2.0, 1.0, 0.0, -1.0, -1.0], 2, top_p=0.8, min_p=0.2)
    for i in range(8):
        knobs = {"top_k": pick.one([3, 6]), "top_p": pick.one([0.5, 0.8]), "min_p": pick.one([0.1, 0.5])}
        yield draw(f"three filters, {i + 1}", "filter-order", pick.one([pick.fine, pick.coarse])(12), i, **knobs)
    for i in range(6):
        filters: list[Knobs] = [{}, {"top_k": 8}, {"top_p": 0.95}, {"min_p": 0.02}, {"temperature": 3.0}]
        knobs = [*filters, {"temperature": 0.0}][i]
        yield draw(f"half are masked, {i + 1}", "masked", pick.masked(pick.fine(10), 2), i, **knobs)
    for i in range(40):
        logits = pick.one([pick.fine, pick.coarse])(pick.one([6, 12, 32]))
        logits = pick.masked(logits) if pick.rng.below(2) else logits
        yield draw(
            f"everything, {i + 1}",
            "mixed",
            logits,
            pick.rng.next_u32(),
            prompt=pick.ids(pick.one([0, 3, 6]), len(logits)),
            history=pick.ids(pick.one([0, 2, 5]), len(logits)),
            **_some_knobs(pick),
        )


def _some_knobs(pick: _Pick, temperatures: Sequence[float] = (0.0, 0.6, 1.0, 1.0, 1.5)) -> Knobs:
    return {
        "temperature": pick.one(temperatures),
        "top_k": pick.one([0, 0, 1, 4, 9]),
        "top_p": pick.one([1.0, 1.0, 0.9, 0.5]),
        "min_p": pick.one([0.0, 0.0, 0.05, 0.3]),
        "repetition_penalty": pick.one([1.0, 1.0, 1.25, 0.75]),
        "presence_penalty": pick.one([0.0, 0.0, 0.5, -0.25]),
        "frequency_penalty": pick.one([0.0, 0.0, 0.25, -0.125]),
    }


# Drafts.


def lookup() -> Iterator[Case]:
    """Contexts for prompt lookup."""

    def look(name: str, rule: str, ctx: Sequence[int], k: int = 4, most: int = 3, least: int = 1) -> Case:
        return _case(name, rule, ctx=list(ctx), k=k, max_ngram=most, min_ngram=least)

    yield look("two occurrences", "most-recent", [1, 2, 9, 1, 2, 5, 1, 2])
    yield look("one id, three times", "most-recent", [4, 1, 4, 2, 4], most=1)
    yield look("most recent of one id", "most-recent", [3, 1, 3, 2, 3], most=2)
    yield look("the example by hand", "longest-first", [1, 2, 3, 9, 1, 2], k=3)
    yield look("the longer match is older", "longest-first", [5, 1, 2, 3, 8, 2, 7, 5, 1, 2], k=2)
    for most in (1, 2, 3, 4):
        yield look(f"at most {most}", "longest-first", [1, 2, 3, 4, 6, 3, 4, 7, 4, 8, 2, 3, 4], k=2, most=most)
    for least in (1, 2, 3):
        yield look(f"at least {least}", "longest-first", [1, 2, 5, 2, 3, 2], most=3, least=least)
    yield look("too few for the least", "longest-first", [4, 4], most=3, least=2)
    yield look("runs into the suffix", "lookup-overlap", [1, 2, 1, 2, 1, 2], most=2)
    yield look("runs into the suffix, n 3", "lookup-overlap", [1, 2, 1, 2, 1, 2])
    yield look("all the same", "lookup-overlap", [7, 7, 7, 7], most=2)
    yield look("two the same", "lookup-overlap", [7, 7])
    for k in (0, 1, 2, 3, 9):
        yield look(f"k {k}", "at-most-k", [1, 2, 3, 9, 1, 2], k=k)
    for ctx in ([], [3], [1, 2, 3, 4]):
        yield look(f"nothing to copy in {ctx}", "most-recent", ctx)
    pick = _Pick(113)
    for i in range(60):
        most = pick.one([1, 2, 3, 5])
        least = 1 + pick.rng.below(most)
        ctx = pick.ids(pick.one([5, 12, 40]), pick.one([2, 3, 6]))
        yield look(f"any context, {i + 1}", "mixed", ctx, pick.one([1, 4, 8]), most, least)


def context_ngram() -> Iterator[Case]:
    """Contexts for the draft that counts what followed in the request's own ids."""

    def follow(name: str, rule: str, ctx: Sequence[int], k: int = 4, most: int = 3) -> Case:
        return _case(name, rule, ctx=list(ctx), k=k, max_ngram=most)

    yield follow("two against one", "most-frequent", [1, 2, 1, 3, 1, 2, 1], k=1, most=2)
    yield follow("a tie goes to the lowest id", "most-frequent", [1, 5, 1, 2, 1], k=1, most=2)
    yield follow("a tie that a later id would win", "most-frequent", [1, 2, 1, 5, 1], k=1, most=2)
    yield follow("a pair outweighs a more frequent single", "longest-suffix", [4, 1, 7, 1, 2, 1, 2, 4, 1], k=1)
    for most in (2, 3, 4, 5):
        ctx = [1, 2, 3, 5, 2, 3, 6, 3, 7, 3, 7, 1, 2, 3]
        yield follow(f"at most {most}", "longest-suffix", ctx, k=1, most=most)
    yield follow("a pair that overlaps itself", "longest-suffix", [1, 2, 1, 2, 1, 2, 1, 1, 1], k=1)
    yield follow("a cycle goes on", "drafted-count", [1, 2, 3, 1], k=7)
    yield follow("counts move while drafting", "drafted-count", [1, 1, 2, 1, 1, 2, 1], k=8, most=2)
    yield follow("one id repeats", "drafted-count", [7, 7], k=5)
    for ctx in ([], [3], [1, 2, 3, 4]):
        yield follow(f"nothing matches in {ctx}", "no-match", ctx)
    for k in (0, 1, 2):
        yield follow(f"k {k}", "at-most-k", [1, 2, 3, 1, 2], k=k)
    pick = _Pick(127)
    for i in range(40):
        ctx = pick.ids(pick.one([4, 12, 40]), pick.one([2, 3, 6]))
        yield follow(f"any context, {i + 1}", "mixed", ctx, pick.one([1, 4, 8]), pick.one([2, 3, 4]))


def ngram_draft() -> Iterator[Case]:
    """A model of counts given as a table: row i holds the log-probabilities, or any logits, after the id i."""

    def propose(name: str, rule: str, table: list[list[float]], ctx: list[int], k: int, seed: int | None) -> Case:
        return _case(name, rule, table=table, ctx=ctx, k=k, seed=None if seed is None else str(seed))

    chain = [[0.0, 1.0, 0.5], [0.5, 0.0, 1.0], [1.0, 0.5, 0.0]]
    yield propose("a circle", "argmax-chain", chain, [0], 5, None)
    yield propose("ties", "argmax-chain", [[1.0, 1.0], [0.0, 0.0]], [1], 3, None)
    yield propose("k 0", "argmax-chain", chain, [2], 0, None)
    for k in (0, 1, 3):
        yield propose(f"equal rows, k {k}", "draft-draws", [[0.0] * 4] * 4, [1, 2], k, 0)
    pick = _Pick(131)
    for i in range(24):
        v = pick.one([3, 5, 8])
        rows = [pick.masked(pick.one([pick.fine, pick.coarse])(v)) for _ in range(v)]
        rule, seed = ("argmax-chain", None) if i % 3 == 0 else ("draft-draws", i)
        yield propose(f"any table, {i + 1}", rule, rows, pick.ids(3, v), pick.one([1, 2, 4]), seed)


# Verification.


def verification() -> Iterator[Case]:
    """Rows of target logits, a draft and what it was drawn from, the knobs, the ids before, and a seed."""

    def verify(
        name: str,
        rule: str,
        logits: list[list[float]],
        draft: list[int],
        draft_probs: list[list[float]] | None = None,
        seed: int = 0,
        prompt: Sequence[int] = (),
        output: Sequence[int] = (),
        **knobs: Any,
    ) -> Case:
        ids = {"prompt": list(prompt), "output": list(output)}
        asked = {"logits": logits, "draft": draft, "draft_probs": draft_probs, "params": _with(**knobs)}
        return _case(name, rule, **asked, **ids, seed=str(seed))

    by_hand = [[0.0, 1.0, 3.0], [2.0, 1.0, 0.0], [0.0, 5.0, 1.0]]
    for draft in ([2, 1], [2, 0], [0, 0], [1, 1]):
        yield verify(f"by hand, draft {draft}", "greedy-match", by_hand, draft, temperature=0.0)
    yield verify("greedy ties", "greedy-match", [[1.0, 1.0], [0.0, 2.0]], [1], temperature=0.0)
    skew = [[0.25, 0.25, 0.5]] * 2
    yield verify("greedy ignores draft_probs", "greedy-match", by_hand, [2, 0], skew, temperature=0.0)
    # Each kept draft and each bonus below is the only possible one, so nothing but the count of draws can differ.
    for m in (1, 2, 3):
        rows = [_equal(4, [i]) for i in range(m + 1)]
        probs = [[float(i == x) for i in range(4)] for x in range(m)]
        yield verify(f"{m} kept, nothing else is possible", "two-draws", rows, list(range(m)), probs)
    open_row, sure = [0.0] * 4, _equal(4, [1])
    for seed in range(4):
        yield verify(f"p = q, seed {seed}", "given-q", [open_row, sure], [2], [[0.25] * 4], seed)
    # The ratio is 1/2. The only replacement is 3, which u_resample >= 3/4 would choose from p as well.
    for rule, seeds in (
        ("given-q", _seeds(lambda u_accept, u_resample: u_accept >= 0.5 and u_resample >= 0.75)),
        ("two-draws", _seeds(lambda u_accept, u_resample: u_accept < 0.5 <= u_resample)),
    ):
        for seed in seeds:
            yield verify(
                f"a ratio of one half, seed {seed}", rule, [open_row, sure], [2], [[0.25, 0.25, 0.5, 0.0]], seed
            )
    yield verify("one rejected, nothing else is possible", "two-draws", [sure, sure], [3], [[0.0, 0.0, 0.0, 1.0]])
    pick = _Pick(137)
    for seed in range(6):
        rows, probs = [[0.0] * 4] * 2, [[0.125, 0.125, 0.5, 0.25]]
        yield verify(f"q is no p, seed {seed}", "residual", rows, [2], probs, seed)
    # top-k leaves 0 and 1, and q takes half of 1's share: 2/3 and 1/3 are lacking. Unfiltered it would be 0 alone.
    for seed in _seeds(lambda u_accept, u_resample: u_resample >= 0.7):
        rows, probs = [[0.0] * 4] * 2, [[0.0, 0.25, 0.25, 0.5]]
        yield verify(f"the residual of what is left, seed {seed}", "residual", rows, [3], probs, seed, top_k=2)
    for x in range(4):
        yield verify(f"impossible or sure, draft {x}", "one-hot", [_equal(4, [1, 2])] * 2, [x], seed=x)
    for seed in range(6):
        yield verify(f"one in two, seed {seed}", "one-hot", [_equal(4, [0, 2])] * 2, [2], seed=seed)
    for seed in range(8):  # u_accept of this seed is the ratio p / q, or its neighbour
        u = request_rng(100 + seed).uniform()
        n = next(n for n in range(1, 99) if 1 / n < u)
        rejecting = _smallest_rejecting(1 / n, u)
        for name, q in (("rejects", rejecting), ("keeps", math.nextafter(rejecting, 0.0))):
            rows, probs = [_equal(n + 1, range(n))] * 2, [[q, *[0.0] * (n - 1), 1 - q]]
            yield verify(f"the edge {name}, seed {seed}", "accept", rows, [0], probs, 100 + seed)
    for seed in range(6):
        rows = [_equal(4, [0]), _equal(4, [2, 3]), _equal(4, [1]), [0.0] * 4]
        yield verify(f"the second may go, seed {seed}", "first-rejection", rows, [0, 2, 1], seed=seed)
    for m in (1, 2, 4):
        rows = [_equal(6, [i]) for i in range(m)] + [pick.fine(6)]
        yield verify(f"bonus after {m}", "bonus", rows, list(range(m)), seed=m)
        yield verify(f"filtered bonus after {m}", "bonus", rows, list(range(m)), seed=m, top_k=2, temperature=0.5)
    flat = [[2.0, 1.625, 0.25]] * 5
    yield verify("frequency", "row-history", flat, [0, 1, 0, 1], temperature=0.0, frequency_penalty=1.0)
    yield verify("presence", "row-history", flat, [0, 1, 2, 0], temperature=0.0, presence_penalty=1.0)
    strong: Knobs = {"repetition_penalty": 1e9}
    yield verify("repetition", "row-history", [[1.0, 1.0, 0.0]] * 3, [0, 0], temperature=0.0, **strong)
    for seed in range(8):
        yield verify(f"sampled, seed {seed}", "row-history", flat, [0, 0, 1, 2], seed=seed, frequency_penalty=4.0)
    knobs: Knobs = {"temperature": 0.0, "frequency_penalty": 0.25, "repetition_penalty": 1.25}
    yield verify("output and prompt", "row-history", flat, [1, 0, 1, 0], None, 0, [0], [1, 1], **knobs)
    filters: Knobs = {"min_p": 0.3, "top_k": 2, "top_p": 0.5, "temperature": 0.2}
    for seed, (knob, value) in enumerate(filters.items()):
        rows, knobs = [[3.0, 2.5, -1.0]] * 3, {knob: value}
        yield verify(knob, "filters-everywhere", rows, [1, 2], seed=seed, **knobs)
        yield verify(f"{knob}, with q", "filters-everywhere", rows, [0, 1], skew, seed, **knobs)
    for seed in range(4):
        temperature = 0.0 if seed == 3 else 1.0
        yield verify(f"no draft, seed {seed}", "empty-draft", [pick.fine(8)], [], seed=seed, temperature=temperature)
    yield verify("no draft, no rows of draft_probs", "empty-draft", [pick.fine(8)], [], [], 5)
    for i in range(90):
        v, m = pick.one([4, 8, 12]), pick.one([0, 1, 2, 4])
        kind = pick.one([pick.fine, pick.coarse])
        knobs = _some_knobs(pick)
        rows = [kind(v) for _ in range(m + 1)]
        if pick.rng.below(2):
            rows = [pick.masked(row) for row in rows]
        draft, drawn_from = pick.ids(m, v), None
        if pick.rng.below(3):
            drawn_from = [pick.distribution(v) for _ in range(m)]
            draft = [pick.one([j for j in range(v) if q[j] > 0]) for q in drawn_from]
        elif knobs["temperature"] == 0.0 or pick.rng.below(2):  # guesses that have a chance
            draft = [row.index(max(row)) for row in rows[:m]]
        prompt, output = pick.ids(pick.one([0, 4]), v), pick.ids(pick.one([0, 3]), v)
        yield verify(
            f"everything, {i + 1}", "mixed", rows, draft, drawn_from, pick.rng.next_u32(), prompt, output, **knobs
        )


def _seeds(wanted: Callable[[float, float], bool]) -> list[int]:
    """The first four seeds whose request draws such a pair of uniforms first."""
    draws = ((seed, request_rng(seed)) for seed in range(1000))
    return [seed for seed, rng in draws if wanted(rng.uniform(), rng.uniform())][:4]


def _smallest_rejecting(p: float, u: float) -> float:
    """The smallest q with p / q <= u, so that u rejects; with the next smaller q it keeps."""
    q = p / u
    while p / q <= u:
        q = math.nextafter(q, 0.0)
    while p / q > u:
        q = math.nextafter(q, 1.0)
    return q


# Whole requests.


def generation() -> Iterator[Case]:
    """A target given as a table, a draft, and a request.

    The row of logits after a context is number s, where s begins as 0 and each id makes it (3 s + id + 1) mod the
    number of rows: it depends on every id of the context and on their order, so a stale cache shows.
    """

    def request(
        name: str,
        rule: str,
        rows: list[list[float]],
        prompt: list[int],
        draft: dict[str, Any] | None,
        k: int = 4,
        max_tokens: int = 16,
        max_len: int = 64,
        eos_ids: Sequence[int] = (),
        seed: int = 0,
        **knobs: Any,
    ) -> Case:
        limits = {"k": k, "max_tokens": max_tokens, "max_len": max_len, "eos_ids": list(eos_ids)}
        what = {"rows": rows, "prompt": prompt, "draft": draft, **limits, "params": _with(**knobs)}
        return _case(name, rule, **what, seed=str(seed))

    pick = _Pick(139)
    look: dict[str, Any] = {"kind": "lookup", "max_ngram": 3, "min_ngram": 1}
    count: dict[str, Any] = {"kind": "context_ngram", "max_ngram": 3}
    rows = [pick.coarse(6) for _ in range(16)]
    table = {"kind": "ngram", "table": [pick.coarse(6) for _ in range(6)]}
    drafts: dict[str, dict[str, Any]] = {"lookup": look, "context n-gram": count, "n-gram": table}
    prompt = [1, 2, 3, 1, 2]
    yield request("greedy", "plain", rows, prompt, None, temperature=0.0)
    yield request("sampled", "plain", rows, prompt, None)
    yield request("one token", "plain", rows, prompt, None, max_tokens=1)
    yield request("penalties", "plain", rows, prompt, None, repetition_penalty=1.5, frequency_penalty=0.25)
    for name, draft in drafts.items():
        yield request(f"{name}, room for one", "budget", rows, prompt, draft, 4, 1, temperature=0.0)
        yield request(f"{name}, one place left", "budget", rows, prompt, draft, 4, 16, len(prompt) + 1, temperature=0.0)
        yield request(f"{name}, no place left", "budget", rows, prompt, draft, 4, 16, len(prompt), temperature=0.0)
    for name, draft in drafts.items():
        for k in (0, 1, 2, 4, 7):
            rule = "rollback" if k else "same-as-plain"
            yield request(f"greedy {name}, k {k}", rule, rows, prompt, draft, k, 24, temperature=0.0)
        weak: Knobs = {"temperature": 0.0, "frequency_penalty": 0.5, "repetition_penalty": 1.25}
        yield request(f"greedy {name}, penalties", "same-as-plain", rows, prompt, draft, 4, 24, **weak)
    for name, draft in drafts.items():
        for max_tokens in (2, 3, 5):
            yield request(f"{name}, {max_tokens} tokens", "budget", rows, prompt, draft, 4, max_tokens, temperature=0.0)
        for max_len in (7, 9, 12):
            yield request(f"{name}, max_len {max_len}", "budget", rows, prompt, draft, 4, 16, max_len, temperature=0.0)
    for name, draft in drafts.items():
        for eos in range(6):
            yield request(f"{name}, EOS {eos}", "eos", rows, prompt, draft, 4, 24, eos_ids=[eos], temperature=0.0)
        yield request(f"{name}, two EOS ids", "eos", rows, prompt, draft, 3, 24, eos_ids=[0, 4], seed=2)
    for name, draft in drafts.items():
        for seed in range(3):
            yield request(f"sampled {name}, seed {seed}", "one-stream", rows, prompt, draft, 3, 20, seed=seed)
    shaping: Knobs = {"temperature": 0.25, "top_k": 1, "min_p": 0.5}
    for seed, (knob, value) in enumerate(shaping.items()):
        own: Knobs = {knob: value}
        yield request(f"the draft knows no {knob}", "draft-own", rows, prompt, table, 3, 20, seed=seed, **own)
    for i in range(30):
        v = pick.one([4, 8])
        rows = [pick.one([pick.fine, pick.coarse])(v) for _ in range(pick.one([7, 16]))]
        table = {"kind": "ngram", "table": [pick.coarse(v) for _ in range(v)]}
        draft = pick.one([look, count, table])
        knobs = _some_knobs(pick)
        k, eos = pick.one([1, 3, 6]), pick.one([[], [0]])
        seed = pick.rng.next_u32()
        name = f"everything, {i + 1}"
        yield request(name, "mixed", rows, pick.ids(6, v), draft, k, 20, 24, eos, seed, **knobs)


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    section.__name__: section
    for section in (
        exp_log,
        generator,
        categorical,
        rejection,
        sampler,
        lookup,
        context_ngram,
        ngram_draft,
        verification,
        generation,
    )
}
