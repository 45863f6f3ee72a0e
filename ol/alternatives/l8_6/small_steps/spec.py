"""Speculative decoding in small steps: a round is an object, and each draft scans its context anew.

Nothing is indexed and little is shared: prompt lookup reads the whole context for each proposal, and the verifier
treats the greedy and the sampled case in two functions. The rules are the contract's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.infer.generate import Generation, OnText, Round, Transcript, cache_dims
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import Ids, SamplingParams, request_rng, sample, sampling_distribution, token_logprobs
from tinyllm.lm.ngram import NGramLM
from tinyllm.prob.rejection import speculative_step
from tinyllm.prob.sampling import UniformSource
from tinyllm.tok.base import TextCodec

Proposal = tuple[list[int], NDArray[np.float64] | None]


class DraftModel(Protocol):
    """Anything that guesses how a context goes on."""

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """Up to `k` ids after `ctx`, and the distributions `[len(ids), V]` they were drawn from, or None."""
        ...


class PromptLookupDraft:
    """Copies what followed the most recent earlier occurrence of the context's last few ids."""

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1) -> None:
        if min_ngram < 1:
            raise ValueError(f"min_ngram is {min_ngram} and must be at least 1.")
        if max_ngram < min_ngram:
            raise ValueError(f"max_ngram {max_ngram} is below min_ngram {min_ngram}.")
        self.max_ngram = max_ngram
        self.min_ngram = min_ngram

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None = None) -> Proposal:
        """Up to `k` ids copied from `ctx`, longest n-gram first."""
        ids = tuple(ctx)
        for n in reversed(range(self.min_ngram, self.max_ngram + 1)):
            suffix = ids[len(ids) - n :] if n <= len(ids) else None
            for end in range(len(ids) - 1, n - 1, -1):
                if k > 0 and ids[end - n : end] == suffix:
                    return [int(x) for x in ids[end : end + k]], None
        return [], None


class ContextNGramDraft:
    """Follows the most frequent continuation of the last ids in the request's own context."""

    def __init__(self, max_ngram: int = 3) -> None:
        if max_ngram <= 1:
            raise ValueError(f"max_ngram {max_ngram} leaves nothing to match.")
        self.max_ngram = max_ngram

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None = None) -> Proposal:
        """Up to `k` ids, each as if the ones before it were context."""
        text = list(ctx)
        for _ in range(k):
            if (best := self._most_frequent(text)) is None:
                break
            text.append(best)
        return text[len(ctx) :], None

    def _most_frequent(self, text: list[int]) -> int | None:
        for m in range(self.max_ngram - 1, 0, -1):
            if m >= len(text):
                continue
            followed = Counter(text[i + m] for i in range(len(text) - m) if text[i : i + m] == text[-m:])
            if followed:
                most = max(followed.values())
                return min(token for token, count in followed.items() if count == most)
        return None


class NGramDraft:
    """Drafts from a fitted n-gram model."""

    def __init__(self, lm: NGramLM) -> None:
        self.lm = lm

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """`k` ids, each from the model after `ctx` and the ids before it."""
        ids: list[int] = []
        rows: list[NDArray[np.float64]] = []
        for _ in range(k):
            token, row = _one_guess(self.lm.logprobs([*ctx, *ids]), SamplingParams(), rng)
            ids.append(token)
            rows.append(row)
        return ids, None if rng is None or not ids else np.array(rows)


class ModelDraft:
    """Drafts with a smaller model over a KV cache of its own, as long as the model allows."""

    def __init__(self, model: Any, temperature: float = 1.0) -> None:
        if not temperature > 0 or math.isinf(temperature):
            raise ValueError(f"a temperature of {temperature} cannot be sampled at.")
        self.model = model
        self.temperature = temperature
        self.cache = _cache_for(model, cache_dims(model).max_len, np.float32)
        self.known: list[int] = []

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """`k` ids, fewer where the model's max_len is near. ValueError for an empty `ctx`."""
        if len(ctx) == 0:
            raise ValueError("an empty context has no last id to feed.")
        text = [int(x) for x in ctx]
        p = SamplingParams(temperature=self.temperature)
        rows: list[NDArray[np.float64]] = []
        while len(rows) < k and len(text) < self.cache.max_len:
            token, row = _one_guess(self._after(text), p, rng)
            text.append(token)
            rows.append(row)
        return text[len(ctx) :], np.array(rows) if rng is not None and rows else None

    def _after(self, text: list[int]) -> NDArray[Any]:
        same = 0
        while same < min(len(self.known), len(text) - 1) and self.known[same] == text[same]:
            same += 1
        self.cache.truncate(same)
        self.known = list(text)
        return _feed(self.model, text[same:], self.cache)[-1]


def _one_guess(
    logits: ArrayLike, p: SamplingParams, rng: UniformSource | None
) -> tuple[int, NDArray[np.float64]]:
    """The next id of a draft, and the distribution that it comes from (at `rng` None: the largest of)."""
    if rng is None:
        return int(np.argmax(np.asarray(logits))), np.empty(0)
    return sample(logits, p, [], rng)[0], sampling_distribution(logits, p)


def _cache_for(model: Any, room: int, dtype: DTypeLike) -> KVCache:
    dims = cache_dims(model)
    return KVCache(dims.n_layers, dims.n_kv_heads, dims.d_head, max(room, 1), dtype=dtype)


