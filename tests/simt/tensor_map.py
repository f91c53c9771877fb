"""Tensor maps of the shims: what a driver of a device makes of how boxes are cut out."""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.kernel.boxes import MOST_DIMENSIONS, Tensor

MARK = 0x7E5071
"""What the upper half of the second word is, so that no other memory is taken for a map."""


def words(tensor: Tensor, address: int) -> np.ndarray[Any, Any]:
    """The 16 words of a map: the address; mark, width of lines, bytes of an element, dimensions;
    extents; strides in bytes but the first; sides of a box.
    """
    if tensor.refusal is not None or address % 16:
        raise ValueError(f"{tensor} at {address}: {tensor.refusal or 'no multiple of 16'}")
    form = MARK << 32 | tensor.swizzle << 16 | tensor.size << 8 | len(tensor.extents)
    steps = [stride * tensor.size for stride in tensor.strides[1:]]

    def filled(values: Any, count: int) -> list[int]:
        return [*values, *[0] * (count - len(values))]

    sides = (tensor.extents, MOST_DIMENSIONS), (steps, MOST_DIMENSIONS - 1)
    rest = [word for side in sides for word in filled(*side)]
    return np.array([address, form, *rest, *filled(tensor.box, MOST_DIMENSIONS)], np.uint64)
