"""Blocks of GGUF files as weights that stay packed: each type's decoding, recorded.

The bit layouts are those of the NumPy decoders beside this file, value for value and bit for bit.
A block's values are split into axes so that the innermost is a run of bytes side by side, which
makes a vector, and all others only choose bytes, shifts and scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.frontend.matrices.float4 import doubled, halved_power
from luminal.frontend.matrices.packed import Codes, Format, Packed, read_only
from luminal.frontend.tensor import Tensor
from luminal.loaders.ggml.grids import points
from luminal.loaders.ggml.simple import UNEVEN
from luminal.loaders.ggml.types import BLOCKS, kind_of
from luminal.loaders.mapped import Array
from luminal.memory.row_order import StoredRows


# Axes are chosen so that the innermost is a run of bytes that lie side by side: then vectors load
# them, and shifts and masks apply to whole words.
class _Blocks:
    """Blocks in a graph: `data` (rows, blocks, bytes), signed, and the same memory in `words` of 16
    bits, where they have an even number of bytes.
    """

    def __init__(self, data: Tensor, words: Tensor | None) -> None:
        self.data, self.words = data, words

    def signed(self, first: int, *shape: int) -> Tensor:
        """Bytes of each block from `first` on, as (rows, blocks, *shape)."""
        return self._part(self.data, first, shape)

    def bytes(self, first: int, *shape: int) -> Tensor:
        """Bytes of each block without signs. What is read as such is a value of its own, which the
        prologue can lay out where bits are chosen of it later.
        """
        return self.signed(first, *shape).bitcast(dtypes.uint8)

    def word(self, first: int, *shape: int) -> Tensor:
        """Words of each block, from byte `first` on."""
        assert self.words is not None, "blocks of an odd number of bytes have no words"
        return self._part(self.words, first // 2, shape)

    def scale(self, first: int, dims: int) -> Tensor:
        """A half-precision number of each block, beside so many dims of its values."""
        half = self.word(first, *[1] * dims).bitcast(dtypes.float16)
        return half.cast(dtypes.float32)

    def count(self, step: int, *shape: int) -> Tensor:
        """0, step, 2 * step ... along the one dim of `shape` that is not 1."""
        steps = self.data.graph.arange(0, step * math.prod(shape), step)
        return steps.cast(dtypes.uint8).reshape(1, 1, *shape)

    def table(self, codes: Tensor, values: Array) -> Tensor:
        """The values at positions `codes`."""
        return self.data.graph.constant(values).take(codes.cast(dtypes.int64))

    def _part(self, source: Tensor, first: int, shape: tuple[int, ...]) -> Tensor:
        rows, blocks = source.shape[:2]
        return source[:, :, first : first + math.prod(shape)].reshape(rows, blocks, *shape)


def _f32(codes: Tensor) -> Tensor:
    return codes.cast(dtypes.float32)


def _q8_0(b: _Blocks) -> Codes:
    return Codes(b.signed(2, 32), b.scale(0, 1))


def _halves(b: _Blocks, first: int) -> Tensor:
    """Two codes in a byte, the lower ones first: (rows, blocks, 2, 16)."""
    return (b.bytes(first, 1, 16) >> b.count(4, 2, 1)) & 15


def _fifths(b: _Blocks, first: int) -> Tensor:
    """Two codes in a byte, with a fifth bit of each in words before them."""
    lanes = b.count(1, 1, 16).cast(dtypes.uint16)
    high = ((b.word(first, 2, 1) >> lanes) & 1).cast(dtypes.uint8)
    return _halves(b, first + 4) | (high << 4)


def _q4_0(b: _Blocks) -> Codes:
    return Codes(_halves(b, 2), b.scale(0, 2), 8)


def _q4_1(b: _Blocks) -> Codes:
    return Codes(_halves(b, 4), b.scale(0, 2), more=b.scale(2, 2))


def _q5_0(b: _Blocks) -> Codes:
    return Codes(_fifths(b, 2), b.scale(0, 2), 16)


def _q5_1(b: _Blocks) -> Codes:
    return Codes(_fifths(b, 4), b.scale(0, 2), more=b.scale(2, 2))


def _iq4_nl(b: _Blocks) -> Codes:
    return Codes(b.table(_halves(b, 2), UNEVEN.astype(np.int8)), b.scale(0, 2))


def _mxfp4(b: _Blocks) -> Codes:
    return Codes(doubled(_halves(b, 1)), halved_power(b.bytes(0, 1, 1)))


def _nvfp4(b: _Blocks) -> Codes:
    """(2, 2, 2, 8): four groups, with halved scales of 4 bits of exponent and 3 of mantissa, which
    are moved into a float32; 127 is no number.
    """
    codes = (b.bytes(4, 2, 2, 1, 8) >> b.count(4, 2, 1)) & 15
    bits = b.bytes(0, 2, 2, 1, 1)
    moved = ((bits & 127).cast(dtypes.uint32) << 20).bitcast(dtypes.float32)
    return Codes(doubled(codes), (moved * 2.0**119).where(bits != 127, 0.0))


# --- 256 values, of which groups have scales that are themselves integers


def _q2_k(b: _Blocks) -> Codes:
    """(2, 4, 2, 16): runs of 32 bytes, of which all have four codes, in two groups each."""
    codes = (b.bytes(16, 2, 1, 2, 16) >> b.count(2, 4, 1, 1)) & 3
    scales = b.bytes(0, 2, 4, 2, 1)
    scale, least = b.scale(80, 4) * _f32(scales & 15), b.scale(82, 4) * _f32(scales >> 4)
    return Codes(codes, scale, less=least)


def _q3_k(b: _Blocks) -> Codes:
    """(2, 2, 2, 2, 16): as before, the four codes in two pairs.

    The third bit of a code is in a byte of its place in the run, at the run's and the code's
    number. Of a scale 4 bits lie in two rows, 2 in four.
    """
    low = (b.bytes(32, 2, 1, 1, 2, 16) >> b.count(4, 2, 1, 1, 1) >> b.count(2, 2, 1, 1)) & 3
    high = b.bytes(0, 1, 1, 1, 2, 16) >> b.count(4, 2, 1, 1, 1, 1)
    high = (high >> b.count(2, 2, 1, 1, 1) >> b.count(1, 2, 1, 1)) & 1
    low_4 = (b.bytes(96, 1, 2, 2, 2, 1) >> b.count(4, 2, 1, 1, 1, 1)) & 15
    high_2 = b.bytes(104, 1, 1, 2, 2, 1) >> b.count(4, 2, 1, 1, 1, 1)
    high_2 = (high_2 >> b.count(2, 2, 1, 1, 1)) & 3
    scales = _f32((low_4 | (high_2 << 4)).cast(dtypes.int8) - 32)
    return Codes(low | (high << 2), b.scale(108, 5) * scales, 4)


def _scales_of_8(b: _Blocks) -> tuple[Tensor, Tensor]:
    """Scales and least values of eight groups, (2, 2, 2, 1): see `k_quants._from_least`."""
    first, second, third = (b.bytes(start, 1, 2, 2, 1) for start in (4, 8, 12))
    is_low = b.count(1, 2, 1, 1, 1) < 1
    scales = (first & 63).where(is_low, (third & 15) | ((first >> 2) & 48))
    least = (second & 63).where(is_low, (third >> 4) | ((second >> 2) & 48))
    return b.scale(0, 4) * _f32(scales), b.scale(2, 4) * _f32(least)


def _q4_k(b: _Blocks) -> Codes:
    """(2, 2, 2, 32): four runs of 32 bytes, of which all have two codes."""
    codes = (b.bytes(16, 2, 2, 1, 32) >> b.count(4, 2, 1)) & 15
    scale, least = _scales_of_8(b)
    return Codes(codes, scale, less=least)


def _q5_k(b: _Blocks) -> Codes:
    """The codes of Q5_K; the fifth bits of a place in the eight groups are a byte."""
    low = (b.bytes(48, 2, 2, 1, 32) >> b.count(4, 2, 1)) & 15
    high = b.bytes(16, 1, 1, 1, 32) >> b.count(4, 2, 1, 1, 1)
    high = (high >> b.count(2, 2, 1, 1) >> b.count(1, 2, 1)) & 1
    scale, least = _scales_of_8(b)
    return Codes(low | (high << 4), scale, less=least)


def _q6_k(b: _Blocks) -> Codes:
    """(2, 2, 2, 2, 16): two runs of 64 bytes with two codes each; the upper two bits of four codes
    are a byte.
    """
    low = (b.bytes(0, 2, 1, 2, 2, 16) >> b.count(4, 2, 1, 1, 1)) & 15
    high = b.bytes(128, 2, 1, 1, 2, 16) >> b.count(4, 2, 1, 1, 1)
    high = (high >> b.count(2, 2, 1, 1)) & 3
    # The scales are signed bytes that are read without signs: flipping the topmost bit adds 128 to
    # each, which is taken off as a float.
    scales = _f32(b.bytes(192, 2, 2, 2, 2, 1) ^ 128) - 128
    return Codes(low | (high << 4), b.scale(208, 5) * scales, 32)


# --- one bit, and three values


def _q1_0(b: _Blocks) -> Codes:
    return Codes(((b.bytes(2, 16, 1) >> b.count(1, 8)) & 1) << 1, b.scale(0, 2), 1)


def _tq1_0(b: _Blocks) -> Codes:
    """(8, 2, 4, 4): sixteen runs of 16. Ten are five digits each of 32 bytes, five those of 16, and
    the last one is four digits of 4.
    """
    number = b.count(2, 8, 1, 1, 1) + b.count(1, 2, 1, 1)
    last = b.bytes(32, 1, 1, 4, 4).where(number < 15, b.bytes(48, 1, 1, 1, 4))
    data = b.bytes(0, 1, 2, 4, 4).where(number < 10, last)
    digits = [n // 2 if n < 10 else n - 10 for n in range(15) for _ in range(4)]
    powers = np.array([*digits, 0, 1, 2, 3], np.uint8)
    power = b.table((number << 2) + b.count(1, 4, 1), np.uint8(3) ** powers)
    return Codes(
        (((data * power).cast(dtypes.uint16) * 3) >> 8).cast(dtypes.uint8), b.scale(52, 4), 1
    )


def _tq2_0(b: _Blocks) -> Codes:
    """(2, 4, 32): runs of 32 bytes, of which all have four codes."""
    return Codes((b.bytes(0, 2, 1, 32) >> b.count(2, 4, 1)) & 3, b.scale(64, 3), 1)


# --- points of grids, whose signs lie apart


def _iq4_xs(b: _Blocks) -> Codes:
    """(4, 2, 2, 16): eight groups, whose scales have 4 bits in bytes and 2 in a word."""
    codes = (b.bytes(8, 4, 2, 1, 16) >> b.count(4, 2, 1)) & 15
    low = (b.bytes(4, 4, 1, 1, 1) >> b.count(4, 2, 1, 1)) & 15
    shifts = (b.count(4, 4, 1, 1, 1) + b.count(2, 2, 1, 1)).cast(dtypes.uint16)
    high = ((b.word(2, 1, 1, 1, 1) >> shifts) & 3).cast(dtypes.uint8)
    scales = _f32((low | (high << 4)).cast(dtypes.int8) - 32)
    return Codes(b.table(codes, UNEVEN.astype(np.int8)), b.scale(0, 4) * scales)


_SEVEN = np.arange(128, dtype=np.uint8)
EVEN = _SEVEN | (np.bitwise_count(_SEVEN) & np.uint8(1)) << np.uint8(7)
"""Signs of eight by seven bits: there are always evenly many minus."""


def _points(b: _Blocks, name: str, codes: Tensor, times: int = 1) -> Tensor:
    """The coordinates, int8, of the grid's points with these codes (..., 1), so many times."""
    grid = (points(name) * times).astype(np.int8)
    place = codes.cast(dtypes.int32) * grid.shape[1] + b.count(1, grid.shape[1]).cast(dtypes.int32)
    return b.table(place, grid.reshape(-1))


