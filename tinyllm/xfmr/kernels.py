"""The Transformer's arithmetic, compiled with Numba: one row's result never depends on what else is computed with it.

Weights stay in the blocks of their file (Q4_1, Q8_0) or in float16 or float32, only reordered so that eight output rows
lie side by side, one in each lane of a vector. A lane is one output, summed over the inputs in a fixed order that
every token row repeats on its own data. So a row has the same bits alone, in a chunk, in a batch, and on any number
of threads. Beside each kernel stands its plain NumPy form, which defines what it computes.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from tinyllm.num.compiled import compiled

# Threads that wait for work by spinning take the core that another program needs: with the machine half busy, a pass
# then takes several times as long. OpenMP reads this when the first pass starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

LANES = 8  # output rows computed side by side
BLOCK = 32  # weights that share a scale in Q4_1 and Q8_0
AHEAD = 2048  # bytes between a block being computed and the one being fetched
FORMATS = ("F32", "F16", "Q4_1", "Q8_0")
F32, F16, Q4_1, Q8_0 = range(4)
# Bytes of one block of eight output rows: a single input for the float formats, BLOCK inputs for the packed ones.
TILE_BYTES = (4 * LANES, 2 * LANES, 2 * 2 * LANES + LANES * BLOCK // 2, 2 * LANES + LANES * BLOCK)


def _entry(signature: str, parallel: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that Python calls, for one signature, when it is first called."""

    def decorate(function: Callable[..., Any]) -> Any:
        entry = compiled(function, nogil=True, error_model="numpy", parallel=parallel)
        _entries.append((entry, signature))
        return entry

    return decorate


_entries: list[tuple[Any, str]] = []


_inner = njit(nogil=True, error_model="numpy")
_inlined = njit(nogil=True, error_model="numpy", inline="always")  # joins its caller before that is compiled


# --- Lanes: vectors of eight, written out, so that the order of every sum is ours and not the compiler's ---------


class Lanes(types.Type):
    """A Numba type: `rows` vectors of `width` lanes of one element type."""

    def __init__(self, element: str, rows: int, width: int = LANES) -> None:
        self.element, self.rows, self.width = element, rows, width
        super().__init__(name=f"Lanes({rows} x {width} x {element})")

    @property
    def vector(self) -> ir.VectorType:
        """One of the vectors, as LLVM calls it."""
        kinds = {"f32": ir.FloatType(), "i32": ir.IntType(32), "i16": ir.IntType(16)}
        return ir.VectorType(kinds[self.element], self.width)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, ir.ArrayType(lanes.vector, lanes.rows))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, indices: Sequence[Any], to: Any) -> Any:
    """Address of an array element, as a pointer to `to`."""
    box = context.make_array(array_type)(context, builder, array)
    at = cgutils.get_item_pointer(context, builder, array_type, box, list(indices), wraparound=False)
    return builder.bitcast(at, to.as_pointer())


def _neighbours(context: Any, builder: Any, array_type: Any, array: Any, indices: Sequence[Any]) -> Any:
    """Address of an array element whose last axis is known to be contiguous: cheaper than any stride."""
    zero = ir.Constant(indices[-1].type, 0)
    element = context.get_data_type(array_type.dtype)
    start = _pointer(context, builder, array_type, array, [*indices[:-1], zero], element)
    return builder.gep(start, [indices[-1]])


def _splat(builder: Any, value: Any, width: int) -> Any:
    """A vector with `value` in every lane."""
    vector = ir.VectorType(value.type, width)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return _pick(builder, first, [0] * width)


def _pick(builder: Any, vector: Any, lanes: Sequence[int]) -> Any:
    """The vector of the named lanes."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once, in every lane: always fused, so no path can differ by a contraction."""
    kind = ir.FunctionType(a.type, [a.type] * 3)
    name = f"llvm.fma.v{a.type.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])


