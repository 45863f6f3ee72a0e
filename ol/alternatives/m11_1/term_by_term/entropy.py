"""Entropy and distances as Python sums, one term after the other; nothing is computed for an outcome with p = 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

from numpy.typing import ArrayLike

from tinyllm.num.exact import check_distribution


def _pairs(p: ArrayLike, q: ArrayLike) -> list[tuple[float, float]]:
    a, b = check_distribution(p, "p").tolist(), check_distribution(q, "q").tolist()
    if len(a) != len(b):
        raise ValueError(f"p is over {len(a)} outcomes and q over {len(b)}.")
    return list(zip(a, b, strict=True))


def _added_up(terms: Iterator[float]) -> float:
    total = 0.0
    for term in terms:
        total += term
    return total


def entropy(p: ArrayLike) -> float:
    """H(p), in nats."""
    return _added_up(-x * math.log(x) for x in check_distribution(p).tolist() if x > 0)


def cross_entropy(p: ArrayLike, q: ArrayLike) -> float:
    """H(p, q), in nats; +inf where some p > 0 meets q = 0."""
    pairs = [(a, b) for a, b in _pairs(p, q) if a > 0]
    if any(b == 0 for _, b in pairs):
        return math.inf
    return _added_up(-a * math.log(b) for a, b in pairs)


def kl_divergence(p: ArrayLike, q: ArrayLike) -> float:
    """KL(p || q), in nats; +inf where some p > 0 meets q = 0."""
    pairs = [(a, b) for a, b in _pairs(p, q) if a > 0]
    if any(b == 0 for _, b in pairs):
        return math.inf
    total = _added_up(a * (math.log(a) - math.log(b)) for a, b in pairs)
    return total if total > 0 else 0.0


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """TV(p, q), in [0, 1]."""
    return _added_up(abs(a - b) for a, b in _pairs(p, q)) / 2
