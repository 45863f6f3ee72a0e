"""The kernels: each one against its plain form, and each row's bits against the same row computed alone."""

from __future__ import annotations

import time

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinyllm.xfmr import kernels

FLOATS = {"F32": np.float32, "F16": np.float16}
FORMATS = ("F32", "F16", "Q4_1", "Q8_0")


def stored(format: str, weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bytes of a file for these weights, made by the `gguf` package."""
    if format in FLOATS:
        return weights.astype(FLOATS[format]).view(np.uint8)
    return quants.quantize(weights, GGMLQuantizationType[format])


def meant(format: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The weights that a file's bytes stand for, by the `gguf` package."""
    if format in FLOATS:
        return raw.view(FLOATS[format]).astype(np.float32)
    return quants.dequantize(raw, GGMLQuantizationType[format])


def packed(format: str, n_out: int, n_in: int, seed: int) -> tuple[kernels.Packed, NDArray[np.float32]]:
    raw = stored(format, np.random.default_rng(seed).standard_normal((n_out, n_in), dtype=np.float32))
    return kernels.pack([(format, (n_out, n_in), raw)]), meant(format, raw)


def activations(rows: int, width: int, seed: int) -> NDArray[np.float32]:
    """Rows with the outliers that real activations have."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, width)) * np.exp(rng.standard_normal(width))).astype(np.float32)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n_out", [1, 7, 8, 40])
def test_packed_weights_are_exactly_what_the_gguf_package_reads(format: str, n_out: int) -> None:
    """A nibble in the wrong place is a wrong model that still talks.

    KIND: differential.
    """
    packing, weights = packed(format, n_out, 96, seed=n_out)
    rows = np.random.default_rng(1).permutation(n_out)
    assert np.array_equal(kernels.weight_rows(packing, 0, rows), weights[rows])


@pytest.mark.parametrize("format", FORMATS)
def test_weights_of_every_bit_pattern_survive_packing(format: str) -> None:
    """Quantised random numbers miss corner cases: scales that are negative, zero or tiny, and every nibble and byte.

    KIND: differential, boundary.
    """
    block = {"F32": 4, "F16": 2, "Q4_1": 20, "Q8_0": 34}[format]
    raw = np.random.default_rng(3).integers(0, 256, (16, 8 * block), dtype=np.uint8)
    with np.errstate(invalid="ignore"):  # some scales are infinite
        weights = meant(format, raw)
        packing = kernels.pack([(format, (16, weights.shape[1]), raw)])
        assert np.array_equal(kernels.weight_rows(packing, 0, np.arange(16)), weights, equal_nan=True)


@given(
    format=st.sampled_from(FORMATS),
    n_out=st.integers(1, 50),
    blocks=st.integers(1, 5),
    rows=st.integers(1, 17),
    seed=st.integers(0, 99),
)
def test_products_agree_with_their_plain_form(format: str, n_out: int, blocks: int, rows: int, seed: int) -> None:
    """The kernel computes x @ W.T: the packed formats on rounded activations, to float32 accuracy.

    KIND: property, differential.
    """
    packing, weights = packed(format, n_out, 32 * blocks, seed)
    x = activations(rows, 32 * blocks, seed)
    used = x if format in FLOATS else kernels.plain_rounding(x)
    exact = used.astype(np.float64) @ weights.T.astype(np.float64)
    size = np.abs(used).astype(np.float64) @ np.abs(weights).T  # what rounding errors are relative to
    out = kernels.product(*packing, x, 2)
    assert np.all(np.abs(out[:, :n_out] - exact) <= 1e-5 * size)
    assert np.all(out[:, n_out:] == 0)
    assert np.allclose(out[:, :n_out], kernels.plain_product(x, weights), atol=1e-4 * size.max())


@given(
    format=st.sampled_from(FORMATS),
    n_out=st.integers(1, 50),
    blocks=st.integers(1, 5),
    rows=st.integers(2, 19),
    parts=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_a_row_of_a_product_has_the_same_bits_alone(
    format: str, n_out: int, blocks: int, rows: int, parts: int, seed: int
) -> None:
    """Tiles of one, four and five rows, and any split over threads, do the same operations in the same order.

    KIND: property. Pitfalls: 10.
    """
    packing, _ = packed(format, n_out, 32 * blocks, seed)
    x = activations(rows, 32 * blocks, seed)
    together = kernels.product(*packing, x, parts)
    alone = [kernels.product(*packing, x[r : r + 1], 1)[0] for r in range(rows)]
    assert np.array_equal(together, alone)


def test_matrices_side_by_side_equal_matrices_apart() -> None:
    """Queries, keys and values are one call, in formats that a file may mix.

    KIND: unit.
    """
    rng = np.random.default_rng(5)
    shapes = {"Q4_1": (24, 64), "F16": (9, 64), "Q8_0": (16, 64), "F32": (8, 64)}
    raws = {f: stored(f, rng.standard_normal(shape, dtype=np.float32)) for f, shape in shapes.items()}
    packing = kernels.pack([(f, shapes[f], raw) for f, raw in raws.items()])
    x = activations(6, 64, 5)
    apart = [kernels.product(packing.data, packing.table[i : i + 1], x, 1) for i in range(4)]
    assert np.array_equal(kernels.product(*packing, x, 2), np.hstack(apart))


@given(rows=st.integers(1, 6), blocks=st.integers(1, 4), seed=st.integers(0, 99))
def test_rounding_moves_an_activation_by_half_a_step_at_most(rows: int, blocks: int, seed: int) -> None:
    """A step is the block's largest magnitude over 32,767; zeros stay zeros, and the integers' sum is exact.

    KIND: property, boundary.
    """
    x = activations(rows, 32 * blocks, seed)
    x[0, :32] = 0
    step = np.repeat(np.abs(x).reshape(rows, blocks, 32).max(axis=2) / 32767, 32, axis=1)
    for r in range(rows):
        pairs = np.empty(16 * blocks, np.int32)
        scales, sums = np.empty(blocks, np.float32), np.empty(blocks, np.float32)
        kernels.round_rows(x[r : r + 1], pairs, scales, sums)
        integers = np.empty((blocks, 32), np.int64)
        integers[:, kernels.ORDER] = pairs.view(np.int16).reshape(blocks, 32)
        integers = integers.reshape(-1)
        assert np.all(np.abs(integers * np.repeat(scales, 32) - x[r]) <= 0.501 * step[r])
        assert np.array_equal(sums, integers.reshape(blocks, 32).sum(axis=1).astype(np.float32) * scales)
    assert np.all(np.abs(kernels.plain_rounding(x) - x) <= 0.501 * step)


def test_a_number_that_is_not_finite_does_not_pass_unseen() -> None:
    """An infinite or missing activation must reach the logits as one, not as a plausible number.

    KIND: boundary.
    """
    for format in FORMATS:
        packing, _ = packed(format, 8, 64, seed=1)
        for bad in (np.inf, -np.inf, np.nan):
            x = activations(2, 64, 1)
            x[1, 40] = bad
            out = kernels.product(*packing, x, 1)
            assert np.all(np.isfinite(out[0]))
            assert not np.any(np.isfinite(out[1]))


@given(rows=st.integers(1, 9), width=st.sampled_from([8, 24, 64, 576]), seed=st.integers(0, 99))
def test_norms_and_gates_agree_with_their_plain_forms(rows: int, width: int, seed: int) -> None:
    """To float32 accuracy, and each row with the bits it has alone.

    KIND: property, differential.
    """
    x, eps = activations(rows, 2 * width, seed), np.float32(1e-5)
    weight = activations(1, 2 * width, seed + 1)[0]
    normed = kernels.rms_norm(x, weight, eps)
    assert np.allclose(normed, kernels.plain_rms_norm(x, weight, eps), rtol=1e-5, atol=1e-6)
    gated = np.empty((rows, width), np.float32)
    kernels.swiglu(x, gated)
    with np.errstate(over="ignore"):  # the plain form reaches 0 by way of infinity
        plain = kernels.plain_swiglu(x[:, :width], x[:, width:])
    assert np.allclose(gated, plain, rtol=1e-5, atol=1e-6)
    for r in range(rows):
        alone = np.empty((1, width), np.float32)
        kernels.swiglu(x[r : r + 1], alone)
        assert np.array_equal(alone[0], gated[r])
        assert np.array_equal(kernels.rms_norm(x[r : r + 1], weight, eps)[0], normed[r])


def test_gates_are_right_far_from_zero() -> None:
    """The exponential is our own: it must not overflow or turn round at the ends of float32.

    KIND: boundary.
    """
    gate = np.array([[-1e4, -200, -88, -87, -20, -1e-8, 0, 1e-8, 20, 88, 200, 1e4]], np.float32)
    out = np.empty_like(gate)
    kernels.swiglu(np.hstack([gate, np.ones_like(gate)]), out)
    with np.errstate(over="ignore"):
        exact = gate / (1 + np.exp(-gate.astype(np.float64)))
    assert np.allclose(out, exact, rtol=1e-6, atol=1e-30)


@given(rows=st.integers(1, 5), heads=st.integers(1, 4), d_head=st.sampled_from([8, 16, 64]), seed=st.integers(0, 99))
def test_rotation_agrees_with_its_plain_form(rows: int, heads: int, d_head: int, seed: int) -> None:
    """Each pair turns by its own position's angle; heads past n_heads, the values, stay.

    KIND: property, differential.
    """
    rng = np.random.default_rng(seed)
    angles = rng.random((20, d_head // 2)) * 100
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    positions = rng.integers(0, 20, rows)
    x = activations(rows, (heads + 1) * d_head, seed)
    turned = x.copy()
    kernels.rope(turned, cos, sin, positions, heads)
    plain = kernels.plain_rope(x.reshape(rows, heads + 1, d_head), cos, sin, positions)
    assert np.allclose(turned[:, : heads * d_head], plain[:, :heads].reshape(rows, -1), rtol=1e-5, atol=1e-5)
    assert np.array_equal(turned[:, heads * d_head :], x[:, heads * d_head :])


@given(data=st.data(), d_head=st.sampled_from([8, 24, 64, 72]), groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_attention_agrees_with_its_plain_form_and_rows_with_themselves_alone(
    data: st.DataObject, d_head: int, groups: int, seed: int
) -> None:
    """Rows of two sequences with slots in any order: one may see a prefix, another a branch. None touches another.

    KIND: property, differential. Pitfalls: 10.
    """
    rng = np.random.default_rng(seed)
    n_kv, n, rows = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 40)), data.draw(st.integers(1, 6))
    heads = n_kv * groups
    room = rng.standard_normal((2, 2, n_kv, n + 3, d_head), dtype=np.float32)
    keys, values = room[0][:, :, :n], room[1][:, :, :n]  # views with gaps, as a cache gives them
    q = rng.standard_normal((rows, heads * d_head), dtype=np.float32)
    owner = rng.integers(0, 2, rows)
    seen = [rng.permutation(n)[: rng.integers(1, n + 1)] for _ in range(rows)]
    slots, end = np.concatenate(seen), np.cumsum([len(s) for s in seen])
    begin = end - [len(s) for s in seen]
    out = kernels.attention(q, heads, keys, values, owner, slots, begin, end, 2)
    plain = kernels.plain_attention(q.reshape(rows, heads, d_head), keys, values, owner, slots, begin, end)
    assert np.allclose(out, plain.reshape(rows, -1), rtol=1e-4, atol=1e-5)
    for r in range(rows):
        zero, all_of_them = np.zeros(1, np.int64), np.array([len(seen[r])])
        its_own, one = keys[owner[r] :][:1].copy(), values[owner[r] :][:1].copy()
        alone = kernels.attention(q[r : r + 1], heads, its_own, one, zero, seen[r], zero, all_of_them, 1)
        assert np.array_equal(alone[0], out[r])


def test_attention_reads_slots_in_the_order_given() -> None:
    """A branch whose keys lie scattered in the cache has the bits of the same keys in a row.

    KIND: unit.
    """
    rng = np.random.default_rng(8)
    keys, values = rng.standard_normal((2, 1, 2, 30, 64), dtype=np.float32)
    q = rng.standard_normal((1, 4 * 64), dtype=np.float32)
    branch = np.array([3, 4, 9, 17, 20, 21, 22, 23, 29])
    zero, n = np.zeros(1, np.int64), np.array([len(branch)])
    scattered = kernels.attention(q, 4, keys, values, zero, branch, zero, n, 1)
    in_a_row = kernels.attention(
        q, 4, keys[:, :, branch].copy(), values[:, :, branch].copy(), zero, np.arange(len(branch)), zero, n, 1
    )
    assert np.array_equal(scattered, in_a_row)


def test_unknown_formats_and_broken_blocks_are_refused_by_name() -> None:
    """A format the kernels do not know must not be read as one they do.

    KIND: boundary.
    """
    raw = np.zeros((8, 144), np.uint8)
    with pytest.raises(ValueError, match="Q4_K"):
        kernels.pack([("Q4_K", (8, 256), raw)])
    with pytest.raises(ValueError, match="48 inputs"):
        kernels.pack([("Q8_0", (8, 48), raw)])
    with pytest.raises(ValueError, match="bytes"):
        kernels.pack([("Q8_0", (8, 64), raw)])


def test_threads_out_of_range_are_refused() -> None:
    """KIND: boundary."""
    before = kernels.threads()
    for n in (0, 10_000):
        with pytest.raises(ValueError, match=str(n)):
            kernels.set_threads(n)
    assert kernels.threads() == before


@pytest.mark.parametrize(("takes", "said"), [(0.0, False), (0.3, True)])
def test_a_word_is_said_when_compiling_takes_long_and_none_when_the_cache_is_read(
    takes: float, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten silent seconds look like a hang; a word that comes every time would stand in the output of a cell.

    KIND: boundary.
    """

    class Entry:
        def compile(self, signature: str) -> None:
            time.sleep(takes)

        def disable_compile(self) -> None:
            pass

    monkeypatch.setattr(kernels, "_ready", [])
    monkeypatch.setattr(kernels, "_alone", [])
    monkeypatch.setattr(kernels, "_entries", [(Entry(), "void()")])
    monkeypatch.setattr(kernels, "PATIENCE", 0.1)
    kernels.prepare()
    assert capsys.readouterr().err.startswith("Compiling the kernels") is said
