"""Looking for values: searchsorted, bucketize, nonzero.

The shapes of a graph are known before it runs. What has as many elements as the data says (nonzero,
masked_select, unique) raises ShapeError, unless the count is given, or the data is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.binary import lifted, promotion, where
from luminal.frontend.handle import Extent, Operand, along, describe, is_tensor
from luminal.frontend.indexing import gather, gather_at, literal_of
from luminal.frontend.movement import ravel, stack
from luminal.frontend.ordered import cumsum
from luminal.frontend.scatter import written
from luminal.shape.expression import Expression

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# --- sorted sequences -----------------------------------------------------------------------------


def searchsorted(
    sequence: Tensor,
    values: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each value would have to stand in the ascending last dim of `sequence`: int64.

    Before equals, or behind them with `right` (side="right"). A 1-d sequence serves values of any
    shape; otherwise both have the same leading dims. NaN is the greatest. `sorter`: the order that
    sorts the sequence. A binary search: log2(n) Gathers, Selects between them.
    """
    if side not in (None, "left", "right"):
        raise ShapeError(f'searchsorted: side={side!r} is not known; use "left" or "right"')
    right = right if side is None else side == "right"
    if sequence.ndim == 0:
        raise ShapeError(f"searchsorted: {describe(sequence)} is no sequence; it takes a dim")
    if sorter is not None:
        sequence = gather(sequence, -1, sorter)
    dtype = promotion((sequence, values)).compute
    dtype = dtypes.uint8 if dtype is dtypes.bool_ else dtype
    sequence, wanted = sequence.cast(dtype), lifted("searchsorted", sequence.graph, values, dtype)
    lead = sequence.extents[:-1]
    if lead and lead != wanted.extents[:-1]:
        raise ShapeError(
            f"searchsorted: {describe(sequence)} and {describe(wanted)} differ in leading dims"
        )
    place = _binary_search(sequence, wanted, right)
    return place.cast(dtypes.int32 if out_int32 else dtypes.int64)


_MOST_BITS = 47  # of the addresses of a process, on x86-64


def _binary_search(sequence: Tensor, wanted: Tensor, right: bool) -> Tensor:
    """How many elements come before: built bit by bit, from the greatest power of 2 down."""
    extent = sequence.extents[-1]
    hi = extent.interval.hi
    shape = wanted.extents
    entries: list[Any] = [along(k, shape[k]) for k in range(sequence.ndim - 1)]
    place = wanted.graph.zeros(shape, dtypes.int64)
    for bit in reversed(range(min((2**31 if hi is None else hi).bit_length(), _MOST_BITS))):
        further = place + 2**bit
        element = gather_at(sequence, shape, [*entries, further - 1])
        before = ~_precedes(wanted, element) if right else _precedes(element, wanted)
        place = where((further <= extent) & before, further, place)
    return place


def _precedes(x: Tensor, y: Tensor) -> Tensor:
    """x < y, with NaN above all."""
    return (x < y) | ((y != y) & (x == x)) if x.dtype.is_float else x < y


def bucketize(
    x: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket of each value among ascending `boundaries`: `searchsorted(boundaries, x)`."""
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


# --- as many as there are -------------------------------------------------------------------------


def nonzero_static(x: Tensor, size: Extent, fill_value: int = -1) -> Tensor:
    """The positions of the elements that are not 0, in row-major order: (size, ndim), int64.

    The first `size` of them; rows of `fill_value` where there are fewer. A running count says in
    which row a position goes, Scatter puts it there.
    """
    count = x.graph.extent(size)
    chosen = ravel(x).cast(dtypes.bool_)
    row = where(chosen, cumsum(chosen, 0) - 1, count)  # past the end: written nowhere
    columns = []
    for k in range(x.ndim):
        blank = x.graph.full((count,), fill_value, dtypes.int64)
        columns.append(written(blank, [row], ravel(x.graph.iota(x.extents, k)), "set"))
    return stack(columns, 1) if columns else x.graph.zeros((count, 0), dtypes.int64)


def nonzero(x: Tensor, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The positions of the elements that are not 0, of a constant: (count, ndim), int64.

    As a tuple one tensor a dim; a 0-d constant counts as one of one element. Raises ShapeError for
    what is computed: see nonzero_static.
    """
    array = literal_of(x)
    if array is None:
        _refuse("nonzero", x, "use nonzero_static(size), which says how many")
    found = np.nonzero(np.atleast_1d(array))  # one row of no columns for a 0-d element
    if as_tuple:
        return tuple(x.graph.constant(part) for part in found)
    return x.graph.constant(np.stack(found, 1)[:, : array.ndim])


def argwhere(x: Tensor) -> Tensor:
    """The same as `nonzero`."""
    found = nonzero(x)
    assert is_tensor(found)
    return found


def masked_select(x: Tensor, mask: Tensor) -> NoReturn:
    """Raises ShapeError: as many elements as the mask has; `x[mask]` takes constant masks."""
    _refuse("masked_select", mask, "use where(mask, x, 0), or x[mask] with a constant mask")


def unique(x: Tensor, *options: Any, **more: Any) -> NoReturn:
    """Raises ShapeError: as many elements as the data has different ones."""
    _refuse("unique", x, "sort it and compare neighbours")


unique_consecutive = unique


def _refuse(what: str, x: Tensor, fix: str) -> NoReturn:
    raise ShapeError(
        f"{what}: the elements of {describe(x)} would decide the shape, which is fixed before a "
        f"run; {fix}"
    )


def unravel_index(x: Tensor, shape: Sequence[Extent]) -> tuple[Tensor, ...]:
    """Row-major positions in `shape` as one tensor of positions per dim."""
    parts: list[Tensor] = []
    for n in reversed(x.graph.extents(tuple(shape))):
        extent: Expression | int = n.value if n.is_const else n
        parts.append(x % extent)
        x = x // extent
    return tuple(reversed(parts))
