"""Cast and Bitcast of HLIR, total on every input; f16 and bf16 as operations on their words.

Every float narrowing rounds once, to nearest even, also from f64 and from 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from luminal.base.dtypes import DType, bool_, dtype_of, float16, float32, float64, uint16, uint32
from luminal.expand.builder import Builder, truth
from luminal.expand.fold import constant
from luminal.expand.ir import Operand, Type, memory_dtype
from luminal.expand.pointwise import POINTWISE


def held_dtype(dtype: DType) -> DType:
    """What a tile's elements are held as: 16-bit floats as in memory."""
    return uint16 if dtype.is_storage else dtype


def from_memory(b: Builder, dtype: DType, value: Operand) -> Operand:
    """A value just loaded, as it is held."""
    return truth(b, value) if dtype is bool_ else value


def to_memory(b: Builder, dtype: DType, value: Operand) -> Operand:
    """A value about to be stored."""
    return b.cast(value, memory_dtype(dtype))


def neighbours(b: Builder, word: Operand, dtype: DType) -> list[Operand]:
    """The elements that a word holds, as they are held."""
    stored_as = memory_dtype(dtype)
    bits = dtype_of(f"uint{stored_as.bits}")
    shifts = range(0, word.type.dtype.bits, stored_as.bits)
    return [b.bitcast(b.cast(b.op("shr", word, n), bits), stored_as) for n in shifts]


def word_of(b: Builder, parts: Sequence[Operand], dtype: DType) -> Operand:
    """Elements that are held apart as one word, the first one lowest."""
    stored_as = memory_dtype(dtype)
    bits, wide = dtype_of(f"uint{stored_as.bits}"), dtype_of(f"uint{stored_as.bits * len(parts)}")
    words = [b.cast(b.bitcast(part, bits), wide) for part in parts]
    return reduce(
        lambda x, y: b.op("or", x, y),
        (b.op("shl", word, n * stored_as.bits) if n else word for n, word in enumerate(words)),
    )


def of_words(b: Builder, op: str, dtype: DType, word: Operand, by: Operand) -> Operand:
    """An operation on bits of the unsigned numbers that a word holds, all by the same number: of
    what is shifted, bits that come from the number beside it are masked.
    """
    wide, every = word.type.dtype, sum(1 << n for n in range(0, word.type.dtype.bits, dtype.bits))
    if op in ("Shl", "Shr"):
        kept = POINTWISE[op](b, dtype, (constant(by.type, -1), by))
        word = POINTWISE[op](b, wide, (word, b.cast(by, wide)))
        op, by = "And", kept
    return b.op(op.lower(), word, b.op("mul", b.cast(by, wide), every))


def bitcast(b: Builder, source: DType, value: Operand, target: DType) -> Operand:
    """A value of the same bytes in a dtype of the same size; a byte read as bool is `byte != 0`."""
    value = b.bitcast(to_memory(b, source, value), memory_dtype(target))
    return from_memory(b, target, value)


def cast(b: Builder, source: DType, value: Operand, target: DType) -> Operand:
    """Float to int saturates and NaN gives 0, int narrowing wraps, to bool is `x != 0`."""
    if source is target:
        return value
    if source.is_storage:
        return cast(b, float32, _widened(b, source, value), target)
    if target.is_storage:
        narrow = _narrow_half if target is float16 else _narrow_bfloat
        return b.cast(narrow(b, _rounding_alike(b, source, value, target)), uint16)
    if target is bool_:
        return truth(b, value)
    if source.is_float and not target.is_float:
        return _saturated(b, value, target)
    return b.cast(value, target)


def _saturated(b: Builder, value: Operand, target: DType) -> Operand:
    lowest = -(1 << target.bits - 1) if target.is_signed else 0
    highest = lowest + (1 << target.bits) - 1
    below, reaches = b.op("lt", value, lowest), b.op("le", lowest, value)
    # Against highest + 1, which is a power of two and so exact in any float, where `highest` itself
    # would be rounded up to it.
    above, within = b.op("le", highest + 1, value), b.op("lt", value, highest + 1)
    # What the machine makes of a float beyond the range is undefined, so it never sees one: 0 goes
    # through, and the end is chosen behind it.
    safe = b.op("select", b.op("and", reaches, within), value, 0.0)
    whole = b.op("select", below, lowest, b.cast(safe, target))
    return b.op("select", above, highest, whole)


# --- 16-bit floats --------------------------------------------------------------------------------


def _rounding_alike(b: Builder, source: DType, value: Operand, target: DType) -> Operand:
    """An f32 that rounds to f16 or bf16 as `value` itself does.

    Integers go to f16 through f32: those that f32 cannot hold overflow f16. To bf16 they go as
    others that f32 holds. f64 is rounded to odd, which no second rounding can notice.
    """
    if source is float32:
        return value
    if source is float64:
        return _rounded_to_odd(b, value)
    if source.size > 2 and target is not float16:
        for bits in range(24, source.bits, 15):
            value = _sticky(b, source, value, bits)
    return b.cast(value, float32)


