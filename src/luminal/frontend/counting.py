"""How often values occur: bincount, histc, histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from luminal import dtypes
from luminal.errors import DTypeError, InputError, ShapeError
from luminal.frontend.binary import where
from luminal.frontend.creation import linspace
from luminal.frontend.handle import Extent, describe, is_tensor, work_dtype
from luminal.frontend.indexing import literal_of
from luminal.frontend.movement import ravel
from luminal.frontend.reduce import greatest
from luminal.frontend.scatter import written
from luminal.frontend.search import searchsorted
from luminal.shape.expression import const, maximum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


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
    literal = literal_of(x)
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
    """What `histogram` gives."""

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
    place = where(flat == edges[-1], count - 1, place)
    place = where(flat <= edges[-1], place, -1)
    shares = x.graph.full(flat.extents, 1, work) if weight is None else ravel(weight).cast(work)
    hist = _added(place, shares, count)
    if density:
        hist = hist / (edges[1:] - edges[:-1]) / hist.sum()
    back = x.dtype if x.dtype.is_float else work
    return Histogram(hist.cast(back), edges.cast(back))


def _range(
    what: str, x: Tensor, bins: int, given: tuple[float, float] | None
) -> tuple[Tensor, Tensor]:
    """The ends of the first and the last bin, which differ; None: the least and greatest of x."""
    if bins < 1:
        raise ShapeError(f"{what}: {bins} bins; give at least 1")
    if given is None:
        high, low = greatest(x, (0,), keepdim=False), -greatest(-x, (0,), keepdim=False)
        empty = high < low  # the greatest of nothing is -inf
        low, high = where(empty, 0, low), where(empty, 1, high)
    elif not (np.isfinite(given[0]) and np.isfinite(given[1]) and given[0] <= given[1]):
        raise InputError(
            f"{what}: {given[0]}..{given[1]} is no range; give finite ends, the lower one first"
        )
    else:
        low, high = (x.graph.constant(float(end)).cast(x.dtype) for end in given)
    single = low == high
    return where(single, low - 0.5, low), where(single, high + 0.5, high)
