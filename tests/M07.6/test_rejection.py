"""Accept or replace: the step that makes a guess exact.

A token drawn from the wrong distribution q is kept with probability min(1, p/q), and replaced by a draw from what p
has more of than q; together that is a draw from p, whatever q was. This is the theorem under all of speculative
decoding, so it is not sampled here but counted: probabilities are fractions with small denominators, every threshold
a uniform can meet is then a multiple of some 1/N, and the N midpoints (j + 1/2)/N stand for the whole interval. The
outcomes are added up as fractions and compared with p by ==.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from _toy import Uniforms, midpoints
from hypothesis import assume, given
from hypothesis import strategies as st

from tinyllm.num.rng import PCG32
from tinyllm.prob.rejection import (
    acceptance_probability,
    rejection_accept,
    rejection_sample,
    residual_distribution,
    speculative_step,
)

pytestmark = pytest.mark.module("M07.6")

P = np.array([0.5, 0.25, 0.25])  # the worked example: target, draft, and the draft token 1
Q = np.array([0.25, 0.5, 0.25])


@st.composite
def weight_pairs(draw):
    """Two distributions over the same 1 to 6 ids as integers: p in multiples of 1/d, q of 1/e, with d, e <= 12."""
    n = draw(st.integers(1, 6))

    def weights(total):
        cuts = sorted(draw(st.lists(st.integers(0, total), min_size=n - 1, max_size=n - 1)))
        return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]

    return weights(draw(st.integers(1, 12))), weights(draw(st.integers(1, 12)))


def as_float(weights):
    return np.array(weights, dtype=np.float64) / sum(weights)


def as_fractions(weights):
    return [Fraction(w, sum(weights)) for w in weights]


def output_of_one_step(p_weights, q_weights, step=speculative_step):
    """The distribution of the emitted id, x ~ q included, and the probability of acceptance: exact fractions.

    For draft token x the accept threshold p/q is a fraction with denominator N_x; the replacement's thresholds are
    multiples of 1/N where N is the residual's mass over the common denominator. Both sets of midpoints are walked.
    """
    p, q = as_fractions(p_weights), as_fractions(q_weights)
    common = math.lcm(sum(p_weights), sum(q_weights))
    n_resample = max(1, int(sum(max(Fraction(0), a - b) for a, b in zip(p, q, strict=True)) * common))
    output, accepted_mass = [Fraction(0)] * len(p), Fraction(0)
    for x, q_x in enumerate(q):
        if q_x == 0:
            continue
        n_accept = (p[x] / q_x).denominator
        for u_accept in midpoints(n_accept):
            for u_resample in midpoints(n_resample):
                y, accepted = step(as_float(p_weights), as_float(q_weights), x, u_accept, u_resample)
                weight = q_x / (n_accept * n_resample)
                output[y] += weight
                accepted_mass += weight * accepted
    return output, accepted_mass


def test_hand_example():
    """Target [1/2, 1/4, 1/4], draft [1/4, 1/2, 1/4], token 1: kept below 1/2, else replaced by 0, the only id short.

    KIND: unit, smoke.
    """
    assert speculative_step(P, Q, 1, 0.7, 0.4) == (0, False)
    assert speculative_step(P, Q, 1, 0.3, 0.9) == (1, True)
    assert acceptance_probability(P, Q) == 0.75
    assert residual_distribution(P, Q).tolist() == [1.0, 0.0, 0.0]


def test_hand_example_comes_out_as_the_target():
    """Added up over the draft's own draw, the worked example emits 1/2, 1/4, 1/4: the target.

    KIND: unit, statistical.
    """
    output, accepted = output_of_one_step([2, 1, 1], [1, 2, 1])
    assert output == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    assert accepted == Fraction(3, 4)


@given(weight_pairs())
def test_one_step_emits_the_target_exactly(pair):
    """The theorem itself, for any p and q: also zeros on either side, no overlap at all, and p equal to q.

    KIND: property, statistical.
    """
    p, q = pair
    output, accepted = output_of_one_step(p, q)
    assert output == as_fractions(p)
    assert accepted == sum(map(min, as_fractions(p), as_fractions(q)))


@pytest.mark.parametrize("x", range(4))
def test_a_deterministic_draft_is_exact(x):
    """A copied token is a draw from a one-hot q: kept with probability p(x), else p without x. Also where p(x) = 0.

    KIND: statistical, boundary.
    """
    p = [3, 1, 0, 4]
    q = [0, 0, 0, 0]
    q[x] = 1
    output, accepted = output_of_one_step(p, q)
    assert output == as_fractions(p)
    assert accepted == Fraction(p[x], 8)


def test_the_enumeration_can_fail():
    """A count that no wrong rule could upset proves nothing: replacing from p instead of the residual must show.

    KIND: unit.
    """

    def replaces_from_the_target(p, q, x, u_accept, u_resample):
        if rejection_accept(p[x], q[x], u_accept):
            return x, True
        return int(np.searchsorted(np.cumsum(p), u_resample, side="right")), False

    output, _ = output_of_one_step([2, 1, 1], [1, 2, 1], replaces_from_the_target)
    assert output != [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]


# ------------------------------------------------------------------------------------------------- rejection_accept


def test_acceptance_is_strict():
    """u in [0, r) has length r, and [0, r] would have one number too many; with r = 0 that one number is u = 0.

    KIND: boundary.
    """
    assert rejection_accept(0.25, 0.5, np.nextafter(0.5, 0)) is True
    assert rejection_accept(0.25, 0.5, 0.5) is False
    assert rejection_accept(0.0, 0.5, 0.0) is False, "a token the target never gives is never kept"


@pytest.mark.parametrize("p_x", [0.25, 0.5, 1.0])
def test_a_ratio_of_one_or_more_always_accepts(p_x):
    """Where the target wants the token at least as often as the draft, no uniform may reject it.

    KIND: boundary.
    """
    assert rejection_accept(p_x, 0.25, 1 - 2**-53)


def test_acceptance_is_one_division():
    """u < p/q and u q < p are the same in mathematics and not in float64; another engine must decide alike.

    5/14 over 8/14 divides to exactly 0.625, so u = 0.625 rejects; the product form rounds and would accept.

    KIND: differential, boundary.
    """
    p_x, q_x, u = 5 / 14, 8 / 14, 0.625
    assert u * q_x < p_x
    assert rejection_accept(p_x, q_x, u) is False


@pytest.mark.parametrize(
    ("p_x", "q_x", "u"),
    [
        (0.5, 0.5, 1.0),
        (0.5, 0.5, -0.1),
        (0.5, 0.5, math.nan),
        (-0.1, 0.5, 0.5),
        (0.5, 0.0, 0.5),
        (0.0, 0.0, 0.5),
        (0.5, -0.5, 0.5),
    ],
)
def test_acceptance_refuses_impossible_numbers(p_x, q_x, u):
    """A token with q = 0 was not drawn from q: whoever says so reports another distribution than it used.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        rejection_accept(p_x, q_x, u)