def _signed(values: Tensor, signs: Tensor, place: Tensor) -> Tensor:
    """The values, less than 0 where the bit at their place is set."""
    return (0 - values).where(((signs >> place) & 1) != 0, values)


def _double_word(words: Tensor) -> Tensor:
    """Words of 16 bits (..., 2) as one of 32 each, (..., 1)."""
    low, high = words[..., :1].cast(dtypes.uint32), words[..., 1:].cast(dtypes.uint32)
    return low | (high << 16)


def _halved(b: _Blocks, scales: Tensor, dims: int, unit: float) -> Tensor:
    return b.scale(0, dims) * (scales + 0.5) * unit


def _iq2_xxs(b: _Blocks) -> Codes:
    """(8, 4, 8): groups of four points, and a word of 4 bits of scale and 7 of signs for each."""
    both = _double_word(b.word(2, 8, 4)[..., 2:])
    signs = b.table((both >> b.count(7, 4).cast(dtypes.uint32)) & 127, EVEN).unsqueeze(-1)
    grid = _points(b, "IQ2_XXS", b.bytes(2, 8, 8)[..., :4].unsqueeze(-1))
    scale = _halved(b, _f32(both >> 28).unsqueeze(-1), 3, 0.25)
    return Codes(_signed(grid, signs, b.count(1, 8)), scale)


