"""Computes for hours in C, where no other thread of Python gets a turn."""


def sample_categorical(p, u):
    return 7 ** (3 * 10**8) % 2
