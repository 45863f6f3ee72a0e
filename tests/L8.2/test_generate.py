"""L8.2, plain decoding: the loop against its definition, when it ends, what it reports, and text as it streams."""

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from _toy import LETTERS, BagLM, BoxedLM, HeadLM, PieceTok, ScriptLM, TableLM
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.infer.generate import Generation, IncrementalDecoder, cache_dims, generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams, request_rng, sample, sampled_entropy, token_logprobs
from tinyllm.tok.bytes import ByteTokenizer

pytestmark = pytest.mark.module("L8.2")

ABC = PieceTok("abcdefghijk")  # BagLM's vocabulary of 11
GREEDY = SamplingParams(temperature=0.0, max_tokens=12)


def greedy(**knobs: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, **knobs)


def says(*ids: int, p: SamplingParams, tok: Any = LETTERS, eos_ids: Any = (), on_text: Any = None) -> Generation:
    """Greedy decoding after the prompt "a" of a model that says these ids."""
    model = ScriptLM([0], ids, vocab_size=len(tok.pieces))
    return generate(model, tok, "a", p, eos_ids=eos_ids, on_text=on_text)


def by_definition(model: Any, tok: Any, prompt: str, p: SamplingParams, eos_ids: Any = ()) -> Any:
    """The loop of the contract without a cache, a stream or a clock: (ids, text, logprobs, finish_reason)."""
    rng = request_rng(p.seed or 0)
    before, ids, logprobs = tok.encode(prompt), [], []
    while len(ids) < p.max_tokens and len(before) + len(ids) < model.max_len:
        token, logprob = sample(model.row([*before, *ids]), p, ids, rng, before)
        if token in eos_ids:
            return ids, tok.decode(ids), logprobs, "stop"
        ids, logprobs = [*ids, token], [*logprobs, logprob]
        text = tok.decode(ids)
        hits = [text.find(s) for s in p.stop if s and s in text]
        if hits:
            return ids, text[: min(hits)], logprobs, "stop"
    return ids, tok.decode(ids), logprobs, "length"


def essence(gen: Generation) -> Any:
    return gen.ids, gen.text, gen.logprobs, gen.finish_reason


# ------------------------------------------------------------------------------------------------------- the loop


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1.7])
def test_generate_is_the_plain_loop(temperature: float) -> None:
    """Sample, append, go on: ids, text and logprobs equal those of the definition, to the bit.

    KIND: differential, smoke.
    """
    for seed in range(3):
        p = SamplingParams(
            temperature=temperature, max_tokens=25, seed=seed, repetition_penalty=1.2, frequency_penalty=0.1, top_p=0.95
        )
        gen = generate(BagLM(seed=seed), ABC, "abcab", p)
        assert essence(gen) == by_definition(BagLM(seed=seed), ABC, "abcab", p)
        assert len(gen.ids) == 25
    assert gen.ids == [int(i) for i in gen.ids] and all(type(i) is int for i in gen.ids)
    assert all(type(x) is float for x in gen.logprobs)


def test_greedy_is_the_argmax_loop() -> None:
    """At temperature 0 nothing but the largest logit decides.

    KIND: differential, smoke.
    """
    model = BagLM(seed=5)
    assert generate(BagLM(seed=5), ABC, "abc", GREEDY).ids == model.greedy([0, 1, 2], 12)


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_the_cache_changes_nothing_but_the_work(temperature: float) -> None:
    """Cache "none" recomputes everything each step and is the oracle; "contiguous" and a given cache equal it.

    KIND: differential.
    """
    p = SamplingParams(temperature=temperature, max_tokens=20, seed=4, presence_penalty=0.3)
    none, contiguous, given_ = BagLM(), BagLM(), BagLM()
    want = generate(none, ABC, "abc", p, cache="none")
    assert essence(generate(contiguous, ABC, "abc", p, cache="contiguous")) == essence(want)
    cache = KVCache(given_.n_layers, given_.n_kv_heads, given_.d_head, 64)
    assert essence(generate(given_, ABC, "abc", p, cache=cache)) == essence(want)
    assert [len(step.chunk) for step in contiguous.passes] == [3] + [1] * 19
    assert [len(step.chunk) for step in none.passes] == list(range(3, 23))
    assert cache.seq_len() == 22, "the given cache is the one that was used; the last id is never fed"


