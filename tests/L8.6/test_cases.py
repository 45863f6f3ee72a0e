"""L8.6: faults that other systems had, each reported in public, each ruled out here together with its whole kind."""

import math
from collections.abc import Callable
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
    distribution,
    frequencies,
    logits_of,
    midpoints,
    oracle_draft,
    sometimes_right_draft,
)

from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams, request_rng, sample, sampling_distribution
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


def greedy(**knobs: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, **knobs)


def test_case_01_eos_anywhere_in_a_round_ends_it() -> None:
    """Reported as transformers #47912, koboldcpp #1276 and llama.cpp #28049: the end is looked for on the last token
    of a round only, so text behind an EOS gets out.

    The instance first; then EOS at every place of a round, as kept draft, correction and bonus, for every k.

    KIND: boundary. Pitfalls: 11.
    """
    eos = 6
    target = ScriptLM([0], [4, eos, 7, 8], vocab_size=26)
    gen = speculative_generate(target, oracle_draft(target), LETTERS, "a", greedy(max_tokens=20), k=4, eos_ids=(eos,))
    assert (gen.ids, gen.finish_reason, gen.text) == ([4], "stop", "e")
    assert len(gen.logprobs) == 1 and gen.stats["completion_tokens"] == 1

    for at, k, right in product(range(7), range(7), (True, False)):
        script = [4] * at + [eos] + [7, 8] * 4
        target = ScriptLM([0], script, vocab_size=26)
        draft = oracle_draft(target) if right else sometimes_right_draft(target)
        pieces: list[str] = []
        gen = speculative_generate(
            target, draft, LETTERS, "a", greedy(max_tokens=12), k=k, eos_ids=(3, eos), on_text=pieces.append
        )
        assert (gen.ids, gen.text, gen.finish_reason) == ([4] * at, "e" * at, "stop")
        assert len(gen.logprobs) == gen.stats["completion_tokens"] == at
        assert "".join(pieces) == gen.text
        assert len(target.passes) == gen.stats["target_calls"]


def test_case_02_the_budget_does_not_hide_an_earlier_stop() -> None:
    """Reported as SGLang #31599: a round that reaches the budget ends with "length" though a stop string came first.

    The instance; then every budget, k and place of the stop string, spread over one id or two.

    KIND: boundary. Pitfalls: 11, 12.
    """
    pieces = [f"<{i}>" for i in range(30)]
    pieces[12] = "END"
    tok = PieceTok(pieces)
    script = [10, 11, 12, 20, 21, 22]
    target = ScriptLM([0], script, vocab_size=30)
    p = greedy(max_tokens=5, stop=["END"])
    gen = speculative_generate(target, oracle_draft(target), tok, "<0>", p, k=5)
    assert (gen.ids, gen.text, gen.finish_reason) == ([10, 11, 12], "<10><11>", "stop")
    assert len(gen.logprobs) == 3

    for budget, k, stop in product(range(1, 9), range(7), ("END", "><11>E", "ND<2", "<10>")):
        p = greedy(max_tokens=budget, stop=["never", stop])
        target = ScriptLM([0], script, vocab_size=30)
        plain = generate(ScriptLM([0], script, vocab_size=30), tok, "<0>", p)
        gen = speculative_generate(target, oracle_draft(target), tok, "<0>", p, k=k)
        got = gen.ids, gen.text, gen.finish_reason, gen.logprobs
        assert got == (plain.ids, plain.text, plain.finish_reason, plain.logprobs), f"budget {budget}, k {k}, {stop}"
        needed = next(n for n in range(1, 7) if stop in tok.decode(script[:n]))
        assert (gen.finish_reason == "stop") == (budget >= needed)


