"""The Live explorable: what it counts and says, how it refuses, and that a run neither blocks nor outlives its stop."""

import html
import json
import threading
import time

import numpy as np
import pytest
from _toy import BagLM

from tinyllm.explore import live
from tinyllm.explore.figure import PALETTE, new_figure
from tinyllm.explore.live import PLAIN, Request, Step, compare, compute, draw, follow, in_words, text_html, widget
from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import PromptLookupDraft, speculative_generate
from tinyllm.tok.bytes import ByteTokenizer

HAND = [
    Step(1.0, (("a", "kept"), ("b", "bonus")), 2, 1, 1),
    Step(1.5, (("c", "correction"),), 1, 4, 0),
    Step(2.0, (("d", "kept"), ("e", "kept"), ("<", "bonus")), 3, 2, 2),
]


class Toy(ByteTokenizer):
    """Bytes, with an id that ends a message."""

    eos_id = 0


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> BagLM:
    """A widget's model is a toy, and every draft a prompt lookup."""
    model = BagLM(Toy().vocab_size, seed=3)
    monkeypatch.setattr(live, "why_not", lambda: None)
    monkeypatch.setattr(live, "_model", lambda: (model, Toy()))
    monkeypatch.setattr(live.smollm2, "drafts", lambda model, ids: dict.fromkeys(live.DRAFTS, PromptLookupDraft()))
    return model


def test_tokens_speed_and_acceptance_by_hand() -> None:
    """The first pass reads the prompt, so the speed counts what came after it: four tokens in a second.

    KIND: unit, smoke.
    """
    assert compute(HAND) == (6, 3, 4.0, 7, 3) and compute(HAND).rate == 3 / 7
    assert in_words("n-gram", HAND) == (
        "n-gram: 6 tokens in 3 target passes, 4.0 tokens per second; 3 of 7 draft tokens kept (0.43)."
    )
    assert compute([]) == (0, 0, 0.0, 0, 0) and np.isnan(compute(HAND[:0]).rate)
    assert in_words(PLAIN, [Step(1.0, (("a", "bonus"),), 1, 0, 0)]) == "plain decoding: 1 token in 1 target pass."
    twice = [step._replace(seconds=2 * step.seconds) for step in HAND]
    assert compare(HAND, twice, greedy=True).startswith("The same text, as it must be; speculative decoding ran at 2.0")
    assert compare(HAND, twice[:2], greedy=True).startswith("The texts differ, and they must not")
    assert "samples" in compare(HAND, twice, greedy=False)


@pytest.mark.parametrize("drafted", [True, False])
def test_following_a_request_changes_nothing_of_it(drafted: bool) -> None:
    """The pieces are the text, the counts those of the generation, on both roads.

    KIND: differential.
    """
    model, tok, steps = BagLM(Toy().vocab_size, seed=3), Toy(), []
    request = Request("abcabcab", "prompt lookup" if drafted else None, max_tokens=30)
    made = follow(model, tok, PromptLookupDraft() if drafted else None, request, steps.append)
    p = SamplingParams(temperature=0, max_tokens=30)
    if drafted:
        expected = speculative_generate(model, PromptLookupDraft(), tok, "abcabcab", p, k=4, eos_ids=(0,))
        assert (compute(steps).drafted, compute(steps).accepted) == (made.stats["drafted"], made.stats["accepted"])
        assert compute(steps).accepted > 0
    else:
        expected = generate(model, tok, "abcabcab", p, eos_ids=(0,))
    assert made.ids == expected.ids and compute(steps).tokens == len(made.ids) and len(steps) == len(made.rounds)
    written = "".join(text for step in steps for text, _ in step.pieces)
    assert expected.text.startswith(written) and len(expected.text) - len(written) <= 1  # a last half of a character


def test_the_text_box_colours_origins_and_escapes_what_is_written() -> None:
    """The model may write markup, and a reader must see it as text.

    KIND: unit.
    """
    made = text_html("<b>&", HAND, "n-gram")
    assert "&lt;b&gt;&amp;" in made and f'background:{PALETTE["kept"]}55">a</span>' in made
    assert f'background:{PALETTE["correction"]}55">c</span>' in made and "&lt;</span>" in made
    assert "height:170px" in made