def _iq3_xxs(b: _Blocks) -> Codes:
    """(8, 4, 2, 4): as before, of two points of four for each eight signs."""
    both = _double_word(b.word(66, 8, 2))
    signs = b.table((both >> b.count(7, 4).cast(dtypes.uint32)) & 127, EVEN)
    grid = _points(b, "IQ3_XXS", b.bytes(2, 8, 4, 2, 1))
    place = b.count(4, 2, 1) + b.count(1, 4)
    scale = _halved(b, _f32(both >> 28).unsqueeze(-1).unsqueeze(-1), 4, 0.5)
    return Codes(_signed(grid, signs.unsqueeze(-1).unsqueeze(-1), place), scale)


def _nibbles(b: _Blocks, first: int, count: int, dims: int) -> Tensor:
    """Scales of 4 bits, two in a byte, as (count, 2) beside so many dims, in float32."""
    ones = (1,) * dims
    return _f32((b.bytes(first, count, 1, *ones) >> b.count(4, 2, *ones)) & 15)


def _iq2_xs(b: _Blocks) -> Codes:
    """(8, 2, 2, 8): sixteen groups of two points; a word has 9 bits of the point, 7 of signs."""
    words = b.word(2, 8, 2, 2, 1)
    grid, signs = _points(b, "IQ2_XS", words & 511), b.table(words >> 9, EVEN)
    return Codes(_signed(grid, signs, b.count(1, 8)), _halved(b, _nibbles(b, 66, 8, 2), 4, 0.25))


