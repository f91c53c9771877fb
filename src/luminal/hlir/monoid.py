"""Monoids: the ways in which reductions, Scans and their partial results make one value of many.

All that a layer must know to cut, guard or carry a reduction follows from its record: what a sum of
nothing is, how two partial results become one, and whether the order in which they do shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luminal.base.dtypes import DType
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Monoid:
    """`combine`: the operation on two values, in HLIR, terms and tile IR; `reduction`: the one over
    axes; `scan`: the kind of a Scan. `empty`: the identity by dtype, which is what a reduction of
    nothing gives.
    """

    combine: str
    reduction: str
    scan: str
    empty: Callable[[DType], Any]
    is_idempotent: bool = False  # a value twice is that value

    def identity(self, dtype: DType) -> Any:
        """The identity as a NumPy scalar: combined with it every value stays as it is (a sum of -0
        is +0).
        """
        # In the dtype itself: the lowest value of int8 is none of int64, and a literal's bytes are
        # those of its dtype.
        return dtype.numpy.type(self.empty(dtype))

    def identity_bytes(self, dtype: DType) -> bytes:
        """The bytes of the identity, as a literal holds it."""
        return bytes(self.identity(dtype).tobytes())

    def is_exact(self, dtype: DType) -> bool:
        """Are the bits the same in whatever order and groups values are combined?"""
        return self.is_idempotent or not dtype.is_float


SUM = Monoid("Add", "Sum", "add", lambda dtype: 0)
PRODUCT = Monoid("Mul", "Prod", "mul", lambda dtype: 1)
MAXIMUM = Monoid("Maximum", "Max", "max", lambda dtype: dtype.lowest, is_idempotent=True)

MONOIDS = (SUM, PRODUCT, MAXIMUM)
REDUCTIONS = {monoid.reduction: monoid for monoid in MONOIDS}
SCANS = {monoid.scan: monoid for monoid in MONOIDS}
COMBINATIONS = {monoid.combine: monoid for monoid in MONOIDS}
