"""L8.1, from logits to a token: eleven steps in a fixed order, each with a hand example, then all of them together.

The last part holds the sampler to a plain Python loop, bit for bit, at the size of a real vocabulary.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from _toy import Uniforms, as_fractions, distribution, frequencies, logits_of, midpoints
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinyllm.infer.sample import (
    SamplingParams,
    apply_penalties,
    process_logits,
    request_rng,
    sample,
    sampled_entropy,
    sampling_distribution,
    token_logprobs,
)
from tinyllm.info.entropy import entropy

pytestmark = pytest.mark.module("L8.1")

INF = math.inf
LAST = math.nextafter(1.0, 0.0)  # the largest uniform there can be
LN2 = math.log(2)


def kept(logits: Any, p: SamplingParams, history: Sequence[int] = ()) -> list[int]:
    """The ids that can come out."""
    return np.flatnonzero(sampling_distribution(logits, p, history)).tolist()


# ------------------------------------------------------------------------------------------------------- parameters


def test_defaults_sample_from_the_model_itself() -> None:
    """The fields, their order and their defaults are part of the interface: people pass them by position.

    KIND: unit, smoke.
    """
    fields = [(f.name, getattr(SamplingParams(), f.name)) for f in dataclasses.fields(SamplingParams)]
    assert fields[:11] == [
        ("temperature", 1.0),
        ("top_k", 0),
        ("top_p", 1.0),
        ("min_p", 0.0),
        ("repetition_penalty", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("seed", None),
        ("max_tokens", 128),
        ("stop", []),
        ("logprobs", 0),
    ]
    SamplingParams().validate()
    first, second = SamplingParams(), SamplingParams()
    first.stop.append("x")
    assert second.stop == [], "each request has a stop list of its own"


@pytest.mark.parametrize(
    "knobs",
    [
        {"temperature": -0.1},
        {"temperature": INF},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": -0.5},
        {"top_p": math.nan},
        {"min_p": -0.01},
        {"min_p": 1.01},
        {"min_p": math.nan},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": -1.0},
        {"repetition_penalty": INF},
        {"presence_penalty": INF},
        {"presence_penalty": math.nan},
        {"frequency_penalty": -INF},
        {"frequency_penalty": math.nan},
        {"seed": -1},
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"logprobs": -1},
        {"temperature": "hot"},
        {"temperature": None},
        {"top_k": 2.5},
        {"presence_penalty": "1"},
        {"stop": "end"},
    ],
)
def test_validate_refuses_each_bad_value(knobs: dict[str, Any]) -> None:
    """A value outside its range is told by name before it can bend an output.

    KIND: boundary.
    """
    with pytest.raises(ValueError, match=next(iter(knobs))):
        SamplingParams(**knobs).validate()


@pytest.mark.parametrize(
    "knobs",
    [
        {"temperature": 0.0},
        {"top_k": 10**6},
        {"top_p": 1.0},
        {"top_p": 1e-9},
        {"min_p": 0.0},
        {"min_p": 1.0},
        {"repetition_penalty": 0.1},
        {"presence_penalty": -2.0},
        {"frequency_penalty": -2.0},
        {"seed": 0},
        {"max_tokens": 1},
        {"logprobs": 5},
    ],
)
def test_validate_accepts_the_edges(knobs: dict[str, Any]) -> None:
    """The ends of each range belong to it where the range says so.

    KIND: boundary.
    """
    SamplingParams(**knobs).validate()


# --------------------------------------------------------------------------------------------- steps 1 to 3: penalties


def test_step_1_works_on_a_float64_copy() -> None:
    """Float32 logits are widened before anything happens to them, and the caller's array stays as it was.

    KIND: unit.
    """
    p = SamplingParams(temperature=0.7, top_k=2, top_p=0.9, min_p=0.01, repetition_penalty=1.2, presence_penalty=0.1)
    for dtype in (np.float16, np.float32, np.float64):
        logits = np.array([0.1, -0.3, 2.7], dtype=dtype)
        logits.flags.writeable = False
        before, history, prompt = logits.copy(), [0, 2, 2], [1]
        wide = logits.astype(np.float64)
        functions: list[Callable[..., Any]] = [
            apply_penalties,
            token_logprobs,
            process_logits,
            sampling_distribution,
            sampled_entropy,
        ]
        for function in functions:
            got = function(logits, p, history, prompt)
            assert np.array_equal(got, function(wide, p, history, prompt))
            assert function is sampled_entropy or got.dtype == np.float64
        assert sample(logits, p, history, Uniforms([0.5]), prompt) == sample(wide, p, history, Uniforms([0.5]), prompt)
        assert np.array_equal(logits, before) and (history, prompt) == ([0, 2, 2], [1])
    logits = np.array([1.0, 2.0])
    for function in functions[:4]:
        out = function(logits, SamplingParams())
        out[:] = 7.0
        assert logits.tolist() == [1.0, 2.0], "with every switch off it is still a copy"


def test_step_2_repetition_weakens_each_distinct_id_once() -> None:
    """Positive logits are divided and the others multiplied, once per id however often it came, prompt included.

    KIND: unit, smoke.
    """
    logits = [2.0, -2.0, 0.0, 3.0, -1.0]
    p = SamplingParams(repetition_penalty=2.0)
    assert apply_penalties(logits, p, history=[0, 0, 1], prompt=[0, 3]).tolist() == [1.0, -4.0, 0.0, 1.5, -1.0]
    assert apply_penalties(logits, p, history=[2, 2], prompt=[]).tolist() == logits
    assert apply_penalties(logits, p).tolist() == logits
    p = SamplingParams(repetition_penalty=0.5)
    assert apply_penalties(logits, p, history=[0, 1]).tolist() == [4.0, -1.0, 0.0, 3.0, -1.0]
    assert apply_penalties([-INF, 1.0], p, history=[0]).tolist() == [-INF, 1.0]


def test_step_3_presence_and_frequency_count_the_history_only() -> None:
    """Frequency once per copy, presence once per id, and the prompt is not what was generated.

    KIND: unit, smoke.
    """
    logits = [1.0, 1.0, 1.0]
    p = SamplingParams(frequency_penalty=0.25, presence_penalty=0.5)
    assert apply_penalties(logits, p, history=[0, 0, 0, 2], prompt=[1, 1]).tolist() == [-0.25, 1.0, 0.25]
    p = SamplingParams(frequency_penalty=-0.25, presence_penalty=-0.5)
    assert apply_penalties(logits, p, history=[0, 0]).tolist() == [2.0, 1.0, 1.0]


def test_repetition_comes_before_presence_and_frequency() -> None:
    """(2 / 2) - 0.5 - 0.25 is not (2 - 0.75) / 2: the order is part of the result.

    KIND: unit.
    """
    p = SamplingParams(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    assert apply_penalties([2.0, 0.0], p, history=[0]).tolist() == [0.25, 0.0]
    # The sign that decides between dividing and multiplying is that of the raw logit.
    p = SamplingParams(repetition_penalty=2.0, presence_penalty=3.0)
    assert apply_penalties([2.0, 0.0], p, history=[0]).tolist() == [-2.0, 0.0]


def test_frequency_is_subtracted_before_presence() -> None:
    """l - frequency c - presence, left to right: another order gives other bits for these numbers.

    KIND: unit.
    """
    logit, frequency, presence = 0.3, 0.1, 0.001
    want = logit - frequency * 3 - presence
    assert want != logit - (frequency * 3 + presence) and want != logit - presence - frequency * 3
    p = SamplingParams(frequency_penalty=frequency, presence_penalty=presence)
    assert apply_penalties([logit, 0.0], p, history=[0, 0, 0])[0] == want


def test_reported_logprobs_are_after_penalties_and_before_temperature() -> None:
    """What is reported is the model's belief under the penalties, whatever temperature and filters then do.

    KIND: unit.
    """
    logits = [0.0, math.log(3)]
    hot = SamplingParams(temperature=5.0, top_k=1, top_p=0.1, min_p=0.9)
    np.testing.assert_allclose(token_logprobs(logits, SamplingParams()), [math.log(0.25), math.log(0.75)], rtol=1e-15)
    assert np.array_equal(token_logprobs(logits, hot), token_logprobs(logits, SamplingParams()))
    penal = SamplingParams(temperature=0.3, presence_penalty=math.log(3))
    np.testing.assert_allclose(token_logprobs(logits, penal, history=[1]), [-LN2, -LN2], rtol=1e-15)
    assert token_logprobs([0.0, -INF], hot).tolist() == [0.0, -INF]
    for p in (hot, SamplingParams(temperature=0.0)):
        token, logprob = sample(logits, p, [], Uniforms([0.5]))
        assert (token, logprob) == (1, token_logprobs(logits, p)[1])
        assert type(token) is int and type(logprob) is float


# ------------------------------------------------------------------------------------------- steps 4 and 5: temperature


def test_step_4_temperature_0_takes_the_largest_and_draws_nothing() -> None:
    """Greedy: the largest penalised logit, ties to the lowest id, and the stream does not move.

    KIND: unit, smoke.
    """
    rng = Uniforms()
    p = SamplingParams(temperature=0.0)
    assert sample([1.0, 3.0, 3.0, 2.0], p, [], rng)[0] == 1
    assert sample([-INF, -5.0, -INF], p, [], rng)[0] == 1
    assert sample([0.0, -0.0], p, [], rng)[0] == 0
    assert sample([3.0, 2.5], SamplingParams(temperature=0.0, presence_penalty=1.0), [0], rng)[0] == 1
    assert rng.used == 0
    assert sampling_distribution([1.0, 3.0, 3.0], p).tolist() == [0.0, 1.0, 0.0]
    assert sampled_entropy([1.0, 3.0, 3.0], p) == 0.0
    # No filter applies, and the logits shown are the penalised ones.
    p = SamplingParams(temperature=0.0, top_k=1, top_p=0.1, min_p=1.0, presence_penalty=0.5)
    assert process_logits([1.0, 3.0, -INF], p, history=[0]).tolist() == [0.5, 3.0, -INF]


def test_step_5_temperature_divides() -> None:
    """At 1/2 the probabilities are squared, at 2 their roots are taken, then normalised.

    KIND: unit, smoke.
    """
    logits = logits_of([3, 2, 1])
    half, two = SamplingParams(temperature=0.5), SamplingParams(temperature=2.0)
    np.testing.assert_allclose(sampling_distribution(logits, half), distribution([9, 4, 1]), rtol=1e-14)
    roots = np.sqrt([3.0, 2.0, 1.0])
    np.testing.assert_allclose(sampling_distribution(logits, two), roots / roots.sum(), rtol=1e-14)
    assert process_logits([3.0, -1.0, -INF], half).tolist() == [6.0, -2.0, -INF]


def test_penalties_come_before_temperature() -> None:
    """(2 - 1) / 0.5 is 2, and 2 / 0.5 - 1 would be 3.

    KIND: unit.
    """
    p = SamplingParams(temperature=0.5, presence_penalty=1.0)
    assert process_logits([2.0, 0.0], p, history=[0]).tolist() == [2.0, 0.0]


# ----------------------------------------------------------------------------------------------- steps 6 to 8: filters


def test_step_6_top_k_keeps_the_k_largest() -> None:
    """Ties at the edge go to the lower ids, -inf never enters, and 0 or k >= V is off.

    KIND: unit, boundary, smoke.
    """
    assert kept([1.0, 3.0, 2.0, 0.0], SamplingParams(top_k=2)) == [1, 2]
    assert kept([2.0, 1.0, 2.0, 2.0], SamplingParams(top_k=2)) == [0, 2]
    assert kept([5.0, 5.0, 5.0], SamplingParams(top_k=1)) == [0]
    assert kept([0.0, -INF, -INF, 1.0], SamplingParams(top_k=3)) == [0, 3]
    for off in (0, 4, 5, 1000):
        assert kept([1.0, 3.0, 2.0, 0.0], SamplingParams(top_k=off)) == [0, 1, 2, 3]
    assert process_logits([1.0, 3.0, 2.0], SamplingParams(top_k=2)).tolist() == [-INF, 3.0, 2.0]


def test_step_7_top_p_keeps_up_to_the_first_sum_that_reaches_it() -> None:
    """Weights 8, 4, 2, 1, 1: the walk goes down, among equals by id, and a sum that is reached exactly is reached.

    KIND: unit, boundary, smoke.
    """
    logits = logits_of([4, 1, 8, 2, 1])
    q = sampling_distribution(logits, SamplingParams())
    one, two = float(q[2]), float(q[2] + q[0])  # the running sums themselves, whatever their last bit
    assert kept(logits, SamplingParams(top_p=0.3)) == [2]
    assert kept(logits, SamplingParams(top_p=one)) == [2]
    assert kept(logits, SamplingParams(top_p=math.nextafter(one, 1.0))) == [0, 2], "the one that crosses is kept"
    assert kept(logits, SamplingParams(top_p=two)) == [0, 2]
    assert kept(logits, SamplingParams(top_p=math.nextafter(two, 1.0))) == [0, 2, 3]
    assert kept(logits, SamplingParams(top_p=0.9)) == [0, 1, 2, 3], "among equals the lower id comes first"
    assert kept(logits, SamplingParams(top_p=0.95)) == [0, 1, 2, 3, 4]
    assert kept(logits, SamplingParams(top_p=1.0)) == [0, 1, 2, 3, 4]
    assert kept(logits, SamplingParams(top_p=1e-12)) == [2], "one is always kept"
    assert kept([0.0, -INF, 0.0], SamplingParams(top_p=0.999999)) == [0, 2]
    assert kept([0.0] * 4, SamplingParams(top_p=0.5)) == [0, 1], "quarters are exact"


def test_step_8_min_p_keeps_what_has_its_share_of_the_largest() -> None:
    """q >= min_p max q: at 1 only the largest and its equals, at 0 off.

    KIND: unit, boundary, smoke.
    """
    logits = logits_of([4, 1, 8, 2, 1])
    assert kept(logits, SamplingParams(min_p=0.51)) == [2]
    assert kept(logits, SamplingParams(min_p=0.49)) == [0, 2]
    assert kept(logits, SamplingParams(min_p=0.2)) == [0, 2, 3]
    assert kept(logits, SamplingParams(min_p=0.1)) == [0, 1, 2, 3, 4]
    assert kept(logits, SamplingParams(min_p=0.0)) == [0, 1, 2, 3, 4]
    assert kept([1.0, 1.0, 0.0], SamplingParams(min_p=1.0)) == [0, 1], "equality stays"
    assert kept([0.0, -800.0], SamplingParams(min_p=1e-300)) == [0]


def test_top_k_comes_before_top_p() -> None:
    """Top-p walks over what top-k left, renormalised: with weights 4, 3, 2, 1 and k = 2 the first has 4/7, not 4/10.

    KIND: unit.
    """
    logits = logits_of([4, 3, 2, 1])
    assert kept(logits, SamplingParams(top_p=0.5)) == [0, 1]
    assert kept(logits, SamplingParams(top_k=2, top_p=0.5)) == [0]


def test_temperature_comes_before_top_p() -> None:
    """At temperature 1/2 the weights are 16, 9, 4, 1 of 30, so the first alone has more than half.

    KIND: unit.
    """
    assert kept(logits_of([4, 3, 2, 1]), SamplingParams(temperature=0.5, top_p=0.5)) == [0]


def test_top_p_comes_before_min_p() -> None:
    """Min-p judges what top-p left, and top-p never sees what min-p would have removed.

    Weights 4, 3, 2, 1: top-p 0.85 takes three (0.9); min-p 0.5 then keeps all three of these. The other way round
    min-p leaves 4, 3, 2 and top-p 0.75 would be reached by two (7/9), where the right order takes three.

    KIND: unit.
    """
    logits = logits_of([4, 3, 2, 1])
    assert kept(logits, SamplingParams(top_p=0.75, min_p=0.45)) == [0, 1, 2]
    assert kept(logits, SamplingParams(top_p=0.6, min_p=0.45)) == [0, 1]


# ------------------------------------------------------------------------------------------ steps 9 to 11: one uniform


def test_step_9_normalises_what_was_kept() -> None:
    """Filtered probabilities are in proportion to the model's, and nothing else has any.

    KIND: unit.
    """
    got = sampling_distribution(logits_of([4, 3, 2, 1]), SamplingParams(top_k=2))
    np.testing.assert_allclose(got, [4 / 7, 3 / 7, 0, 0], rtol=1e-15)
    assert got[2] == got[3] == 0.0
    assert sampled_entropy(logits_of([4, 3, 2, 1]), SamplingParams(top_k=2)) == pytest.approx(entropy(got), rel=1e-14)
    assert sampled_entropy([1.0, 1.0, 1.0, 1.0], SamplingParams()) == pytest.approx(math.log(4), rel=1e-14)


def test_step_10_takes_exactly_one_uniform() -> None:
    """Also when only one id is left: the stream moves the same whatever the filters did.

    KIND: unit.
    """
    for knobs in ({}, {"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0}, {"temperature": 1e-3}):
        rng = Uniforms([0.5, 0.5])
        sample([1.0, 2.0, 0.0], SamplingParams(**knobs), [], rng)
        assert rng.used == 1, knobs


def test_step_11_is_the_inverse_cdf_in_id_order() -> None:
    """u picks the first id whose running sum is above it; an id without probability is never picked.

    KIND: boundary, smoke.
    """
    logits = logits_of([4, 1, 8, 2, 1])
    running = np.add.accumulate(sampling_distribution(logits, SamplingParams())).tolist()
    for i in range(4):
        assert sample(logits, SamplingParams(), [], Uniforms([math.nextafter(running[i], 0.0)]))[0] == i
        assert sample(logits, SamplingParams(), [], Uniforms([running[i]]))[0] == i + 1
    assert sample(logits, SamplingParams(), [], Uniforms([0.0]))[0] == 0
    assert sample(logits, SamplingParams(), [], Uniforms([LAST]))[0] == 4
    assert sample([1.0, 0.0, -INF], SamplingParams(), [], Uniforms([LAST]))[0] == 1
    assert sample([-INF, 0.0, 1.0], SamplingParams(), [], Uniforms([0.0]))[0] == 1
    assert sample([3.0, 2.0, 1.0], SamplingParams(top_k=2), [], Uniforms([LAST]))[0] == 1


def test_every_filter_draws_exactly_from_what_it_left() -> None:
    """Enumerated: the ids come out as often as the fractions say.

    KIND: statistical.
    """
    logits = logits_of([6, 5, 3, 1])
    for p, want in [
        (SamplingParams(), [6, 5, 3, 1]),
        (SamplingParams(top_k=2), [6, 5, 0, 0]),
        (SamplingParams(top_p=0.8), [6, 5, 3, 0]),
        (SamplingParams(min_p=0.4), [6, 5, 3, 0]),
        (SamplingParams(temperature=0.5), [36, 25, 9, 1]),
        (SamplingParams(presence_penalty=math.log(3)), [2, 5, 3, 1]),
    ]:
        drawn = [sample(logits, p, [0], Uniforms([u]))[0] for u in midpoints(sum(want))]
        assert frequencies(drawn) == as_fractions(want), p


# --------------------------------------------------------------------------------------------------------- the stream


def test_request_rng_is_the_sample_stream_of_the_seed() -> None:
    """Known values: the same seed gives the same stream in any implementation.

    KIND: unit, smoke.
    """
    rng = request_rng(0)
    assert [rng.next_u32(), rng.next_u32()] == [3444971639, 4260714914]
    assert request_rng(0).uniform() == ((3444971639 >> 5) * 2**26 + (4260714914 >> 6)) * 2.0**-53
    assert f"{request_rng(0).uniform():.5f}" == "0.80209"
    assert request_rng(1).uniform() != request_rng(0).uniform()
    first, second = request_rng(7), request_rng(7)
    assert [first.uniform() for _ in range(5)] == [second.uniform() for _ in range(5)]


# -------------------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    "function", [apply_penalties, token_logprobs, process_logits, sampling_distribution, sampled_entropy]
)
def test_bad_logits_and_ids_are_refused(function: Callable[..., Any]) -> None:
    """NaN, +inf, nothing possible at all, a wrong shape, an id that does not exist: errors, never a quiet token.

    KIND: boundary.
    """
    for temperature in (0.0, 1.0):
        p = SamplingParams(temperature=temperature)
        for bad in ([0.0, math.nan], [0.0, INF], [-INF, -INF], [[0.0, 1.0]], 3.0, []):
            with pytest.raises(ValueError):
                function(bad, p)
            with pytest.raises(ValueError):
                sample(bad, p, [], Uniforms([0.5]))
        for bad_id in (3, -1, 10**9):
            for ids in ({"history": [0, bad_id]}, {"prompt": [bad_id]}):
                with pytest.raises(ValueError):
                    function([0.0, 1.0, 2.0], p, **ids)
                with pytest.raises(ValueError):
                    sample([0.0, 1.0, 2.0], p, ids.get("history", []), Uniforms([0.5]), ids.get("prompt", ()))


# ------------------------------------------------------------------------------------- bit for bit, against plain loops


def ascending(values: Iterable[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


class Plain:
    """The contract's steps as plain Python loops over floats: the definition the sampler is held to, bit for bit."""

    def __init__(self, logits: Any, p: SamplingParams, history: Sequence[int], prompt: Sequence[int]) -> None:
        x = [float(v) for v in logits]
        for i in {*prompt, *history}:
            x[i] = x[i] / p.repetition_penalty if x[i] > 0 else x[i] * p.repetition_penalty
        for i in set(history):
            x[i] = x[i] - p.frequency_penalty * list(history).count(i) - p.presence_penalty
        self.penalised = x
        top = max(x)
        log_z = math.log(ascending(math.exp(v - top) for v in x))
        self.logprobs = [(v - top) - log_z for v in x]
        if p.temperature == 0:
            self.processed = x
            self.q = [0.0] * len(x)
            self.q[x.index(top)] = 1.0
            return
        x = [v / p.temperature for v in x]
        order = sorted((i for i in range(len(x)) if x[i] > -INF), key=lambda i: (-x[i], i))
        if 0 < p.top_k < len(x):
            order = order[: p.top_k]
        if p.top_p < 1:
            q, total, enough = self.softmax(x, order), 0.0, len(order)
            for n, i in enumerate(order, start=1):
                total += q[i]
                if total >= p.top_p:
                    enough = n
                    break
            order = order[:enough]
        if p.min_p > 0:
            q = self.softmax(x, order)
            largest = max(q)
            order = [i for i in order if q[i] >= p.min_p * largest]
        self.q = self.softmax(x, order)
        kept = set(order)
        self.processed = [v if i in kept else -INF for i, v in enumerate(x)]

    @staticmethod
    def softmax(x: list[float], kept: list[int]) -> list[float]:
        top = max(x[i] for i in kept)
        e = [0.0] * len(x)
        for i in kept:
            e[i] = math.exp(x[i] - top)
        z = ascending(e[i] for i in sorted(kept))
        return [v / z for v in e]

    def draw(self, u: float) -> int:
        total, last = 0.0, 0
        for i, q in enumerate(self.q):
            total += q
            if q > 0:
                last = i
                if u < total:
                    return i
        return last


