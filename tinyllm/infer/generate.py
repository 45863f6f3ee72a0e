"""One token a pass: the decoding loop, and the rules that every loop of this package shares.

`generate` feeds the prompt once, then one token at a time, over a KV cache. When a request ends, what counts as its
text, and what is reported about it is decided in one place, `Transcript`, which `tinyllm.infer.spec` uses as well: so
plain and speculative decoding cannot disagree about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams, request_rng, sample, sampled_entropy
from tinyllm.tok.base import TextCodec

OnText = Callable[[str], Any]  # a piece of text; returning False cancels the request

CHUNK = 256  # tokens of a long prompt fed in one pass, so that its memory stays bounded


class CausalLM(Protocol):
    """A model: ids `[B, T]` at positions `[T]` over a cache give logits `[B, T, V]`, or an object that has `.data`.

    A model may also offer `hidden(ids, positions, cache) -> [B, T, d]` and `head(hidden) -> [..., V]`; then logits are
    computed only for the rows that are needed.
    """

    def forward(self, ids: NDArray[np.int64], positions: NDArray[np.int64] | None, cache: KVCache | None) -> Any:
        """Logits of every position of `ids`."""
        ...


class CacheDims(NamedTuple):
    """What a cache has to know of a model."""

    n_layers: int
    n_kv_heads: int
    d_head: int
    max_len: int


class Round(NamedTuple):
    """One target pass: what was drafted, how much of it was kept, and the target's own token after that."""

    draft: tuple[int, ...]
    accepted: int
    token: int
    kind: str  # "correction" when a draft token was rejected, else "bonus"

    @property
    def emitted(self) -> tuple[int, ...]:
        """The tokens of this round, in order: the kept drafts, then the target's own."""
        return (*self.draft[: self.accepted], self.token)


@dataclass
class Generation:
    """What a request produced, and what it took."""

    text: str
    ids: list[int]  # without the EOS id that ended it
    logprobs: list[float]  # one an id, of the target after penalties and before temperature
    timings: dict[str, float]  # prefill_s (the first pass), decode_s (the rest), total_s
    stats: dict[str, float]
    finish_reason: str  # "length", "stop" or "cancelled"
    prompt_ids: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)


def cache_dims(model: Any) -> CacheDims:
    """The sizes of `model`'s cache, from its attributes or from a Hugging Face style `config` or `cfg`.

    ValueError when neither says them.
    """
    if all(hasattr(model, name) for name in CacheDims._fields):
        return CacheDims(*(int(getattr(model, name)) for name in CacheDims._fields))
    config: Any = getattr(model, "config", None) or getattr(model, "cfg", None)
    if all(hasattr(config, name) for name in ("num_hidden_layers", "num_attention_heads", "max_position_embeddings")):
        n_heads = config.num_attention_heads
        n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
        d_head = getattr(config, "head_dim", None) or config.hidden_size // n_heads
        return CacheDims(config.num_hidden_layers, n_kv_heads, d_head, config.max_position_embeddings)
    raise ValueError(
        f"{type(model).__name__} does not say the size of its cache: it needs the attributes n_layers, n_kv_heads, "
        "d_head and max_len, or a config with the Hugging Face names."
    )


def new_cache(model: Any, max_len: int, dtype: DTypeLike = np.float32) -> KVCache:
    """An empty cache for `model` with room for `max_len` positions."""
    dims = cache_dims(model)
    return KVCache(dims.n_layers, dims.n_kv_heads, dims.d_head, max_len, dtype=dtype)


def last_logits(model: Any, ids: Sequence[int], cache: KVCache | None, rows: int) -> NDArray[Any]:
    """Feed `ids` after what `cache` holds and return the logits of the last `rows` of them, `[rows, V]`.

    Without a cache `ids` is everything. With one, many ids are fed in chunks of at most `CHUNK`.
    """
    tokens = np.asarray(ids, dtype=np.int64)[None]  # [1, T]
    while cache is not None and tokens.shape[1] > max(CHUNK, rows):
        ahead = min(CHUNK, tokens.shape[1] - rows)  # the rows asked for stay together in the last pass
        _rows(model, tokens[:, :ahead], cache, 0)
        tokens = tokens[:, ahead:]
    return _rows(model, tokens, cache, rows)


def _rows(model: Any, tokens: NDArray[np.int64], cache: KVCache | None, rows: int) -> NDArray[Any]:
    positions = None if cache is None else cache.positions(tokens.shape[1])
    if hasattr(model, "hidden") and hasattr(model, "head"):
        hidden = _array(model.hidden(tokens, positions, cache))  # [1, T, d]
        return _array(model.head(hidden[0, -rows:])) if rows else np.empty((0, 0))  # [rows, V]
    logits = _array(model.forward(tokens, positions, cache))  # [1, T, V]
    return logits[0, logits.shape[1] - rows :]  # [rows, V]


