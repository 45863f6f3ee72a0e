"""Accept or replace: a draw from q turned into a draw from p, exactly.

Rejection sampling is von Neumann's (1951). `speculative_step`, which replaces a rejected draw from the residual
instead of trying again, is the step of Leviathan, Kalman and Matias (2023) and Chen et al. (2023). For any q the
outcome of `speculative_step` has distribution p.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.compiled import compiled
from tinyllm.num.exact import ascending_sum, check_pair
from tinyllm.prob.sampling import UniformSource, check_uniform, first_above, sample_categorical


def rejection_accept(p_x: float, q_x: float, u: float) -> bool:
    """True when `u < p_x / q_x`: a draw x ~ q is kept with probability min(1, p(x) / q(x)).

    ValueError for u outside [0, 1), p_x < 0 or q_x <= 0.
    """
    check_uniform(u)
    if not p_x >= 0.0:
        raise ValueError(f"p_x is {p_x}; a probability is >= 0.")
    if not q_x > 0.0:
        raise ValueError(f"q_x is {q_x}; a token that was drawn from q has q_x > 0.")
    return bool(u < p_x / q_x)


def acceptance_probability(p: ArrayLike, q: ArrayLike) -> float:
    """alpha = sum of min(p, q), in ascending order: how often a draw from q is kept. Both float64 `[n]`."""
    p, q = check_pair(p, q)
    return ascending_sum(np.minimum(p, q))


def residual_distribution(p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
    """max(0, p - q) / Z, float64 `[n]`: what p still needs after the overlap min(p, q) was taken from q.

    When Z is 0 (p nowhere exceeds q) there is nothing left to need, and the answer is a fresh copy of p.
    """
    return np.asarray(_residual(*check_pair(p, q)))


@compiled
def _residual(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.empty_like(p)
    total = 0.0
    for i in range(p.size):
        out[i] = max(0.0, p[i] - q[i])
        total += out[i]
    for i in range(p.size):
        out[i] = out[i] / total if total > 0.0 else p[i]
    return out


def speculative_step(p: ArrayLike, q: ArrayLike, x: int, u_accept: float, u_resample: float) -> tuple[int, bool]:
    """Turn the draft token `x` ~ q into a token ~ p: `(x, True)` if kept, else `(replacement, False)`.

    p, q: float64 `[n]`. Both uniforms are taken whatever happens, so that the number of draws never depends on the
    outcome; `u_resample` picks the replacement from the residual. ValueError for x outside [0, n), q[x] = 0, a bad
    uniform or a bad distribution. Source: Leviathan et al. 2023, section 2.3.
    """
    p, q = check_pair(p, q)
    check_uniform(u_accept, "u_accept")
    check_uniform(u_resample, "u_resample")
    if not 0 <= x < q.size:
        raise ValueError(f"x is {x}; a token id lies in [0, {q.size}).")
    if rejection_accept(float(p[x]), float(q[x]), u_accept):
        return int(x), True
    return first_above(_residual(p, q), u_resample), False


def rejection_sample(
    p: ArrayLike, q: ArrayLike, m: float, rng: UniformSource, max_tries: int = 10000
) -> tuple[int, int]:
    """Draw from p by proposing from q until a proposal is accepted: `(x, tries)`.

    Each try takes one uniform for the proposal, then one for accepting it with probability p(x) / (m q(x)).
    ValueError when m < 1 or some p_i > m q_i; RuntimeError after `max_tries` rejections. Source: von Neumann 1951.
    """
    p, q = check_pair(p, q)
    if not m >= 1.0:
        raise ValueError(f"m is {m}; it must be >= 1.")
    if np.any(p > m * q):
        worst = int(np.argmax(p - m * q))
        raise ValueError(f"p[{worst}] = {p[worst]} exceeds m q[{worst}] = {m * q[worst]}; choose a larger m.")
    for tries in range(1, max_tries + 1):
        x = sample_categorical(q, rng.uniform())
        if rejection_accept(float(p[x]), float(m * q[x]), rng.uniform()):
            return x, tries
    raise RuntimeError(f"no proposal was accepted in {max_tries} tries; m = {m} may be far larger than needed.")
