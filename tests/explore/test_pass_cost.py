"""The Pass cost explorable: ratios, roofline and break-even by closed forms; the button with and without a model."""

import html
import json

import numpy as np
import pytest

from tinyllm.explore import pass_cost, timing
from tinyllm.explore.figure import PALETTE, new_figure
from tinyllm.explore.pass_cost import break_even, compute, draw, in_words, recorded, widget

# A machine on which a pass over n tokens takes 1, 1.5, 2 and 4 seconds; reading takes 0.5, computing 0.4 a token.
MADE_UP = {
    "machine": {"processor": "made up", "threads": 1},
    "bytes": 50,
    "bandwidth_bytes_per_s": 100.0,
    "flops_per_token": 4,
    "float32_flops_per_s": 10.0,
    "pass": {str(n): {"best_s": s, "median_s": 9.0} for n, s in ((1, 1.0), (2, 1.5), (3, 2.0), (4, 8.0))},
}


def test_ratios_and_roofline_by_hand() -> None:
    """The roof is flat while reading takes longer than computing, and then it rises.

    KIND: unit, smoke.
    """
    found = compute(MADE_UP)
    assert found.ratio.tolist() == [1, 1.5, 2, 8] and found.memory == 0.5
    assert found.roof == pytest.approx([0.5, 0.8, 1.2, 1.6])
    assert found.pays[:3] == pytest.approx([0, 0.5, (5**0.5 - 1) / 2]) and np.isnan(found.pays[3])


@pytest.mark.parametrize("k", [1, 2, 5, 15])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.93])
def test_break_even_inverts_the_expected_tokens(k: int, alpha: float) -> None:
    """At this alpha a round emits just what the pass costs.

    KIND: property.
    """
    assert break_even((1 - alpha ** (k + 1)) / (1 - alpha), k) == pytest.approx(alpha, abs=1e-12)


def test_the_ends_of_break_even() -> None:
    """A pass that costs no more pays always, one that costs more than k + 1 never.

    KIND: boundary.
    """
    assert break_even(0.98, 4) == 0.0 and break_even(5.0, 4) == pytest.approx(1.0) and np.isnan(break_even(5.01, 4))
    with pytest.raises(ValueError, match="over 1 token is needed"):
        compute({**MADE_UP, "pass": {"2": {"best_s": 1.0}}})


def test_the_words_give_the_times_the_limit_and_whose_they_are() -> None:
    """A measurement without its machine would be taken for the reader's own.

    KIND: unit.
    """
    words = in_words(MADE_UP, 3, "Here.")
    assert words.startswith("A pass over 3 tokens takes 2000.0 ms, 2.00 times as long as over one.")
    assert "1200.0 ms at best" in words and "With 2 free draft tokens it pays when alpha exceeds 0.62. Here." in words
    assert "Not even 3 free draft tokens" in in_words(MADE_UP, 4, "") and "pays" not in in_words(MADE_UP, 1, "")
    assert widget().words.endswith(f"A recorded run: SmolLM2 on {pass_cost.where(recorded())}.")
    assert widget(MADE_UP).words.endswith("Measured here: SmolLM2 on made up, 1 thread.")


def test_the_picture_shows_measured_ratios_between_the_roof_and_separate_passes() -> None:
    """What is drawn is what is computed, with n marked in both pictures.

    KIND: unit.
    """
    _figure, (cost, pays) = new_figure(columns=2)
    draw((cost, pays), MADE_UP, 2)
    separate, measured, mark = cost.lines
    assert separate.get_ydata().tolist() == [1, 2, 3, 4] and measured.get_ydata().tolist() == [1, 1.5, 2, 8]
    assert (mark.get_xdata(), mark.get_ydata()) == ([2], [1.5]) and mark.get_color() == PALETTE["rejected"]
    roof = cost.collections[0].get_paths()[0].vertices
    assert {round(y, 6) for x, y in roof if x == 3} >= {1.2}
    assert list(pays.lines[1].get_ydata()) == pytest.approx([0.5])
    assert pays.get_ylim() == (0, 1) and cost.get_ylim()[1] > 8


def test_the_slider_moves_n_and_the_page_without_a_kernel_has_all_of_them() -> None:
    """Its words are stored for each n, because the roofline is measured and not a formula.

    KIND: unit.
    """
    shown = widget(MADE_UP | {"pass": recorded()["pass"]})
    shown.inputs["n"].value = 9
    assert shown.words.startswith("A pass over 9 tokens") and shown.words in html.unescape(shown.shown.value)
    data = json.loads(shown.fallback().split(">", 2)[2].split("</script>")[0])["data"]
    assert data["words"][8] == shown.words and data["n"] == list(range(1, 17))


def test_without_a_model_the_button_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And starts nothing: the slider goes on with the recorded run.

    KIND: boundary.
    """
    monkeypatch.setattr(pass_cost, "why_not", lambda: "There is no model: fetch it.")
    shown = widget()
    assert shown.measure() is None and shown.answer.value == "There is no model: fetch it."
    assert not shown.button.disabled and widget(MADE_UP).children[0] is not widget(MADE_UP).button


def test_measuring_happens_in_a_thread_and_takes_the_place_of_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar moves, the words change, and a failure is told and leaves a button that works.

    KIND: unit.
    """
    monkeypatch.setattr(pass_cost, "why_not", lambda: None)
    monkeypatch.setattr(pass_cost, "smollm2", lambda: (None, None))
    bars = []

    def measured(model: object, repetitions: int, tick: object) -> dict:
        tick(0.5)
        bars.append(shown.bar.value)
        return MADE_UP | {"pass": recorded()["pass"]}

    monkeypatch.setattr(timing, "pass_cost", measured)
    shown = widget()
    shown.measure().join()
    assert bars == [0.5] and "Measured here: SmolLM2 on made up" in shown.words and not shown.button.disabled
    assert shown.words in html.unescape(shown.shown.value)
    monkeypatch.setattr(timing, "pass_cost", lambda *a: 1 / 0)
    shown.measure().join()
    assert shown.answer.value.startswith("Nothing was measured: division") and not shown.button.disabled


@pytest.mark.model
def test_a_pass_over_all_rows_is_timed_on_the_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table that the benchmark prints and the explorable draws, from a short measurement.

    KIND: smoke.
    """
    from tinyllm.zoo import smollm2

    monkeypatch.setattr(timing, "bandwidth", lambda: 1e10)
    monkeypatch.setattr(timing, "float_peak", lambda: 1e11)
    shares: list[float] = []
    found = timing.pass_cost(smollm2()[0], 2, shares.append)
    assert list(found["pass"]) == [str(n) for n in range(1, 17)] and shares == [0.5, 1.0]
    assert found["flops_per_token"] > 2 * 130e6 and json.loads(json.dumps(found)) == found
    assert compute(found).ratio[0] == 1