def test_case_03_the_budget_limits_the_draft() -> None:
    """Reported as transformers #47195: a round keeps more drafts than there are tokens left.

    The instance; then every budget and k, for the count of ids, for what the draft was asked, and for the last
    position the target was ever fed (the budget's last id is never fed).

    KIND: boundary. Pitfalls: 12.
    """
    for budget in (2, 1):
        target = ScriptLM([0], [1, 2, 3, 4, 5], vocab_size=26)
        gen = speculative_generate(target, ScriptedDraft([[1, 2, 3]]), LETTERS, "a", greedy(max_tokens=budget), k=3)
        assert (gen.ids, gen.finish_reason) == ([1, 2][:budget], "length")

    for budget, k, temperature, binds in product(range(1, 9), range(7), (0.0, 1.0), ("max_tokens", "max_len")):
        max_len = 3 + budget if binds == "max_len" else 64
        target = BagLM(max_len=max_len)
        p = SamplingParams(temperature=temperature, max_tokens=budget if binds == "max_tokens" else 50)
        asked: list[tuple[int, int]] = []

        class Asking:
            def propose(self, ctx: Any, k: int, rng: Any, asked: Any = asked, target: Any = target) -> Any:
                asked.append((len(ctx), k))
                return oracle_draft(target).propose(ctx, k, rng)

        gen = speculative_generate(target, Asking(), LETTERS, "abc", p, k=k)
        assert len(gen.ids) == budget and gen.finish_reason == "length"
        assert max(step.start + len(step.chunk) for step in target.passes) <= 3 + budget - 1
        assert all(0 < n <= k and length + n + 1 <= 3 + budget for length, n in asked)