def assert_same_bits(
    logits: NDArray[Any], p: SamplingParams, history: list[int], prompt: list[int], us: list[float]
) -> None:
    want = Plain(logits, p, history, prompt)
    assert np.array_equal(apply_penalties(logits, p, history, prompt), want.penalised)
    assert np.array_equal(token_logprobs(logits, p, history, prompt), want.logprobs)
    assert np.array_equal(process_logits(logits, p, history, prompt), want.processed)
    assert np.array_equal(sampling_distribution(logits, p, history, prompt), want.q)
    for u in us:
        token = want.draw(u) if p.temperature > 0 else want.q.index(1.0)
        got = sample(logits, p, history, Uniforms([u]), prompt)
        assert got == (token, want.logprobs[token])


KNOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0.0, "repetition_penalty": 1.3},
    "cold": {"temperature": 0.31},
    "hot": {"temperature": 2.7},
    "top-k": {"top_k": 50},
    "top-k that cuts a tie": {"top_k": 700},
    "top-p": {"top_p": 0.9},
    "top-p that takes nearly all": {"top_p": 0.9999999},
    "min-p": {"min_p": 0.02},
    "penalties": {"repetition_penalty": 1.17, "presence_penalty": 0.3, "frequency_penalty": 0.7},
    "everything": {
        "temperature": 0.8,
        "top_k": 4000,
        "top_p": 0.97,
        "min_p": 0.003,
        "repetition_penalty": 1.1,
        "presence_penalty": -0.2,
        "frequency_penalty": 0.13,
    },
}