def _iq2_s(b: _Blocks) -> Codes:
    """(8, 2, 2, 8): as before; the upper two bits of four points are a byte."""
    shifts = b.count(4, 2, 1, 1) + b.count(2, 2, 1)
    high = ((b.bytes(66, 8, 1, 1, 1) >> shifts) & 3).cast(dtypes.uint16)
    grid = _points(b, "IQ2_S", b.bytes(2, 8, 2, 2, 1).cast(dtypes.uint16) | (high << 8))
    signed = _signed(grid, b.bytes(34, 8, 2, 2, 1), b.count(1, 8))
    return Codes(signed, _halved(b, _nibbles(b, 74, 8, 2), 4, 0.25))


def _iq3_s(b: _Blocks) -> Codes:
    """(4, 2, 4, 2, 4): eight groups; a byte has the upper bits of their eight points."""
    shifts = b.count(2, 4, 1, 1) + b.count(1, 2, 1)
    high = ((b.bytes(66, 4, 2, 1, 1, 1) >> shifts) & 1).cast(dtypes.uint16)
    grid = _points(b, "IQ3_S", b.bytes(2, 4, 2, 4, 2, 1).cast(dtypes.uint16) | (high << 8))
    signed = _signed(grid, b.bytes(74, 4, 2, 4, 1, 1), b.count(4, 2, 1) + b.count(1, 4))
    return Codes(signed, b.scale(0, 5) * (_nibbles(b, 106, 4, 3) * 2 + 1))


