"""L8.6, speculative decoding: the verifier, the three drafts and the loop.

The hand examples come first, then exactness by enumeration, then the drafts, then the loop against plain decoding.
"""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from _toy import (
    LETTERS,
    BagLM,
    ChainDraft,
    Counting,
    PieceTok,
    ScriptedDraft,
    ScriptLM,
    TableCounts,
    TableLM,
    Uniforms,
    as_fractions,
    chi_square_p,
    distribution,
    frequencies,
    logits_of,
    loop_by_hand,
    midpoints,
    oracle_draft,
    sometimes_right_draft,
    wrong_draft,
)

from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams, request_rng, sample, sampling_distribution, token_logprobs
from tinyllm.infer.spec import (
    ContextNGramDraft,
    ModelDraft,
    NGramDraft,
    PromptLookupDraft,
    speculative_generate,
    verify_draft,
)
from tinyllm.lm.ngram import NGramLM
from tinyllm.prob.sampling import sample_categorical

pytestmark = pytest.mark.module("L8.6")

GREEDY = SamplingParams(temperature=0.0)
PLAIN = SamplingParams()


def greedy(**knobs: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, **knobs)


# ------------------------------------------------------------------------------------------------- the hand examples


def test_hand_example() -> None:
    """The worked example fixes the draw order, which another engine must follow to emit the same ids.

    Rejected: two uniforms, and the residual's only id. Kept: the second uniform is drawn and ignored, and the bonus
    takes a third.

    KIND: unit, smoke. Pitfalls: 1, 4.
    """
    rows = np.array([logits_of([2, 1, 1]), logits_of([1, 0, 15])])  # [m + 1, V]
    q = np.array([[0.25, 0.5, 0.25]])

    rng = Uniforms([0.7, 0.4])
    assert verify_draft(rows, [1], q, PLAIN, [], rng) == ([0], 0)
    assert rng.used == 2

    rng = Uniforms([0.3, 0.9, 0.1])
    assert verify_draft(rows, [1], q, PLAIN, [], rng) == ([1, 2], 1)
    assert rng.used == 3


def test_hand_example_greedy() -> None:
    """Greedy keeps a draft while it is the target's argmax, then says the target's own token, and draws nothing.

    KIND: unit, smoke. Pitfalls: 5, 6.
    """
    rows = np.array([[0.0, 1, 3], [2, 1, 0], [0, 5, 1]])
    rng = Uniforms()
    assert verify_draft(rows, [2, 1], None, GREEDY, [], rng) == ([2, 0], 1)
    assert verify_draft(rows, [2, 0], None, GREEDY, [], rng) == ([2, 0, 1], 2)
    assert verify_draft(rows[:1], [], None, GREEDY, [], rng) == ([2], 0)
    assert verify_draft(rows[:2], [0], None, GREEDY, [], rng) == ([2], 0)
    assert rng.used == 0


def test_each_position_draws_accept_then_resample_and_the_bonus_draws_last() -> None:
    """Three positions with uniforms that all differ: any other order or count of draws gives other ids.

    KIND: unit. Pitfalls: 4, 6.
    """
    rows = np.array([logits_of([1, 1, 1, 1])] * 3)  # a deterministic draft is kept when u_accept < 1/4
    rng = Uniforms([0.2, 0.9, 0.1, 0.8, 0.6])
    assert verify_draft(rows, [3, 0], None, PLAIN, [], rng) == ([3, 0, 2], 2)
    assert rng.used == 5
    rng = Uniforms([0.2, 0.9, 0.3, 0.4])
    assert verify_draft(rows, [3, 0], None, PLAIN, [], rng) == ([3, 2], 1)  # the residual is a third each of 1, 2, 3
    assert rng.used == 4
    rng = Uniforms([0.6])
    assert verify_draft(rows[:1], [], None, PLAIN, [], rng) == ([2], 0)
    assert rng.used == 1


def test_greedy_ties_go_to_the_lowest_id() -> None:
    """The target's greedy token is L8.1's: among equal logits the lowest id, for drafts, corrections and the bonus.

    KIND: boundary. Pitfalls: 5.
    """
    rows = np.array([[1.0, 3, 3], [2, 2, 2], [0, 4, 4]])
    assert verify_draft(rows, [2, 0], None, GREEDY, [], Uniforms()) == ([1], 0)
    assert verify_draft(rows, [1, 0], None, GREEDY, [], Uniforms()) == ([1, 0, 1], 2)


def test_greedy_does_not_ask_what_the_draft_believed() -> None:
    """At temperature 0 a draft id is right or wrong; the probabilities that came with it change nothing.

    KIND: unit. Pitfalls: 5.
    """
    rows = np.array([[0.0, 1, 3], [2, 1, 0], [0, 5, 1]])
    q = np.array([[0.9, 0.05, 0.05], [0.0, 1.0, 0.0]])
    assert verify_draft(rows, [2, 1], q, GREEDY, [], Uniforms()) == ([2, 0], 1)


# ------------------------------------------------------------------------------------------ exactness, by enumeration


def test_one_token_output_is_the_target_exactly() -> None:
    """The theorem: whatever q is, the first token out follows p. All outcomes counted, compared as fractions.

    p = (5, 4, 1, 1, 1)/12 and q = (1, 2, 4, 4, 1)/12, so the ratios p/q are multiples of 1/4 or more than 1 and the
    residual is (4, 2, 0, 0, 0)/6: 12 x 4 x 3 midpoints stand for every uniform there is.

    KIND: statistical. Pitfalls: 1, 3.
    """
    p, q = [5, 4, 1, 1, 1], [1, 2, 4, 4, 1]
    rows = np.array([logits_of(p), logits_of([1, 1, 1, 1, 1])])
    first, kept = [], []
    for u_draft, u_accept, u_resample in product(midpoints(12), midpoints(4), midpoints(3)):
        x = sample_categorical(distribution(q), u_draft)
        emitted, n = verify_draft(rows, [x], distribution(q)[None], PLAIN, [], Uniforms([u_accept, u_resample, 0.5]))
        first.append(emitted[0])
        kept.append(n)
    assert frequencies(first) == as_fractions(p)
    assert frequencies(kept) == as_fractions([6, 6])  # alpha = (1 + 2 + 1 + 1 + 1)/12


