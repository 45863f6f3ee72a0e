"""Speculative decoding: a draft guesses the next tokens, the target checks all of them in one pass.

Verification is the accept-or-replace rule of Leviathan, Kalman and Matias, "Fast Inference from Transformers via
Speculative Decoding" (ICML 2023), and Chen et al., "Accelerating Large Language Model Decoding with Speculative
Sampling" (2023). It guarantees the target's distribution for any draft, and at temperature 0 the target's own tokens;
a draft can only change how many passes they take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.infer.generate import (
    Generation,
    OnText,
    Round,
    Transcript,
    cache_dims,
    last_logits,
    new_cache,
)
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import (
    Ids,
    SamplingParams,
    as_ids,
    choose,
    request_rng,
    sampling_distribution,
    token_logprobs,
)
from tinyllm.lm.ngram import NGramLM
from tinyllm.prob.rejection import speculative_step
from tinyllm.prob.sampling import UniformSource, sample_categorical
from tinyllm.tok.base import TextCodec

Proposal = tuple[list[int], NDArray[np.float64] | None]

# Drafts.


class DraftModel(Protocol):
    """Anything that guesses how a context goes on."""

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """Up to `k` ids after `ctx`, and the distributions `[len(ids), V]` they were drawn from.

        The distributions are None when the ids were not drawn: a deterministic draft, or `rng` None, which asks for
        the greedy guess. That an id will be proposed must be settled before it is drawn: a draft that withholds what
        it has drawn changes what comes out.
        """
        ...


class PromptLookupDraft:
    """Copies what followed the most recent earlier occurrence of the context's last few ids.

    Source: Saxena, "Prompt Lookup Decoding" (2023). Costs no pass of any model. The proposal is a function of the
    context alone; an index may only make it fast.
    """

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"min_ngram is {min_ngram} and max_ngram {max_ngram}; 1 <= min_ngram <= max_ngram.")
        self.max_ngram, self.min_ngram = max_ngram, min_ngram
        self._clear()

    def _clear(self) -> None:
        self._indexed: list[int] = []
        self._latest: dict[tuple[int, ...], int] = {}  # an n-gram's ids to where its most recent continuation starts

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None = None) -> Proposal:
        """Up to `k` ids copied from `ctx`, longest n-gram first; always deterministic, so no distributions."""
        ids = ctx if isinstance(ctx, list) else list(ctx)
        self._follow(ids)
        last = tuple(ids[-self.max_ngram :])
        for n in range(len(last), self.min_ngram - 1, -1):
            start = self._latest.get(last[-n:])
            if start is not None and k > 0:
                return ids[start : start + k], None
        return [], None

    def _follow(self, ids: list[int]) -> None:
        """Make the index one of `ids`. What was indexed is kept only if all of it is a prefix of `ids`."""
        known = len(self._indexed)
        self._indexed += ids[known:]
        if self._indexed != ids:
            self._clear()
            known, self._indexed = 0, list(ids)
        for start in range(known, len(ids)):  # ascending, so the most recent start stays
            before = tuple(ids[max(0, start - self.max_ngram) : start])
            for n in range(self.min_ngram, len(before) + 1):
                self._latest[before[-n:]] = start


class ContextNGramDraft:
    """Follows the most frequent continuation of the last ids in the request's own context.

    For each id, the longest suffix (of `max_ngram` - 1 ids, then fewer) that occurred earlier decides; ties go to the
    lowest id. Drafted ids count as context for the ones after them. Deterministic.
    """

    def __init__(self, max_ngram: int = 3) -> None:
        if max_ngram < 2:
            raise ValueError(f"max_ngram is {max_ngram}; it must be at least 2, one id to match and one to follow.")
        self.max_ngram = max_ngram
        self._ids: list[int] = []
        self._followers: dict[tuple[int, ...], dict[int, int]] = {}  # suffix -> id that followed -> how often

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None = None) -> Proposal:
        """Up to `k` ids; always deterministic, so no distributions."""
        ids = list(ctx)
        self._cut(_common_prefix(self._ids, ids))
        for token in ids[len(self._ids) :]:
            self._push(token)
        draft: list[int] = []
        while len(draft) < k and (follower := self._next()) is not None:
            draft.append(follower)
            self._push(follower)
        self._cut(len(ids))
        return draft, None

    def _next(self) -> int | None:
        for m in range(min(self.max_ngram - 1, len(self._ids)), 0, -1):
            counts = self._followers.get(tuple(self._ids[-m:]))
            if counts:
                return min(counts, key=lambda token: (-counts[token], token))
        return None

    def _push(self, token: int) -> None:
        for m in range(1, min(self.max_ngram - 1, len(self._ids)) + 1):
            counts = self._followers.setdefault(tuple(self._ids[-m:]), {})
            counts[token] = counts.get(token, 0) + 1
        self._ids.append(token)

    def _cut(self, n: int) -> None:
        """Undo the pushes after the first `n`."""
        while len(self._ids) > n:
            token = self._ids.pop()
            for m in range(1, min(self.max_ngram - 1, len(self._ids)) + 1):
                suffix = tuple(self._ids[-m:])
                counts = self._followers[suffix]
                counts[token] -= 1
                if counts[token] == 0:
                    del counts[token]
                if not counts:
                    del self._followers[suffix]


class NGramDraft:
    """Drafts from a fitted n-gram model: the argmax chain, or samples with the model's distribution as q."""

    def __init__(self, lm: NGramLM) -> None:
        self.lm = lm

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """`k` ids, each from the model after `ctx` and the ids before it; see `DraftModel`."""
        return _propose_from(self.lm.logprobs, list(ctx), k, rng, SamplingParams())


