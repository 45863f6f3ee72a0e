"""Imports a module that imports it."""

from tinyllm.prob.rejection import acceptance_probability


def sample_categorical(p, u):
    return int(acceptance_probability(p, p) < u)
