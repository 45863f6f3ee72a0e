"""SmolLM2's tokenizer: byte-level byte-pair encoding, from the vocabulary and merges in the model's GGUF file.

Byte-pair encoding is by Sennrich et al. (2016, arXiv 1508.07909), the byte-level form by Radford et al. (2019, GPT-2);
SmolLM2 also gives every digit a token of its own. The `tokenizers` package runs it. Guarantee: `encode` either
returns ids whose `decode` is the text again, or raises ValueError.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tinyllm.tok.base import check_ids

if TYPE_CHECKING:
    from tinyllm.xfmr.gguf import GGUFFile

CONTROL = 3  # GGUF's token type for special tokens
MODEL, SPLITTING = "gpt2", "smollm"  # GGUF's names for byte-level BPE and for SmolLM2's way to cut text into words

CHAT_START, CHAT_END = "<|im_start|>", "<|im_end|>"
SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class BPETokenizer:
    """Byte-level BPE; a special token's name in the text, such as "<|im_end|>", is read as that token."""

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        special_ids: Sequence[int] = (),
        unk_id: int | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
        add_bos: bool = False,
    ) -> None:
        """Build it from its vocabulary.

        `tokens[i]` is token i in GPT-2's byte alphabet (a space is "Ġ"); `merges` are pairs "left right" in the order
        in which they were learned; `bos_id` and `eos_id` begin and end a text, and `add_bos` says whether
        `encode(text, add_special=True)` puts `bos_id` in front. ValueError for tokens given twice, ids out of range,
        and merges of or into something that is not a token.
        """
        vocabulary = {token: i for i, token in enumerate(tokens)}
        if len(vocabulary) != len(tokens):
            twice = next(token for i, token in enumerate(tokens) if vocabulary[token] != i)
            raise ValueError(f"The token {twice!r} is in the vocabulary twice: every token needs one id.")
        check_ids([i for i in (*special_ids, unk_id, bos_id, eos_id) if i is not None], len(tokens))
        if add_bos and bos_id is None:
            raise ValueError("add_bos is set but bos_id is None: say which id begins a text.")
        pairs = [tuple(merge.split(" ")) for merge in merges]
        try:
            model = models.BPE(vocabulary, pairs)  # type: ignore[arg-type]  # it checks that these are pairs
        except Exception as fault:  # the package raises nothing narrower
            raise ValueError(f"The merges do not fit the vocabulary: {fault}.") from None

        self.vocab_size = len(tokens)
        self.special_ids = frozenset(special_ids)
        self.unk_id, self.bos_id, self.eos_id, self.add_bos = unk_id, bos_id, eos_id, add_bos
        self._tokens, self._merges = list(tokens), list(merges)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer.add_special_tokens(
            [AddedToken(tokens[i], special=True, normalized=False) for i in sorted(special_ids)]
        )

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Self:
        """The tokenizer in a GGUF file's metadata. ValueError, naming the file, where it is of another kind."""

        def entry(key: str) -> Any:
            if key not in file.metadata:
                raise ValueError(f"{file.path} has no {key} in its metadata: it does not carry a tokenizer.")
            return file.metadata[key]

        kind = (entry("tokenizer.ggml.model"), entry("tokenizer.ggml.pre"))
        if kind != (MODEL, SPLITTING):
            raise ValueError(f"{file.path} has a tokenizer of kind {kind}; only {(MODEL, SPLITTING)} is built here.")
        tokens, types = entry("tokenizer.ggml.tokens"), entry("tokenizer.ggml.token_type")
        if len(types) != len(tokens):
            raise ValueError(f"{file.path} has {len(tokens)} tokens but {len(types)} token types.")
        try:
            return cls(
                tokens,
                entry("tokenizer.ggml.merges"),
                special_ids=[i for i, token_type in enumerate(types) if token_type == CONTROL],
                unk_id=file.metadata.get("tokenizer.ggml.unknown_token_id"),
                bos_id=file.metadata.get("tokenizer.ggml.bos_token_id"),
                eos_id=file.metadata.get("tokenizer.ggml.eos_token_id"),
                add_bos=file.metadata.get("tokenizer.ggml.add_bos_token", False),
            )
        except ValueError as fault:
            raise ValueError(f"{file.path} carries a tokenizer that does not work. {fault}") from None

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """The ids of `text`; with `add_special` after `bos_id`, where the model wants that (SmolLM2 does not).

        ValueError for a character that the vocabulary cannot spell. SmolLM2's lacks some bytes, such as those of most
        control characters, and other programs drop these without a word.
        """
        text.encode("utf-8")  # a lone surrogate is a ValueError here, where the message shows its place
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self.decode(ids) != text:
            bad = next((c for c in text if self._spelled(c) != c), text)
            raise ValueError(f"The vocabulary cannot spell {bad!r}: leave it out of the text.")
        return [self.bos_id, *ids] if add_special and self.add_bos and self.bos_id is not None else ids

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD. ValueError for an id out of range."""
        check_ids(ids, self.vocab_size)
        text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special)
        return text

    def chat(self, messages: str | Sequence[Mapping[str, str]]) -> str:
        """The prompt that asks SmolLM2-Instruct for its answer to `messages`, as the model was trained to see it.

        Each message has a "role" ("system", "user", "assistant") and a "content"; a plain string is one message of the
        user. SmolLM2's own system prompt goes in front unless the first message brings one. ValueError for a special
        token's name in a role or a content, which would let a message pretend to be several.
        Source: the chat template in the model's GGUF metadata.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if messages and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": SYSTEM_PROMPT}, *messages]
        for part in (part for message in messages for part in (message["role"], message["content"])):
            found = [self._tokens[i] for i in sorted(self.special_ids) if self._tokens[i] in part]
            if found:
                raise ValueError(f"A message may not contain {found[0]!r}: that is a mark of the chat format itself.")
        turns = (f"{CHAT_START}{message['role']}\n{message['content']}{CHAT_END}\n" for message in messages)
        return "".join(turns) + f"{CHAT_START}assistant\n"

    def token_to_id(self, token: str) -> int | None:
        """The id of one token, written in GPT-2's byte alphabet (a space is "Ġ"); None if it is not a token."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def id_to_token(self, id: int) -> str:
        """One token in GPT-2's byte alphabet. ValueError for an id out of range."""
        check_ids([id], self.vocab_size)
        return self._tokens[id]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file: the constructor's arguments."""
        content = {
            "tokens": self._tokens,
            "merges": self._merges,
            "special_ids": sorted(self.special_ids),
            "unk_id": self.unk_id,
            "bos_id": self.bos_id,
            "eos_id": self.eos_id,
            "add_bos": self.add_bos,
        }
        Path(path).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. ValueError, naming the file, for anything else."""
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8")))
        except (ValueError, TypeError, AttributeError) as fault:
            raise ValueError(f"{path} does not hold a saved BPETokenizer: {fault}") from None

    def _spelled(self, text: str) -> str:
        return self.decode(self._tokenizer.encode(text, add_special_tokens=False).ids)
