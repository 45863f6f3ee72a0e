"""The Draft shape explorable: counts by hand and against the definition, the picture by its bars and points."""

import html

import numpy as np
import pytest
from matplotlib.colors import to_hex

from tinyllm.explore import draft_shape, recordings
from tinyllm.explore.draft_shape import ALL, compute, draw, in_words, widget
from tinyllm.explore.figure import PALETTE, new_figure
from tinyllm.infer.generate import Generation, Round


def generation(*kept_of: tuple[int, int]) -> Generation:
    """Rounds that kept so many of so many."""
    rounds = [Round((7,) * m, n, 1, "correction" if n < m else "bonus") for n, m in kept_of]
    return Generation("", [], [], {}, {}, "length", [1], rounds)


HAND = generation((0, 3), (2, 3), (3, 3), (1, 1), (0, 0), (1, 3))


def test_the_counts_by_hand() -> None:
    """A short draft that is kept whole reaches no further position; a round without a draft counts for nothing.

    KIND: unit, smoke.
    """
    shape = compute([HAND])
    assert (shape.k, shape.rounds, shape.silent) == (3, 5, 1)
    assert shape.lengths.tolist() == [1, 2, 1, 1]
    assert shape.reached.tolist() == [5, 3, 2] and shape.kept.tolist() == [4, 2, 1]
    assert shape.alpha == 7 / 10


def test_alpha_is_kept_over_judged_and_runs_add_up() -> None:
    """Judged positions are the kept ones and one more in each round with a correction.

    KIND: differential.
    """
    runs = recordings.runs()
    for draft in ("prompt lookup", "n-gram", "model"):
        shape = compute(draft_shape.select(runs, ALL, draft))
        rounds = [done for (_, name), made in runs.items() if name == draft for done in made.rounds]
        accepted, rejected = sum(d.accepted for d in rounds), sum(d.kind == "correction" for d in rounds)
        assert shape.alpha == accepted / (accepted + rejected)
        assert shape.rounds + shape.silent == len(rounds) and shape.kept.sum() == accepted


def test_a_draft_that_never_speaks_has_no_shape() -> None:
    """Plain decoding, or a prompt lookup that finds nothing: a sentence, and a picture that does not fail.

    KIND: boundary.
    """
    silent = {"lookup": generation((0, 0), (0, 0))}
    assert np.isnan(compute(silent.values()).alpha)
    assert "nothing was drafted in 2 rounds" in in_words(silent, ALL, "lookup")
    _figure, axes = new_figure(columns=2)
    draw(axes, silent, ALL, "lookup")
    with pytest.raises(ValueError, match="no run of model on chat"):
        in_words(silent, "chat", "model")
    with pytest.raises(ValueError, match="no runs"):
        widget({})


def test_the_picture_shows_the_counts_and_marks_what_rests_on_few_rounds() -> None:
    """Bars are shares of the rounds with their counts above; a point from fewer than ten rounds is hollow.

    KIND: unit.
    """
    _figure, (by_length, by_position) = new_figure(columns=2)
    draw((by_length, by_position), {("a", "x"): HAND, ("b", "x"): HAND}, ALL, "x")  # reached: 10, 6 and 4 times
    assert [bar.get_height() for bar in by_length.patches] == pytest.approx([1 / 5, 2 / 5, 1 / 5, 1 / 5])
    assert [to_hex(bar.get_facecolor()) for bar in by_length.patches[:2]] == [
        PALETTE["rejected"].lower(), PALETTE["kept"].lower(),
    ]  # fmt: skip
    assert [text.get_text() for text in by_length.texts] == ["2", "4", "2", "2"]
    full, hollow = (line for line in by_position.lines if line.get_marker() == "o")
    assert (full.get_xdata().tolist(), full.get_ydata().tolist()) == ([1], [4 / 5])
    assert (hollow.get_xdata().tolist(), hollow.get_ydata().tolist()) == ([2, 3], [2 / 3, 1 / 2])
    assert hollow.get_markerfacecolor() == "white" and not hollow.get_clip_on()
    assert by_position.lines[-1].get_ydata()[0] == 0.7 and by_length.get_ylim() == by_position.get_ylim() == (0, 1.1)
    assert by_length.get_title() == "10 rounds with a draft"


def test_the_words_count_every_pass_and_no_place_that_was_not_reached() -> None:
    """A pass without a draft is a pass too; "0 of 0" is no share; what a hollow point means is said where there is one.

    KIND: unit, boundary.
    """
    words = in_words({"x": HAND}, ALL, "x")
    assert "x on all texts: 5 rounds with a draft, 1 without." in words
    assert "4 of 5, 2 of 3, 1 of 2; alpha" in words and words.endswith(f"fewer than {draft_shape.FEW} rounds.")
    rejected = generation(*[(0, 3)] * draft_shape.FEW)
    assert f"by position: 0 of {draft_shape.FEW}, and no round got further; alpha about 0.00." in in_words(
        {"x": rejected}, ALL, "x"
    )
    assert "Hollow" not in in_words({"x": rejected}, ALL, "x")
    assert "Hollow" in in_words({"x": generation(*[(0, 3)] * (draft_shape.FEW - 1))}, ALL, "x")


@pytest.mark.parametrize("often", [1, 2, 20])
def test_the_picture_has_its_room_whether_points_are_hollow_full_or_both(often: int) -> None:
    """A line without points once took the width of the picture from its axes.

    KIND: boundary.
    """
    figure, axes = new_figure(columns=2)
    draw(axes, {(str(i), "x"): HAND for i in range(often)}, ALL, "x")
    figure.draw_without_rendering()
    assert all(ax.get_position().width > 0.35 for ax in axes)


def test_text_and_draft_are_chosen_apart() -> None:
    """The recorded runs by default; a chapter's own by pairs, or by draft alone.

    KIND: unit.
    """
    shown = widget()
    assert shown.inputs["text"].options == (ALL, *dict.fromkeys(text for text, _ in recordings.runs()))
    shown.inputs["text"].value, shown.inputs["draft"].value = "quoting", "n-gram"
    assert shown.words.startswith("n-gram on quoting: 21 rounds") and shown.words in html.unescape(shown.shown.value)
    stored = shown._data["shapes"]["quoting"]["n-gram"]
    assert stored["words"] == shown.words and sum(stored["lengths"]) == 21
    assert widget({"mine": HAND}).words == in_words({"mine": HAND}, ALL, "mine")
    sparse = widget({("a", "x"): HAND, ("b", "y"): HAND})
    sparse.inputs["text"].value = "b"
    assert sparse.words == "there is no run of x on b."