def _feed(model: Any, ids: list[int], cache: KVCache) -> NDArray[Any]:
    """One pass over all of `ids`; the logits after each, `[T, V]`."""
    result = model.forward(np.array([ids]), cache.positions(len(ids)), cache)
    return np.asarray(result if isinstance(result, np.ndarray) else result.data)[0]


def verify_draft(
    target_logits: ArrayLike,
    draft_ids: Sequence[int],
    draft_probs: ArrayLike | None,
    p: SamplingParams,
    history: Ids,
    rng: UniformSource | None,
    prompt: Ids = (),
) -> tuple[list[int], int]:
    """Keep what the target agrees to, and add one token: `(emitted, n_accepted)`. ValueError for wrong shapes."""
    rows = np.array(target_logits)
    if rows.ndim != 2:
        raise ValueError(f"target_logits need two axes, not {rows.ndim}.")
    if rows.shape[0] - 1 != len(draft_ids):
        raise ValueError(f"target_logits have {rows.shape[0]} rows for {len(draft_ids)} drafts and the token after.")
    for x in draft_ids:
        if not isinstance(x, int | np.integer) or not 0 <= x < rows.shape[1]:
            raise ValueError(f"draft_ids hold {x!r}, which is no id of this vocabulary.")
    for x in history:
        if not isinstance(x, int | np.integer):
            raise ValueError(f"history holds {x!r}, which is no id.")
    if draft_probs is None:
        q = (np.arange(rows.shape[1]) == np.asarray(draft_ids, dtype=np.int64)[:, None]).astype(np.float64)
    else:
        q = np.asarray(draft_probs, dtype=np.float64)
        if q.shape != (len(draft_ids), rows.shape[1]):
            raise ValueError(f"draft_probs of shape {q.shape} do not belong to these drafts.")
    past = [int(x) for x in history]
    before = len(past)
    for i, x in enumerate(draft_ids):
        if p.temperature == 0:
            token = sample(rows[i], p, past, None, prompt)[0]
            kept = token == x
        else:
            token, kept = _sampled(rows[i], q[i], int(x), p, past, rng, prompt)
        past.append(token)
        if not kept:
            return past[before:], i
    past.append(sample(rows[-1], p, past, rng, prompt)[0])
    return past[before:], len(draft_ids)


def _sampled(
    row: NDArray[Any],
    q: NDArray[np.float64],
    x: int,
    p: SamplingParams,
    past: list[int],
    rng: UniformSource | None,
    prompt: Ids,
) -> tuple[int, bool]:
    if rng is None:
        raise ValueError("sampled verification needs an rng.")
    u_accept = rng.uniform()
    u_resample = rng.uniform()
    return speculative_step(sampling_distribution(row, p, past, prompt), q, x, u_accept, u_resample)


@dataclass
class _Tally:
    drafted: int = 0
    accepted: int = 0
    passes: int = 0


def speculative_generate(
    target: Any,
    draft: DraftModel,
    tok: TextCodec,
    prompt: str,
    p: SamplingParams,
    k: int = 4,
    kv_dtype: DTypeLike = np.float32,
    eos_ids: Collection[int] = (),
    on_text: OnText | None = None,
    on_round: Callable[[Round], Any] | None = None,
) -> Generation:
    """Continue `prompt` with up to `k` draft tokens checked in each target pass. ValueError for bad arguments."""
    if not isinstance(k, int | np.integer) or k < 0:
        raise ValueError(f"k cannot be {k!r}.")
    if isinstance(draft, type) or not hasattr(draft, "propose"):
        raise ValueError("draft must be an object that can propose.")
    out = Transcript(tok, prompt, p, cache_dims(target).max_len, eos_ids, on_text)
    cache = _cache_for(target, len(out.prompt_ids) + out.room(), kv_dtype)
    rng = request_rng(p.seed or 0)
    tally = _Tally()
    done = out.finish_reason is not None
    while not done:
        everything = [*out.prompt_ids, *out.ids]
        most = min(int(k), out.room() - 1)
        ids: list[int] = []
        probs: NDArray[np.float64] | None = None
        if most > 0:
            ids, probs = draft.propose(everything, most, rng if p.temperature > 0 else None)
        if len(ids) > most:
            raise ValueError(f"the draft gave {len(ids)} ids and was asked for {most}.")
        behind = everything[cache.seq_len() :]
        rows = _feed(target, [*behind, *ids], cache)[len(behind) - 1 :]  # [m + 1, V]
        emitted, n = verify_draft(rows, ids, probs, p, out.ids, rng, out.prompt_ids)
        cache.truncate(len(everything) + n)
        tally.drafted += len(ids)
        tally.accepted += n
        tally.passes += 1
        for i, token in enumerate(emitted):
            out.draw(rows[i])
            logprob = float(token_logprobs(rows[i], p, out.ids, out.prompt_ids)[token])
            out.add(token, logprob)
            if done := out.finish_reason is not None:
                break
        kind = "bonus" if n == len(ids) else "correction"
        this = Round(tuple(int(x) for x in ids), n, emitted[-1], kind)
        out.end_round(this)
        if on_round is not None and on_round(this) is False:
            out.cancel()
            done = True
    return out.result(
        drafted=float(tally.drafted),
        accepted=float(tally.accepted),
        acceptance_rate=tally.accepted / max(tally.drafted, 1),
        target_calls=float(tally.passes),
    )
