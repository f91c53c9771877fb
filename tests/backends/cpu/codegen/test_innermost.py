"""What AArch64's kernels do in their innermost loops, read from their assembly: no such machine is
needed, and none could be timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

import luminal as lm
from luminal.compiler.compile import lower_by_stages
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from tests.backends.cpu.codegen.innermost import Loop, innermost
from tests.machines import level

LEVELS = ("neon", "v8.6", "sve256")
END = 3  # scalar instructions that end a loop: it counts, compares, branches
ADDRESSES = 3  # of two arrays, and a distance that both share
SHORT, LONG = 20 / 9, 16 / 10  # of tiles of 5 rows by 4 registers of 128 bits, of 8 by 2
BLOCKS = 16 / 12  # of 4 rows by 4 columns, or of 8 by 2, words of twice as many numbers in each
PER_LOAD = {
    "product of f32": (SHORT, SHORT, LONG),
    "product of bf16": (SHORT, BLOCKS, BLOCKS),
    "product of int8": (SHORT, BLOCKS, BLOCKS),
    "a row by a matrix": (16 / 17,) * 3,
    "a row by a matrix of bf16": (8 / 17,) * 3,  # words are joined of two loads,
    "a row by a matrix of int8": (4 / 17,) * 3,  # of four
    "attention": (16 / 10,) * 3,
    "softmax": (32 / 4,) * 3,
    "layer norm": (4 / 4,) * 3,
}
"""Multiply-adds for each register that is loaded, in the loops that have most of them, by level."""


def product(rows: int, dtype: lm.DType, exact: lm.DType | None = None) -> Callable[[], lm.Tensor]:
    """Rows by a matrix of weights."""

    def graph() -> lm.Tensor:
        cx = lm.Graph()
        x, w = cx.tensor((rows, 512), dtype, name="x"), cx.weight((512, 512), dtype, name="w")
        return x @ w if exact is None else x.cast(exact) @ w.cast(exact)

    return graph


def attention() -> lm.Tensor:
    cx = lm.Graph()
    return scaled_dot_product_attention(*(cx.tensor((8, 256, 64), name=name) for name in "qkv"))


def rows() -> lm.Tensor:
    return lm.Graph().tensor((256, 1024), name="x")


CASES: dict[str, Callable[[], lm.Tensor]] = {
    "product of f32": product(256, lm.float32),
    "product of bf16": product(256, lm.bfloat16),
    "product of int8": product(256, lm.int8, lm.int32),
    "a row by a matrix": product(1, lm.float32),
    "a row by a matrix of bf16": product(1, lm.bfloat16),
    "a row by a matrix of int8": product(1, lm.int8, lm.int32),
    "attention": attention,
    "softmax": lambda: rows().softmax(-1),
    "layer norm": lambda: rows().layer_norm(-1),
}


@cache
def loops(case: str, name: str) -> list[Loop]:
    """The innermost loops of the kernels that run, of those that compute with vectors."""
    cpu, y = level(name), CASES[case]()
    y.output("y")
    program = lower_by_stages(y.graph.graph(), cpu).program
    launched = {launch.kernel for launch in program.launches}
    texts = [cpu.assembly(program.kernels[n]) for n in sorted(launched)]
    return [loop for text in texts for loop in innermost(text) if loop.of_vectors]


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_spilled(case: str, name: str) -> None:
    assert [loop.spills for loop in loops(case, name)] == [[] for _ in loops(case, name)]


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_multiplied_often(case: str, name: str) -> None:
    many = max(loop.multiplies for loop in loops(case, name))
    for loop in loops(case, name):
        if 2 * loop.multiplies >= many:  # else what tiles leave over
            least = PER_LOAD[case][LEVELS.index(name)]
            assert loop.multiplies / loop.loads >= least, loop.instructions


# SVE's instruction that spreads a word over a register reaches 252 bytes, so no row of a tile but
# the first: each of the other seven has an address of its own.
SPREAD = 7
PAIRS = 1  # of two pairs of rows the second words are loaded by addresses of their own
BYTES = 7  # five are loaded as scalars where there is no dot, and addresses take two sums more


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_loops_have_few_scalars(case: str, name: str) -> None:
    if name == "sve256":
        extra = SPREAD
    else:
        of_blocks = PAIRS if name == "v8.6" and PER_LOAD[case][1] == BLOCKS else 0
        extra = BYTES if (case, name) == ("product of int8", "neon") else of_blocks
    for loop in loops(case, name):
        if loop.multiplies:
            assert loop.scalars <= END + ADDRESSES + extra, loop.instructions


def test_loops_are_found() -> None:
    """Of nested loops the inner one, of a text with a spill and a pair of loads."""
    (loop,) = innermost("""
kernel:
    mov x8, xzr
.LBB0_1:
    movi v0.2d, #0
.LBB0_2: // inner
    ldp q1, q2, [x0], #32
    ldr w9, [x1]
    str q3, [sp, #16]
    fmla v0.4s, v1.4s, v2.s[0]
    sdot v3.4s, v1.16b, v2.4b[1]
    fadd v3.4s, v3.4s, v0.4s
    cmp x8, #4
    b.lt .LBB0_2
    add x8, x8, #1
    cbnz x8, .LBB0_1
    ret
""")
    assert (loop.multiplies, loop.loads, loop.scalars) == (2, 3, 3)
    assert loop.spills == ["str q3, [sp, #16]"]


@pytest.mark.parametrize("case", ["product of bf16", "product of int8"])
def test_blocks_of_two_rows_do_more_with_an_instruction(case: str) -> None:
    """A loop's products for each of its instructions, by registers of 128 bits: with blocks, and
    without.
    """
    bits = 8 if case.endswith("int8") else 16
    by_level = {}
    for name in ("v8.2", "v8.6"):
        loop = max(loops(case, name), key=lambda loop: loop.multiplies)
        is_block = any("mmla" in text for text in loop.instructions)
        products = loop.multiplies * (256 if is_block else 128 if bits == 8 else 32) / bits
        by_level[name] = products / len(loop.instructions)
    assert by_level["v8.6"] > 1.9 * by_level["v8.2"], by_level
