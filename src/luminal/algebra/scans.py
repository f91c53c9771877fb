"""Scans whose values may be combined in any grouping, in blocks that know what stands before them.

A scan of a monoid over blocks is a scan in each block that begins with the total of all blocks
before it; the totals of the blocks, scanned, are what these begin with (Blelloch, Prefix sums and
their applications, 1990). So blocks run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luminal.algebra.terms import OpaqueAttrs, Term
from luminal.hlir import semantics
from luminal.hlir.attributes import ScanAttrs
from luminal.hlir.monoid import SCANS

Array = NDArray[Any]


class BlockedScan(NamedTuple):
    """A Scan of `kind` along `axis`, its values combined in any grouping.

    `size`: positions of a block, which begins with the value of operand 1 at the block's number in
    place of the position; 0: there is one block, and no operand 1.
    """

    kind: str
    axis: int
    size: int = 0


# Floats round differently in another grouping; integers and extremes do not. So `exact` keeps the
# chain for floats only.
def may_regroup(scan: Term) -> bool:
    """Can the values of the scan be combined in another order than that of the row?"""
    attrs: OpaqueAttrs = scan.attrs
    is_free = isinstance(attrs.hlir, BlockedScan)
    return is_free or SCANS[attrs.hlir.kind].is_exact(scan.dtype)


def block_size(scan: Term) -> int:
    """Positions of a block; 0: the row is one."""
    attrs: OpaqueAttrs = scan.attrs
    return attrs.hlir.size if isinstance(attrs.hlir, BlockedScan) else 0


def evaluate(
    attrs: BlockedScan, dims: Mapping[str, int], args: Sequence[Array]
) -> tuple[Array, ...]:
    """The result of a blocked Scan, by NumPy, which is its meaning."""
    x, plain = np.moveaxis(args[0], attrs.axis, 0), ScanAttrs(attrs.kind, 0)
    if not attrs.size:
        (result,) = semantics.scan(plain, dims, (x,))
        return (np.moveaxis(result, 0, attrs.axis),)
    before = np.moveaxis(args[1], attrs.axis, 0)
    result = np.empty_like(x)
    for block, start in enumerate(range(0, len(x), attrs.size)):
        part = np.concatenate((before[block : block + 1], x[start : start + attrs.size]))
        (scanned,) = semantics.scan(plain, dims, (part,))
        result[start : start + attrs.size] = scanned[1:]
    return (np.moveaxis(result, 0, attrs.axis),)
