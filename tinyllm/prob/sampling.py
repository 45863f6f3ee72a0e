"""From one uniform to one outcome: the inverse CDF, in ascending order of ids.

One uniform always gives the same outcome, in this package and in a port of it, because the running sum is the exact
left-to-right float64 sum.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.compiled import compiled
from tinyllm.num.exact import check_distribution


class UniformSource(Protocol):
    """Anything that gives uniforms in [0, 1) one at a time."""

    def uniform(self) -> float:
        """The next uniform in [0, 1)."""
        ...


def check_uniform(u: float, name: str = "u") -> None:
    """ValueError unless 0 <= u < 1."""
    if not 0.0 <= u < 1.0:
        raise ValueError(f"{name} is {u}; a uniform lies in [0, 1).")


@compiled
def _first_above(p: NDArray[np.float64], u: float) -> int:
    running, last = 0.0, -1
    for i in range(p.size):
        if p[i] > 0.0:
            running += p[i]  # adding a zero would change no bit, so zeros are passed over
            last = i
            if u < running:
                break
    return last


def first_above(p: NDArray[np.float64], u: float) -> int:
    """`sample_categorical` for a `p` and a `u` that were checked before."""
    return int(_first_above(p, u))


def sample_categorical(p: ArrayLike, u: float) -> int:
    """The first id whose cumulative probability exceeds `u`; an id with p = 0 is never returned.

    `p` is a distribution, float64 `[n]`. Where rounding leaves the whole sum at or below `u`, the answer is the
    largest id with p > 0. ValueError for a bad distribution or u outside [0, 1).
    """
    check_uniform(u)
    return first_above(np.ascontiguousarray(check_distribution(p)), u)