def _sticky(b: Builder, source: DType, value: Operand, bits: int) -> Operand:
    """An integer, from 2**bits on with all of it that is less than half a unit of bf16 as one bit:
    up to 2**(bits + 15) it has 24 bits then, as f32 has.
    """
    half = 1 << bits - 8
    lost = b.op("ne", b.op("and", value, half - 1), 0)
    sticky = b.op("shl", b.cast(lost, source), bits - 9)
    kept = b.op("or", b.op("and", value, -half), sticky)
    if source.is_signed:
        unsigned = dtype_of(f"uint{source.bits}")
        shifted = b.bitcast(b.op("add", value, 1 << bits), unsigned)
        return b.op("select", b.op("lt", shifted, 2 << bits), value, kept)
    return b.op("select", b.op("lt", value, 1 << bits), value, kept)


def _rounded_to_odd(b: Builder, value: Operand) -> Operand:
    """f64 to f32, rounded toward zero with the last bit set if inexact (NaN stays NaN)."""
    near = b.cast(value, float32)
    back = b.cast(near, float64)
    inexact = b.op("or", b.op("lt", back, value), b.op("lt", value, back))
    away = b.op("lt", b.op("abs", value), b.op("abs", back))
    bits = b.op("sub", b.bitcast(near, uint32), b.cast(away, uint32))
    return b.bitcast(b.op("or", bits, b.cast(inexact, uint32)), float32)


def _widened(b: Builder, source: DType, words: Operand) -> Operand:
    """f16 or bf16 to f32: exact. Of f16, exponent and mantissa are moved into an f32, whose bias a
    product with 2**112 corrects.
    """
    name = "widen_half" if source is float16 else "widen_bfloat"
    if b.has(name, Type(float32, words.type.lanes)):
        return b.op(name, words)
    bits = b.cast(words, uint32)
    if source is not float16:
        return b.bitcast(b.op("shl", bits, 16), float32)
    body = b.op("shl", b.op("and", bits, 0x7FFF), 13)
    # A product and not a sum of exponents: it makes normal numbers of f16's subnormal ones by
    # itself.
    scaled = b.op("mul", b.bitcast(body, float32), 2.0**112)
    special = b.op("le", 0x7C00 << 13, body)
    full = b.op("or", body, 0x7F800000)
    magnitude = b.op("select", special, full, b.bitcast(scaled, uint32))
    sign = b.op("shl", b.op("and", bits, 0x8000), 16)
    return b.bitcast(b.op("or", magnitude, sign), float32)


def _narrow_bfloat(b: Builder, value: Operand) -> Operand:
    """Add just under half a unit (exactly half if the kept part is odd), keep the upper half."""
    if b.has("narrow_bfloat", Type(uint16, value.type.lanes)):
        return b.op("narrow_bfloat", value)
    bits = b.bitcast(value, uint32)
    upper = b.op("shr", bits, 16)
    odd = b.op("and", upper, 1)
    rounded = b.op("add", bits, b.op("add", odd, 0x7FFF))
    # The upper half of a NaN may be the bits of infinity: setting the quiet bit keeps it a NaN.
    quiet = b.op("or", upper, 0x40)
    return b.op("select", b.op("ne", value, value), quiet, b.op("shr", rounded, 16))


def _narrow_half(b: Builder, value: Operand) -> Operand:
    """Subnormal results round in an f32 addition to 0.5; the others by adding to the bits."""
    if b.has("narrow_half", Type(uint16, value.type.lanes)):
        return b.op("narrow_half", value)
    bits = b.bitcast(value, uint32)
    body = b.op("and", bits, 0x7FFFFFFF)
    # Beside 0.5 an f32 has a last bit as large as f16's smallest subnormal number, so the addition
    # does the rounding.
    moved = b.op("add", b.bitcast(body, float32), 0.5)
    subnormal = b.op("sub", b.bitcast(moved, uint32), 0x3F000000)
    odd = b.op("and", b.op("shr", body, 13), 1)
    rebias = 0xFFF - (112 << 23)
    normal = b.op("shr", b.op("add", b.op("add", body, rebias), odd), 13)
    half = b.op("select", b.op("lt", body, 113 << 23), subnormal, normal)
    half = b.op("select", b.op("le", 143 << 23, body), 0x7C00, half)
    nan = b.op("and", b.op("or", b.op("shr", body, 13), 0x7E00), 0x7FFF)
    half = b.op("select", b.op("ne", value, value), nan, half)
    sign = b.op("and", b.op("shr", bits, 16), 0x8000)
    return b.op("or", half, sign)