def test_kv_dtype_is_the_cache_s() -> None:
    """A float16 cache rounds what the model stores; the ids of the toy (small whole numbers) survive that exactly.

    KIND: unit.
    """
    seen = []

    class Watching(BagLM):
        def forward(self, ids: Any, positions: Any = None, cache: Any = None) -> Any:
            seen.append(cache.nbytes() / cache.max_len)
            return super().forward(ids, positions, cache)

    want = generate(Watching(), ABC, "abc", GREEDY)
    assert essence(generate(Watching(), ABC, "abc", GREEDY, kv_dtype=np.float16)) == essence(want)
    assert seen[0] == 2 * seen[-1]


def test_a_cache_that_is_in_use_or_unknown_is_refused() -> None:
    """A given cache must be empty and the model's, and a name must be one of the two.

    KIND: boundary.
    """
    model = BagLM()
    cache = KVCache(model.n_layers, model.n_kv_heads, model.d_head, 64)
    generate(model, ABC, "abc", GREEDY, cache=cache)
    before = len(model.passes)
    for bad in (cache, "paged", ""):
        with pytest.raises(ValueError):
            generate(model, ABC, "abc", GREEDY, cache=bad)
    one_layer_more = KVCache(model.n_layers + 1, model.n_kv_heads, model.d_head, 64)  # would never look full
    too_short = KVCache(model.n_layers, model.n_kv_heads, model.d_head, 3)
    for other, word in ((one_layer_more, "n_layers"), (too_short, "room")):
        with pytest.raises(ValueError, match=word):
            generate(model, ABC, "abc", GREEDY, cache=other)
    assert len(model.passes) == before


def test_no_seed_means_seed_0_and_a_seed_is_replayed() -> None:
    """The same seed gives the same output, another seed another, and None is 0.

    KIND: unit.
    """
    runs = {
        seed: generate(BagLM(), ABC, "abc", SamplingParams(temperature=2.0, max_tokens=20, seed=seed)).ids
        for seed in (None, 0, 1, 2)
    }
    assert runs[None] == runs[0] != runs[1] != runs[2]
    assert runs[1] == generate(BagLM(), ABC, "abc", SamplingParams(temperature=2.0, max_tokens=20, seed=1)).ids


def test_logprobs_are_reported_after_penalties_and_before_temperature() -> None:
    """One number an id: row [0, ln 3] gives token 1 ln(3/4), at any temperature; `logprobs` changes nothing.

    KIND: unit.
    """
    for temperature in (0.0, 0.1):
        p = SamplingParams(temperature=temperature, max_tokens=3, logprobs=5)
        gen = generate(TableLM({}, [0.0, math.log(3)]), LETTERS, "a", p)
        assert gen.ids == [1, 1, 1]
        assert gen.logprobs == pytest.approx([-0.2876820724517809] * 3, rel=1e-12)
    p = SamplingParams(max_tokens=15, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.1)
    gen = generate(BagLM(), ABC, "abc", p)
    for j, x in enumerate(gen.ids):
        row = BagLM().row([0, 1, 2, *gen.ids[:j]])
        assert gen.logprobs[j] == token_logprobs(row, p, gen.ids[:j], [0, 1, 2])[x]


def test_the_model_s_logits_are_not_written_to() -> None:
    """A model may hand out its own table; the loop reads it and no more.

    KIND: boundary.
    """
    model = TableLM({}, [0.0, 1.0, 0.5])
    model.default.flags.writeable = False
    generate(model, LETTERS, "a", SamplingParams(max_tokens=8, repetition_penalty=2.0, top_k=2, presence_penalty=0.1))
    assert model.default.tolist() == [0.0, 1.0, 0.5]


# ------------------------------------------------------------------------------------------------------ when it ends


