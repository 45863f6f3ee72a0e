"""The Acceptance explorable: its numbers against fractions and simulation, its picture by what is drawn."""

import html
from fractions import Fraction as F

import numpy as np
import pytest

from tinyllm.explore import acceptance
from tinyllm.explore.acceptance import LONGEST, Run, best_k, compute, draw, in_words
from tinyllm.explore.figure import new_figure
from tinyllm.num.rng import PCG32


def test_the_expected_tokens_are_the_geometric_sum() -> None:
    """alpha = 0.8 and k = 4 give 3.36 tokens per pass and an acceptance rate of 0.59.

    KIND: unit, smoke.
    """
    for alpha in (F(0), F(1, 3), F(4, 5), F(1)):
        found = compute(float(alpha), 0.0, range(6))
        for k in range(6):
            assert found.tokens[k] == pytest.approx(float(sum(alpha**i for i in range(k + 1))), abs=1e-12)
    found = compute(0.8, 0.0, [4])
    assert round(float(found.tokens[0]), 2) == 3.36 and round(float(found.rate[0]), 2) == 0.59


def test_a_simulated_round_agrees_with_the_formula() -> None:
    """Coins kept until the first rejection give the tokens and the rate of `compute`.

    KIND: statistical.
    """
    coins, alpha, k, rounds = PCG32(12), 0.7, 5, 4000
    kept = 0
    for _ in range(rounds):
        flips = coins.uniforms(k) < alpha
        kept += k if flips.all() else int(np.argmin(flips))
    expected = compute(alpha, 0.0, [k])
    assert 1 + kept / rounds == pytest.approx(expected.tokens[0], rel=0.03)
    assert kept / (k * rounds) == pytest.approx(expected.rate[0], rel=0.03)


def test_the_best_k_is_where_the_speedup_is_highest() -> None:
    """A free draft wants the longest length, a worthless one none.

    KIND: unit.
    """
    assert best_k(0.9, 0.0) == LONGEST and best_k(0.0, 0.1) == 0
    speedups = compute(0.8, 0.1, range(LONGEST + 1)).speedup
    assert speedups[best_k(0.8, 0.1)] == speedups.max() > 1


def test_no_draft_is_plain_decoding() -> None:
    """k = 0 emits one token a pass, and there is no rate to speak of.

    KIND: boundary.
    """
    found = compute(0.5, 0.3, [0])
    assert (found.tokens[0], found.speedup[0]) == (1.0, 1.0) and np.isnan(found.rate[0])


@pytest.mark.parametrize(("alpha", "cost", "k"), [(-0.1, 0, [1]), (1.1, 0, [1]), (0.5, -1, [1]), (0.5, 0, [-1])])
def test_numbers_that_mean_nothing_are_refused(alpha: float, cost: float, k: list[int]) -> None:
    """A slider cannot give them, a caller can.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match="is"):
        compute(alpha, cost, k)


def test_the_picture_marks_the_state_the_best_k_and_the_runs_of_this_k() -> None:
    """What is drawn is what is said.

    KIND: unit.
    """
    _figure, axes = new_figure(columns=3)
    draw(axes, 0.8, 0.05, 4, [Run("a", 4, 100, 60, 20, 3.0), Run("b", 5, 100, 60, 20, 3.0)])
    squares = [line for line in axes[0].lines if line.get_marker() == "s"]
    assert [(round(x, 2), y) for line in squares for x, y in zip(*line.get_data(), strict=True)] == [(0.75, 3.0)]
    words = in_words(0.8, 0.05, 4, [Run("a", 4, 100, 60, 20, 3.0), Run("b", 5, 100, 60, 20, 3.0)])
    assert "a 3.00 at alpha 0.75" in words and "b 3.00" not in words
    marked = [line for line in axes[2].lines if line.get_marker() == "*"]
    assert marked[0].get_xdata()[0] == best_k(0.8, 0.05)
    assert "3.36 tokens per pass" in in_words(0.8, 0.05, 4) and "k = 4" in axes[0].get_title()


def test_where_no_run_was_measured_the_words_say_where_there_are_some() -> None:
    """Squares that vanish without a word look like a fault of the picture.

    KIND: unit.
    """
    runs = [Run(name, k, 100, 60, 20, 3.0) for name, k in (("a", 7), ("b", 4), ("c", 7), ("d", 16))]
    assert in_words(0.8, 0.05, 5, iter(runs)).endswith(" The measured runs, drawn as squares, are at k 4, 7, 16.")
    assert "drawn as squares" not in in_words(0.8, 0.05, 4, runs) + in_words(0.8, 0.05, 5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_mark_at_the_end_of_an_axis_is_whole(alpha: float) -> None:
    """What matters most lies at the ends: alpha = 1 is a perfect draft, and its dot was cut in two.

    KIND: boundary.
    """
    _figure, axes = new_figure(columns=3)
    draw(axes, alpha, 1.0, 16, [Run("a", 16, 100, 100, 0, 17.0)])
    marks = [line for ax in axes for line in ax.lines if line.get_marker() in ("o", "s")]
    assert len(marks) == 5 and not any(mark.get_clip_on() for mark in marks)


def test_a_slider_redraws_the_picture_with_its_words() -> None:
    """An error inside a control's callback stays unseen in a stored notebook, so the shell is tried here.

    KIND: unit.
    """
    runs = [Run("a", 4, 100, 60, 20, 3.0)]
    shown = acceptance.widget(runs)
    assert shown.words == in_words(0.8, 0.05, 4, runs)
    shown.inputs["k"].value = 7
    assert shown.words == in_words(0.8, 0.05, 7, runs) and shown.words in html.unescape(shown.shown.value)
    shown.inputs["alpha"].value = 0.5
    assert shown.words == in_words(0.5, 0.05, 7, runs) and shown.words in html.unescape(shown.shown.value)