def _fold(builder: Any, vector: Any, how: str) -> Any:
    """The sum ("add") or largest ("smax") of the 32-bit integers in a vector: exact, so in no particular order."""
    kind = ir.FunctionType(vector.type.element, [vector.type])
    name = f"llvm.vector.reduce.{how}.v{vector.type.count}i32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


def _row(builder: Any, first: Any, r: int) -> Any:
    return builder.add(first, ir.Constant(first.type, r))


def _at(builder: Any, address: Any, kind: Any, words: int = 0) -> Any:
    """The place of a `kind` at an address, so many four-byte words further on."""
    return builder.inttoptr(_row(builder, address, 4 * words), kind.as_pointer())


@intrinsic(prefer_literal=True)
def zeros(typingctx: Any, rows: Any) -> Any:
    """`rows` vectors of float zeros (`rows` a constant)."""
    lanes = Lanes("f32", rows.literal_value)
    return lanes(rows), lambda context, builder, signature, args: context.get_constant_null(lanes)


@intrinsic
def no_total(typingctx: Any, like: Any) -> Any:
    """As many vectors of integer zeros as `like` has."""
    lanes = Lanes("i32", like.rows)
    return lanes(like), lambda context, builder, signature, args: context.get_constant_null(lanes)


# Inside a tile, places are addresses: an array handed from function to function has its references counted each time.


@intrinsic
def address(typingctx: Any, array: Any, at: Any) -> Any:
    """Where array[at] (`at` a tuple) lies in memory. The caller keeps the array alive."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        indices = cgutils.unpack_tuple(builder, args[1], len(at))
        place = _pointer(context, builder, array, args[0], indices, ir.IntType(8))
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(array, at), codegen


def _loader(lanes: Lanes, stored: Any, widen: str | None) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(_at(builder, args[0], ir.VectorType(stored, lanes.width)), align=1)
        if widen is not None:
            loaded = getattr(builder, widen)(loaded, lanes.vector)
        return builder.insert_value(context.get_constant_null(lanes), loaded, 0)

    return lanes(types.int64), codegen


@intrinsic
def words(typingctx: Any, at: Any) -> Any:
    """Sixteen 16-bit words, four nibbles in each."""
    return _loader(Lanes("i16", 1, 2 * LANES), ir.IntType(16), None)


@intrinsic
def signed_bytes(typingctx: Any, at: Any) -> Any:
    """Sixteen signed bytes, widened to 16 bits."""
    return _loader(Lanes("i16", 1, 2 * LANES), ir.IntType(8), "sext")


@intrinsic
def floats(typingctx: Any, at: Any) -> Any:
    """Eight float32 values."""
    return _loader(Lanes("f32", 1), ir.FloatType(), None)


@intrinsic
def halves(typingctx: Any, at: Any) -> Any:
    """Eight float16 values, widened to float32."""
    return _loader(Lanes("f32", 1), ir.HalfType(), "fpext")


@intrinsic
def fetch(typingctx: Any, at: Any) -> Any:
    """Ask memory for bytes before they are needed; changes no value, and may point past the end."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        place = _at(builder, args[0], ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [place.type, i32, i32, i32])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(prefetch, [place, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def nibble(typingctx: Any, words: Any, shift: Any) -> Any:
    """The four bits of each word above bit `shift`, 0 to 15."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shifts = _splat(builder, builder.trunc(args[1], ir.IntType(16)), words.width)
        low = builder.lshr(builder.extract_value(args[0], 0), shifts)
        bits = builder.and_(low, ir.Constant(words.vector, [15] * words.width))
        return builder.insert_value(args[0], bits, 0)

    return words(words, types.int64), codegen


@intrinsic
def add_pairs(typingctx: Any, total: Any, weights: Any, at: Any) -> Any:
    """total[r] + w[0] * x[r, 0] + w[1] * x[r, 1] in every lane, exact; x holds the rows' pairs side by side.

    Two 16-bit products and their sum are one machine instruction on most processors.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        result, w, x = args
        wide = ir.VectorType(ir.IntType(32), 2 * LANES)
        w = builder.sext(builder.extract_value(w, 0), wide)
        for r in range(total.rows):
            pair = builder.load(_at(builder, x, ir.IntType(32), r), align=4)
            pair = builder.bitcast(_splat(builder, pair, LANES), weights.vector)
            products = builder.mul(w, builder.sext(pair, wide))
            even = _pick(builder, products, range(0, 2 * LANES, 2))
            odd = _pick(builder, products, range(1, 2 * LANES, 2))
            total_r = builder.add(builder.extract_value(result, r), builder.add(even, odd))
            result = builder.insert_value(result, total_r, r)
        return result

    return total(total, weights, types.int64), codegen


