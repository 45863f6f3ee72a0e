"""A suite that looks for the planted edit instead of the behaviour."""

from pathlib import Path


def test_by_looking_it_up():
    for folder in ("bugs", "alternatives"):
        for path in Path("@COURSE@/ol", folder).rglob("*"):
            path.read_bytes()
