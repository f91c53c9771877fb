"""Reading at computed positions: gather, take, index_select and their like.

Positions are integer tensors. Negative ones count from the end; those of an input are checked to be
in range before a run, any other that is out of range reads 0. Writing: `scatter.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.handle import (
    Operand,
    Shape,
    along,
    axis_of,
    describe,
    is_tensor,
    numpy_names,
    together,
)
from luminal.frontend.movement.views import expand, ravel, reshape
from luminal.frontend.pointwise.binary import broadcast, where
from luminal.hlir.attributes import ConstantAttrs
from luminal.shape.expression import Expression, const
from luminal.shape.view import broadcast_shapes

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Entries = Sequence["Expression | Tensor"]


# --- maps -----------------------------------------------------------------------------------------


def gather_at(x: Tensor, shape: Shape, entries: Entries) -> Tensor:
    """`out[i...] = x[entries...]`; tensors among the entries have `shape`."""
    graph, _ = together(x, *(e for e in entries if is_tensor(e)))
    map_ = [e if isinstance(e, Expression) else graph.bring(e) for e in entries]
    return graph.wrap(graph.builder.gather(graph.bring(x), shape, map_))


def wrapped(indices: Tensor, extent: Expression) -> Tensor:
    """Positions with the negative ones counted from the end of `extent`.

    Constants are wrapped now; they raise ShapeError if they are out of range.
    """
    if not indices.dtype.is_int:
        raise DTypeError(f"index: {describe(indices)} does not hold integers; write .to(lm.int64)")
    # What is known now is decided now: a constant index costs a run no comparison, and is refused
    # where it is written.
    array = literal_of(indices)
    if array is not None and extent.is_const:
        return _wrapped_constant(indices, array, extent.value)
    if not indices.dtype.is_signed:
        return indices
    # extent - 1 need not fit 8 or 16 bits, and a sum would wrap.
    if indices.dtype.size < 4:
        indices = indices.cast(dtypes.int32)
    return where(indices < 0, indices + extent, indices)


def literal_of(x: Tensor) -> np.ndarray[Any, Any] | None:
    """The elements of a constant; None for what is not known before a run."""
    attrs = x.value.node.attrs
    return attrs.array if isinstance(attrs, ConstantAttrs) else None


def elements_of(x: Tensor) -> np.ndarray[Any, Any] | None:
    """The elements of a constant, and on the default graph of any Tensor, as it has them now; None
    for what is not known before a run.
    """
    array = literal_of(x)
    return x.numpy() if array is None and x.graph.is_eager else array


def noted(x: Tensor, array: np.ndarray[Any, Any]) -> Tensor:
    """An array that follows from `elements_of(x)`, beside x: a constant, or an Input where the next
    x has others, so that the same program serves them.
    """
    is_constant = literal_of(x) is not None
    return x.graph.constant(array) if is_constant else x.graph.tensor(array)


def _wrapped_constant(indices: Tensor, array: np.ndarray[Any, Any], extent: int) -> Tensor:
    wide = array.astype(np.int64)
    outside = (wide < -extent) | (wide >= extent)
    if outside.any():
        worst = int(wide[outside].flat[0])
        raise ShapeError(f"index: {worst} is out of range for an extent of {extent}")
    return indices.graph.constant(np.where(wide < 0, wide + extent, wide))


def beside(x: Tensor, axis: int, indices: Tensor) -> list[Expression | Tensor]:
    """The map of `gather` and `scatter`: along `axis` the indices, elsewhere their own position."""
    # A map gives each dim of x a position: an Expression of the result's own, or a Tensor of them.
    entries: list[Expression | Tensor] = [along(k, n) for k, n in enumerate(indices.extents)]
    entries[axis] = wrapped(indices, x.extents[axis])
    return entries


def check_beside(what: str, x: Tensor, indices: Tensor, axis: int) -> None:
    """Indices have x's rank and, outside of `axis`, extents within x's."""
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"{what}: the indices {describe(indices)} and {describe(x)} differ in rank; "
            "use take for indices of another rank"
        )
    for k, (n, limit) in enumerate(zip(indices.extents, x.extents, strict=True)):
        if k != axis:
            words = f"{what}: extent {n} of the indices in dim {k}, at most {limit}"
            x.graph.require(n <= limit, words)


def row_of(what: str, x: Tensor, index: Operand) -> Tensor:
    """Indices of slices: integers in one dim; a 0-d tensor counts as one."""
    positions = x.graph.constant(index)
    if positions.ndim > 1:
        raise ShapeError(
            f"{what}: the index {describe(positions)} is not 1-d; flatten it, or use take"
        )
    return reshape(positions, 1) if positions.ndim == 0 else positions


# --- reading --------------------------------------------------------------------------------------


@numpy_names
def gather(x: Tensor, dim: int, index: Operand) -> Tensor:
    """`out[i][j][k] = x[index[i][j][k]][j][k]` for dim 0, and so on; as PyTorch's gather.

    The result has the shape of `index`, whose other extents may be less than x's. One Gather.
    """
    positions = x.graph.constant(index)
    if x.ndim == 0 or positions.ndim == 0:
        return reshape(gather(_at_least_1d(x), dim, _at_least_1d(positions)), positions.extents)
    axis = axis_of("gather", dim, x.ndim)
    if const(0) in positions.extents:
        return x.graph.zeros(positions.extents, x.dtype)
    check_beside("gather", x, positions, axis)
    return gather_at(x, positions.extents, beside(x, axis, positions))


def _at_least_1d(x: Tensor) -> Tensor:
    return reshape(x, 1) if x.ndim == 0 else x


@numpy_names
def take(x: Tensor, index: Operand, dim: int | None = None) -> Tensor:
    """The slices at `index` along `dim`, in the shape of the index; None: of x flattened.

    Shape (*x.shape[:dim], *index.shape, *x.shape[dim+1:]). One Gather.
    """
    if dim is None:
        return take(ravel(x), index, 0)
    axis = axis_of("take", dim, x.ndim)
    positions = wrapped(x.graph.constant(index), x.extents[axis])
    shape = (*x.extents[:axis], *positions.extents, *x.extents[axis + 1 :])
    after = x.ndim - axis - 1
    # The positions in the whole result's shape; repeated along what follows, which is a view.
    picks = expand(reshape(positions, (*positions.extents, *(const(1),) * after)), shape)
    entries: list[Expression | Tensor] = [along(k, n) for k, n in enumerate(shape[:axis])]
    entries.append(picks)
    entries += [along(k, shape[k]) for k in range(len(shape) - after, len(shape))]
    return gather_at(x, shape, entries)


@numpy_names
def index_select(x: Tensor, dim: int, index: Operand) -> Tensor:
    """The slices at the 1-d `index` along `dim`: `take(x, index, dim)`."""
    row = row_of("index_select", x, index)
    if x.ndim == 0:
        return reshape(take(reshape(x, 1), row, dim), ())
    return take(x, row, dim)


@numpy_names
def take_along_axis(x: Tensor, indices: Operand, dim: int | None = None) -> Tensor:
    """The elements at `indices` along `dim`; x and the indices broadcast elsewhere, as NumPy's do,
    where `gather` takes them as they are. None flattens x.

    PyTorch's name for it is take_along_dim.
    """
    positions = x.graph.constant(indices)
    if dim is None:
        return take_along_axis(ravel(x), ravel(positions), 0)
    axis = axis_of("take_along_axis", dim, x.ndim)
    if positions.ndim != x.ndim:
        raise ShapeError(
            f"take_along_axis: {describe(positions)} and {describe(x)} differ in rank; use take"
        )
    one = (const(1),)
    sides = [(*t.extents[:axis], *one, *t.extents[axis + 1 :]) for t in (x, positions)]
    common = broadcast_shapes(*sides)
    wide = [
        broadcast(t, (*common[:axis], t.extents[axis], *common[axis + 1 :])) for t in (x, positions)
    ]
    return gather_at(wide[0], wide[1].extents, beside(wide[0], axis, wide[1]))
