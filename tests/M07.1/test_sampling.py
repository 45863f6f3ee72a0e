"""From a uniform to an outcome: the inverse CDF, and what counts as a distribution.

One uniform in [0, 1) picks the first id whose running sum is above it. The verifier, the sampler and the drafts all
draw this way, so a wrong `<` or a sum in another order would bend every distribution in the course or break the
agreement with another engine. With probabilities that are multiples of 2^-k all sums are exact, so the tests can ask
about the boundary itself; with tenths the sums are rounded, and the tests ask for the rounding of the plain loop.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from _toy import frequencies, midpoints
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.prob.sampling import sample_categorical

pytestmark = pytest.mark.module("M07.1")

LAST_UNIFORM = 1 - 2**-53  # the largest value a uniform can take


@st.composite
def dyadic(draw):
    """A distribution over 1 to 8 ids in multiples of 1/64, as integers that sum to 64."""
    n = draw(st.integers(1, 8))
    cuts = sorted(draw(st.lists(st.integers(0, 64), min_size=n - 1, max_size=n - 1)))
    return np.diff([0, *cuts, 64])


def test_hand_example():
    """A quarter, a half, a quarter: the running sums are 0.25, 0.75 and 1.

    KIND: unit, smoke.
    """
    p = np.array([0.25, 0.5, 0.25])
    assert [sample_categorical(p, u) for u in (0.0, 0.2, 0.3, 0.7, 0.8, 0.99)] == [0, 0, 1, 1, 2, 2]


def test_a_uniform_on_a_boundary_belongs_to_the_next_id():
    """u < c is strict: [0, 0.25) has the length of id 0's probability, and [0, 0.25] would have one number too many.

    KIND: boundary.
    """
    p = np.array([0.25, 0.5, 0.25])
    below = [np.nextafter(c, 0) for c in (0.25, 0.75)]
    assert [sample_categorical(p, u) for u in below] == [0, 1]
    assert [sample_categorical(p, u) for u in (0.25, 0.75)] == [1, 2]
    assert sample_categorical(p, LAST_UNIFORM) == 2


@given(dyadic())
def test_every_id_comes_exactly_as_often_as_it_should(weights):
    """64 uniforms, one from the middle of each cell, stand for the whole interval: the counts are p, as fractions.

    KIND: property, statistical.
    """
    outcomes = frequencies(sample_categorical(weights / 64, u) for u in midpoints(64))
    assert outcomes == {i: Fraction(int(w), 64) for i, w in enumerate(weights) if w > 0}


@given(dyadic(), st.integers(0, 63))
def test_any_exact_boundary_follows_the_definition(weights, j):
    """The answer is the first id whose running sum exceeds u, counted here in integers and so without rounding.

    KIND: property, differential, boundary.
    """
    expected = next(i for i, c in enumerate(np.cumsum(weights)) if j < c)
    assert sample_categorical(weights / 64, j / 64) == expected


@given(dyadic(), st.floats(0, 1, exclude_max=True))
def test_an_id_without_probability_never_comes(weights, u):
    """An impossible token must not appear, not even for a uniform of 0 or on a boundary.

    KIND: property, boundary.
    """
    assert weights[sample_categorical(weights / 64, u)] > 0


def test_zeros_at_both_ends_and_between_are_skipped():
    """A zero in front tempts u = 0, one behind tempts the last uniform, one between tempts the boundary.

    KIND: boundary.
    """
    p = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    assert [sample_categorical(p, u) for u in (0.0, np.nextafter(0.5, 0), 0.5, LAST_UNIFORM)] == [1, 1, 3, 3]


def test_what_rounding_leaves_over_goes_to_the_last_possible_id():
    """Ten times 0.1 adds up to less than 1, and the last uniform is not below that sum: someone must take it.

    It is the largest id that can come at all, so never a zero behind it, and never an error.

    KIND: boundary.
    """
    tenths = np.full(10, 0.1)
    assert np.add.accumulate(tenths)[-1] <= LAST_UNIFORM
    assert sample_categorical(tenths, LAST_UNIFORM) == 9
    assert sample_categorical(np.append(tenths, [0.0, 0.0]), LAST_UNIFORM) == 9
    short = np.array([0.0, 1 - 3e-9, 0.0])
    assert sample_categorical(short, 1 - 1e-9) == 1


def test_running_sums_are_added_left_to_right():
    """Another order or a compensated sum gives other last bits, and a port that adds in order would choose another id.

    KIND: differential, boundary.
    """
    p = np.full(10, 0.1)
    c, differs = 0.0, 0
    for i in range(9):
        c += 0.1
        differs += c != math.fsum(p[: i + 1])
        assert sample_categorical(p, np.nextafter(c, 0)) == i
        assert sample_categorical(p, c) == i + 1
    assert differs > 0, "the example must tell the two sums apart"


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300).filter(any), st.data())
def test_any_distribution_follows_the_plain_loop(weights, data):
    """The same claim for random probabilities, with uniforms on and beside the running sums.

    KIND: property, differential, boundary.
    """
    p = np.array(weights) / sum(weights)
    sums = np.add.accumulate(p)
    u = data.draw(st.sampled_from(sums.tolist()))
    u = min(max(np.nextafter(u, data.draw(st.sampled_from([-1.0, u, 2.0]))), 0.0), LAST_UNIFORM)
    running, expected = 0.0, None
    for i, x in enumerate(p.tolist()):
        running += x
        if expected is None and u < running:
            expected = i
    if expected is None:
        expected = max(i for i, x in enumerate(p) if x > 0)
    assert sample_categorical(p, u) == expected


@pytest.mark.parametrize("u", [-1e-300, -0.5, 1.0, 1.5, math.nan, math.inf, -math.inf])
def test_a_uniform_outside_the_interval_is_refused(u):
    """A uniform of 1 would silently become the last id; it can only come from a faulty source.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        sample_categorical(np.array([0.5, 0.5]), u)


@pytest.mark.parametrize(
    "p",
    [
        [],
        [[0.5, 0.5]],
        0.5,
        [0.5, 0.6],
        [0.5, 0.4],
        [1.5, -0.5],
        [math.nan, 1.0],
        [math.inf, 0.0],
        [0.0, 0.0],
    ],
    ids=["empty", "two axes", "a number", "too much", "too little", "negative", "nan", "infinite", "all zero"],
)
def test_what_is_no_distribution_is_refused(p):
    """A sampler that accepts anything hides the mistake of whoever computed the probabilities.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        sample_categorical(np.array(p, dtype=np.float64), 0.5)


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_sum_may_miss_one_by_the_stated_tolerance_only(n, sign):
    """Rounding grows with the number of ids, so the tolerance does too: 1e-9 n + 1e-12, tried on both sides.

    KIND: boundary.
    """
    tolerance = 1e-9 * n + 1e-12
    p = np.full(n, 1 / n)
    inside, outside = p.copy(), p.copy()
    inside[0] += sign * 0.99 * tolerance
    outside[0] += sign * 1.01 * tolerance
    assert sample_categorical(inside, 0.0) == 0
    with pytest.raises(ValueError):
        sample_categorical(outside, 0.0)


def test_the_distribution_is_left_as_it_was_and_the_id_is_an_int():
    """Callers keep using p, and ids go into lists, JSON and dictionaries, where a NumPy integer surprises.

    KIND: unit.
    """
    p = np.array([0.5, 0.25, 0.25])
    x = sample_categorical(p, 0.6)
    assert type(x) is int
    assert p.tolist() == [0.5, 0.25, 0.25]