@pytest.mark.parametrize("name", KNOBS)
def test_bits_are_those_of_the_plain_loop_at_a_real_vocabulary(name: str) -> None:
    """V = 49,152, float32 logits as a model gives them, with ties: every function equals the plain loop with ==.

    A pairwise sum, a float32 step or a faster exp would differ in the last bits, and sooner or later in a token.

    KIND: differential.
    """
    rng = np.random.default_rng(81)
    p = SamplingParams(**KNOBS[name])
    logits = (3 * rng.normal(size=49_152)).astype(np.float32)
    logits[rng.integers(49_152, size=4000)] = np.round(logits[:4000])  # many ties
    logits[rng.integers(49_152, size=300)] = -np.inf
    history = rng.integers(49_152, size=60).tolist() + np.argsort(-logits)[:20].tolist() * 2
    prompt = rng.integers(49_152, size=40).tolist() + np.argsort(-logits)[10:40].tolist()
    assert_same_bits(logits, p, history, prompt, [0.0, 0.3, 0.7, LAST])


@pytest.mark.parametrize("vocab_size", [1, 2, 3, 17, 256, 5000])
def test_bits_are_those_of_the_plain_loop_at_other_sizes(vocab_size: int) -> None:
    """Sums of any length: blocks, remainders and single elements included.

    KIND: differential.
    """
    rng = np.random.default_rng([82, vocab_size])
    for name, knobs in KNOBS.items():
        if "tie" not in name:
            logits = (4 * rng.normal(size=vocab_size)).astype(rng.choice([np.float32, np.float64]))
            history, prompt = (rng.integers(vocab_size, size=n).tolist() for n in (5, 3))
            assert_same_bits(logits, SamplingParams(**knobs), history, prompt, rng.random(3).tolist())


