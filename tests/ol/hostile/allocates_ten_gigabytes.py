"""Asks for 10 GB and writes to all of it."""

import numpy as np


def sample_categorical(p, u):
    return int(np.ones(10 * 2**30 // 8).sum())
