"""Accept or replace, with whole arrays: every sum is the last of NumPy's running sums, which go left to right."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.exact import check_distribution
from tinyllm.prob.sampling import UniformSource, sample_categorical


def _both(p: ArrayLike, q: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    target, draft = check_distribution(p, "the target"), check_distribution(q, "the draft")
    if target.shape != draft.shape:
        raise ValueError(f"the target has {len(target)} ids and the draft {len(draft)}.")
    return target, draft


def _uniform(u: float) -> None:
    if math.isnan(u) or not 0 <= u < 1:
        raise ValueError(f"{u} is no uniform in [0, 1).")


def _added_up(x: NDArray[np.float64]) -> float:
    return float(np.add.accumulate(x)[-1])


def rejection_accept(p_x: float, q_x: float, u: float) -> bool:
    """True when `u < p_x / q_x`. ValueError for u outside [0, 1), p_x < 0 or q_x <= 0."""
    if p_x < 0 or math.isnan(p_x):
        raise ValueError(f"the target's probability is {p_x}.")
    if q_x <= 0 or math.isnan(q_x):
        raise ValueError(f"the draft's probability is {q_x}, and so it cannot have drawn this id.")
    _uniform(u)
    ratio = p_x / q_x
    return bool(ratio > u)


def acceptance_probability(p: ArrayLike, q: ArrayLike) -> float:
    """alpha: the ascending sum of min(p, q)."""
    target, draft = _both(p, q)
    return _added_up(np.where(target < draft, target, draft))


def residual_distribution(p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
    """max(0, p - q) / Z, float64 `[n]`; a fresh copy of p when Z is 0."""
    target, draft = _both(p, q)
    missing = np.clip(target - draft, 0.0, None)
    z = _added_up(missing)
    return np.array(target) if z == 0 else missing / z


def speculative_step(p: ArrayLike, q: ArrayLike, x: int, u_accept: float, u_resample: float) -> tuple[int, bool]:
    """`(x, True)` if the draft token is kept, else `(replacement, False)`. ValueError for what does not fit."""
    _uniform(u_resample)
    target, draft = _both(p, q)
    if x not in range(len(draft)):
        raise ValueError(f"the draft token {x} is no id of a vocabulary of {len(draft)}.")
    token = int(x)
    if rejection_accept(float(target[token]), float(draft[token]), u_accept):
        return token, True
    return sample_categorical(residual_distribution(target, draft), u_resample), False


def rejection_sample(
    p: ArrayLike, q: ArrayLike, m: float, rng: UniformSource, max_tries: int = 10000
) -> tuple[int, int]:
    """Draw from p by proposing from q: `(x, tries)`. ValueError for a bad m; RuntimeError after `max_tries`."""
    target, draft = _both(p, q)
    if math.isnan(m) or m < 1:
        raise ValueError(f"m must be at least 1, and is {m}.")
    envelope = m * draft  # [n]
    if (target > envelope).any():
        raise ValueError(f"with m = {m} the envelope m q is below p somewhere.")
    tries = 0
    while tries < max_tries:
        tries += 1
        x = sample_categorical(draft, rng.uniform())
        if rng.uniform() < target[x] / envelope[x]:
            return x, tries
    raise RuntimeError(f"{max_tries} proposals were all rejected.")