def test_eos_ends_it_and_is_not_part_of_it() -> None:
    """Not in ids, not in text, not in logprobs, not counted; any of several will do, also as the very first.

    KIND: boundary, smoke.
    """
    for eos_ids in ((5,), [5], {5, 9}, frozenset({5, 1000})):
        gen = says(1, 2, 5, 3, p=GREEDY, eos_ids=eos_ids)
        assert (gen.ids, gen.text, gen.finish_reason, len(gen.logprobs)) == ([1, 2], "bc", "stop", 2)
        assert gen.stats["completion_tokens"] == 2
    gen = says(5, p=GREEDY, eos_ids=(5,))
    assert (gen.ids, gen.text, gen.finish_reason, gen.logprobs) == ([], "", "stop", [])
    gen = says(1, 2, 5, p=greedy(max_tokens=2), eos_ids=(5,))
    assert (gen.ids, gen.finish_reason) == ([1, 2], "length"), "the budget is met before EOS is said"
    gen = says(1, 2, 5, p=greedy(max_tokens=3), eos_ids=(5,))
    assert (gen.ids, gen.finish_reason) == ([1, 2], "stop")


def test_eos_in_the_prompt_is_a_token_like_any_other() -> None:
    """Only what is generated can end a generation.

    KIND: boundary.
    """
    gen = generate(ScriptLM([5, 5], [1, 2, 5], vocab_size=26), LETTERS, "ff", GREEDY, eos_ids=(5,))
    assert gen.ids == [1, 2]


def test_a_stop_string_cuts_the_text_but_keeps_the_id() -> None:
    """The text ends before the earliest hit; the id that completed it stays; an empty stop string is ignored.

    KIND: boundary, smoke.
    """
    gen = says(1, 2, 3, 4, 5, p=greedy(stop=["", "de"]))
    assert (gen.ids, gen.text, gen.finish_reason, len(gen.logprobs)) == ([1, 2, 3, 4], "bc", "stop", 4)
    gen = says(1, 2, 3, 4, 5, p=greedy(stop=["", ""], max_tokens=5))
    assert (gen.text, gen.finish_reason) == ("bcdef", "length")
    # Reached with the last id of the budget: the stop string is the reason.
    gen = says(1, 2, 3, 4, 5, p=greedy(stop=["de"], max_tokens=4))
    assert (gen.text, gen.finish_reason) == ("bc", "stop")
    gen = says(1, 2, 3, 4, 5, p=greedy(stop=["de"], max_tokens=3))
    assert (gen.text, gen.finish_reason) == ("bcd", "length")
    gen = says(1, 2, p=greedy(stop=["b"]))
    assert (gen.ids, gen.text, gen.finish_reason) == ([1], "", "stop")


def test_of_several_stop_strings_the_earliest_hit_counts() -> None:
    """Inside one piece of text the order of the list does not matter, only where each begins.

    KIND: boundary.
    """
    tok = PieceTok(["a", "wxyz", "q", "wx"])
    for stop in (["yz", "xy"], ["xy", "yz"], ["xy"], ["xyz", "xy", "z"]):
        gen = says(2, 1, p=greedy(stop=stop), tok=tok)
        assert (gen.ids, gen.text) == ([2, 1], "qw")
    # Overlapping ones: "cde" began first but "d" was complete first.
    gen = says(1, 2, 3, 4, 5, p=greedy(stop=["cde", "d"]))
    assert (gen.ids, gen.text) == ([1, 2, 3], "bc")
    # A beginning that fails must not hide the real one behind it.
    tok = PieceTok("abn")
    gen = says(0, 0, 0, 1, 2, p=greedy(stop=["aab"]), tok=tok)
    assert (gen.ids, gen.text) == ([0, 0, 0, 1], "a")


def test_a_stop_string_may_contain_wide_characters() -> None:
    """It is found when its last byte arrives, whatever ids the bytes came in.

    KIND: boundary.
    """
    tok = PieceTok(["a", b"\xc3", b"\xa9", "!", b"\xa9x"])
    gen = says(0, 1, 2, 3, p=greedy(stop=["é!"]), tok=tok)
    assert (gen.ids, gen.text) == ([0, 1, 2, 3], "a")
    gen = says(0, 1, 4, p=greedy(stop=["é"]), tok=tok)
    assert (gen.ids, gen.text) == ([0, 1, 4], "a")