def test_case_04_penalties_count_every_emitted_token() -> None:
    """Reported as SGLang #33643 and vmlx-swift #357: penalties count one token a pass, not one an emitted token.

    The instance, in the verifier and through the loop; then each penalty and their sum, with drafts of every length.

    KIND: differential. Pitfalls: 7.
    """
    row = [2.0, 1.6, 0.3]
    p = greedy(frequency_penalty=1.0)
    assert verify_draft(np.array([row] * 5), [0, 1, 0, 1], None, p, [], Uniforms()) == ([0, 1, 0, 1, 2], 4)

    gen = speculative_generate(
        TableLM({}, row), ScriptedDraft([[0, 1, 0, 1]]), LETTERS, "c", greedy(frequency_penalty=1.0, max_tokens=5), k=4
    )
    assert gen.ids == [0, 1, 0, 1, 2] and gen.stats["accepted"] == 4

    penalties: list[dict[str, Any]] = [
        {"frequency_penalty": 0.7},
        {"presence_penalty": 0.9},
        {"repetition_penalty": 1.5},
        {"repetition_penalty": 0.8},
        {"frequency_penalty": -0.4, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    ]
    for knobs, k in product(penalties, range(7)):
        p = greedy(max_tokens=24, **knobs)
        plain = generate(BagLM(seed=4, sharpness=0.4), LETTERS, "abcd", p)
        assert plain.ids != BagLM(seed=4, sharpness=0.4).greedy([0, 1, 2, 3], 24), "a penalty that changes nothing"
        knowing = ChainDraft(lambda ctx, ids=plain.ids: ids[len(ctx) - 4] if len(ctx) % 5 else 0)
        gen = speculative_generate(BagLM(seed=4, sharpness=0.4), knowing, LETTERS, "abcd", p, k=k)
        assert (gen.ids, gen.logprobs) == (plain.ids, plain.logprobs)
        if k > 1:
            assert gen.stats["accepted"] > 0


def test_case_05_filters_apply_to_every_row() -> None:
    """Reported as vLLM #42744: min-p was applied to the bonus row only, so a draft below it could be accepted.

    The instance, enumerated; then each filter at each row of a round: what it removes is never kept, never the
    replacement and never the bonus, and what it leaves comes out as its fractions say.

    KIND: statistical. Pitfalls: 3, 6.
    """
    weights = [12, 7, 1]  # p = [.6, .35, .05]
    filters = {
        "min_p": SamplingParams(min_p=0.1),
        "top_k": SamplingParams(top_k=2),
        "top_p": SamplingParams(top_p=0.9),
        "a penalty": SamplingParams(presence_penalty=1e4),  # ids in the history are gone
    }
    rows = np.array([logits_of(weights)] * 3)
    for name, p in filters.items():
        history = [2] if name == "a penalty" else []
        outcomes = []
        for u_accept, u_resample in product(midpoints(19), midpoints(19)):
            emitted, n = verify_draft(rows[:2], [2], None, p, history, Uniforms([u_accept, u_resample]))
            assert n == 0, f"{name}: a draft that it removes was kept"
            outcomes.append(emitted[0])
        assert frequencies(outcomes) == as_fractions([12, 7, 0]), name

        if name == "a penalty":
            continue
        second, bonus = [], []
        for u in midpoints(19):
            emitted, n = verify_draft(rows, [0, 2], None, p, [], Uniforms([0.1, 0.5, 0.0, u]))
            assert n == 1
            second.append(emitted[1])
            emitted, n = verify_draft(rows, [0, 1], None, p, [], Uniforms([0.1, 0.5, 0.1, 0.5, u]))
            assert n == 2
            bonus.append(emitted[2])
        assert frequencies(second) == frequencies(bonus) == as_fractions([12, 7, 0]), name

    # Temperature is a filter of the same kind: at 1/2 the weights are squared, on every row.
    p = SamplingParams(temperature=0.5)
    rows = np.array([logits_of([2, 1, 1])] * 2)
    outcomes = [
        verify_draft(rows, [0], None, p, [], Uniforms([a, r, 0.5]))[0][0]
        for a, r in product(midpoints(6), midpoints(2))
    ]
    assert frequencies(outcomes) == as_fractions([4, 1, 1])


def test_case_06_q_is_what_was_sampled() -> None:
    """Reported as transformers #47932 and z-lab/dflash #74: the draft takes the argmax but reports its softmax.

    First what that fault does to the output, so that the enumeration is known to see it; then our own drafts: each
    draws exactly from what it reports, and a greedy guess reports nothing, which gives exactly p.

    KIND: statistical. Pitfalls: 1, 2.
    """
    p, q = [12, 4, 2, 2], [14, 4, 1, 1]  # over 20
    rows = np.array([logits_of(p), logits_of([1, 1, 1, 1])])

    def output(x: int, probs: Any) -> dict[int, Any]:
        """Over all uniforms: the ratio 12/14 is in 7ths, p(x) in 20ths, both residuals in 4ths."""
        return frequencies(
            verify_draft(rows, [x], probs, SamplingParams(), [], Uniforms([u_accept, u_resample, 0.5]))[0][0]
            for u_accept, u_resample in product(midpoints(140), midpoints(4))
        )

    assert output(0, distribution(q)[None]) == as_fractions([12, 0, 1, 1]), "that draft does bend the output"
    assert output(0, None) == as_fractions(p), "the same draft without a q does not"
    honest = frequencies(
        verify_draft(rows, [x], distribution(q)[None], SamplingParams(), [], Uniforms([a, r, 0.5]))[0][0]
        for x in (sample_categorical(distribution(q), u) for u in midpoints(20))
        for a, r in product(midpoints(7), midpoints(2))
    )
    assert honest == as_fractions(p)

    counted = NGramDraft(TableCounts(lambda ctx: q))
    modelled = ModelDraft(TableLM({}, logits_of(q).tolist()))
    squared = ModelDraft(TableLM({}, (0.5 * logits_of(q)).tolist()), temperature=0.5)
    for draft in (counted, modelled, squared):
        drawn: list[tuple[int, ...]] = []
        for u1, u2 in product(midpoints(20), repeat=2):
            ids, probs = draft.propose([1, 2], 2, Uniforms([u1, u2]))
            assert probs is not None
            np.testing.assert_allclose(probs, [distribution(q)] * 2, rtol=1e-12)
            drawn.append(tuple(ids))
        assert frequencies(ids[0] for ids in drawn) == as_fractions(q)
        assert frequencies(ids[1] for ids in drawn) == as_fractions(q)
        assert draft.propose([1, 2], 2, None) == ([0, 0], None)
    for lookup in (PromptLookupDraft(), ContextNGramDraft()):
        assert lookup.propose([1, 2, 1], 1, Uniforms()) == ([2], None)


def test_case_07_rollback_arithmetic() -> None:
    """Reported as transformers #47433 and vLLM PR 9730: off by one in what the caches keep after a round.

    k = 3; one draft kept, then all, then none. The target keeps base + pending + kept; the model draft is fed exactly
    what its cache lacks, which after a full acceptance is the last drafted id and the bonus.

    KIND: unit. Pitfalls: 9, 10.
    """

    def says(*ids: int) -> list[float]:
        return [5.0 if i in ids else 0.0 for i in range(20)]

    truth = list(range(13))
    target = ScriptLM([0], truth[1:], vocab_size=20)
    right = {tuple(truth[:n]): says(n) for n in range(1, 13)}
    wrong = {(0, 1): says(19), tuple(truth[:7]): says(19)}  # where the draft model errs
    model = TableLM({**right, **wrong}, says(19))
    gen = speculative_generate(target, ModelDraft(model), LETTERS, "a", greedy(max_tokens=12), k=3)

    assert gen.ids == truth[1:]
    assert [(list(r.draft), r.accepted, r.token) for r in gen.rounds] == [
        ([1, 19, 19], 1, 2),
        ([3, 4, 5], 3, 6),
        ([19, 19, 19], 0, 7),
        ([8, 9, 10], 3, 11),
        ([], 0, 12),
    ]
    assert [(step.start, step.chunk) for step in target.passes] == [
        (0, [0, 1, 19, 19]),
        (2, [2, 3, 4, 5]),
        (6, [6, 19, 19, 19]),
        (7, [7, 8, 9, 10]),
        (11, [11]),
    ]
    assert [(step.start + i, token) for step in model.passes for i, token in enumerate(step.chunk)] == [
        *[(0, 0), (1, 1), (2, 19)],
        *[(2, 2), (3, 3), (4, 4)],  # one kept: the correction first
        *[(5, 5), (6, 6), (7, 19), (8, 19)],  # all kept: the last drafted id and the bonus
        *[(7, 7), (8, 8), (9, 9)],  # none kept: the correction alone
    ]

    # The kind: any sequence of acceptances. The toys assert that each cache holds exactly what came before.
    rng = np.random.default_rng(7)
    for _ in range(30):
        errs = set(rng.integers(1, 30, size=int(rng.integers(0, 15))).tolist())
        target = ScriptLM([0], [1 + i % 8 for i in range(40)], vocab_size=10)
        script = [9 if i in errs else 1 + i % 8 for i in range(40)]
        model_draft = ModelDraft(ScriptLM([0], script, vocab_size=10))
        gen = speculative_generate(target, model_draft, LETTERS, "a", greedy(max_tokens=30), k=int(rng.integers(1, 6)))
        assert gen.ids == target.script[:30]
        kept = 0
        for step, rnd in zip(target.passes, gen.rounds, strict=True):
            assert step.start == kept
            kept += len(step.chunk) - len(rnd.draft) + rnd.accepted


def test_case_08_logprobs_of_kept_drafts_are_real() -> None:
    """Reported as llama.cpp #27972 and vLLM PR 30846: kept drafts get logprob 0, or the row as edited by penalties.

    Row [0, ln 3]: token 1 has ln(3/4) = -0.28768, kept or drawn, with penalties that touch other rows or none; and
    the caller's logits, which are the model's own table here, stay as they were.

    KIND: unit. Pitfalls: 7.
    """
    row = [0.0, math.log(3)]
    for knobs, temperature, k in product(
        ({}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.5, "min_p": 0.1}),
        (0.0, 1.0),
        (0, 1, 3),
    ):
        model = TableLM({}, row)
        for table in (model.default, *model.rows.values()):
            table.flags.writeable = False
        p = SamplingParams(temperature=temperature, max_tokens=6, seed=2, **knobs)
        gen = speculative_generate(model, ChainDraft(lambda ctx: 1), LETTERS, "a", p, k=k)
        if gen.ids[0] == 1:
            assert gen.logprobs[0] == pytest.approx(-0.2876820724517809, rel=1e-12)
        if not knobs:
            want = [math.log(1 / 4), math.log(3 / 4)]
            assert gen.logprobs == pytest.approx([want[i] for i in gen.ids], rel=1e-12)
        if temperature == 0.0:
            assert gen.ids[0] == 1
            assert gen.logprobs == generate(TableLM({}, row), LETTERS, "a", p).logprobs
        assert max(gen.logprobs) < 0, "nothing here is certain"
        assert model.default.tolist() == row


