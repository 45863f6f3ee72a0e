"""From logits to a token: penalties, temperature, top-k, top-p, min-p, then one uniform.

The order of the steps, and of every sum in them, is fixed, so the same logits, parameters and uniform give the same
token in any implementation. Repetition penalty: Keskar et al. 2019 (CTRL); top-k: Fan et al. 2018; top-p: Holtzman et
al. 2020; min-p: Nguyen et al. 2024; presence and frequency penalties as in OpenAI's API reference.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.info.entropy import entropy
from tinyllm.num.exact import exp_sum, softmax
from tinyllm.num.rng import PCG32
from tinyllm.prob.sampling import UniformSource, sample_categorical

Ids = Sequence[int] | NDArray[np.int64]


@dataclass
class SamplingParams:
    """How a request wants its tokens chosen. The defaults sample from the model's own distribution."""

    temperature: float = 1.0  # 0 is greedy: the largest logit, no draw
    top_k: int = 0  # keep the k largest logits; 0 keeps all
    top_p: float = 1.0  # keep the smallest set with at least this much probability; 1 keeps all
    min_p: float = 0.0  # keep what has at least this share of the largest probability; 0 keeps all
    repetition_penalty: float = 1.0  # weakens every id of prompt and output; 1 changes nothing
    presence_penalty: float = 0.0  # subtracted once from every id of the output
    frequency_penalty: float = 0.0  # subtracted once per occurrence in the output
    seed: int | None = None  # None means 0
    max_tokens: int = 128
    stop: list[str] = field(default_factory=list)
    logprobs: int = 0  # alternatives a caller wants to see; changes nothing else

    def validate(self) -> None:
        """ValueError, naming the field, for the first value outside its range."""
        above_zero, not_negative = "> 0", ">= 0"
        rules: list[tuple[str, Any, str, Callable[[Any], bool]]] = [
            ("temperature", Real, not_negative, lambda v: v >= 0),
            ("top_k", Integral, not_negative, lambda v: v >= 0),
            ("top_p", Real, "in (0, 1]", lambda v: 0 < v <= 1),
            ("min_p", Real, "in [0, 1]", lambda v: 0 <= v <= 1),
            ("repetition_penalty", Real, above_zero, lambda v: v > 0),
            ("presence_penalty", Real, "a number", lambda v: True),
            ("frequency_penalty", Real, "a number", lambda v: True),
            ("seed", Integral, "None or >= 0", lambda v: v >= 0),
            ("max_tokens", Integral, ">= 1", lambda v: v >= 1),
            ("logprobs", Integral, not_negative, lambda v: v >= 0),
        ]
        value: Any
        for name, kind, wanted, holds in rules:
            value = getattr(self, name)
            if name == "seed" and value is None:
                continue
            if not (isinstance(value, kind) and math.isfinite(value) and holds(value)):
                what = "an integer" if kind is Integral else "finite"
                raise ValueError(f"{name} is {value!r}; it must be {what} and {wanted}.")
        stop: object = self.stop
        if not isinstance(stop, list | tuple) or not all(isinstance(s, str) for s in stop):
            raise ValueError(f"stop is {self.stop!r}; it must be a list of strings.")


def request_rng(seed: int) -> PCG32:
    """The generator of one request: the "sample" substream of `seed`."""
    return PCG32(seed).substream("sample")


# Steps 1 to 3: penalties, and the log-probabilities that are reported.


