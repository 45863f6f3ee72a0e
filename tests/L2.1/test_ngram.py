"""Interpolated Kneser-Ney against a model made of dictionaries and fractions.

The n-gram model is the cheapest draft of the course, and its log-probabilities are what another engine's draft is
compared with, so every count, discount and back-off has one right value. Everything in it is a ratio of integers:
`Dictionary` below writes the definition out in fractions, slowly and plainly, and the model must agree with it for
every history, seen or not. The other tests are small cases worked by hand, each for one rule: the start symbol, what
an adjusted count is, when the fixed discounts take over, what is written to disk.
"""

import itertools
import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from tinyllm.lm.ngram import NGramLM

pytestmark = pytest.mark.module("L2.1")

START = -1


class Dictionary:
    """The same model, from its definition alone: one Counter of tuples an order, and exact fractions."""

    def __init__(self, n, sequences, vocab_size, discount="modified"):
        self.n, self.vocab_size = n, vocab_size
        self.raw = {k: Counter() for k in range(1, n + 1)}
        for sequence in sequences:
            symbols = (START, *sequence)
            for end, k in itertools.product(range(2, len(symbols) + 1), range(1, n + 1)):
                if end - k >= 0:
                    self.raw[k][symbols[end - k : end]] += 1
        self.adjusted = {k: {g: self._adjusted(k, g) for g in self.raw[k]} for k in self.raw}
        self.discount = {k: self._discounts(k, discount) for k in self.raw}

    def _adjusted(self, k, gram):
        if k == self.n or gram[0] == START:
            return self.raw[k][gram]
        return len({longer[0] for longer in self.raw[k + 1] if longer[1:] == gram})

    def _discounts(self, k, discount):
        if discount != "modified":
            return (Fraction(discount),) * 3
        n1, n2, n3, n4 = (sum(a == j for a in self.adjusted[k].values()) for j in (1, 2, 3, 4))
        if n1 and n2 and n3 and n4:
            y = Fraction(n1, n1 + 2 * n2)
            ds = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
            if all(0 < d <= j for j, d in enumerate(ds, start=1)):
                return ds
        return Fraction(1, 2), Fraction(1), Fraction(3, 2)

    def prob(self, context, token):
        context = tuple(context)
        if len(context) < self.n - 1:
            return self._p((START, *context), token)
        return self._p(context[len(context) - (self.n - 1) :], token)

    def _p(self, history, token):
        k = len(history) + 1
        shorter = self._p(history[1:], token) if history else Fraction(1, self.vocab_size)
        after = {gram[-1]: a for gram, a in self.adjusted[k].items() if gram[:-1] == history}
        if not after:
            return shorter
        ds = self.discount[k]
        total = sum(after.values())
        gamma = sum(ds[min(a, 3) - 1] for a in after.values()) / total
        own = after.get(token, 0)
        return (max(own - ds[min(own, 3) - 1], 0) / total if own else 0) + gamma * shorter


def all_contexts(n, vocab_size):
    """Every context up to one id longer than the model looks at."""
    for length in range(n + 1):
        yield from itertools.product(range(vocab_size), repeat=length)


def assert_same_model(lm, reference):
    for k in reference.discount:
        assert lm.discounts(k) == pytest.approx([float(d) for d in reference.discount[k]], rel=1e-12)
    for context in all_contexts(lm.n, reference.vocab_size):
        row = lm.logprobs(list(context))
        assert row.dtype == np.float64 and row.shape == (reference.vocab_size,)
        expected = [float(reference.prob(context, w)) for w in range(reference.vocab_size)]
        assert np.exp(row) == pytest.approx(expected, rel=1e-11), context
        assert [lm.prob(list(context), w) for w in range(len(row))] == pytest.approx(expected, rel=1e-11), context


CORPORA = {
    "one id": [[0]],
    "two short": [[0, 1, 0], [0]],
    "an empty one between": [[1, 2], [], [2, 1, 0]],
    "repetitive": [[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]],
    "one word after all": [[0, 2], [1, 2], [2, 2], [3, 2, 2, 2]],
    "many counts": [[0, 1, 2, 3, 2, 3, 3, 1, 0, 0, 1, 2, 3, 3, 3], [3, 2, 3, 2, 1], [3], [2, 3, 3], [3, 3, 3, 2, 3]],
}


# --------------------------------------------------------------------------------------------------- the distribution