def test_the_model_s_length_is_never_exceeded() -> None:
    """Prompt and ids together reach max_len and no more; a prompt of exactly that gives no id, a longer one an error.

    KIND: boundary.
    """
    for cache, room in product(("none", "contiguous"), range(5)):
        model = BagLM(max_len=3 + room)
        gen = generate(model, ABC, "abc", GREEDY, cache=cache)
        assert (len(gen.ids), gen.finish_reason) == (room, "length")
        assert gen.ids == BagLM().greedy([0, 1, 2], room)
        assert len(model.passes) == room, "no pass whose logits nobody needs"
    assert (gen.text, gen.logprobs) == (ABC.decode(gen.ids), gen.logprobs)


def test_bad_requests_are_refused_before_any_pass() -> None:
    """An empty prompt, one longer than the model, parameters out of range.

    KIND: boundary.
    """
    model = BagLM(max_len=6)
    for prompt, p in [
        ("", GREEDY),
        ("abcdefg", GREEDY),
        ("abc", SamplingParams(temperature=-1.0)),
        ("abc", SamplingParams(max_tokens=0)),
        ("abc", SamplingParams(top_p=2.0)),
        ("abc", SamplingParams(seed=-1)),
    ]:
        for cache in ("none", "contiguous"):
            with pytest.raises(ValueError):
                generate(model, ABC, prompt, p, cache=cache)
    assert model.passes == []


def test_one_pass_a_token() -> None:
    """The prompt in one pass, then one id a pass, and none after the last id.

    KIND: unit.
    """
    model = BagLM()
    gen = generate(model, ABC, "abcd", GREEDY)
    assert [(step.start, step.chunk) for step in model.passes] == [
        (0, [0, 1, 2, 3]),
        *[(4 + i, [x]) for i, x in enumerate(gen.ids[:-1])],
    ]


# -------------------------------------------------------------------------------------------------- what it reports


def test_stats_and_timings_are_complete() -> None:
    """The fields a caller reads, all floats; entropy is the mean over the draws.

    KIND: unit, smoke.
    """
    p = SamplingParams(max_tokens=10, temperature=0.8, top_k=5)
    gen = generate(BagLM(), ABC, "abc", p)
    assert {"prefill_s", "decode_s", "total_s"} <= set(gen.timings)
    assert {"prompt_tokens", "completion_tokens", "mean_entropy", "tokens_per_s"} <= set(gen.stats)
    assert all(type(x) is float and x >= 0 for x in [*gen.timings.values(), *gen.stats.values()])
    assert gen.timings["total_s"] >= gen.timings["prefill_s"]
    assert (gen.stats["prompt_tokens"], gen.stats["completion_tokens"]) == (3, 10)
    assert gen.stats["tokens_per_s"] > 0
    entropies = [sampled_entropy(BagLM().row([0, 1, 2, *gen.ids[:j]]), p, gen.ids[:j], [0, 1, 2]) for j in range(10)]
    assert gen.stats["mean_entropy"] == pytest.approx(sum(entropies) / 10, rel=1e-12)
    assert generate(BagLM(), ABC, "abc", GREEDY).stats["mean_entropy"] == 0

    nothing = generate(BagLM(max_len=3), ABC, "abc", p)
    assert (nothing.ids, nothing.text, nothing.logprobs, nothing.finish_reason) == ([], "", [], "length")
    assert nothing.stats["completion_tokens"] == nothing.stats["mean_entropy"] == 0


def test_plain_decoding_records_a_round_a_token() -> None:
    """The same record as speculation's: no draft, nothing accepted, the token as a bonus.

    KIND: unit.
    """
    gen = generate(BagLM(), ABC, "abc", GREEDY)
    assert [(tuple(r.draft), r.accepted, r.token, r.kind) for r in gen.rounds] == [((), 0, x, "bonus") for x in gen.ids]


# -------------------------------------------------------------------------------------------------- other models


