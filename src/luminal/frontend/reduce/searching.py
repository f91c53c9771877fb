"""Looking for values: searchsorted, nonzero, unique, isin, and how often values occur."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError, InputError, ShapeError
from luminal.frontend.creation import linspace
from luminal.frontend.handle import (
    Extent,
    Operand,
    along,
    axis_of,
    describe,
    is_tensor,
    work_dtype,
)
from luminal.frontend.movement.indexing import elements_of, gather, gather_at, noted, take
from luminal.frontend.movement.scatter import written
from luminal.frontend.movement.views import ravel, stack, unsqueeze
from luminal.frontend.pointwise.binary import (
    broadcast,
    common_shape,
    equal,
    graph_of,
    lifted,
    promotion,
    where,
)
from luminal.frontend.reduce.reductions import any, cumsum, greatest
from luminal.shape.expression import Expression, const, maximum

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


_MOST_BITS = 48
"""Of the addresses of a process: AArch64 has one more than x86-64. Longer ones (52 and 56 bits) a
kernel gives only to who asks for them by address."""


def _binary_search(sequence: Tensor, wanted: Tensor, right: bool) -> Tensor:
    """How many elements come before: built bit by bit, from the greatest power of 2 down."""
    extent = sequence.extents[-1]
    hi = extent.interval.hi
    shape = wanted.extents
    entries: list[Any] = [along(k, shape[k]) for k in range(sequence.ndim - 1)]
    place = wanted.graph.zeros(shape, dtypes.int64)
    # Bit by bit instead of bounds that meet: the number of steps depends on the extent alone, so
    # nothing branches and rows need not agree.
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
    """The positions of the elements that are not 0: (count, ndim), int64.

    As a tuple one tensor a dim; a 0-d Tensor counts as one of one element. On the default graph
    elements are computed for it; elsewhere ShapeError for what is no constant: see nonzero_static.
    """
    array = elements_of(x)
    if array is None:
        _refuse("nonzero", x, "use nonzero_static(size), which says how many")
    positions = np.nonzero(np.atleast_1d(array))  # one row of no columns for a 0-d element
    if as_tuple:
        return tuple(noted(x, part) for part in positions)
    return noted(x, np.stack(positions, 1)[:, : array.ndim])


def argwhere(x: Tensor) -> Tensor:
    """The positions of elements that are not 0, a row each, as `nonzero` gives them."""
    positions = nonzero(x)
    assert is_tensor(positions)
    return positions


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of x where `mask`, which broadcasts with x, is true: one dim.

    On the default graph the mask is computed for it; elsewhere ShapeError for what is no constant.
    """
    array = elements_of(mask)
    if array is None:
        _refuse("masked_select", mask, "use where(mask, x, 0), or x[mask] with a constant mask")
    shape = common_shape("masked_select", (mask, x))
    places = np.flatnonzero(np.broadcast_to(array, [n.value for n in shape]))
    return take(ravel(broadcast(x, shape)), noted(mask, places), 0)


def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements of x in ascending order, or slices along `dim`, as torch.unique.

    With `return_inverse` also which of them each element is, in the shape of x (along `dim`, one
    for each slice), with `return_counts` how often each occurs (int64). Each NaN is one. `sorted`
    changes nothing. On the default graph elements are computed for it; elsewhere ShapeError for
    what is no constant.
    """
    array = _elements("unique", x)
    axis = None if dim is None else axis_of("unique", dim, x.ndim)
    values, inverse, counts = np.unique(array, False, True, True, axis=axis, equal_nan=False)
    shape = x.shape if axis is None else (array.shape[axis],)
    return _found(x, values, inverse.reshape(shape), counts, return_inverse, return_counts)


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements of x flattened, or its slices along `dim`, of which each differs from the one
    before it, as torch.unique_consecutive; results and errors as of `unique`.
    """
    array = _elements("unique_consecutive", x)
    axis = 0 if dim is None else axis_of("unique_consecutive", dim, x.ndim)
    rows = array.reshape(-1) if dim is None else np.moveaxis(array, axis, 0)
    is_new = np.ones(len(rows), np.bool_)
    differs = rows[1:] != rows[:-1]
    is_new[1:] = differs.any(tuple(range(1, differs.ndim)))
    starts, inverse = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    values = rows[starts] if dim is None else np.moveaxis(rows[starts], 0, axis)
    counts = np.diff(starts, append=len(rows))
    inverse = inverse.reshape(array.shape) if dim is None else inverse
    return _found(x, values, inverse, counts, return_inverse, return_counts)


def _elements(what: str, x: Tensor) -> np.ndarray[Any, Any]:
    array = elements_of(x)
    if array is None:
        _refuse(what, x, "sort it and compare neighbours")
    return array


def _found(
    x: Tensor, values: Any, inverse: Any, counts: Any, return_inverse: bool, return_counts: bool
) -> Any:
    """What is asked for of these arrays, beside x: one Tensor, or a tuple."""
    more = [inverse] * return_inverse + [counts] * return_counts
    tensors = tuple(noted(x, np.ascontiguousarray(array)) for array in (values, *more))
    return tensors if more else tensors[0]


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


# --- sets -----------------------------------------------------------------------------------------


def isin(
    elements: Operand,
    test_elements: Operand,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:
    """True for each element that equals one of `test_elements`, or with `invert` none of them.

    Each is compared with each; `assume_unique` changes nothing.
    """
    graph = graph_of("isin", (elements, test_elements))
    x, values = graph.constant(elements), graph.constant(test_elements)
    is_there = any(equal(unsqueeze(x, -1), ravel(values)), -1)
    return ~is_there if invert else is_there


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """The ways to choose r elements of the 1-d x, in order, a row each. Its extent is literal."""
    if x.ndim != 1 or not x.extents[0].is_const:
        raise ShapeError(f"combinations: {describe(x)}; it takes one dim of a literal extent")
    if r < 0:
        raise ShapeError(f"combinations: r is {r}; give r >= 0")
    if r == 0:
        return x[:0]
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(x.extents[0].value), r))
    return take(x, np.array(rows, np.int64).reshape(-1, r), 0)