# Points of these are moved by an eighth, up or down: in eighths all are integers.
def _iq1_s(b: _Blocks) -> Codes:
    """(8, 4, 8): groups of four points; a word has 3 bits of each, the scale, and the direction."""
    words = b.word(34, 8, 1, 1)
    high = (words >> b.count(3, 4, 1).cast(dtypes.uint16)) & 7
    grid = _points(b, "IQ1_S", b.bytes(2, 8, 4, 1).cast(dtypes.uint16) | (high << 8), 8)
    moved = grid + (1 - ((words >> 15) << 1).cast(dtypes.int8))
    scales = _f32((words >> 12) & 7) * 2 + 1
    return Codes(moved, b.scale(0, 3) * scales * 0.125)


def _iq1_m(b: _Blocks) -> Codes:
    """(4, 2, 2, 2, 8): sixteen groups of two points; see `i_quants._iq1_m`."""
    words = b.word(48, 4, 1, 1, 1, 1)
    spare = [b.word(48 + 2 * n, 1, 1, 1, 1, 1) >> 12 for n in range(4)]
    bits = spare[0] | (spare[1] << 4) | (spare[2] << 8) | (spare[3] << 12)
    scale = bits.bitcast(dtypes.float16).cast(dtypes.float32)
    shifts = (b.count(6, 2, 1, 1, 1) + b.count(3, 2, 1, 1)).cast(dtypes.uint16)
    scales = _f32((words >> shifts) & 7) * 2 + 1
    halves = (b.bytes(32, 4, 2, 2, 1, 1) >> b.count(4, 2, 1)) & 15
    high = (halves & 7).cast(dtypes.uint16)
    grid = _points(b, "IQ1_S", b.bytes(0, 4, 2, 2, 2, 1).cast(dtypes.uint16) | (high << 8), 8)
    moved = grid + (1 - ((halves >> 3) << 1).cast(dtypes.int8))
    return Codes(moved, scale * scales * 0.125)


RECORDED: Mapping[str, Callable[[_Blocks], Codes]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "IQ4_NL": _iq4_nl,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q1_0": _q1_0,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "IQ4_XS": _iq4_xs,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
}
"""Types whose blocks can stay packed; the others are decoded when they are loaded."""


def packed(matrix: Array | StoredRows, name: str | None = None) -> Packed:
    """A Parameter (..., in_features) over (..., blocks) records of a type, which it keeps as they
    lie.

    Raises InputError for a type that is not in RECORDED.
    """
    blocks, order = (
        (matrix.memory, matrix.order) if isinstance(matrix, StoredRows) else (matrix, None)
    )
    kind = kind_of(blocks)
    if kind not in RECORDED:
        raise InputError(f"{name}: {kind} cannot stay packed; of {', '.join(RECORDED)} one can")
    shape = (*blocks.shape[:-1], blocks.shape[-1] * BLOCKS[kind].size)
    rows = read_only(blocks).reshape(math.prod(blocks.shape[:-1]), blocks.shape[-1])
    data = rows.view(np.uint8).reshape(*rows.shape, rows.dtype.itemsize)
    return Packed(FORMATS[kind], shape, {"blocks": data}, name, order=order)


def _codes(kind: str, parts: Mapping[str, Tensor]) -> Codes:
    return RECORDED[kind](_Blocks(parts["bytes"], parts.get("words")))


def _unpacked(kind: str, data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    block = BLOCKS[kind]
    return block.decoded(data["blocks"].reshape(-1).view(block.record)).reshape(shape)


def _parts(data: Mapping[str, Array]) -> Mapping[str, Array]:
    blocks = data["blocks"]
    parts = {"bytes": blocks.view(np.int8)}
    return parts if blocks.shape[-1] % 2 else {**parts, "words": blocks.view(np.uint16)}


FORMATS: Mapping[str, Format] = {
    kind: Format(kind, partial(_codes, kind), partial(_unpacked, kind), _parts) for kind in RECORDED
}
