"""A suite whose second test ends the process."""

import os

from tinyllm.prob.sampling import sample_categorical


def test_first():
    assert sample_categorical([1.0], 0.5) == 0


def test_second():
    os._exit(0)
