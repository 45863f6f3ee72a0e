"""Leaves a file in the course by the C library's own calls, which no audit hook sees."""

import ctypes


def sample_categorical(p, u):
    libc = ctypes.CDLL(None)
    descriptor = libc.open(b"@COURSE@/planted.txt", 0o101, 0o644)  # create, to write
    assert descriptor == -1, "the file was created"
    return 0
