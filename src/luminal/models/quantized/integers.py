"""Matrices of small integers, of which groups of a row share a scale and a zero point.

GPTQ, AWQ, compressed-tensors and bitsandbytes store such ones in layouts of bits of their own. All
become the same here: `scale * (code - zero)` with codes from 0 to 2**bits - 1. Where groups lie in
order and fill bytes, a matrix can stay packed. Its values are the file's: the product of a scale of
16 bits and a code or a zero is exact in float32, and so is the difference of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import gcd

import numpy as np

from luminal.base import dtypes
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.frontend.matrices.packed import Codes, Format, Packed
from luminal.frontend.tensor import Tensor

VALUES_AT_ONCE = 1 << 22
"""Values that are decoded in one piece, which bounds the memory beside the result."""
WORD = 32  # bits


def unpacked(words: Array, bits: int) -> Array:
    """The codes (..., n * 32 / bits) in words (..., n) of 32 bits, the lowest bits first; where 32
    is no multiple, codes go on in the next word.
    """
    words = words.view(np.uint32)
    shared = gcd(bits, WORD)
    count, period = WORD // shared, bits // shared  # codes, and words, after which all repeats
    parts = words.reshape(*words.shape[:-1], -1, period)
    codes = np.empty((*parts.shape[:-1], count), np.uint8)
    mask = np.uint32((1 << bits) - 1)
    for number in range(count):
        word, shift = divmod(number * bits, WORD)
        value = parts[..., word] >> np.uint32(shift)
        if shift + bits > WORD:
            value = value | parts[..., word + 1] << np.uint32(WORD - shift)
        codes[..., number] = value & mask
    return codes.reshape(*words.shape[:-1], -1)


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """`codes` (rows, columns), `zeros` and `scales` (rows, groups); `size` columns are a group, the
    last of which may be shorter. `groups` has the group of each column where these lie otherwise.
    """

    bits: int
    codes: Array
    zeros: Array
    scales: Array
    size: int
    groups: Array | None = None

    def why_decoded(self) -> str | None:
        """Why the matrix cannot stay packed, or None."""
        columns = self.codes.shape[1]
        if self.groups is not None:
            return "inputs are in another order (desc_act)"
        if columns % self.size:
            return "rows are no whole groups"
        if self.size * self._width % 8:
            return "groups are no whole bytes"
        if self.scales.dtype.itemsize > 2 and not self._is_symmetric:
            return "zero points with scales of 32 bits"
        return None

    def packed(self, name: str) -> Packed:
        """A Parameter of the same values; `why_decoded` must be None."""
        rows, columns = self.codes.shape
        codes: Array = self.codes.reshape(rows, -1, self.size)
        zeros: Array = self.zeros.astype(np.uint8)
        if self._width == 8:
            codes, zeros = ((a ^ np.uint8(128)).view(np.int8) for a in (codes, zeros))
        else:
            # Each part of a group takes some bits of all its bytes, so that the innermost axis is a
            # run of bytes.
            count = 8 // self._width
            shifts = np.arange(0, 8, self._width, dtype=np.uint8)[:, None]
            parts = codes.reshape(rows, -1, count, self.size // count) << shifts
            codes = np.bitwise_or.reduce(parts, axis=2)
        data = {"codes": codes, "scales": self.scales}
        if not self._is_symmetric:
            data["zeros"] = zeros
        return Packed(FORMATS[self._width], (rows, columns), data, name)

    def decoded(self) -> Array:
        """The values as float32 (rows, columns)."""
        rows, columns = self.codes.shape
        groups = np.arange(columns) // self.size if self.groups is None else self.groups
        values = np.empty((rows, columns), np.float32)
        step = max(VALUES_AT_ONCE // max(columns, 1), 1)
        for first in range(0, rows, step):
            piece = slice(first, first + step)
            zeros = self.zeros[piece].astype(np.float32)[:, groups]
            scales = self.scales[piece].astype(np.float32)[:, groups]
            values[piece] = (self.codes[piece] - zeros) * scales
        return values

    @property
    def _width(self) -> int:
        """The bits of a code that stays packed."""
        return 4 if self.bits == 3 else self.bits

    @property
    def _is_symmetric(self) -> bool:
        return bool((self.zeros == 1 << (self._width - 1)).all())


def _unpack(width: int, data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    codes, scales = data["codes"], data["scales"].astype(np.float32)[..., None]
    zero = 0
    if width < 8:
        shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
        fields = codes[:, :, None] >> shifts & np.uint8((1 << width) - 1)
        codes, zero = fields.reshape(*codes.shape[:2], -1), 1 << (width - 1)
    zeros = data["zeros"].astype(np.float32)[..., None] if "zeros" in data else np.float32(zero)
    return np.asarray((codes.astype(np.float32) - zeros) * scales).reshape(shape)


def _codes(width: int, parts: Mapping[str, Tensor]) -> Codes:
    codes, scales, zero = parts["codes"], parts["scales"].cast(dtypes.float32).unsqueeze(2), 0
    if width < 8:
        shifts = (codes.graph.arange(8 // width) * width).cast(dtypes.uint8).reshape(-1, 1)
        codes, zero = (codes.unsqueeze(2) >> shifts) & ((1 << width) - 1), 1 << (width - 1)
        scales = scales.unsqueeze(3)
    if "zeros" not in parts:
        return Codes(codes, scales, zero)
    zeros = parts["zeros"].cast(dtypes.float32).reshape(*scales.extents)
    return Codes(codes, scales, less=scales * zeros)


FORMATS: Mapping[int, Format] = {
    width: Format(f"grouped{width}", partial(_codes, width), partial(_unpack, width))
    for width in (2, 4, 8)
}
"""By bits: data are `codes` (rows, groups, bytes), `scales`, and `zeros` where these are not all
half of the range."""
