"""What the package means by a tokenizer: text to ids and back.

Ids are positions in a vocabulary, 0 to `vocab_size` - 1. The decoding loops call `encode` and `decode` only, so an
object with just these two serves them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable


class TextCodec(Protocol):
    """The part of a tokenizer that decoding needs."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`."""


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back, a vocabulary one can look into, and a file to keep it in."""

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text of their own: marks such as the end of a message."""

    @property
    def unk_id(self) -> int | None:
        """The id for what the vocabulary cannot spell, or None where everything can be spelled."""

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """The ids of `text`; with `add_special` also the marks that the model expects around a text."""

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD. ValueError for an id out of range."""

    def token_to_id(self, token: str) -> int | None:
        """The id of one token, written as the vocabulary writes it; None if it is not a token."""

    def id_to_token(self, id: int) -> str:
        """One token as the vocabulary writes it. ValueError for an id out of range."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to one file."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. ValueError, naming the file, for anything else."""


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """ValueError, naming the id, unless every id lies in [0, vocab_size)."""
    if len(ids) and not (min(ids) >= 0 and max(ids) < vocab_size):
        bad = next(i for i in ids if not 0 <= i < vocab_size)
        raise ValueError(f"The id {bad} is not in the vocabulary: ids go from 0 to {vocab_size - 1}.")