coarse = st.integers(-6, 6).map(lambda n: n / 2)  # few values, so that ties are common


@settings(max_examples=150)
@given(
    logits=st.lists(coarse | st.just(-INF) | st.floats(-40, 40), min_size=1, max_size=12).filter(
        lambda x: max(x) > -INF
    ),
    temperature=st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.7, 4.0]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.75, 0.5, 0.25, 0.01]),
    min_p=st.sampled_from([0.0, 0.01, 0.25, 0.5, 1.0]),
    penalties=st.tuples(
        st.sampled_from([1.0, 0.8, 1.5]), st.sampled_from([0.0, 0.5, -0.3]), st.sampled_from([0.0, 0.25])
    ),
    data=st.data(),
)
def test_bits_are_those_of_the_plain_loop_for_any_input(
    logits: list[float],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    penalties: tuple[float, float, float],
    data: st.DataObject,
) -> None:
    """Every combination of knobs, with ties and -inf where they hurt.

    KIND: property, differential.
    """
    ids = st.lists(st.integers(0, len(logits) - 1), max_size=6)
    p = SamplingParams(temperature, top_k, top_p, min_p, *penalties)
    us = [data.draw(st.floats(0, 1, exclude_max=True)), LAST]
    assert_same_bits(np.array(logits), p, data.draw(ids), data.draw(ids), us)