@pytest.mark.parametrize(
    ("ctx", "bounds", "want"),
    [
        ([1, 2, 9, 1, 2, 5, 1, 2], (3, 1), [5, 1, 2]),
        ([1, 2, 1, 2, 1, 2], (2, 1), [1, 2]),
        ([1, 2, 1, 2, 1, 2], (3, 1), [1, 2]),
        ([7, 7, 7, 7], (2, 1), [7]),
        ([3, 1, 3, 2, 3], (2, 1), [2, 3]),
        ([4, 4], (3, 2), []),
    ],
)
def test_case_09_prompt_lookup_copies_the_most_recent(ctx: list[int], bounds: tuple[int, int], want: list[int]) -> None:
    """Reported against several: longest first and most recent are easy to get wrong, most of all on periodic text.

    The whole kind, against the plain scan over random contexts, is in test_properties.py.

    KIND: unit. Pitfalls: 8.
    """
    assert PromptLookupDraft(*bounds).propose(ctx, 4, None) == (want, None)
    for k in range(4):
        assert PromptLookupDraft(*bounds).propose(ctx, k, None)[0] == want[:k]


def shared_drafts() -> dict[str, Callable[[], Any]]:
    lm = NGramLM(2, vocab_size=11)
    lm.fit([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 2, 4, 6, 8, 10]])
    return {
        "model": lambda: ModelDraft(BagLM(seed=9)),
        "ngram": lambda: NGramDraft(lm),
        "prompt lookup": PromptLookupDraft,
        "context ngram": ContextNGramDraft,
    }


