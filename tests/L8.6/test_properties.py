"""L8.6, laws that must hold for any input: exactness, greedy equality, rollback, replay, and a record that agrees."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from _toy import (
    BagLM,
    PieceTok,
    ScriptLM,
    TableCounts,
    Uniforms,
    distribution,
    logits_of,
    loop_by_hand,
    midpoints,
    oracle_draft,
    sometimes_right_draft,
    wrong_draft,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinyllm.infer.generate import generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams, request_rng
from tinyllm.infer.spec import (
    ContextNGramDraft,
    ModelDraft,
    NGramDraft,
    PromptLookupDraft,
    speculative_generate,
    verify_draft,
)

pytestmark = pytest.mark.module("L8.6")

# ----------------------------------------------------------------------------------------------------- exactness

weights = st.lists(st.integers(0, 3), min_size=2, max_size=4).filter(any)


def cells(fractions: list[Fraction]) -> int:
    """How many equal cells [0, 1) needs for every one of these to be an edge."""
    return math.lcm(*(f.denominator for f in fractions))


def exact_output(p: list[int], q: list[int], position: int) -> dict[int, Fraction]:
    """The distribution of the token at a position whose target is p and whose draft is q, every outcome counted."""
    target = [Fraction(w, sum(p)) for w in p]
    draft = [Fraction(w, sum(q)) for w in q]
    left = [max(Fraction(0), a - b) for a, b in zip(target, draft, strict=True)]
    residual = [x / sum(left) for x in left] if any(left) else target
    before = [0.0] + [-math.inf] * (len(p) - 1)  # positions in front of it: a certain 0, drafted and kept
    rows = np.array([before] * position + [logits_of(p), logits_of([1] * len(p))])
    probs = np.array([np.eye(len(p))[0]] * position + [distribution(q)])
    out = dict.fromkeys(range(len(p)), Fraction(0))
    for x in range(len(q)):
        if q[x] == 0:
            continue
        n_accept, n_resample = cells([target[x] / draft[x]]), cells(residual)
        for u_accept, u_resample in product(midpoints(n_accept), midpoints(n_resample)):
            uniforms = [0.5] * (2 * position) + [u_accept, u_resample, 0.5]
            emitted, n = verify_draft(rows, [0] * position + [x], probs, SamplingParams(), [], Uniforms(uniforms))
            assert n >= position
            out[emitted[position]] += draft[x] / (n_accept * n_resample)
    return out


@settings(max_examples=50)
@given(weights, weights, st.integers(0, 2))
def test_the_output_is_p_for_any_p_and_q(p: list[int], q: list[int], position: int) -> None:
    """Any target, any draft, any position, ids that one or both never say included: the output is p, as fractions.

    KIND: property, statistical. Pitfalls: 1, 3, 6.
    """
    size = min(len(p), len(q))
    p, q = p[:size], q[:size]
    assume(any(p) and any(q))
    want = {i: Fraction(w, sum(p)) for i, w in enumerate(p)}
    assert exact_output(p, q, position) == want


@settings(max_examples=30)
@given(weights, st.data())
def test_the_output_is_p_for_any_deterministic_draft(p: list[int], data: st.DataObject) -> None:
    """A draft without probabilities is the one-hot draft: the same uniforms give the same outcome either way.

    KIND: property, differential. Pitfalls: 2.
    """
    x = data.draw(st.integers(0, len(p) - 1))
    rows = np.array([logits_of(p), logits_of([1] * len(p))])
    total = sum(p)
    rest = [w for i, w in enumerate(p) if i != x] if p[x] < total else p
    out = dict.fromkeys(range(len(p)), Fraction(0))
    n_resample = sum(rest)
    for u_accept, u_resample in product(midpoints(total), midpoints(n_resample)):
        uniforms = [u_accept, u_resample, 0.5]
        emitted, n = verify_draft(rows, [x], None, SamplingParams(), [], Uniforms(uniforms))
        one_hot = np.eye(len(p))[x][None]
        assert (emitted, n) == verify_draft(rows, [x], one_hot, SamplingParams(), [], Uniforms(uniforms))
        out[emitted[0]] += Fraction(1, total * n_resample)
    assert out == {i: Fraction(w, total) for i, w in enumerate(p)}


# ------------------------------------------------------------------------------------------------- requests at random

# Letters, pairs of letters that make stop strings span ids or sit inside one, an empty piece, and half characters.
TOK = PieceTok(["a", "b", "c", "ab", "ca", b"\xc3", b"\xa9", ""])
V = len(TOK.pieces)

stops = st.lists(st.text("abcé", max_size=4), max_size=3)
seeds = st.integers(0, 30)


@st.composite
def requests(draw: st.DrawFn, greedy: bool) -> dict[str, Any]:
    """A toy model, a prompt, a draft, k, and parameters, all of them anything."""
    prompt = draw(st.text("abc", min_size=1, max_size=6))
    n = len(TOK.encode(prompt))
    knobs: dict[str, Any] = {
        "max_tokens": draw(st.integers(1, 20)),
        "stop": draw(stops),
        "temperature": 0.0 if greedy else draw(st.sampled_from([0.5, 1.0, 1.6])),
        "seed": draw(seeds),
    }
    if draw(st.booleans()):
        knobs |= {
            "repetition_penalty": draw(st.sampled_from([1.0, 1.3, 0.8])),
            "presence_penalty": draw(st.sampled_from([0.0, 0.5])),
            "frequency_penalty": draw(st.sampled_from([0.0, 0.3, -0.2])),
        }
    if not greedy and draw(st.booleans()):
        knobs |= {"top_k": draw(st.integers(0, V)), "top_p": draw(st.sampled_from([1.0, 0.8])), "min_p": 0.05}
    return {
        "model": {"vocab_size": V, "seed": draw(seeds), "max_len": draw(st.sampled_from([n, n + 1, n + 7, 64]))},
        "prompt": prompt,
        "p": SamplingParams(**knobs),
        "draft": draw(
            st.sampled_from(["lookup", "counts", "ngram", "self", "model", "short", "wrong", "right", "mixed"])
        ),
        "k": draw(st.integers(0, 8)),
        "eos_ids": tuple(draw(st.sets(st.integers(0, V - 1), max_size=2))),
    }


def draft_of(name: str, model: dict[str, Any]) -> Any:
    target = BagLM(**model)
    return {
        "lookup": lambda: PromptLookupDraft(3, 1),
        "counts": lambda: ContextNGramDraft(3),
        "ngram": lambda: NGramDraft(TableCounts(lambda ctx: 1 + np.eye(V)[(ctx[-1] + 3) % V])),
        "self": lambda: ModelDraft(target),
        "model": lambda: ModelDraft(BagLM(V, seed=99), temperature=0.7),
        "short": lambda: ModelDraft(BagLM(V, seed=model["seed"], max_len=9)),
        "wrong": lambda: wrong_draft(target),
        "right": lambda: oracle_draft(target),
        "mixed": lambda: sometimes_right_draft(target),
    }[name]()


def run(r: dict[str, Any], **callbacks: Any) -> Any:
    return speculative_generate(
        BagLM(**r["model"]),
        draft_of(r["draft"], r["model"]),
        TOK,
        r["prompt"],
        r["p"],
        r["k"],
        eos_ids=r["eos_ids"],
        **callbacks,
    )


def plain(r: dict[str, Any]) -> Any:
    return generate(BagLM(**r["model"]), TOK, r["prompt"], r["p"], eos_ids=r["eos_ids"])


@settings(max_examples=200)
@given(requests(greedy=True))
def test_greedy_speculation_equals_greedy_for_any_request(r: dict[str, Any]) -> None:
    """Whatever the model, draft, k, budget, EOS, stop strings and penalties: plain decoding decides every corner.

    KIND: property, differential. Pitfalls: 5, 6, 7, 9, 10, 11, 12.
    """
    gen, want = run(r), plain(r)
    assert (gen.ids, gen.text, gen.finish_reason) == (want.ids, want.text, want.finish_reason)
    assert gen.logprobs == want.logprobs


@settings(max_examples=100)
@given(requests(greedy=False))
def test_a_sampled_run_replays_and_equals_the_loop_by_hand(r: dict[str, Any]) -> None:
    """The same seed twice is the same run, and with ends apart it is the cache-free loop on the same stream.

    KIND: property, differential. Pitfalls: 4, 7, 9, 10, 12.
    """
    first, second = run(r), run(r)
    assert (first.ids, first.text, first.logprobs) == (second.ids, second.text, second.logprobs)
    assert first.rounds == second.rounds and first.finish_reason == second.finish_reason
    prompt = TOK.encode(r["prompt"])
    by_hand = loop_by_hand(
        verify_draft,
        BagLM(**r["model"]),
        draft_of(r["draft"], r["model"]),
        prompt,
        r["p"],
        r["k"],
        request_rng(r["p"].seed),
    )
    assert first.ids == by_hand[: len(first.ids)]
    if first.finish_reason == "length":
        assert len(first.ids) == len(by_hand)


@settings(max_examples=150)
@given(st.booleans().flatmap(lambda greedy: requests(greedy=greedy)))
def test_the_record_agrees_with_the_result(r: dict[str, Any]) -> None:
    """Rounds, ids, text, pieces, logprobs and stats tell one story.

    KIND: property. Pitfalls: 11, 12.
    """
    pieces: list[str] = []
    seen: list[Any] = []
    gen = run(r, on_text=pieces.append, on_round=seen.append)
    assert seen == gen.rounds
    assert "".join(pieces) == gen.text
    assert len(gen.logprobs) == len(gen.ids) == gen.stats["completion_tokens"] <= r["p"].max_tokens
    assert not set(gen.ids) & set(r["eos_ids"])
    assert all(x <= 0 for x in gen.logprobs)

    emitted = [token for rnd in gen.rounds for token in (*rnd.draft[: rnd.accepted], rnd.token)]
    assert emitted[: len(gen.ids)] == gen.ids
    if gen.finish_reason == "length":
        assert emitted == gen.ids
        room = r["model"]["max_len"] - len(TOK.encode(r["prompt"]))
        assert len(gen.ids) == min(r["p"].max_tokens, room)
    else:
        whole = TOK.decode(gen.ids)
        by_eos = len(emitted) > len(gen.ids) and emitted[len(gen.ids)] in r["eos_ids"]
        by_stop = any(s and s in whole for s in r["p"].stop)
        assert gen.finish_reason == "stop" and (by_eos or by_stop)
    for s in filter(None, r["p"].stop):
        assert s not in gen.text
    for rnd in gen.rounds:
        assert len(rnd.draft) <= r["k"] and 0 <= rnd.accepted <= len(rnd.draft)
        assert rnd.kind == ("bonus" if rnd.accepted == len(rnd.draft) else "correction")

    drafted, accepted = sum(len(x.draft) for x in gen.rounds), sum(x.accepted for x in gen.rounds)
    assert (gen.stats["drafted"], gen.stats["accepted"], gen.stats["target_calls"]) == (
        drafted,
        accepted,
        len(gen.rounds),
    )
    assert gen.stats["acceptance_rate"] == (accepted / drafted if drafted else 0)


@settings(max_examples=100)
@given(
    st.booleans().flatmap(lambda greedy: requests(greedy=greedy)),
    st.integers(1, 5),
    st.sampled_from(["on_text", "on_round"]),
)
def test_a_cancelled_run_is_the_beginning_of_the_whole_one(r: dict[str, Any], after: int, callback: str) -> None:
    """Stopping at any call of either callback leaves a result that is a beginning of the uncancelled one.

    KIND: property. Pitfalls: 11.
    """
    r["p"].stop = []  # with stop strings a held-back tail may be cut later
    calls: list[Any] = []

    def enough(x: Any) -> bool:
        calls.append(x)
        return len(calls) < after

    whole = run(r)
    gen = run(r, **{callback: enough})
    assert len(calls) <= after
    if len(calls) < after:
        assert gen.finish_reason == whole.finish_reason
    assert gen.finish_reason in ("cancelled", whole.finish_reason)
    n = len(gen.ids)
    assert gen.ids == whole.ids[:n] and gen.logprobs == whole.logprobs[:n] and len(gen.logprobs) == n
    assert gen.rounds == whole.rounds[: len(gen.rounds)]
    assert gen.stats["completion_tokens"] == n and gen.stats["target_calls"] == len(gen.rounds)
    if gen.finish_reason == "cancelled":
        assert whole.text.startswith(gen.text.rstrip("\ufffd"))
    else:
        assert gen.text == whole.text


# ----------------------------------------------------------------------------------------------------------- rollback


@given(st.lists(st.tuples(st.lists(st.integers(0, 10), min_size=1, max_size=5), st.integers(0, 5)), max_size=10), seeds)
def test_after_any_rollback_the_cache_is_as_if_nothing_had_been_rejected(
    rounds: list[tuple[list[int], int]], seed: int
) -> None:
    """Feed, cut back, feed again, in any sequence: the logits are those of the kept tokens alone.

    KIND: property. Pitfalls: 10.
    """
    model = BagLM(seed=seed)
    cache = KVCache(model.n_layers, model.n_kv_heads, model.d_head, model.max_len)
    kept: list[int] = []
    for chunk, reject in rounds:
        logits = model.forward(np.array([chunk]), cache.positions(len(chunk)), cache)[0]  # [t, V]
        for i in range(len(chunk)):
            assert np.array_equal(logits[i], model.row([*kept, *chunk[: i + 1]]))
        kept += chunk
        kept = kept[: max(0, len(kept) - reject)]
        cache.truncate(len(kept))
        assert cache.seq_len() == len(kept)


@given(st.sets(st.integers(0, 39)), st.integers(1, 8))
def test_every_pass_starts_where_the_kept_tokens_end(wrong: set[int], k: int) -> None:
    """Any pattern of right and wrong guesses: kept length, pending token and drafts are what each pass is fed.

    KIND: property. Pitfalls: 10.
    """
    script = [1 + i % 4 for i in range(40)]
    target = ScriptLM([0], script, vocab_size=V)
    guesses = ScriptLM([0], [7 if i in wrong else x for i, x in enumerate(script)], vocab_size=V)
    gen = speculative_generate(
        target, ModelDraft(guesses), TOK, "a", SamplingParams(temperature=0.0, max_tokens=25), k=k
    )
    assert gen.ids == script[:25]
    out: list[int] = []
    for step, rnd in zip(target.passes, gen.rounds, strict=True):
        assert step.context == [0, *out, *rnd.draft]
        assert step.chunk == [[0, *out][-1], *rnd.draft]
        right = next((i for i in range(len(rnd.draft)) if len(out) + i in wrong), len(rnd.draft))
        assert rnd.accepted == right
        out += [*rnd.draft[: rnd.accepted], rnd.token]


# ------------------------------------------------------------------------------------------------------------- drafts

contexts = st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=6)


def plain_lookup(ctx: list[int], k: int, most: int, least: int) -> list[int]:
    """The definition: longest n first, most recent start, what follows it."""
    for n in range(most, least - 1, -1):
        for i in range(len(ctx) - n - 1, -1, -1):
            if n > 0 and ctx[i : i + n] == ctx[len(ctx) - n :] and ctx[i + n : i + n + k]:
                return ctx[i + n : i + n + k]
    return []


def plain_counts(ctx: list[int], k: int, max_ngram: int) -> list[int]:
    """The definition: longest suffix first, most frequent follower, ties to the lowest id."""
    draft: list[int] = []
    while len(draft) < k:
        seen = [*ctx, *draft]
        followers: list[int] = []
        for m in range(max_ngram - 1, 0, -1):
            if m < len(seen):
                followers = [seen[i + m] for i in range(len(seen) - m) if seen[i : i + m] == seen[len(seen) - m :]]
            if followers:
                break
        if not followers:
            break
        draft.append(min(set(followers), key=lambda x: (-followers.count(x), x)))
    return draft


@settings(max_examples=200)
@given(contexts, st.integers(0, 5), st.integers(1, 4), st.integers(1, 4))
def test_lookups_are_functions_of_the_context_alone(ctxs: list[list[int]], k: int, a: int, b: int) -> None:
    """One object over contexts that grow, shrink and change answers as the plain scan does.

    KIND: property, differential. Pitfalls: 8.
    """
    most, least = max(a, b), min(a, b)
    lookup, counts = PromptLookupDraft(most, least), ContextNGramDraft(most + 1)
    grown: list[int] = []
    for ctx in ctxs:
        grown = grown + ctx
        for this in (ctx, grown, grown[:-1]):
            assert lookup.propose(this, k, None) == (plain_lookup(this, k, most, least), None)
            assert counts.propose(this, k, None) == (plain_counts(this, k, most + 1), None)


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=8), min_size=1, max_size=6), st.integers(1, 4), seeds)
def test_a_model_draft_is_a_function_of_the_context_and_the_stream(ctxs: list[list[int]], k: int, seed: int) -> None:
    """Whatever it was asked before, a model draft answers as a new one would, greedy and sampled.

    KIND: property, differential. Pitfalls: 9.
    """
    used = ModelDraft(BagLM(seed=seed, max_len=24))
    grown: list[int] = []
    for ctx in ctxs:
        grown = (grown + ctx)[:24]
        for this in (grown, ctx):
            assert used.propose(this, k, None) == ModelDraft(BagLM(seed=seed, max_len=24)).propose(this, k, None)
            ids, rows = used.propose(this, k, request_rng(seed))
            new_ids, new_rows = ModelDraft(BagLM(seed=seed, max_len=24)).propose(this, k, request_rng(seed))
            assert ids == new_ids
            assert np.array_equal(rows, new_rows) if rows is not None and new_rows is not None else not ids
