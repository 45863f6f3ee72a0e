"""Vectors of eight, written out: the order of every sum, and where it is fused, is ours and not the compiler's.

Numba has no vectors, so these are LLVM's (Lattner and Adve 2004), given to compiled functions as intrinsics: `Lanes`
is a few vectors of eight lanes, and each function below is a handful of machine instructions on them. What they
guarantee: the same operations in the same order in every lane, whatever the compiler, so the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 8  # output rows computed side by side
BLOCK = 32  # weights that share a scale in Q4_1 and Q8_0
# The order in which a block's inputs are multiplied, two at a time. A Q4_1 block holds inputs i and i + 16 in byte i;
# bits 0, 4, 8 and 12 upwards of two neighbouring 16-bit words then are these pairs.
PAIRS = [(4 * word + i, 4 * word + i + 2) for word in range(4) for i in (0, 16, 1, 17)]


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
def floats(typingctx: Any, at: Any) -> Any:
    """Eight float32 values."""
    return _loader(Lanes("f32", 1), ir.FloatType(), None)


@intrinsic
def halves(typingctx: Any, at: Any) -> Any:
    """Eight float16 values, widened to float32."""
    return _loader(Lanes("f32", 1), ir.HalfType(), "fpext")


@intrinsic(prefer_literal=True)
def fetch(typingctx: Any, at: Any, size: Any) -> Any:
    """Ask memory for `size` (a constant) bytes before they are needed; changes no value, may point past the end."""
    ahead = size.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        for line in range(0, ahead, 64):
            place = _at(builder, args[0], ir.IntType(8), line // 4)
            kind = ir.FunctionType(ir.VoidType(), [place.type, i32, i32, i32])
            prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(prefetch, [place, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(types.int64, size), codegen


def _add_pairs(builder: Any, totals: list[Any], weights: Any, x: Any) -> list[Any]:
    """totals[r] + w[0] * x[r, 0] + w[1] * x[r, 1] in every lane, exact; x holds the rows' pairs side by side.

    Two 16-bit products and their sum are one machine instruction on most processors.
    """
    wide = ir.VectorType(ir.IntType(32), 2 * LANES)
    w = builder.sext(weights, wide)
    sums = []
    for r, total in enumerate(totals):
        pair = builder.load(_at(builder, x, ir.IntType(32), r), align=4)
        pair = builder.bitcast(_splat(builder, pair, LANES), weights.type)
        products = builder.mul(w, builder.sext(pair, wide))
        even = _pick(builder, products, range(0, 2 * LANES, 2))
        odd = _pick(builder, products, range(1, 2 * LANES, 2))
        sums.append(builder.add(total, builder.add(even, odd)))
    return sums


def _adder(total: Any, unpack: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        totals = [builder.extract_value(args[0], r) for r in range(total.rows)]
        for i, weights in enumerate(unpack(builder, args[1])):
            totals = _add_pairs(builder, totals, weights, _row(builder, args[2], 4 * total.rows * i))
        result = args[0]
        for r, sum_r in enumerate(totals):
            result = builder.insert_value(result, sum_r, r)
        return result

    return total(total, types.int64, types.int64), codegen


@intrinsic
def add_nibbles(typingctx: Any, total: Any, at: Any, x: Any) -> Any:
    """total[r] + 4-bit weights times 8 inputs of row r: 16 words with four nibbles in each."""

    def unpack(builder: Any, at: Any) -> Any:
        stored = ir.VectorType(ir.IntType(16), 2 * LANES)
        packed = builder.load(_at(builder, at, stored), align=1)
        for shift in (0, 4, 8, 12):
            shifted = builder.lshr(packed, ir.Constant(stored, [shift] * stored.count))
            yield builder.and_(shifted, ir.Constant(stored, [15] * stored.count))

    return _adder(total, unpack)


@intrinsic
def add_bytes(typingctx: Any, total: Any, at: Any, x: Any) -> Any:
    """total[r] + signed 8-bit weights times 8 inputs of row r."""

    def unpack(builder: Any, at: Any) -> Any:
        stored, wide = (ir.VectorType(ir.IntType(bits), 2 * LANES) for bits in (8, 16))
        for pair in range(4):
            yield builder.sext(builder.load(_at(builder, at, stored, pair * LANES // 2), align=1), wide)

    return _adder(total, unpack)


@intrinsic
def no_total(typingctx: Any, like: Any) -> Any:
    """As many vectors of integer zeros as `like` has."""
    lanes = Lanes("i32", like.rows)
    return lanes(like), lambda context, builder, signature, args: context.get_constant_null(lanes)


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
        narrow = builder.trunc(_pick(builder, integers, sum(PAIRS, ())), ir.VectorType(ir.IntType(16), BLOCK))
        narrow = builder.bitcast(narrow, pairs)
        to = args[1]
        for i in range(BLOCK // 2):
            builder.store(builder.extract_element(narrow, i32(i)), _at(builder, to, i32), align=4)
            to = builder.add(to, args[2])
        scale = builder.fdiv(largest, ir.Constant(f32, 32767.0))
        return context.make_tuple(builder, result, [scale, _fold(builder, integers, "add")])

    return result(types.int64, types.int64, types.int64), codegen


@intrinsic
def call(typingctx: Any, at: Any, args: Any) -> Any:
    """Call the function that was compiled at an address, with a tuple of arguments; it returns nothing."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in args.types]
        kind = ir.FunctionType(context.get_value_type(types.none), kinds)
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), cgutils.unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    return types.void(at, args), codegen
