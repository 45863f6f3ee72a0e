"""Plain decoding where the text is decoded anew for each token and searched as a whole.

Quadratic in the length of the output and short: what is certain is the whole text without an unfinished character and
without an end that may still become a stop string. Long prompts are fed in one pass.
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

OnText = Callable[[str], Any]

CHUNK = 10**9  # every prompt fits in one pass


class CausalLM(Protocol):
    """A model: ids `[B, T]` at positions `[T]` over a cache give logits `[B, T, V]`, or an object that has `.data`."""

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
    """One target pass."""

    draft: tuple[int, ...]
    accepted: int
    token: int
    kind: str

    @property
    def emitted(self) -> tuple[int, ...]:
        """The tokens of this round, in order."""
        return (*self.draft[:self.accepted], self.token)


@dataclass
class Generation:
    """What a request produced, and what it took."""

    text: str
    ids: list[int]
    logprobs: list[float]
    timings: dict[str, float]
    stats: dict[str, float]
    finish_reason: str
    prompt_ids: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)


def cache_dims(model: Any) -> CacheDims:
    """The sizes of `model`'s cache. ValueError when it does not say them."""
    try:
        return CacheDims(model.n_layers, model.n_kv_heads, model.d_head, model.max_len)
    except AttributeError:
        pass
    for name in ("config", "cfg"):
        c: Any = getattr(model, name, None)
        try:
            heads = c.num_attention_heads
            kv_heads = getattr(c, "num_key_value_heads", None) or heads
            d_head = getattr(c, "head_dim", None) or c.hidden_size // heads
            return CacheDims(c.num_hidden_layers, kv_heads, d_head, c.max_position_embeddings)
        except AttributeError:
            continue
    raise ValueError(f"a {type(model).__name__} without sizes or a config has no cache.")


def new_cache(model: Any, max_len: int, dtype: DTypeLike = np.float32) -> KVCache:
    """An empty cache for `model` with room for `max_len` positions."""
    return KVCache(*cache_dims(model)[:3], max_len, dtype=dtype)


def last_logits(model: Any, ids: Sequence[int], cache: KVCache | None, rows: int) -> NDArray[Any]:
    """Feed `ids` after what `cache` holds and return the logits of the last `rows` of them, `[rows, V]`."""
    chunk = np.array([list(ids)], dtype=np.int64)  # [1, T]
    if hasattr(model, "head") and hasattr(model, "hidden"):
        hidden = np.asarray(getattr(h := model.hidden(chunk, None, cache), "data", h))
        logits = model.head(hidden[:, hidden.shape[1] - rows :])[0]
        return np.asarray(getattr(logits, "data", logits))
    logits = model.forward(chunk, None, cache)
    array = logits if isinstance(logits, np.ndarray) else np.asarray(logits.data)
    return array[0][len(array[0]) - rows :]


class IncrementalDecoder:
    """Ids in, text out, piece by piece. Only what follows the last finished character is decoded again."""

    def __init__(self, tok: TextCodec) -> None:
        self._decode = tok.decode
        self.flush_state()

    def flush_state(self) -> None:
        """Forget everything."""
        self._ids: list[int] = []
        self._shown = ""

    def push(self, token: int) -> str:
        """The text that is certain now that `token` is there; may be empty."""
        self._ids = [*self._ids, token]
        text = self._decode(self._ids)
        certain = text[:-1] if text.endswith("\ufffd") else text
        if len(certain) < len(self._shown):
            return ""
        piece, self._shown = certain[len(self._shown) :], certain
        if certain == text:
            self._ids = self._ids[-1:]
            self._shown = self._decode(self._ids)
        return piece

    def flush(self) -> str:
        """What was held back, as it decodes now; then the decoder is empty."""
        rest = self._decode(self._ids)[len(self._shown) :] if self._ids else ""
        self.flush_state()
        return rest