def test_two_token_draft_is_exact_at_each_position() -> None:
    """Position 2 is judged by the target's row after x_1 and the draft's q there; then it is exact as well.

    KIND: statistical. Pitfalls: 1, 3, 6.
    """
    p1, q1 = [3, 3, 1, 1], [1, 1, 3, 3]
    after = {x: ([3, 3, 1, 1][-x:] + [3, 3, 1, 1][:-x], [1, 3, 3, 1] if x % 2 else [3, 1, 1, 3]) for x in range(4)}
    outcomes = []
    for u1, u2 in product(midpoints(8), repeat=2):
        x1 = sample_categorical(distribution(q1), u1)
        p2, q2 = after[x1]
        x2 = sample_categorical(distribution(q2), u2)
        rows = np.array([logits_of(p1), logits_of(p2), logits_of([1, 1, 1, 1])])
        probs = np.array([distribution(q1), distribution(q2)])  # [m, V]
        for a1, r1, a2, r2 in product(midpoints(3), midpoints(2), midpoints(3), midpoints(2)):
            # A rejection at position 1 leaves a2 and r2 undrawn: they split that outcome into equal parts.
            emitted, n = verify_draft(rows, [x1, x2], probs, PLAIN, [], Uniforms([a1, r1, a2, r2, 0.5]))
            assert len(emitted) == n + 1
            outcomes.append((n, emitted))
    assert frequencies(e[0] for _, e in outcomes) == as_fractions(p1)
    for y1 in range(4):
        seconds = [e[1] for n, e in outcomes if n >= 1 and e[0] == y1]
        assert frequencies(seconds) == as_fractions(after[y1][0]), f"after a kept {y1}"


def test_the_bonus_follows_the_row_after_the_last_draft() -> None:
    """After m kept drafts the extra token is an ordinary draw from row m.

    KIND: statistical. Pitfalls: 6.
    """
    rows = np.array([logits_of([7, 1, 0]), logits_of([0, 7, 1]), logits_of([1, 2, 5])])
    bonus = []
    for u in midpoints(8):
        emitted, n = verify_draft(rows, [0, 1], None, PLAIN, [], Uniforms([0.1, 0.9, 0.1, 0.9, u]))
        assert (emitted[:2], n) == ([0, 1], 2)
        bonus.append(emitted[2])
    assert frequencies(bonus) == as_fractions([1, 2, 5])


def test_deterministic_draft_is_exact() -> None:
    """A draft that always says x is a draw from the one-hot at x: kept with probability p(x), replaced from the rest.

    Every x, also one that the target never says.

    KIND: statistical. Pitfalls: 2.
    """
    p = [3, 2, 1, 0]
    rows = np.array([logits_of(p), logits_of([1, 1, 1, 1])])
    for x in range(4):
        first, kept = [], []
        for u_accept, u_resample in product(midpoints(6), midpoints(60)):  # residuals in 3rds, 4ths, 5ths or 6ths
            emitted, n = verify_draft(rows, [x], None, PLAIN, [], Uniforms([u_accept, u_resample, 0.5]))
            first.append(emitted[0])
            kept.append(n)
        assert frequencies(first) == as_fractions(p), f"draft {x}"
        assert frequencies(kept) == as_fractions([6 - p[x], p[x]]), f"draft {x}"


def test_a_certain_target_keeps_the_draft_or_says_its_own() -> None:
    """With p one-hot nothing is left for the residual; the right id is always kept and a wrong one always replaced.

    KIND: boundary. Pitfalls: 2, 3.
    """
    p = SamplingParams(top_k=1)
    rows = np.array([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]])
    last = math.nextafter(1.0, 0.0)
    for u_accept, u_resample in product([0.0, 0.5, last], repeat=2):
        uniforms = [u_accept, u_resample, 0.5]
        assert verify_draft(rows, [1], None, p, [], Uniforms(uniforms)) == ([1, 0], 1)
        assert verify_draft(rows, [2], None, p, [], Uniforms(uniforms)) == ([1], 0)
        q = np.array([[0.0, 0.5, 0.5]])
        assert verify_draft(rows, [2], q, p, [], Uniforms(uniforms)) == ([1], 0)


def test_a_draft_equal_to_the_target_is_always_kept() -> None:
    """With q = p the ratio is 1 and every u in [0, 1) is below it.

    KIND: boundary. Pitfalls: 1.
    """
    rows = np.array([[0.3, -1.2, 0.7], [1.0, 0.0, 0.0]])
    q = sampling_distribution(rows[0], PLAIN)[None]
    for x in range(3):
        emitted, n = verify_draft(rows, [x], q, PLAIN, [], Uniforms([math.nextafter(1.0, 0.0), 0.5, 0.1]))
        assert (emitted, n) == ([x, 0], 1)


def test_penalties_see_the_accepted_drafts() -> None:
    """A draft kept in this round is history for the next position of the same round, as in plain decoding.

    Greedy: a second copy of a just-kept token is refused. Sampled: presence ln 2 halves the weight of what was kept,
    frequency ln 2 halves it once per copy, and the enumerated outcomes follow those weights, the bonus too.

    KIND: unit. Pitfalls: 7.
    """
    rows = np.array([[2.0, 1.6, 0.3]] * 3)
    assert verify_draft(rows, [0, 0], None, greedy(repetition_penalty=2.0), [], Uniforms()) == ([0, 1], 1)
    assert verify_draft(rows, [0, 1], None, greedy(repetition_penalty=2.0), [], Uniforms()) == ([0, 1, 0], 2)
    assert verify_draft(rows, [0, 0], None, greedy(repetition_penalty=2.0), [1], Uniforms()) == ([0, 0, 0], 2)

    rows = np.array([logits_of([4, 3, 1])] * 3)
    presence, frequency = SamplingParams(presence_penalty=math.log(2)), SamplingParams(frequency_penalty=math.log(2))
    second = []
    for u_accept, u_resample in product(midpoints(6), midpoints(4)):
        emitted, _ = verify_draft(rows, [0, 0], None, presence, [], Uniforms([0.1, 0.9, u_accept, u_resample, 0.5]))
        second.append(emitted[1])
    assert frequencies(second) == as_fractions([2, 3, 1])
    bonus = [
        verify_draft(rows, [0, 0], None, frequency, [], Uniforms([0.1, 0.9] * 2 + [u]))[0][2] for u in midpoints(5)
    ]
    assert frequencies(bonus) == as_fractions([1, 3, 1])


def test_penalties_see_the_prompt_and_the_history() -> None:
    """Repetition counts the prompt too, presence and frequency only what was generated: at every row of the round.

    KIND: unit. Pitfalls: 7.
    """
    rows = np.array([[2.0, 1.6, 0.3]] * 2)
    repetition, presence = greedy(repetition_penalty=2.0), greedy(presence_penalty=1.0)
    assert verify_draft(rows, [1], None, repetition, [], Uniforms(), prompt=[0]) == ([1, 0], 1)
    assert verify_draft(rows, [0], None, presence, [], Uniforms(), prompt=[0]) == ([0, 1], 1)
    assert verify_draft(rows, [0], None, presence, [0], Uniforms(), prompt=[0]) == ([1], 0)