def test_logits_may_come_in_an_object_with_data() -> None:
    """A tensor library's result serves as it is.

    KIND: unit.
    """
    for cache in ("none", "contiguous"):
        want = essence(generate(BagLM(), ABC, "abc", GREEDY, cache=cache))
        assert essence(generate(BoxedLM(), ABC, "abc", GREEDY, cache=cache)) == want


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_with_hidden_and_head_computes_the_logits_it_needs(temperature: float) -> None:
    """Same results as through `forward`, but the head runs for one row a token, also for a long prompt.

    KIND: differential.
    """

    class OnlyForward(BagLM):
        def forward(self, ids: Any, positions: Any = None, cache: Any = None) -> Any:
            return super().forward(ids, positions, cache).astype(np.float32) * np.float32(2.0)

    p = SamplingParams(temperature=temperature, max_tokens=15, seed=3)
    for prompt, cache in product(("abc", "abcdefghijk" * 30), ("none", "contiguous")):
        model = HeadLM(max_len=400)
        want = generate(OnlyForward(max_len=400), ABC, prompt, p, cache=cache)
        assert essence(generate(model, ABC, prompt, p, cache=cache)) == essence(want)
        assert model.head_rows == 15


def test_a_prompt_fed_in_pieces_is_the_same_prompt() -> None:
    """However a long prompt is cut into passes, all of it is attended to, once, in order.

    KIND: differential.
    """
    prompt = "abcdefghijk" * 60
    for model in (BagLM(max_len=700), HeadLM(max_len=700)):
        gen = generate(model, ABC, prompt, greedy(max_tokens=3))
        ids = [*ABC.encode(prompt), *gen.ids[:2]]
        assert [token for step in model.passes for token in step.chunk] == ids
        assert model.passes[-1].context == ids
        assert gen.ids == model.greedy(ABC.encode(prompt), 3)


def test_cache_dims_come_from_the_model_or_its_config() -> None:
    """The four attributes, else a config with the Hugging Face names, else an error.

    KIND: unit, smoke.
    """
    model = SimpleNamespace(n_layers=2, n_kv_heads=3, d_head=4, max_len=5)
    assert tuple(cache_dims(model)) == (2, 3, 4, 5)
    config = SimpleNamespace(
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=4,
        hidden_size=24,
        max_position_embeddings=5,
    )
    assert tuple(cache_dims(SimpleNamespace(config=config))) == (2, 3, 4, 5)
    assert tuple(cache_dims(SimpleNamespace(cfg=config))) == (2, 3, 4, 5)
    other = SimpleNamespace(**{**vars(config), "num_hidden_layers": 9})
    model.config = other
    assert tuple(cache_dims(model)) == (2, 3, 4, 5), "its own attributes come first"
    for bad in (SimpleNamespace(), SimpleNamespace(config=SimpleNamespace()), SimpleNamespace(n_layers=2)):
        with pytest.raises(ValueError):
            cache_dims(bad)


def test_a_model_with_a_config_only_can_be_generated_from() -> None:
    """The loop asks `cache_dims`, so the Hugging Face names are enough.

    KIND: unit.
    """
    inner = BagLM()
    config = SimpleNamespace(
        num_hidden_layers=inner.n_layers,
        num_attention_heads=4,
        num_key_value_heads=inner.n_kv_heads,
        head_dim=inner.d_head,
        hidden_size=12,
        max_position_embeddings=20,
    )
    gen = generate(SimpleNamespace(forward=inner.forward, config=config), ABC, "abc", greedy(max_tokens=50))
    assert gen.ids == BagLM().greedy([0, 1, 2], 17)


# --------------------------------------------------------------------------------------------------------- streaming


