"""Codes: packed weights as small integers with scales, decoded, or multiplied as they are.

A weight is `scale * (code - zero)`, plus `more` or less `less`, with a scale for each group of
neighbours. Decoded it is floats. Multiplied as it is (`product`) the other factor is rounded to
bytes as well, each BLOCK with a scale of its own, and what is left are sums of products of bytes,
which machines compute many times as fast as those of floats:

    sum over groups of  scale_x * scale * (sum of x * code - zero * sum of x)

The user chooses so, since it rounds what runs through the model to 8 bits: it is what programs do
that such files are made for. All of it is ordinary operations on integers, exact but for scales.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.records import dataclass

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

BLOCK = 32  # neighbours of a row of x that share a scale
GREATEST = 127  # code of x


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """`codes` (rows, groups ..., values ...) are bytes, signed or not; `scale`, `more` and `less`
    are float32 of the same number of dims, 1 along those of a group's values.
    """

    codes: Tensor
    scale: Tensor
    zero: int = 0
    more: Tensor | None = None
    less: Tensor | None = None

    def decoded(self) -> Tensor:
        """float32 values of the codes' shape."""
        codes = self.codes.cast(dtypes.int8) - self.zero if self.zero else self.codes
        value = self.scale * codes.cast(dtypes.float32)
        if self.more is not None:
            value = value + self.more
        return value if self.less is None else value - self.less

    @property
    def has_products(self) -> bool:
        """Do groups and blocks of x share their bounds?"""
        groups, size = self._groups()
        row = prod(groups) * size == prod(n.value for n in self.codes.extents[1:])
        return row and (size == BLOCK or (2 * size == BLOCK and groups[-1:] == (2,)))

    def product(self, x: Tensor) -> Tensor:
        """`x @ values.mT` for x (..., length of a row) of floats, rounded to bytes: float32."""
        groups, size = self._groups()
        batch = x.extents[:-1]
        q, scale_x = _rounded(x.cast(dtypes.float32).reshape(*batch, -1, BLOCK))
        q = q.reshape(*batch, *groups, size)
        whole = groups if size == BLOCK else (*groups[:-1], 1)
        scale_x = scale_x.reshape(*batch, *whole)
        codes, zero = self.codes, self.zero
        if codes.dtype is dtypes.int8:  # dots take one factor without signs
            codes, zero = codes.bitcast(dtypes.uint8) ^ 128, zero + 128
        rows_last = (*range(1, len(groups) + 1), len(groups) + 1, 0)
        q = q.cast(dtypes.int32)
        wide = codes.cast(dtypes.int32).reshape(-1, *groups, size).permute(*rows_last)
        dots = q.unsqueeze(-2) @ wide
        sums = q.sum(-1).cast(dtypes.int32)
        if zero:
            dots = dots - (sums * zero).unsqueeze(-1).unsqueeze(-1)
        steps = dots.squeeze(-2).cast(dtypes.float32) * scale_x.unsqueeze(-1)
        over = tuple(range(-len(groups) - 1, -1))
        y = steps * _rows_last(self.scale, groups)
        x_sums = (scale_x * sums.cast(dtypes.float32)).unsqueeze(-1)
        if self.more is not None:
            y = y + x_sums * _rows_last(self.more, groups)
        if self.less is not None:
            y = y - x_sums * _rows_last(self.less, groups)
        return y.sum(over)

    def _groups(self) -> tuple[tuple[int, ...], int]:
        """The dims of groups, and the values of each."""
        shape = [each.value for each in self.codes.extents[1:]]
        inner = [each.value for each in self.scale.extents[1:]]
        kept = max(k for k, n in enumerate((0, *inner)) if n != 1)
        groups, size = tuple(shape[:kept]), prod(shape[kept:])
        return (groups, size) if size < BLOCK else ((*groups, size // BLOCK), BLOCK)


def _rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks along the last dim as bytes, and their scales (..., blocks)."""
    scale = x.abs().amax(-1, keepdim=True) / GREATEST
    codes = (x / scale.where(scale != 0, 1.0)).round().clip(-GREATEST, GREATEST)
    return codes.cast(dtypes.int8), scale.squeeze(-1)


def _rows_last(scale: Tensor, groups: tuple[int, ...]) -> Tensor:
    """(rows, groups ..., 1 ...) as (groups ..., rows)."""
    rows, *dims = scale.extents
    kept = [n.value for n in dims[: len(groups)]] + [1] * (len(groups) - len(dims))
    whole = scale.reshape(rows, *kept).expand(rows, *groups)
    return whole.permute(*range(1, len(groups) + 1), 0)