def test_verify_leaves_its_inputs_alone() -> None:
    """Logits, drafts, their probabilities and the history belong to the caller.

    KIND: unit. Pitfalls: 7.
    """
    p = SamplingParams(temperature=0.7, top_k=2, repetition_penalty=1.3, presence_penalty=0.2, frequency_penalty=0.1)
    for dtype in (np.float32, np.float64):
        rows = np.array([[2.0, 1.6, 0.3]] * 3, dtype=dtype)
        ids, q, history, prompt = [0, 1], np.array([[0.4, 0.4, 0.2]] * 2), [2, 2], [1]
        before = rows.copy(), list(ids), q.copy(), list(history), list(prompt)
        rows.flags.writeable = q.flags.writeable = False
        verify_draft(rows, ids, q, p, history, Uniforms([0.3, 0.5] * 2 + [0.5]), prompt)
        assert np.array_equal(rows, before[0]) and np.array_equal(q, before[2])
        assert (ids, history, prompt) == (before[1], before[3], before[4])


def test_verify_checks_shapes() -> None:
    """One row too few or too many, or a draft distribution for another count or vocabulary, is the caller's error.

    KIND: boundary. Pitfalls: 6.
    """
    rows = np.array([[0.0, 1, 3], [2, 1, 0], [0, 5, 1]])
    q = np.full((2, 3), 1 / 3)
    uniforms = [0.5] * 8
    for p in (GREEDY, PLAIN):
        for bad in (rows[:2], np.vstack([rows, rows[:1]]), rows[:1], rows[0], rows[None]):
            with pytest.raises(ValueError):
                verify_draft(bad, [2, 0], None, p, [], Uniforms(uniforms))
    wide = np.hstack([q, np.zeros((2, 1))])
    for bad in (q[:1], np.vstack([q, q[:1]]), wide, np.full((2, 2), 0.5), q[0]):
        with pytest.raises(ValueError):
            verify_draft(rows, [2, 0], bad, PLAIN, [], Uniforms(uniforms))
    verify_draft(rows, [2, 0], q, PLAIN, [], Uniforms(uniforms))  # and the right shapes are none


# --------------------------------------------------------------------------------------------------------- the drafts


def test_prompt_lookup_hand_example() -> None:
    """Longest n-gram first, most recent occurrence, at most k ids: the rule another engine ports.

    KIND: unit, smoke. Pitfalls: 8.
    """
    draft = PromptLookupDraft(max_ngram=3)
    assert draft.propose([1, 2, 3, 9, 1, 2], 3, None) == ([3, 9, 1], None)
    assert draft.propose([1, 2, 3, 9, 1, 2], 2, None) == ([3, 9], None)
    assert draft.propose([1, 2, 3, 9, 1, 2], 0, None)[0] == []
    # Most recent: 1 2 was followed by 3 first and by 4 later.
    assert draft.propose([1, 2, 3, 0, 1, 2, 4, 0, 5, 1, 2], 2, None)[0] == [4, 0]
    # Longest first: 8 1 2 occurred once and long ago; the shorter 1 2 and 2 occurred since.
    assert draft.propose([8, 1, 2, 3, 0, 1, 2, 4, 2, 5, 8, 1, 2], 1, None)[0] == [3]
    # Nothing to copy: a first token, a token never seen before, no context at all.
    assert draft.propose([4], 3, None)[0] == []
    assert draft.propose([1, 2, 3, 4], 3, None)[0] == []
    assert draft.propose([], 3, None)[0] == []
    # The copy may run into the suffix itself, and stops where the context ends.
    assert PromptLookupDraft(max_ngram=1).propose([5, 6, 5], 9, None)[0] == [6, 5]


def test_prompt_lookup_heeds_its_ngram_bounds() -> None:
    """min_ngram keeps short accidental matches out; the bounds themselves must make sense.

    KIND: boundary. Pitfalls: 8.
    """
    ctx = [1, 2, 3, 9, 7, 2]
    assert PromptLookupDraft(3, 1).propose(ctx, 2, None)[0] == [3, 9]
    assert PromptLookupDraft(3, 2).propose(ctx, 2, None)[0] == []
    assert PromptLookupDraft(1, 1).propose([8, 1, 2, 3, 0, 2, 4, 8, 1, 2], 1, None)[0] == [4]
    for bad in ((0, 1), (3, 0), (2, 3), (-1, -1)):
        with pytest.raises(ValueError):
            PromptLookupDraft(*bad)


def test_prompt_lookup_draws_nothing() -> None:
    """It is deterministic: with a generator at hand it still gives no distribution and takes no draw.

    KIND: unit. Pitfalls: 4, 8.
    """
    rng = Uniforms()
    assert PromptLookupDraft().propose([1, 2, 3, 1, 2], 2, rng) == ([3, 1], None)
    assert rng.used == 0


def test_prompt_lookup_follows_a_context_that_changes() -> None:
    """One draft object, contexts that grow, shrink and change in the middle: always what a new object would say.

    KIND: differential. Pitfalls: 8.
    """
    rng = np.random.default_rng(8)
    draft = PromptLookupDraft(3, 1)
    ctx: list[int] = []
    for _ in range(400):
        event = rng.integers(6)
        if event == 0:
            ctx = ctx[: rng.integers(len(ctx) + 1)]
        elif event == 1 and ctx:
            ctx = list(ctx)
            ctx[rng.integers(len(ctx))] = int(rng.integers(3))  # same length, same ends, another middle
        else:
            ctx = ctx + [int(i) for i in rng.integers(3, size=rng.integers(1, 6))]
        k = int(rng.integers(0, 6))
        want: list[int] = []
        for n in (3, 2, 1):
            starts = [i for i in range(len(ctx) - n) if ctx[i : i + n] == ctx[len(ctx) - n :]]
            if starts and not want:
                want = ctx[starts[-1] + n : starts[-1] + n + k]
        assert draft.propose(ctx, k, None) == (want, None)


def test_prompt_lookup_sees_a_context_changed_in_place() -> None:
    """A caller may reuse its list: what counts is what it holds now, not what it held at the last call.

    KIND: boundary. Pitfalls: 8.
    """
    draft = PromptLookupDraft(2, 1)
    ctx = [1, 2, 3, 9, 1, 2]
    assert draft.propose(ctx, 1, None)[0] == [3]
    ctx[2] = 7
    assert draft.propose(ctx, 1, None)[0] == [7]
    ctx += [5, 1]
    assert draft.propose(ctx, 1, None)[0] == [2]
    assert draft.propose(tuple(ctx), 1, None)[0] == [2]


