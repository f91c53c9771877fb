"""Sorts of long rows in blocks, which are merged pair by pair until a row is one run.

Both are stable, so the end is that of a stable sort, whatever the size of a block. Rows are the
last dimension. Each has two results as a Sort has: the keys, and where in the row they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luminal.base.dtypes import DType

Array = NDArray[Any]


class SortedBlocks(NamedTuple):
    """A Sort of each block of `size` positions alone; places are of dtype `order`."""

    axis: int
    size: int
    order: DType


class MergedRuns(NamedTuple):
    """Keys and places, of which runs of `size` positions are in order, with each pair of runs made
    one; places get dtype `order`.
    """

    axis: int
    size: int
    order: DType


def evaluate(attrs: SortedBlocks | MergedRuns, args: Sequence[Array]) -> tuple[Array, ...]:
    """The keys and places by NumPy, which is the meaning of both records."""
    keys = args[0]
    length = keys.shape[-1]
    places = args[1] if len(args) > 1 else np.broadcast_to(np.arange(length), keys.shape)
    size = attrs.size if isinstance(attrs, SortedBlocks) else 2 * attrs.size
    merged = np.empty_like(keys), np.empty(keys.shape, attrs.order.numpy)
    for start in range(0, length, size):
        part = np.s_[..., start : start + size]
        order = np.argsort(keys[part], axis=-1, kind="stable")
        for result, source in zip(merged, (keys, places), strict=True):
            result[part] = np.take_along_axis(source[part], order, -1)
    return merged
