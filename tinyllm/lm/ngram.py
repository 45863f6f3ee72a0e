"""Interpolated Kneser-Ney: a language model made of counts, for any order n.

A history that was seen discounts its counts and hands what it saved to the next shorter history, where a
token counts by how many different symbols came before it, not by how often it came (Kneser and Ney,
"Improved backing-off for m-gram language modeling", 1995; three discounts an order as in Chen and Goodman,
"An empirical study of smoothing techniques for language modeling", 1999). Every distribution is positive
everywhere and sums to one up to rounding; memory grows with the number of distinct grams, and `logprobs`
works on the tokens its histories have seen, not on V tokens an order.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as safetensors_bytes

from tinyllm.num.compiled import compiled

START = -1  # the symbol in front of every sequence; sorts before every id and is never predicted
LARGEST = 2**31 - 1  # ids and counts are int32, in memory and on disk

Discounts = tuple[float, float, float]


class _Order(NamedTuple):
    """Everything the model knows about its grams of one length k."""

    grams: NDArray[np.int32]  # [G, k], distinct and sorted; column-major: a column is one run of memory
    counts: NDArray[np.int32]  # [G], raw
    adjusted: NDArray[np.int32]  # [G]
    discounts: Discounts


class NGramLM:
    """An n-gram model; `vocab_size` is None until known (given, or 1 + the largest id that `fit` saw).

    n: order, >= 1. discount: "modified" (three discounts an order, from the counts) or one fixed d in (0, 1].
    ValueError for any other argument.
    """

    def __init__(self, n: int, discount: str | float = "modified", vocab_size: int | None = None) -> None:
        if not _is_int(n) or n < 1:
            raise ValueError(f"n is {n!r}: the order must be an int >= 1")
        number = not isinstance(discount, (str, bool)) and 0 < discount <= 1
        if discount != "modified" and not number:
            raise ValueError(f'discount is {discount!r}: give "modified" or a number in (0, 1]')
        if vocab_size is not None and not (_is_int(vocab_size) and 1 <= vocab_size <= LARGEST + 1):
            raise ValueError(f"vocab_size is {vocab_size!r}: give an int in 1..2^31, or None")
        self.n = int(n)
        self.discount = discount if isinstance(discount, str) else float(discount)
        self._given_vocab_size = None if vocab_size is None else int(vocab_size)
        self.vocab_size = self._given_vocab_size
        self._orders: list[_Order] = []  # order k at index k - 1
        self._levels = np.empty(0)  # [C] the distinct values of p_1
        self._level_of = np.empty(0, dtype=np.intp)  # [V] p_1(w) is _levels[_level_of[w]]

    def fit(self, sequences: Iterable[Sequence[int]]) -> NGramLM:
        """Count the sequences, forget what was counted before, and return self.

        Empty sequences are skipped. ValueError for an id that is no integer, below 0, or not below a given
        vocab_size, and when neither vocab_size nor any id says what V is; the model then stays as it was.
        """
        texts: list[NDArray[Any]] = []
        for sequence in sequences:
            ids = np.asarray(sequence)
            if ids.ndim != 1:
                raise ValueError(f"fit takes a list of id sequences, but one of them is {sequence!r}")
            if ids.size > 0 and ids.dtype.kind not in "iu":
                raise ValueError(f"ids must be integers, but a sequence has dtype {ids.dtype}")
            if ids.size > 0:
                texts.append(ids)
        vocab_size = self._given_vocab_size
        if vocab_size is None:
            if not texts:
                raise ValueError("fit saw no id and vocab_size is None: give one of the two")
            vocab_size = min(max(int(ids.max()) for ids in texts), LARGEST) + 1
        pieces = []
        for ids in texts:
            _check_range(int(ids.min()), int(ids.max()), vocab_size)
            pieces += [np.array([START], dtype=np.int32), ids.astype(np.int32)]
        # A gram is one window of the joined text. The start symbols behind the end complete the last windows,
        # which are then dropped like every window that runs over a boundary.
        joined = np.concatenate([*pieces, np.full(self.n, START, dtype=np.int32)])  # [L]
        tables = []
        for k in range(1, self.n + 1):
            windows = np.lib.stride_tricks.sliding_window_view(joined, k)  # [L - k + 1, k]
            inside = (windows[:, min(k - 1, 1) :] != START).all(axis=1)  # START may open a gram, never end it
            tables.append(_count_rows(windows[inside]))
        self._prepare(tables, vocab_size)
        return self

    def discounts(self, order: int) -> Discounts:
        """(D1, D2, D3+) of one order, in counts. ValueError before `fit`, or unless 1 <= order <= n."""
        self._fitted()
        if not _is_int(order) or not 1 <= order <= self.n:
            raise ValueError(f"order is {order!r}: this model has orders 1 to {self.n}")
        return self._orders[order - 1].discounts

    def prob(self, context: Sequence[int], token: int) -> float:
        """p(token | context), in (0, 1]. ValueError before `fit` and for ids out of range.

        Operations and order are those of `logprobs`: math.log(prob(c, w)) == logprobs(c)[w] to the bit.
        """
        history = self._history(context)
        if not _is_int(token):
            raise ValueError(f"ids must be integers, but the token is {token!r}")
        _check_range(token, token, self._fitted())
        p = float(self._levels[self._level_of[token]])
        for tokens, share, gamma in self._seen(history):
            p = gamma * p
            at = bisect_left(tokens, token)
            if at < len(tokens) and tokens[at] == token:
                p += float(share[at])
        return p

    def logprobs(self, context: Sequence[int]) -> NDArray[np.float64]:
        """log p(w | context) for every w: a new float64 [V], in nats. ValueError as for `prob`.

        Tokens that no history of the context has seen differ in p_1 alone, which takes few distinct values.
        Those are scaled and logged once a value, not once a token, and the seen tokens are written over them.
        """
        history = self._history(context)
        levels = self._levels  # [C]
        seen = np.empty(0, dtype=np.int32)
        p = np.empty(0)
        for tokens, share, gamma in self._seen(history):
            if len(seen) == 0:  # the shortest history comes first, and has seen whatever a longer one has
                seen, p = tokens, levels[self._level_of[tokens]]  # [m]
            levels = gamma * levels
            p = gamma * p
            p[np.searchsorted(seen, tokens)] += share
        out: NDArray[np.float64] = _log(levels)[self._level_of]  # [V]
        out[seen] = _log(p)
        return out

    def nll(self, ids: Sequence[int]) -> float:
        """Negative log-likelihood of a sequence, in nats: the sum over its ids. ValueError as for `prob`."""
        self._fitted()
        total = 0.0
        for i, token in enumerate(ids):
            total -= math.log(self.prob(ids[max(0, i - self.n + 1) : i], token))
        return total

    def perplexity(self, ids: Sequence[int]) -> float:
        """exp of the mean negative log-likelihood. ValueError as for `prob`, or when ids is empty."""
        if len(ids) == 0:
            raise ValueError("perplexity needs at least one id, but ids is empty")
        return math.exp(self.nll(ids) / len(ids))

    def save(self, path: str | Path) -> None:
        """Write one safetensors file: grams and raw counts of each order, int32. ValueError before `fit`.

        The bytes depend on the model alone: rows are sorted, and so are the metadata, which the safetensors
        package itself writes in an order that changes from run to run.
        """
        vocab_size = self._fitted()
        tensors = {}
        for k, order in enumerate(self._orders, start=1):
            tensors[f"order{k}.grams"] = np.ascontiguousarray(order.grams)
            tensors[f"order{k}.counts"] = order.counts
        metadata = {
            "tl_arch": "ngram",
            "n": str(self.n),
            "discount": self.discount if isinstance(self.discount, str) else repr(self.discount),
            "vocab_size": str(vocab_size),
        }
        raw = safetensors_bytes(tensors, metadata)
        body = 8 + int.from_bytes(raw[:8], "little")  # 8 bytes of header length, a JSON header, the tensors
        header = json.loads(raw[8:body])
        header["__metadata__"] = dict(sorted(metadata.items()))
        text = json.dumps(header, separators=(",", ":")).encode("utf-8")
        text += b" " * (-len(text) % 8)  # so that the tensors stay aligned
        Path(path).write_bytes(len(text).to_bytes(8, "little") + text + raw[body:])

    @classmethod
    def load(cls, path: str | Path) -> NGramLM:
        """Read a file written by `save`; the model's vocabulary is then fixed to the file's.

        ValueError naming the file when it is damaged, holds something else, or its counts disagree.
        """
        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in list(file.keys())}
        except SafetensorError as error:
            raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
        if metadata.get("tl_arch") != "ngram":
            arch = metadata.get("tl_arch")
            raise ValueError(f'{path} holds another model: tl_arch is {arch!r}, not "ngram"')
        try:
            discount, vocab_size = metadata["discount"], int(metadata["vocab_size"])
            lm = cls(int(metadata["n"]), discount if discount == "modified" else float(discount), vocab_size)
            tables = [(tensors[f"order{k}.grams"], tensors[f"order{k}.counts"]) for k in range(1, lm.n + 1)]
            _check_tables(tables, vocab_size)
        except KeyError as error:
            raise ValueError(f"{path} lacks {error}, which an n-gram model needs") from error
        except ValueError as error:
            raise ValueError(f"{path} holds no valid n-gram model: {error}") from error
        lm._prepare(tables, vocab_size)
        return lm

    def _prepare(self, tables: list[tuple[NDArray[np.int32], NDArray[np.int32]]], vocab_size: int) -> None:
        """Derive from sorted grams and raw counts what prediction needs, then replace the model by it."""
        orders = []
        for k, (grams, counts) in enumerate(tables, start=1):
            adjusted = counts
            if k < self.n:
                # Each gram of the next order is one distinct symbol in front of its suffix, and those
                # suffixes are, in the same order, the grams without START in front. The rest keep raw counts.
                longer, _ = tables[k]
                adjusted = counts.copy()
                adjusted[grams[:, 0] != START] = _count_rows(longer[:, 1:])[1]
            if isinstance(self.discount, str):
                discounts = _modified_discounts(adjusted)
            else:
                discounts = (self.discount, self.discount, self.discount)
            orders.append(_Order(np.asfortranarray(grams), counts, adjusted, discounts))
        p = np.full(vocab_size, 1.0 / vocab_size)  # p_0
        unigrams = orders[0]
        if len(unigrams.grams) > 0:
            share, gamma = _discounted(unigrams.adjusted, unigrams.discounts)
            p = gamma * p
            p[unigrams.grams[:, 0]] += share
        self._levels, self._level_of = np.unique(p, return_inverse=True)
        self._orders = orders
        self.vocab_size = vocab_size

    def _seen(self, history: list[int]) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float64], float]]:
        """For each seen suffix of the history, shortest first: the tokens after it, their share, and gamma.

        Stops at the first suffix that was never seen, because then no longer one was either.
        """
        for k in range(2, len(history) + 2):
            grams, _, adjusted, discounts = self._orders[k - 1]
            low, high = 0, len(grams)
            for column, symbol in enumerate(history[len(history) - k + 1 :]):
                low = bisect_left(grams[:, column], symbol, low, high)
                high = bisect_right(grams[:, column], symbol, low, high)
            if low == high:
                return
            share, gamma = _discounted(adjusted[low:high], discounts)
            yield grams[low:high, k - 1], share, gamma

    def _history(self, context: Sequence[int]) -> list[int]:
        """The at most n - 1 symbols that prediction looks at, with START in front of a short context."""
        vocab_size = self._fitted()
        if len(context) > 0:
            _check_range(min(context), max(context), vocab_size)
        tail = list(context[max(0, len(context) - self.n + 1) :])
        for symbol in tail:
            if not _is_int(symbol):
                raise ValueError(f"ids must be integers, but the context holds {symbol!r}")
        return tail if len(tail) == self.n - 1 else [START, *tail]

    def _fitted(self) -> int:
        """V, once there are counts."""
        if self.vocab_size is None or not self._orders:
            raise ValueError("the model has no counts yet: call fit, or load a saved one")
        return self.vocab_size


def _is_int(x: object) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def _check_range(smallest: int, largest: int, vocab_size: int) -> None:
    if smallest < 0 or largest >= vocab_size:
        bad = smallest if smallest < 0 else largest
        raise ValueError(f"id {bad} is out of range: ids run from 0 to {vocab_size - 1}")


@compiled
def _log(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """math.log of each element; np.log may differ from it in the last bit."""
    out = np.empty(len(p))
    for i in range(len(p)):
        out[i] = math.log(p[i])
    return out


def _count_rows(rows: NDArray[Any], weights: NDArray[Any] | None = None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The distinct rows [G, k], sorted, and how often each occurs, or the sum of its weights [G]."""
    order = np.lexsort(rows.T[::-1])  # lexsort's last key is the first to sort by
    rows = rows[order]
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    first = np.flatnonzero(is_new)
    each = np.ones(len(rows), dtype=np.int64) if weights is None else weights[order]
    sums = np.diff(np.append(0, np.cumsum(each, dtype=np.int64))[np.append(first, len(rows))])
    if sums.max(initial=0) > LARGEST:
        raise ValueError(f"a gram was counted {sums.max()} times, and counts go up to {LARGEST}")
    return rows[first], sums.astype(np.int32)


