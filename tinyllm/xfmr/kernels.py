"""The Transformer's arithmetic, compiled with Numba: one row's result never depends on what else is computed with it.

Weights stay in the blocks of their file (Q4_1, Q8_0) or in float16 or float32, only reordered so that eight output rows
lie side by side, one in each lane of a vector. A lane is one output, summed over the inputs in a fixed order that
every token row repeats on its own data. So a row has the same bits alone, in a chunk, in a batch, and on any number
of threads. Beside each kernel stands its plain NumPy form, which defines what it computes.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import cfunc, njit, prange
from numpy.typing import NDArray

from tinyllm.num.compiled import compiled
from tinyllm.xfmr.lanes import (
    BLOCK,
    LANES,
    PAIRS,
    add_bytes,
    add_dot,
    add_neighbours,
    add_nibbles,
    add_product,
    add_scaled,
    add_weighted,
    address,
    call,
    fetch,
    floats,
    halves,
    lane_sum,
    no_total,
    round_block,
    rows_in,
    store,
    store_along,
    zeros,
)

# Threads that wait for work by spinning take the core that another program needs: with the machine half busy, a pass
# then takes several times as long. OpenMP reads this when the first pass starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

AHEAD = 2048  # bytes between a block being computed and the one being fetched
# In which order a block's inputs meet its weights: pairs that lie as the file's own 32-bit words of nibbles have them.
ORDER = np.array(PAIRS).reshape(-1)
FORMATS = ("F32", "F16", "Q4_1", "Q8_0")
F32, F16, Q4_1, Q8_0 = range(4)
# Bytes of one block of eight output rows: a single input for the float formats, BLOCK inputs for the packed ones.
TILE_BYTES = (4 * LANES, 2 * LANES, 2 * 2 * LANES + LANES * BLOCK // 2, 2 * LANES + LANES * BLOCK)


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_alone: list[tuple[Callable[..., Any], str]] = []
_entries: list[tuple[Any, str]] = []
LINEAR, ATTEND = range(2)  # places in `_alone`


def _by_address(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function once, alone: others `call` it at its address. What they name, they compile in themselves."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _alone.append((function, signature))
        return function

    return decorate


def _entry(signature: str, parallel: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that Python calls, for one signature. Its first argument is what `prepare` returns."""

    def decorate(function: Callable[..., Any]) -> Any:
        entry = compiled(function, parallel=parallel, **_OPTIONS)
        _entries.append((entry, signature))
        return entry

    return decorate


_inner = njit(**_OPTIONS)
_inlined = njit(**_OPTIONS, inline="always")  # joins its caller before that is compiled


# --- Linear layers --------------------------------------------------------------------------------------------------


def plain_product(x: Floats, weights: Floats) -> Floats:
    """What `product` computes, up to rounding: x [rows, inputs] times weights [outputs, inputs] transposed."""
    out: Floats = x @ weights.T
    return out


@_inlined
def _tile_q4_1(acc: Any, at: int, blocks: int, rounded: int, scales: int, sums: int) -> Any:
    """Eight outputs for a few token rows, from Q4_1 blocks: sum over blocks of d * (q . x) + m * sum(x)."""
    step = 4 * rows_in(acc)  # bytes from one pair, or one scale, of every row to the next
    for _ in range(blocks):
        fetch(at + AHEAD, 160)
        total = no_total(acc)
        for _ in range(4):  # 32 inputs, eight at a time
            total = add_nibbles(total, at + 32, rounded)
            rounded += 4 * step
            at += 32
        acc = add_scaled(acc, halves(at - 128), total, scales)
        acc = add_product(acc, halves(at - 112), sums)
        at += 32
        scales += step
        sums += step
    return acc


@_inlined
def _tile_q8_0(acc: Any, at: int, blocks: int, rounded: int, scales: int) -> Any:
    """Eight outputs for a few token rows, from Q8_0 blocks: sum over blocks of d * (q . x)."""
    step = 4 * rows_in(acc)
    for _ in range(blocks):
        fetch(at + AHEAD, 272)
        total = no_total(acc)
        for _ in range(4):
            total = add_bytes(total, at + 16, rounded)
            rounded += 4 * step
            at += 64
        acc = add_scaled(acc, halves(at - 256), total, scales)
        at += 16
        scales += step
    return acc


