"""The form in which values to be reduced travel, so that every engine gives them one meaning.

Engines disagree about what they can reduce: MPI has no half floats, and leaves open what a NaN does
to a maximum (ranks may even get different results). So halves are summed as float32 and rounded
once, and maxima of floats are maxima of integers that lie in the order of the floats: exact, equal
on all ranks in whatever order they are taken, and a NaN wins, as in NumPy.
"""

from __future__ import annotations

import numpy as np

from luminal.base.dtypes import dtype_of
from luminal.runtime.collectives.tickets import Array, Monoid


def to_wire(values: Array, monoid: Monoid) -> Array:
    """The values as they travel: the array itself where engines reduce its dtype as we mean it."""
    dtype = dtype_of(values.dtype)
    if dtype.kind == "bool":
        return values.view(np.uint8)
    if not dtype.is_float:
        return values
    if monoid in ("max", "min"):
        return _keys(values, 1 if monoid == "max" else -1)
    return values.astype(np.float32) if dtype.is_storage else values


def from_wire(wire: Array, target: Array, monoid: Monoid) -> None:
    """Writes reduced values that have travelled into the target."""
    dtype = dtype_of(target.dtype)
    if dtype.is_float and monoid in ("max", "min"):
        target[:] = _folded(wire).view(target.dtype)
    else:
        target[:] = wire.view(target.dtype) if dtype.kind == "bool" else wire


def _keys(values: Array, sign: int) -> Array:
    """Integers in the order of the floats, -0 below +0; a NaN is beyond all in the direction of
    `sign`.
    """
    integer = np.dtype(f"i{values.dtype.itemsize}")
    keys = _folded(values.view(integer))
    extreme = np.iinfo(integer)
    # The greatest and the least integer are keys of NaNs, and become NaNs again.
    keys[np.isnan(values)] = extreme.max if sign > 0 else extreme.min
    return keys


def _folded(bits: Array) -> Array:
    """Bits of floats as ordered integers, and back: where the sign is set, the rest flips."""
    width = 8 * bits.dtype.itemsize - 1
    flipped: Array = bits ^ ((bits >> width) & np.iinfo(bits.dtype).max)
    return flipped