def test_the_picture_counts_tokens_over_seconds() -> None:
    """A line a run, from nothing at 0 seconds to its last token.

    KIND: unit.
    """
    _figure, (ax,) = new_figure()
    draw((ax,), {"n-gram": HAND, PLAIN: HAND[:1]})
    first, second = ax.lines
    assert (first.get_xdata().tolist(), first.get_ydata().tolist()) == ([0, 1, 1.5, 2], [0, 2, 3, 6])
    assert second.get_label() == PLAIN and ax.get_xlabel() == "seconds" and ax.get_xlim()[1] > 2


def test_what_cannot_run_is_answered_in_place(toy: BagLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty prompt, one that is too long, no model: a sentence each, and the next request runs.

    KIND: boundary.
    """
    shown = widget("")
    assert shown.run() is None and "The prompt is empty" in shown.notice.value
    shown.inputs["prompt"].value = "x" * (toy.max_len + 1)
    shown.run().join()
    assert f"the prompt has {toy.max_len + 1} tokens; this model takes at most {toy.max_len}" in shown.answer.value
    shown.inputs["prompt"].value = "abcab"
    shown.inputs["max_tokens"].value = 10
    shown.run().join()
    assert "10 tokens in" in shown.answer.value and shown.bar.value == 10 and shown.halt.disabled
    assert shown.notice.value == ""
    monkeypatch.setattr(live, "why_not", lambda: "There is no model: fetch it.")
    assert shown.run() is None and "There is no model: fetch it." in shown.notice.value


def test_a_run_can_be_watched_refused_a_twin_and_stopped_within_a_round(toy: BagLM) -> None:
    """The caller's thread goes on at once; while the model is in a pass, a second run is refused; after stop comes no
    further pass.

    KIND: property.
    """
    inside, go_on, passes = threading.Event(), threading.Semaphore(0), []
    forward = toy.forward

    def slow(ids: object, positions: object, cache: object) -> object:
        passes.append(time.perf_counter())
        inside.set()
        assert go_on.acquire(timeout=30)
        return forward(ids, positions, cache)

    toy.forward = slow
    shown, twin = widget("abcab"), widget("abc")
    thread = shown.run()
    assert inside.wait(30) and thread.is_alive() and not shown.halt.disabled
    assert twin.run() is None and shown.run() is None
    for one in (shown, twin):
        assert "A run is going on" in one.notice.value
    go_on.release()
    while len(passes) < 2:
        time.sleep(0.001)
    shown.stop()
    go_on.release(100)
    thread.join(30)
    assert not thread.is_alive() and len(passes) == 2
    assert "Stopped. prompt lookup: " in shown.answer.value and shown.halt.disabled


def test_a_run_that_fails_says_so_and_the_next_one_starts(toy: BagLM) -> None:
    """An error in a thread would be seen by nobody, and a lock that is kept would block the widget for good.

    KIND: boundary.
    """
    forward = toy.forward
    toy.forward = lambda *arguments: 1 / 0
    shown = widget("abcab")
    shown.run().join()
    assert "It did not run: division by zero" in shown.answer.value
    toy.forward = forward
    assert shown.texts[1].layout.display == "none"
    shown.beside.value = True
    assert shown.texts[1].layout.display is None
    shown.inputs["max_tokens"].value = 12
    shown.run().join()
    words = html.unescape(shown.answer.value)
    assert "plain decoding: 1" in words and "The same text, as it must be" in words
    assert PLAIN in shown.texts[1].value and "tinyllm-picture" in shown.shown.value


def test_a_page_without_a_kernel_gets_recorded_runs_and_says_so() -> None:
    """Each with both ways of decoding, which wrote the same.

    KIND: unit.
    """
    shown = widget()
    made = shown._repr_mimebundle_()["text/html"]
    data = json.loads(made.split(">", 2)[2].split("</script>")[0])
    assert data["name"] == "live" and made.count("Recorded runs: SmolLM2 on") == 2
    assert data["controls"][0]["options"] == [replay["name"] for replay in data["data"]["replays"]]
    for replay in data["data"]["replays"]:
        texts = ["".join(text for step in replay[way] for text, _ in step["pieces"]) for way in ("steps", "plain")]
        assert texts[0] == texts[1] and replay["words"].startswith(replay["draft"])


@pytest.mark.model
def test_smollm2_streams_to_the_widget() -> None:
    """The real model and its drafts behind the same buttons.

    KIND: smoke.
    """
    shown = widget()
    shown.inputs["max_tokens"].value = 8
    shown.run().join()
    assert "prompt lookup: 8 tokens in 2 target passes" in shown.answer.value
    assert html.escape(" brothers") in shown.texts[0].value