class ModelDraft:
    """Drafts with a smaller model that has the target's vocabulary, over a KV cache of its own.

    The cache follows the context: what both still share is kept, the rest is truncated and fed again.
    """

    def __init__(self, model: Any, temperature: float = 1.0) -> None:
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature is {temperature}; a draft model samples at a finite temperature above 0.")
        self.model = model
        self._p = SamplingParams(temperature=temperature)
        self._max_len = cache_dims(model).max_len
        self._cache: KVCache | None = None
        self._fed: list[int] = []  # the ids at the positions that the cache holds

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        """`k` ids, fewer where the model's max_len is near; see `DraftModel`. ValueError for an empty `ctx`."""
        ids = list(ctx)
        if not ids:
            raise ValueError("ctx is empty; a draft model needs at least one id to continue.")
        return _propose_from(self._next_logits, ids, min(k, self._max_len - len(ids)), rng, self._p)

    def _next_logits(self, ids: list[int]) -> NDArray[Any]:
        """The model's logits `[V]` after `ids`, feeding only what the cache lacks and at least the last id."""
        if self._cache is None or self._cache.max_len < len(ids):
            room = min(self._max_len, 2 * len(ids) + 64)
            self._cache = self._cache.resized(room) if self._cache else new_cache(self.model, room)
        kept = min(_common_prefix(self._fed, ids), len(ids) - 1)
        self._cache.truncate(kept)
        del self._fed[kept:]
        row: NDArray[Any] = last_logits(self.model, ids[kept:], self._cache, 1)[0]  # [V]
        self._fed = list(ids)
        return row


def _propose_from(
    next_logits: Callable[[list[int]], ArrayLike],
    ctx: list[int],
    k: int,
    rng: UniformSource | None,
    p: SamplingParams,
) -> Proposal:
    """Extend `ctx` id by id with `next_logits`: the argmax when `rng` is None, else draws and their distributions."""
    draft: list[int] = []
    probs: list[NDArray[np.float64]] = []
    while len(draft) < k:
        logits = next_logits(ctx + draft)  # [V]
        if rng is None:
            draft.append(int(np.argmax(logits)))
        else:
            q = sampling_distribution(logits, p)
            draft.append(sample_categorical(q, rng.uniform()))  # the id that `sample` would draw from `logits`
            probs.append(q)
    if rng is None or not draft:
        return draft, None
    return draft, np.stack(probs)  # [len(draft), V]


def _common_prefix(a: list[int], b: list[int]) -> int:
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])


# Verification.


