"""Fills the disk with small files."""

from pathlib import Path


def sample_categorical(p, u):
    for i in range(100_000):
        Path(f"{i}.txt").write_text("x", encoding="utf-8")
    return 0
