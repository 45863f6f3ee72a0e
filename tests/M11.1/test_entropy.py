"""Entropy, cross-entropy, KL divergence and total variation: how far a draft is from its target.

Total variation is the number that decides how fast speculation runs, because the acceptance probability is exactly
1 - TV; KL divergence bounds it and is what training a draft brings down. The tests hold the four functions to values
worked out by hand, to their infinities, and to the inequalities that tie them together, each of which fails for some
easy mistake: a wrong logarithm, swapped arguments, a forgotten half, 0 log 0 as NaN.
"""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.info.entropy import cross_entropy, entropy, kl_divergence, total_variation

pytestmark = pytest.mark.module("M11.1")

LN2 = math.log(2)
P = np.array([0.5, 0.25, 0.25])
Q = np.array([0.25, 0.5, 0.25])


@st.composite
def distributions(draw, count=1, smallest=0):
    """`count` distributions over the same 1 to 8 ids, from integer weights; zeros are common unless smallest is 1."""
    n = draw(st.integers(1, 8))
    one = st.lists(st.integers(smallest, 20), min_size=n, max_size=n).filter(any)
    weights = [np.array(draw(one)) for _ in range(count)]
    return [w / w.sum() for w in weights]


@pytest.fixture(autouse=True)
def warnings_are_errors():
    """A formula that works by taking log(0) and tidying up behind warns; the right one never takes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_hand_example():
    """All logarithms are of powers of 2: H(p) = 3/2, H(p, q) = 7/4, KL = 1/4 in units of ln 2, and TV = 1/4.

    KIND: unit, smoke.
    """
    assert entropy(P) == pytest.approx(1.5 * LN2, rel=1e-15)
    assert cross_entropy(P, Q) == pytest.approx(1.75 * LN2, rel=1e-15)
    assert kl_divergence(P, Q) == pytest.approx(0.25 * LN2, rel=1e-14)
    assert total_variation(P, Q) == 0.25


def test_the_unit_is_the_nat():
    """A fair coin has ln 2 nats, not 1 bit; a factor of 1.44 in a loss is easily overlooked.

    KIND: unit.
    """
    assert entropy(np.array([0.5, 0.5])) == pytest.approx(0.6931471805599453, rel=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_entropy_runs_from_certainty_to_the_uniform_distribution(n):
    """0 for an outcome that is certain, ln n when all n are alike: the two ends of the scale.

    KIND: boundary.
    """
    certain = np.zeros(n)
    certain[n // 2] = 1.0
    assert entropy(certain) == 0
    assert entropy(np.full(n, 1 / n)) == pytest.approx(math.log(n), rel=1e-12)


def test_kl_is_not_symmetric_and_takes_the_target_first():
    """KL(p, q) weighs the logarithms by p, so swapped arguments give another number.

    p = [1/2, 1/2], q = [1/4, 3/4]: KL(p, q) = 1/2 ln 2 + 1/2 ln(2/3), KL(q, p) = 1/4 ln(1/2) + 3/4 ln(3/2).

    KIND: unit.
    """
    p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    assert kl_divergence(p, q) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), rel=1e-12)
    assert kl_divergence(q, p) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5), rel=1e-12)


def test_zero_times_log_zero_is_zero():
    """A token that never comes adds nothing, whatever the other distribution says of it.

    KIND: boundary.
    """
    p, q = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.25, 0.25, 0.5, 0.0])
    assert entropy(p) == pytest.approx(LN2)
    assert cross_entropy(p, q) == pytest.approx(2 * LN2)
    assert kl_divergence(p, q) == pytest.approx(LN2)
    assert total_variation(p, q) == 0.5


def test_an_outcome_that_the_other_rules_out_costs_infinity():
    """p > 0 where q = 0: no finite code length covers it. Total variation stays finite.

    KIND: boundary.
    """
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    assert cross_entropy(p, q) == math.inf
    assert kl_divergence(p, q) == math.inf
    assert total_variation(p, q) == 0.5
    assert kl_divergence(q, p) == pytest.approx(LN2)
    assert kl_divergence(np.array([1 - 1e-300, 1e-300]), q) == math.inf, "however rare the outcome is"


def test_distributions_that_share_nothing_are_as_far_apart_as_can_be():
    """TV is 1, so nothing such a draft proposes is ever accepted.

    KIND: boundary.
    """
    p, q = np.array([0.5, 0.5, 0, 0]), np.array([0, 0, 0.25, 0.75])
    assert total_variation(p, q) == 1
    assert kl_divergence(p, q) == math.inf


def test_tiny_probabilities_do_not_underflow():
    """Dividing p by q before the logarithm overflows for the smallest numbers; the terms themselves are harmless.

    KIND: boundary.
    """
    p, q = np.array([1.0, 1e-308]), np.array([1.0, 1e-320])
    assert entropy(p) == pytest.approx(1e-308 * 308 * math.log(10), rel=1e-9)
    assert 0 <= kl_divergence(p, q) < 1e-300
    assert math.isfinite(kl_divergence(np.array([0.5, 0.5]), np.array([1.0, 1e-320])))


@given(distributions(2))
def test_total_variation_is_one_minus_the_overlap(pair):
    """Half the summed differences equals 1 - sum min(p, q): why the acceptance probability is 1 - TV.

    KIND: property, differential.
    """
    p, q = pair
    tv = total_variation(p, q)
    assert tv == pytest.approx(1 - np.minimum(p, q).sum(), abs=1e-12)
    assert tv == pytest.approx(np.maximum(p - q, 0).sum(), abs=1e-12)
    assert 0 <= tv <= 1 + 1e-12


@given(distributions(3))
def test_total_variation_is_a_distance(triple):
    """Symmetric, 0 exactly between equals, and no detour is shorter: so errors of two drafts can be added up.

    KIND: property.
    """
    p, q, r = triple
    assert total_variation(p, q) == total_variation(q, p)
    assert total_variation(p, p) == 0
    assert (total_variation(p, q) > 1e-9) == (not np.allclose(p, q, atol=1e-9))
    assert total_variation(p, r) <= total_variation(p, q) + total_variation(q, r) + 1e-12


@given(distributions(2, smallest=1))
def test_cross_entropy_is_entropy_plus_divergence(pair):
    """H(p, q) = H(p) + KL(p, q): the loss of a model is what the text costs anyway plus what the model adds.

    KIND: property.
    """
    p, q = pair
    assert cross_entropy(p, q) == pytest.approx(entropy(p) + kl_divergence(p, q), abs=1e-12)
    assert cross_entropy(p, p) == pytest.approx(entropy(p), abs=1e-15)


@given(distributions(2))
def test_the_divergence_is_never_negative_and_bounds_the_distance(pair):
    """Gibbs: KL >= 0. Pinsker: TV <= sqrt(KL / 2); and TV <= sqrt(1 - exp(-KL)), which still says something at inf.

    KIND: property.
    """
    p, q = pair
    kl, tv = kl_divergence(p, q), total_variation(p, q)
    assert kl >= -1e-12
    assert kl_divergence(p, p) == 0
    assert tv <= math.sqrt(max(kl, 0) / 2) + 1e-7
    assert tv <= math.sqrt(1 - math.exp(-max(kl, 0))) + 1e-7


@given(distributions(1))
def test_entropy_stays_on_its_scale_and_ignores_the_names_of_ids(single):
    """0 <= H <= ln n, and renumbering the tokens changes nothing but the rounding.

    KIND: property.
    """
    (p,) = single
    assert -1e-15 <= entropy(p) <= math.log(len(p)) + 1e-12
    assert entropy(p[::-1]) == pytest.approx(entropy(p), abs=1e-12)


@given(distributions(2), st.data())
def test_merging_tokens_never_brings_distributions_further_apart(pair, data):
    """Looking less closely cannot make two things easier to tell apart (the data processing inequality).

    KIND: property.
    """
    p, q = pair
    group = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(p), max_size=len(p))))
    coarse_p, coarse_q = (np.bincount(group, weights=x, minlength=3) for x in (p, q))
    assert total_variation(coarse_p, coarse_q) <= total_variation(p, q) + 1e-12
    assert kl_divergence(coarse_p, coarse_q) <= kl_divergence(p, q) + 1e-12
    assert entropy(coarse_p) <= entropy(p) + 1e-12


@given(distributions(2, smallest=1))
def test_the_formulas_are_the_textbook_sums(pair):
    """Compared with sums written out term by term and added without rounding error.

    KIND: property, differential.
    """
    p, q = (x.tolist() for x in pair)
    terms = list(zip(p, q, strict=True))
    assert entropy(pair[0]) == pytest.approx(-math.fsum(a * math.log(a) for a in p), abs=1e-14)
    assert cross_entropy(*pair) == pytest.approx(-math.fsum(a * math.log(b) for a, b in terms), abs=1e-13)
    assert kl_divergence(*pair) == pytest.approx(math.fsum(a * math.log(a / b) for a, b in terms), abs=1e-13)
    assert total_variation(*pair) == pytest.approx(math.fsum(abs(a - b) for a, b in terms) / 2, abs=1e-15)


@pytest.mark.parametrize("function", [cross_entropy, kl_divergence, total_variation, lambda p, _: entropy(p)])
def test_results_are_floats_and_inputs_stay(function):
    """The numbers go into tables and JSON; the distributions are rows that others still read.

    KIND: unit.
    """
    p, q = P.copy(), Q.copy()
    assert type(function(p, q)) is float
    assert np.array_equal(p, P) and np.array_equal(q, Q)


BAD = [[], [[0.5, 0.25, 0.25]], [0.5, 0.25, 0.5], [0.5, 0.25], [1.5, -0.25, -0.25], [math.nan, 0.5, 0.5]]


@pytest.mark.parametrize("bad", [*BAD, [math.inf, 0.0, 0.0], [0.5, 0.25, 0.25 + 3.1e-9]])
@pytest.mark.parametrize("function", [entropy, cross_entropy, kl_divergence, total_variation])
def test_what_is_no_distribution_is_refused(function, bad):
    """Entropy of logits, or of counts, is a number too, and a wrong one.

    KIND: boundary.
    """
    bad = np.array(bad, dtype=np.float64)
    if function is entropy:
        with pytest.raises(ValueError):
            entropy(bad)
        return
    with pytest.raises(ValueError):
        function(bad, P)
    with pytest.raises(ValueError):
        function(P, bad)


@pytest.mark.parametrize("function", [cross_entropy, kl_divergence, total_variation])
def test_distributions_over_different_vocabularies_are_refused(function):
    """Arrays of length 1 and 3 would broadcast without a word.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        function(np.array([1.0]), P)
    with pytest.raises(ValueError):
        function(P, np.array([0.5, 0.5]))
