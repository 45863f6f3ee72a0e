"""A fork loop."""

import os


def sample_categorical(p, u):
    while True:
        try:
            os.fork()
        except OSError:
            return 0
