"""Plain decoding as a chain of small machines: ids to characters, characters past the stop strings, and out.

The stop strings are followed by an automaton, one character at a time, so nothing is searched twice; the prompt is fed
in short pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams, request_rng, sample, sampled_entropy
from tinyllm.tok.base import TextCodec

OnText = Callable[[str], Any]

CHUNK = 16
UNFINISHED = "\ufffd"


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
        return (*self.draft[: self.accepted], self.token)


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
    own = [getattr(model, name, None) for name in CacheDims._fields]
    if None not in own:
        return CacheDims._make(int(size) for size in own if size is not None)
    config = getattr(model, "config", getattr(model, "cfg", None))
    if config is not None and hasattr(config, "max_position_embeddings"):
        about = vars(config)
        heads = about["num_attention_heads"]
        return CacheDims(
            about["num_hidden_layers"],
            about.get("num_key_value_heads") or heads,
            about.get("head_dim") or about["hidden_size"] // heads,
            about["max_position_embeddings"],
        )
    raise ValueError("this model does not say how large its cache is.")


def new_cache(model: Any, max_len: int, dtype: DTypeLike = np.float32) -> KVCache:
    """An empty cache for `model` with room for `max_len` positions."""
    n_layers, n_kv_heads, d_head, _ = cache_dims(model)
    return KVCache(n_layers, n_kv_heads, d_head, max_len, 1, dtype)


def last_logits(model: Any, ids: Sequence[int], cache: KVCache | None, rows: int) -> NDArray[Any]:
    """Feed `ids` after what `cache` holds and return the logits of the last `rows` of them, `[rows, V]`."""
    rest = list(ids)
    while cache is not None and len(rest) - rows >= CHUNK:
        _pass(model, rest[:CHUNK], cache, 0)
        del rest[:CHUNK]
    return _pass(model, rest, cache, rows)


def _pass(model: Any, ids: list[int], cache: KVCache | None, rows: int) -> NDArray[Any]:
    """One pass over `ids`; logits of the last `rows`. Where `rows` is 0 nobody looks at the result."""
    where = np.arange(len(ids), dtype=np.int64) if cache is None else cache.positions(len(ids))
    block = np.array(ids, dtype=np.int64).reshape(1, -1)
    if not (hasattr(model, "hidden") and hasattr(model, "head")):
        return _plain(model.forward(block, where, cache))[0, -rows:]
    hidden = _plain(model.hidden(block, where, cache))[0]  # [T, d]
    return _plain(model.head(hidden[-rows:])) if rows else hidden[:0]


def _plain(result: Any) -> NDArray[Any]:
    if isinstance(result, np.ndarray):
        return result
    return np.asarray(result.data)


class IncrementalDecoder:
    """Ids in, text out, piece by piece, by decoding a window of the last ids twice, with and without the new one."""

    def __init__(self, tok: TextCodec) -> None:
        self.tok = tok
        self.window: list[int] = []
        self.out = 0

    def push(self, token: int) -> str:
        """The text that is certain now that `token` is there; may be empty."""
        self.window.append(token)
        text = self.tok.decode(self.window)
        whole = not text.endswith(UNFINISHED)
        piece = text[self.out : len(text) if whole else len(text) - 1]
        self.out += len(piece)
        if whole and len(self.window) > 12:
            tail = self.tok.decode(self.window[-4:])
            if text.endswith(tail) and not tail.startswith(UNFINISHED):
                self.window, self.out = self.window[-4:], len(tail)
        return piece

    def flush(self) -> str:
        """What was held back, as it decodes now; then the decoder is empty."""
        piece = self.tok.decode(self.window)[self.out :] if self.window else ""
        self.window, self.out = [], 0
        return piece


class _StopMachine:
    """Follows every stop string at once; `step` takes a character and says which text is certain."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop = [s for s in stop if s]
        self.waiting = ""
        self.hit = False

    def feed(self, text: str) -> Iterator[str]:
        """Certain text, in pieces; ends at a hit. The earliest beginning wins among what is complete in `text`."""
        self.waiting += text
        begins = [self.waiting.index(s) for s in self.stop if s in self.waiting]
        if begins:
            self.hit = True
            yield self.waiting[: min(begins)]
            self.waiting = ""
            return
        while self.waiting and not any(s.startswith(self.waiting) for s in self.stop):
            yield self.waiting[0]
            self.waiting = self.waiting[1:]

    def rest(self) -> str:
        """What was waiting, at the end."""
        held, self.waiting = self.waiting, ""
        return held


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
        self._started = time.perf_counter()
        p.validate()
        if type(prompt) is not str:
            raise ValueError(f"a prompt is a string, and this is a {type(prompt).__name__}.")
        try:
            self._eos = {int(i) for i in eos_ids}
        except TypeError as error:
            raise ValueError(f"eos_ids = {eos_ids!r} holds no ids.") from error
        self.prompt_ids = list(tok.encode(prompt))
        if len(self.prompt_ids) == 0:
            raise ValueError("there is nothing to continue.")
        if max_len < len(self.prompt_ids):
            raise ValueError("the prompt is longer than the model.")
        self.ids: list[int] = []
        self.rounds: list[Round] = []
        self.finish_reason: str | None = None
        self._left = min(p.max_tokens, max_len - len(self.prompt_ids))
        self._p, self._callback = p, on_text
        self._decoder, self._machine = IncrementalDecoder(tok), _StopMachine(p.stop)
        self._text: list[str] = []
        self._logprobs: list[float] = []
        self._entropy, self._choices = 0.0, 0
        self._prefilled: tuple[float, int] | None = None
        if not self._left:
            self.finish_reason = "length"

    def room(self) -> int:
        """How many more tokens may be emitted."""
        return self._left

    def draw(self, logits: ArrayLike) -> None:
        """Count the draw from target logits `[V]` after the ids so far."""
        self._choices += 1
        self._entropy += sampled_entropy(logits, self._p, self.ids, self.prompt_ids)

    def add(self, token: int, logprob: float) -> None:
        """Append a token, or end the request with it."""
        if int(token) in self._eos:
            self._close("stop")
            return
        self.ids += [token]
        self._logprobs += [logprob]
        self._left -= 1
        answer = self._out("".join(self._machine.feed(self._decoder.push(token))))
        if self._machine.hit:
            self.finish_reason = "stop"
        elif answer is False:
            self.finish_reason = "cancelled"
        elif self._left == 0:
            self._close("length")

    def _close(self, reason: str) -> None:
        text = "".join(self._machine.feed(self._decoder.flush()))
        self.finish_reason = "stop" if self._machine.hit else reason
        self._out(text + self._machine.rest())

    def _out(self, piece: str) -> Any:
        if piece == "":
            return None
        self._text.append(piece)
        return None if self._callback is None else self._callback(piece)

    def end_round(self, done: Round) -> None:
        """Record a round."""
        if self._prefilled is None:
            self._prefilled = time.perf_counter(), len(self.ids)
        self.rounds += [done]

    def cancel(self) -> None:
        """End the request because a callback asked for it; nothing happens to one that has ended."""
        if self.finish_reason is None:
            self._close("cancelled")

    def result(self, **stats: float) -> Generation:
        """The finished request; `stats` are added to those that every loop reports."""
        ended = time.perf_counter()
        first, given = self._prefilled or (self._started, 0)
        timings = {"total_s": ended - self._started, "prefill_s": first - self._started, "decode_s": ended - first}
        every = {
            "tokens_per_s": (len(self.ids) - given) / max(ended - first, 1e-9),
            "mean_entropy": self._entropy / self._choices if self._choices else 0.0,
            "completion_tokens": float(len(self.ids)),
            "prompt_tokens": float(len(self.prompt_ids)),
        }
        return Generation(
            text="".join(self._text),
            ids=list(self.ids),
            logprobs=list(self._logprobs),
            timings=timings,
            stats={**every, **stats},
            finish_reason=str(self.finish_reason),
            prompt_ids=list(self.prompt_ids),
            rounds=list(self.rounds),
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
    if isinstance(cache, str) and cache not in ("none", "contiguous"):
        raise ValueError(f"cache may be none or contiguous, and not {cache}.")
    out = Transcript(tok, prompt, p, cache_dims(model).max_len, eos_ids, on_text)
    needed = len(out.prompt_ids) + out.room() - 1
    if isinstance(cache, KVCache):
        for name in ("n_layers", "n_kv_heads", "d_head"):
            if getattr(cache, name) != getattr(cache_dims(model), name):
                raise ValueError(f"the cache and the model disagree about {name}.")
        if cache.batch != 1 or cache.seq_len():
            raise ValueError("the cache must be empty and hold one sequence.")
        if cache.max_len < needed:
            raise ValueError(f"the cache lacks room for {needed} positions.")
        held: KVCache | None = cache
    else:
        held = None if cache == "none" else new_cache(model, max(1, needed), kv_dtype)
    rng = request_rng(p.seed or 0)
    fresh = list(out.prompt_ids)
    while not out.finish_reason:
        (row,) = last_logits(model, fresh, held, 1)
        token, logprob = sample(row, p, list(out.ids), rng, out.prompt_ids)
        out.draw(row)
        out.add(token, logprob)
        out.end_round(Round(draft=(), accepted=0, token=token, kind="bonus"))
        fresh = [token] if held is not None else [*out.prompt_ids, *out.ids]
    return out.result()
