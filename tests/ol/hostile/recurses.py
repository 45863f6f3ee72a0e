"""Calls itself for ever."""


def sample_categorical(p, u):
    return sample_categorical(p, u)
