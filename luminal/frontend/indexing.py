"""Reading and writing at computed positions: gather, take, scatter, embedding, one_hot.

Positions are integer tensors. Negative ones count from the end; those of an input are checked to be
in range before a run, any other that is out of range reads 0 and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal import dtypes
from luminal.errors import DTypeError, ShapeError
from luminal.frontend.binary import lifted, promotion, where
from luminal.frontend.handle import (
    Extent,
    Operand,
    Shape,
    along,
    axis_of,
    describe,
    is_tensor,
    numpy_names,
    together,
)
from luminal.frontend.movement import expand, narrow, reshape
from luminal.hlir.attributes import ConstantAttrs
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# --- reading --------------------------------------------------------------------------------------


def gather_at(x: Tensor, shape: Shape, entries: Sequence[Expression | Tensor]) -> Tensor:
    """`out[i...] = x[entries...]`; tensors among the entries have `shape`."""
    graph, _ = together(x, *(e for e in entries if is_tensor(e)))
    map_ = [e if isinstance(e, Expression) else graph.bring(e) for e in entries]
    return graph.wrap(graph.builder.gather(graph.bring(x), shape, map_))


def wrapped(indices: Tensor, extent: Expression) -> Tensor:
    """Positions with the negative ones counted from the end of `extent`.

    Constants are wrapped now; they raise ShapeError if they are out of range.
    """
    if not indices.dtype.is_int:
        raise DTypeError(f"index: {describe(indices)} does not hold integers; cast it")
    attrs = indices.value.node.attrs
    if isinstance(attrs, ConstantAttrs) and extent.is_const:
        return _wrapped_constant(indices, attrs.array, extent.value)
    if not indices.dtype.is_signed:
        return indices
    if indices.dtype.size < 4:
        indices = indices.cast(dtypes.int32)
    return where(indices < 0, indices + extent, indices)


def _wrapped_constant(indices: Tensor, array: np.ndarray[Any, Any], extent: int) -> Tensor:
    wide = array.astype(np.int64)
    outside = (wide < -extent) | (wide >= extent)
    if outside.any():
        worst = int(wide[outside].flat[0])
        raise ShapeError(f"index: {worst} is out of range for an extent of {extent}")
    return indices.graph.constant(np.where(wide < 0, wide + extent, wide))


def _along(x: Tensor, axis: int, shape: Shape, indices: Tensor) -> list[Expression | Tensor]:
    """The map that replaces the position along `axis` by `indices`, of `shape`."""
    entries: list[Expression | Tensor] = [along(k, n) for k, n in enumerate(shape)]
    entries[axis] = wrapped(indices, x.extents[axis])
    return entries


def gather(x: Tensor, dim: int, indices: Operand) -> Tensor:
    """`out[i][j][k] = x[indices[i][j][k]][j][k]` for dim 0, and so on; as PyTorch's gather."""
    axis = axis_of("gather", dim, x.ndim)
    found = x.graph.constant(indices)
    _check_beside("gather", x, found, axis)
    return gather_at(x, found.extents, _along(x, axis, found.extents, found))


def _check_beside(what: str, x: Tensor, indices: Tensor, axis: int) -> None:
    """Indices have x's rank and, outside of `axis`, extents within x's."""
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"{what}: the indices {describe(indices)} and {describe(x)} differ in rank; "
            "use take for indices of another rank"
        )
    for k, (n, limit) in enumerate(zip(indices.extents, x.extents, strict=True)):
        if k != axis:
            x.graph.require(n <= limit, f"{what}: extent {n} of the indices in dim {k}")


