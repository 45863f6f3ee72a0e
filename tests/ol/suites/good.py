"""A suite of L8.6 such as a careful learner writes: valid, quick, and hard to fool."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from _toy import LETTERS, BagLM, ScriptedDraft, TableCounts, Uniforms, sometimes_right_draft

from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams, request_rng, sampling_distribution
from tinyllm.infer.spec import ModelDraft, NGramDraft, PromptLookupDraft, speculative_generate, verify_draft

GREEDY = SamplingParams(temperature=0.0)
PLAIN = SamplingParams()


def logits(*weights):
    return [math.log(w) if w else -math.inf for w in weights]


def shares(outcomes):
    return {x: Fraction(outcomes.count(x), len(outcomes)) for x in set(outcomes)}


def cells(n):
    return [(i + 0.5) / n for i in range(n)]


def test_worked_example_sampled():
    rows = np.array([logits(2, 1, 1), logits(1, 0, 15)])
    q = np.array([[0.25, 0.5, 0.25]])
    assert verify_draft(rows, [1], q, PLAIN, [], Uniforms([0.7, 0.4])) == ([0], 0)
    assert verify_draft(rows, [1], q, PLAIN, [], Uniforms([0.3, 0.9, 0.1])) == ([1, 2], 1)


def test_worked_example_greedy():
    rows = np.array([[0.0, 1, 3], [2, 1, 0], [0, 5, 1]])
    assert verify_draft(rows, [2, 1], None, GREEDY, [], Uniforms()) == ([2, 0], 1)
    assert verify_draft(rows, [2, 0], None, GREEDY, [], Uniforms()) == ([2, 0, 1], 2)


def test_output_follows_the_target_whatever_the_draft_believes():
    rows = np.array([logits(3, 2, 1), logits(1, 1, 1)])
    q = np.array([1, 2, 3]) / 6
    first = []
    for x, u, r in product(range(3), cells(18), cells(12)):
        for _ in range(int(6 * q[x] + 0.5)):
            first.append(verify_draft(rows, [x], q[None], PLAIN, [], Uniforms([u, r, 0.5]))[0][0])
    assert shares(first) == {0: Fraction(3, 6), 1: Fraction(2, 6), 2: Fraction(1, 6)}


def test_a_certain_draft_is_exact_too():
    rows = np.array([logits(3, 2, 1), logits(1, 1, 1)])
    for x in range(3):
        first = [
            verify_draft(rows, [x], None, PLAIN, [], Uniforms([u, r, 0.5]))[0][0]
            for u, r in product(cells(6), cells(60))
        ]
        assert shares(first) == {0: Fraction(3, 6), 1: Fraction(2, 6), 2: Fraction(1, 6)}


def test_penalties_count_what_this_round_kept():
    rows = np.array([[2.0, 1.6, 0.3]] * 5)
    p = SamplingParams(temperature=0.0, frequency_penalty=1.0)
    assert verify_draft(rows, [0, 1, 0, 1], None, p, [], Uniforms()) == ([0, 1, 0, 1, 2], 4)


def test_shapes():
    rows = np.array([logits(1, 1, 2), logits(1, 1, 2), logits(1, 1, 2)])
    q = np.full((2, 3), 1 / 3)
    for bad_rows, bad_q in [
        (rows[:2], q),
        (np.vstack([rows, rows]), q),
        (rows, q[:1]),
        (rows, np.vstack([q, q])),
        (rows, np.hstack([q, q]) / 2),
    ]:
        with pytest.raises(ValueError):
            verify_draft(bad_rows, [0, 1], bad_q, PLAIN, [], Uniforms([0.1] * 9))


def test_lookup():
    draft = PromptLookupDraft(3)
    assert draft.propose([1, 2, 3, 9, 1, 2], 3, None)[0] == [3, 9, 1]
    assert draft.propose([1, 2, 3, 9, 1, 2], 1, None)[0] == [3]
    assert draft.propose([1, 2, 9, 1, 2, 5, 1, 2], 4, None)[0] == [5, 1, 2]
    assert draft.propose([5, 1, 2, 7, 2, 8, 1, 2], 1, None)[0] == [7]


def rule(context):
    return [1 + (context[-1] == 0) * 5, 2, 1 + 7 * (context[-1] == 1), 3]


def test_ngram_draft():
    draft = NGramDraft(TableCounts(rule))
    assert draft.propose([0], 3, None)[0] == [0, 0, 0]
    assert draft.propose([1], 2, None)[0] == [2, 3]
    ids, probs = draft.propose([1], 4, request_rng(3))
    context = [1]
    for x, row in zip(ids, probs, strict=True):
        assert np.array_equal(row, sampling_distribution(TableCounts(rule).logprobs(context), PLAIN))
        context.append(x)
    drawn = [NGramDraft(TableCounts(rule)).propose([0], 1, Uniforms([u] * 9))[0][0] for u in cells(12)]
    assert shares(drawn) == {0: Fraction(6, 12), 1: Fraction(2, 12), 2: Fraction(1, 12), 3: Fraction(3, 12)}


@pytest.mark.parametrize("seed", range(4))
def test_model_draft_follows_the_context(seed):
    model = BagLM(seed=seed)
    draft = ModelDraft(BagLM(seed=seed))
    for context in ([1, 2, 3], [1, 2, 3, 4, 5, 9], [1, 2, 7], [1, 2, 7, 7, 8, 9], [3], [3, 0, 0, 5, 1, 8]):
        assert draft.propose(context, 4, None)[0] == model.greedy(context, 4)


def test_greedy_is_greedy_and_passes_are_counted():
    target = BagLM(seed=1)
    p = SamplingParams(temperature=0.0, max_tokens=20, frequency_penalty=0.3)
    plain = generate(BagLM(seed=1), LETTERS, "abc", p)
    drafts = [sometimes_right_draft(target), ModelDraft(BagLM(seed=1)), PromptLookupDraft(), ModelDraft(BagLM(seed=2))]
    for draft, k in product(drafts, (0, 1, 4)):
        fast = speculative_generate(target, draft, LETTERS, "abc", p, k=k)
        assert fast.ids == plain.ids and fast.text == plain.text
        assert fast.logprobs == pytest.approx(plain.logprobs, abs=1e-12)
        if k == 0:
            assert fast.stats["target_calls"] == 20 and fast.stats["drafted"] == 0


def test_every_pass_starts_at_the_kept_length():
    target = BagLM(seed=5)
    speculative_generate(
        target,
        sometimes_right_draft(BagLM(seed=5)),
        LETTERS,
        "abc",
        SamplingParams(temperature=0.0, max_tokens=20),
        k=3,
    )
    out = BagLM(seed=5).greedy([0, 1, 2], 20)
    for one in target.passes:
        kept = len(one.context) - len(one.chunk)
        assert one.context[: kept + 1] == [0, 1, 2, *out][: kept + 1]


def test_a_self_draft_takes_few_passes():
    p = SamplingParams(temperature=0.0, max_tokens=20)
    done = speculative_generate(BagLM(), ModelDraft(BagLM()), LETTERS, "abc", p, k=4)
    assert done.stats["acceptance_rate"] == 1 and done.stats["target_calls"] == 4
    assert done.stats["drafted"] == done.stats["accepted"] == 16


def test_end_of_text_stop_strings_and_budget():
    target = BagLM(seed=2)
    out = target.greedy([0, 1], 12)
    p = SamplingParams(temperature=0.0, max_tokens=12)
    draft = ModelDraft(BagLM(seed=2))
    ended = speculative_generate(target, draft, LETTERS, "ab", p, k=5, eos_ids=[out[4]])
    at = out.index(out[4])
    assert ended.ids == out[:at] and ended.finish_reason == "stop"
    stop = "".join(LETTERS.decode([x]) for x in out[2:4])
    cut = speculative_generate(
        target, draft, LETTERS, "ab", SamplingParams(temperature=0.0, max_tokens=12, stop=[stop])
    )
    assert stop not in cut.text and cut.finish_reason == "stop"
    for budget in (1, 2, 3, 5):
        short = SamplingParams(temperature=0.0, max_tokens=budget)
        assert speculative_generate(target, draft, LETTERS, "ab", short, k=8).ids == out[:budget]
    asked = ScriptedDraft([[1, 1, 1, 1]])
    speculative_generate(target, asked, LETTERS, "ab", SamplingParams(temperature=0.0, max_tokens=3), k=8)
    assert asked.asked[0][1] == 2


def test_bad_arguments():
    with pytest.raises(ValueError):
        speculative_generate(BagLM(), PromptLookupDraft(), LETTERS, "ab", GREEDY, k=-1)
