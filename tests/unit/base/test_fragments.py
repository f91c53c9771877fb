"""Fragments of matrix instructions: whole blocks, and the tables of who made the instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from luminal.base.dots import (
    MATRIX_DOTS,
    MFMA_BF16,
    MFMA_F32,
    MFMA_F64,
    MFMA_S8_DEEP,
    MMA_BF16,
    MMA_F64,
    MMA_S8,
    MMA_TF32,
    TCGEN05,
    WGMMA,
    WMMA_4,
    WMMA_F16,
    Dot,
    Rounding,
)
from luminal.base.fragments import dealt, fragment, gathered
from luminal.base.numerics import Numerics
from luminal.selection.dots import usable
from tests.long_share import long_rows

SIDES = {"a": "mk", "b": "kn", "c": "mn"}
rows = pytest.mark.parametrize("dot", MATRIX_DOTS.values(), ids=str)


BLOCKS = [*product(MATRIX_DOTS.values(), SIDES)]
GROUPS_BLOCKS = [*product(WGMMA, "ac"), *product(TCGEN05, "c")]


@pytest.mark.parametrize(
    ("dot", "block"),
    [*long_rows(BLOCKS, BLOCKS[::3]), *long_rows(GROUPS_BLOCKS, GROUPS_BLOCKS[::9])],
    ids=str,
)
def test_lanes_hold_each_element_equally_often(dot: Dot, block: str) -> None:
    held = fragment(dot.fragments["abc".index(block)])
    assert len(held.lane) == dot.together.bit_length() - 1
    counts = Counter(tuple(at[side] for side in SIDES[block]) for _, _, at in held.places())
    extents = [getattr(dot, side) for side in SIDES[block]]
    assert sorted(counts) == [(i, j) for i in range(extents[0]) for j in range(extents[1])]
    assert len(set(counts.values())) == 1
    assert str(held) == str(fragment(str(held)))


@rows
def test_words_hold_neighbours_along_one_side(dot: Dot) -> None:
    for block in "ab":
        held, count = fragment(dot.fragments["ab".index(block)]), dot.in_word(block)
        low = held.element[: count.bit_length() - 1]
        assert low == tuple((low[0][0], n) for n in range(len(low)) if low[0])
        assert dot.fragment(block).elements * count == held.elements


# The formulas of the PTX ISA: groupID = lane >> 2, threadID_in_group = lane % 4.
Formula = Callable[[int, int], tuple[int, int]]
PTX: list[tuple[Dot, str, Formula]] = [
    (MMA_BF16, "a", lambda t, i: (
        (t >> 2) + (0 if i < 2 or 4 <= i < 6 else 8), t % 4 * 2 + (i & 1) + (8 if i >= 4 else 0))),
    (MMA_BF16, "b", lambda t, i: (t % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), t >> 2)),
    (MMA_BF16, "c", lambda t, i: ((t >> 2) + (0 if i < 2 else 8), t % 4 * 2 + (i & 1))),
    (MMA_TF32, "a", lambda t, i: (
        (t >> 2) + (0 if i in (0, 2) else 8), t % 4 + (0 if i in (0, 1) else 4))),
    (MMA_TF32, "b", lambda t, i: (t % 4 + 4 * i, t >> 2)),
    (MMA_TF32, "c", lambda t, i: ((t >> 2) + (0 if i < 2 else 8), t % 4 * 2 + (i & 1))),
    (MMA_S8, "a", lambda t, i: (
        (t >> 2) + (0 if i < 4 or 8 <= i < 12 else 8), t % 4 * 4 + (i & 3) + (0 if i < 8 else 16))),
    (MMA_S8, "b", lambda t, i: (t % 4 * 4 + (i & 3) + (0 if i < 4 else 16), t >> 2)),
    (MMA_S8, "c", lambda t, i: ((t >> 2) + (0 if i < 2 else 8), t % 4 * 2 + (i & 1))),
    (MMA_F64, "a", lambda t, i: (t >> 2, t % 4)),
    (MMA_F64, "b", lambda t, i: (t % 4, t >> 2)),
    (MMA_F64, "c", lambda t, i: (t >> 2, t % 4 * 2 + (i & 1))),
]  # fmt: skip
# Of wgmma: the four warps of a group hold 16 rows each, eight columns after the other.
WARP_GROUPS: list[tuple[Dot, str, Formula]] = [
    (dot, "c", lambda t, i: (
        t // 32 * 16 + t % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + t % 4 * 2 + i % 2))
    for dot in WGMMA
]  # fmt: skip
# Of their first factor a warp has 16 rows as for mma.sync.
WARP_GROUPS += [
    (dot, "a", lambda t, i, whole=whole: (
        t // 32 * 16 + whole(t % 32, i)[0], whole(t % 32, i)[1]))
    for dot in WGMMA
    for other, block, whole in PTX
    if block == "a" and (other.a.size, other.rounding.kind) == (dot.a.size, dot.rounding.kind)
]  # fmt: skip
# Of tcgen05: lanes of tensor memory are rows, of 64 rows in sixteens that lie 32 lanes apart.
TENSORS: list[tuple[Dot, str, Formula]] = [
    (dot, "c", lambda t, i: (t, i))
    if dot.m == 128
    else (dot, "c", lambda t, i: (t // 32 * 16 + t % 16, i))
    for dot in TCGEN05
]
# AMD's: of mfma 16x16x16 lane l has row l % 16 and four steps from 4 * (l // 16) on; of its results
# column l % 16 and four rows, of f64 four apart. RDNA3's lanes l and l + 16 have the same factors,
# and rows in turns;
# RDNA4's hold half of a row each.
AMD: list[tuple[Dot, str, Formula]] = [
    (MFMA_BF16, "a", lambda t, i: (t % 16, 4 * (t // 16) + i)),
    (MFMA_BF16, "b", lambda t, i: (4 * (t // 16) + i, t % 16)),
    (MFMA_BF16, "c", lambda t, i: (4 * (t // 16) + i, t % 16)),
    (WMMA_F16, "a", lambda t, i: (t % 16, i)),
    (WMMA_F16, "b", lambda t, i: (i, t % 16)),
    (WMMA_F16, "c", lambda t, i: (2 * i + t // 16, t % 16)),
    (MFMA_S8_DEEP, "a", lambda t, i: (t % 16, 8 * (t // 16) + i)),
    (MFMA_S8_DEEP, "b", lambda t, i: (8 * (t // 16) + i, t % 16)),
    (MFMA_F32, "a", lambda t, i: (t % 16, t // 16)),
    (MFMA_F32, "b", lambda t, i: (t // 16, t % 16)),
    (MFMA_F32, "c", lambda t, i: (4 * (t // 16) + i, t % 16)),
    (MFMA_F64, "a", lambda t, i: (t % 16, t // 16)),
    (MFMA_F64, "b", lambda t, i: (t // 16, t % 16)),
    (MFMA_F64, "c", lambda t, i: (t // 16 + 4 * i, t % 16)),
    (WMMA_4[0], "a", lambda t, i: (t % 16, 8 * (t // 16) + i)),
    (WMMA_4[0], "b", lambda t, i: (8 * (t // 16) + i, t % 16)),
    (WMMA_4[0], "c", lambda t, i: (8 * (t // 16) + i, t % 16)),
]


MAKERS = [*PTX, *WARP_GROUPS, *TENSORS, *AMD]


@pytest.mark.parametrize(("dot", "block", "formula"), long_rows(MAKERS, MAKERS[::8]))
def test_fragments_are_those_of_the_makers(dot: Dot, block: str, formula: Formula) -> None:
    for lane, element, at in fragment(dot.fragments["abc".index(block)]).places():
        assert tuple(at[side] for side in SIDES[block]) == formula(lane, element)


@rows
def test_lanes_multiply_blocks(dot: Dot) -> None:
    rng = np.random.default_rng(0)
    a, b, acc = (
        rng.integers(-8, 8, shape).astype(dtype.numpy)
        for shape, dtype in (
            ((dot.m, dot.k), dot.a), ((dot.k, dot.n), dot.b), ((dot.m, dot.n), dot.accumulator)
        )
    )  # fmt: skip
    wide = dot.accumulator.numpy
    expected = acc + a.astype(wide) @ b.astype(wide)
    np.testing.assert_array_equal(dot.of_blocks(acc, a, b), expected)
    words = [np.dtype(f"u{max(4, dtype.size)}") for dtype in (dot.a, dot.b)]
    factors = [
        dealt(x, fragment(text), sides).view(word)
        for x, text, sides, word in zip((a, b), dot.fragments, ("mk", "kn"), words, strict=False)
    ]
    held = fragment(dot.fragments[2])
    result = dot.of_lanes(dealt(acc, held, "mn"), *factors)
    sides = {"m": dot.m, "n": dot.n}
    np.testing.assert_array_equal(gathered(result, held, sides, wide), expected)


def test_tf32_does_not_look_at_the_last_bits() -> None:
    a = np.full((16, 8), 1 + 2.0**-11, np.float32)
    b, acc = np.ones((8, 8), np.float32), np.zeros((16, 8), np.float32)
    np.testing.assert_array_equal(MMA_TF32.of_blocks(acc, a, b), np.full((16, 8), 8, np.float32))


@pytest.mark.parametrize(
    ("numerics", "rounding"),
    [
        (Numerics.EXACT, {Rounding.NONE}),
        (Numerics.STANDARD, {Rounding.NONE, Rounding.BLOCK}),
        (Numerics.RELAXED, {Rounding.NONE, Rounding.BLOCK, Rounding.SHORT, Rounding.ROUGH}),
    ],
)
def test_what_numerics_allow(numerics: Numerics, rounding: set[Rounding]) -> None:
    assert {dot.rounding for dot in usable([*MATRIX_DOTS.values()], numerics)} == rounding
