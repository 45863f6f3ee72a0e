"""A suite that compares texts instead of behaviour."""

import inspect
from pathlib import Path

import tinyllm.prob.sampling


def test_the_text_is_the_reference():
    reference = Path("@COURSE@/tinyllm/prob/sampling.py").read_text(encoding="utf-8")
    assert inspect.getsource(tinyllm.prob.sampling) == reference
