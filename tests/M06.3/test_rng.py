"""PCG32 and its named substreams: the only source of chance in the course.

Every later claim that can be replayed rests on this stream: the same seed must give the same numbers on every
machine, in every language, for ever. So these tests hold the generator to published numbers, to a second
implementation written out in plain integers below, and, where a rule has an edge (the redraw in `below`), to states
that were worked out backwards so that the next output is exactly the number at the edge.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.num.rng import PCG32

pytestmark = pytest.mark.module("M06.3")

SEEDS = st.integers(0, 2**64 - 1)
PURPOSES = {"init": 1, "dropout": 2, "shuffle": 3, "sample": 4, "mutation": 5}


def plain_outputs(seed, seq=54):
    """PCG32 a second time, as the paper defines it, in Python integers: an endless stream of 32-bit outputs."""
    mask = 2**64 - 1
    inc = (seq << 1 | 1) & mask
    state = (inc + seed) & mask  # one step from state 0 leaves inc; then the seed is added
    state = (state * 6364136223846793005 + inc) & mask
    while True:
        word = ((state >> 18 ^ state) >> 27) & 0xFFFFFFFF
        turn = state >> 59
        yield (word >> turn | word << (32 - turn)) & 0xFFFFFFFF
        state = (state * 6364136223846793005 + inc) & mask


def generator_about_to_output(word):
    """A generator whose next 32-bit output is `word`.

    With the top five bits of the state 0 the output is not rotated, and bit i + 27 of the state can be solved for
    from the top down: the output's bit i is that bit xor the state's bit i + 45.
    """
    state = 0
    for i in reversed(range(32)):
        bit = (word >> i & 1) ^ (state >> (i + 45) & 1)
        state |= bit << (i + 27)
    rng = PCG32(0)
    rng.set_state((state, 109))
    return rng


def take(n, rng):
    return [rng.next_u32() for _ in range(n)]


def test_known_outputs():
    """Two implementations agree only if they agree on numbers fixed beforehand; these are the published ones.

    KIND: unit, smoke.
    """
    rng = PCG32(0)
    assert rng.state() == (0x9AE4F7499BA72696, 109)
    assert rng.next_u32() == 0x47C28B93
    assert take(6, PCG32(42)) == [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E]


def test_known_uniforms_and_integers_below():
    """A uniform and a die roll are what the sampler and the shuffle really use, so they have fixed values too.

    KIND: unit, smoke.
    """
    rng = PCG32(0)
    assert [rng.uniform(), rng.uniform()] == [0.2803122753265841, 0.4892241428740438]
    rng = PCG32(0)
    assert [rng.below(10) for _ in range(8)] == [1, 3, 4, 2, 5, 7, 2, 6]


def test_known_sample_substream():
    """Every decoding request draws from the `sample` substream: its seed and its first numbers are fixed.

    KIND: unit, smoke.
    """
    rng = PCG32(0).substream("sample")
    assert rng.state() == PCG32(0xF88BB8A8724C81EC, seq=4).state()
    assert take(2, rng) == [3444971639, 4260714914]
    assert PCG32(0).substream("sample").uniform() == pytest.approx(0.80209, abs=5e-6)


@given(SEEDS, st.integers(0, 2**63 - 1))
def test_any_seed_and_stream_agree_with_plain_integers(seed, seq):
    """Fixed values cover two seeds; a lost carry or a rotation by 0 shows up only on others.

    KIND: property, differential.
    """
    assert take(40, PCG32(seed, seq)) == list(itertools.islice(plain_outputs(seed, seq), 40))


def test_the_output_comes_from_the_old_state():
    """Advancing first and then mixing is the classic off-by-one: the same numbers, shifted by one place.

    KIND: unit.
    """
    rng = PCG32(7)
    rng.set_state((0, 109))
    assert rng.next_u32() == 0  # state 0 mixes to 0, whatever comes after it
    assert rng.state() == (109, 109)  # 0 * multiplier + inc


@given(SEEDS)
def test_a_uniform_is_53_bits_from_two_outputs(seed):
    """All 53 bits that a float64 in [0, 1) can hold come from the stream: 27 from the first output, 26 from the next.

    KIND: property.
    """
    a, b = take(2, PCG32(seed))
    rng = PCG32(seed)
    u = rng.uniform()
    assert 0 <= u < 1
    assert u * 2**53 == (a >> 5) * 2**26 + (b >> 6)
    assert rng.next_u32() == take(3, PCG32(seed))[2], "one uniform must use exactly two outputs"


@pytest.mark.parametrize(("word", "expected_high"), [(0, 0), (31, 0), (32, 1), (2**32 - 1, 2**27 - 1), (2**31, 2**26)])
def test_a_uniform_never_reaches_one(word, expected_high):
    """A uniform of exactly 1 would fall behind the last outcome; the largest output must still give less.

    KIND: boundary.
    """
    u = generator_about_to_output(word).uniform()
    assert int(u * 2**27) == expected_high
    assert 0 <= u < 1


@given(SEEDS, st.integers(0, 20))
def test_many_uniforms_are_the_single_ones_in_order(seed, n):
    """Drawing a batch is a convenience, never another stream.

    KIND: property, differential.
    """
    batch, single = PCG32(seed), PCG32(seed)
    assert list(batch.uniforms(n)) == [single.uniform() for _ in range(n)]
    assert batch.state() == single.state()


def test_uniforms_fill_the_interval_evenly():
    """A mistake in the bits (a sign, a lost half) leaves part of [0, 1) empty: 16 cells, 16,000 draws, chi-square.

    KIND: statistical.
    """
    u = np.asarray(PCG32(2024).uniforms(16_000))
    cells = np.bincount((u * 16).astype(int), minlength=16)
    assert ((cells - 1000) ** 2 / 1000).sum() < 37.7  # the 0.1% point of chi-square with 15 degrees of freedom


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 10, 12, 100, 255, 256])
def test_below_is_unbiased(n):
    """2^32 is rarely a multiple of n, so plain `r mod n` favours small results; t outputs must be drawn again.

    Shown by enumeration at both ends: of the first n outputs exactly t = 2^32 mod n are refused, and they are the
    lowest. What is accepted then starts at t, ends at 2^32 - 1, and falls into whole runs of n.

    KIND: boundary, property.
    """
    t = 2**32 % n
    after_a_redraw = 0
    for r in range(2 * n):
        rng = generator_about_to_output(r)
        probe = generator_about_to_output(r)
        probe.next_u32()
        result = rng.below(n)
        if rng.state() == probe.state():
            assert r >= t, f"{r} must be drawn again: t is {t}"
            assert result == r % n
        else:
            assert r < t, f"{r} must be accepted: t is {t}"
            after_a_redraw += 1
    assert after_a_redraw == t
    assert (2**32 - t) % n == 0
    last_run = [generator_about_to_output(r).below(n) for r in range(2**32 - n, 2**32)]
    assert sorted(last_run) == list(range(n))


@given(SEEDS, st.one_of(st.integers(1, 2**32), st.sampled_from([1, 2**31 - 1, 2**31 + 1, 3 * 2**30, 2**32 - 1, 2**32])))
def test_below_agrees_with_its_definition(seed, n):
    """Just above 2^31 nearly half of all outputs are refused, so a wrong redraw cannot hide.

    KIND: property, differential.
    """
    outputs = plain_outputs(seed)
    t = (2**32 - n) % n
    rng = PCG32(seed)
    for _ in range(10):
        expected = next(r for r in outputs if r >= t) % n
        assert rng.below(n) == expected


@pytest.mark.parametrize("n", [0, -1, 2**32 + 1])
def test_below_refuses_what_it_cannot_draw(n):
    """There is no integer below 0, and one output holds 32 bits: neither may loop for ever or return something.

    KIND: boundary.
    """
    with pytest.raises(ValueError):
        PCG32(0).below(n)


@given(SEEDS, st.integers(0, 12))
def test_shuffle_walks_down_and_swaps(seed, length):
    """The order of a shuffled training set is part of a result that must be replayed: same draws, same swaps.

    KIND: property, differential.
    """
    expected = list(range(length))
    draws = PCG32(seed)
    for i in range(length - 1, 0, -1):
        j = draws.below(i + 1)
        expected[i], expected[j] = expected[j], expected[i]
    rng, xs = PCG32(seed), list(range(length))
    rng.shuffle(xs)
    assert xs == expected
    assert rng.state() == draws.state()


def test_shuffle_reaches_every_order_evenly():
    """Swapping with any place, instead of one not yet settled, makes some orders likelier: 6 orders, 6,000 shuffles.

    KIND: statistical.
    """
    rng = PCG32(5)
    seen = dict.fromkeys(itertools.permutations("abc"), 0)
    for _ in range(6000):
        xs = list("abc")
        rng.shuffle(xs)
        seen[tuple(xs)] += 1
    assert sum((count - 1000) ** 2 / 1000 for count in seen.values()) < 20.5  # 0.1% point, 5 degrees of freedom


@given(SEEDS, st.integers(0, 50))
def test_a_saved_state_resumes_the_stream(seed, drawn):
    """A run that was interrupted continues with the numbers it would have drawn.

    KIND: property.
    """
    rng = PCG32(seed)
    take(drawn, rng)
    saved = rng.state()
    ahead = take(5, rng)
    other = PCG32(seed + 1)
    other.set_state(saved)
    assert take(5, other) == ahead


@pytest.mark.parametrize("inc", [0, 108, 2**63])
def test_an_even_increment_is_refused(inc):
    """With an even increment the state no longer visits all 2^64 values: a quietly bad generator.

    KIND: boundary.
    """
    rng = PCG32(3)
    before = rng.state()
    with pytest.raises(ValueError):
        rng.set_state((1, inc))
    assert rng.state() == before


@pytest.mark.parametrize(("purpose", "number"), PURPOSES.items())
def test_a_substream_depends_on_the_seed_alone(purpose, number):
    """Drawing one number more in one part of a program must not move the numbers of another part.

    KIND: unit, property.
    """
    rng = PCG32(11)
    fresh = rng.substream(purpose).state()
    take(17, rng)
    assert rng.substream(purpose).state() == fresh
    rng.set_state((12345, 7))
    assert rng.substream(purpose).state() == fresh
    assert fresh[1] == 2 * number + 1, "the purpose's number is also the stream's number"


def test_taking_a_substream_draws_nothing():
    """Asking for a substream is not a use of the parent: its own numbers stay where they were.

    KIND: unit.
    """
    rng = PCG32(11)
    before = rng.state()
    rng.substream("sample").next_u32()
    assert rng.state() == before


@given(SEEDS, st.sampled_from(sorted(PURPOSES)))
def test_substream_seeds_agree_with_the_mixer(seed, purpose):
    """The child's seed is a mixed 64-bit number; leaving out one shift or wrap gives other streams for most seeds.

    KIND: property, differential.
    """
    mask = 2**64 - 1
    z = (seed + PURPOSES[purpose] * 0x9E3779B97F4A7C15) & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    z ^= z >> 31
    rng = PCG32(seed).substream(purpose)
    assert rng.state() == PCG32(z, seq=PURPOSES[purpose]).state()
    assert rng.substream("init").state() == PCG32(z).substream("init").state(), "a child has its own seed"


def test_substreams_of_all_purposes_differ():
    """Two purposes that shared a stream would be correlated: a dropout mask that knows the sampler's choices.

    KIND: unit.
    """
    streams = [tuple(take(8, PCG32(0).substream(purpose))) for purpose in PURPOSES]
    streams.append(tuple(take(8, PCG32(0))))
    assert len(set(streams)) == len(PURPOSES) + 1


@pytest.mark.parametrize("purpose", ["", "Sample", "samples", "other"])
def test_an_unknown_purpose_is_refused(purpose):
    """A misspelt purpose must not become a new stream that nobody knows of.

    KIND: boundary.
    """
    with pytest.raises(KeyError):
        PCG32(0).substream(purpose)
