"""The sampler with one full sort a call: every filter is a cut through the same sorted list of ids.

Steps and sums are those of the contract. Nothing is compiled: exponentials are `math.exp`, one by one, and sums are the
last of NumPy's running sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.info.entropy import entropy
from tinyllm.num.rng import PCG32
from tinyllm.prob.sampling import UniformSource, sample_categorical

Ids = Sequence[int] | NDArray[np.int64]


@dataclass
class SamplingParams:
    """How a request wants its tokens chosen."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int = 128
    stop: list[str] = field(default_factory=list)
    logprobs: int = 0

    def validate(self) -> None:
        """ValueError, naming the field, for a value outside its range."""
        self._check("temperature", low=0.0)
        self._check("top_p", low=0.0, high=1.0, open_low=True)
        self._check("min_p", low=0.0, high=1.0)
        self._check("repetition_penalty", low=0.0, open_low=True)
        self._check("presence_penalty")
        self._check("frequency_penalty")
        for name, low in (("top_k", 0), ("max_tokens", 1), ("logprobs", 0)):
            self._check(name, low=low, whole=True)
        if self.seed is not None:
            self._check("seed", low=0, whole=True)
        stop: object = self.stop
        if isinstance(stop, str) or not all(isinstance(s, str) for s in self.stop):
            raise ValueError(f"stop must hold strings, and is {self.stop!r}.")

    def _check(
        self, name: str, low: float = -math.inf, high: float = math.inf, open_low: bool = False, whole: bool = False
    ) -> None:
        value = getattr(self, name)
        kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
        if not isinstance(value, kinds) or not math.isfinite(value):
            raise ValueError(f"{name} = {value!r} is no {'whole' if whole else 'finite'} number.")
        if value < low or value > high or (open_low and value == low):
            raise ValueError(f"{name} = {value!r} is out of its range, {low} to {high}.")


def request_rng(seed: int) -> PCG32:
    """The generator of one request."""
    root = PCG32(seed)
    return root.substream("sample")


def apply_penalties(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """A float64 copy of `logits` `[V]` with the penalties of `p` applied. ValueError for bad logits or ids."""
    p.validate()
    out = np.array(logits, dtype=np.float64, ndmin=0)
    if out.ndim != 1 or len(out) == 0:
        raise ValueError(f"logits must be 1-D and are of shape {out.shape}.")
    _check_logits(out)
    counts = np.bincount(as_ids(history, len(out), "history"), minlength=len(out))  # [V]
    anywhere = counts + np.bincount(as_ids(prompt, len(out), "prompt"), minlength=len(out))  # [V]
    if p.repetition_penalty != 1:
        weak = np.where(out > 0, out / p.repetition_penalty, out * p.repetition_penalty)
        out = np.where(anywhere > 0, weak, out)
    if p.frequency_penalty != 0 or p.presence_penalty != 0:
        out = np.where(counts > 0, out - p.frequency_penalty * counts - p.presence_penalty, out)
    _check_logits(out)
    return out


def _check_logits(x: NDArray[np.float64]) -> None:
    if np.isnan(x).any() or (x == math.inf).any() or (x == -math.inf).all():
        raise ValueError("logits may hold -inf, but not only, and neither NaN nor +inf.")


def as_ids(ids: Ids, vocab_size: int, name: str) -> NDArray[np.int64]:
    """`ids` as int64 `[n]`; ValueError, saying `name`, unless they are integers in [0, vocab_size)."""
    values = list(ids)
    for x in values:
        if not isinstance(x, int | np.integer):
            raise ValueError(f"the {name} holds {x!r}, which is no id.")
        if x < 0 or x >= vocab_size:
            raise ValueError(f"the {name} holds {x}, and the vocabulary ends at {vocab_size - 1}.")
    return np.array(values, dtype=np.int64)


def token_logprobs(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """The log-probabilities that are reported, float64 `[V]`."""
    return _log_softmax(apply_penalties(logits, p, history, prompt))


def _log_softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    below: NDArray[np.float64] = x - x.max()
    return below - math.log(float(np.add.accumulate(_exp(below))[-1]))


def _exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([math.exp(v) for v in x.tolist()])


def _softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = _exp(x - x.max())
    return weights / np.add.accumulate(weights)[-1]


def process_logits(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """Logits after penalties, temperature and filters, float64 `[V]`; at temperature 0 the penalised ones."""
    penalised = apply_penalties(logits, p, history, prompt)
    return penalised if p.temperature == 0 else _filtered(penalised, p)


def _filtered(penalised: NDArray[np.float64], p: SamplingParams) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        x = penalised / p.temperature
    _check_logits(x)
    order = np.argsort(-x, kind="stable")  # [V] logit descending, ids ascending among equals
    if p.top_k:
        order = order[x[order] > -math.inf][: p.top_k] if p.top_k < len(x) else order
    if p.top_p < 1:
        order = order[: int((np.add.accumulate(_share(x, order)) < p.top_p).sum()) + 1]
        order = order[x[order] > -math.inf]
    if p.min_p > 0:
        share = _share(x, order)
        order = order[share >= p.min_p * share.max()]
    out = np.full_like(x, -math.inf)
    out[order] = x[order]
    return out


def _share(x: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.float64]:
    """The probabilities of the ids of `order` among themselves, in its order; summed over ascending ids."""
    ids = np.sort(order)
    q = np.zeros(len(x))
    q[ids] = _softmax(x[ids])
    return np.asarray(q[order])


def sampling_distribution(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """The distribution that the next token is drawn from, float64 `[V]`; one-hot at temperature 0."""
    return _distribution(apply_penalties(logits, p, history, prompt), p)


def _distribution(penalised: NDArray[np.float64], p: SamplingParams) -> NDArray[np.float64]:
    if p.temperature == 0:
        return np.eye(1, len(penalised), int(np.argmax(penalised)))[0]
    return _softmax(_filtered(penalised, p))  # exp(-inf) is 0, and adding a 0 changes no sum


def sampled_entropy(logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()) -> float:
    """Entropy of `sampling_distribution` in nats."""
    return entropy(sampling_distribution(logits, p, history, prompt))


def choose(
    logits: ArrayLike, p: SamplingParams, history: Ids, rng: UniformSource | None, prompt: Ids = ()
) -> int:
    """The next token: greedy at temperature 0 (no draw), else a draw with one uniform."""
    return sample(logits, p, history, rng, prompt)[0]


def sample(
    logits: ArrayLike, p: SamplingParams, history: Ids, rng: UniformSource | None, prompt: Ids = ()
) -> tuple[int, float]:
    """The next token and its reported log-probability: `(id, logprob)`."""
    penalised = apply_penalties(logits, p, history, prompt)
    source: Any = rng
    if p.temperature == 0:
        token = int(np.argmax(penalised))
    elif source is None:
        raise ValueError("sampling needs an rng, and it is None.")
    else:
        token = sample_categorical(_distribution(penalised, p), source.uniform())
    return token, float(_log_softmax(penalised)[token])
