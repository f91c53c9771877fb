"""Floats of 4 bits and the scales of their blocks, as operations on bytes.

e2m1 has a sign, two bits of exponent and one of mantissa; doubled, its values are integers, which
products of bytes can multiply. Open Compute Project, Microscaling Formats 1.0, sections 5.3.3, 5.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.base import dtypes
from luminal.frontend.pointwise.binary import where

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def doubled(codes: Tensor) -> Tensor:
    """Twice the values of codes of e2m1 (bytes from 0 to 15), as int8: 0, 1, 2, 3, 4, 6, 8, 12 and
    the negative ones.
    """
    body = codes & 7
    # From 4 on the mantissa has a one in front, and the upper bit of the exponent counts from 2.
    large = ((body & 1) * 2 + 4) << ((body >> 1) & 1)
    size = where(body < 4, body, large)
    sign = codes >> 3
    return ((size ^ (sign * 255)) + sign).bitcast(dtypes.int8)


def halved_power(exponents: Tensor) -> Tensor:
    """Half of what codes of e8m0 (bytes) stand for, 2 ** (code - 127), as float32."""
    wide = exponents.cast(dtypes.uint32)
    # The first two are below the normal numbers, where the mantissa says which.
    tiny = where(wide < 1, 1 << 21, 1 << 22).cast(dtypes.uint32)
    return where(wide < 2, tiny, (wide - 1) << 23).bitcast(dtypes.float32)
