"""Interpolated Kneser-Ney with dictionaries: for each history the tokens that followed it, in plain Python.

The numbers are those of the contract (Kneser and Ney 1995; Chen and Goodman 1999), and so are the bytes on disk, which
are written here by hand instead of by the safetensors package.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

START = -1
LARGEST = 2**31 - 1

Discounts = tuple[float, float, float]
Gram = tuple[int, ...]


class NGramLM:
    """An n-gram model of order n >= 1. ValueError for bad arguments."""

    def __init__(self, n: int, discount: str | float = "modified", vocab_size: int | None = None) -> None:
        if not _whole(n) or n < 1:
            raise ValueError(f"an order of {n!r} is none: it must be an int of at least 1")
        if isinstance(discount, str):
            if discount != "modified":
                raise ValueError(f"no discount is called {discount!r}")
        elif isinstance(discount, bool) or not 0 < discount <= 1:
            raise ValueError(f"a discount of {discount!r} is outside (0, 1]")
        if vocab_size is not None and (not _whole(vocab_size) or not 1 <= vocab_size <= 2**31):
            raise ValueError(f"a vocabulary of {vocab_size!r} is none")
        self.n = int(n)
        self.discount: str | float = discount if isinstance(discount, str) else float(discount)
        self.vocab_size = None if vocab_size is None else int(vocab_size)
        self._fixed = self.vocab_size
        self._counts: list[Counter[Gram]] | None = None

    def fit(self, sequences: Iterable[Sequence[int]]) -> NGramLM:
        """Count the sequences in place of what was counted before, and return self. ValueError for bad ids."""
        texts = [[self._known(x, self._fixed) for x in sequence] for sequence in sequences]
        seen = [x for text in texts for x in text]
        if self._fixed is None and not seen:
            raise ValueError("without a vocab_size at least one id is needed")
        counts: list[Counter[Gram]] = [Counter() for _ in range(self.n)]
        for text in filter(None, texts):
            symbols = (START, *text)
            for end in range(2, len(symbols) + 1):
                for k in range(1, min(self.n, end) + 1):
                    counts[k - 1][symbols[end - k : end]] += 1
        self._set(counts, self._fixed or max(seen) + 1)
        return self

    def discounts(self, order: int) -> Discounts:
        """(D1, D2, D3+) of one order. ValueError before `fit`, or unless 1 <= order <= n."""
        self._ready()
        if not _whole(order) or order < 1 or order > self.n:
            raise ValueError(f"there is no order {order!r} in a model of order {self.n}")
        return self._discounts[order - 1]

    def prob(self, context: Sequence[int], token: int) -> float:
        """p(token | context), in (0, 1]. ValueError before `fit` and for ids out of range."""
        history = self._history(context)
        return self._p(history, self._known(token, self._ready()))

    def logprobs(self, context: Sequence[int]) -> NDArray[np.float64]:
        """log p(w | context) for every w: a new float64 [V]. ValueError as for `prob`."""
        history = self._history(context)
        return np.array([math.log(self._p(history, w)) for w in range(self._ready())])

    def nll(self, ids: Sequence[int]) -> float:
        """Negative log-likelihood of a sequence, in nats. ValueError as for `prob`."""
        self._ready()
        total = 0.0
        for i in range(len(ids)):
            total += -math.log(self.prob(ids[:i], ids[i]))
        return total

    def perplexity(self, ids: Sequence[int]) -> float:
        """exp of the mean negative log-likelihood. ValueError as for `prob`, or when ids is empty."""
        if not len(ids):
            raise ValueError("no ids have no perplexity")
        return math.exp(self.nll(ids) / len(ids))

    def save(self, path: str | Path) -> None:
        """Write one safetensors file. ValueError before `fit`."""
        vocab_size = self._ready()
        assert self._counts is not None
        arrays: dict[str, NDArray[np.int32]] = {}
        for k, counter in enumerate(self._counts, start=1):
            rows = sorted(counter)
            arrays[f"order{k}.counts"] = np.array([counter[gram] for gram in rows], dtype="<i4")
            arrays[f"order{k}.grams"] = np.array(rows, dtype="<i4").reshape(len(rows), k)
        metadata = {
            "discount": self.discount if isinstance(self.discount, str) else repr(self.discount),
            "n": str(self.n),
            "tl_arch": "ngram",
            "vocab_size": str(vocab_size),
        }
        header: dict[str, object] = {"__metadata__": metadata}
        at = 0
        for name, array in arrays.items():
            header[name] = {"dtype": "I32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
            at += array.nbytes
        text = json.dumps(header).encode("utf-8")
        text = text.ljust(-(-len(text) // 8) * 8)
        body = b"".join(array.tobytes() for array in arrays.values())
        Path(path).write_bytes(len(text).to_bytes(8, "little") + text + body)

    @classmethod
    def load(cls, path: str | Path) -> NGramLM:
        """Read a file written by `save`. ValueError naming a file that is none."""
        raw = Path(path).read_bytes()
        try:
            body = 8 + int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8:body])
            metadata = header["__metadata__"]
            if metadata["tl_arch"] != "ngram":
                raise ValueError(f"it holds {metadata['tl_arch']!r}")
            arrays = {}
            for name, about in header.items():
                if name != "__metadata__":
                    first, last = about["data_offsets"]
                    values = np.frombuffer(raw[body + first : body + last], dtype="<i4")
                    arrays[name] = values.reshape(about["shape"])
            discount = metadata["discount"]
            lm = cls(int(metadata["n"]), discount if discount == "modified" else float(discount))
            counts: list[Counter[Gram]] = []
            for k in range(1, lm.n + 1):
                rows, times = arrays[f"order{k}.grams"].tolist(), arrays[f"order{k}.counts"].tolist()
                counts.append(Counter({tuple(row): count for row, count in zip(rows, times, strict=True)}))
            lm._fixed = int(metadata["vocab_size"])
            lm._set(counts, lm._fixed)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no n-gram model: {error}") from error
        return lm

    def _set(self, counts: list[Counter[Gram]], vocab_size: int) -> None:
        self._counts, self.vocab_size = counts, vocab_size
        self._after: list[dict[Gram, dict[int, int]]] = []
        self._discounts: list[Discounts] = []
        for k, counter in enumerate(counts, start=1):
            adjusted = dict(counter)
            if k < self.n:
                before = Counter(longer[1:] for longer in counts[k])
                adjusted = {gram: count if gram[0] == START else before[gram] for gram, count in counter.items()}
            if isinstance(self.discount, str):
                self._discounts.append(_modified(Counter(adjusted.values())))
            else:
                self._discounts.append((self.discount,) * 3)
            after: dict[Gram, dict[int, int]] = {}
            for gram, count in adjusted.items():
                after.setdefault(gram[:-1], {})[gram[-1]] = count
            self._after.append(after)

    def _p(self, history: Gram, token: int) -> float:
        after = self._after[len(history)].get(history)
        shorter = self._p(history[1:], token) if history else 1.0 / self._ready()
        if after is None:
            return shorter
        ds = self._discounts[len(history)]
        total = sum(after.values())
        n = Counter(min(count, 3) for count in after.values())
        p = (ds[0] * n[1] + ds[1] * n[2] + ds[2] * n[3]) / total * shorter
        if token in after:
            p += max(after[token] - ds[min(after[token], 3) - 1], 0.0) / total
        return p

    def _history(self, context: Sequence[int]) -> Gram:
        vocab_size = self._ready()
        known = tuple(self._known(x, vocab_size) for x in context)
        if len(known) < self.n - 1:
            return (START, *known)
        return known[len(known) - self.n + 1 :]

    def _ready(self) -> int:
        if self._counts is None or self.vocab_size is None:
            raise ValueError("nothing was counted yet; fit comes first")
        return self.vocab_size

    @staticmethod
    def _known(x: int, vocab_size: int | None) -> int:
        if not _whole(x):
            raise ValueError(f"{x!r} is no id, which are integers")
        if x < 0 or x >= (LARGEST + 1 if vocab_size is None else vocab_size):
            raise ValueError(f"the id {x} lies outside the vocabulary")
        return int(x)


def _whole(x: object) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def _modified(how_many: Counter[int]) -> Discounts:
    """The three discounts from how many grams have each adjusted count."""
    n1, n2, n3, n4 = (how_many[j] for j in range(1, 5))
    if n1 and n2 and n3 and n4:
        y = Fraction(n1, n1 + 2 * n2)
        ds = [j - (j + 1) * y * Fraction(b, a) for j, a, b in ((1, n1, n2), (2, n2, n3), (3, n3, n4))]
        if all(0 < d <= j for j, d in enumerate(ds, start=1)):
            return float(ds[0]), float(ds[1]), float(ds[2])
    return (0.5, 1.0, 1.5)
