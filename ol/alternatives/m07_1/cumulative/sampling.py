"""The inverse CDF by a search in the running sums, which NumPy's `accumulate` adds one after the other."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray


class UniformSource(Protocol):
    """Anything that gives uniforms in [0, 1) one at a time."""

    def uniform(self) -> float:
        """The next uniform in [0, 1)."""
        ...


def check_uniform(u: float, name: str = "u") -> None:
    """ValueError unless 0 <= u < 1."""
    if math.isnan(u) or u < 0 or u >= 1:
        raise ValueError(f"{name} must lie in [0, 1), and is {u}.")


def first_above(p: NDArray[np.float64], u: float) -> int:
    """`sample_categorical` for a `p` and a `u` that were checked before."""
    running = np.add.accumulate(p)  # [n]
    found = int(np.searchsorted(running, u, side="right"))
    return found if found < p.size else int(np.flatnonzero(p)[-1])


def sample_categorical(p: ArrayLike, u: float) -> int:
    """The first id whose cumulative probability exceeds `u`. ValueError for a bad distribution or uniform."""
    weights = np.array(p, dtype=np.float64)
    if weights.ndim != 1 or not weights.size:
        raise ValueError(f"probabilities must be a list, not of shape {weights.shape}.")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError("a probability is negative or not a number.")
    off = abs(math.fsum(weights) - 1.0)
    if off > 1e-9 * weights.size + 1e-12:
        raise ValueError(f"the probabilities miss the sum 1 by {off}.")
    check_uniform(u)
    return first_above(weights, u)
