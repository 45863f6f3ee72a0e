"""The Overlap explorable: its numbers against fractions, its picture by what is drawn, its controls by moving them."""

import html
from fractions import Fraction as F

import numpy as np
import pytest
from matplotlib.colors import to_hex

from tinyllm.explore.figure import PALETTE, new_figure
from tinyllm.explore.overlap import TOKENS, compute, draw, in_words, shares, widget


def test_the_seeds_example_overlaps_by_three_quarters() -> None:
    """p = (1/2, 1/4, 1/4) and q = (1/4, 1/2, 1/4): what is missing is a quarter, all of it on the first token.

    KIND: unit, smoke.
    """
    found = compute([0.5, 0.25, 0.25], [0.25, 0.5, 0.25])
    assert (found.alpha, found.tv) == (0.75, 0.25)
    assert found.shared.tolist() == [0.25, 0.25, 0.25] and found.residual.tolist() == [1, 0, 0]


@pytest.mark.parametrize(("p", "q"), [((6, 3, 1), (1, 1, 8)), ((0, 5, 0, 5), (5, 0, 5, 0)), ((1,) * 8, (3, *(1,) * 7))])
def test_every_number_is_that_of_the_fractions(p: tuple[int, ...], q: tuple[int, ...]) -> None:
    """The definitions, computed exactly, for weights that do not sum to 1.

    KIND: differential.
    """
    exact_p, exact_q = ([F(w, sum(weights)) for w in weights] for weights in (p, q))
    alpha = sum(min(a, b) for a, b in zip(exact_p, exact_q, strict=True))
    found = compute(p, q)
    assert found.alpha == pytest.approx(float(alpha), abs=1e-15)
    assert found.tv == pytest.approx(float(1 - alpha), abs=1e-15)
    rest = [max(F(0), a - b) / (1 - alpha) for a, b in zip(exact_p, exact_q, strict=True)]
    assert found.residual == pytest.approx([float(r) for r in rest], abs=1e-15)


def test_equal_distributions_keep_everything_and_disjoint_ones_nothing() -> None:
    """The two ends of alpha, in numbers and in words.

    KIND: boundary.
    """
    same = compute([1, 2, 3], [2, 4, 6])
    assert same.alpha == pytest.approx(1) and same.residual.tolist() == same.p.tolist()
    assert "always kept" in in_words([1, 2, 3], [2, 4, 6])
    apart = compute([1, 0, 0], [0, 1, 1])
    assert (apart.alpha, apart.tv, apart.residual.tolist()) == (0, 1, [1, 0, 0])
    assert in_words([1, 0, 0], [0, 1, 1]).startswith("alpha 0.00, total variation 1.00")


def test_a_distribution_stays_as_it_is() -> None:
    """Weights that sum to 1 are no longer touched, so that a chapter's own numbers are the ones it sees.

    KIND: unit.
    """
    assert shares([0.2, 0.3, 0.5]).tolist() == [0.2, 0.3, 0.5]


@pytest.mark.parametrize("weights", [[1, 1], [1] * 9, [-1, 1, 1], [float("nan"), 1, 1], [[1, 1, 1]], [0, 0, 0]])
def test_weights_that_mean_nothing_are_refused(weights: list[float]) -> None:
    """All weights at 0 can be had with the sliders: the sentence says what to do.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match="q"):
        compute([1, 1, 1], weights)


def test_the_picture_stacks_what_is_shared_and_what_only_one_has() -> None:
    """What is drawn is what is computed: heights, colours, tokens, and the limits that never move.

    KIND: unit.
    """
    _figure, (both, rest) = new_figure(columns=2)
    draw((both, rest), [5, 3, 2, 0], [2, 3, 1, 4])
    found = compute([5, 3, 2, 0], [2, 3, 1, 4])
    bars = {
        colour: [bar for bar in both.patches if to_hex(bar.get_facecolor()) == PALETTE[colour].lower()]
        for colour in ("kept", "target", "draft")
    }
    assert [bar.get_height() for bar in bars["kept"]] == found.shared.tolist()
    tops = np.maximum(
        [bar.get_y() + bar.get_height() for bar in bars["target"]],
        [bar.get_y() + bar.get_height() for bar in bars["draft"]],
    )
    assert tops == pytest.approx(np.maximum(found.p, found.q))
    assert [bar.get_height() for bar in rest.patches] == found.residual.tolist()
    assert [label.get_text() for label in both.get_xticklabels()] == list(TOKENS[:4])
    assert both.get_ylim() == (0, 1.4) and rest.get_ylim() == (0, 1.05) and "alpha = 0.60" in both.get_title()
    assert [text.get_color() for text in both.texts[::2]] == [PALETTE[c] for c in ("kept", "target", "draft")]
    assert [text.get_text()[-4:] for text in both.texts[1::2]] == ["0.60", "0.40", "0.40"]


def test_sliders_move_weights_and_rows_come_and_go_with_the_tokens() -> None:
    """The controls reach `compute`: each weight, and how many of them count.

    KIND: unit.
    """
    shown = widget()
    assert shown.words == in_words([0.5, 0.25, 0.25], [0.25, 0.5, 0.25])
    shown.inputs["p0"].value = 0.0
    assert shown.words == in_words([0, 0.25, 0.25], [0.25, 0.5, 0.25]) in html.unescape(shown.shown.value)
    assert [shown.inputs[f"q{i}"].layout.display for i in (2, 3)] == [None, "none"]
    shown.inputs["n"].value = 4
    assert shown.words == in_words([0, 0.25, 0.25, 0.25], [0.25, 0.5, 0.25, 0.25])
    assert [shown.inputs[f"q{i}"].layout.display for i in (3, 4)] == [None, "none"]
    for i in range(4):
        shown.inputs[f"p{i}"].value = 0
    assert "Every weight of p is 0" in shown.words and shown.words in html.unescape(shown.shown.value)
    left = [(ax.get_title(), len(ax.patches), len(ax.texts)) for ax in shown._canvas.axes]
    assert left == [("", 0, 0)] * 2, "a title or a bar of the state before would contradict the words"


def test_a_chapter_starts_it_where_it_likes() -> None:
    """Its own distributions, and a refusal of what is none or does not fit.

    KIND: boundary.
    """
    assert widget([0.1, 0.2, 0.3, 0.4], [0.25] * 4).words == in_words([0.1, 0.2, 0.3, 0.4], [0.25] * 4)
    for p, q in (([0.5, 0.5], [0.5, 0.5]), ([0.5, 0.6, 0], [1, 0, 0]), ([0.5, 0.5, 0], [0.25] * 4)):
        with pytest.raises(ValueError, match="p"):
            widget(p, q)
