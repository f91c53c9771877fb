"""Tables looked up by integer ids: embedding, embedding_bag, one_hot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.handle import Extent, describe
from luminal.frontend.movement.indexing import elements_of, take
from luminal.frontend.movement.scatter import index_add, index_reduce
from luminal.frontend.movement.views import unsqueeze
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.searching import searchsorted

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def embedding(
    ids: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` at `ids`: shape (*ids.shape, weight.shape[1]). One Gather.

    With `max_norm`, rows whose norm is greater are scaled down to it; the weight does not change.
    They get the gradient of the scaled rows, as in PyTorch, where it is the weight that is scaled.
    The row `padding_idx` gets no gradient; with `scale_grad_by_freq` a row's is divided by how
    often it is read. `sparse` changes nothing.
    """
    if weight.ndim != 2:
        raise ShapeError(f"embedding: the weight is {describe(weight)}; it takes (rows, width)")
    if padding_idx is None and not scale_grad_by_freq:
        rows = take(weight, ids, 0)
    else:
        rows = _rows(weight, ids, padding_idx, scale_grad_by_freq)
    if max_norm is None:
        return rows
    return _bounded(rows, max_norm, norm_type)


@differentiated(lambda g, y, rows, max_norm, norm_type: g, marked=True)
def _bounded(rows: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows of a norm of at most `max_norm`."""
    size = (rows.abs() ** norm_type).sum(-1, keepdim=True) ** (1 / norm_type)
    return where(size > max_norm, rows * (max_norm / (size + 1e-7)), rows)


def _rows_derivative(
    g: Tensor, y: Tensor, weight: Tensor, ids: Tensor, padding: int | None, by_frequency: bool
) -> tuple[Tensor, None]:
    if padding is not None:
        ignored = padding if padding >= 0 else weight.extents[0] + padding
        g = where((ids == ignored).unsqueeze(-1), 0, g)
    # The gradient of a Gather is a Scatter that adds; ids that repeat meet in one row.
    places, rows = ids.reshape(-1), g.reshape(-1, weight.extents[1])
    if by_frequency:
        ones = g.graph.ones(places.extents, g.dtype)
        count = index_add(g.graph.zeros(weight.extents[:1], g.dtype), 0, places, ones)
        rows = rows / take(count, places).unsqueeze(-1)
    return index_add(g.graph.zeros(weight.extents, g.dtype), 0, places, rows), None


@differentiated(_rows_derivative, marked=True)
def _rows(weight: Tensor, ids: Tensor, padding: int | None, by_frequency: bool) -> Tensor:
    return take(weight, ids, 0)


def one_hot(x: Tensor, classes: Extent = -1, dtype: Any = dtypes.int64) -> Tensor:
    """1 at position x of a new last dim of extent `classes`, 0 elsewhere; no 1 if out of range.

    An Equal with positions. -1 takes the greatest element + 1, of a constant, or on the default
    graph, where it is computed for that.
    """
    graph = x.graph
    if isinstance(classes, int) and classes == -1:
        array = elements_of(x)
        if array is None or array.size == 0:
            raise ShapeError(
                f"one_hot: {describe(x)} would decide the shape; say how many classes there are"
            )
        classes = int(array.max()) + 1
    # An Equal instead of a Scatter of ones: by element, so it fuses with what reads it.
    # Bytes would count the classes behind the last one from the first on again.
    is_wide = x.dtype.is_int and x.dtype.size >= dtypes.int32.size
    positions = graph.arange(classes, dtype=x.dtype if is_wide else dtypes.int64)
    return (unsqueeze(x, -1) == positions).cast(dtype)


MODES = ("sum", "mean", "max")


def embedding_bag(
    ids: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Sums (means, maxima) of the rows of `weight` at the ids of each bag: shape (bags, width).

    2-d ids: a bag a row. 1-d ids: bags start at `offsets`, ascending; which bag an id belongs to is
    found by searchsorted, and rows go there by Scatter. With `include_last_offset` the last offset
    is where the last bag ends. Ids equal to `padding_idx` do not count; an empty bag gives 0.
    `max_norm` and the options of gradients are as in `embedding`.
    """
    if mode not in MODES:
        raise ShapeError(f"embedding_bag: mode {mode!r} is not one of {', '.join(MODES)}")
    rows = embedding(ids, weight, None, max_norm, norm_type, scale_grad_by_freq)
    counted = ids == ids
    if padding_idx is not None:  # negative: from the end
        counted = ids != (padding_idx if padding_idx >= 0 else weight.extents[0] + padding_idx)
    if per_sample_weights is not None:
        rows = rows * unsqueeze(per_sample_weights, -1)
    if ids.ndim == 2:
        return _bags_of_rows(rows, counted, mode)
    if ids.ndim != 1 or offsets is None:
        raise ShapeError(f"embedding_bag: ids {describe(ids)}; give 2-d ids, or 1-d with offsets")
    return _bags_of_offsets(rows, counted, offsets, mode, include_last_offset)


def _bags_of_rows(rows: Tensor, counted: Tensor, mode: str) -> Tensor:
    """`rows` is (bags, length, width)."""
    mask = unsqueeze(counted, -1)
    if mode == "max":
        greatest = where(mask, rows, float("-inf")).max(1).values
        return where(counted.any(1).unsqueeze(-1), greatest, 0)
    total = where(mask, rows, 0).sum(1)
    return total if mode == "sum" else total / counted.sum(1).maximum(1).unsqueeze(-1)


def _bags_of_offsets(
    rows: Tensor, counted: Tensor, offsets: Tensor, mode: str, include_last: bool
) -> Tensor:
    """`rows` is (ids, width); a row that does not count goes to a bag that is cut off."""
    graph = rows.graph
    bags = offsets.extents[0] - (1 if include_last else 0)
    # Row i belongs to the last bag that starts at or before i, which also skips empty bags.
    place = searchsorted(offsets, graph.arange(rows.extents[0]), right=True) - 1
    place = where(counted, place, bags)
    shape = (bags + 1, rows.extents[1])
    zeros = graph.zeros(shape, rows.dtype)
    if mode == "max":
        return index_reduce(zeros, 0, place, rows, "amax", include_self=False)[:bags]
    total = index_add(zeros, 0, place, rows)[:bags]
    if mode == "sum":
        return total
    ones = graph.ones((rows.extents[0],), rows.dtype)
    count = index_add(graph.zeros((bags + 1,), rows.dtype), 0, place, ones)[:bags]
    return total / count.maximum(1).unsqueeze(-1)
