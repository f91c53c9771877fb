"""Cast and Bitcast of HLIR, total on every input; short floats as operations on their words.

Every float narrowing rounds once, to nearest even, also from f64 and from 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from luminal.base.dtypes import (
    DType,
    bfloat16,
    bool_,
    dtype_of,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    uint16,
    uint32,
)
from luminal.base.records import dataclass
from luminal.expand.builder import Builder, truth
from luminal.expand.fold import constant
from luminal.expand.ir import Operand, Type, Value, memory_dtype
from luminal.expand.operations import IN_PAIRS
from luminal.expand.pointwise import POINTWISE


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
    origin = b.made.get(parts[0].id) if isinstance(parts[0], Value) else None
    if origin is not None and origin.op == "cast" and origin.args[0].type.dtype is uint32:
        (word,) = origin.args
        if dtype.size == 2 and neighbours(b, word, dtype) == [*parts]:
            return word
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
    if (source, target) == (float4_e2m1fn, float8_e4m3fn):
        return _lengthened(b, value)
    if source.is_storage:
        return cast(b, float32, _widened(b, source, value), target)
    if target.is_storage:
        alike = _rounding_alike(b, source, value, target)
        narrow = _narrow_bfloat(b, alike) if target is bfloat16 else _narrowed(b, target, alike)
        return b.cast(narrow, target.word)
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


# --- short floats ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Short:
    """A float of fewer bits than f32: those of its mantissa, and what its exponent is biased by.

    `special` is the first code that is no number but infinity or NaN, `beyond` the code of what is
    too great, from the f32 with the bits `limit` on; `nan` is a NaN. `bits` are all of a code.
    """

    mantissa: int
    bias: int
    special: int
    beyond: int
    limit: int
    nan: int
    bits: int = 8

    @property
    def dropped(self) -> int:
        """How many bits f32's mantissa has more."""
        return 23 - self.mantissa

    @property
    def rebias(self) -> int:
        """What f32's exponent is biased by more."""
        return 127 - self.bias


# What rounds up to beyond the greatest number of f16 and e5m2 becomes the code of infinity by
# itself; e4m3 has none, and its greatest number, 448, stands for all beyond.
_SHORT = {
    float16: _Short(10, 15, 0x7C00, 0x7C00, 143 << 23, 0x7E00, 16),
    float8_e5m2: _Short(2, 15, 0x7C, 0x7C, 143 << 23, 0x7E),
    float8_e4m3fn: _Short(3, 7, 0x7F, 0x7E, 0x43E00000, 0x7F),
    float4_e2m1fn: _Short(1, 1, 8, 7, 0x40C00000, 0, 4),  # no NaN: zero is taken for it
}


def _rounding_alike(b: Builder, source: DType, value: Operand, target: DType) -> Operand:
    """An f32 that rounds to a short float as `value` itself does.

    Integers go through f32: those that it cannot hold overflow all but bf16, to which they go as
    others that f32 holds. f64 is rounded to odd, which no second rounding can notice.
    """
    if source is float32:
        return value
    if source is float64:
        return _rounded_to_odd(b, value)
    if source.size > 2 and target is bfloat16:
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


def narrowed_pair(b: Builder, x: Operand, y: Operand, target: DType) -> list[Operand]:
    """Two f32 as short floats that the machine rounds together; `IN_PAIRS` names what does it."""
    return neighbours(b, b.op(IN_PAIRS[target], x, y), target)


