"""Products of floats of 8 and 4 bits that share scales by blocks, of both factors.

Blocks of 32 share a power of two (Open Compute Project, Microscaling Formats 1.0, section 6.3), of
16 a float8_e4m3fn (NVIDIA, "Introducing NVFP4", 2025). Some chips multiply such blocks as they are;
elsewhere both factors are widened. A row of x that has NaN or an infinity gives NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.base.dtypes import (
    DType,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e8m0fnu,
    float32,
    uint8,
    uint32,
)
from luminal.base.records import dataclass
from luminal.frontend.pointwise.binary import where

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

GREATEST_POWER = 8  # the exponent of 448, the greatest of float8_e4m3fn
GREATEST = 6.0, 448.0  # of float4_e2m1fn, and of its scales
LEAST = 2.0**-117  # so that 2**-9, the least scale, times it is a normal number of float32


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Matrices as they lie: `codes` (..., blocks ..., values ...) of float8_e4m3fn or
    float4_e2m1fn, `scales` (..., blocks ...) of float8_e8m0fnu or float8_e4m3fn; `whole` is
    float32 that all values of the matrix have as a factor, or (..., 1) those of each row.
    """

    codes: Tensor
    scales: Tensor
    whole: Tensor | None = None

    @property
    def factors(self) -> DType:
        """What a factor that is multiplied with it is rounded to: its own kind of blocks."""
        return float4_e2m1fn if self.scales.dtype is float8_e4m3fn else float8_e4m3fn

    def values(self) -> Tensor:
        """float32 values, `whole` left out, in the shape of the codes."""
        scales = self.scales.cast(float32)
        for _ in range(len(self.codes.extents) - len(self.scales.extents)):
            scales = scales.unsqueeze(-1)
        return self.codes.cast(float32) * scales

    def product(self, x: Tensor) -> Tensor:
        """`x @ values.mT` for x (..., length of a row) of floats, rounded to blocks: float32."""
        batch = x.extents[:-1]
        x = x.cast(float32)
        other = _pairs(x) if self.factors is float4_e2m1fn else _bytes(x)
        blocks = [n.value for n in self.scales.extents[1:]]
        inner = [n.value for n in self.codes.extents[1 + len(blocks) :]]
        a = Blocks(
            other.codes.reshape(*batch, 1, *blocks, *inner),
            other.scales.reshape(*batch, 1, *blocks),
        )
        y = (a.values() * self.values()).sum(tuple(range(-len(blocks) - len(inner), 0)))
        for whole in (other.whole, self.whole):
            y = y if whole is None else y * whole
        return y


def _bytes(x: Tensor) -> Blocks:
    """Blocks of 32: the scale is the power of two of the greatest value, 2**8 less; what that
    leaves beyond 448 becomes 448.
    """
    blocks = x.reshape(*x.extents[:-1], -1, 32)
    exponents = blocks.abs().amax(-1).bitcast(uint32) >> 23
    # The exponent's code of f32 is that of e8m0, of NaN and infinities as well; the least ones lack
    # room for 2**8 less.
    codes = where(exponents == 255, 255, where(exponents < GREATEST_POWER, 0, exponents - 8))
    inverse = ((254 - codes.cast(uint32)) << 23).bitcast(float32)
    rounded = (blocks * inverse.unsqueeze(-1)).cast(float8_e4m3fn)
    return Blocks(rounded, codes.cast(uint8).bitcast(float8_e8m0fnu))


def _pairs(x: Tensor) -> Blocks:
    """Blocks of 16: the greatest value of a row is 6 times 448 times its `whole`, that of a block
    6 times a scale in float8_e4m3fn times that.
    """
    blocks = x.reshape(*x.extents[:-1], -1, 16)
    greatest = blocks.abs().amax(-1)
    whole = greatest.amax(-1, keepdim=True) / (GREATEST[0] * GREATEST[1])
    # Products of it that are subnormal have no finite inverse.
    whole = where(whole < LEAST, LEAST, whole)
    scales = (greatest / whole / GREATEST[0]).cast(float8_e4m3fn)
    steps = scales.cast(float32) * whole
    inverse = where(steps > 0, 1 / where(steps > 0, steps, 1.0), 0.0)
    rounded = (blocks * inverse.unsqueeze(-1)).cast(float4_e2m1fn)
    return Blocks(rounded, scales, whole)