def _array(result: Any) -> NDArray[Any]:
    return result if isinstance(result, np.ndarray) else np.asarray(result.data)


# Text.


class IncrementalDecoder:
    """Ids in, text out, piece by piece; the pieces concatenate to `tok.decode(all ids)`.

    A character whose bytes have not all arrived is held back: such a tail decodes to one U+FFFD at the very end.
    """

    def __init__(self, tok: TextCodec) -> None:
        self._tok = tok
        self._ids: list[int] = []  # the ids still needed to decode what comes next
        self._given = 0  # characters of decode(self._ids) that were handed out

    def push(self, token: int) -> str:
        """The text that is certain now that `token` is there; may be empty."""
        self._ids.append(token)
        text = self._tok.decode(self._ids)
        certain = len(text) - text.endswith("\ufffd")
        piece = text[self._given : certain]
        self._given = max(self._given, certain)
        if certain == len(text):
            self._keep_last(1)  # one id stays, because a tokenizer may join ids (with a space, say)
        elif len(self._ids) > 16:
            self._keep_last(8)  # bytes that never become a character: eight ids are more than any character has
        return piece

    def flush(self) -> str:
        """What was held back, as it decodes now; then the decoder is empty."""
        text = self._tok.decode(self._ids)[self._given :] if self._ids else ""
        self._ids, self._given = [], 0
        return text

    def _keep_last(self, n: int) -> None:
        held_back = len(self._tok.decode(self._ids)) - self._given
        self._ids = self._ids[-n:]
        self._given = len(self._tok.decode(self._ids)) - held_back


class _StopStrings:
    """Text in, text out, cut before the earliest stop string; a tail that may become one is held back."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [s for s in stop if s]
        self._held = ""
        self.found = False

    def push(self, piece: str, more: bool = True) -> str:
        """The text that no stop string can take back any more; with `more` False nothing follows."""
        text = self._held + piece
        hits = [at for s in self._stop if (at := text.find(s)) >= 0]
        if hits:
            self.found, self._held = True, ""
            return text[: min(hits)]
        tail = self._open_tail(text) if more else 0
        self._held = text[len(text) - tail :]
        return text[: len(text) - tail]

    def _open_tail(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = max((len(s) - 1 for s in self._stop), default=0)
        for n in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-n:]) for s in self._stop):
                return n
        return 0


class Transcript:
    """What one request has produced so far, and the one place that says when it ends.

    A loop asks for `room`, adds tokens until `finish_reason` is set, and takes the `result`.
    """

    def __init__(
        self,
        tok: TextCodec,
        prompt: str,
        p: SamplingParams,
        max_len: int,
        eos_ids: Collection[int] = (),
        on_text: OnText | None = None,
    ) -> None:
        """ValueError for bad parameters, an empty prompt, or one longer than `max_len`, the model's."""
        p.validate()
        if not isinstance(prompt, str):
            raise ValueError(f"prompt is a {type(prompt).__name__}; it must be a string.")
        if not isinstance(eos_ids, Collection) or not all(isinstance(i, int | np.integer) for i in eos_ids):
            raise ValueError(f"eos_ids is {eos_ids!r}; it must be a collection of integer ids.")
        self.prompt_ids = list(tok.encode(prompt))
        if not self.prompt_ids:
            raise ValueError("the prompt has no tokens; generation needs at least one to start from.")
        if len(self.prompt_ids) > max_len:
            raise ValueError(f"the prompt has {len(self.prompt_ids)} tokens; this model takes at most {max_len}.")
        self.ids: list[int] = []
        self.rounds: list[Round] = []
        self.finish_reason: str | None = None
        self._p, self._eos_ids, self._on_text = p, frozenset(eos_ids), on_text
        self._budget = min(p.max_tokens, max_len - len(self.prompt_ids))
        self._logprobs: list[float] = []
        self._entropy = 0.0
        self._draws = 0
        self._decoder, self._stops = IncrementalDecoder(tok), _StopStrings(p.stop)
        self._pieces: list[str] = []
        self._started = self._first_round_done = time.perf_counter()
        self._first_round_ids = 0
        if self._budget == 0:
            self._finish("length")

    def room(self) -> int:
        """How many more tokens may be emitted: neither max_tokens nor the model's max_len is ever passed."""
        return self._budget - len(self.ids)

    def draw(self, logits: ArrayLike) -> None:
        """Count the draw from target logits `[V]` after the ids so far, for the mean entropy of the request."""
        self._draws += 1
        if self._p.temperature > 0:  # a greedy choice has entropy 0
            self._entropy += sampled_entropy(logits, self._p, self.ids, self.prompt_ids)

    def add(self, token: int, logprob: float) -> None:
        """Append a token, or end the request with it: EOS, then stop strings, then the budget."""
        if token in self._eos_ids:
            self._finish("stop")
            return
        self.ids.append(token)
        self._logprobs.append(logprob)
        piece = self._stops.push(self._decoder.push(token))
        if self._stops.found:
            self.finish_reason = "stop"
            self._emit(piece)
        elif self._emit(piece) is False:
            self.finish_reason = "cancelled"
        elif self.room() == 0:
            self._finish("length")

    def end_round(self, done: Round) -> None:
        """Record a round; the first one is the prefill of the timings."""
        if not self.rounds:
            self._first_round_done, self._first_round_ids = time.perf_counter(), len(self.ids)
        self.rounds.append(done)

    def cancel(self) -> None:
        """End the request because a callback asked for it; nothing happens to one that has ended."""
        if self.finish_reason is None:
            self._finish("cancelled")

    def _finish(self, reason: str) -> None:
        self.finish_reason = reason
        self._emit(self._stops.push(self._decoder.flush(), more=False))
        if self._stops.found:  # bytes that never became a character may still complete a stop string
            self.finish_reason = "stop"

    def _emit(self, piece: str) -> Any:
        self._pieces.append(piece)
        return self._on_text(piece) if piece and self._on_text is not None else None

    def result(self, **stats: float) -> Generation:
        """The finished request; `stats` are added to those that every loop reports."""
        assert self.finish_reason is not None
        now = time.perf_counter()
        decode_s = now - self._first_round_done
        decoded = len(self.ids) - self._first_round_ids
        return Generation(
            text="".join(self._pieces),
            ids=self.ids,
            logprobs=self._logprobs,
            timings={
                "prefill_s": self._first_round_done - self._started,
                "decode_s": decode_s,
                "total_s": now - self._started,
            },
            stats={
                "prompt_tokens": float(len(self.prompt_ids)),
                "completion_tokens": float(len(self.ids)),
                "mean_entropy": self._entropy / self._draws if self._draws else 0.0,
                "tokens_per_s": decoded / decode_s if decode_s > 0 else 0.0,
                **stats,
            },
            finish_reason=self.finish_reason,
            prompt_ids=self.prompt_ids,
            rounds=self.rounds,
        )


