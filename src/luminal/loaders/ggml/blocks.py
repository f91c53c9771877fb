"""A block of packed numbers as a record, and how fields of few bits are taken from its bytes.

The layouts are those of https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h; all numbers
are little-endian, arithmetic is in float32 and in the order written there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from luminal.base.records import dataclass
from luminal.loaders.mapped import Array

VALUES_AT_ONCE = 1 << 18
"""Values that are decoded in one piece: what a piece needs beside them stays in the cache."""


@dataclass(frozen=True, slots=True)
class BlockType:
    """`size` values are stored as one `record`; `decode` takes (n,) records to (n, size) values,
    or to float32 of any shape with as many.
    """

    size: int
    record: np.dtype[Any]
    decode: Callable[[Array], Array]

    def decoded(self, records: Array) -> Array:
        """All values of (n,) records, as (n * size,) float32."""
        values = np.empty((len(records), self.size), np.float32)
        step = VALUES_AT_ONCE // self.size
        with np.errstate(all="ignore"):  # a scale may be infinite, or no number
            for first in range(0, len(records), step):
                piece = records[first : first + step]
                values[first : first + step] = self.decode(piece).reshape(len(piece), self.size)
        return values.reshape(-1)


def record(*fields: tuple[str, str] | tuple[str, str, int]) -> np.dtype[Any]:
    """A record without gaps: names, dtypes, and how many."""
    return np.dtype(list(fields))


def numbers(array: Array, *shape: int) -> Array:
    """The bytes as float32, (n, ...) of `shape` after the first dim."""
    return array.astype(np.float32).reshape(len(array), *shape)


def fields(data: Array, bits: int, run: int = 1) -> Array:
    """(n, k) unsigned integers to (n, k * fields): of each `run` of them the lowest `bits`, in
    order, then the next.
    """
    width = 8 * data.dtype.itemsize
    # Shifts and mask are of the data's own dtype, so that NumPy widens nothing.
    shifts = np.arange(0, width, bits).astype(data.dtype)[:, None]
    mask = data.dtype.type((1 << bits) - 1)
    return ((data.reshape(len(data), -1, 1, run) >> shifts) & mask).reshape(len(data), -1)


def packed_fields(codes: Array, bits: int, run: int = 1) -> Array:
    """The reverse, to bytes, of (n, k * fields) integers of which the lowest `bits` count."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    low = codes.astype(np.uint8) & np.uint8((1 << bits) - 1)
    parts = low.reshape(len(codes), -1, 8 // bits, run) << shifts
    return np.bitwise_or.reduce(parts, axis=2).reshape(len(codes), -1)


def signs(data: Array) -> Array:
    """(n, k) bytes to (n, 8 k): -1 where a bit is set, else 1, the lowest bit first."""
    return np.float32(1) - np.float32(2) * fields(data, 1)
