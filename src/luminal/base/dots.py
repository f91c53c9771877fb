"""Dots: what a device multiplies and adds in one go, a plain multiply-add first of all.

A row says what is multiplied, how many products are added to one accumulator and with which
roundings; its `meaning` is what every interpreter computes. Whoever asks for a row by its numbers
instead of its name needs no change when a machine brings another one.

A matrix instruction is a row too: lanes that step together multiply a block of `m` rows by one of
`n` columns, and hold all three blocks between them, as the row's fragments say. Some processors
have small ones that a single lane's registers hold: of two rows by two columns.
"""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.dtypes import (
    DType,
    bfloat16,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int32,
    uint8,
    uint16,
    uint32,
    uint64,
)
from luminal.base.fragments import Fragment, dealt, fragment, gathered
from luminal.base.numerics import DOMAIN, EXACT, ROUNDING, Class
from luminal.base.records import dataclass

Array = NDArray[Any]
WORDS = {dtype.size: dtype for dtype in (uint16, uint32, uint64)}
OF_BITS = frozenset(("And", "Or", "Xor"))
"""Operations on each bit alone: on words of neighbours they are those on the neighbours."""
REGISTER = 4  # bytes of a register of factors: elements below that lie side by side in one
ON_BITS = OF_BITS | {"Shl", "Shr"}
"""Those that a word does for all its neighbours at once by one number, if these are unsigned."""


class Rounding(enum.Enum):
    """What a sum of products loses."""

    EACH = "each"  # rounded after every product, the last neighbour's first; no product is rounded
    NONE = "none"  # nothing: integers wrap
    BLOCK = "block"  # products of a block are added in the hardware's own order and width
    SHORT = "short"  # the same, of factors whose last 13 bits do not count (tf32)
    ROUGH = "rough"  # as of a block, and sums may keep fewer bits than f32 has (factors of 8 bits)

    @property
    def kind(self) -> Class:
        """What must be allowed for it."""
        return _KINDS[self]


_KINDS = {
    Rounding.EACH: ROUNDING,
    Rounding.NONE: EXACT,
    Rounding.BLOCK: ROUNDING,
    Rounding.SHORT: DOMAIN,
    Rounding.ROUGH: DOMAIN,
}


