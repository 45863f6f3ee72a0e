"""Toys for the tests of decoding: models, tokenizers, drafts and uniforms small enough to think through.

The models keep in the KV cache what a real one keeps there, something made of each token and its position, and read
their context back out of it. So a stale, missing or misplaced cache entry is an error or another output, as it would
be in a Transformer, and never goes unseen. They are computed row by row in float64: a row's bits depend on the
tokens up to it and on nothing else, least of all on how many rows a pass scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# ---------------------------------------------------------------------------------------------------------- uniforms


class Uniforms:
    """A uniform source that replays a list and counts what was drawn; one draw too many is an error."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.values = list(values)
        self.used = 0

    def uniform(self) -> float:
        assert self.used < len(self.values), f"draw number {self.used + 1}, but only {len(self.values)} were expected"
        self.used += 1
        return self.values[self.used - 1]


class Counting:
    """Counts the draws of another uniform source."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.used = 0

    def uniform(self) -> float:
        self.used += 1
        return float(self.source.uniform())


def midpoints(n: int) -> list[float]:
    """The middles of n equal cells of [0, 1).

    Where every threshold that a uniform meets is a multiple of 1/n, these n values stand for the whole interval, and
    rounding in the thresholds cannot matter: each is half a cell away from the nearest value.
    """
    return [(j + 0.5) / n for j in range(n)]


def frequencies(outcomes: Iterable[Any]) -> dict[Any, Fraction]:
    """How often each outcome came, as exact fractions of all (equally likely) outcomes."""
    counts: dict[Any, int] = {}
    total = 0
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
        total += 1
    return {outcome: Fraction(count, total) for outcome, count in counts.items()}


def as_fractions(weights: Sequence[int]) -> dict[int, Fraction]:
    """The distribution with these integer weights, as `frequencies` writes one: only ids that can come out."""
    return {i: Fraction(w, sum(weights)) for i, w in enumerate(weights) if w}


def distribution(weights: Sequence[int]) -> NDArray[np.float64]:
    """The distribution with these integer weights, float64 [V]."""
    return np.array([w / sum(weights) for w in weights])


def logits_of(weights: Sequence[float]) -> NDArray[np.float64]:
    """Logits whose softmax has these weights, float64 [V]; weight 0 becomes -inf."""
    return np.array([np.log(w) if w > 0 else -np.inf for w in weights])


def chi_square_p(statistic: float, degrees: int) -> float:
    """The upper tail of the chi-square distribution, in its closed form for an even number of degrees."""
    assert degrees % 2 == 0, "the closed form needs an even number of degrees of freedom"
    term = total = 1.0
    for i in range(1, degrees // 2):
        term *= statistic / 2 / i
        total += term
    return float(np.exp(-statistic / 2) * total)


# ------------------------------------------------------------------------------------------------------------ models


@dataclass
class Pass:
    """One forward pass: where its chunk began, the tokens of the chunk, and the tokens it attended to."""

    start: int
    chunk: list[int]
    context: list[int]  # everything up to the chunk's end, as read from the cache


class ToyLM:
    """A model whose logits after a context are `row(context)`; it checks the cache on every pass.

    `row` is what a subclass gives. `passes` records every forward pass. ids are [1, T]; logits are float64 [1, T, V].
    """

    n_layers = 2
    n_kv_heads = 2
    d_head = 3

    def __init__(self, vocab_size: int, max_len: int = 64) -> None:
        self.vocab_size = vocab_size
        self.max_len = max_len
        self.passes: list[Pass] = []

    def row(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Logits [V] of the token after `context`."""
        raise NotImplementedError

    def forward(self, ids: Any, positions: Any = None, cache: Any = None) -> Any:
        return self._rows(*self._attend(ids, positions, cache))

    def greedy(self, context: Sequence[int], n: int) -> list[int]:
        """The n ids that an argmax loop continues with: the whole definition of greedy decoding, without a cache."""
        out: list[int] = []
        for _ in range(n):
            out.append(int(np.argmax(self.row([*context, *out]))))
        return out

    def _rows(self, start: int, context: list[int]) -> NDArray[np.float64]:
        rows = [self.row(context[: end + 1]) for end in range(start, len(context))]
        return np.array(rows, dtype=np.float64)[None]  # [1, T, V]

    def _attend(self, ids: Any, positions: Any, cache: Any) -> tuple[int, list[int]]:
        """Write the chunk to the cache, check everything it holds, and read the context back: (start, context)."""
        array = np.asarray(ids)
        assert array.ndim == 2 and array.shape[0] == 1 and array.shape[1] > 0, f"ids of shape {array.shape}"
        chunk = [int(i) for i in array[0]]
        assert all(0 <= i < self.vocab_size for i in chunk), f"an id outside the vocabulary in {chunk}"
        start = 0 if cache is None else int(cache.seq_len())
        where = np.arange(start, start + len(chunk))
        if positions is not None:
            assert np.array_equal(np.asarray(positions), where), (
                f"the cache holds {start} positions, but the chunk {chunk} is said to be at {positions}"
            )
        assert start + len(chunk) <= self.max_len, f"position {start + len(chunk) - 1} of a model of {self.max_len}"
        context = chunk if cache is None else self._through(cache, chunk, where)
        self.passes.append(Pass(start, chunk, context))
        return start, context

    def _through(self, cache: Any, chunk: list[int], where: NDArray[np.int64]) -> list[int]:
        """Store each token in every layer's K and V; whatever comes back must be tokens at 0, 1, 2, ... in order."""
        start, n = int(where[0]), int(where[-1]) + 1
        context: list[int] | None = None
        for layer in range(self.n_layers):
            assert cache.seq_len(layer) == start, f"layer {layer} holds {cache.seq_len(layer)} positions, not {start}"
            k, v = cache.update(layer, *self._keys_values(layer, chunk, where))  # each [1, n_kv_heads, n, d_head]
            assert k.shape == v.shape == (1, self.n_kv_heads, n, self.d_head), f"the cache gave {k.shape} and {v.shape}"
            tokens = k[0, 0, :, 0].astype(np.int64)
            want_k, want_v = self._keys_values(layer, tokens, np.arange(n))
            assert np.array_equal(k, want_k) and np.array_equal(v, want_v), (
                f"layer {layer} should hold positions 0 to {n - 1} in order, but its keys are {k[0].tolist()}"
            )
            assert context in (None, tokens.tolist()), f"the layers hold different tokens: {context} and {tokens}"
            context = tokens.tolist()
        assert context is not None
        return context

    def _keys_values(self, layer: int, tokens: Any, where: NDArray[np.int64]) -> tuple[Any, Any]:
        """What this model keeps of tokens at positions: (token, position, layer and head), in K and V differently."""
        k = np.empty((1, self.n_kv_heads, len(where), self.d_head), dtype=np.float32)
        k[..., 0], k[..., 1], k[..., 2] = tokens, where, 10 * layer + np.arange(self.n_kv_heads)[:, None]
        return k, k[..., ::-1].copy()


