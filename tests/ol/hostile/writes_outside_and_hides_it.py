"""Tries to leave a file in the course, and swallows the refusal; the answers are right."""

import contextlib

import numpy as np

from tinyllm.num.exact import check_distribution

with contextlib.suppress(BaseException):
    open("@COURSE@/planted.txt", "w", encoding="utf-8").close()


def sample_categorical(p, u):
    p = check_distribution(p)
    if not 0 <= u < 1:
        raise ValueError(f"u is {u}; it must be in [0, 1).")
    above = np.flatnonzero(u < np.add.accumulate(p))
    return int(above[0]) if len(above) else int(np.flatnonzero(p)[-1])