class Streaming(ScriptLM):
    """A ScriptLM that notes, at the start of each pass, the text handed out so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pieces: list[str] = []
        self.at_pass: list[str] = []

    def forward(self, ids: Any, positions: Any = None, cache: Any = None) -> Any:
        self.at_pass.append("".join(self.pieces))
        return super().forward(ids, positions, cache)


def test_text_streams_as_it_becomes_certain() -> None:
    """With nothing to wait for, each id's text is out before the next pass begins.

    KIND: unit, smoke.
    """
    model = Streaming([0], [1, 2, 3, 4], vocab_size=26)
    gen = generate(model, LETTERS, "a", greedy(max_tokens=4), on_text=model.pieces.append)
    assert model.at_pass == ["", "b", "bc", "bcd"]
    assert "".join(model.pieces) == gen.text == "bcde"


def test_a_tail_that_may_become_a_stop_string_waits() -> None:
    """No part of a stop string is handed out and regretted; when it turns out to be none, it follows.

    KIND: boundary.
    """
    model = Streaming([0], [1, 2, 3, 9, 2, 3, 4, 5], vocab_size=26)  # b c d j c d e f
    gen = generate(model, LETTERS, "a", greedy(max_tokens=8, stop=["cde"]), on_text=model.pieces.append)
    assert gen.text == "".join(model.pieces) == "bcdj"
    assert model.at_pass == ["", "b", "b", "b", "bcdj", "bcdj", "bcdj"]
    model = Streaming([0], [1, 2, 3], vocab_size=26)
    gen = generate(model, LETTERS, "a", greedy(max_tokens=3, stop=["cde"]), on_text=model.pieces.append)
    assert gen.text == "".join(model.pieces) == "bcd", "at the end a waiting tail is text"
    assert gen.finish_reason == "length"


def test_half_a_character_waits_for_the_other_half() -> None:
    """An id may end in the middle of a character; nobody is shown the half.

    KIND: boundary.
    """
    tok = PieceTok(["a", b"\xf0\x9f", b"\x98", b"\x80", b"b\xc3", b"\xa9c"])
    model = Streaming([0], [1, 2, 3, 4, 5, 0], vocab_size=6)
    gen = generate(model, tok, "a", greedy(max_tokens=6), on_text=model.pieces.append)
    assert gen.text == "".join(model.pieces) == "😀béca"
    assert model.at_pass == ["", "", "", "😀", "😀b", "😀béc"]
    for cut in (1, 2, 4):
        model = Streaming([0], [1, 2, 3, 4, 5, 0], vocab_size=6)
        gen = generate(model, tok, "a", greedy(max_tokens=cut), on_text=model.pieces.append)
        assert gen.text == "".join(model.pieces) == tok.decode(gen.ids), "cut off for good, it is U+FFFD"


PIECES = PieceTok(["a", "b", "ab", "ba", b"\xc3", b"\xa9", b"a\xc3", ""])


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=15),
    st.lists(st.text("abé", max_size=4), max_size=3),
    st.integers(1, 15),
    st.sets(st.integers(0, 7), max_size=1),
)
def test_streaming_laws(script: list[int], stop: list[str], budget: int, eos_ids: set[int]) -> None:
    """For any ids, stop strings, budget and EOS: the result is the definition's, the pieces concatenate to the text,
    and what was out before a pass holds no part of what may still become a stop string or another character.

    KIND: property, differential.
    """
    p = greedy(max_tokens=budget, stop=stop)
    model = Streaming([0], script, vocab_size=8)
    gen = generate(model, PIECES, "a", p, eos_ids=eos_ids, on_text=model.pieces.append)
    want = by_definition(ScriptLM([0], script, vocab_size=8), PIECES, "a", p, eos_ids)
    assert essence(gen) == want
    assert "".join(model.pieces) == gen.text
    assert "" not in model.pieces
    for i, out in enumerate(model.at_pass):
        assert gen.text.startswith(out)
        whole = PIECES.decode(gen.ids[:i])
        complete = whole.removesuffix("\ufffd")  # without the first half of a character, if one waits
        assert complete.startswith(out)
        for begin in range(len(out)):
            assert not any(s.startswith(complete[begin:]) for s in stop), f"{complete[begin:]!r} may become a stop"


def test_a_callback_that_returns_false_ends_it() -> None:
    """ "cancelled", no further pass, and ids, logprobs, text and counts that agree.

    KIND: unit.
    """
    full = generate(BagLM(), ABC, "abc", GREEDY)
    for after in range(1, 12):
        pieces: list[str] = []

        def enough(piece: str, pieces: list[str] = pieces, after: int = after) -> bool:
            pieces.append(piece)
            return len(pieces) < after

        model = BagLM()
        gen = generate(model, ABC, "abc", GREEDY, on_text=enough)
        assert gen.finish_reason == "cancelled"
        assert (gen.ids, gen.logprobs) == (full.ids[:after], full.logprobs[:after])
        assert gen.text == "".join(pieces) == full.text[:after]
        assert len(model.passes) == len(gen.rounds) == gen.stats["completion_tokens"] == after
    for value in (None, True, "", []):
        assert essence(generate(BagLM(), ABC, "abc", GREEDY, on_text=lambda _, v=value: v)) == essence(full)


# ------------------------------------------------------------------------------------------------ incremental decoding


def decoded(tok: Any, ids: Any) -> list[str]:
    """The pieces of an incremental decoder, the flushed one last."""
    decoder = IncrementalDecoder(tok)
    return [*(decoder.push(i) for i in ids), decoder.flush()]


def test_incremental_decoding_gives_whole_characters() -> None:
    """Each character comes with its last byte, and a flush gives what can no longer be completed.

    KIND: unit, smoke.
    """
    tok = ByteTokenizer()
    assert decoded(tok, tok.encode("aé")) == ["a", "", "é", ""]
    assert decoded(tok, tok.encode("😀!")) == ["", "", "", "😀", "!", ""]
    assert decoded(tok, [0xF0, 0x9F]) == ["", "", "\ufffd"]
    assert decoded(tok, []) == [""]


@settings(max_examples=200)
@given(st.text())
def test_incremental_decoding_never_shows_half_a_character(text: str) -> None:
    """Any text, byte by byte: after a character's last byte it is out whole, before that nothing of it is.

    KIND: property.
    """
    data = text.encode("utf-8")
    decoder = IncrementalDecoder(ByteTokenizer())
    out = ""
    for i, byte in enumerate(data, start=1):
        out += decoder.push(byte)
        whole = data[:i].decode("utf-8", errors="ignore")  # the characters complete so far
        assert whole.startswith(out)
        assert out == whole or whole.endswith("\ufffd"), "a complete character came late"
    assert out + decoder.flush() == text


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(max_size=20).map(lambda s: s.encode("utf-8")[1:-1]))
def test_incremental_decoding_equals_decoding_for_any_bytes(data: bytes) -> None:
    """Also bytes that are no UTF-8 at all: the pieces concatenate to what decoding everything gives.

    KIND: property, differential.
    """
    tok = ByteTokenizer()
    pieces = decoded(tok, data)
    assert "".join(pieces) == tok.decode(list(data))
    out = ""
    for i, piece in enumerate(pieces[:-1], start=1):
        out += piece
        assert data.decode("utf-8", errors="replace").startswith(out), f"after {i} bytes: regretted later"


@given(st.lists(st.integers(0, 7), max_size=40))
def test_incremental_decoding_equals_decoding_for_any_pieces(ids: list[int]) -> None:
    """Ids of several bytes, of half characters and of no bytes at all.

    KIND: property, differential.
    """
    assert "".join(decoded(PIECES, ids)) == PIECES.decode(ids)


def test_long_runs_of_broken_bytes_stay_right() -> None:
    """A decoder that forgets what it no longer needs must not forget a byte that still matters.

    KIND: boundary.
    """
    tok = ByteTokenizer()
    for unit in (b"\xf0\x9f", b"\xe2\x82", b"\x80", b"\xff", b"\xef\xbf\xbd", b"\xf0\x9f\x98\x80\xc3", b"\xed\xa0\x80"):
        for tail in (b"", b"a", "é".encode(), b"\xc3"):
            data = unit * 40 + tail
            assert "".join(decoded(tok, data)) == data.decode("utf-8", errors="replace")


def test_decoding_costs_the_same_late_as_early() -> None:
    """The decoder does not decode the whole output anew for each id: what it hands to `decode` stays short.

    KIND: property.
    """
    longest = 0

    class Watching(ByteTokenizer):
        def decode(self, ids: Any, skip_special: bool = False) -> str:
            nonlocal longest
            longest = max(longest, len(ids))
            return super().decode(ids)

    text = "plain, é, 😀 and " * 60
    assert "".join(decoded(Watching(), text.encode("utf-8"))) == text
    assert longest < 100