def _modified_discounts(adjusted: NDArray[np.int32]) -> Discounts:
    """(D1, D2, D3+) of one order from its adjusted counts [G] (Chen and Goodman 1999, section 3).

    Worked in fractions: whether a discount is exactly 0, and so replaced, must not hang on rounding.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(adjusted == j)) for j in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) > 0:
        y = Fraction(n1, n1 + 2 * n2)
        d1, d2, d3 = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        if 0 < d1 <= 1 and 0 < d2 <= 2 and 0 < d3 <= 3:
            return float(d1), float(d2), float(d3)
    return 0.5, 1.0, 1.5


def _discounted(adjusted: NDArray[np.int32], discounts: Discounts) -> tuple[NDArray[np.float64], float]:
    """One history: max(a - D(a), 0) / T of each continuation [m], and gamma, what is left to shorter ones."""
    kinds = np.minimum(adjusted, 3)  # [m]
    total = int(adjusted.sum(dtype=np.int64))
    share = np.maximum(adjusted - np.array((0.0, *discounts))[kinds], 0.0) / total  # [m]
    _, n1, n2, n3 = np.bincount(kinds, minlength=4).tolist()
    d1, d2, d3 = discounts
    return share, (d1 * n1 + d2 * n2 + d3 * n3) / total


def _check_tables(tables: list[tuple[NDArray[Any], NDArray[Any]]], vocab_size: int) -> None:
    """ValueError unless the grams and counts of orders 1 to n can have come from one text."""
    for k, (grams, counts) in enumerate(tables, start=1):
        if grams.dtype != np.int32 or counts.dtype != np.int32:
            raise ValueError(f"order {k} has {grams.dtype} grams and {counts.dtype} counts, not int32")
        if grams.ndim != 2 or grams.shape[1] != k or counts.shape != grams.shape[:1]:
            raise ValueError(f"order {k} has shapes {grams.shape} and {counts.shape}, not (G, {k}) and (G,)")
        if len(grams) == 0:
            continue
        if counts.min() < 1:
            raise ValueError(f"order {k} has a count of {counts.min()}, but a gram was seen at least once")
        _check_range(grams[:, min(k - 1, 1) :].min(), grams.max(), vocab_size)
        if grams[:, 0].min() < START:
            raise ValueError(f"order {k} has a gram that opens with {grams[:, 0].min()}")
        if not np.array_equal(_count_rows(grams)[0], grams):
            raise ValueError(f"the grams of order {k} are not distinct and sorted")
    for k, ((grams, counts), (longer, longer_counts)) in enumerate(pairwise(tables), start=1):
        whole = grams[:, 0] != START  # some symbol came before such a gram, so it ends a longer one
        suffixes, sums = _count_rows(longer[:, 1:], longer_counts)
        if not (np.array_equal(suffixes, grams[whole]) and np.array_equal(sums, counts[whole])):
            raise ValueError(f"the counts of orders {k} and {k + 1} contradict each other")
