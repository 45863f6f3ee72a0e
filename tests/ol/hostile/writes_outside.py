"""Leaves a file in the course."""

from pathlib import Path

Path("@COURSE@/planted.txt").write_text("I was here", encoding="utf-8")


def sample_categorical(p, u):
    return 0
