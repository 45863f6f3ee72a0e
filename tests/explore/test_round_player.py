"""The Round player: every moment against a cache that is really written and truncated, and the picture by its boxes."""

import html
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
from _toy import BagLM
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from tinyllm.explore import recordings, round_player
from tinyllm.explore.figure import PALETTE, new_figure
from tinyllm.explore.round_player import COLUMNS, LINES, ORIGINS, compute, draw, in_words, lines, recorded, widget
from tinyllm.infer.generate import Generation, Round, generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import PromptLookupDraft, speculative_generate
from tinyllm.tok.bytes import ByteTokenizer

HAND = Generation("", [3, 4, 5, 6], [], {}, {}, "length", [1, 2], [
    Round((3, 9, 9), 1, 4, "correction"),
    Round((5,), 1, 6, "bonus"),
])  # fmt: skip


def letters(token: int) -> str:
    return chr(ord("a") + token - 1)


def test_a_round_by_hand() -> None:
    """Two tokens of prompt; three drafts of which one is kept; then one of one. Every moment, position by position.

    KIND: unit, smoke.
    """
    moments = compute(HAND)
    assert [(m.round, m.phase) for m in moments] == [(r, phase) for r in (1, 2) for phase in round_player.PHASES]
    assert ["".join(letters(t) for t, _ in m.tokens) + " " + "".join(o for _, o in m.tokens) for m in moments] == [
        "abcii ppddd", "abcii ppddd", "abciid ppkrrc",
        "abcde ppkcd", "abcde ppkcd", "abcdef ppkckb",
    ]  # fmt: skip
    assert [m.cells for m in moments] == ["", "wwwww", "kkkxx", "hhh", "hhhww", "hhhkk"]
    assert [m.pending for m in moments] == [2, 0, 1, 1, 0, 1]
    assert [(m.passes, m.plain) for m in moments] == [(0, 0), (1, 0), (1, 2), (1, 2), (2, 2), (2, 4)]


class Watched(KVCache):
    """A cache that keeps the lengths it had before each truncation and after it."""

    log: ClassVar[list[tuple[int, int]]] = []

    def truncate(self, n: int) -> None:
        self.log.append((self.seq_len(), n))
        super().truncate(n)