def apply_penalties(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """A float64 copy of `logits` `[V]` with the penalties of `p` applied.

    `history` is what was generated so far, `prompt` what came before; the repetition penalty looks at both, the
    other two at `history`. ValueError for logits that are not 1-D, hold NaN or +inf or are all -inf, for an id outside
    [0, V), and for bad parameters.
    """
    p.validate()
    out = np.array(logits, dtype=np.float64)  # [V], always a copy
    if out.ndim != 1 or out.size == 0:
        raise ValueError(f"logits have shape {out.shape}; they must be 1-D, one per token of the vocabulary.")
    if not math.isfinite(largest := out.max()):  # NaN wins every max
        raise ValueError(f"the largest logit is {largest}; logits may be -inf but not all, and never NaN or +inf.")
    generated = as_ids(history, out.size, "history")
    before = as_ids(prompt, out.size, "prompt")
    if p.repetition_penalty != 1.0 and generated.size + before.size:
        seen = np.unique(np.concatenate([before, generated]))  # [number of distinct ids]
        hit = out[seen]
        out[seen] = np.where(hit > 0, hit / p.repetition_penalty, hit * p.repetition_penalty)
    if (p.frequency_penalty or p.presence_penalty) and generated.size:
        seen, counts = np.unique(generated, return_counts=True)
        out[seen] = out[seen] - p.frequency_penalty * counts - p.presence_penalty
    if not math.isfinite(largest := out.max()):
        raise ValueError(f"the penalties take the largest logit to {largest}; choose weaker ones.")
    return out


def as_ids(ids: Ids, vocab_size: int, name: str) -> NDArray[np.int64]:
    """`ids` as int64 `[n]`; ValueError, saying `name`, unless they are integers in [0, vocab_size)."""
    array = np.asarray(ids) if len(ids) else np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} is {ids!r}; it must be a list of integer ids.")
    if array.size and not (array.min() >= 0 and array.max() < vocab_size):
        bad = array[(array < 0) | (array >= vocab_size)][0]
        raise ValueError(f"{name} holds the id {bad}; ids lie in [0, {vocab_size}).")
    return array.astype(np.int64, copy=False)


