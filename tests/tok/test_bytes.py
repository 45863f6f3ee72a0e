"""The byte tokenizer: every text survives it, and every sequence of bytes has a text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.tok.base import Tokenizer
from tinyllm.tok.bytes import ByteTokenizer

TOK = ByteTokenizer()


def test_ids_are_the_bytes_of_utf8() -> None:
    """Ids that a reader can check by hand are what this tokenizer is for.

    KIND: unit, smoke.
    """
    assert TOK.encode("Aé") == [0x41, 0xC3, 0xA9]
    assert TOK.decode([0x41, 0xC3, 0xA9]) == "Aé"
    assert TOK.encode("") == []
    assert TOK.decode([]) == ""
    assert isinstance(TOK, Tokenizer)


@given(st.text())
def test_every_text_survives(text: str) -> None:
    """A prompt that changed on its way through the tokenizer would be another prompt.

    KIND: property.
    """
    ids = TOK.encode(text)
    assert all(0 <= i < TOK.vocab_size for i in ids)
    assert TOK.encode(text, add_special=True) == ids
    assert TOK.decode(ids) == text


@given(st.lists(st.integers(0, 255)))
def test_every_id_sequence_has_a_text(ids: list[int]) -> None:
    """A model may emit any bytes, half characters among them; decoding replaces them and never fails.

    KIND: property, boundary.
    """
    text = TOK.decode(ids)
    assert text == TOK.decode(ids, skip_special=True) == bytes(ids).decode("utf-8", "replace")
    assert TOK.decode([0xE2, 0x82]) == "\ufffd"


@pytest.mark.parametrize("bad", [-1, 256, 10**20])
def test_an_id_out_of_range_is_named(bad: int) -> None:
    """Ids of another vocabulary must not decode to something plausible.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match=rf"The id {bad} is not in the vocabulary: ids go from 0 to 255"):
        TOK.decode([65, bad])
    with pytest.raises(ValueError, match=str(bad)):
        TOK.id_to_token(bad)


def test_a_lone_surrogate_is_refused() -> None:
    """Half of a UTF-16 pair has no UTF-8 form.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match="surrogates"):
        TOK.encode("a\ud800")


def test_tokens_and_ids_name_each_other() -> None:
    """Plots label tokens by name, so every id needs one name of its own.

    KIND: unit.
    """
    names = [TOK.id_to_token(i) for i in range(TOK.vocab_size)]
    assert names[0x41] == "<0x41>"
    assert [TOK.token_to_id(name) for name in names] == list(range(256))
    assert TOK.token_to_id("A") is None


def test_saving_and_loading(tmp_path: Path) -> None:
    """The file exists to say which tokenizer a saved model used; anything else in it is an error.

    KIND: unit, boundary.
    """
    path = tmp_path / "bytes.json"
    TOK.save(path)
    again = ByteTokenizer.load(path)
    assert again.decode(again.encode("naïve")) == "naïve"
    for other in ["", "{}", '{"tokenizer": "bpe"}']:
        path.write_text(other, encoding="utf-8")
        with pytest.raises(ValueError, match=r"bytes\.json does not hold a byte tokenizer"):
            ByteTokenizer.load(path)
