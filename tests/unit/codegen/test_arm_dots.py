"""Dots of AArch64 in assembly: which instruction, on which lanes."""

from __future__ import annotations

import re

import pytest

from luminal.backends.cpu import machine_code
from luminal.base.dots import (
    BF16_BLOCKS,
    BF16_PAIRS,
    INT8_BLOCKS,
    INT8_FOURS,
    UINT8_BLOCKS,
    UINT8_BY_INT8,
    UINT8_FOURS,
    Dot,
)
from luminal.base.dtypes import bfloat16
from luminal.codegen.llvm_arm_dots import WIDTHS, dot_of_words
from luminal.codegen.llvm_builder import PTR, VOID, FunctionBuilder, IRType, ModuleBuilder
from tests.machines import level

INSTRUCTIONS = {
    INT8_FOURS: "sdot",
    UINT8_FOURS: "udot",
    UINT8_BY_INT8: "usdot",
    BF16_PAIRS: "bfdot",
    INT8_BLOCKS: "smmla",
    UINT8_BLOCKS: "ummla",
    BF16_BLOCKS: "bfmmla",
}
SUMS = {dot: "float" if dot.accumulator.is_float else "i32" for dot in INSTRUCTIONS}


def dots_in(dot: Dot, lanes: int, name: str) -> list[str]:
    """The instructions that multiply, of a sum in memory that a product of words is added to."""
    target = level(name).target
    module = ModuleBuilder(target.features)
    width = f"vscale_range({target.vector_bits // 128},{target.vector_bits // 128})"
    params = [(text, PTR) for text in ("sums", "a", "x")]
    b = FunctionBuilder(module, "f", VOID, params, attributes=f"nounwind {width}")
    word, sums = IRType(f"i{dot.word.bits}", lanes), IRType(SUMS[dot], dot.m * lanes)
    types = (sums, word.with_lanes(dot.m) if dot.is_pair else word, word)
    operands = [b.load(*pair, 4) for pair in zip(types, b.params, strict=True)]
    b.store(dot_of_words(b, dot, *operands), b.params[0], 4)
    b.ret()
    text = machine_code.assembly(module.text(), target)
    return [" ".join(line.split()) for line in text.splitlines() if re.search("dot|mmla", line)]


@pytest.mark.parametrize(
    ("dot", "lanes"), [(d, n) for d in INSTRUCTIONS for n in WIDTHS if n >= d.n], ids=str
)
@pytest.mark.parametrize("name", ["v8.6", "sve256"])
def test_a_register_by_an_instruction(dot: Dot, lanes: int, name: str) -> None:
    """Of 128 bits, or of SVE's 256 where there are so many lanes."""
    results = lanes * dot.m
    is_long = name == "sve256" and results >= 8
    factor = "h" if dot.a is bfloat16 else "b"
    (r, s, f) = ("z", "s", factor) if is_long else ("v", "4s", {"h": "8h", "b": "16b"}[factor])
    form = rf"{INSTRUCTIONS[dot]} {r}\d+\.{s}, {r}\d+\.{f}, {r}\d+\.{f}"
    instructions = dots_in(dot, lanes, name)
    assert len(instructions) == max(1, results // (8 if is_long else 4))
    assert all(re.fullmatch(form, text) for text in instructions), instructions
