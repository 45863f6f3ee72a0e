"""The simplest tokenizer that can spell everything: one token a byte of UTF-8.

It needs no training and no file, so the toy models of the tests and the first chapters use it. Guarantee: for every
text, `decode(encode(text)) == text`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tinyllm.tok.base import check_ids

FILE_CONTENT = {"tokenizer": "bytes"}


class ByteTokenizer:
    """256 tokens, id = byte; no special tokens, and nothing it cannot spell."""

    vocab_size = 256
    special_ids: frozenset[int] = frozenset()
    unk_id: int | None = None

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """The bytes of `text` in UTF-8; `add_special` adds nothing. ValueError for a lone surrogate."""
        return list(text.encode("utf-8"))

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """The text of these bytes, what is not UTF-8 replaced by U+FFFD. ValueError for an id out of range."""
        check_ids(ids, self.vocab_size)
        return bytes(ids).decode("utf-8", errors="replace")

    def token_to_id(self, token: str) -> int | None:
        """The byte that a token such as "<0x41>" names; None if it is not a token."""
        return next((i for i in range(self.vocab_size) if self.id_to_token(i) == token), None)

    def id_to_token(self, id: int) -> str:
        """The byte as "<0x41>": half a character has no text to show. ValueError for an id out of range."""
        check_ids([id], self.vocab_size)
        return f"<0x{id:02X}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file that says that this is the byte tokenizer; there is nothing else to keep."""
        Path(path).write_text(json.dumps(FILE_CONTENT) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. ValueError, naming the file, for anything else."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError:
            content = None
        if content != FILE_CONTENT:
            raise ValueError(f"{path} does not hold a byte tokenizer: {json.dumps(FILE_CONTENT)} was expected.")
        return cls()
