"""Forgot the only function."""


def sample(p, u):
    return 0