class BagLM(ToyLM):
    """A toy language model: the logits after a context are a weighted bag of its tokens, through fixed seeded tables.

    The last token counts most, earlier ones less and by where they stand, so the output repeats itself now and then
    (drafts get something right) and still changes when any earlier token changes (a stale cache entry shows).
    """

    def __init__(self, vocab_size: int = 11, seed: int = 0, max_len: int = 64, sharpness: float = 1.0) -> None:
        super().__init__(vocab_size, max_len)
        rng = np.random.default_rng([seed, vocab_size])
        self.last = rng.normal(size=(vocab_size, vocab_size))  # [V, V]: what the last token says about the next
        self.bag = rng.normal(size=(vocab_size, vocab_size))  # [V, V]: what any token says
        self.weight = rng.normal(size=7)  # by position, modulo 7
        self.sharpness = sharpness

    def row(self, context: Sequence[int]) -> NDArray[np.float64]:
        n = len(context)
        weight = self.weight[np.arange(n) % 7] * 0.9 ** np.arange(n - 1, -1, -1)
        bag = (weight[:, None] * self.bag[list(context)]).sum(axis=0)  # [V]
        return np.asarray(self.sharpness * (2.0 * self.last[context[-1]] + 0.5 * bag))


class TableLM(ToyLM):
    """A model given as a table: `rows[context]` are the logits after that context, `default` those after any other."""

    def __init__(
        self, rows: Mapping[tuple[int, ...], Sequence[float]], default: Sequence[float], max_len: int = 64
    ) -> None:
        super().__init__(len(default), max_len)
        self.rows = {context: np.array(row, dtype=np.float64) for context, row in rows.items()}
        self.default = np.array(default, dtype=np.float64)

    def row(self, context: Sequence[int]) -> NDArray[np.float64]:
        return self.rows.get(tuple(context), self.default)


class ScriptLM(TableLM):
    """A model that, after `prompt`, says the ids of `script` one by one, whatever was really fed at those places."""

    def __init__(self, prompt: Sequence[int], script: Sequence[int], vocab_size: int, max_len: int = 64) -> None:
        super().__init__({}, [0.0] * vocab_size, max_len)
        self.prompt_len = len(prompt)
        self.script = list(script)

    def row(self, context: Sequence[int]) -> NDArray[np.float64]:
        at = len(context) - self.prompt_len
        row = np.zeros(self.vocab_size)
        row[self.script[at] if 0 <= at < len(self.script) else 0] = 3.0
        return row


class BoxedLM(BagLM):
    """A BagLM whose logits come in an object with `.data`, as a tensor library gives them."""

    def forward(self, ids: Any, positions: Any = None, cache: Any = None) -> Any:
        return SimpleNamespace(data=super().forward(ids, positions, cache))


