"""Arrays that lie in files, in blocks, of which a rank reads what it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.base.complex_dtypes import ComplexDType
from luminal.base.dtypes import DType
from luminal.base.errors import LoadError
from luminal.memory.data import any_array_of

Array = np.ndarray[Any, Any]
Block = tuple[tuple[int, ...], Array]
"""Where a block begins in the whole, and its elements, mapped."""

AT_ONCE = 64 << 20  # bytes that are read before the file's pages are let go of


class Stored:
    """An array of `shape` in blocks: `stored[2:4, :]` reads those elements and nothing else.

    `let_go` is told which mapped array is not needed any more. Raises LoadError for elements that
    no block has.
    """

    def __init__(
        self, name: str, shape: tuple[int, ...], blocks: Sequence[Block],
        let_go: Callable[[Array], None] = lambda array: None,
    ) -> None:  # fmt: skip
        self.name, self.shape, self._blocks, self._let_go = name, shape, blocks, let_go
        self.dtype = blocks[0][1].dtype

    def __getitem__(self, places: tuple[slice, ...]) -> Array:
        box = [place.indices(n)[:2] for place, n in zip(places, self.shape, strict=True)]
        out = np.empty([end - begin for begin, end in box], self.dtype)
        filled = 0
        for start, block in self._blocks:
            # In the coordinates of the whole, what of the box this block has.
            begins = [max(at, begin) for at, (begin, _) in zip(start, box, strict=True)]
            ends = [
                min(at + n, end) for at, n, (_, end) in zip(start, block.shape, box, strict=True)
            ]
            if any(begin >= end for begin, end in zip(begins, ends, strict=True)):
                continue
            here: Any = tuple(map(slice, _minus(begins, start), _minus(ends, start)))
            origin = [begin for begin, _ in box]
            there: Any = tuple(map(slice, _minus(begins, origin), _minus(ends, origin)))
            target = out[(*there, ...)]  # with the dots an array, also of no dimensions
            self._copy(block[(*here, ...)], target)
            filled += target.size
        if filled != out.size:
            raise LoadError(
                f"{self.name}: the files have {filled} of {out.size} elements that are asked for; "
                "parts are missing, or lie over each other"
            )
        return out

    def _copy(self, source: Array, target: Array) -> None:
        if not source.ndim:
            target[...] = source
            return
        rows = max(1, AT_ONCE // max(1, source.nbytes // max(1, len(source))))
        for first in range(0, len(source), rows):
            piece = source[first : first + rows]
            target[first : first + rows] = piece
            self._let_go(piece)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self[(slice(None),) * len(self.shape)].astype(dtype or self.dtype, copy=False)


def _minus(ends: Sequence[int], begins: Sequence[int]) -> list[int]:
    return [end - begin for end, begin in zip(ends, begins, strict=True)]


def stored_or_array(data: Any, dtype: DType | ComplexDType, name: str) -> Array | Stored:
    """Gives what `any_array_of` gives, but leaves an array of this dtype in its files."""
    if isinstance(data, Stored) and data.dtype == dtype.numpy:
        return data
    return any_array_of(data, dtype, name)