def token_logprobs(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """The log-probabilities that are reported, float64 `[V]`: log-softmax after penalties, before temperature."""
    penalised = apply_penalties(logits, p, history, prompt)
    shifted: NDArray[np.float64] = penalised - penalised.max()
    return shifted - _log_normaliser(penalised)


def _log_normaliser(penalised: NDArray[np.float64]) -> float:
    return math.log(exp_sum(penalised, float(penalised.max())))


# Steps 4 to 9: temperature and the three filters.


def _scaled(penalised: NDArray[np.float64], p: SamplingParams) -> NDArray[np.float64]:
    if p.temperature == 1:
        return penalised  # dividing by one changes no bit
    with np.errstate(over="ignore"):
        scaled = penalised / p.temperature
    if not math.isfinite(scaled.max()):
        raise ValueError(f"temperature {p.temperature} is too small for these logits; use 0 for greedy.")
    return scaled


def _kept_ids(scaled: NDArray[np.float64], p: SamplingParams) -> NDArray[np.int64] | None:
    """The ids that survive top-k, top-p and min-p, ascending; None when no filter is on and all survive."""
    kept = _top_k(scaled, p.top_k) if 0 < p.top_k < scaled.size else None
    if p.top_p < 1.0:
        kept = _top_p(scaled, kept, p.top_p)
    if p.min_p > 0.0:
        q = softmax(scaled if kept is None else scaled[kept])
        survivors = np.flatnonzero(q >= p.min_p * q.max())
        kept = survivors if kept is None else kept[survivors]
    return kept


def _descending(logits: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """`ids` (ascending) in the order of the filters: logit descending, ties by id ascending."""
    return ids[np.argsort(-logits[ids], kind="stable")]


def _top_k(scaled: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """The first k ids in the order of the filters, ascending; fewer where the others are -inf. 0 < k < V.

    Sorting a whole vocabulary is slow. Cut it into pieces, at least k of them: the k-th largest of their maxima is a
    logit that at least k logits reach, so only those need sorting.
    """
    maxima = np.maximum.reduceat(scaled, np.arange(0, scaled.size, max(1, scaled.size // (4 * k))))  # [pieces]
    reached = np.partition(maxima, maxima.size - k)[maxima.size - k]
    near = np.flatnonzero(scaled >= max(reached, -sys.float_info.max))  # never one at -inf
    return np.sort(_descending(scaled, near)[:k])


def _near_top(logits: NDArray[np.float64]) -> Iterator[NDArray[np.int64]]:
    """Growing sets of ids (ascending) around the largest logit, the last of them all that are not -inf.

    Top-p rarely needs more than the top of a vocabulary, and what top-k left needs no such care.
    """
    largest = logits.max()
    for reach in (4.0, 6.0, 8.0, 10.0, 14.0, 20.0, 40.0) if logits.size > 1000 else ():
        yield np.flatnonzero(logits >= largest - reach)
    yield np.flatnonzero(logits > -np.inf)


def _top_p(scaled: NDArray[np.float64], kept: NDArray[np.int64] | None, top_p: float) -> NDArray[np.int64]:
    """The ids up to and including the first running sum >= top_p, walking from the most likely down; ascending."""
    logits = scaled if kept is None else scaled[kept]
    q = softmax(logits)  # [len(logits)]
    chosen = np.arange(logits.size)
    for near in _near_top(logits):
        if q[near].sum() > top_p - 1e-6:  # else the walk cannot end here, and need not be tried
            order = _descending(logits, near)
            running = np.add.accumulate(q[order])  # left to right, like every sum here
            enough = int(np.searchsorted(running, top_p))  # the first running sum >= top_p
            if enough < order.size:
                chosen = np.sort(order[: enough + 1])
                break
    return chosen if kept is None else kept[chosen]


def process_logits(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """Logits after penalties, temperature and filters, float64 `[V]`: -inf for what was filtered out.

    At temperature 0 they are the penalised logits, unfiltered.
    """
    penalised = apply_penalties(logits, p, history, prompt)
    if p.temperature == 0:
        return penalised
    scaled = _scaled(penalised, p)
    kept = _kept_ids(scaled, p)
    if kept is None:
        return scaled
    out = np.full(scaled.size, -np.inf)
    out[kept] = scaled[kept]
    return out


def sampling_distribution(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """The distribution that the next token is drawn from, float64 `[V]`; one-hot at temperature 0."""
    penalised = apply_penalties(logits, p, history, prompt)
    return _distribution(penalised, p)


def _distribution(penalised: NDArray[np.float64], p: SamplingParams) -> NDArray[np.float64]:
    out = np.zeros(penalised.size)
    if p.temperature == 0:
        out[_greedy(penalised)] = 1.0
        return out
    scaled = _scaled(penalised, p)
    kept = _kept_ids(scaled, p)
    if kept is None:
        return softmax(scaled)
    out[kept] = softmax(scaled[kept])
    return out


def _greedy(penalised: NDArray[np.float64]) -> int:
    return int(penalised.argmax())  # the first of equals: ties go to the lowest id


def sampled_entropy(logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()) -> float:
    """Entropy of `sampling_distribution` in nats: how open the choice was. 0 at temperature 0."""
    return entropy(sampling_distribution(logits, p, history, prompt))


# Steps 10 and 11: one uniform, one token.


def choose(
    logits: ArrayLike, p: SamplingParams, history: Ids, rng: UniformSource | None, prompt: Ids = ()
) -> int:
    """The next token: the largest penalised logit at temperature 0 (no draw), else a draw with one uniform."""
    return _choose(apply_penalties(logits, p, history, prompt), p, rng)


def _choose(penalised: NDArray[np.float64], p: SamplingParams, rng: UniformSource | None) -> int:
    if p.temperature == 0:
        return _greedy(penalised)
    if rng is None:
        raise ValueError(f"temperature is {p.temperature} and rng is None; sampling needs a source of uniforms.")
    return sample_categorical(_distribution(penalised, p), rng.uniform())


def sample(
    logits: ArrayLike, p: SamplingParams, history: Ids, rng: UniformSource | None, prompt: Ids = ()
) -> tuple[int, float]:
    """`choose` and the token's reported log-probability: `(id, logprob)`."""
    penalised = apply_penalties(logits, p, history, prompt)
    token = _choose(penalised, p, rng)
    return token, float((penalised[token] - penalised.max()) - _log_normaliser(penalised))