class HeadLM(BagLM):
    """A BagLM that offers its hidden rows and its head apart, and counts the rows that go through the head.

    `hidden` is float32 [1, T, d_model]; `head` doubles and widens nothing, so `forward` is exactly head(hidden).
    """

    def __init__(self, vocab_size: int = 11, seed: int = 0, max_len: int = 64, sharpness: float = 1.0) -> None:
        super().__init__(vocab_size, seed, max_len, sharpness)
        self.d_model = vocab_size
        self.head_rows = 0

    def hidden(self, ids: Any, positions: Any = None, cache: Any = None) -> NDArray[np.float32]:
        return self._rows(*self._attend(ids, positions, cache)).astype(np.float32)

    def head(self, hidden: Any) -> NDArray[np.float32]:
        rows = np.asarray(hidden, dtype=np.float32)  # [..., d_model]
        self.head_rows += int(np.prod(rows.shape[:-1]))
        return rows * np.float32(2.0)  # exact in float32

    def forward(self, ids: Any, positions: Any = None, cache: Any = None) -> NDArray[np.float32]:
        return self.head(self.hidden(ids, positions, cache))


# -------------------------------------------------------------------------------------------------------- tokenizers


class PieceTok:
    """A tokenizer with `encode` and `decode` only: id i is `pieces[i]`, text or raw bytes; the longest piece wins.

    Bytes that are not UTF-8 decode to U+FFFD, as everywhere.
    """

    def __init__(self, pieces: Iterable[str | bytes]) -> None:
        self.pieces = [p.encode("utf-8") if isinstance(p, str) else p for p in pieces]

    def encode(self, text: str) -> list[int]:
        data = text.encode("utf-8")
        ids: list[int] = []
        longest_first = sorted(range(len(self.pieces)), key=lambda i: -len(self.pieces[i]))
        while data:
            i = next((i for i in longest_first if self.pieces[i] and data.startswith(self.pieces[i])), None)
            if i is None:
                raise ValueError(f"no piece begins {data!r}")
            ids.append(i)
            data = data[len(self.pieces[i]) :]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.pieces[int(i)] for i in ids).decode("utf-8", errors="replace")


LETTERS = PieceTok("abcdefghijklmnopqrstuvwxyz")  # one letter an id


# ------------------------------------------------------------------------------------------------------------ drafts


class ScriptedDraft:
    """Proposes a given list each time it is asked, one list a call, then nothing; remembers what it was asked."""

    def __init__(self, proposals: Iterable[Sequence[int]]) -> None:
        self.proposals = [list(p) for p in proposals]
        self.asked: list[tuple[list[int], int]] = []

    def propose(self, ctx: Sequence[int], k: int, rng: Any) -> tuple[list[int], None]:
        self.asked.append((list(ctx), k))
        proposal = self.proposals[len(self.asked) - 1] if len(self.asked) <= len(self.proposals) else []
        return proposal[:k], None


class ChainDraft:
    """Proposes k ids, each `choose(context so far)`; deterministic."""

    def __init__(self, choose: Callable[[list[int]], int]) -> None:
        self.choose = choose

    def propose(self, ctx: Sequence[int], k: int, rng: Any) -> tuple[list[int], None]:
        ids: list[int] = []
        for _ in range(k):
            ids.append(self.choose([*ctx, *ids]))
        return ids, None


def oracle_draft(target: ToyLM) -> ChainDraft:
    """Always right about a greedy target without penalties."""
    return ChainDraft(lambda ctx: int(np.argmax(target.row(ctx))))


def wrong_draft(target: ToyLM) -> ChainDraft:
    """Never right about a greedy target without penalties."""
    return ChainDraft(lambda ctx: (int(np.argmax(target.row(ctx))) + 1) % target.vocab_size)


def sometimes_right_draft(target: ToyLM) -> ChainDraft:
    """Right about a greedy target except where the context's length is a multiple of three."""
    right, wrong = oracle_draft(target), wrong_draft(target)
    return ChainDraft(lambda ctx: (wrong if len(ctx) % 3 == 0 else right).choose(ctx))


class TableCounts:
    """An n-gram model for `NGramDraft` given by a rule: `logprobs(context)` are the logs of `rule(context)`."""

    def __init__(self, rule: Callable[[list[int]], ArrayLike]) -> None:
        self.rule = rule

    def logprobs(self, context: Sequence[int]) -> NDArray[np.float64]:
        return logits_of(np.asarray(self.rule(list(context)), dtype=np.float64).tolist())


# ------------------------------------------------------------------------------------------------ the loop, by hand


def loop_by_hand(
    verify: Callable[..., tuple[list[int], int]],
    target: ToyLM,
    draft: Any,
    prompt: Sequence[int],
    p: Any,
    k: int,
    rng: Any,
) -> list[int]:
    """Speculative decoding with no cache at all: every row is computed afresh. EOS and stop strings play no part.

    `verify` is `verify_draft`; `rng` serves the draft and the verifier in program order (the draft gets None at
    temperature 0).
    """
    out: list[int] = []
    while (room := min(p.max_tokens, target.max_len - len(prompt)) - len(out)) > 0:
        ctx = [*prompt, *out]
        m = min(k, room - 1)
        ids, probs = draft.propose(ctx, m, rng if p.temperature > 0 else None) if m > 0 else ([], None)
        rows = np.array([target.row([*ctx, *ids[:i]]) for i in range(len(ids) + 1)])  # [m + 1, V]
        emitted, _ = verify(rows, ids, probs, p, out, rng, prompt)
        out += emitted
    return out