def test_hand_example():
    """The sequences 0 1 0 and 0 with one discount of 1/2, every number by hand.

    Before 0 stand two different symbols (the start and 1), before 1 only one: p(0) = 1.5/3 + 1/3 * 1/2 = 2/3 and
    p(1) = 1/3. After 0 only 1 was seen: p(1 | 0) = 1/2 + 1/2 * 1/3. At the start 0 was seen twice:
    p(0 | start) = 1.5/2 + 1/4 * 2/3.

    KIND: unit, smoke.
    """
    lm = NGramLM(2, discount=0.5)
    lm.fit([[0, 1, 0], [0]])
    assert np.exp(lm.logprobs([0])) == pytest.approx([1 / 3, 2 / 3])
    assert np.exp(lm.logprobs([])) == pytest.approx([11 / 12, 1 / 12])
    assert np.exp(lm.logprobs([1])) == pytest.approx([0.5 + 0.5 * 2 / 3, 0.5 * 1 / 3])
    assert lm.prob([0], 1) == pytest.approx(2 / 3)
    assert lm.discounts(1) == lm.discounts(2) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("discount", ["modified", 0.25, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("corpus", CORPORA)
def test_every_history_agrees_with_the_dictionaries(corpus, n, discount):
    """All orders, both kinds of discount, every context there is: the definition, compared number by number.

    KIND: differential.
    """
    sequences = CORPORA[corpus]
    vocab_size = 1 + max(itertools.chain(*sequences))
    lm = NGramLM(n, discount=discount)
    lm.fit(sequences)
    assert_same_model(lm, Dictionary(n, sequences, vocab_size, discount))


@given(
    n=st.integers(1, 4),
    sequences=st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=6),
    discount=st.sampled_from(["modified", 0.5, 0.125]),
)
def test_random_texts_agree_with_the_dictionaries(n, sequences, discount):
    """Texts nobody thought of: empty ones, ones shorter than the order, ids that never come.

    KIND: property, differential.
    """
    lm = NGramLM(n, discount=discount, vocab_size=4)
    lm.fit(sequences)
    assert_same_model(lm, Dictionary(n, sequences, 4, discount))


@given(
    n=st.integers(1, 5),
    sequences=st.lists(st.lists(st.integers(0, 30), max_size=60), min_size=1, max_size=5),
    context=st.lists(st.integers(0, 30), max_size=6),
    discount=st.sampled_from(["modified", 0.1, 1.0]),
)
def test_every_history_sums_to_one_and_rules_nothing_out(n, sequences, context, discount):
    """Also a history never seen: a draft's row must be a distribution, and a token of probability 0 has no logarithm.

    KIND: property.
    """
    lm = NGramLM(n, discount=discount, vocab_size=31)
    lm.fit(sequences)
    row = lm.logprobs(context)
    assert np.isfinite(row).all() and (row <= 0).all()
    assert math.fsum(np.exp(row)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_probability_and_its_logarithm_agree(n):
    """Two ways to ask for one number; a draft ranks by one and may be scored by the other.

    KIND: unit, differential.
    """
    lm = NGramLM(n, vocab_size=6)
    lm.fit(CORPORA["many counts"])
    for context in all_contexts(2, 6):
        expected = [math.log(lm.prob(list(context), w)) for w in range(6)]
        assert lm.logprobs(list(context)) == pytest.approx(expected, abs=1e-13)


# ------------------------------------------------------------------------------------------------ counts and histories


def test_a_lower_order_counts_different_predecessors():
    """ "Francisco" is frequent but comes after "San" only, so in a new history it is unlikely: the point of Kneser-Ney.

    Here 1 comes four times, always after 0; 2 comes twice, after two different ids. In the unseen history 3, token 2
    must be likelier.

    KIND: unit.
    """
    sequences = [[0, 1], [0, 1], [0, 1], [0, 1], [0, 2], [4, 2]]
    bigrams = NGramLM(2, discount=0.5)
    bigrams.fit(sequences)
    assert bigrams.prob([3], 2) > bigrams.prob([3], 1)
    unigrams = NGramLM(1, discount=0.5)
    unigrams.fit(sequences)
    assert unigrams.prob([3], 2) < unigrams.prob([3], 1), "the highest order counts how often"


def test_a_short_context_begins_with_the_start_symbol():
    """What opens a sequence differs from what follows the same word inside one.

    In 0 1 and 2 0 2 the word 0 is followed by 1 at the start and by 2 after 2.

    KIND: boundary.
    """
    lm = NGramLM(3, discount=0.5)
    lm.fit([[0, 1], [2, 0, 2]])
    assert lm.prob([0], 1) > lm.prob([0], 2), "the history is start, 0"
    assert lm.prob([2, 0], 2) > lm.prob([2, 0], 1), "the history is 2, 0"


def test_a_long_enough_context_has_no_start_symbol():
    """With n - 1 ids the history is full: the start symbol must not push an id out of it, nor be added.

    KIND: boundary.
    """
    lm = NGramLM(2, discount=0.5)
    lm.fit([[0, 1], [1, 0, 0, 0]])
    reference = Dictionary(2, [[0, 1], [1, 0, 0, 0]], 2, 0.5)
    for context in ([0], [1, 0], [0, 1], [1, 1, 1, 0]):
        expected = [float(reference.prob(context[-1:], w)) for w in range(2)]
        assert np.exp(lm.logprobs(context)) == pytest.approx(expected)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_only_the_last_ids_matter(n):
    """A model of order n is blind to what lies further back; order 1 to everything.

    KIND: property.
    """
    lm = NGramLM(n)
    lm.fit(CORPORA["many counts"])
    recent = [3, 2][2 - (n - 1) :]
    assert np.array_equal(lm.logprobs([0, 0, 0, *recent]), lm.logprobs([1, 2, *recent]))
    if n == 1:
        assert np.array_equal(lm.logprobs([]), lm.logprobs([3]))


def test_nothing_is_counted_across_sequences():
    """Two texts that happen to be neighbours in a list are not one text.

    KIND: boundary.
    """
    apart, joined = NGramLM(2, discount=0.5), NGramLM(2, discount=0.5)
    apart.fit([[0], [1]])
    joined.fit([[0, 1]])
    assert apart.prob([0], 1) == pytest.approx(0.5)
    assert joined.prob([0], 1) == pytest.approx(0.5 + 0.5 * 0.5)


def test_the_start_symbol_is_a_predecessor_but_never_an_outcome():
    """It counts as one of the symbols before a word, takes no probability, and there is one of it, not n - 1.

    KIND: boundary.
    """
    lm = NGramLM(2, discount=0.5)
    lm.fit([[0], [1, 0], [1, 1]])
    # before 0 stand the start and 1, and before 1 too: as unigrams both are alike
    assert np.exp(lm.logprobs([0])) == pytest.approx([0.5, 0.5]), "0 was never followed: only the unigrams speak"
    opening = NGramLM(4, discount=0.5)
    opening.fit([[0, 1]])
    # the history is the start symbol alone; 0 follows it once: 1/2 + 1/2 p(0), p(0) = 1/4 + 1/2 * 1/2
    assert opening.prob([], 0) == pytest.approx(0.75)


def test_an_unseen_history_falls_back_whole():
    """Nothing was seen after it, so nothing is discounted: the shorter history's distribution, unscaled.

    Neither 1 1 nor 2 1 was ever seen, so both contexts say what came after 1.

    KIND: boundary.
    """
    lm = NGramLM(3, discount=0.5)
    lm.fit([[0, 1, 2], [0, 1, 0]])
    # after 1: 2 and 0, each after one symbol (0): T = 2, gamma = 1/2; p(0) has 2 predecessors of 4, p(2) and p(1) one
    p_0, p_other = 1.5 / 4 + 3 / 8 / 3, 0.5 / 4 + 3 / 8 / 3
    expected = [0.25 + 0.5 * p_0, 0.5 * p_other, 0.25 + 0.5 * p_other]
    assert np.exp(lm.logprobs([1, 1])) == pytest.approx(expected)
    assert np.exp(lm.logprobs([2, 1])) == pytest.approx(expected)
    assert not np.allclose(np.exp(lm.logprobs([0, 1])), expected), "0 1 was seen and must be discounted"


# ----------------------------------------------------------------------------------------------------------- discounts


def text_with_counts(*counts):
    """One sequence in which id i occurs counts[i] times."""
    return [[i for i, count in enumerate(counts) for _ in range(count)]]


def test_modified_discounts_by_hand():
    """Two ids once and one each two, three and four times: Y = 2/4, D = (1/2, 1/2, 1).

    The mass taken is 2/2 + 1/2 + 2 over 11 counts, and each id gets a fifth of it back.

    KIND: unit, smoke.
    """
    lm = NGramLM(1)
    lm.fit(text_with_counts(1, 1, 2, 3, 4))
    assert lm.discounts(1) == pytest.approx((0.5, 0.5, 1.0))
    back = 3.5 / 11 / 5
    expected = [0.5 / 11 + back, 0.5 / 11 + back, 1.5 / 11 + back, 2 / 11 + back, 3 / 11 + back]
    assert np.exp(lm.logprobs([])) == pytest.approx(expected)


@pytest.mark.parametrize(
    "counts",
    [
        (2, 2, 3, 4),
        (1, 1, 3, 4),
        (1, 1, 2, 4),
        (1, 1, 2, 3, 5),
        (1, 1, 1, 2, 3, 3, 4),
        (1, 1, 1, 1, 2, 3, 4),
        (1, 1, 2, 3, 4, 4),
    ],
    ids=["no ones", "no twos", "no threes", "no fours", "D2 below 0", "D2 exactly 0", "D3 below 0"],
)
def test_fixed_discounts_where_the_formula_has_none(counts):
    """A division by 0 or a discount that would add mass: then (0.5, 1, 1.5), all three, as a small text needs.

    KIND: boundary.
    """
    lm = NGramLM(1)
    lm.fit(text_with_counts(*counts))
    assert lm.discounts(1) == (0.5, 1.0, 1.5)


def letters(text):
    """The text as ids, one a letter, numbered in alphabetical order."""
    alphabet = sorted(set(text))
    return [alphabet.index(letter) for letter in text]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_each_order_has_its_own_discounts(n):
    """Counts of 2-grams are far smaller than counts of letters; one set of discounts for both would fit neither.

    On this text the formula holds for both orders of a 2-gram model, and both differ from the fixed set.

    KIND: unit, differential.
    """
    text = letters("a big black bug bit a big black bear and the big black bear bled blood")
    vocab_size = 1 + max(text)
    lm, reference = NGramLM(n), Dictionary(n, [text], vocab_size)
    lm.fit([text])
    if n == 2:
        assert lm.discounts(1) == pytest.approx((3 / 5, 4 / 5, 9 / 5))
        assert lm.discounts(2) == pytest.approx((8 / 15, 6 / 7, 161 / 75))
    for k in range(1, n + 1):
        assert lm.discounts(k) == pytest.approx([float(d) for d in reference.discount[k]])
    for end in range(len(text)):
        expected = [float(reference.prob(text[:end], w)) for w in range(vocab_size)]
        assert np.exp(lm.logprobs(text[:end])) == pytest.approx(expected, rel=1e-11)


# ------------------------------------------------------------------------------------------- vocabulary, fit, arguments


def test_the_vocabulary_is_given_or_read_from_the_text():
    """A draft must cover its target's whole vocabulary, most of which its own text never uses.

    KIND: unit.
    """
    lm = NGramLM(2)
    lm.fit([[0, 5]])
    assert lm.vocab_size == 6 and lm.logprobs([]).shape == (6,)
    lm = NGramLM(2, vocab_size=9)
    lm.fit([[0, 5]])
    assert lm.vocab_size == 9 and lm.logprobs([]).shape == (9,)
    assert lm.prob([5], 8) == lm.prob([5], 7) > 0


def test_fit_replaces_what_was_there():
    """Fitting twice is not fitting on both: the old counts, discounts and vocabulary are gone.

    KIND: unit.
    """
    lm, fresh = NGramLM(3), NGramLM(3)
    lm.fit([[7, 7, 7, 8, 9]])
    lm.logprobs([7, 7])
    lm.fit(CORPORA["repetitive"])
    fresh.fit(CORPORA["repetitive"])
    assert lm.vocab_size == fresh.vocab_size == 3
    for context in all_contexts(3, 3):
        assert np.array_equal(lm.logprobs(list(context)), fresh.logprobs(list(context)))


def test_empty_sequences_change_nothing():
    """An empty text has no token, so not even its start symbol was seen before anything.

    KIND: boundary.
    """
    lm, plain = NGramLM(2), NGramLM(2)
    lm.fit([[], [0, 1], [], [1]])
    plain.fit([[0, 1], [1]])
    for context in ([], [0], [1]):
        assert np.array_equal(lm.logprobs(context), plain.logprobs(context))


def test_without_any_text_every_id_is_alike():
    """With a fixed vocabulary and nothing counted, only p_0 = 1/V is left.

    KIND: boundary.
    """
    lm = NGramLM(3, vocab_size=4)
    lm.fit([[]])
    assert np.exp(lm.logprobs([1, 2])) == pytest.approx([0.25] * 4)
    assert lm.discounts(2) == (0.5, 1.0, 1.5)


def test_a_row_belongs_to_the_caller():
    """A caller that scales or masks a row must not change what the model says next time.

    KIND: unit.
    """
    lm = NGramLM(1)
    lm.fit([[0, 1, 1]])
    before = lm.logprobs([]).copy()
    lm.logprobs([])[:] = 7
    assert np.array_equal(lm.logprobs([]), before)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 0},
        {"n": -1},
        {"n": 2, "discount": 0.0},
        {"n": 2, "discount": -0.5},
        {"n": 2, "discount": 1.01},
        {"n": 2, "discount": math.nan},
        {"n": 2, "discount": "absolute"},
        {"n": 2, "vocab_size": 0},
        {"n": 2, "vocab_size": -3},
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments):
    """A discount above 1 takes more than was counted; an order of 0 predicts nothing.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        NGramLM(**arguments)


@pytest.mark.parametrize(
    "use",
    [
        lambda lm: lm.prob([], 0),
        lambda lm: lm.logprobs([]),
        lambda lm: lm.nll([0]),
        lambda lm: lm.perplexity([0]),
        lambda lm: lm.discounts(1),
        lambda lm: lm.save("never-written.safetensors"),
    ],
    ids=["prob", "logprobs", "nll", "perplexity", "discounts", "save"],
)
def test_nothing_works_before_fit(use, tmp_path, monkeypatch):
    """An empty model that answers 1/V to everything would look like a working draft with bad luck.

    KIND: boundary.
    """
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError):
        use(NGramLM(2, vocab_size=3))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("bad", [-1, 3, 100])
def test_ids_out_of_range_are_refused(bad):
    """-1 is the start symbol on disk and the last entry of an array: it must not slip through as an id.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        NGramLM(2, vocab_size=3).fit([[0, 1], [bad, 2]])
    with pytest.raises(ValueError):
        NGramLM(2).fit([[0, -1]])
    lm = NGramLM(2, vocab_size=3)
    lm.fit([[0, 1, 2]])
    for call in (
        lambda: lm.prob([0], bad),
        lambda: lm.prob([bad], 0),
        lambda: lm.logprobs([0, bad]),
        lambda: lm.nll([0, bad]),
        lambda: lm.perplexity([bad, 0]),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("order", [0, 3, -1])
def test_discounts_of_an_order_that_is_not_there_are_refused(order):
    """Orders run from 1 to n; order 0 has nothing to discount, and -1 would read the last one.

    KIND: boundary.
    """
    lm = NGramLM(2)
    lm.fit([[0, 1]])
    with pytest.raises(ValueError):
        lm.discounts(order)


def test_a_vocabulary_that_nobody_knows_is_refused():
    """No given size and no id: V would be 0.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        NGramLM(2).fit([[], []])


# --------------------------------------------------------------------------------------------------- nll and perplexity


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_likelihood_of_a_text_is_the_product_over_its_ids(n):
    """nll is the sum of -log p, each id after all the ids before it, the first after the start.

    KIND: unit, differential.
    """
    lm = NGramLM(n)
    lm.fit(CORPORA["many counts"])
    ids = [3, 3, 0, 1, 2, 2, 0]
    reference = Dictionary(n, CORPORA["many counts"], 4)
    product = math.prod(reference.prob(ids[:i], w) for i, w in enumerate(ids))
    assert lm.nll(ids) == pytest.approx(-math.log(product), rel=1e-12)
    assert lm.perplexity(ids) == pytest.approx(float(product) ** (-1 / len(ids)), rel=1e-12)
    assert lm.perplexity(ids) == pytest.approx(math.exp(lm.nll(ids) / len(ids)), rel=1e-14)


def test_perplexity_counts_equal_choices():
    """With every count discounted away all ids are alike, and the perplexity is the size of the vocabulary.

    KIND: unit.
    """
    lm = NGramLM(1, discount=1.0, vocab_size=8)
    lm.fit([[0, 1, 2]])
    assert lm.perplexity([5, 0, 7, 7]) == pytest.approx(8)


def test_a_model_prefers_the_text_it_was_fitted_on():
    """The least one asks of a language model: its own text beats another one, and a longer history helps.

    KIND: unit.
    """
    text = CORPORA["repetitive"][0]
    perplexities = []
    for n in (2, 3):
        lm = NGramLM(n)
        lm.fit([text])
        perplexities.append(lm.perplexity(text))
        assert perplexities[-1] < lm.perplexity([2, 1, 0, 2, 1, 0])
    words = NGramLM(1)
    words.fit([text])
    assert words.perplexity(text) > max(perplexities)


def test_perplexity_of_nothing_is_refused():
    """There is no mean over no ids.

    KIND: boundary.
    """
    lm = NGramLM(2)
    lm.fit([[0, 1]])
    with pytest.raises(ValueError):
        lm.perplexity([])
    assert lm.nll([]) == 0


# ------------------------------------------------------------------------------------------------------------- on disk


def test_the_file_holds_sorted_grams_and_raw_counts(tmp_path):
    """Another engine reads this file: names, types, order of rows, the start symbol as -1, and counts before adjusting.

    KIND: unit.
    """
    lm = NGramLM(3, discount=0.75)
    lm.fit([[0, 1, 0, 1], [0]])
    path = tmp_path / "lm.safetensors"
    lm.save(path)
    tensors = load_file(path)
    assert {name: t.dtype.name for name, t in tensors.items()} == {
        f"order{k}.{part}": "int32" for k in (1, 2, 3) for part in ("grams", "counts")
    }
    assert tensors["order1.grams"].tolist() == [[0], [1]]
    assert tensors["order1.counts"].tolist() == [3, 2]
    assert tensors["order2.grams"].tolist() == [[-1, 0], [0, 1], [1, 0]]
    assert tensors["order2.counts"].tolist() == [2, 2, 1]
    assert tensors["order3.grams"].tolist() == [[-1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert tensors["order3.counts"].tolist() == [1, 1, 1]
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["__metadata__"] == {"tl_arch": "ngram", "n": "3", "discount": "0.75", "vocab_size": "2"}


@pytest.mark.parametrize("discount", ["modified", 0.1, 1.0])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_what_was_loaded_is_the_same_model_and_saves_the_same_bytes(n, discount, tmp_path):
    """A file is a fact: reading and writing it again must not change a bit, or no hash of it can be kept.

    Saved several times, because an order of metadata that is drawn at random agrees now and then.

    KIND: property.
    """
    lm = NGramLM(n, discount=discount, vocab_size=5)
    lm.fit(CORPORA["many counts"])
    path = tmp_path / "lm.safetensors"
    lm.save(path)
    first = path.read_bytes()
    again = NGramLM.load(path)
    assert (again.n, again.discount, again.vocab_size) == (n, discount, 5)
    for context in all_contexts(2, 5):
        assert np.array_equal(again.logprobs(list(context)), lm.logprobs(list(context)))
    for _ in range(6):
        again.save(path)
        assert path.read_bytes() == first


@given(st.lists(st.lists(st.integers(0, 3), max_size=10), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_bytes_depend_on_the_counts_alone(tmp_path_factory, sequences, random):
    """The same texts in another order are the same model, so they are the same file.

    KIND: property.
    """
    folder = tmp_path_factory.mktemp("lm")
    files = []
    for _ in range(2):
        lm = NGramLM(3, vocab_size=4)
        lm.fit(sequences)
        lm.save(folder / "lm.safetensors")
        files.append((folder / "lm.safetensors").read_bytes())
        random.shuffle(sequences)
    assert files[0] == files[1]


def test_a_loaded_model_can_be_fitted_again(tmp_path):
    """The file fixes the vocabulary; the counts can be replaced like any other.

    KIND: unit.
    """
    lm = NGramLM(2, vocab_size=4)
    lm.fit([[0, 1]])
    lm.save(tmp_path / "lm.safetensors")
    again = NGramLM.load(tmp_path / "lm.safetensors")
    again.fit([[3, 3]])
    fresh = NGramLM(2, vocab_size=4)
    fresh.fit([[3, 3]])
    assert np.array_equal(again.logprobs([3]), fresh.logprobs([3]))