def test_context_ngram_hand_example() -> None:
    """The request's own counts: the most frequent continuation, ties to the lowest id, drafted ids counted as well.

    KIND: unit, smoke.
    """
    draft = ContextNGramDraft(max_ngram=3)
    # 1 2 was followed by 3 twice and by 4 once; 2 3 and 3 1 by one id each; then the drafted 1 2 counts too.
    assert draft.propose([1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2], 4, None) == ([3, 1, 2, 3], None)
    # 5 1 is new, so the last id alone decides: 3 and 2 followed it once each.
    assert draft.propose([1, 3, 1, 2, 5, 1], 1, None)[0] == [2]
    # Two ids weigh more than one: after 7 1 came 9, though after 1 alone 2 came more often.
    assert draft.propose([7, 1, 9, 1, 2, 1, 2, 7, 1], 1, None)[0] == [9]
    assert draft.propose([1, 2, 3], 4, None)[0] == []
    assert draft.propose([1, 2, 1], 0, None)[0] == []
    rng = Uniforms()
    assert draft.propose([6, 6], 3, rng) == ([6, 6, 6], None)
    assert rng.used == 0


def test_ngram_draft_follows_the_model() -> None:
    """Greedy is the argmax chain, each id chosen with the earlier ones in the context; sampled rows are the model's.

    KIND: unit. Pitfalls: 1.
    """
    lm = NGramLM(3, vocab_size=6)
    lm.fit([[0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 5], [2, 3, 0, 1, 2, 3, 5]])
    draft = NGramDraft(lm)
    for ctx in ([0], [0, 1], [4, 2, 3], [5, 5, 5]):
        ids, probs = draft.propose(ctx, 4, None)
        assert probs is None
        assert ids == [int(np.argmax(lm.logprobs(ctx + ids[:i]))) for i in range(4)]

        ids, rows = draft.propose(ctx, 4, request_rng(7))
        assert rows is not None and rows.shape == (4, 6) and rows.dtype == np.float64
        same = request_rng(7)
        for i in range(4):
            logprobs = lm.logprobs(ctx + ids[:i])
            assert np.array_equal(rows[i], sampling_distribution(logprobs, PLAIN))
            np.testing.assert_allclose(rows[i], np.exp(logprobs), rtol=1e-12)
            assert ids[i] == sample(logprobs, PLAIN, [], same)[0]
    assert draft.propose([0, 1], 0, None)[0] == []


def test_ngram_draft_extends_its_context() -> None:
    """The second guess comes after the first one: a chain that changes at each step shows it.

    KIND: unit.
    """
    successor = NGramDraft(TableCounts(lambda ctx: np.eye(5)[(ctx[-1] + 1) % 5] + 0.01))
    assert successor.propose([3], 4, None)[0] == [4, 0, 1, 2]
    ids, rows = successor.propose([3], 4, Uniforms([0.5] * 4))
    assert rows is not None
    assert ids == [4, 0, 1, 2] == [int(np.argmax(row)) for row in rows]


def test_ngram_draft_ties_go_to_the_lowest_id() -> None:
    """Another engine must guess the same id where two are equally likely.

    KIND: boundary.
    """
    draft = NGramDraft(TableCounts(lambda ctx: [1, 3, 3, 2]))
    assert draft.propose([0], 2, None)[0] == [1, 1]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_model_draft_reports_what_it_drew_from(temperature: float) -> None:
    """Enumerated: the ids come out exactly as often as the reported row says, at the draft's own temperature.

    KIND: statistical. Pitfalls: 1.
    """
    weights = [3, 1, 2, 0]
    drawn = [w**2 for w in weights] if temperature == 0.5 else weights
    draft = ModelDraft(TableLM({}, logits_of(weights).tolist()), temperature=temperature)
    firsts, seconds = [], []
    n = sum(drawn)
    for u1, u2 in product(midpoints(n), repeat=2):
        ids, rows = draft.propose([0], 2, Uniforms([u1, u2]))
        assert rows is not None and rows.shape == (2, 4) and rows.dtype == np.float64
        np.testing.assert_allclose(rows, [distribution(drawn)] * 2, rtol=1e-12)
        firsts.append(ids[0])
        seconds.append(ids[1])
    assert frequencies(firsts) == frequencies(seconds) == as_fractions(drawn)


def test_model_draft_syncs_its_cache() -> None:
    """A context that grows, loses its tail or changes altogether: the guesses are those of a new draft each time.

    The toy asserts that its cache holds exactly the positions before each chunk, and reads its context from there.

    KIND: unit. Pitfalls: 9.
    """
    draft = ModelDraft(BagLM(seed=3, max_len=40))
    fresh = BagLM(seed=3)
    base = [1, 2, 3, 4]
    guess = fresh.greedy(base, 4)
    contexts = [
        base,
        [*base, *guess, 7],  # all kept, and a bonus
        [*base, *guess[:2], 8],  # two kept, then another token
        [*base, 9],  # none kept
        [*base, 9],  # the same again: nothing new, and still the last id must be fed
        base,  # shorter than what the cache holds
        [5, 6],  # nothing in common
        [1, 2, 0, 4],
        list(range(10)) * 3,
    ]
    for ctx in contexts:
        for k in (4, 1):
            assert draft.propose(ctx, k, None) == (fresh.greedy(ctx, k), None), f"after {ctx}"
    for ctx in contexts:
        ids, rows = draft.propose(ctx, 3, request_rng(5))
        same = request_rng(5)
        assert rows is not None
        for i in range(3):
            logits = fresh.row(ctx + ids[:i])
            assert np.array_equal(rows[i], sampling_distribution(logits, PLAIN))
            assert ids[i] == sample(logits, PLAIN, [], same)[0]


def test_model_draft_feeds_no_more_than_it_must() -> None:
    """What both contexts share is kept: only the rest is fed, and at least the last id.

    KIND: property. Pitfalls: 9.
    """
    model = BagLM(seed=3)
    draft = ModelDraft(model)

    def fed(ctx: list[int], k: int) -> list[tuple[int, int]]:
        before = len(model.passes)
        draft.propose(ctx, k, None)
        return [(p.start + i, token) for p in model.passes[before:] for i, token in enumerate(p.chunk)]

    g = BagLM(seed=3).greedy([1, 2], 9)
    assert fed([1, 2], 3) == [(0, 1), (1, 2), (2, g[0]), (3, g[1])]
    assert fed([1, 2, *g[:4]], 1) == [(4, g[2]), (5, g[3])]
    assert fed([1, 2, *g[:4]], 1) == [(5, g[3])]
    other = (g[1] + 1) % 11
    assert fed([1, 2, g[0], other], 1) == [(3, other)]
    assert fed([1, 2], 1) == [(1, 2)]


