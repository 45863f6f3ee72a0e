"""The sampler as the contract writes it: eleven steps in plain Python over a list of floats.

Slow at a real vocabulary and easy to follow; one class holds the logits on their way and each method is one step.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.info.entropy import entropy
from tinyllm.num.rng import PCG32
from tinyllm.prob.sampling import UniformSource, sample_categorical

Ids = Sequence[int] | NDArray[np.int64]


@dataclasses.dataclass
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
    stop: list[str] = dataclasses.field(default_factory=list)
    logprobs: int = 0

    def validate(self) -> None:
        """ValueError, naming the field, for a value outside its range."""
        whole, real = ("top_k", "max_tokens", "logprobs"), ("temperature", "top_p", "min_p")
        penalties = ("repetition_penalty", "presence_penalty", "frequency_penalty")
        for name in (*whole, *real, *penalties, *(("seed",) if self.seed is not None else ())):
            value = getattr(self, name)
            integral = name in whole or name == "seed"
            if not isinstance(value, (int, np.integer) if integral else (int, float, np.number)):
                raise ValueError(f"{name} cannot be {value!r}.")
            if not math.isfinite(value):
                raise ValueError(f"{name} cannot be {value!r}: it is not finite.")
            smallest = {"max_tokens": 1}.get(name, -math.inf if name.endswith("y_penalty") else 0)
            smallest = -math.inf if name == "presence_penalty" else smallest
            if value < smallest:
                raise ValueError(f"{name} cannot be {value!r}: at least {smallest}.")
        if self.top_p == 0 or self.top_p > 1:
            raise ValueError(f"top_p cannot be {self.top_p}.")
        if self.min_p > 1:
            raise ValueError(f"min_p cannot be {self.min_p}.")
        if self.repetition_penalty <= 0:
            raise ValueError(f"repetition_penalty cannot be {self.repetition_penalty}.")
        if not isinstance(self.stop, list | tuple) or any(not isinstance(s, str) for s in self.stop):
            raise ValueError(f"stop cannot be {self.stop!r}.")


def request_rng(seed: int) -> PCG32:
    """The generator of one request."""
    return PCG32(seed).substream("sample")


def _ascending(values: Iterable[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


class _Steps:
    """The logits of one choice, on their way from the model to a distribution."""

    def __init__(self, logits: ArrayLike, p: SamplingParams, history: Ids, prompt: Ids) -> None:
        p.validate()
        self.p = p
        given = np.asarray(logits)
        if given.ndim != 1 or given.size == 0:
            raise ValueError(f"logits of shape {given.shape} are no row.")
        self.x: list[float] = [float(v) for v in given]  # step 1
        self._possible()
        counts = Counter(as_ids(history, len(self.x), "history").tolist())
        for i in {*counts, *as_ids(prompt, len(self.x), "prompt").tolist()}:  # step 2
            self.x[i] = self.x[i] / p.repetition_penalty if self.x[i] > 0 else self.x[i] * p.repetition_penalty
        for i, count in counts.items():  # step 3
            self.x[i] = self.x[i] - p.frequency_penalty * count - p.presence_penalty
        self._possible()
        self.penalised = list(self.x)
        self.kept = list(range(len(self.x)))

    def _possible(self) -> None:
        if any(math.isnan(v) or v == math.inf for v in self.x) or max(self.x) == -math.inf:
            raise ValueError("a row of logits holds NaN or +inf, or nothing but -inf.")

    def logprobs(self) -> list[float]:
        top = max(self.penalised)
        log_z = math.log(_ascending(math.exp(v - top) for v in self.penalised))
        return [(v - top) - log_z for v in self.penalised]

    def greedy(self) -> int:
        return self.penalised.index(max(self.penalised))  # step 4

    def filtered(self) -> _Steps:
        self.x = [v / self.p.temperature for v in self.x]  # step 5
        self._possible()
        walk = sorted((i for i in self.kept if self.x[i] > -math.inf), key=lambda i: (-self.x[i], i))
        if 0 < self.p.top_k < len(self.x):  # step 6
            walk = walk[: self.p.top_k]
        if self.p.top_p < 1:  # step 7
            q, running, enough = self.softmax(walk), 0.0, 0
            while running < self.p.top_p and enough < len(walk):
                running += q[walk[enough]]
                enough += 1
            walk = walk[:enough]
        if self.p.min_p > 0:  # step 8
            q = self.softmax(walk)
            largest = max(q)
            walk = [i for i in walk if q[i] >= self.p.min_p * largest]
        self.kept = sorted(walk)
        return self

    def softmax(self, ids: list[int]) -> list[float]:  # step 9
        top = max(self.x[i] for i in ids)
        weights = {i: math.exp(self.x[i] - top) for i in sorted(ids)}
        z = _ascending(weights.values())
        return [weights[i] / z if i in weights else 0.0 for i in range(len(self.x))]

    def distribution(self) -> NDArray[np.float64]:
        if self.p.temperature == 0:
            best = self.greedy()
            return np.array([1.0 if i == best else 0.0 for i in range(len(self.x))])
        return np.array(self.filtered().softmax(self.kept))


def apply_penalties(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """A float64 copy of `logits` `[V]` with the penalties of `p` applied. ValueError for bad logits or ids."""
    return np.array(_Steps(logits, p, history, prompt).penalised)


def as_ids(ids: Ids, vocab_size: int, name: str) -> NDArray[np.int64]:
    """`ids` as int64 `[n]`; ValueError, saying `name`, unless they are integers in [0, vocab_size)."""
    if any(not isinstance(x, int | np.integer) for x in ids):
        raise ValueError(f"not every {name} id is an integer.")
    if any(not 0 <= x < vocab_size for x in ids):
        raise ValueError(f"not every {name} id is below {vocab_size} and at least 0.")
    return np.array([int(x) for x in ids], dtype=np.int64)


def token_logprobs(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """The log-probabilities that are reported, float64 `[V]`."""
    return np.array(_Steps(logits, p, history, prompt).logprobs())


def process_logits(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """Logits after penalties, temperature and filters, float64 `[V]`; at temperature 0 the penalised ones."""
    steps = _Steps(logits, p, history, prompt)
    if p.temperature == 0:
        return np.array(steps.penalised)
    left = set(steps.filtered().kept)
    return np.array([v if i in left else -math.inf for i, v in enumerate(steps.x)])


def sampling_distribution(
    logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()
) -> NDArray[np.float64]:
    """The distribution that the next token is drawn from, float64 `[V]`; one-hot at temperature 0."""
    return _Steps(logits, p, history, prompt).distribution()


def sampled_entropy(logits: ArrayLike, p: SamplingParams, history: Ids = (), prompt: Ids = ()) -> float:
    """Entropy of `sampling_distribution` in nats."""
    return entropy(_Steps(logits, p, history, prompt).distribution())


def choose(
    logits: ArrayLike, p: SamplingParams, history: Ids, rng: UniformSource | None, prompt: Ids = ()
) -> int:
    """The next token: greedy at temperature 0 (no draw), else a draw with one uniform."""
    steps = _Steps(logits, p, history, prompt)
    if p.temperature == 0:
        return steps.greedy()
    if rng is None:
        raise ValueError("without an rng nothing can be drawn.")
    return sample_categorical(steps.distribution(), rng.uniform())  # steps 10 and 11


def sample(
    logits: ArrayLike, p: SamplingParams, history: Ids, rng: UniformSource | None, prompt: Ids = ()
) -> tuple[int, float]:
    """The next token and its reported log-probability: `(id, logprob)`."""
    token = choose(logits, p, history, rng, prompt)
    return token, _Steps(logits, p, history, prompt).logprobs()[token]