class Transcript:
    """What one request has produced so far, and when it ends."""

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
        if not isinstance(prompt, str):
            raise ValueError("the prompt is no string.")
        if not isinstance(eos_ids, Collection) or any(not isinstance(i, int | np.integer) for i in eos_ids):
            raise ValueError("eos_ids must hold ids.")
        p.validate()
        self.prompt_ids = [int(i) for i in tok.encode(prompt)]
        if not 1 <= len(self.prompt_ids) <= max_len:
            raise ValueError(f"a prompt of {len(self.prompt_ids)} tokens is not between 1 and {max_len}.")
        self.ids: list[int] = []
        self.rounds: list[Round] = []
        self.finish_reason: str | None = None
        self.text = ""
        self._tok, self._p, self._eos_ids, self._on_text = tok, p, list(eos_ids), on_text
        self._logprobs: list[float] = []
        self._entropies: list[float] = []
        self._most = min(p.max_tokens, max_len - len(self.prompt_ids))
        self._clock = [time.perf_counter()]
        if self._most == 0:
            self.finish_reason = "length"

    def room(self) -> int:
        """How many more tokens may be emitted."""
        return self._most - len(self.ids)

    def draw(self, logits: ArrayLike) -> None:
        """Count the draw from target logits `[V]` after the ids so far."""
        greedy = self._p.temperature == 0
        self._entropies.append(0.0 if greedy else sampled_entropy(logits, self._p, self.ids, self.prompt_ids))

    def add(self, token: int, logprob: float) -> None:
        """Append a token, or end the request with it."""
        if token in self._eos_ids:
            self._end("stop")
            return
        self.ids.append(int(token))
        self._logprobs.append(float(logprob))
        whole = self._tok.decode(self.ids)
        settled = whole[:-1] if whole.endswith("\ufffd") else whole
        if (cut := self._earliest(settled)) is not None:
            self.finish_reason = "stop"
            self._show(settled[:cut])
        elif self._show(self._certain(settled)) is False:
            self.finish_reason = "cancelled"
        elif self.room() <= 0:
            self._end("length")

    def _earliest(self, text: str) -> int | None:
        places = sorted(text.find(s) for s in self._p.stop if s and s in text)
        return places[0] if places else None

    def _certain(self, text: str) -> str:
        for at in range(len(text)):
            if any(s != text[at:] and s.startswith(text[at:]) for s in self._p.stop):
                return text[:at]
        return text

    def _end(self, reason: str) -> None:
        whole = self._tok.decode(self.ids)
        cut = self._earliest(whole)
        self.finish_reason = reason if cut is None else "stop"
        self._show(whole[:cut])

    def _show(self, text: str) -> Any:
        piece, self.text = text[len(self.text) :], text if len(text) > len(self.text) else self.text
        return self._on_text(piece) if piece and self._on_text else None

    def end_round(self, done: Round) -> None:
        """Record a round."""
        self.rounds.append(done)
        self._clock.append(time.perf_counter())
        if len(self.rounds) == 1:
            self._first = len(self.ids)

    def cancel(self) -> None:
        """End the request because a callback asked for it; nothing happens to one that has ended."""
        if not self.finish_reason:
            self._end("cancelled")

    def result(self, **stats: float) -> Generation:
        """The finished request; `stats` are added to those that every loop reports."""
        prefill = self._clock[min(1, len(self._clock) - 1)] - self._clock[0]
        total = time.perf_counter() - self._clock[0]
        after = len(self.ids) - (self._first if self.rounds else 0)
        own = {
            "prompt_tokens": float(len(self.prompt_ids)),
            "completion_tokens": float(len(self.ids)),
            "mean_entropy": sum(self._entropies) / max(1, len(self._entropies)),
            "tokens_per_s": after / (total - prefill) if total > prefill else 0.0,
        }
        timings = {"prefill_s": prefill, "decode_s": total - prefill, "total_s": total}
        reason = self.finish_reason or "length"
        return Generation(
            self.text, self.ids, self._logprobs, timings, own | stats, reason, self.prompt_ids, self.rounds
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
    """Continue `prompt`, one token a pass. ValueError for a bad prompt, bad parameters or a bad `cache`."""
    dims = cache_dims(model)
    out = Transcript(tok, prompt, p, dims.max_len, eos_ids, on_text)
    held: KVCache | None = None
    if isinstance(cache, KVCache):
        if cache.seq_len() > 0:
            raise ValueError("the cache is not empty.")
        if (cache.n_layers, cache.n_kv_heads, cache.d_head, cache.batch) != (*dims[:3], 1):
            raise ValueError("the cache is another model's: n_layers, n_kv_heads, d_head or batch differ.")
        if cache.max_len + 1 < len(out.prompt_ids) + out.room():
            raise ValueError("the cache has too little room.")
        held = cache
    elif cache == "contiguous":
        held = new_cache(model, dims.max_len, kv_dtype)
    elif cache != "none":
        raise ValueError(f"there is no cache {cache!r}.")
    rng = request_rng(0 if p.seed is None else p.seed)
    while out.finish_reason is None:
        everything = [*out.prompt_ids, *out.ids]
        fed = held.seq_len() if held is not None else 0
        row = last_logits(model, everything[fed:], held, 1)[-1]
        out.draw(row)
        token, logprob = sample(row, p, out.ids, rng, out.prompt_ids)
        out.add(token, logprob)
        out.end_round(Round((), 0, int(token), "bonus"))
    return out.result()