def test_model_draft_stays_within_its_model() -> None:
    """A draft model shorter than the target proposes what fits and then nothing; it never overflows its cache.

    KIND: boundary. Pitfalls: 9.
    """
    for n in range(1, 13):
        draft = ModelDraft(BagLM(seed=3, max_len=8))
        ids, _ = draft.propose([1] * n, 4, None)
        assert len(ids) <= min(4, max(0, 8 - n))
        assert len(ids) == 4 or n > 4
        assert ids or n > 6
        assert ids == BagLM(seed=3).greedy([1] * n, len(ids))
    target = BagLM(seed=3, max_len=40)
    plain = generate(BagLM(seed=3, max_len=40), LETTERS_11, "abc", greedy(max_tokens=30))
    gen = speculative_generate(
        target, ModelDraft(BagLM(seed=3, max_len=8)), LETTERS_11, "abc", greedy(max_tokens=30), k=3
    )
    assert gen.ids == plain.ids


def test_drafts_refuse_bad_arguments() -> None:
    """A temperature of 0 or less and an empty context are caller errors, not odd proposals.

    KIND: boundary.
    """
    for temperature in (0.0, -1.0):
        with pytest.raises(ValueError):
            ModelDraft(BagLM(), temperature=temperature)
    with pytest.raises(ValueError):
        ModelDraft(BagLM()).propose([], 3, None)


# ----------------------------------------------------------------------------------------------------------- the loop

LETTERS_11 = PieceTok("abcdefghijk")  # BagLM's vocabulary of 11


def ngram_for(text: str) -> NGramDraft:
    lm = NGramLM(3, vocab_size=11)
    lm.fit([LETTERS_11.encode(text)])
    return NGramDraft(lm)


# After this prompt the BagLM with seed 0 says kkfhcckkkgccckgckgcdjhdjhcbbbbbbbbbbcbbk; the settings cut that short in
# every way there is.
PROMPT = "abcjhijb"
SETTINGS: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "as it is": ({"max_tokens": 40}, (), 64),
    "one token": ({"max_tokens": 1}, (), 64),
    "two tokens": ({"max_tokens": 2}, (), 64),
    "an odd budget": ({"max_tokens": 7}, (), 64),
    "the model's end": ({"max_tokens": 40}, (), len(PROMPT) + 13),
    "one position left": ({"max_tokens": 40}, (), len(PROMPT) + 1),
    "no position left": ({"max_tokens": 40}, (), len(PROMPT)),
    "EOS": ({"max_tokens": 24}, (6,), 64),
    "several EOS": ({"max_tokens": 24}, (9, 4, 3), 64),
    "EOS at once": ({"max_tokens": 24}, (10,), 64),
    "an EOS that is no id": ({"max_tokens": 12}, (4000,), 64),
    "a stop string": ({"max_tokens": 24, "stop": ["ckgc"]}, (), 64),
    "several stop strings": ({"max_tokens": 24, "stop": ["", "zz", "kgcd", "gck"]}, (), 64),
    "a stop that nearly comes": ({"max_tokens": 12, "stop": ["hcz", "cckkkgz"]}, (), 64),
    "EOS, stop and budget": ({"max_tokens": 7, "stop": ["hcc"]}, (6,), 64),
    "repetition": ({"max_tokens": 20, "repetition_penalty": 1.4}, (), 64),
    "presence and frequency": ({"max_tokens": 20, "presence_penalty": 0.6, "frequency_penalty": 0.4}, (), 64),
    "filters that greedy ignores": ({"max_tokens": 12, "top_k": 2, "top_p": 0.5, "min_p": 0.3}, (), 64),
}


def target_for(max_len: int = 64) -> BagLM:
    return BagLM(vocab_size=11, seed=0, max_len=max_len)


def forgetful(max_len: int = 64) -> BagLM:
    """The target with a weaker memory of the tokens before the last, so it is right now and then."""
    model = target_for(max_len)
    model.weight = 0.6 * model.weight
    return model


def make_draft(name: str, max_len: int = 64) -> Any:
    target = target_for(max_len)
    if name == "ngram":
        text = LETTERS_11.decode(target.greedy(LETTERS_11.encode(PROMPT), min(25, max_len)))
        return ngram_for(text)
    return {
        "prompt lookup": PromptLookupDraft,
        "context ngram": ContextNGramDraft,
        "self": lambda: ModelDraft(target),
        "another model": lambda: ModelDraft(forgetful(max_len)),
        "adversarial": lambda: wrong_draft(target),
        "sometimes right": lambda: sometimes_right_draft(target),
    }[name]()


DRAFTS = ["prompt lookup", "ngram", "self", "adversarial", "sometimes right", "another model", "context ngram"]


def assert_same_output(got: Any, want: Any) -> None:
    """Ids, text, logprobs to the bit, and the reason for the end."""
    assert got.ids == want.ids
    assert got.text == want.text
    assert got.logprobs == want.logprobs
    assert got.finish_reason == want.finish_reason


@pytest.mark.parametrize("name", DRAFTS)
def test_speculative_greedy_equals_greedy(name: str) -> None:
    """The milestone's claim: at temperature 0 the draft changes the time it takes and nothing else.

    Every draft, k from 0 to 8, and settings in which EOS, a stop string, the budget or the model's length ends it.
    The toy's rows do not depend on how many are computed at once, so everything is compared with ==.

    KIND: differential. Pitfalls: 5, 6, 7, 10, 11, 12.
    """
    for setting, (knobs, eos_ids, max_len) in SETTINGS.items():
        p = greedy(**knobs)
        plain = generate(target_for(max_len), LETTERS_11, PROMPT, p, eos_ids=eos_ids)
        if setting == "as it is":
            assert plain.ids == target_for().greedy(LETTERS_11.encode(PROMPT), 40)
        for k in range(9):
            target = target_for(max_len)
            gen = speculative_generate(target, make_draft(name, max_len), LETTERS_11, PROMPT, p, k=k, eos_ids=eos_ids)
            try:
                assert_same_output(gen, plain)
            except AssertionError as error:
                raise AssertionError(f"{setting}, k = {k}") from error
            assert len(target.passes) <= max(1, len(plain.ids) + 1), "never more passes than plain decoding"


