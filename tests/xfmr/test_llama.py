"""The Llama: against a forward pass in plain NumPy, and its logits' bits against every other way to cut the pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinyllm.infer.generate import generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams
from tinyllm.xfmr import kernels
from tinyllm.xfmr.gguf import GGUFFile, GGUFTensor, read_gguf
from tinyllm.xfmr.llama import Llama, LlamaConfig, Weight

SMALL = LlamaConfig(
    n_layers=3, n_heads=4, n_kv_heads=2, d_head=16, d_model=64, d_ff=96, vocab_size=61, max_len=48, rope_base=100.0
)
# How a file may mix formats: (embedding, the other matrices).
MIXES = {"F32": ("F32", "F32"), "F16": ("F16", "F16"), "packed": ("Q8_0", "Q4_1")}


def random_tensors(config: LlamaConfig, mix: str, seed: int = 0) -> dict[str, Weight]:
    """Random weights of the sizes that keep a small model's logits apart, in the formats of a mix."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in config.shapes().items():
        if len(shape) == 1:
            raw = (1 + 0.1 * rng.standard_normal((1, *shape))).astype(np.float32).view(np.uint8)
            tensors[name] = Weight("F32", shape, raw)
            continue
        weights = rng.standard_normal(shape, dtype=np.float32) * np.float32(1.5 / np.sqrt(shape[1]))
        format = MIXES[mix][0 if name == "token_embd.weight" else 1]
        if format in ("F32", "F16"):
            raw = weights.astype({"F32": np.float32, "F16": np.float16}[format]).view(np.uint8)
        else:
            raw = quants.quantize(weights, GGMLQuantizationType[format])
        tensors[name] = Weight(format, shape, raw)
    return tensors