@pytest.mark.parametrize("name", ["model", "ngram", "prompt lookup", "context ngram"])
@pytest.mark.parametrize("other_k", [0, 3])
def test_case_10_requests_do_not_move_each_other(name: str, other_k: int) -> None:
    """Reported as vllm-ascend #13608: with one draft shared by requests, one request's draft moves another's stream.

    Two propose-and-verify loops in alternation over one draft object, each with its own generator, one of them
    drafting and the other with k = 0 (or drafting too): ids and draws are those of each loop alone, for every seed.

    KIND: property. Pitfalls: 4, 9.
    """
    p = SamplingParams(temperature=1.2)
    target = BagLM(seed=0)

    def steps(draft: Any, prompt: list[int], k: int, seed: int) -> Any:
        """One loop as a generator: a round each time it is asked; yields ids so far and draws so far."""
        rng = Counting(request_rng(seed))
        out: list[int] = []
        for _ in range(6):
            ids, probs = draft.propose([*prompt, *out], k, rng)
            if k == 0:
                assert ids == []
                probs = None
            rows = np.array([target.row([*prompt, *out, *ids[:i]]) for i in range(len(ids) + 1)])
            out += verify_draft(rows, ids, probs, p, out, rng, prompt)[0]
            yield list(out), rng.used

    for seed in range(8):
        new = shared_drafts()[name]
        drafting = [0, 1, 2, 0, 1], 3, seed
        other = [3, 4, 3, 4], other_k, seed + 100
        alone = list(steps(new(), *drafting)), list(steps(new(), *other))
        shared = new()
        together = list(zip(steps(shared, *drafting), steps(shared, *other), strict=True))
        assert ([a for a, _ in together], [b for _, b in together]) == alone, f"seed {seed}"
        if other_k == 0:
            assert alone[1][-1] == (alone[1][-1][0], 6), "without drafts: one draw a token"


@pytest.mark.model
def test_case_11_greedy_speculation_is_greedy_on_the_real_model() -> None:
    """Reported as transformers #39421 and vLLM #11466: "greedy speculation differs from greedy", by rounding.

    On SmolLM2 the ids, text and logprobs are the same, without a tolerance, for each draft and k here; the milestone
    runs the long sweep.

    KIND: differential. Pitfalls: 5, 6, 9, 10.
    """
    from tinyllm.zoo import smollm2

    model, tok = smollm2()
    lm = NGramLM(3, vocab_size=model.vocab_size)
    prompts = [
        "Repeat this line twice: the cat sat on the mat.\nthe cat sat on the mat.\nthe cat",
        "The capital of France is",
    ]
    lm.fit([tok.encode(text) for text in prompts])
    for prompt in prompts:
        p = greedy(max_tokens=16)
        plain = generate(model, tok, prompt, p)
        drafts: list[tuple[Any, tuple[int, ...]]] = [
            (PromptLookupDraft(), (1, 4, 8)),
            (ContextNGramDraft(), (5,)),
            (NGramDraft(lm), (3,)),
            (ModelDraft(model.first_layers(2)), (2,)),
            (ModelDraft(model), (4,)),
        ]
        for draft, ks in drafts:
            for k in ks:
                gen = speculative_generate(model, draft, tok, prompt, p, k=k)
                got = gen.ids, gen.text, gen.logprobs, gen.finish_reason
                assert got == (plain.ids, plain.text, plain.logprobs, plain.finish_reason), type(draft).__name__
        assert gen.stats["acceptance_rate"] == 1.0, "the model is its own perfect draft"


def test_the_reference_row_is_what_sample_uses() -> None:
    """The rows that the cases stand on: `sampling_distribution` is the p that `sample` draws from, as fractions.

    KIND: statistical.
    """
    row = logits_of([12, 7, 1])
    p = SamplingParams(min_p=0.1)
    drawn = frequencies(sample(row, p, [], Uniforms([u]))[0] for u in midpoints(19))
    assert drawn == as_fractions([12, 7, 0])
    np.testing.assert_allclose(sampling_distribution(row, p), distribution([12, 7, 0]), rtol=1e-12)