def test_the_greedy_settings_end_in_every_way() -> None:
    """The test above says nothing unless its settings really end by EOS, stop string, budget and length.

    KIND: unit.
    """
    ends = {}
    for setting, (knobs, eos_ids, max_len) in SETTINGS.items():
        gen = generate(target_for(max_len), LETTERS_11, PROMPT, greedy(**knobs), eos_ids=eos_ids)
        ends[setting] = (gen.finish_reason, len(gen.ids))
    assert ends["the model's end"] == ("length", 13)
    assert ends["one position left"] == ("length", 1)
    assert ends["no position left"] == ("length", 0)
    assert ends["EOS at once"] == ("stop", 0)
    for setting in ("EOS", "several EOS", "a stop string", "several stop strings", "EOS, stop and budget"):
        assert ends[setting][0] == "stop" and ends[setting][1] > 1, setting
    for setting in ("as it is", "an odd budget", "a stop that nearly comes", "repetition", "presence and frequency"):
        assert ends[setting][0] == "length", setting
    for name in DRAFTS:
        gen = speculative_generate(target_for(), make_draft(name), LETTERS_11, PROMPT, greedy(max_tokens=40), k=3)
        full = any(r.draft and r.accepted == len(r.draft) for r in gen.rounds)
        rejected = any(r.accepted < len(r.draft) for r in gen.rounds)
        assert full or name == "adversarial", f"{name} is never wholly right"
        assert rejected or name == "self", f"{name} is never wrong"


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_cache_may_hold_another_type(dtype: Any) -> None:
    """kv_dtype reaches the target's cache, and the output is again plain decoding's with the same cache.

    KIND: differential. Pitfalls: 10.
    """
    p = greedy(max_tokens=20)
    plain = generate(target_for(), LETTERS_11, PROMPT, p, kv_dtype=dtype)
    gen = speculative_generate(target_for(), make_draft("sometimes right"), LETTERS_11, PROMPT, p, k=4, kv_dtype=dtype)
    assert_same_output(gen, plain)