def verify_draft(
    target_logits: ArrayLike,
    draft_ids: Sequence[int],
    draft_probs: ArrayLike | None,
    p: SamplingParams,
    history: Ids,
    rng: UniformSource | None,
    prompt: Ids = (),
) -> tuple[list[int], int]:
    """Keep the draft ids that the target agrees to, and add one token of its own: `(emitted, n_accepted)`.

    target_logits: `[m + 1, V]`, row i after `history` and the first i draft ids. draft_ids: m ids. draft_probs: float64
    `[m, V]`, row i what `draft_ids[i]` was drawn from, or None for a deterministic draft (then q is one-hot). Penalties
    at each position see the drafts kept before it. Sampling draws u_accept and u_resample per position visited, then
    one uniform for the bonus token; greedy draws nothing. ValueError for wrong shapes or ids outside [0, V).
    Source: Leviathan et al. 2023, algorithm 1.
    """
    target_logits = np.asarray(target_logits)
    m = len(draft_ids)
    if target_logits.ndim != 2 or len(target_logits) != m + 1:
        raise ValueError(f"target_logits have shape {target_logits.shape}; {m} draft ids need {m + 1} rows of logits.")
    vocab_size = target_logits.shape[1]
    if draft_probs is not None:
        draft_probs = np.asarray(draft_probs, dtype=np.float64)
        if draft_probs.shape != (m, vocab_size):
            raise ValueError(f"draft_probs have shape {draft_probs.shape}; they must be ({m}, {vocab_size}).")
    if not all(isinstance(x, int | np.integer) and 0 <= x < vocab_size for x in draft_ids):
        raise ValueError(f"draft_ids are {list(draft_ids)}; ids are integers in [0, {vocab_size}).")

    history = as_ids(history, vocab_size, "history")
    emitted: list[int] = []
    for i, x in enumerate(draft_ids):
        past = np.append(history, emitted).astype(np.int64)
        if p.temperature == 0:
            token = choose(target_logits[i], p, past, None, prompt)
            kept = token == x
        elif rng is None:
            raise ValueError(f"temperature is {p.temperature} and rng is None; sampling needs a source of uniforms.")
        else:
            q = _one_hot(x, vocab_size) if draft_probs is None else draft_probs[i]
            target = sampling_distribution(target_logits[i], p, past, prompt)
            token, kept = speculative_step(target, q, x, rng.uniform(), rng.uniform())
        emitted.append(int(token))
        if not kept:
            return emitted, i
    emitted.append(choose(target_logits[m], p, np.append(history, emitted).astype(np.int64), rng, prompt))
    return emitted, m


def _one_hot(x: int, size: int) -> NDArray[np.float64]:
    out = np.zeros(size)
    out[x] = 1.0
    return out


# The loop.


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
    """Continue `prompt` like `generate`, with up to `k` draft tokens checked in each target pass.

    At temperature 0 everything but the timings and the stats of speed equals `generate`'s result; when sampling, every
    token has the target's distribution. `on_text` and `on_round` may return False to cancel. Stats added: drafted,
    accepted, acceptance_rate, target_calls. ValueError for k < 0 and for what `generate` refuses.
    """
    if not isinstance(k, int | np.integer) or k < 0:
        raise ValueError(f"k is {k!r}; the number of draft tokens per round must be an integer >= 0.")
    if isinstance(draft, type) or not callable(getattr(draft, "propose", None)):
        raise ValueError(f"draft is {draft!r}; it must be an object with a method propose(ctx, k, rng).")
    out = Transcript(tok, prompt, p, cache_dims(target).max_len, eos_ids, on_text)
    cache = new_cache(target, len(out.prompt_ids) + out.room(), kv_dtype)
    rng = request_rng(p.seed or 0)
    prompt_ids = np.asarray(out.prompt_ids)
    pending = out.prompt_ids  # emitted or given, but not yet in the cache
    drafted = accepted = target_calls = 0
    while out.finish_reason is None:
        # 1. The draft proposes; one place stays free for the target's own token.
        m = min(k, out.room() - 1)
        context = out.prompt_ids + out.ids
        draft_ids, draft_probs = draft.propose(context, m, None if p.temperature == 0 else rng) if m > 0 else ([], None)
        if len(draft_ids) > m:
            raise ValueError(f"the draft proposed {len(draft_ids)} ids where at most {m} were asked for.")
        # 2. One target pass over what the cache lacks and the draft.
        committed = cache.seq_len()
        logits = last_logits(target, [*pending, *draft_ids], cache, len(draft_ids) + 1)  # [m + 1, V]
        # 3. Keep what the target agrees to, and one token more.
        emitted, n = verify_draft(logits, draft_ids, draft_probs, p, out.ids, rng, prompt_ids)
        # 4. Roll back the rejected drafts. The last token was never fed: it is pending.
        cache.truncate(committed + len(pending) + n)
        pending = emitted[-1:]
        drafted += len(draft_ids)
        accepted += n
        target_calls += 1
        for row, token in zip(logits, emitted, strict=False):
            if out.finish_reason is None:
                out.draw(row)
                out.add(token, float(token_logprobs(row, p, out.ids, prompt_ids)[token]))
        done = Round(tuple(int(x) for x in draft_ids), n, emitted[-1], "correction" if n < len(draft_ids) else "bonus")
        out.end_round(done)
        if on_round is not None and on_round(done) is False:
            out.cancel()
    return out.result(
        drafted=float(drafted),
        accepted=float(accepted),
        acceptance_rate=accepted / drafted if drafted else 0.0,
        target_calls=float(target_calls),
    )
