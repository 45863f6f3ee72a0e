"""Pretends that the user pressed Ctrl-C."""


def sample_categorical(p, u):
    raise KeyboardInterrupt