@pytest.mark.parametrize("name", ["sometimes right", "adversarial", "self", "prompt lookup"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rejected_drafts_are_rolled_back(name: str, temperature: float) -> None:
    """Each target pass begins at the kept length with the pending token, then the drafts, and sees no rejected one.

    KIND: property. Pitfalls: 10.
    """
    target = target_for()
    p = SamplingParams(temperature=temperature, max_tokens=30, seed=3)
    gen = speculative_generate(target, make_draft(name), LETTERS_11, PROMPT, p, k=4)
    out: list[int] = []
    prompt = LETTERS_11.encode(PROMPT)
    committed, pending = 0, prompt
    assert len(target.passes) == len(gen.rounds)
    for this, rnd in zip(target.passes, gen.rounds, strict=True):
        assert this.start == committed
        assert this.chunk == [*pending, *rnd.draft]
        assert this.context == [*prompt, *out, *rnd.draft]
        out += [*rnd.draft[: rnd.accepted], rnd.token]
        committed += len(pending) + rnd.accepted
        pending = [rnd.token]
    assert out == gen.ids


def test_stats_and_one_pass_per_round() -> None:
    """The gain is real and counted: a perfect draft of 4 makes 40 tokens in 8 passes, no draft makes them in 40.

    KIND: unit. Pitfalls: 6, 10.
    """
    p = greedy(max_tokens=40)
    target = target_for()
    gen = speculative_generate(target, ModelDraft(target_for()), LETTERS_11, PROMPT, p, k=4)
    assert len(gen.ids) == 40 and len(target.passes) == 8
    want = {"drafted": 32, "accepted": 32, "acceptance_rate": 1, "target_calls": 8, "completion_tokens": 40}
    assert {name: gen.stats[name] for name in want} == want
    assert gen.stats["prompt_tokens"] == len(PROMPT)

    target = target_for()
    gen = speculative_generate(target, ModelDraft(target_for()), LETTERS_11, PROMPT, p, k=0)
    assert len(gen.ids) == 40 and len(target.passes) == 40
    want = {"drafted": 0, "accepted": 0, "acceptance_rate": 0, "target_calls": 40, "completion_tokens": 40}
    assert {name: gen.stats[name] for name in want} == want

    # Wrong every third time: what was proposed and what was kept are counted apart, and apart from what was emitted.
    gen = speculative_generate(target_for(), make_draft("sometimes right"), LETTERS_11, PROMPT, p, k=4)
    assert gen.stats["drafted"] == sum(len(r.draft) for r in gen.rounds) != gen.stats["completion_tokens"]
    assert gen.stats["accepted"] == sum(r.accepted for r in gen.rounds)
    assert 0 < gen.stats["acceptance_rate"] == gen.stats["accepted"] / gen.stats["drafted"] < 1
    assert gen.stats["target_calls"] == len(gen.rounds)
    assert all(type(value) is float for value in gen.stats.values())
    assert gen.stats["tokens_per_s"] > 0 and gen.stats["mean_entropy"] >= 0
    assert set(gen.timings) >= {"prefill_s", "decode_s", "total_s"}
    assert all(seconds >= 0 for seconds in gen.timings.values())


def test_rounds_tell_what_happened() -> None:
    """Every plot reads the rounds: what was proposed, how much was kept, the extra token and where it came from.

    KIND: unit, smoke.
    """
    prompt = [0]
    target = ScriptLM(prompt, [1, 2, 3, 4, 5, 6, 7], vocab_size=10)
    draft = ScriptedDraft([[1, 2], [9, 9], [], [6]])
    seen: list[Any] = []
    gen = speculative_generate(target, draft, LETTERS, "a", greedy(max_tokens=7), k=2, on_round=seen.append)
    assert gen.ids == [1, 2, 3, 4, 5, 6, 7]
    assert [(tuple(r.draft), r.accepted, r.token, r.kind) for r in gen.rounds] == [
        ((1, 2), 2, 3, "bonus"),
        ((9, 9), 0, 4, "correction"),
        ((), 0, 5, "bonus"),
        ((6,), 1, 7, "bonus"),
    ]
    assert seen == gen.rounds


def test_the_draft_is_asked_for_no_more_than_can_be_used() -> None:
    """At most k, what the budget leaves after the extra token, and what the model has room for; at 0 it is not asked.

    KIND: boundary. Pitfalls: 12.
    """

    def asked(max_tokens: int, max_len: int, k: int) -> list[tuple[int, int]]:
        target = BagLM(vocab_size=11, seed=0, max_len=max_len)
        draft = ScriptedDraft([])
        speculative_generate(target, draft, LETTERS_11, "abc", greedy(max_tokens=max_tokens), k=k)
        return [(len(ctx) - 3, k) for ctx, k in draft.asked]

    assert asked(6, 64, 3) == [(0, 3), (1, 3), (2, 3), (3, 2), (4, 1)]
    assert asked(64, 3 + 5, 3) == [(0, 3), (1, 3), (2, 2), (3, 1)]
    assert asked(1, 64, 3) == []
    assert asked(6, 64, 0) == []
    assert asked(6, 3, 3) == []


def test_the_draft_sees_the_whole_context_and_the_request_s_generator() -> None:
    """Prompt and output so far; at temperature 0 no generator, else one for the whole request.

    KIND: unit. Pitfalls: 4.
    """
    seen: list[tuple[list[int], Any]] = []

    class Watching:
        def propose(self, ctx: Any, k: int, rng: Any) -> tuple[list[int], None]:
            seen.append((list(ctx), rng))
            return [], None

    for temperature in (0.0, 1.0):
        seen.clear()
        p = SamplingParams(temperature=temperature, max_tokens=5, seed=1)
        gen = speculative_generate(target_for(), Watching(), LETTERS_11, "abc", p, k=2)
        assert [ctx for ctx, _ in seen] == [[0, 1, 2, *gen.ids[:i]] for i in range(4)]
        assert all(rng is seen[0][1] for _, rng in seen)
        assert (seen[0][1] is None) == (temperature == 0.0)


@pytest.mark.parametrize("name", ["another model", "ngram", "prompt lookup", "sometimes right"])
def test_the_sampled_loop_equals_the_loop_by_hand(name: str) -> None:
    """One stream serves draft and verifier in program order: draft, then two uniforms a position, then the bonus.

    The hand loop has no cache and computes each row afresh; the same seed must give the same ids.

    KIND: differential. Pitfalls: 4, 6, 7, 9, 10.
    """
    prompt = LETTERS_11.encode(PROMPT)
    for seed, k in product(range(4), (0, 1, 2, 5)):
        p = SamplingParams(max_tokens=24, seed=seed, temperature=1.3, top_p=0.95, frequency_penalty=0.3)
        want = loop_by_hand(verify_draft, target_for(), make_draft(name), prompt, p, k, request_rng(seed))
        gen = speculative_generate(target_for(), make_draft(name), LETTERS_11, PROMPT, p, k=k)
        assert gen.ids == want, f"seed {seed}, k = {k}"


def test_without_drafts_the_sampled_loop_is_plain_sampling() -> None:
    """With k = 0, or a draft that never has a guess, the stream moves as in plain decoding: the same ids.

    KIND: differential. Pitfalls: 4.
    """
    for seed in range(5):
        p = SamplingParams(max_tokens=20, seed=seed, temperature=1.5)
        plain = generate(target_for(), LETTERS_11, PROMPT, p)
        for draft, k in ((make_draft("self"), 0), (ScriptedDraft([]), 4)):
            gen = speculative_generate(target_for(), draft, LETTERS_11, PROMPT, p, k=k)
            assert_same_output(gen, plain)
            assert gen.stats["mean_entropy"] == pytest.approx(plain.stats["mean_entropy"], rel=1e-12)


@pytest.mark.parametrize("name", ["model", "ngram", "deterministic"])
def test_sampled_speculation_matches_the_target_distribution(name: str) -> None:
    """End to end, 400 seeds: the three-token outputs come as often as the target's own probabilities say.

    KIND: statistical. Pitfalls: 1, 2, 3, 6, 10.
    """
    prompt = [0, 1]

    def new_target() -> BagLM:
        return BagLM(vocab_size=3, seed=6, sharpness=0.2)

    drafts: dict[str, Any] = {
        "model": lambda: ModelDraft(BagLM(vocab_size=3, seed=9, sharpness=0.6)),
        "ngram": lambda: NGramDraft(TableCounts(lambda ctx: [[1, 5, 2], [4, 1, 1], [1, 1, 6]][ctx[-1]])),
        "deterministic": lambda: ChainDraft(lambda ctx: (ctx[-1] + 1) % 3),
    }
    target = new_target()
    expected = {}
    for ids in product(range(3), repeat=3):
        chance = 1.0
        for i, x in enumerate(ids):
            chance *= float(sampling_distribution(target.row([*prompt, *ids[:i]]), PLAIN)[x])
        expected[ids] = 400 * chance
    assert min(expected.values()) > 3, "too few expected in a cell for a chi-square test"
    counts = dict.fromkeys(expected, 0)
    for seed in range(400):
        p = SamplingParams(max_tokens=3, seed=seed)
        counts[tuple(speculative_generate(new_target(), drafts[name](), LETTERS, "ab", p, k=2).ids)] += 1
    statistic = sum((counts[ids] - expected[ids]) ** 2 / expected[ids] for ids in expected)
    assert chi_square_p(statistic, degrees=26) > 1e-3


def test_eos_stop_and_budget() -> None:
    """EOS ends without being emitted, a stop string cuts the text, and no round goes past the budget.

    The drafts are all right, so each end falls inside a round that goes on behind it.

    KIND: boundary. Pitfalls: 11, 12.
    """
    script = [1, 2, 3, 4, 5, 6, 7, 8]  # b c d e f g h i

    def run(p: SamplingParams, k: int, eos_ids: tuple[int, ...] = ()) -> Any:
        target = ScriptLM([0], script, vocab_size=26)
        return speculative_generate(target, oracle_draft(target), LETTERS, "a", p, k=k, eos_ids=eos_ids)

    for k in range(9):
        gen = run(greedy(max_tokens=20), k, eos_ids=(4,))
        assert (gen.ids, gen.text, gen.finish_reason, len(gen.logprobs)) == ([1, 2, 3], "bcd", "stop", 3)
        assert gen.stats["completion_tokens"] == 3

        gen = run(greedy(max_tokens=20), k, eos_ids=(1,))
        assert (gen.ids, gen.text, gen.finish_reason, gen.logprobs) == ([], "", "stop", [])

        gen = run(greedy(max_tokens=20, stop=["de", "f"]), k)
        assert (gen.ids, gen.text, gen.finish_reason, len(gen.logprobs)) == ([1, 2, 3, 4], "bc", "stop", 4)

        for budget in range(1, 9):
            gen = run(greedy(max_tokens=budget), k)
            assert (gen.ids, gen.finish_reason) == (script[:budget], "length")
            assert gen.stats["completion_tokens"] == budget == len(gen.logprobs)

        gen = run(greedy(max_tokens=4, stop=["de"]), k)
        assert (gen.ids, gen.text, gen.finish_reason) == ([1, 2, 3, 4], "bc", "stop")


def test_drafts_kept_behind_the_end_still_count_as_kept() -> None:
    """`accepted` is what the verifier kept, also behind an EOS or a stop string of the same round.

    KIND: unit. Pitfalls: 11.
    """
    target = ScriptLM([0], [1, 2, 3, 4, 5, 6], vocab_size=26)
    for p, eos_ids in ((greedy(max_tokens=20), (2,)), (greedy(max_tokens=20, stop=["b"]), ())):
        gen = speculative_generate(target, oracle_draft(target), LETTERS, "a", p, k=4, eos_ids=eos_ids)
        assert gen.ids == [1]
        assert (gen.stats["drafted"], gen.stats["accepted"], gen.stats["acceptance_rate"]) == (4, 4, 1)
        assert gen.stats["completion_tokens"] == 1


def test_bad_arguments() -> None:
    """Caller errors are told early, before the target has made a pass.

    KIND: boundary. Pitfalls: 12.
    """
    target = BagLM(vocab_size=11, max_len=6)
    draft = PromptLookupDraft()
    for k, prompt, p in [
        (-1, "abc", GREEDY),
        (-1, "abcdef", GREEDY),  # also where the prompt leaves no room for a round
        (2, "", GREEDY),
        (2, "abcdefg", GREEDY),
        (2, "abc", SamplingParams(temperature=-1.0)),
        (2, "abc", SamplingParams(max_tokens=0)),
        (2, "abc", SamplingParams(top_p=0.0)),
    ]:
        with pytest.raises(ValueError):
            speculative_generate(target, draft, LETTERS_11, prompt, p, k=k)
    bad: dict[str, Any] = {"k": 2.5, "draft": PromptLookupDraft, "prompt": [1, 2], "eos_ids": 5}
    for name, value in bad.items():
        good = {"target": target, "draft": draft, "tok": LETTERS_11, "prompt": "abc", "p": GREEDY, "k": 2}
        with pytest.raises(ValueError, match=name):
            speculative_generate(**(good | {name: value}))
    assert target.passes == []
    for ids in ([1.5], [11], ["a"]):
        with pytest.raises(ValueError, match="draft_ids"):
            verify_draft(np.zeros((2, 11)), ids, None, GREEDY, [], None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="history"):
        verify_draft(np.zeros((2, 11)), [1], None, GREEDY, [0.7], None)  # type: ignore[list-item]


def test_logprobs_are_the_targets() -> None:
    """One number an id: the target's own log-probability on the row that produced it, kept draft or not.

    KIND: unit. Pitfalls: 6, 7.
    """
    prompt = LETTERS_11.encode(PROMPT)
    for knobs in ({}, {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2}):
        p = greedy(max_tokens=30, **knobs)
        plain = generate(target_for(), LETTERS_11, PROMPT, p)
        for name in DRAFTS:
            gen = speculative_generate(target_for(), make_draft(name), LETTERS_11, PROMPT, p, k=4)
            assert gen.logprobs == plain.logprobs, name
        p = SamplingParams(temperature=1.4, top_k=8, max_tokens=30, seed=5, **knobs)
        for name in ("ngram", "another model", "prompt lookup"):
            gen = speculative_generate(target_for(), make_draft(name), LETTERS_11, PROMPT, p, k=4)
            target = target_for()
            for j, x in enumerate(gen.ids):
                row = target.row([*prompt, *gen.ids[:j]])
                assert gen.logprobs[j] == token_logprobs(row, p, gen.ids[:j], prompt)[x], f"{name}, id {j}"


def test_streamed_text_is_the_text() -> None:
    """on_text gets the text as it becomes certain: its pieces join to `text`, round after round.

    KIND: unit. Pitfalls: 11.
    """
    for name, knobs in product(("self", "sometimes right"), ({}, {"stop": ["ckgc"]}, {"stop": ["kgz"]})):
        pieces: list[str] = []
        p = greedy(max_tokens=24, **knobs)
        gen = speculative_generate(target_for(), make_draft(name), LETTERS_11, PROMPT, p, k=3, on_text=pieces.append)
        assert "".join(pieces) == gen.text
        assert len(pieces) > 1, "text comes while the run goes on, not at its end"
        plain = generate(target_for(), LETTERS_11, PROMPT, p)
        assert_same_output(gen, plain)


def test_a_callback_that_returns_false_ends_it() -> None:
    """False from on_text or on_round means enough: no further pass, "cancelled", and what is there agrees.

    KIND: unit. Pitfalls: 11.
    """
    full = generate(target_for(), LETTERS_11, PROMPT, greedy(max_tokens=30))
    for where, after in product(("on_text", "on_round"), (1, 2, 3)):
        calls: list[Any] = []

        def stop_here(x: Any, calls: list[Any] = calls, after: int = after) -> bool | None:
            calls.append(x)
            return False if len(calls) == after else None

        target = target_for()
        gen = speculative_generate(
            target, make_draft("sometimes right"), LETTERS_11, PROMPT, greedy(max_tokens=30), k=3, **{where: stop_here}
        )
        assert gen.finish_reason == "cancelled"
        assert len(calls) == after, "no call after the one that said False"
        assert gen.ids == full.ids[: len(gen.ids)] and 0 < len(gen.ids) < 30
        assert gen.logprobs == full.logprobs[: len(gen.ids)]
        assert gen.stats["completion_tokens"] == len(gen.ids)
        assert full.text.startswith(gen.text)
        assert len(target.passes) == len(gen.rounds) == gen.stats["target_calls"]
        if where == "on_round":
            assert calls == gen.rounds


def test_callbacks_that_return_anything_else_change_nothing() -> None:
    """Only False cancels; None, an empty string and an empty list do not.

    KIND: boundary.
    """
    plain = generate(target_for(), LETTERS_11, PROMPT, greedy(max_tokens=20))
    for value in (None, True, "", []):
        gen = speculative_generate(
            target_for(),
            make_draft("sometimes right"),
            LETTERS_11,
            PROMPT,
            greedy(max_tokens=20),
            k=3,
            on_text=lambda _, value=value: value,
            on_round=lambda _, value=value: value,
        )
        assert_same_output(gen, plain)


def test_draws_are_counted_as_the_rule_says() -> None:
    """Two per position visited and one for the bonus, whatever the outcome: counted on the real stream.

    KIND: property. Pitfalls: 4.
    """
    rng = Counting(request_rng(3))
    drawer = np.random.default_rng(3)
    for _ in range(100):
        m = int(drawer.integers(0, 5))
        rows = drawer.normal(size=(m + 1, 5))
        ids = [int(i) for i in drawer.integers(5, size=m)]
        before = rng.used
        emitted, n = verify_draft(rows, ids, None, PLAIN, [], rng)
        assert len(emitted) == n + 1
        assert rng.used - before == (2 * m + 1 if n == m else 2 * (n + 1))
