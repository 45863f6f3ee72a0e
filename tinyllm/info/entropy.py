"""Entropy, cross entropy, Kullback-Leibler divergence and total variation, in nats.

Definitions as in Cover and Thomas, "Elements of Information Theory", chapter 2, with 0 log 0 = 0. Total variation is
the one that speculative decoding needs: the acceptance probability is 1 - TV.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.compiled import compiled
from tinyllm.num.exact import ascending_sum, check_distribution, check_pair


@compiled
def _expected_log(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Sum of p log q over p > 0, left to right; -inf where some p > 0 meets q = 0."""
    total = 0.0
    for i in range(p.size):
        if p[i] > 0.0:
            if q[i] == 0.0:
                return -math.inf
            total += p[i] * math.log(q[i])
    return total


@compiled
def _expected_log_ratio(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Sum of p (log p - log q) over p > 0, left to right; +inf where some p > 0 meets q = 0."""
    total = 0.0
    for i in range(p.size):
        if p[i] > 0.0:
            if q[i] == 0.0:
                return math.inf
            total += p[i] * (math.log(p[i]) - math.log(q[i]))
    return total


def entropy(p: ArrayLike) -> float:
    """H(p) = - sum p log p, in nats; `p` is a distribution `[n]`."""
    p = np.ascontiguousarray(check_distribution(p))
    return 0.0 - float(_expected_log(p, p))  # not -x, which would turn 0.0 into -0.0


def cross_entropy(p: ArrayLike, q: ArrayLike) -> float:
    """H(p, q) = - sum p log q, in nats; +inf where some p > 0 meets q = 0. Both `[n]`."""
    p, q = map(np.ascontiguousarray, check_pair(p, q))
    return 0.0 - float(_expected_log(p, q))


def kl_divergence(p: ArrayLike, q: ArrayLike) -> float:
    """KL(p || q) = sum p log(p / q), in nats and never negative; +inf where some p > 0 meets q = 0. Both `[n]`."""
    p, q = map(np.ascontiguousarray, check_pair(p, q))
    return max(0.0, float(_expected_log_ratio(p, q)))  # rounding may leave a hair below zero when p is near q


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """TV(p, q) = half the sum of |p - q|, in [0, 1]. Both `[n]`."""
    p, q = check_pair(p, q)
    return 0.5 * ascending_sum(np.abs(p - q))
