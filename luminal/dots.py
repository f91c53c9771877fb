"""Dots: what a device multiplies and adds in one go, beside a plain fused multiply-add."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dtypes import DType, bfloat16, float32, uint16, uint32, uint64

WORDS = {dtype.size: dtype for dtype in (uint16, uint32, uint64)}


@dataclass(frozen=True, slots=True)
class Dot:
    """`acc + a[0]*b[0] + ... + a[k-1]*b[k-1]`, with roundings of its own.

    The `k` neighbours along the sum lie side by side in either factor, which are of the dtype
    `factor`; the accumulator is of the dtype `accumulator`.
    """

    name: str
    k: int
    factor: DType
    accumulator: DType

    @property
    def word(self) -> DType:
        """The unsigned integer that holds the neighbours of a factor."""
        return WORDS[self.k * self.factor.size]

    def __str__(self) -> str:
        return self.name


BF16_PAIRS = Dot("bf16x2", 2, bfloat16, float32)
DOTS = {dot.name: dot for dot in (BF16_PAIRS,)}
