"""Speculative decoding by somebody who uses nothing of plain decoding but its record.

EOS, stop strings, the budget and streaming are decided here again, over the whole text of the request, and the
verifier works in two sweeps: first it decides how many drafts stay, then it adds the target's own token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.infer.generate import Generation, OnText, Round, cache_dims
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import (
    Ids,
    SamplingParams,
    request_rng,
    sample,
    sampled_entropy,
    sampling_distribution,
    token_logprobs,
)
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
        if not (max_ngram >= min_ngram >= 1):
            raise ValueError(f"n-grams of {min_ngram} to {max_ngram} ids make no sense.")
        self.sizes = list(range(max_ngram, min_ngram - 1, -1))

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None = None) -> Proposal:
        """Up to `k` ids copied from `ctx`, longest n-gram first."""
        ids = np.array(ctx, dtype=np.int64)
        for n in self.sizes if k > 0 else []:
            if len(ids) > n:
                windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], n)  # [len - n, n]
                starts = np.flatnonzero((windows == ids[len(ids) - n :]).all(axis=1))
                if len(starts):
                    first = int(starts[-1]) + n
                    return ids[first : first + k].tolist(), None
        return [], None


class ContextNGramDraft:
    """Follows the most frequent continuation of the last ids in the request's own context."""

    def __init__(self, max_ngram: int = 3) -> None:
        if max_ngram < 2:
            raise ValueError(f"a max_ngram of {max_ngram} matches nothing.")
        self.max_ngram = max_ngram

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None = None) -> Proposal:
        """Up to `k` ids, each as if the ones before it were context."""
        draft: list[int] = []
        while len(draft) < k:
            ids = np.array([*ctx, *draft], dtype=np.int64)
            for m in range(min(self.max_ngram - 1, len(ids) - 1), 0, -1):
                windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], m)
                followers = ids[m:][(windows == ids[-m:]).all(axis=1)]
                if len(followers):
                    draft.append(int(np.bincount(followers).argmax()))  # argmax: the lowest of equals
                    break
            else:
                break
        return draft, None


