"""Float64 sums and exponentials whose bits are fixed, and the check that an array is a distribution.

A sum of floats depends on the order of its additions. Here the order is always left to right, which any language can
repeat, and exponentials are those of the C library (`math.exp`). The loops are compiled; their bits are those of the
plain Python loop.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.compiled import compiled


@compiled
def _ascending_sum(x: NDArray[np.float64]) -> float:
    total = 0.0
    for value in x:
        total += value
    return total


@compiled
def _exp_sum(x: NDArray[np.float64], shift: float) -> float:
    total = 0.0
    for value in x:
        total += math.exp(value - shift)
    return total


@compiled
def _softmax(x: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    out = np.empty_like(x)
    total = 0.0
    for i in range(x.size):
        out[i] = math.exp(x[i] - shift)
        total += out[i]
    for i in range(x.size):
        out[i] /= total
    return out


def ascending_sum(x: ArrayLike) -> float:
    """Add `x` (float64 `[n]`) left to right, one rounding an addition; 0.0 for an empty array.

    Neither `np.sum` (pairwise) nor `sum` of Python 3.12 and later (compensated) gives these bits.
    """
    return float(_ascending_sum(np.ascontiguousarray(x, dtype=np.float64)))


def exp_sum(x: ArrayLike, shift: float) -> float:
    """The ascending sum of `math.exp(x_i - shift)`; `x` is float64 `[n]`."""
    return float(_exp_sum(np.ascontiguousarray(x, dtype=np.float64), shift))


def softmax(logits: ArrayLike) -> NDArray[np.float64]:
    """Turn float64 logits `[n]` into a distribution `[n]`: exp(l - max) over its ascending sum.

    -inf is allowed and becomes 0; the largest logit must be finite.
    """
    x = np.ascontiguousarray(logits, dtype=np.float64)
    return np.asarray(_softmax(x, float(x.max())))


def check_distribution(p: ArrayLike, name: str = "p") -> NDArray[np.float64]:
    """Return `p` as float64 `[n]` if it is a distribution; ValueError otherwise.

    A distribution is 1-D, not empty, finite, nowhere negative, and sums to 1 within 1e-9 n + 1e-12.
    """
    array = np.ascontiguousarray(p, dtype=np.float64) if np.ndim(p) else np.asarray(p)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; a distribution is 1-D with at least one entry.")
    if not array.min() >= 0.0 or not array.max() < math.inf:  # a NaN fails both comparisons
        raise ValueError(f"{name} has entries from {array.min()} to {array.max()}; probabilities are finite and >= 0.")
    total = float(array.sum())
    if not abs(total - 1.0) <= 1e-9 * array.size + 1e-12:
        raise ValueError(f"{name} sums to {total!r}; a distribution sums to 1.")
    return array


def check_pair(p: ArrayLike, q: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two distributions over the same outcomes as float64 `[n]` each; ValueError otherwise."""
    p, q = check_distribution(p, "p"), check_distribution(q, "q")
    if p.size != q.size:
        raise ValueError(f"p has {p.size} entries and q has {q.size}; both must be over the same outcomes.")
    return p, q