@_inlined
def _tile_float(acc: Any, at: int, n_in: int, kind: int, x: int) -> Any:
    """Eight outputs for one token row, from float16 or float32 weights, input by input."""
    for k in range(n_in):
        w = floats(at + 32 * k) if kind == F32 else halves(at + 16 * k)
        acc = add_product(acc, w, x + 4 * k)
    return acc


@_inlined
def _tile(acc: Any, at: int, blocks: int, kind: int, rounded: int, scales: int, sums: int) -> Any:
    if kind == Q4_1:
        return _tile_q4_1(acc, at, blocks, rounded, scales, sums)
    return _tile_q8_0(acc, at, blocks, rounded, scales)


@_inlined
def _rows_at_once(left: int) -> int:
    """How many of the rows that are left the next tile takes: more rows share the work of unpacking the weights."""
    return 4 if left == 4 or left >= 8 else 5 if left >= 5 else 1


@_by_address("void(u1[::1], i8[::1], f4[:,::1], i4[::1], f4[::1], f4[::1], f4[:,::1], i8, i8, i8)")
def _linear(
    data: Bytes,
    matrix: Ints,
    x: Floats,
    rounded: NDArray[np.int32],
    scales: Floats,
    sums: Floats,
    out: Floats,
    column: int,
    part: int,
    parts: int,
) -> None:
    """One thread's share of out[:, column:] = x @ W.T: whole tiles of eight outputs, never part of a sum."""
    start, kind, n_out, n_in = matrix[0], matrix[1], matrix[2], matrix[3]
    tiles, blocks = (n_out + 7) // 8, n_in // 32
    tile_bytes = blocks * (160 if kind == Q4_1 else 272)
    if kind in (F32, F16):
        tile_bytes = n_in * (32 if kind == F32 else 16)
    width = 4 * out.shape[1]
    for tile in range(tiles * part // parts, tiles * (part + 1) // parts):
        at, to = address(data, (start + tile * tile_bytes,)), address(out, (0, column + 8 * tile))
        if kind in (F32, F16):
            for row in range(len(x)):
                store(_tile_float(zeros(1), at, n_in, kind, address(x, (row, 0))), to + row * width, width)
            continue
        done = np.int64(0)  # not a constant: Numba would compile every tile twice
        while done < len(x):
            r, s, m = (
                address(rounded, (done * 16 * blocks,)),
                address(scales, (done * blocks,)),
                address(sums, (done * blocks,)),
            )
            n = _rows_at_once(len(x) - done)
            if n == 5:
                store(_tile(zeros(5), at, blocks, kind, r, s, m), to + done * width, width)
            elif n == 4:
                store(_tile(zeros(4), at, blocks, kind, r, s, m), to + done * width, width)
            else:
                store(_tile(zeros(1), at, blocks, kind, r, s, m), to + done * width, width)
            done += n


def plain_rounding(x: Floats) -> Floats:
    """What packed weights are multiplied with: x [rows, inputs], each block of 32 on a grid of 65,535 even steps."""
    blocks = x.reshape(len(x), -1, BLOCK)  # [rows, blocks, 32]
    scale = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(32767)
    on_grid: Floats = np.rint(blocks / np.where(scale > 0, scale, 1)) * scale
    return on_grid.reshape(x.shape)


@_inner
def round_rows(x: Floats, rounded: NDArray[np.int32], scales: Floats, sums: Floats) -> None:
    """Each block of 32 activations as 16-bit integers times a scale, and sums = scale * sum(integers).

    The rows of a tile lie side by side: input pair by input pair, and block by block, one entry a row.
    """
    blocks = x.shape[1] // 32
    done = np.int64(0)
    while done < len(x):
        n = _rows_at_once(len(x) - done)
        for r in range(n):
            for b in range(blocks):
                to = address(rounded, (16 * (done * blocks + b * n) + r,))
                scale, total = round_block(address(x, (done + r, 32 * b)), to, 4 * n)
                scales[done * blocks + b * n + r] = scale
                sums[done * blocks + b * n + r] = np.float32(total) * scale
        done += n


# --- The other row by row steps -------------------------------------------------------------------------------------


@_inlined
def _exp(x: Any) -> Any:
    """e**x in float32 to 2 units in the last place, 0 below -87: 2**n times a polynomial (Cephes expf)."""
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    n = np.rint(x * np.float32(1.44269504))
    r = (x - n * np.float32(0.693359375)) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * np.int32((np.int32(n) + 127) << 23).view(np.float32)


def plain_rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Rows over their root mean square, times weight (Zhang and Sennrich 2019)."""
    size = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(eps))  # [rows, 1]
    out: Floats = x / size * weight
    return out


@_inner
def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """x / sqrt(mean(x**2) + eps) * weight, row by row; the squares in eight interleaved float32 sums."""
    out = np.empty_like(x)
    for row in range(len(x)):
        squares = zeros(1)
        n = x.shape[1]
        for k in range(0, n, 8):
            squares = add_dot(squares, x, (row, k), x, (row, k), 1)
        scale = np.float32(1.0) / np.sqrt(lane_sum(squares) / np.float32(n) + eps)
        for k in range(n):
            out[row, k] = x[row, k] * scale * weight[k]
    return out


def plain_rope(x: Floats, cos: Floats, sin: Floats, positions: Ints) -> Floats:
    """Rotary positions (Su et al. 2021), on neighbours: x [rows, heads, d_head], angles [max_len, d_head / 2]."""
    c, s = cos[positions][:, None], sin[positions][:, None]  # [rows, 1, d_head / 2]
    a, b = x[..., 0::2], x[..., 1::2]  # [rows, heads, d_head / 2]
    return np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(x.shape)


@_inlined
def rope(x: Floats, cos: Floats, sin: Floats, positions: Ints, n_heads: int) -> None:
    """Turn each neighbouring pair of a head's coordinates by its position's angles, in place."""
    half = cos.shape[1]
    for row in range(len(x)):
        p = positions[row]
        for h in range(n_heads):
            for i in range(half):
                at = 2 * (h * half + i)
                a, b = x[row, at], x[row, at + 1]
                x[row, at] = a * cos[p, i] - b * sin[p, i]
                x[row, at + 1] = a * sin[p, i] + b * cos[p, i]


def plain_swiglu(gate: Floats, up: Floats) -> Floats:
    """The gate of the feed-forward block (Shazeer 2020)."""
    out: Floats = gate / (1 + np.exp(-gate)) * up
    return out


@_inlined
def swiglu(gate_up: Floats, out: Floats) -> None:
    """out = gate / (1 + exp(-gate)) * up, where gate_up holds both side by side."""
    n = out.shape[1]
    for row in range(len(out)):
        for k in range(n):
            gate = gate_up[row, k]
            out[row, k] = gate / (np.float32(1.0) + _exp(-gate)) * gate_up[row, n + k]


def plain_attention(
    q: Floats,
    keys: Floats,
    values: Floats,
    owner: Ints,
    slots: Ints,
    begin: Ints,
    end: Ints,
) -> Floats:
    """Row r of q [rows, heads, d_head] asks the keys [B, n_kv_heads, n, d_head] of sequence owner[r] in slots
    begin[r]:end[r], and mixes their values: [rows, heads, d_head]. Heads share keys in groups (Ainslie et al. 2023).
    """
    out = np.empty_like(q)
    group = q.shape[1] // keys.shape[1]
    for r, row in enumerate(q):
        seen = slots[begin[r] : end[r]]
        k = np.repeat(keys[owner[r]][:, seen], group, axis=0)  # [heads, seen, d_head]
        v = np.repeat(values[owner[r]][:, seen], group, axis=0)
        scores = (k @ row[:, :, None])[:, :, 0] / np.float32(math.sqrt(q.shape[2]))  # [heads, seen]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[r] = (weights[:, None] @ v)[:, 0]
    return out


@_inlined
def softmax(weights: Floats, n: int) -> None:
    """The first n weights to probabilities, in place; their sum in eight interleaved sums, then what is left over."""
    largest = np.float32(-np.inf)
    for i in range(n):
        largest = max(largest, weights[i])
    for i in range(n):
        weights[i] = _exp(weights[i] - largest)
    sums = zeros(1)
    for i in range(0, n - n % 8, 8):
        sums = add_neighbours(sums, weights, i)
    total = lane_sum(sums)
    for i in range(n - n % 8, n):
        total += weights[i]
    for i in range(n):
        weights[i] /= total


@_inlined
def _mix(acc: Any, weights: Floats, n: int, values: Floats, b: int, kv: int, slots: Ints, first: int, d: int) -> Any:
    """Sum over a row's slots, in their order, of weight times value, for 8 * acc.rows coordinates from d on."""
    for i in range(n):
        acc = add_weighted(acc, weights[i], values, (b, kv, slots[first + i], d))
    return acc


@_by_address(
    "void(f4[:,::1], i8, f4[:,:,:,:], f4[:,:,:,:], i8[::1], i8[::1], i8[::1], i8[::1], f4[:,::1], f4[:,::1], i8, i8)"
)
def _attend(
    q: Floats,
    n_heads: int,
    keys: Floats,
    values: Floats,
    owner: Ints,
    slots: Ints,
    begin: Ints,
    end: Ints,
    scores: Floats,
    out: Floats,
    part: int,
    parts: int,
) -> None:
    """One thread's share of attention: every `parts`-th (row, head) pair, over that row's slots in their order."""
    n_kv, d_head = keys.shape[1], keys.shape[3]
    scale = np.float32(1.0 / math.sqrt(d_head))
    weights = scores[part]
    for unit in range(part, len(q) * n_heads, parts):
        row, h = unit // n_heads, unit % n_heads
        b, kv, first, n = owner[row], h // (n_heads // n_kv), begin[row], end[row] - begin[row]
        wide = d_head - d_head % 64  # eight vectors at a time, then one: the order is the same for every row
        for i in range(n):
            key = (b, kv, slots[first + i])
            score = zeros(1)
            for d in range(0, wide, 64):
                score = add_dot(score, q, (row, h * d_head + d), keys, (*key, d), 8)
            for d in range(wide, d_head, 8):
                score = add_dot(score, q, (row, h * d_head + d), keys, (*key, d), 1)
            weights[i] = lane_sum(score) * scale
        softmax(weights, n)
        for d in range(0, wide, 64):
            store_along(out, row, h * d_head + d, _mix(zeros(8), weights, n, values, b, kv, slots, first, d))
        for d in range(wide, d_head, 8):
            store_along(out, row, h * d_head + d, _mix(zeros(1), weights, n, values, b, kv, slots, first, d))


# --- What the model calls -------------------------------------------------------------------------------------------


@_entry("f4[:,::1](i8[::1], u1[::1], i8[:,::1], f4[:,::1], i8)", parallel=True)
def _product(alone: Ints, data: Bytes, matrices: Ints, x: Floats, parts: int) -> Floats:
    """`product`, given the addresses of the functions that are compiled alone."""
    blocks = len(x) * (x.shape[1] // 32)
    rounded = np.empty(16 * blocks, np.int32)  # two 16-bit integers in each
    scales, sums = np.empty(blocks, np.float32), np.empty(blocks, np.float32)
    round_rows(x, rounded, scales, sums)
    width = np.int64(0)
    for i in range(len(matrices)):
        width += (matrices[i, 2] + 7) // 8 * 8
    out = np.empty((len(x), width), np.float32)
    for part in prange(parts):
        column = np.int64(0)
        for i in range(len(matrices)):
            call(alone[LINEAR], (data, matrices[i], x, rounded, scales, sums, out, column, np.int64(part), parts))
            column += (matrices[i, 2] + 7) // 8 * 8
    return out


@_entry(
    "f4[:,::1](i8[::1], f4[:,::1], i8, f4[:,:,:,:], f4[:,:,:,:], i8[::1], i8[::1], i8[::1], i8[::1], i8)", parallel=True
)
def _attention(
    alone: Ints,
    q: Floats,
    n_heads: int,
    keys: Floats,
    values: Floats,
    owner: Ints,
    slots: Ints,
    begin: Ints,
    end: Ints,
    parts: int,
) -> Floats:
    """`attention`, given the addresses of the functions that are compiled alone."""
    scores = np.empty((parts, len(slots)), np.float32)
    out = np.empty((len(q), n_heads * keys.shape[3]), np.float32)
    for part in prange(parts):
        call(alone[ATTEND], (q, n_heads, keys, values, owner, slots, begin, end, scores, out, np.int64(part), parts))
    return out


@_inlined
def _add(x: Floats, y: Floats) -> None:
    for row in range(len(x)):
        for k in range(x.shape[1]):
            x[row, k] += y[row, k]


@_entry(
    "f4[:,::1](i8[::1], u1[::1], i8[:,::1], f4[:,::1], f4, f4[:,::1], f4[:,::1], i8, f4[:,::1], i8[::1], f4[:,::1], i8,"
    " f4[:,:,:,:], f4[:,:,:,:], i8[::1], i8[::1], i8[::1], i8[::1], i8)"
)
def _to_next_cache(
    alone: Ints,
    data: Bytes,
    table: Ints,
    norms: Floats,
    eps: float,
    cos: Floats,
    sin: Floats,
    i: int,
    x: Floats,
    positions: Ints,
    q: Floats,
    n_heads: int,
    keys: Floats,
    values: Floats,
    owner: Ints,
    slots: Ints,
    begin: Ints,
    end: Ints,
    parts: int,
) -> Floats:
    """From one layer's cache to the next one's: what is left of layer i - 1, then q, k and v of layer i, side by side.

    x is changed in place; after the last layer it is normed.
    """
    if i > 0:
        layer = table[7 * i - 6 : 7 * i + 1]
        _add(
            x,
            _product(
                alone,
                data,
                layer[3:4],
                _attention(alone, q, n_heads, keys, values, owner, slots, begin, end, parts),
                parts,
            ),
        )
        gate_up = _product(alone, data, layer[4:6], rms_norm(x, norms[2 * i - 1], eps), parts)
        inner = np.empty((len(x), gate_up.shape[1] // 2), np.float32)
        swiglu(gate_up, inner)
        _add(x, _product(alone, data, layer[6:7], inner, parts))
    rows: Floats = rms_norm(x, norms[2 * i], eps)
    if 2 * i + 1 == len(norms):
        return rows
    qkv: Floats = _product(alone, data, table[7 * i + 1 : 7 * i + 4], rows, parts)
    d_head = 2 * cos.shape[1]
    rope(qkv, cos, sin, positions, (table[7 * i + 1, 2] + table[7 * i + 2, 2]) // d_head)
    return qkv


class Packed(NamedTuple):
    """Matrices ready for the kernels: all their bytes, and where, of which format and shape each one is."""

    data: Bytes  # [bytes]
    table: Ints  # [n, 4]: first byte, index in FORMATS, outputs, inputs


def packed_size(format: str, n_out: int, n_in: int) -> int:
    """Bytes that a matrix takes once packed."""
    blocks = n_in if format in ("F32", "F16") else n_in // BLOCK
    return (n_out + LANES - 1) // LANES * blocks * TILE_BYTES[FORMATS.index(format)]


def pack(matrices: Sequence[tuple[str, tuple[int, int], Bytes]]) -> Packed:
    """Pack (format, (outputs, inputs), bytes [outputs, bytes per row]) matrices for the kernels.

    ValueError for a format that is not F32, F16, Q4_1 or Q8_0, or a shape its blocks cannot have.
    """
    table = np.zeros((len(matrices), 4), np.int64)
    size = 0
    for i, (format, (n_out, n_in), raw) in enumerate(matrices):
        if format not in FORMATS:
            raise ValueError(f"Format {format} is not one the kernels compute with: {', '.join(FORMATS)}.")
        if format in ("Q4_1", "Q8_0") and n_in % BLOCK:
            raise ValueError(f"A {format} matrix has {n_in} inputs; they come in blocks of {BLOCK}.")
        if raw.shape != (n_out, packed_size(format, LANES, n_in) // LANES):
            raise ValueError(
                f"A {format} matrix of {n_out} x {n_in} has bytes of shape {list(raw.shape)}; "
                f"{[n_out, packed_size(format, LANES, n_in) // LANES]} is needed."
            )
        table[i] = size, FORMATS.index(format), n_out, n_in
        size += packed_size(format, n_out, n_in)
    data = np.empty(size, np.uint8)
    for (start, kind, n_out, n_in), (format, _, raw) in zip(table.tolist(), matrices, strict=True):
        tiles = data[start : start + packed_size(format, n_out, n_in)].reshape(-(-n_out // LANES), -1, TILE_BYTES[kind])
        whole = n_out // LANES
        _fill(kind, raw[: whole * LANES].reshape(whole, LANES, raw.shape[1]), tiles[:whole])
        if whole < len(tiles):  # rows past the last are zero
            rest = np.zeros((1, LANES, raw.shape[1]), np.uint8)
            rest[0, : n_out - whole * LANES] = raw[whole * LANES :]
            _fill(kind, rest, tiles[whole:])
    return Packed(data, table)


def _fill(kind: int, raw: Bytes, tiles: Bytes) -> None:
    """Reorder the bytes of eight rows at a time, raw [n, 8, bytes per row], into tiles [n, blocks, TILE_BYTES]."""
    if kind in (F32, F16):
        numbers = np.uint32 if kind == F32 else np.uint16
        tiles.view(numbers)[:] = raw.view(numbers).swapaxes(1, 2)  # [n, inputs, 8]
        return
    blocks = raw.reshape(len(raw), LANES, tiles.shape[1], 34 if kind == Q8_0 else 20).swapaxes(
        1, 2
    )  # [n, blocks, 8, 34 or 20]
    scales, weights = tiles[:, :, : 2 * LANES].view(np.uint16), blocks[:, :, :, -BLOCK if kind == Q8_0 else -16 :]
    scales[:] = blocks[:, :, :, :2].view(np.uint16)[:, :, :, 0]
    if kind == Q8_0:
        pairs = np.take(weights, ORDER, axis=3).view(np.uint16)  # [n, blocks, 8, 16]
        tiles[:, :, 16:].view(np.uint16).reshape(pairs.swapaxes(2, 3).shape)[:] = pairs.swapaxes(2, 3)
    else:
        tiles[:, :, 16:32].view(np.uint16)[:] = blocks[:, :, :, 2:4].view(np.uint16)[:, :, :, 0]
        words = weights.view(np.uint32)  # [n, blocks, 8, 4]
        tiles[:, :, 32:].view(np.uint32).reshape(words.swapaxes(2, 3).shape)[:] = words.swapaxes(2, 3)


def weight_rows(packed: Packed, i: int, ids: NDArray[np.integer]) -> Floats:
    """Rows `ids` of matrix i as float32 [len(ids), inputs]: exactly the numbers the file stands for."""
    start, kind, n_out, n_in = (int(value) for value in packed.table[i])
    size = packed_size(FORMATS[kind], n_out, n_in)
    tiles = packed.data[start : start + size].reshape((n_out + 7) // 8, -1, TILE_BYTES[kind])[ids // LANES]
    lane = (ids % LANES)[:, None, None]

    def numbers(piece: Bytes, dtype: type[np.floating]) -> Floats:
        lanes = np.ascontiguousarray(piece).view(dtype).astype(np.float32)  # [rows, blocks, 8]
        return np.take_along_axis(lanes, lane, axis=2)  # [rows, blocks, 1]

    if kind in (F32, F16):
        return numbers(tiles, np.float32 if kind == F32 else np.float16)[:, :, 0]
    d = numbers(tiles[:, :, :16], np.float16)
    q = np.empty((len(ids), tiles.shape[1], BLOCK), np.float32)
    if kind == Q8_0:
        pairs = tiles[:, :, 16:].view(np.int8).reshape(*tiles.shape[:2], 16, LANES, 2)
        q[:, :, ORDER] = pairs[np.arange(len(ids)), :, :, ids % LANES].reshape(q.shape)
        return (d * q).reshape(len(ids), n_in)
    words = tiles[:, :, 32:].view(np.uint16).reshape(*tiles.shape[:2], 4, LANES, 2)
    words = words[np.arange(len(ids)), :, :, ids % LANES]  # [rows, blocks, 4, 2]
    nibbles = (words[:, :, :, None, :] >> np.arange(0, 16, 4, dtype=np.uint16)[:, None]) & 15
    q[:, :, ORDER] = nibbles.reshape(q.shape)
    return (d * q + numbers(tiles[:, :, 16:32], np.float16)).reshape(len(ids), n_in)


# --- Threads ---------------------------------------------------------------------------------------------------------

one_caller = threading.RLock()  # Numba's plainest threading layer crashes when two Python threads start work at once


def threads() -> int:
    """How many threads a pass is split over."""
    return int(numba.get_num_threads())


def set_threads(n: int) -> None:
    """Split passes over n threads; the results stay the same bits. ValueError unless 1 <= n <= what Numba started."""
    if not 1 <= n <= numba.config.NUMBA_NUM_THREADS:
        raise ValueError(f"{n} threads were asked for; 1 to {numba.config.NUMBA_NUM_THREADS} can be had here.")
    numba.set_num_threads(n)


def product(data: Bytes, matrices: Ints, x: Floats, parts: int) -> Floats:
    """x @ W.T for every row of x and every W of `matrices` [n, 4], side by side; eight columns are the least."""
    out: Floats = _product(prepare(), data, matrices, x, parts)
    return out


def attention(
    q: Floats, n_heads: int, keys: Floats, values: Floats, owner: Ints, slots: Ints, begin: Ints, end: Ints, parts: int
) -> Floats:
    """Row r of q asks the keys of sequence owner[r] in slots[begin[r]:end[r]] and mixes their values."""
    out: Floats = _attention(prepare(), q, n_heads, keys, values, owner, slots, begin, end, parts)
    return out


def to_next_cache(*arguments: Any) -> Floats:
    """One step of the forward pass; see `_to_next_cache` for the arguments after the first."""
    out: Floats = _to_next_cache(prepare(), *arguments)
    return out


PATIENCE = 3.0  # seconds; the cache is read in half a second, or in two on a busy machine
_ready: list[tuple[Ints, list[Any]]] = []  # addresses, and what keeps them valid


def prepare() -> Ints:
    """Compile the kernels, or read them from Numba's cache, and return the addresses of those compiled alone.

    Says so when it takes longer than reading them does; costs nothing when it was done before.
    """
    with one_caller:
        if not _ready:
            word = "Compiling the kernels: about ten seconds, once; they are kept on disk for the next time."
            late = threading.Timer(PATIENCE, print, [word], {"file": sys.stderr, "flush": True})
            late.start()
            collecting = gc.isenabled()
            gc.disable()  # the compiler makes many objects that stay: looking through them costs an eighth
            try:
                kept = [_kept_on_disk(function, signature) for function, signature in _alone]
                for entry, signature in _entries:
                    entry.compile(signature)
                    entry.disable_compile()
            finally:
                late.cancel()
                if collecting:
                    gc.enable()
            _ready.append((np.array([function.address for function in kept]), kept))
    return _ready[0][0]


def _kept_on_disk(function: Callable[..., Any], signature: str) -> Any:
    try:
        return cfunc(signature, cache=True, **_OPTIONS)(function)
    except RuntimeError:  # Numba found no folder to keep it in; see `compiled`
        return cfunc(signature, **_OPTIONS)(function)