# The plain multiply-add is the row of one neighbour, so nothing above asks whether there is a
# special instruction: it takes a row, and the row says how operands lie.
@dataclass(frozen=True, slots=True)
class Dot:
    """`acc + a[0]*b[0] + ... + a[k-1]*b[k-1]`, for one result at a time, or for each of `m` rows
    and `n` columns.

    Of one result the `k` neighbours along the sum are held side by side in either factor: a word.
    So they are of two rows by two columns that one lane has (`is_pair`). Of others `together` lanes
    hold the blocks of the factors and of the results, as the three `fragments` say; a second factor
    that has none is read in shared memory, as the first one may be then. `a` and `b` are the dtypes
    of the factors, `accumulator` that of the sum. `in_tensor`: results stand in tensor memory, and
    lanes have them as the last of the `fragments` says once they have loaded them.

    Factors may have scales, of the dtype `scale`: each row, or column, has one for `block` steps,
    and lanes hold a word of those of one product as SCALES says. `pairs`: a step of such a sum is a
    byte with codes of two.
    """

    name: str
    k: int
    a: DType
    b: DType
    accumulator: DType
    rounding: Rounding
    m: int = 1
    n: int = 1
    together: int = 1
    fragments: tuple[str, str, str] = ("|", "|", "|")
    in_tensor: bool = False
    scale: DType | None = None
    block: int = 1
    pairs: bool = False

    @property
    def codes(self) -> tuple[DType, ...]:
        """What factors with scales are codes of; wider ones hold the narrower exactly."""
        return (float4_e2m1fn,) if self.pairs else (self.a, float4_e2m1fn)

    @property
    def values(self) -> int:
        """How many values of a factor a step has."""
        return 2 if self.pairs else 1

    @property
    def is_matrix(self) -> bool:
        """Do several lanes compute a block of results together?"""
        return self.together > 1

    @property
    def is_pair(self) -> bool:
        """Does one lane compute results of two rows by two columns?"""
        return self.m == 2 and not self.is_matrix

    @property
    def is_from_memory(self) -> bool:
        """Is the second factor of several results read in shared memory, swizzled there? So is the
        first one, where lanes do not hold it.
        """
        return not self.fragments[1]

    @property
    def row(self) -> int:
        """The lanes that step together: what is read in shared memory four such rows multiply."""
        return self.together // 4 if self.is_from_memory else self.together

    @property
    def family(self) -> str:
        """The name of all rows that differ in their columns only."""
        return self.name.removesuffix(f".n{self.n}")

    def of_columns(self, n: int) -> Dot:
        """The row of its family with so many columns, fewer than its own, of results that stand in
        tensor memory.
        """
        *factors, results = self.fragments
        lanes, elements = results.split(" | ")
        held = " ".join(elements.split()[: n.bit_length() - 1])
        fragments = (factors[0], factors[1], f"{lanes} | {held}")
        return replace(self, name=f"{self.family}.n{n}", n=n, fragments=fragments)

    def replaces(self, other: Dot) -> bool:
        """Does it multiply what the other one does, with roundings of the same kind?"""
        mine = self.a, self.b, self.accumulator, self.rounding, self.scale
        return mine == (other.a, other.b, other.accumulator, other.rounding, other.scale)

    @property
    def chains(self) -> bool:
        """Do the lanes hold results as they hold the first factor, for any steps of the sum that
        columns are, of one block or of several side by side?
        """
        if not self.fragments[0]:
            return False
        a, c = fragment(self.fragments[0]), fragment(self.fragments[2])
        sides = a.lane_bits("m") == c.lane_bits("m") and a.lane_bits("k") == c.lane_bits("n")
        elements = {bit for _, bit in a.element_bits("k")}
        of_columns = {bit for _, bit in c.element_bits("n")}
        n, k = self.n.bit_length() - 1, self.k.bit_length() - 1
        inside = elements | {*range(k, n)} == of_columns | {*range(n, k)}
        return self.is_matrix and sides and inside

    def fragment(self, block: str) -> Fragment:
        """How lanes hold the block "a" or "b" of factors, in words, or "c" of results."""
        held = fragment(self.fragments["abc".index(block)])
        return held if block == "c" else held.in_words(self.in_word(block))

    def in_word(self, block: str) -> int:
        """How many elements of a factor a register holds."""
        return max(1, REGISTER // (self.a if block == "a" else self.b).size)

    @property
    def word(self) -> DType:
        """The unsigned integer that holds the neighbours of a factor."""
        return WORDS[self.k * self.a.size]

    def meaning(
        self, acc: Array, a: Array, b: Array, scales: tuple[Array, Array] | None = None
    ) -> Array:
        """The sum of products added to `acc`, for factors with their neighbours along the last
        axis, and so their scales, if they have some: those of all steps.

        Of floats the order and the roundings are the hardware's, which may take subnormals as zero:
        what is computed here is near it.
        """
        # The order in which a machine adds products differs from one to the next, so this is near
        # them all; where each step rounds once, it is an fma.
        wide = self.accumulator.numpy
        if scales is not None:
            return self._scaled(acc, a, b, *scales)
        if self.rounding is Rounding.SHORT:
            a, b = shortened(a), shortened(b)
        with np.errstate(all="ignore"):
            for n in reversed(range(self.k)):
                x, y = (np.asarray(factor[..., n], wide) for factor in (a, b))
                acc = fused(x, y, acc) if self.rounding is Rounding.EACH else acc + x * y
        return np.asarray(acc, wide)

    def _scaled(self, acc: Array, a: Array, b: Array, of_a: Array, of_b: Array) -> Array:
        """Products of factors with scales: exact in float64, and rounded once for each block."""
        assert self.scale is not None
        x, y = (_codes(factor) if self.pairs else factor[..., None] for factor in (a, b))
        p, q = (scale.view(self.scale.numpy).astype(np.float64) for scale in (of_a, of_b))
        with np.errstate(all="ignore"):
            products = (x.astype(np.float64) * y.astype(np.float64)).sum(-1) * (p * q)
            for n in reversed(range(0, self.k, self.block)):
                total = acc.astype(np.float64) + products[..., n : n + self.block].sum(-1)
                acc = total.astype(self.accumulator.numpy)
        return acc

    def of_blocks(
        self, acc: Array, a: Array, b: Array, scales: tuple[Array, Array] | None = None
    ) -> Array:
        """`meaning` of blocks: rows by columns added to, rows by steps, and steps by columns; of
        scales rows by steps, and columns by steps.
        """
        if scales is not None:
            scales = scales[0][:, None, :], scales[1][None, :, :]
        return self.meaning(acc, a[:, None, :], b.T[None, :, :], scales)

    def of_lanes(
        self, acc: Array, a: Array, b: Array, scales: tuple[Array, Array] | None = None
    ) -> Array:
        """`meaning` of what the lanes hold: of each a row, of the words of factors and of results
        one after the other, and a word of scales.
        """
        blocks = [
            gathered(x, fragment(text), sides, dtype.numpy)
            for x, text, sides, dtype in zip(
                (acc, a, b),
                (self.fragments[2], *self.fragments[:2]),
                (
                    {"m": self.m, "n": self.n},
                    {"m": self.m, "k": self.k},
                    {"k": self.k, "n": self.n},
                ),
                (self.accumulator, self.a, self.b),
                strict=True,
            )
        ]
        if scales is not None:
            count = self.k // self.block
            of_a, of_b = (
                np.ascontiguousarray(words[scale_lanes(side, n)]).view(np.uint8)[:, :count]
                for words, side, n in zip(scales, "mn", (self.m, self.n), strict=True)
            )
            scales = of_a.repeat(self.block, 1), of_b.repeat(self.block, 1)
        sums = self.of_blocks(blocks[0], blocks[1], blocks[2], scales)
        return dealt(sums, fragment(self.fragments[2]), "mn")

    def of_words(self, acc: Array, a: Array, b: Array) -> Array:
        """`meaning` of factors that are words: of a pair of rows `a` has two, `b` one for each
        column, and the results of both rows follow each other for each.
        """
        x, y = (
            np.ascontiguousarray(x).view(dtype.numpy).reshape(*x.shape, self.k)
            for x, dtype in ((a, self.a), (b, self.b))
        )
        if not self.is_pair:
            return self.meaning(acc, x, y)
        return self.meaning(acc.reshape(-1, self.m), x, y[:, None]).reshape(acc.shape)

    def __str__(self) -> str:
        return self.name


def scale_lanes(side: str, count: int) -> list[int]:
    """The lanes whose words have the scales of so many rows, "m", or columns, "n"."""
    held = fragment(SCALES["mn".index(side)])
    lanes = range(1 << len(held.lane))
    return [next(lane for lane in lanes if held.position(side, lane, 0) == n) for n in range(count)]


def _codes(pairs: Array) -> Array:
    """The values of bytes with two codes each, along one more axis."""
    bits = np.stack([pairs & np.uint8(15), pairs >> np.uint8(4)], -1)
    return bits.view(float4_e2m1fn.numpy).astype(np.float32)


@cache
def multiply_add(dtype: DType) -> Dot:
    """The row that every machine has: one product, of floats rounded once."""
    return Dot(dtype.name, 1, *(dtype,) * 3, Rounding.EACH if dtype.is_float else Rounding.NONE)


BF16_PAIRS = Dot("bf16x2", 2, bfloat16, bfloat16, float32, Rounding.EACH)
INT8_FOURS = Dot("i8x4", 4, int8, int8, int32, Rounding.NONE)
UINT8_FOURS = Dot("u8x4", 4, uint8, uint8, int32, Rounding.NONE)
UINT8_BY_INT8 = Dot("u8i8x4", 4, uint8, int8, int32, Rounding.NONE)
BF16_BLOCKS = Dot("bf16x4", 4, bfloat16, bfloat16, float32, Rounding.BLOCK, 2, 2)
INT8_BLOCKS = Dot("i8x8", 8, int8, int8, int32, Rounding.NONE, 2, 2)
UINT8_BLOCKS = Dot("u8x8", 8, uint8, uint8, int32, Rounding.NONE, 2, 2)
HALVES = {BF16_BLOCKS: BF16_PAIRS, INT8_BLOCKS: INT8_FOURS, UINT8_BLOCKS: UINT8_FOURS}
"""What multiplies half of a word, of one row by one column."""
_WORDS = (BF16_PAIRS, INT8_FOURS, UINT8_FOURS, UINT8_BY_INT8)
WORD_DOTS = {dot.name: dot for dot in (*_WORDS, *HALVES)}
"""Those of words, which only some machines have."""
UNSIGNED = {INT8_FOURS: UINT8_BY_INT8}
"""What does the same for a first factor that is unsigned: `a*b = (a + 128)*b - 128*b`."""


# Sources: the PTX ISA's chapter on matrix fragments; AMD's matrix instruction calculator; for
# Apple's, how simdgroup_load deals elements, which others have found out.
def _mma(
    name: str, k: int, dtype: DType, accumulator: DType, rounding: Rounding, *held: str
) -> Dot:
    """A row of NVIDIA's mma.sync, 16 x 8 results; `held` are the fragments of the factors."""
    fragments = (held[0], held[1], "n1 n2 m0 m1 m2 | n0 m3")
    return Dot(name, k, dtype, dtype, accumulator, rounding, 16, 8, 32, fragments)


_HALVES = ("k1 k2 m0 m1 m2 | k0 m3 k3", "k1 k2 n0 n1 n2 | k0 k3")
MMA_BF16 = _mma("mma.bf16", 16, bfloat16, float32, Rounding.BLOCK, *_HALVES)
MMA_F16 = _mma("mma.f16", 16, float16, float32, Rounding.BLOCK, *_HALVES)
MMA_TF32 = _mma("mma.tf32", 8, float32, float32, Rounding.SHORT,
                "k0 k1 m0 m1 m2 | m3 k2", "k0 k1 n0 n1 n2 | k2")  # fmt: skip
MMA_S8 = _mma("mma.s8", 32, int8, int32, Rounding.NONE,
              "k2 k3 m0 m1 m2 | k0 k1 m3 k4", "k2 k3 n0 n1 n2 | k0 k1 k4")  # fmt: skip
MMA_F64 = Dot("mma.f64", 4, float64, float64, float64, Rounding.BLOCK, 8, 8, 32,
              ("k0 k1 m0 m1 m2 |", "k0 k1 n0 n1 n2 |", "n1 n2 m0 m1 m2 | n0"))  # fmt: skip
MMA = (MMA_BF16, MMA_F16, MMA_S8, MMA_F64, MMA_TF32)
"""NVIDIA's, from sm_80 on."""
# H100's keep about 14 bits of a sum (DeepSeek-V3's report, section 3.3.2), which "standard" does
# not allow; what others keep nobody says.
MMA_FLOAT8 = tuple(
    _mma(f"mma.{dtype.short}", 32, dtype, float32, Rounding.ROUGH, *MMA_S8.fragments[:2])
    for dtype in (float8_e4m3fn, float8_e5m2)
)
"""Of floats of 8 bits, from sm_89 on."""


# Which lanes' words an instruction reads others have found out by experiment; those that differ in
# a "-" hold the same here.
SCALES = ("m3 - m0 m1 m2 |", "- - n0 n1 n2 |")
"""Which row, and which column, a lane's word of scales is of, for NVIDIA's mma.sync: the first of
those that hold it is read.
"""
# The user asked for factors of so few bits, and for their blocks: of these products nothing else is
# rounded than sums of f32.
MMA_SCALED = (
    replace(
        _mma("mma.mxf8", 32, float8_e4m3fn, float32, Rounding.BLOCK, *MMA_S8.fragments[:2]),
        scale=float8_e8m0fnu, block=32,
    ),
    replace(
        _mma("mma.nvf4", 32, uint8, float32, Rounding.BLOCK, *MMA_S8.fragments[:2]),
        scale=float8_e4m3fn, block=8, pairs=True,
    ),
)  # fmt: skip
"""NVIDIA's of factors with scales, of sm_120a alone."""


def _wgmma(name: str, k: int, dtype: DType, rounding: Rounding, a: str) -> tuple[Dot, ...]:
    """The rows of NVIDIA's wgmma of a dtype: 64 rows by 8 to 256 columns; `a` is how lanes hold the
    first factor.
    """
    rows, sums = [], int32 if rounding is Rounding.NONE else float32
    for bits in range(6):
        results = " ".join(["n1 n2 m0 m1 m2 m4 m5 | n0 m3", *(f"n{3 + n}" for n in range(bits))])
        shape = 64, 8 << bits, 128
        title = f"wgmma.{name}.n{8 << bits}"
        rows.append(Dot(title, k, dtype, dtype, sums, rounding, *shape, (a, "", results)))
    return tuple(rows)


WGMMA = (
    *_wgmma("bf16", 16, bfloat16, Rounding.BLOCK, "k1 k2 m0 m1 m2 m4 m5 | k0 m3 k3"),
    *_wgmma("f16", 16, float16, Rounding.BLOCK, "k1 k2 m0 m1 m2 m4 m5 | k0 m3 k3"),
    *_wgmma("tf32", 8, float32, Rounding.SHORT, "k0 k1 m0 m1 m2 m4 m5 | m3 k2"),
    *_wgmma("s8", 32, int8, Rounding.NONE, "k2 k3 m0 m1 m2 m4 m5 | k0 k1 m3 k4"),
    *_wgmma("e4m3", 32, float8_e4m3fn, Rounding.ROUGH, "k2 k3 m0 m1 m2 m4 m5 | k0 k1 m3 k4"),
    *_wgmma("e5m2", 32, float8_e5m2, Rounding.ROUGH, "k2 k3 m0 m1 m2 m4 m5 | k0 k1 m3 k4"),
)
"""NVIDIA's of sm_90a: the second factor lies in shared memory as `swizzles.py` says, the first one
there or in registers.
"""


def _tcgen05(name: str, k: int, dtype: DType, rounding: Rounding) -> tuple[Dot, ...]:
    """The rows of NVIDIA's tcgen05 of a dtype: 64 rows by 8 to 256 columns, or 128 by 16 to 256."""
    # Lanes are those of tensor memory, which four warps load: of 64 rows each has 16, in the first
    # half of its lanes, and what the second half has is none of the results.
    lanes = {64: "m0 m1 m2 m3 - m4 m5", 128: "m0 m1 m2 m3 m4 m5 m6"}
    sums = int32 if rounding is Rounding.NONE else float32
    return tuple(
        Dot(f"tcgen05.{name}.m{m}.n{1 << bits}", k, dtype, dtype, sums, rounding, m, 1 << bits, 128,
            ("", "", f"{lanes[m]} | {' '.join(f'n{n}' for n in range(bits))}"), in_tensor=True)
        for m, least in ((64, 3), (128, 4))
        for bits in range(least, 9)
    )  # fmt: skip


TCGEN05 = (
    *_tcgen05("bf16", 16, bfloat16, Rounding.BLOCK),
    *_tcgen05("f16", 16, float16, Rounding.BLOCK),
    *_tcgen05("tf32", 8, float32, Rounding.SHORT),
    *_tcgen05("s8", 32, int8, Rounding.NONE),
    *_tcgen05("e4m3", 32, float8_e4m3fn, Rounding.ROUGH),
    *_tcgen05("e5m2", 32, float8_e5m2, Rounding.ROUGH),
)
"""NVIDIA's of sm_100a: factors lie in shared memory as `swizzles.py` says, results in tensor
memory, lanes by columns.
"""
TCGEN05_SCALED = tuple(
    replace(
        row, name=row.name.replace("e4m3", new), a=dtype, b=dtype, rounding=Rounding.BLOCK,
        scale=scale, block=block, pairs=dtype is uint8,
    )
    for new, dtype, scale, block in (
        ("mxf8", float8_e4m3fn, float8_e8m0fnu, 32), ("nvf4", uint8, float8_e4m3fn, 8),
    )
    for row in _tcgen05("e4m3", 32, float8_e4m3fn, Rounding.ROUGH)
    if row.m == 128 and row.n >= 128
)  # fmt: skip
"""Those of factors with scales, which stand in tensor memory as well, in squares of 128 by 4: of a
word of column c lane l has four scales of row 32 * c + l, as have the same lanes of all quarters.
"""
TENSOR_ROWS, TENSOR_COLUMNS = 128, 512
"""Lanes, and columns of 32 bits, of a unit's tensor memory."""


def _of_16(
    name: str, dtype: DType, together: int, fragments: tuple[str, str, str], k: int = 16
) -> Dot:
    """A row of 16 x 16 results."""
    whole = dtype is int8
    sums, rounding = (int32, Rounding.NONE) if whole else (float32, Rounding.BLOCK)
    return Dot(name, k, dtype, dtype, sums, rounding, 16, 16, together, fragments)


_MFMA = ("m0 m1 m2 m3 k2 k3 | k0 k1", "n0 n1 n2 n3 k2 k3 | k0 k1", "n0 n1 n2 n3 m2 m3 | m0 m1")
_DEEP = ("m0 m1 m2 m3 k3 k4 | k0 k1 k2", "n0 n1 n2 n3 k3 k4 | k0 k1 k2", _MFMA[2])
MFMA_BF16 = _of_16("mfma.bf16", bfloat16, 64, _MFMA)
MFMA_F16 = _of_16("mfma.f16", float16, 64, _MFMA)
MFMA_S8 = _of_16("mfma.s8", int8, 64, _MFMA)
MFMA_S8_DEEP = _of_16("mfma.s8.k32", int8, 64, _DEEP, 32)
_SINGLE = "m0 m1 m2 m3 k0 k1 |", "n0 n1 n2 n3 k0 k1 |"
MFMA_F32 = Dot("mfma.f32", 4, float32, float32, float32, Rounding.BLOCK, 16, 16, 64,
               (*_SINGLE, _MFMA[2]))  # fmt: skip
# Registers of results are four rows apart, and not, as of all others, side by side.
MFMA_F64 = Dot("mfma.f64", 4, float64, float64, float64, Rounding.BLOCK, 16, 16, 64,
               (*_SINGLE, "n0 n1 n2 n3 m0 m1 | m2 m3"))  # fmt: skip
MFMA = (MFMA_BF16, MFMA_F16, MFMA_S8, MFMA_F64, MFMA_F32)
"""AMD's of CDNA 2: gfx90a. That of f32 takes any factors that are cast to it, so it comes last."""
MFMA_3 = (MFMA_BF16, MFMA_F16, MFMA_S8_DEEP, MFMA_F64, MFMA_F32)
"""AMD's of CDNA 3, gfx942, which has no other of int8."""
_WMMA = ("m0 m1 m2 m3 - | k0 k1 k2 k3", "n0 n1 n2 n3 - | k0 k1 k2 k3", "n0 n1 n2 n3 m0 | m1 m2 m3")
WMMA_BF16 = _of_16("wmma.bf16", bfloat16, 32, _WMMA)
WMMA_F16 = _of_16("wmma.f16", float16, 32, _WMMA)
WMMA_S8 = _of_16("wmma.s8", int8, 32, _WMMA)
WMMA = (WMMA_BF16, WMMA_F16, WMMA_S8)
"""AMD's of RDNA3, whose lanes hold factors twice."""
_WMMA_4 = ("m0 m1 m2 m3 k3 | k0 k1 k2", "n0 n1 n2 n3 k3 | k0 k1 k2", "n0 n1 n2 n3 m3 | m0 m1 m2")
WMMA_4 = (
    _of_16("wmma4.bf16", bfloat16, 32, _WMMA_4),
    _of_16("wmma4.f16", float16, 32, _WMMA_4),
    _of_16("wmma4.s8", int8, 32, _WMMA_4),
)
"""AMD's of RDNA4, whose lanes hold them once."""


def _simdgroup(name: str, dtype: DType) -> Dot:
    """A row of Apple's, 8 x 8 results in f32."""
    held = ("k1 m0 m1 k2 m2 | k0", "n1 k0 k1 n2 k2 | n0", "n1 m0 m1 n2 m2 | n0")
    return Dot(f"simdgroup.{name}", 8, dtype, dtype, float32, Rounding.BLOCK, 8, 8, 32, held)


SIMDGROUP_F32 = _simdgroup("f32", float32)
SIMDGROUP_F16 = _simdgroup("f16", float16)
SIMDGROUP_BF16 = _simdgroup("bf16", bfloat16)
SIMDGROUP = (SIMDGROUP_BF16, SIMDGROUP_F16, SIMDGROUP_F32)
"""Apple's: of f32 and f16 from family 7 on, of bf16 from family 8. That of f32 takes any factors
that are cast to it, so it comes last.
"""
_MADE_UP = ("m0 m1 | k0 k1", "n0 n1 | k0 k1", "n0 n1 | m0 m1")
MADE_UP_F32 = Dot("made.f32", 4, float32, float32, float32, Rounding.BLOCK, 4, 4, 4, _MADE_UP)
MADE_UP_BF16 = Dot("made.bf16", 4, bfloat16, bfloat16, float32, Rounding.BLOCK, 4, 4, 4, _MADE_UP)
MADE_UP_CHAIN = Dot("made.chain", 8, bfloat16, bfloat16, float32, Rounding.BLOCK, 4, 4, 4,
                    ("k1 m0 | k0 m1 k2", "k1 n0 | k0 k2 n1", "n1 m0 | n0 m1"))  # fmt: skip
MADE_UP = (MADE_UP_BF16, MADE_UP_F32)
"""Of no chip: small ones, by which interpreters run what is made for chips."""
MATRIX_DOTS = {
    dot.name: dot
    for dot in (
        *MMA,
        *MMA_FLOAT8,
        *MFMA,
        MFMA_S8_DEEP,
        *WMMA,
        *WMMA_4,
        *SIMDGROUP,
        *MADE_UP,
        MADE_UP_CHAIN,
    )
}
DOTS = {**WORD_DOTS, **MATRIX_DOTS, **{dot.name: dot for dot in (*MMA_SCALED, *TCGEN05_SCALED)}}
"""Those that only some machines have."""


def shortened(factor: Array) -> Array:
    """f32 without the bits that a product of tf32 does not look at."""
    return (np.ascontiguousarray(factor).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def of_library(name: str, arity: int, kind: Any = ctypes.c_double) -> Callable[..., Array]:
    """A function of C's mathematical library, element by element."""
    # Of POSIX it is part of the process, as Python itself needs it.
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    function = getattr(library, name)
    function.restype, function.argtypes = kind, [kind] * arity
    elementwise: Callable[..., Array] = np.frompyfunc(function, arity, 1)
    return elementwise


@cache
def _fma(itemsize: int) -> Callable[..., Array]:
    # NumPy has none. Computing in float64 instead would round the sum twice, to 64 bits and to 32.
    return of_library("fmaf", 3, ctypes.c_float) if itemsize == 4 else of_library("fma", 3)


def fused(a: Array, b: Array, c: Array) -> Array:
    """`a*b + c` of floats, rounded once."""
    return np.asarray(_fma(a.dtype.itemsize)(a, b, c)).astype(a.dtype)