@numpy_names
def take(x: Tensor, indices: Operand, dim: int | None = None) -> Tensor:
    """The slices at `indices` along `dim`, in the shape of the indices; None: of x flattened."""
    if dim is None:
        return take(reshape(x, -1), indices, 0)
    axis = axis_of("take", dim, x.ndim)
    found = wrapped(x.graph.constant(indices), x.extents[axis])
    shape = (*x.extents[:axis], *found.extents, *x.extents[axis + 1 :])
    after = x.ndim - axis - 1
    picks = expand(reshape(found, (*found.extents, *(const(1),) * after)), shape)
    entries: list[Expression | Tensor] = [along(k, n) for k, n in enumerate(shape[:axis])]
    entries.append(picks)
    entries += [along(k, shape[k]) for k in range(len(shape) - after, len(shape))]
    return gather_at(x, shape, entries)


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """The rows of `weight` at `ids`: shape (*ids.shape, weight.shape[1])."""
    if weight.ndim != 2:
        raise ShapeError(f"embedding: the weight is {describe(weight)}; it takes (rows, width)")
    return take(weight, ids, 0)


def one_hot(x: Tensor, classes: Extent, dtype: Any = dtypes.int64) -> Tensor:
    """1 at position x of a new last dim of extent `classes`, 0 elsewhere; no 1 if out of range."""
    graph = x.graph
    positions = graph.arange(classes, dtype=x.dtype if x.dtype.is_int else dtypes.int64)
    return (x.unsqueeze(-1) == positions).cast(dtype)


# --- writing --------------------------------------------------------------------------------------


def _scattered(x: Tensor, entries: Sequence[Expression | Tensor], src: Tensor, mode: str) -> Tensor:
    graph, (dest, source) = together(x, src)
    map_ = [e if isinstance(e, Expression) else graph.bring(e) for e in entries]
    return graph.wrap(graph.builder.scatter(dest, map_, source, mode))


def scatter(x: Tensor, dim: int, indices: Operand, src: Operand) -> Tensor:
    """A copy of x with `out[indices[i][j]][j] = src[i][j]` for dim 0, and so on, as PyTorch.

    Where positions repeat, the last in row-major order wins. `src` may be a number.
    """
    return _scatter("scatter", x, dim, indices, src, "set")


def scatter_add(x: Tensor, dim: int, indices: Operand, src: Operand) -> Tensor:
    """As `scatter`, but adds to x, in row-major order where positions repeat."""
    return _scatter("scatter_add", x, dim, indices, src, "add")


def _scatter(what: str, x: Tensor, dim: int, indices: Operand, src: Operand, mode: str) -> Tensor:
    axis = axis_of(what, dim, x.ndim)
    found = x.graph.constant(indices)
    _check_beside(what, x, found, axis)
    dtype = promotion((x, src))
    if dtype is not x.dtype:
        raise DTypeError(f"{what}: src has values of {dtype.name}, {describe(x)} has not; cast one")
    work = dtype.compute if mode == "add" else dtype
    source = lifted(what, x.graph, src, work)
    if source.ndim == 0:
        source = expand(source, found.extents)
    for k, n in enumerate(found.extents):
        source = narrow(source, k, 0, n)
    entries = _along(x, axis, found.extents, found)
    return _scattered(x.cast(work), entries, source, mode).cast(dtype)


@numpy_names
def slice_scatter(x: Tensor, src: Tensor, dim: int = 0, start: Extent = 0) -> Tensor:
    """A copy of x whose elements along `dim` from `start` on are those of `src`: a region write.

    `start` may be an Expression of dims; start + extent <= x's extent is proved or required.
    """
    axis = axis_of("slice_scatter", dim, x.ndim)
    first = x.graph.extent(start)
    if first.is_const and first.value < 0:
        first = x.extents[axis] + first
    same = [n == m for n, m in zip(x.extents, src.extents, strict=False)]
    if src.ndim != x.ndim or not all(same[:axis] + same[axis + 1 :]):
        raise ShapeError(
            f"slice_scatter: {describe(src)} does not fit dim {axis} of {describe(x)}; "
            "all other extents must be equal"
        )
    what = f"slice_scatter: the end of src in dim {axis}"
    x.graph.require(first >= 0, what)
    x.graph.require(first + src.extents[axis] <= x.extents[axis], what)
    entries = [along(k, n) for k, n in enumerate(src.extents)]
    return _scattered(
        x, [*entries[:axis], first + entries[axis], *entries[axis + 1 :]], src.cast(x.dtype), "set"
    )