# --- counting -------------------------------------------------------------------------------------


def bincount(
    x: Tensor, weights: Tensor | None = None, minlength: int = 0, *, size: Extent | None = None
) -> Tensor:
    """How often each of 0, 1, 2 ... occurs in the 1-d x (int64), or the sum of its `weights`.

    `size` is the number of counts, since shapes are known before a run; what lies beyond is not
    counted. Without it x is a constant, whose greatest element decides, and `minlength`. Sums are
    float32 of float32 weights, else float64, as PyTorch's. Raises ShapeError, DTypeError.
    """
    if x.ndim != 1 or not x.dtype.is_int:
        raise DTypeError(f"bincount: {describe(x)}; it takes integers of one dim")
    if weights is not None and weights.extents != x.extents:
        raise ShapeError(
            f"bincount: {describe(weights)} are not one weight for each of {describe(x)}"
        )
    literal = elements_of(x)
    if literal is not None and literal.size and int(literal.min()) < 0:
        raise InputError(f"bincount: the element {int(literal.min())} is below 0")
    if size is None:
        if literal is None:
            raise ShapeError(
                f"bincount: the elements of {describe(x)} would decide the shape, which is fixed "
                "before a run; say how many counts there are with size="
            )
        size = int(literal.max(initial=-1)) + 1
    count = maximum(x.graph.extent(size), minlength)
    if weights is None:
        return _added(x, x.graph.full(x.extents, 1, dtypes.int64), count)
    work = dtypes.float32 if weights.dtype is dtypes.float32 else dtypes.float64
    return _added(x, weights.cast(work), count)


def _added(places: Tensor, values: Tensor, count: object) -> Tensor:
    """The sums of `values` by their places in 0..count-1; other places are left out."""
    zeros = places.graph.full((count,), 0, values.dtype)  # type: ignore[arg-type]
    return written(zeros, [places.cast(dtypes.int64)], values, "add")


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements of x lie in each of `bins` equal parts of min..max, both included.

    In x's dtype (float32 of integers), as torch.histc. min = max: from the least to the greatest
    element; where these are equal, half more on both sides. NaN and what lies beyond is left out.
    PyTorch raises for a range with NaN or infinities; here nothing is counted then.
    """
    work = work_dtype(x.dtype)
    flat = ravel(x).cast(work)
    low, high = _range("histc", flat, bins, None if min == max else (min, max))
    inside = (flat >= low) & (flat <= high)
    part = ((flat - low) * bins / (high - low)).floor()
    place = where(inside, part.clip(0, bins - 1), -1).cast(dtypes.int64)
    counts = _added(place, x.graph.full(flat.extents, 1, dtypes.int64), const(bins))
    return counts.cast(x.dtype if x.dtype.is_float else work)


class Histogram(NamedTuple):
    """The results of `histogram`: counts, and the edges of the bins."""

    hist: Tensor
    bin_edges: Tensor


def histogram(
    x: Tensor,
    bins: int | Tensor | Sequence[float],
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """(hist, bin_edges) of x's elements, each counted as 1 or as its `weight`, as torch.histogram.

    `bins`: how many equal parts of `range` (by default least to greatest), or ascending edges. The
    last edge is included. With `density`, the integral over the bins is 1.
    """
    work = work_dtype(x.dtype)
    flat = ravel(x).cast(work)
    if isinstance(bins, int | np.integer):
        low, high = _range("histogram", flat, int(bins), range)
        edges = linspace(x.graph, low, high, int(bins) + 1, work)
    else:
        edges = (bins if is_tensor(bins) else x.graph.constant(np.asarray(bins))).cast(work)
        if edges.ndim != 1:
            raise ShapeError(f"histogram: the edges {describe(edges)} are not of one dim")
    count = edges.extents[0] - 1
    place = searchsorted(edges, flat, right=True) - 1
    # The last bin includes its end; what lies outside, NaN too, is counted nowhere.
    place = where(flat == edges[-1], count - 1, place)
    place = where(flat <= edges[-1], place, -1)
    shares = x.graph.full(flat.extents, 1, work) if weight is None else ravel(weight).cast(work)
    hist = _added(place, shares, count)
    if density:
        hist = hist / (edges[1:] - edges[:-1]) / hist.sum()
    back = x.dtype if x.dtype.is_float else work
    return Histogram(hist.cast(back), edges.cast(back))


def _range(
    what: str, x: Tensor, bins: int, values: tuple[float, float] | None
) -> tuple[Tensor, Tensor]:
    """The ends of the first and the last bin, which differ; None: the least and greatest of x."""
    if bins < 1:
        raise ShapeError(f"{what}: {bins} bins; give at least 1")
    if values is None:
        high, low = greatest(x, (0,), keepdim=False), -greatest(-x, (0,), keepdim=False)
        empty = high < low  # the greatest of nothing is -inf
        low, high = where(empty, 0, low), where(empty, 1, high)
    elif not (np.isfinite(values[0]) and np.isfinite(values[1]) and values[0] <= values[1]):
        raise InputError(
            f"{what}: {values[0]}..{values[1]} is no range; give finite ends, the lower one first"
        )
    else:
        low, high = (x.graph.constant(float(end)).cast(x.dtype) for end in values)
    single = low == high
    return where(single, low - 0.5, low), where(single, high + 0.5, high)