def _widened(b: Builder, source: DType, words: Operand) -> Operand:
    """A short float as f32: exact. Exponent and mantissa are moved into an f32, whose bias a
    product with a power of two corrects; e5m2 is the upper half of an f16, and e8m0 an exponent
    alone.
    """
    if source is float8_e8m0fnu:
        return _power(b, words)
    name = "widen_bfloat" if source is bfloat16 else "widen_half"
    has_it = b.has(name, Type(float32, words.type.lanes))
    if source is float8_e5m2 and has_it:
        source, words = float16, b.op("shl", b.cast(words, uint16), 8)
    if source in (float16, bfloat16) and has_it:
        return b.op(name, words)
    if source is bfloat16:
        return b.bitcast(_as_upper_half(b, words), float32)
    bits = b.cast(words, uint32)
    short = _SHORT[source]
    body = b.op("shl", b.op("and", bits, (1 << short.bits - 1) - 1), short.dropped)
    # A product and not a sum of exponents: it makes normal numbers of subnormal ones by itself.
    scaled = b.op("mul", b.bitcast(body, float32), 2.0**short.rebias)
    special = b.op("le", short.special << short.dropped, body)
    full = b.op("or", body, 0x7F800000)
    magnitude = b.op("select", special, full, b.bitcast(scaled, uint32))
    sign = b.op("shl", b.op("and", bits, 1 << short.bits - 1), 32 - short.bits)
    return b.bitcast(b.op("or", magnitude, sign), float32)


def _as_upper_half(b: Builder, half: Operand) -> Operand:
    """16 bits as the upper ones of a word, made of the word that they are a half of if known."""
    origin = b.made.get(half.id) if isinstance(half, Value) else None
    word = origin.args[0] if origin is not None and origin.op == "cast" else None
    if word is None or word.type.dtype is not uint32:
        return b.op("shl", b.cast(half, uint32), 16)
    for whole in b.made[word.id].args[:1] if isinstance(word, Value) and word.id in b.made else ():
        if whole.type == word.type and b.op("shr", whole, 16) == word:
            return b.op("and", whole, 0xFFFF0000)
    return b.op("shl", word, 16)


# Weights of four bits are so multiplied by activations of eight: with f32 between them the casts
# were most of a kernel.
def _lengthened(b: Builder, words: Operand) -> Operand:
    """e2m1 as e4m3: exact. All but 0 and 0.5, a subnormal number, have an exponent of 6 more."""
    bits = b.cast(words, uint32)
    body = b.op("and", bits, 7)
    normal = b.op("add", b.op("shl", body, 2), 6 << 3)
    code = b.op("select", b.op("lt", body, 2), b.op("mul", body, 6 << 3), normal)
    sign = b.op("shl", b.op("and", bits, 8), 4)
    return b.cast(b.op("or", code, sign), float8_e4m3fn.word)


def _power(b: Builder, words: Operand) -> Operand:
    """The power of two of which e8m0 is the exponent: the least one is no normal f32."""
    bits = b.cast(words, uint32)
    power = b.op("select", b.op("eq", bits, 0), 1 << 22, b.op("shl", bits, 23))
    return b.bitcast(b.op("select", b.op("eq", bits, 255), 0x7FC00000, power), float32)


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


def _narrowed(b: Builder, target: DType, value: Operand) -> Operand:
    """f32 to one of `_SHORT`: subnormal results round in an f32 addition, the others by adding to
    the bits.
    """
    if target is float16 and b.has("narrow_half", Type(uint16, value.type.lanes)):
        return b.op("narrow_half", value)
    short = _SHORT[target]
    bits = b.bitcast(value, uint32)
    body = b.op("and", bits, 0x7FFFFFFF)
    # Beside this power of two an f32 has a last bit as large as the smallest subnormal number, so
    # the addition does the rounding.
    beside = short.rebias + short.dropped + 1 << 23
    moved = b.op("add", b.bitcast(body, float32), 2.0 ** ((beside >> 23) - 127))
    subnormal = b.op("sub", b.bitcast(moved, uint32), beside)
    odd = b.op("and", b.op("shr", body, short.dropped), 1)
    up = (1 << short.dropped - 1) - 1 - (short.rebias << 23)
    normal = b.op("shr", b.op("add", b.op("add", body, up), odd), short.dropped)
    code = b.op("select", b.op("lt", body, short.rebias + 1 << 23), subnormal, normal)
    code = b.op("select", b.op("le", short.limit, body), short.beyond, code)
    largest = (1 << short.bits - 1) - 1
    nan: Operand | int = 0
    if short.nan:
        nan = b.op("and", b.op("or", b.op("shr", body, short.dropped), short.nan), largest)
    code = b.op("select", b.op("ne", value, value), nan, code)
    sign = b.op("and", b.op("shr", bits, 32 - short.bits), 1 << short.bits - 1)
    return b.op("or", code, sign)