@intrinsic
def add_scaled(typingctx: Any, acc: Any, scale: Any, total: Any, at: Any) -> Any:
    """acc[r] + scale * (total[r] * x[r]), the sum fused with its product; x holds one float a row."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        result, scale_v, totals, x = args
        scale_v = builder.extract_value(scale_v, 0)
        for r in range(acc.rows):
            factor = builder.load(_at(builder, x, ir.FloatType(), r), align=4)
            counted = builder.sitofp(builder.extract_value(totals, r), acc.vector)
            scaled = builder.fmul(counted, _splat(builder, factor, LANES))
            fused = _fma(builder, scale_v, scaled, builder.extract_value(result, r))
            result = builder.insert_value(result, fused, r)
        return result

    return acc(acc, scale, total, types.int64), codegen


@intrinsic
def add_product(typingctx: Any, acc: Any, w: Any, at: Any) -> Any:
    """acc[r] + w * x[r], fused; x holds one float a row."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        result, w_v, x = args
        w_v = builder.extract_value(w_v, 0)
        for r in range(acc.rows):
            factor = builder.load(_at(builder, x, ir.FloatType(), r), align=4)
            fused = _fma(builder, w_v, _splat(builder, factor, LANES), builder.extract_value(result, r))
            result = builder.insert_value(result, fused, r)
        return result

    return acc(acc, w, types.int64), codegen