def generate(
    model: Any,
    tok: TextCodec,
    prompt: str,
    p: SamplingParams,
    cache: str | KVCache = "contiguous",
    kv_dtype: DTypeLike = np.float32,
    on_text: OnText | None = None,
    eos_ids: Collection[int] = (),
) -> Generation:
    """Continue `prompt`, one token a pass.

    `cache` is "contiguous" (a new one, sized to the request, of `kv_dtype`), "none" (every pass recomputes everything:
    slow, and the oracle to compare with), or an empty KVCache to use. `on_text` gets the text as it becomes certain;
    when it returns False the request ends as "cancelled". An id of `eos_ids` ends it and is not part of it.
    ValueError for an empty prompt, one longer than the model's max_len, bad parameters, or a bad `cache`.
    """
    out = Transcript(tok, prompt, p, cache_dims(model).max_len, eos_ids, on_text)
    held = _cache_for(model, cache, kv_dtype, len(out.prompt_ids) + out.room())
    rng = request_rng(p.seed or 0)
    prompt_ids = np.asarray(out.prompt_ids)
    pending = out.prompt_ids
    while out.finish_reason is None:
        row = last_logits(model, pending if held is not None else out.prompt_ids + out.ids, held, 1)[0]  # [V]
        token, logprob = sample(row, p, out.ids, rng, prompt_ids)
        out.draw(row)
        out.add(token, logprob)
        out.end_round(Round((), 0, token, "bonus"))
        pending = [token]
    return out.result()


def _cache_for(model: Any, cache: str | KVCache, kv_dtype: DTypeLike, max_len: int) -> KVCache | None:
    if isinstance(cache, KVCache):
        if cache.seq_len():
            raise ValueError(f"the cache already holds {cache.seq_len()} positions; generate needs an empty one.")
        wanted = (dims := cache_dims(model)).n_layers, dims.n_kv_heads, dims.d_head, 1
        found = cache.n_layers, cache.n_kv_heads, cache.d_head, cache.batch
        if found != wanted:
            raise ValueError(
                f"the cache has (n_layers, n_kv_heads, d_head, batch) {found}; this model needs {wanted}."
            )
        if cache.max_len < max_len - 1:  # the last token is never fed
            raise ValueError(f"the cache has room for {cache.max_len} positions; this request needs {max_len - 1}.")
        return cache
    if cache == "none":
        return None
    if cache == "contiguous":
        return new_cache(model, max_len, kv_dtype)
    raise ValueError(f'cache is {cache!r}; it must be "contiguous", "none" or a KVCache.')