class _Chain:
    """Ids one after the other from something that gives logits after a context."""

    def __init__(self, logits_after: Callable[[list[int]], ArrayLike], p: SamplingParams) -> None:
        self.logits_after, self.p = logits_after, p

    def extend(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        ids = list(ctx)
        greedy = SamplingParams(temperature=0.0)
        rows = []
        for _ in range(k):
            logits = np.array(self.logits_after(list(ids)))
            p = greedy if rng is None else self.p
            rows.append(sampling_distribution(logits, p))
            ids.append(sample(logits, p, [], rng)[0])
        return ids[len(ctx) :], None if rng is None or not rows else np.vstack(rows)


class NGramDraft:
    """Drafts from a fitted n-gram model."""

    def __init__(self, lm: NGramLM) -> None:
        self._chain = _Chain(lm.logprobs, SamplingParams())
        self.lm = lm

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """`k` ids, each from the model after `ctx` and the ids before it."""
        return self._chain.extend(ctx, k, rng)


class ModelDraft:
    """Drafts with a smaller model over a KV cache of its own."""

    def __init__(self, model: Any, temperature: float = 1.0) -> None:
        if temperature <= 0 or not np.isfinite(temperature):
            raise ValueError(f"temperature {temperature} is not above 0 and finite.")
        self._model, self._room = model, cache_dims(model).max_len
        self._held: list[int] = []
        self._cache: KVCache | None = None
        self._chain = _Chain(self._logits, SamplingParams(temperature=temperature))

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """`k` ids, fewer where the model's max_len is near. ValueError for an empty `ctx`."""
        if not list(ctx):
            raise ValueError("without a context there is nothing to continue.")
        return self._chain.extend(ctx, max(0, min(k, self._room - len(ctx))), rng)

    def _logits(self, ids: list[int]) -> NDArray[Any]:
        if self._cache is None:
            n_layers, n_kv_heads, d_head, max_len = cache_dims(self._model)
            self._cache = KVCache(n_layers, n_kv_heads, d_head, max_len)
        common = 0
        for a, b in zip(self._held, ids[:-1], strict=False):
            if a != b:
                break
            common += 1
        self._cache.truncate(common)
        self._held = ids
        return _logits_of(self._model, ids[common:], self._cache)[-1]


def _logits_of(model: Any, ids: list[int], cache: KVCache) -> NDArray[Any]:
    """Logits after each of `ids`, fed in one pass, `[T, V]`."""
    got = model.forward(np.array([ids], dtype=np.int64), None, cache)
    return np.asarray(getattr(got, "data", got) if not isinstance(got, np.ndarray) else got)[0]


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
    rows, m = np.asarray(target_logits), len(draft_ids)
    if np.shape(rows)[:1] != (m + 1,) or rows.ndim != 2:
        raise ValueError(f"target_logits must be [{m + 1}, V] and are {list(rows.shape)}.")
    size = rows.shape[1]
    if any(type(x) is not int and not isinstance(x, np.integer) for x in draft_ids):
        raise ValueError("draft_ids must be integers.")
    if m and (min(draft_ids) < 0 or max(draft_ids) >= size):
        raise ValueError(f"draft_ids must be below {size}.")
    if any(type(x) is not int and not isinstance(x, np.integer) for x in history):
        raise ValueError("history must be integers.")
    if draft_probs is not None and np.shape(draft_probs) != (m, size):
        raise ValueError(f"draft_probs must be [{m}, {size}] and are {list(np.shape(draft_probs))}.")
    past = list(map(int, history))
    kept = 0
    replacement: int | None = None
    for i, x in enumerate(int(x) for x in draft_ids):
        target = sampling_distribution(rows[i], p, past + list(draft_ids[:i]), prompt)
        if p.temperature == 0:
            best = int(target.argmax())
            replacement = None if best == x else best
        else:
            if rng is None:
                raise ValueError("a temperature above 0 needs an rng.")
            q = np.zeros(size) if draft_probs is None else np.array(np.asarray(draft_probs)[i], dtype=np.float64)
            if draft_probs is None:
                q[x] = 1.0
            first, second = rng.uniform(), rng.uniform()
            token, accepted = speculative_step(target, q, x, first, second)
            replacement = None if accepted else token
        if replacement is not None:
            break
        kept += 1
    emitted = [int(x) for x in draft_ids[:kept]]
    if replacement is None:
        replacement = sample(rows[m], p, past + emitted, rng, prompt)[0]
    return [*emitted, replacement], kept


class _Text:
    """The text of a request: what it is, what is certain of it, and whether a stop string is in it."""

    def __init__(self, tok: TextCodec, stop: Sequence[str], on_text: OnText | None) -> None:
        self.tok, self.stop, self.on_text = tok, [s for s in stop if s], on_text
        self.given = ""

    def show(self, ids: list[int], last: bool) -> tuple[bool, bool]:
        """Hand out what became certain: (a stop string was found, the caller has had enough)."""
        text = self.tok.decode(ids)
        if not last and text.endswith("\ufffd"):
            text = text[:-1]
        begins = [at for at in (text.find(s) for s in self.stop) if at >= 0]
        if begins:
            text = text[: min(begins)]
        elif not last:
            longest = max((n for s in self.stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
            text = text[: len(text) - longest]
        piece = text[len(self.given) :]
        self.given += piece
        enough = bool(piece) and self.on_text is not None and self.on_text(piece) is False
        return bool(begins), enough


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
    started = time.perf_counter()
    p.validate()
    if type(k) is bool or not isinstance(k, int | np.integer) or k < 0:
        raise ValueError(f"k must be a whole number of at least 0, and is {k!r}.")
    if isinstance(draft, type) or not callable(getattr(draft, "propose", None)):
        raise ValueError(f"draft {draft!r} proposes nothing.")
    if not isinstance(prompt, str):
        raise ValueError("prompt must be a string.")
    if not isinstance(eos_ids, Collection):
        raise ValueError("eos_ids must be a collection of ids.")
    dims = cache_dims(target)
    prompt_ids = list(tok.encode(prompt))
    if not prompt_ids:
        raise ValueError("the prompt must have at least one token.")
    if len(prompt_ids) > dims.max_len:
        raise ValueError(f"the prompt must have at most {dims.max_len} tokens.")
    budget = min(p.max_tokens, dims.max_len - len(prompt_ids))
    cache = KVCache(dims.n_layers, dims.n_kv_heads, dims.d_head, dims.max_len, dtype=kv_dtype)
    rng = request_rng(p.seed or 0)
    ids: list[int] = []
    logprobs: list[float] = []
    entropies: list[float] = []
    rounds: list[Round] = []
    text = _Text(tok, p.stop, on_text)
    reason = "" if budget else "length"
    prefilled, first = started, 0
    while not reason:
        ctx = prompt_ids + ids
        ask = min(k, budget - len(ids) - 1)
        guess, q = draft.propose(ctx, int(ask), None if p.temperature == 0 else rng) if ask >= 1 else ([], None)
        guess = [int(x) for x in guess]
        if len(guess) > max(ask, 0):
            raise ValueError(f"the draft proposed {len(guess)} ids and may propose {ask}.")
        rows = _logits_of(target, ctx[cache.seq_len() :] + guess, cache)[-len(guess) - 1 :]
        emitted, kept = verify_draft(rows, guess, q, p, ids, rng, prompt_ids)
        cache.truncate(len(ctx) + kept)
        for row, token in zip(rows, emitted, strict=False):
            entropies.append(sampled_entropy(row, p, ids, prompt_ids))
            if token in eos_ids:
                stopped, _ = text.show(ids, last=True)
                reason = "stop"
                break
            logprobs.append(float(token_logprobs(row, p, ids, prompt_ids)[token]))
            ids.append(token)
            stopped, enough = text.show(ids, last=False)
            if stopped or enough:
                reason = "stop" if stopped else "cancelled"
                break
            if len(ids) == budget:
                stopped, _ = text.show(ids, last=True)
                reason = "stop" if stopped else "length"
                break
        rounds.append(Round(tuple(guess), kept, emitted[-1], "bonus" if kept == len(guess) else "correction"))
        if len(rounds) == 1:
            prefilled, first = time.perf_counter(), len(ids)
        if on_round is not None and on_round(rounds[-1]) is False and not reason:
            stopped, _ = text.show(ids, last=True)
            reason = "stop" if stopped else "cancelled"
    ended = time.perf_counter()
    drafted = sum(len(r.draft) for r in rounds)
    accepted = sum(r.accepted for r in rounds)
    return Generation(
        text=text.given,
        ids=ids,
        logprobs=logprobs,
        timings={"prefill_s": prefilled - started, "decode_s": ended - prefilled, "total_s": ended - started},
        stats={
            "prompt_tokens": float(len(prompt_ids)),
            "completion_tokens": float(len(ids)),
            "mean_entropy": float(np.mean(entropies)) if entropies else 0.0,
            "tokens_per_s": (len(ids) - first) / (ended - prefilled) if ended > prefilled else 0.0,
            "drafted": float(drafted),
            "accepted": float(accepted),
            "acceptance_rate": accepted / drafted if drafted else 0.0,
            "target_calls": float(len(rounds)),
        },
        finish_reason=reason,
        prompt_ids=prompt_ids,
        rounds=rounds,
    )