# --------------------------------------------------------------------------- acceptance probability and the residual


def plain_sum(xs):
    """The sum as the contract wants it, one addition after the other."""
    total = 0.0
    for x in xs:
        total += x
    return total


def random_pair(seed, n):
    """Two distributions over n ids in full float64, so that the order of a sum can be seen in its last bits."""
    u = np.asarray(PCG32(seed).uniforms(2 * n))
    return u[:n] / plain_sum(u[:n].tolist()), u[n:] / plain_sum(u[n:].tolist())


def test_the_acceptance_probability_is_summed_in_order():
    """Ten times 0.1 in order is not 1, though a pairwise or compensated sum says so; the reported alpha has fixed bits.

    KIND: differential.
    """
    tenths = np.full(10, 0.1)
    assert math.fsum(tenths) == 1.0
    assert acceptance_probability(tenths, tenths) == 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1
    assert acceptance_probability(tenths, tenths) < 1.0


@pytest.mark.parametrize("n", [1, 7, 8, 9, 100, 1000])
def test_sums_have_the_bits_of_the_plain_loop(n):
    """For any length: the acceptance probability, and through Z every entry of the residual.

    KIND: differential.
    """
    other_order_differs = 0
    for seed in range(10):
        p, q = random_pair(seed, n)
        assert acceptance_probability(p, q) == plain_sum(map(min, p.tolist(), q.tolist()))
        over = [max(0.0, a - b) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
        z = plain_sum(over)
        expected = np.array(over) / z if z > 0 else p
        assert np.array_equal(residual_distribution(p, q), expected)
        other_order_differs += z != math.fsum(over)
    assert other_order_differs > 0 or n < 9, "the examples must tell the orders apart"


@given(weight_pairs())
def test_alpha_and_the_residual_fit_together(pair):
    """1 - alpha is the residual's mass Z, and min(p, q) + Z r is p again: the identity the theorem rests on.

    KIND: property.
    """
    p, q = map(as_float, pair)
    alpha, r = acceptance_probability(p, q), residual_distribution(p, q)
    assert 0 <= alpha <= 1 + 1e-12
    assert alpha == pytest.approx(acceptance_probability(q, p), abs=1e-12)
    assert r.sum() == pytest.approx(1) and r.min() >= 0
    assert np.minimum(p, q) + (1 - alpha) * r == pytest.approx(p, abs=1e-12)


def test_without_a_residual_a_fresh_copy_of_the_target_comes_back():
    """When p and q are equal nothing can be rejected, and dividing by Z = 0 would give NaN.

    A copy, because a caller that changes the answer must not change the target.

    KIND: boundary.
    """
    p = np.array([0.5, 0.25, 0.25])
    for q in (p, p.copy()):
        r = residual_distribution(p, q)
        assert r.tolist() == p.tolist()
        assert not np.shares_memory(r, p) and not np.shares_memory(r, q)


def test_a_target_below_the_draft_everywhere_has_no_residual():
    """Sums may miss 1 by a little, so p can lie under q at every id; Z is 0 and p itself is the answer.

    KIND: boundary.
    """
    p = np.array([0.5, 0.5 - 1e-9])
    q = np.array([0.5, 0.5])
    r = residual_distribution(p, q)
    assert r.tolist() == p.tolist()
    assert not np.shares_memory(r, p)
    assert speculative_step(p, q, 1, 1 - 2**-53, 0.25) == (0, False)


# ------------------------------------------------------------------------------------------------- speculative_step


def test_an_accepted_token_ignores_the_second_uniform():
    """Both uniforms are always drawn so that the count never depends on the outcome; only one may matter.

    KIND: unit.
    """
    assert {speculative_step(P, Q, 1, 0.3, u) for u in midpoints(8)} == {(1, True)}


def test_the_replacement_is_the_inverse_cdf_of_the_residual():
    """Residual [0, 1/3, 2/3]: the replacement follows the running sums 0, 1/3, 1 with the second uniform alone.

    KIND: unit.
    """
    p, q = np.array([1, 3, 4]) / 8, np.array([4, 2, 2]) / 8
    replaced = [speculative_step(p, q, 0, 0.25, u) for u in (0.0, 0.33, 0.34, 0.99)]
    assert replaced == [(1, False), (1, False), (2, False), (2, False)]
    assert speculative_step(p, q, 0, np.nextafter(0.25, 0), 0.0) == (0, True)


@given(weight_pairs(), st.data())
def test_a_replacement_is_never_the_rejected_token(pair, data):
    """A token can be rejected only where q > p, and there the residual is 0.

    KIND: property.
    """
    p, q = map(as_float, pair)
    x = data.draw(st.sampled_from([i for i, w in enumerate(q) if w > 0]))
    uniform = st.floats(0, 1, exclude_max=True)
    y, accepted = speculative_step(p, q, x, data.draw(uniform), data.draw(uniform))
    assert accepted == (y == x)
    assert p[y] > 0, "whatever comes out is possible under the target"


def test_a_step_gives_plain_types_and_leaves_its_inputs():
    """The id goes into a list of ids, and p and q are rows of arrays that others still read.

    KIND: unit.
    """
    p, q = P.copy(), Q.copy()
    for u in (0.3, 0.7):
        y, accepted = speculative_step(p, q, 1, u, 0.4)
        assert type(y) is int and type(accepted) is bool
    assert np.array_equal(p, P) and np.array_equal(q, Q)


@pytest.mark.parametrize("x", [-1, 3, 100])
def test_a_draft_token_outside_the_vocabulary_is_refused(x):
    """-1 would quietly read the last entry of a NumPy array.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        speculative_step(P, Q, x, 0.5, 0.5)


def test_a_draft_token_without_probability_is_refused():
    """A token with q[x] = 0 cannot have been drawn from q, so q is not the distribution it came from.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        speculative_step(P, np.array([0.5, 0.0, 0.5]), 1, 0.5, 0.5)


@pytest.mark.parametrize("bad", [-0.1, 1.0, math.nan])
def test_a_bad_uniform_is_refused_even_when_it_is_not_used(bad):
    """Otherwise a faulty source is noticed on some rounds only, depending on what was accepted.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        speculative_step(P, Q, 1, bad, 0.5)
    with pytest.raises(ValueError):
        speculative_step(P, Q, 1, 0.3, bad)  # 0.3 accepts, so the second uniform would not be looked at
    with pytest.raises(ValueError):
        speculative_step(P, Q, 1, 0.7, bad)


BAD_DISTRIBUTIONS = [[0.5, 0.25, 0.5], [1.5, -0.25, -0.25], [math.nan, 0.5, 0.5], [0.5, 0.5], [], [[0.5, 0.25, 0.25]]]


@pytest.mark.parametrize("bad", BAD_DISTRIBUTIONS)
@pytest.mark.parametrize(
    "call",
    [
        lambda p, q: speculative_step(p, q, 1, 0.3, 0.5),
        acceptance_probability,
        residual_distribution,
        lambda p, q: rejection_sample(p, q, 4.0, Uniforms([0.3, 0.0])),
    ],
    ids=["speculative_step", "acceptance_probability", "residual_distribution", "rejection_sample"],
)
def test_a_bad_distribution_is_refused_on_either_side(call, bad):
    """Unnormalised or negative probabilities, and two vocabularies of different size, would give a plausible token.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        call(np.array(bad, dtype=np.float64), Q)
    with pytest.raises(ValueError):
        call(P, np.array(bad, dtype=np.float64))


# ------------------------------------------------------------------------------------------------- rejection_sample


def test_a_try_draws_the_proposal_first_and_then_the_acceptance():
    """The order of draws is part of the answer: swapped, the same stream gives another token.

    p = [1/2, 1/2], q = [1/4, 3/4], m = 2: 0.9 proposes 1, and 0.5 is not below 1/3; 0.1 proposes 0, always accepted.

    KIND: unit, smoke.
    """
    rng = Uniforms([0.9, 0.5, 0.1, 0.99])
    assert rejection_sample(np.array([0.5, 0.5]), np.array([0.25, 0.75]), 2, rng) == (0, 2)
    assert rng.used == 4


def test_acceptance_in_a_try_is_strict():
    """p/(m q) is 1/2 at id 0: a uniform of exactly 1/2 rejects, the number just below accepts.

    KIND: boundary.
    """
    p, q = np.array([0.25, 0.75]), np.array([0.25, 0.75])
    assert rejection_sample(p, q, 2, Uniforms([0.0, np.nextafter(0.5, 0)])) == (0, 1)
    assert rejection_sample(p, q, 2, Uniforms([0.0, 0.5, 0.0, 0.0])) == (0, 2)


@given(weight_pairs())
def test_one_try_accepts_each_id_in_proportion_to_the_target(pair):
    """One try yields x with probability p(x)/m, for every x: so given that it yields anything, it is a draw from p.

    KIND: property, statistical.
    """
    p, q = map(as_fractions, pair)
    assume(all(b > 0 for a, b in zip(p, q, strict=True) if a > 0))  # no m covers such a pair; the next test says so
    m = math.ceil(max(a / b for a, b in zip(p, q, strict=True) if b > 0))
    accepted = [Fraction(0)] * len(p)
    n_propose = sum(pair[1])
    for u_propose in midpoints(n_propose):
        x = next(i for i, c in enumerate(np.cumsum(pair[1])) if u_propose * n_propose < c)
        n_accept = (p[x] / (m * q[x])).denominator
        for u_accept in midpoints(n_accept):
            try:
                y, tries = rejection_sample(
                    as_float(pair[0]), as_float(pair[1]), m + 1e-12, Uniforms([u_propose, u_accept]), max_tries=1
                )
            except RuntimeError:
                continue
            assert (y, tries) == (x, 1)
            accepted[y] += Fraction(1, n_propose * n_accept)
    assert accepted == [a / m for a in p]


@pytest.mark.parametrize(
    ("p", "q", "m"),
    [
        ([0.5, 0.5], [0.5, 0.5], 0.99),
        ([0.5 - 5e-10, 0.5 - 5e-10], [0.5, 0.5], 1 - 5e-10),
        ([0.5, 0.5], [0.25, 0.75], 1.99),
        ([0.5, 0.5], [1.0, 0.0], 1e9),
    ],
    ids=["m below 1", "m below 1 though it covers p", "m q does not cover p", "q misses an id of p"],
)
def test_an_envelope_that_does_not_cover_the_target_is_refused(p, q, m):
    """Where m q < p the acceptance would have to exceed 1; clipping it gives too little of that id, silently.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        rejection_sample(np.array(p), np.array(q), m, PCG32(0))


@pytest.mark.parametrize("max_tries", [1, 3, 10])
def test_it_gives_up_after_the_allowed_tries(max_tries):
    """A loop that may run for ever is an outage; after max_tries pairs of uniforms it says so.

    KIND: boundary.
    """
    rng = Uniforms([0.9, 0.999] * max_tries)
    with pytest.raises(RuntimeError):
        rejection_sample(np.array([0.5, 0.5]), np.array([0.25, 0.75]), 2, rng, max_tries=max_tries)
    assert rng.used == 2 * max_tries


def test_an_envelope_that_is_the_target_accepts_at_once():
    """With p = q and m = 1 nothing is wasted: one try, two uniforms.

    KIND: unit.
    """
    rng = Uniforms([0.6, 1 - 2**-53])
    assert rejection_sample(P, P, 1, rng) == (1, 1)
    assert rng.used == 2


def test_the_mean_number_of_tries_is_m():
    """Each try succeeds with probability 1/m, whatever p and q are: 4,000 draws with m = 3.

    KIND: statistical.
    """
    rng = PCG32(9).substream("sample")
    tries = [rejection_sample(P, Q, 3, rng)[1] for _ in range(4000)]
    assert np.mean(tries) == pytest.approx(3, abs=4 * math.sqrt(6 / 4000))  # a geometric variance of m (m - 1)