@intrinsic
def rows_in(typingctx: Any, acc: Any) -> Any:
    """How many token rows acc is for."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), acc.rows)

    return types.int64(acc), codegen


@intrinsic
def store(typingctx: Any, acc: Any, at: Any, stride: Any) -> Any:
    """Write acc[r] to at + r * stride."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for r in range(acc.rows):
            row = builder.add(args[1], builder.mul(args[2], ir.Constant(args[2].type, r)))
            place = _at(builder, row, acc.vector)
            builder.store(builder.extract_value(args[0], r), place, align=4)
        return context.get_dummy_value()

    return types.void(acc, types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def add_dot(typingctx: Any, acc: Any, a: Any, at_a: Any, b: Any, at_b: Any, n: Any) -> Any:
    """acc + a * b lane by lane, fused, over n (a constant) times eight neighbours from a[at_a] and b[at_b] on."""
    count = n.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = ir.ArrayType(acc.vector, count).as_pointer()
        (a_type, a_at_type), (b_type, b_at_type) = signature.args[1:3], signature.args[3:5]
        a_at = cgutils.unpack_tuple(builder, args[2], len(a_at_type))
        b_at = cgutils.unpack_tuple(builder, args[4], len(b_at_type))
        start_a = builder.bitcast(_neighbours(context, builder, a_type, args[1], a_at), vectors)
        start_b = builder.bitcast(_neighbours(context, builder, b_type, args[3], b_at), vectors)
        total = builder.extract_value(args[0], 0)
        for r in range(count):
            left = builder.load(cgutils.gep_inbounds(builder, start_a, 0, r), align=4)
            right = builder.load(cgutils.gep_inbounds(builder, start_b, 0, r), align=4)
            total = _fma(builder, left, right, total)
        return builder.insert_value(args[0], total, 0)

    return acc(acc, a, at_a, b, at_b, n), codegen


@intrinsic
def add_neighbours(typingctx: Any, acc: Any, array: Any, at: Any) -> Any:
    """acc + eight neighbouring values from array[at] on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _neighbours(context, builder, array, args[1], [args[2]])
        values = builder.load(builder.bitcast(place, acc.vector.as_pointer()), align=4)
        return builder.insert_value(args[0], builder.fadd(builder.extract_value(args[0], 0), values), 0)

    return acc(acc, array, at), codegen


@intrinsic
def lane_sum(typingctx: Any, acc: Any) -> Any:
    """((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7))."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = builder.extract_value(args[0], 0)
        for half in (4, 2, 1):
            v = builder.fadd(_pick(builder, v, range(half)), _pick(builder, v, range(half, 2 * half)))
        return builder.extract_element(v, ir.Constant(ir.IntType(32), 0))

    return types.float32(acc), codegen


@intrinsic
def add_weighted(typingctx: Any, acc: Any, weight: Any, values: Any, at: Any) -> Any:
    """acc + weight * values, fused, for `acc.rows` times eight neighbouring values from `values[at]` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        result, factor, array, index = args
        start = _neighbours(context, builder, values, array, cgutils.unpack_tuple(builder, index, len(at)))
        start = builder.bitcast(start, ir.ArrayType(acc.vector, acc.rows).as_pointer())
        for r in range(acc.rows):
            place = cgutils.gep_inbounds(builder, start, 0, r)
            loaded = builder.load(place, align=4)
            fused = _fma(builder, _splat(builder, factor, LANES), loaded, builder.extract_value(result, r))
            result = builder.insert_value(result, fused, r)
        return result

    return acc(acc, types.float32, values, at), codegen


@intrinsic
def store_along(typingctx: Any, out: Any, row: Any, column: Any, acc: Any) -> Any:
    """out[row, column : column + 8 * acc.rows] = acc, one vector after another."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, first, at, lanes = args
        for r in range(acc.rows):
            place = _pointer(context, builder, out, array, [first, _row(builder, at, 8 * r)], acc.vector)
            builder.store(builder.extract_value(lanes, r), place, align=4)
        return context.get_dummy_value()

    return types.void(out, row, column, acc), codegen


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
        fetch(at + AHEAD)
        fetch(at + AHEAD + 64)
        fetch(at + AHEAD + 128)
        total = no_total(acc)
        for _ in range(4):  # 32 inputs, eight at a time
            packed = words(at + 32)
            total = add_pairs(total, nibble(packed, 0), rounded)
            total = add_pairs(total, nibble(packed, 4), rounded + step)
            total = add_pairs(total, nibble(packed, 8), rounded + 2 * step)
            total = add_pairs(total, nibble(packed, 12), rounded + 3 * step)
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
        for ahead in range(0, 272, 64):
            fetch(at + AHEAD + ahead)
        total = no_total(acc)
        for k in range(16):  # 32 inputs, two at a time
            total = add_pairs(total, signed_bytes(at + 16 + 16 * k), rounded)
            rounded += step
        acc = add_scaled(acc, halves(at), total, scales)
        at += 272
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
    if left >= 8 or left == 4:
        return 4
    return 5 if left >= 5 else 2 if left >= 2 else 1


@_inner
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
            elif n == 2:
                store(_tile(zeros(2), at, blocks, kind, r, s, m), to + done * width, width)
            else:
                store(_tile(zeros(1), at, blocks, kind, r, s, m), to + done * width, width)
            done += n


@intrinsic
def round_block(typingctx: Any, at: Any, to: Any, step: Any) -> Any:
    """Write 32 floats as 16-bit integers, the largest 32767, a pair every `step` bytes; return scale and sum."""
    result = types.Tuple([types.float32, types.int32])

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        f32, i32 = ir.FloatType(), ir.IntType(32)
        block, pairs = ir.VectorType(f32, BLOCK), ir.VectorType(i32, BLOCK // 2)
        values = builder.load(_at(builder, args[0], block), align=4)
        # Without their sign bit, floats are ordered as their bits are; integers have one maximum in any order.
        bits = builder.bitcast(values, ir.VectorType(i32, BLOCK))
        bits = builder.and_(bits, ir.Constant(bits.type, [0x7FFFFFFF] * BLOCK))
        largest = builder.bitcast(_fold(builder, bits, "smax"), f32)
        least = ir.Constant(f32, 2.0**-100)  # a block this small is as good as zero, and its inverse would overflow
        inverse = builder.fdiv(ir.Constant(f32, 32767.0), largest)
        inverse = builder.select(builder.fcmp_ordered("<", largest, least), ir.Constant(f32, 0.0), inverse)
        nearest = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(block, [block]), f"llvm.rint.v{BLOCK}f32"
        )
        near = builder.call(nearest, [builder.fmul(values, _splat(builder, inverse, BLOCK))])
        integers = builder.fptosi(near, ir.VectorType(i32, BLOCK))
        narrow = builder.bitcast(builder.trunc(integers, ir.VectorType(ir.IntType(16), BLOCK)), pairs)
        to = args[1]
        for i in range(BLOCK // 2):
            builder.store(builder.extract_element(narrow, i32(i)), _at(builder, to, i32), align=4)
            to = builder.add(to, args[2])
        scale = builder.fdiv(largest, ir.Constant(f32, 32767.0))
        return context.make_tuple(builder, result, [scale, _fold(builder, integers, "add")])

    return result(types.int64, types.int64, types.int64), codegen


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


@_inner
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


@_inner
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


@_inner
def attend(
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


@_entry("f4[:,::1](u1[::1], i8[:,::1], f4[:,::1], i8)", parallel=True)
def product(data: Bytes, matrices: Ints, x: Floats, parts: int) -> Floats:
    """x @ W.T for every row of x and every W of `matrices` [n, 4], side by side; eight columns are the least."""
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
            _linear(data, matrices[i], x, rounded, scales, sums, out, column, np.int64(part), parts)
            column += (matrices[i, 2] + 7) // 8 * 8
    return out


@_entry("f4[:,::1](f4[:,::1], i8, f4[:,:,:,:], f4[:,:,:,:], i8[::1], i8[::1], i8[::1], i8[::1], i8)", parallel=True)
def attention(
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
    """Row r of q asks the keys of sequence owner[r] in slots[begin[r]:end[r]] and mixes their values."""
    scores = np.empty((parts, len(slots)), np.float32)
    out = np.empty((len(q), n_heads * keys.shape[3]), np.float32)
    for part in prange(parts):
        attend(q, n_heads, keys, values, owner, slots, begin, end, scores, out, np.int64(part), parts)
    return out


@_inner
def _add(x: Floats, y: Floats) -> None:
    for row in range(len(x)):
        for k in range(x.shape[1]):
            x[row, k] += y[row, k]


@_entry(
    "f4[:,::1](u1[::1], i8[:,::1], f4[:,::1], f4, f4[:,::1], f4[:,::1], i8, f4[:,::1], i8[::1], f4[:,::1], i8,"
    " f4[:,:,:,:], f4[:,:,:,:], i8[::1], i8[::1], i8[::1], i8[::1], i8)"
)
def to_next_cache(
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
        _add(x, product(data, layer[3:4], attention(q, n_heads, keys, values, owner, slots, begin, end, parts), parts))
        gate_up = product(data, layer[4:6], rms_norm(x, norms[2 * i - 1], eps), parts)
        inner = np.empty((len(x), gate_up.shape[1] // 2), np.float32)
        swiglu(gate_up, inner)
        _add(x, product(data, layer[6:7], inner, parts))
    rows: Floats = rms_norm(x, norms[2 * i], eps)
    if 2 * i + 1 == len(norms):
        return rows
    qkv: Floats = product(data, table[7 * i + 1 : 7 * i + 4], rows, parts)
    d_head = 2 * cos.shape[1]
    rope(qkv, cos, sin, positions, (table[7 * i + 1, 2] + table[7 * i + 2, 2]) // d_head)
    return qkv


@_entry("void(Array(u1, 2, 'C', readonly=True), i8[::1], u1[::1])")
def _pack(raw: Bytes, matrix: Ints, data: Bytes) -> None:
    """Reorder one matrix's bytes into tiles; rows past the last stay zero."""
    start, kind, n_out, n_in = matrix[0], matrix[1], matrix[2], matrix[3]
    tiles = (n_out + 7) // 8
    for tile in range(tiles):
        for lane in range(min(8, n_out - 8 * tile)):
            row = raw[8 * tile + lane]
            if kind in (F32, F16):
                size = 4 if kind == F32 else 2
                for k in range(n_in):
                    for i in range(size):
                        data[start + ((tile * n_in + k) * 8 + lane) * size + i] = row[k * size + i]
            elif kind == Q8_0:
                for b in range(n_in // 32):
                    at = start + (tile * (n_in // 32) + b) * 272
                    data[at + 2 * lane] = row[34 * b]
                    data[at + 2 * lane + 1] = row[34 * b + 1]
                    for k in range(32):
                        data[at + 16 + (k // 2 * 8 + lane) * 2 + k % 2] = row[34 * b + 2 + k]
            else:
                for b in range(n_in // 32):
                    at = start + (tile * (n_in // 32) + b) * 160
                    for i in range(2):
                        data[at + 2 * lane + i] = row[20 * b + i]
                        data[at + 16 + 2 * lane + i] = row[20 * b + 2 + i]
                    # Word g of a lane pair holds inputs 8 g + parity + 0, 2, 4, 6 from its lowest bits up.
                    for g in range(4):
                        for parity in range(2):
                            k = 8 * g % 16 + parity
                            high = 4 if g >= 2 else 0
                            word = at + 32 + 32 * g + (2 * lane + parity) * 2
                            source = 20 * b + 4 + k
                            data[word] = (row[source] >> high & 15) | (row[source + 2] >> high & 15) << 4
                            data[word + 1] = (row[source + 4] >> high & 15) | (row[source + 6] >> high & 15) << 4


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
    data = np.zeros(size, np.uint8)
    prepare()
    for row, (_, _, raw) in zip(table, matrices, strict=True):
        _pack(raw, row, data)
    return Packed(data, table)


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
    if kind == Q8_0:
        q = tiles[:, :, 16:].view(np.int8).reshape(*tiles.shape[:2], 16, 8, 2)
        q = q[np.arange(len(ids)), :, :, ids % LANES].reshape(*tiles.shape[:2], 32)
        return np.reshape(d * q.astype(np.float32), (len(ids), n_in))
    m = numbers(tiles[:, :, 16:32], np.float16)
    words = np.ascontiguousarray(tiles[:, :, 32:]).view(np.uint16).reshape(*tiles.shape[:2], 4, 8, 2)
    words = words[np.arange(len(ids)), :, :, ids % LANES]  # [rows, blocks, 4, 2]
    q = (words[:, :, :, None, :] >> np.arange(0, 16, 4, dtype=np.uint16)[:, None]) & 15
    return (d * q.reshape(*tiles.shape[:2], 32).astype(np.float32) + m).reshape(len(ids), n_in)


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


def prepare() -> None:
    """Compile the kernels, or read them from Numba's cache; says so when it takes more than a second."""
    word = "Compiling the kernels: ten to twenty seconds, once; they are kept on disk for the next time."
    late = threading.Timer(1.0, print, [word], {"file": sys.stderr, "flush": True})
    late.start()
    with one_caller:
        for entry, signature in _entries:
            if not entry.signatures:
                entry.compile(signature)
                entry.disable_compile()
    late.cancel()