@pytest.mark.parametrize("k", [0, 1, 4])
def test_the_cells_are_those_of_the_cache_that_the_loop_used(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The player infers the cache from the rounds; here the loop's own cache is watched.

    KIND: differential.
    """
    Watched.log = []
    monkeypatch.setattr("tinyllm.infer.generate.KVCache", Watched)
    tok = ByteTokenizer()
    greedy = SamplingParams(temperature=0, max_tokens=20)
    made = speculative_generate(BagLM(tok.vocab_size, seed=3), PromptLookupDraft(), tok, "abcabcab", greedy, k)
    verdicts = compute(made)[2::3]
    assert [(len(m.cells), len(m.cells) - m.cells.count("x")) for m in verdicts] == Watched.log
    assert [token for token, origin in verdicts[-1].tokens if origin in "kcb"][-1] == made.ids[-1]
    assert verdicts[-1].plain == 20 and verdicts[-1].passes == made.stats["target_calls"]


def test_plain_decoding_plays_too() -> None:
    """Its rounds have no draft: as many passes as tokens, and nothing is ever truncated.

    KIND: boundary.
    """
    tok = ByteTokenizer()
    made = generate(BagLM(tok.vocab_size, seed=3), tok, "abc", SamplingParams(temperature=0, max_tokens=5))
    moments = compute(made)
    assert [m.passes == m.plain for m in moments[2::3]] == [True] * 5
    assert not any("x" in m.cells for m in moments) and "nothing is proposed" in in_words(moments[0], letters)


def test_tokens_after_the_end_are_not_shown() -> None:
    """A round may emit the EOS, which is not part of the output.

    KIND: boundary.
    """
    ended = Generation("", [3], [], {}, {}, "stop", [1, 2], [Round((3, 4), 2, 0, "bonus")])
    last = compute(ended)[-1]
    assert [origin for _, origin in last.tokens] == ["p", "p", "k"] and last.plain == 1
    assert "the request ends" in in_words(last, letters)
    with pytest.raises(ValueError, match="no rounds"):
        compute(Generation("", [], [], {}, {}, "length", [1], []))


def test_the_words_say_what_happened() -> None:
    """Counts, the target's own token, the cache before and after, and the score against plain decoding.

    KIND: unit.
    """
    words = [in_words(m, letters) for m in compute(HAND)]
    assert words[0].startswith("Round 1 of 2, draft: 3 tokens proposed, 'c' 'i' 'i'.")
    assert "2 tokens are pending" in words[0]
    assert "5 tokens, 2 pending and 3 drafted" in words[1] and "from 0 to 5 positions" in words[1]
    assert "1 of 3 drafts kept" in words[2] and "'d' (correction)" in words[2] and "from 5 to 3" in words[2]
    assert "'f' (bonus); all 5 cache positions stay" in words[5]
    assert words[5].endswith("So far 4 tokens in 2 target passes; plain decoding needs 4.")


def boxes(axes: Sequence, colour: str) -> list[np.ndarray]:
    """The boxes of one colour of the palette: corners `[4, 2]` each."""
    found = []
    for collection in axes[0].collections:
        assert isinstance(collection, PolyCollection)
        for path, face in zip(collection.get_paths(), collection.get_facecolors(), strict=False):
            if tuple(face) == to_rgba((PALETTE[colour], 0.6)):
                found.append(path.vertices)
    return found


def test_the_picture_has_a_box_for_every_token_and_every_cell() -> None:
    """Counted by colour: the legend has one of each, and the bars have the lengths of the two counts.

    KIND: unit.
    """
    _figure, axes = new_figure()
    moment = compute(HAND)[2]
    draw(axes, moment, letters, slots=5, total=4)
    cells = {"prompt": 0, "kept": 3, "rejected": 2, "draft": 0, "correction": 0, "bonus": 0}
    tokens = {"prompt": 2, "kept": 1, "rejected": 2, "draft": 0, "correction": 1, "bonus": 0}
    plain_bar = 1
    for colour in cells:
        expected = 1 + cells[colour] + tokens[colour] + plain_bar * (colour == "prompt")
        assert len(boxes(axes, colour)) == expected, colour
    (passes,) = boxes(axes, "target")
    longest = COLUMNS - 22
    assert np.ptp(passes[:, 0]) == pytest.approx(longest * 1 / 4)
    said = [text.get_text() for text in axes[0].texts]
    assert said[: len(ORIGINS) + 1] == [*(label for label, _ in ORIGINS.values()), "pending"] and "abciid" in said
    assert "KV cache, 5 positions: 3 written and kept, 2 truncated; 3 remain" in said and "plain decoding: 2" in said
    bottom, top = axes[0].get_ylim()
    assert all(top < box[:, 1].min() and box[:, 1].max() < bottom for c in PALETTE for box in boxes(axes, c))


def test_long_texts_are_wrapped_and_scrolled() -> None:
    """No token is cut or lost on the way to the lines, and the last lines are the ones that stay.

    KIND: property.
    """
    text = ["word ", "a\n", "x" * (2 * COLUMNS + 3), "$\\frac{1}{2}$", "\n\n", ""]
    moment = compute(HAND)[0]._replace(tokens=tuple((i % len(text), "p") for i in range(3 * len(text))), pending=0)
    shown = lines(moment, text.__getitem__)
    assert len(shown) == LINES and all(sum(len(part) for part, *_ in line) <= COLUMNS for line in shown)
    short = moment._replace(tokens=((0, "p"), (1, "p"), (3, "p")))
    joined = ["".join(part for part, *_ in line) for line in lines(short, text.__getitem__)]
    assert joined == ["word a↵", "$\\frac{1}{2}$"]


def test_step_play_and_scrub_move_the_same_moment() -> None:
    """The buttons stop at both ends; the slider goes anywhere; picture and words follow.

    KIND: unit.
    """
    shown = widget(HAND)
    play, back, forward = shown.children[0].children
    assert (play.max, shown.inputs["step"].max) == (5, 5) and back.tooltip and forward.tooltip
    back.click()
    assert shown.state == {"step": 0}
    for _ in range(7):
        forward.click()
    assert shown.state == {"step": 5}
    shown.inputs["step"].value = 2
    assert "'[4]' (correction)" in shown.words and shown.words in html.unescape(shown.shown.value)
    spelled = widget(HAND, prompt_ids=[97, 98], tok=ByteTokenizer())
    assert "2 tokens are pending" in spelled.words and spelled._data["pieces"]["98"] == "b"


def test_the_stored_generation_plays_with_its_text_and_has_everything_in_it() -> None:
    """It ships, so that the player needs no model: and in it a reader meets every kind of token and every cell.

    KIND: unit.
    """
    moments = compute(recorded())
    assert {origin for m in moments for _, origin in m.tokens} == set(ORIGINS)
    assert {cell for m in moments for cell in m.cells} == set(round_player.CELLS)
    shown = widget()
    shown.inputs["step"].value = 2
    assert "'" + recordings.pieces()[recorded().rounds[0].token] + "'" in shown.words
    assert [step["words"] for step in shown._data["steps"]][2] == shown.words
    last = moments[-1]
    assert "".join(recordings.pieces()[t] for t, o in last.tokens if o in "kcb") == recorded().text