def as_floats(tensors: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    kinds = {"F32": np.float32, "F16": np.float16}
    return {
        name: (
            t.data.view(kinds[t.format]).astype(np.float32)
            if t.format in kinds
            else quants.dequantize(t.data, GGMLQuantizationType[t.format])
        ).reshape(t.shape)
        for name, t in tensors.items()
    }


def plain_forward(c: LlamaConfig, w: dict[str, NDArray[np.float32]], ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits [T, V] of one sequence, by the plain forms of the kernels."""
    T = len(ids)
    places, zero = np.arange(T), np.zeros(T, np.int64)
    angles = places[:, None] * c.rope_base ** (-np.arange(0, c.d_head, 2) / c.d_head)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    x = w["token_embd.weight"][ids]  # [T, d_model]
    for i in range(c.n_layers):
        layer = {name: w[f"blk.{i}.{name}.weight"] for name in LAYER}
        rows = kernels.plain_rms_norm(x, layer["attn_norm"], c.norm_eps)
        q, k, v = (
            kernels.plain_product(rows, layer[name]).reshape(T, -1, c.d_head) for name in ("attn_q", "attn_k", "attn_v")
        )  # [T, heads, d_head]
        q, k = kernels.plain_rope(q, cos, sin, places), kernels.plain_rope(k, cos, sin, places)
        keys, values = (new.swapaxes(0, 1)[None] for new in (k, v))  # [1, n_kv_heads, T, d_head]
        mixed = kernels.plain_attention(q, keys, values, zero, places, zero, places + 1).reshape(T, -1)
        x = x + kernels.plain_product(mixed, layer["attn_output"])
        rows = kernels.plain_rms_norm(x, layer["ffn_norm"], c.norm_eps)
        gate, up = (kernels.plain_product(rows, layer[name]) for name in ("ffn_gate", "ffn_up"))
        x = x + kernels.plain_product(kernels.plain_swiglu(gate, up), layer["ffn_down"])
    return kernels.plain_product(kernels.plain_rms_norm(x, w["output_norm.weight"], c.norm_eps), w["token_embd.weight"])


LAYER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
MODELS = {mix: Llama(SMALL, random_tensors(SMALL, mix)) for mix in MIXES}


def new_cache(model: Llama, batch: int = 1, dtype: Any = np.float32) -> KVCache:
    return KVCache(model.n_layers, model.n_kv_heads, model.d_head, model.max_len, batch, dtype)


def in_chunks(model: Llama, ids: NDArray[np.int64], cuts: list[int], cache: KVCache) -> NDArray[np.float32]:
    """Logits [B, T, V] of ids [B, T] fed in chunks that end at the cuts."""
    edges = sorted({0, ids.shape[1], *cuts})
    pieces = [model.forward(ids[:, a:b], None, cache) for a, b in pairwise(edges)]
    return np.concatenate(pieces, axis=1)


@pytest.mark.parametrize("mix", MIXES)
def test_logits_are_those_of_the_plain_forward_pass(mix: str) -> None:
    """Rotation, grouping, norms and residuals in the right places, in every format.

    KIND: differential.
    """
    ids = np.random.default_rng(2).integers(0, SMALL.vocab_size, 20)
    plain = plain_forward(SMALL, as_floats(random_tensors(SMALL, mix)), ids)
    logits = MODELS[mix].forward(ids[None])[0]
    assert logits.dtype == np.float32
    assert np.std(plain) > 0.5  # a model whose logits are all alike would agree with anything
    assert np.allclose(logits, plain, atol=2e-3)


@given(
    mix=st.sampled_from(list(MIXES)),
    cuts=st.lists(st.integers(1, 39), max_size=8),
    batch=st.integers(1, 3),
    half=st.booleans(),
    seed=st.integers(0, 50),
)
@settings(max_examples=40)
def test_logits_have_the_same_bits_however_the_pass_is_cut(
    mix: str, cuts: list[int], batch: int, half: bool, seed: int
) -> None:
    """One token a pass, any chunks, no cache, a row of a batch: the same logits. With a float16 cache too.

    KIND: property. Pitfalls: 10.
    """
    model = MODELS[mix]
    ids = np.random.default_rng(seed).integers(0, model.vocab_size, (batch, 40))
    dtype = np.float16 if half else np.float32
    one_by_one = in_chunks(model, ids[:1], list(range(40)), new_cache(model, 1, dtype))
    chunked = in_chunks(model, ids, cuts, new_cache(model, batch, dtype))
    assert np.array_equal(chunked[0], one_by_one[0])
    if not half:
        assert np.array_equal(chunked, model.forward(ids))


def test_threads_do_not_change_a_bit() -> None:
    """Threads share out output rows, never a sum.

    KIND: unit.
    """
    before, ids = kernels.threads(), np.arange(30)[None]
    try:
        for model in MODELS.values():
            seen = []
            for n in (1, before):
                kernels.set_threads(n)
                seen.append(model.forward(ids))
            assert np.array_equal(*seen)
    finally:
        kernels.set_threads(before)


def test_a_rollback_leaves_no_trace() -> None:
    """Rejected drafts are written into the cache and cut off again; the next logits must not know.

    KIND: property. Pitfalls: 10.
    """
    model, rng = MODELS["packed"], np.random.default_rng(4)
    ids = rng.integers(0, model.vocab_size, (1, 40))
    cache, whole = new_cache(model), model.forward(ids)
    while cache.seq_len() < 40:
        kept, drafted = cache.seq_len(), int(rng.integers(0, 8))
        right = int(rng.integers(1, 9))
        drafts = rng.integers(0, model.vocab_size, (1, drafted))
        fed = np.concatenate([ids[:, kept : kept + right], drafts], axis=1)[:, : 48 - kept]
        logits = model.forward(fed, None, cache)
        right = min(right, 40 - kept)
        assert np.array_equal(logits[:, :right], whole[:, kept : kept + right])
        cache.truncate(kept + right)


def test_hidden_rows_and_head_make_the_logits() -> None:
    """The loops compute logits only for the rows they need.

    KIND: unit.
    """
    model, ids = MODELS["packed"], np.arange(24).reshape(2, 12)
    hidden, logits = model.hidden(ids), model.forward(ids)
    assert hidden.shape == (2, 12, model.d_model)
    assert hidden.dtype == np.float32
    assert np.array_equal(model.head(hidden), logits)
    assert np.array_equal(model.head(hidden[1, 7]), logits[1, 7])
    assert np.array_equal(model.head(hidden[:, -1]), logits[:, -1])


def test_positions_are_where_the_rotation_starts_from() -> None:
    """Given positions equal to the cache's are the default; only distances matter to attention.

    KIND: unit.
    """
    model, ids = MODELS["F32"], np.arange(10)[None]
    assert np.array_equal(model.forward(ids, np.arange(10)), model.forward(ids))
    moved = model.forward(ids, np.arange(10) + 5)
    assert not np.array_equal(moved, model.forward(ids))
    assert np.allclose(moved, model.forward(ids), atol=1e-3)


@pytest.mark.parametrize("mix", MIXES)
def test_first_layers_are_a_smaller_model_on_the_same_weights(mix: str) -> None:
    """A draft from the target's own layers, with no second copy in memory.

    KIND: differential.
    """
    ids, model = np.arange(15), MODELS[mix]
    short = model.first_layers(2)
    plain = plain_forward(replace(SMALL, n_layers=2), as_floats(random_tensors(SMALL, mix)), ids)
    assert short.n_layers == 2
    assert short._packed.data is model._packed.data
    assert np.allclose(short.forward(ids[None])[0], plain, atol=2e-3)
    assert np.array_equal(model.first_layers(3).forward(ids[None]), model.forward(ids[None]))
    for n in (0, 4):
        with pytest.raises(ValueError, match=str(n)):
            model.first_layers(n)


@pytest.mark.parametrize(
    ("ids", "positions", "word"),
    [
        ([[61]], None, "vocabulary"),
        ([[-1]], None, "vocabulary"),
        ([1, 2], None, "shape"),
        ([[]], None, "empty"),
        ([[1.5]], None, "integers"),
        ([[1] * 49], None, "max_len"),
        ([[1, 2]], [0], "positions"),
        ([[1, 2]], [47, 48], "positions"),
        ([[1, 2]], [-1, 0], "positions"),
    ],
)
def test_what_a_caller_gets_wrong_is_said(ids: Any, positions: Any, word: str) -> None:
    """KIND: boundary."""
    with pytest.raises(ValueError, match=word):
        MODELS["F32"].forward(ids, positions)


def test_a_pass_that_does_not_fit_changes_nothing() -> None:
    """A cache that is full to the model's last position takes no more, and stays as it was.

    KIND: boundary.
    """
    model = MODELS["F32"]
    cache = KVCache(model.n_layers, model.n_kv_heads, model.d_head, 100)
    ids = np.arange(48)[None]
    model.forward(ids[:, :47], None, cache)
    with pytest.raises(ValueError, match="max_len"):
        model.forward(ids[:, :2], None, cache)
    assert cache.seq_len() == 47
    assert np.array_equal(model.forward(ids[:, 47:], None, cache)[:, 0], model.forward(ids)[:, 47])


def gguf_file(tensors: dict[str, Weight], config: LlamaConfig = SMALL, **changes: Any) -> GGUFFile:
    """What `read_gguf` would have read of a file with these tensors; None takes a metadata key away."""
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": config.n_layers,
        "llama.context_length": config.max_len,
        "llama.embedding_length": config.d_model,
        "llama.feed_forward_length": config.d_ff,
        "llama.attention.head_count": config.n_heads,
        "llama.attention.head_count_kv": config.n_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
        "llama.rope.freq_base": config.rope_base,
    } | changes
    return GGUFFile(
        Path("small.gguf"),
        {key: value for key, value in metadata.items() if value is not None},
        {name: GGUFTensor(name, t.format, t.shape, t.data) for name, t in tensors.items()},
    )


def test_a_file_gives_the_model_of_its_weights() -> None:
    """KIND: unit."""
    model = Llama.from_gguf(gguf_file(random_tensors(SMALL, "packed")))
    ids = np.arange(9)[None]
    assert model.config == SMALL
    assert np.array_equal(model.forward(ids), MODELS["packed"].forward(ids))


def test_a_file_that_is_not_a_whole_llama_is_refused_by_name() -> None:
    """A wrong model is worse than none: each fault is a sentence with the file's name and what is wrong.

    KIND: boundary.
    """
    good = random_tensors(SMALL, "packed")
    name = "blk.1.ffn_up.weight"
    faults: list[tuple[GGUFFile, str]] = [
        (gguf_file(good, **{"general.architecture": "gpt2"}), "gpt2"),
        (gguf_file(good, **{"llama.block_count": None}), "llama.block_count"),
        (gguf_file(good, **{"llama.block_count": 4}), r"blk\.3\.attn_norm\.weight"),
        (gguf_file(good, **{"llama.attention.head_count": 3}), "heads"),
        (gguf_file(good, **{"llama.rope.scaling.type": "linear"}), "scaling"),
        (gguf_file(good, **{"llama.rope.dimension_count": 8}), "dimension_count"),
        (gguf_file({n: t for n, t in good.items() if n != name}), name),
        (gguf_file(good | {name: good[name]._replace(shape=(64, 96))}), name),
        (gguf_file(good | {name: good[name]._replace(format="Q6_K")}), "Q6_K"),
        (gguf_file(good | {"output_norm.weight": good["output_norm.weight"]._replace(format="F16")}), "output_norm"),
        (gguf_file(good | {"output.weight": good["token_embd.weight"]}), "output.weight"),
        (gguf_file(good | {"blk.0.attn_q.bias": good["output_norm.weight"]}), "attn_q.bias"),
    ]
    for file, word in faults:
        with pytest.raises(ValueError, match=word) as error:
            Llama.from_gguf(file)
        assert "small.gguf" in str(error.value)


def test_sizes_the_kernels_cannot_run_are_refused() -> None:
    """KIND: boundary."""
    for change in ({"n_kv_heads": 3}, {"d_head": 12}, {"d_model": 60}, {"d_ff": 0}):
        config = replace(SMALL, **change)
        with pytest.raises(ValueError, match=next(iter(change)) if "n_kv_heads" not in change else "heads"):
            Llama(config, {})
    with pytest.raises(ValueError, match="float64"):
        Llama(SMALL, {n: np.zeros(s) for n, s in SMALL.shapes().items()})


@pytest.fixture(scope="module")
def smollm2() -> Llama:
    from tinyllm import zoo

    return zoo.smollm2()[0]


PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"
KNOWN = [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33, 29, 34, 34, 216]


@pytest.mark.model
def test_the_real_model_says_what_it_is_known_to_say(smollm2: Llama) -> None:
    """ " Paris.", two line ends, "The answer is: 2018-01-22 ": greedy, one token a pass.

    KIND: smoke.
    """
    cache, ids = new_cache(smollm2.first_layers(30)), list(PROMPT)
    row = smollm2.forward([ids], None, cache)[0, -1]
    for _ in KNOWN:
        ids.append(int(np.argmax(row)))
        row = smollm2.forward([ids[-1:]], None, cache)[0, -1]
    assert ids[len(PROMPT) :] == KNOWN


@pytest.mark.model
def test_the_real_models_logits_have_the_same_bits_in_every_chunk(smollm2: Llama) -> None:
    """Alone, in chunks of 2 to 17, in prefill, after rollbacks, on one thread and on two.

    KIND: property. Pitfalls: 10.
    """
    ids = np.array([PROMPT + KNOWN + PROMPT + KNOWN[:4]])  # 34 tokens
    whole, cache, before = smollm2.forward(ids), KVCache(30, 3, 64, 40), kernels.threads()
    try:
        for threads, chunk in product({1, before}, range(1, 18)):
            kernels.set_threads(threads)
            cache.truncate(0)
            assert np.array_equal(in_chunks(smollm2, ids, list(range(0, 34, chunk)), cache), whole)
        for kept in (20, 13, 4):
            cache.truncate(kept)
            smollm2.forward(ids[:, ::-1][:, :6], None, cache)  # six wrong drafts
            cache.truncate(kept)
            assert np.array_equal(smollm2.forward(ids[:, kept : kept + 9], None, cache), whole[:, kept : kept + 9])
        assert np.array_equal(smollm2.forward(np.vstack([ids[:, ::-1], ids]))[1], whole[0])
    finally:
        kernels.set_threads(before)


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_real_model_writes_the_same_with_and_without_a_cache_in_any_chunks(
    smollm2: Llama, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids and logprobs to the bit: what a prompt's passes are is nobody's business but the clock's.

    KIND: property. Pitfalls: 10.
    """
    from tinyllm import zoo

    tok = zoo.smollm2()[1]
    prompt = (
        "In a house of three rooms by the harbour lived an old woman who kept seven grey geese. Every morning"
    )
    p = SamplingParams(temperature=temperature, seed=3, max_tokens=10)
    alone = generate(smollm2, tok, prompt, p, cache="none")
    assert len(alone.ids) == len(alone.logprobs) == 10
    for chunk in (1, 2, 5, 16, 256):
        monkeypatch.setattr("tinyllm.infer.generate.CHUNK", chunk)
        cached = generate(smollm2, tok, prompt, p, cache="contiguous")
        assert cached.ids == alone.ids
        assert cached.logprobs == alone.logprobs


@pytest.mark.model
def test_the_real_model_agrees_with_the_plain_forward_pass(smollm2: Llama) -> None:
    """Every weight in its place: NumPy on dequantised weights gives the same logits to a few thousandths.

    KIND: differential.
    """
    from tinyllm import zoo

    file = read_gguf(zoo.smollm2_path())
    ids = np.array(PROMPT + KNOWN[:7])
    plain = plain_forward(smollm2.config, as_floats(file.tensors), ids)
    logits = smollm2.forward(ids[None])[0]
    assert np.abs(logits - plain).max() < 0.02
    assert np.array_equal(np.argmax(logits, axis=1), np.argmax(plain, axis=1))
