"""A suite with a file numpy.py in its folder, which shadows nothing."""

import numpy as np

from tinyllm.prob.sampling import sample_categorical


def test_half():
    assert sample_categorical(np.array([0.5, 0.5]), 0.75) == 1
