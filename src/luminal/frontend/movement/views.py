"""Views: other shapes, orders, parts and repetitions of a tensor's elements; nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.creation import position
from luminal.frontend.handle import (
    Extent,
    Shape,
    along,
    axes_of,
    axis_of,
    describe,
    is_tensor,
    listed,
    numpy_names,
    together,
)
from luminal.frontend.pointwise.binary import promotion, where
from luminal.shape import view as views
from luminal.shape.expression import TRUE, Expression, const, product_of, sum_of
from luminal.shape.view import View

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def view_of(x: Tensor, view: View) -> Tensor:
    """`x` through an index map."""
    return x.graph.wrap(x.graph.builder.view(x.value, view))


def mapped(
    x: Tensor, shape: Shape, entries: Sequence[Expression], domain: Expression = TRUE
) -> Tensor:
    """`out[i...] = x[entries...] if domain else 0`, for an output of `shape`; one view."""
    return view_of(x, views.made(x.extents, shape, entries, domain))


# --- shape ----------------------------------------------------------------------------------------


def reshape(x: Tensor, *shape: Extent | Sequence[Extent]) -> Tensor:
    """`x` in another shape, its elements in row-major order; one extent may be -1: the rest.

    Where dims decide whether both shapes have as many elements, each run is checked for it.
    """
    wanted = listed(shape)
    unknown = [k for k, n in enumerate(wanted) if isinstance(n, int) and n == -1]
    if len(unknown) > 1:
        raise ShapeError(f"reshape: {wanted} has more than one -1; give all extents but one")
    literal = [x.graph.extent(n) for n in wanted if not (isinstance(n, int) and n == -1)]
    if unknown:
        rest = _quotient(product_of(x.extents), product_of(literal))
        if rest is None:
            raise ShapeError(
                f"reshape: {describe(x)} does not divide into {wanted}; the extents beside -1 must "
                "divide the number of elements"
            )
        literal.insert(unknown[0], rest)
    try:
        return view_of(x, views.reshape(x.extents, tuple(literal)))
    except ShapeError as error:
        fitted = _of_as_many(x, literal)
        if fitted is None:
            raise ShapeError(f"{error}; one extent may be -1") from None
    return view_of(fitted, views.reshape(fitted.extents, tuple(literal)))


def _quotient(count: Expression, divisor: Expression) -> Expression | None:
    """How often `divisor` goes into `count`; None where that is known not to be whole."""
    exact = count.exact_div(divisor)
    is_decided = divisor == const(0) or (count.is_const and divisor.is_const)
    return exact if exact is not None or is_decided else count // divisor


def _of_as_many(x: Tensor, shape: Sequence[Expression]) -> Tensor | None:
    """`x` of as many elements as `shape`, where only the dims of a run tell that it is.

    Dims in front and behind that both have are kept; those between become one, which is spelled as
    the product of the wanted ones. None for known products, which differ.
    """
    # Equal dims at both ends stay as they are, so that what is known of them is not lost in the
    # product.
    least = min(x.ndim, len(shape))
    front = next((k for k in range(least) if x.extents[k] != shape[k]), least)
    most = least - front
    behind = next((k for k in range(most) if x.extents[-1 - k] != shape[-1 - k]), most)
    merged, wanted = (product_of(n[front : len(n) - behind]) for n in (x.extents, tuple(shape)))
    if merged.is_const and wanted.is_const:
        return None
    extents = (*x.extents[:front], merged, *x.extents[x.ndim - behind :])
    one = view_of(x, views.reshape(x.extents, extents))
    return respelled("reshape", one, (*extents[:front], wanted, *extents[front + 1 :]))


def respelled(what: str, x: Tensor, extents: Shape) -> Tensor:
    """`x` with other Expressions for its extents; each run is checked that they have its values."""
    # What the intervals of dims do not prove becomes a check at the start of each run, not an error
    # now.
    for n, wanted in zip(x.extents, extents, strict=True):
        x.graph.require(n.eq(wanted), what)
    starts, steps = (const(0),) * x.ndim, (const(1),) * x.ndim
    return view_of(x, views.slice_(x.extents, starts, steps, extents))


def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the shape of `other`."""
    return reshape(x, other.extents)


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dims start_dim .. end_dim, both included, as one; a 0-d tensor becomes 1-d."""
    if x.ndim == 0:
        return reshape(x, 1)
    first, last = (axis_of("flatten", d, x.ndim) for d in (start_dim, end_dim))
    if first > last:
        raise ShapeError(f"flatten: start_dim {first} comes after end_dim {last}; swap them")
    merged = product_of(x.extents[first : last + 1])
    return reshape(x, *x.extents[:first], merged, *x.extents[last + 1 :])


def ravel(x: Tensor) -> Tensor:
    """All elements in one dim, in row-major order."""
    return reshape(x, product_of(x.extents))


def merge_dims(x: Tensor, first: int, last: int) -> Tensor:
    """The dims first .. last, both included, as one: `flatten(x, first, last)`."""
    return flatten(x, first, last)


def split_dims(x: Tensor, dim: int, size: Extent) -> Tensor:
    """One dim of extent n as two, (n // size, size); raises ShapeError if it does not divide.

    A dim's divisibility is checked in each run.
    """
    return unflatten(x, dim, (-1, size))


def unflatten(x: Tensor, dim: int, sizes: Sequence[Extent]) -> Tensor:
    """One dim split into several, in row-major order; one of them may be -1: the rest."""
    axis = axis_of("unflatten", dim, x.ndim)
    return reshape(x, *x.extents[:axis], *_split_sizes(x, axis, sizes), *x.extents[axis + 1 :])


def _split_sizes(x: Tensor, axis: int, sizes: Sequence[Extent]) -> Shape:
    """`sizes` with a -1 replaced by what is left of the extent."""
    literal = [x.graph.extent(n) for n in sizes if not (isinstance(n, int) and n == -1)]
    if len(literal) == len(sizes):
        return tuple(literal)
    rest = _quotient(x.extents[axis], product_of(literal))
    if rest is None or len(literal) + 1 != len(sizes):
        raise ShapeError(f"unflatten: {x.extents[axis]} does not divide into {tuple(sizes)}")
    return tuple(rest if n == -1 else x.graph.extent(n) for n in sizes)


def permute(x: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """The dims in another order: result dim k is x's dim dims[k]."""
    order = tuple(axis_of("permute", d, x.ndim) for d in listed(dims))
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"permute: {listed(dims)} does not name each dim of {describe(x)} once")
    return view_of(x, views.permute(x.extents, order))


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """x with two dims exchanged."""
    if x.ndim == 0 and {dim0, dim1} <= {0, -1}:
        return x
    order = list(range(x.ndim))
    a, b = axis_of("transpose", dim0, x.ndim), axis_of("transpose", dim1, x.ndim)
    order[a], order[b] = b, a
    return permute(x, *order)


def matrix_transpose(x: Tensor) -> Tensor:
    """The last two dims exchanged."""
    return transpose(x, -1, -2)


def as_strided(
    x: Tensor, size: Sequence[Extent], stride: Sequence[Extent], storage_offset: Extent = 0
) -> Tensor:
    """`out[i, j ...] = x.ravel()[storage_offset + i * stride[0] + j * stride[1] ...]`; one view.

    As PyTorch's on a contiguous tensor. Positions are proved or required to lie in x; strides are
    not negative.
    """
    shape, flat = x.graph.extents(size), ravel(x)
    if len(stride) != len(shape):
        raise ShapeError(f"as_strided: {len(stride)} strides for {len(shape)} dims; give one each")
    place = last = x.graph.extent(storage_offset)
    for k, (n, step) in enumerate(zip(shape, stride, strict=True)):
        by = x.graph.extent(step)
        x.graph.require(by >= 0, "as_strided: a stride")
        place, last = place + along(k, n) * by, last + (n - 1) * by
    if const(0) not in shape:
        x.graph.require(last < flat.extents[0], "as_strided: the last position")
    return mapped(flat, shape, [place])


def movedim(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """The dims `source` moved to the places `destination`; the others keep their order."""
    sources, places = (
        [axis_of("movedim", d, x.ndim) for d in ([dims] if isinstance(dims, int) else dims)]
        for dims in (source, destination)
    )
    moved = dict(zip(places, sources, strict=False))
    if not len(moved) == len(set(sources)) == len(sources) == len(places):
        raise ShapeError(
            f"movedim: {source} to {destination}; give as many places as dims, each once"
        )
    others = (k for k in range(x.ndim) if k not in sources)
    return permute(x, [moved[k] if k in moved else next(others) for k in range(x.ndim)])


def t(x: Tensor) -> Tensor:
    """The two dims of a matrix exchanged; a 1-d or 0-d tensor as it is."""
    if x.ndim > 2:
        raise ShapeError(f"t: {describe(x)} has more than 2 dims; use .mT, or permute")
    return permute(x, *reversed(range(x.ndim)))


def expand(x: Tensor, *shape: Extent | Sequence[Extent]) -> Tensor:
    """Dims of extent 1, and new ones in front, repeated to `shape`; -1 keeps an extent."""
    wanted = listed(shape)
    offset = len(wanted) - x.ndim
    kept = [
        x.extents[k - offset] if isinstance(n, int) and n == -1 and k >= offset else n
        for k, n in enumerate(wanted)
    ]
    try:
        return view_of(x, views.expand(x.extents, x.graph.extents(kept)))
    except ShapeError as error:
        raise ShapeError(f"{error}; repeat copies") from None


def broadcast_to(x: Tensor, shape: Sequence[Extent]) -> Tensor:
    """`x` expanded to `shape`, as `expand` does it."""
    return expand(x, tuple(shape))


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` expanded to the shape of `other`."""
    return expand(x, other.extents)


@numpy_names
def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """x without the dims of extent 1 among `dim` (None: among all), as PyTorch."""
    gone = [k for k in axes_of("squeeze", dim, x.ndim) if x.extents[k] == const(1)]
    return reshape(x, tuple(n for k, n in enumerate(x.extents) if k not in gone))


@numpy_names
def unsqueeze(x: Tensor, dim: int | Sequence[int]) -> Tensor:
    """x with new dims of extent 1, at these positions of the result."""
    count = 1 if isinstance(dim, int) else len(dim)
    new = axes_of("unsqueeze", dim, x.ndim + count)
    old = iter(x.extents)
    return reshape(x, tuple(const(1) if k in new else next(old) for k in range(x.ndim + count)))


# --- parts ----------------------------------------------------------------------------------------


def narrow(x: Tensor, dim: int, start: Extent, length: Extent) -> Tensor:
    """`length` elements along `dim` from `start` on."""
    axis = axis_of("narrow", dim, x.ndim)
    first, count = x.graph.extent(start), x.graph.extent(length)
    x.graph.require(first >= 0, "narrow")
    x.graph.require(first + count <= x.extents[axis], "narrow")
    starts = [const(0)] * x.ndim
    extents = list(x.extents)
    starts[axis], extents[axis] = first, count
    ones = (const(1),) * x.ndim
    return view_of(x, views.slice_(x.extents, tuple(starts), ones, tuple(extents)))


def select(x: Tensor, dim: int, position: Extent) -> Tensor:
    """The slice at one position of `dim`, which goes away; negative ints count from the end."""
    axis = axis_of("select", dim, x.ndim)
    if isinstance(position, int) and position < 0:
        position = x.extents[axis] + position
    part = narrow(x, axis, position, 1)
    return reshape(part, tuple(n for k, n in enumerate(part.extents) if k != axis))


@numpy_names
def flip(x: Tensor, *dims: int | Sequence[int] | None, dim: Any = None) -> Tensor:
    """Backwards along the dims: one, several, or all where none is given."""
    named = dim if dims in ((), (None,)) else listed(dims)
    for axis in axes_of("flip", named, x.ndim):
        x = view_of(x, views.flip(x.extents, axis))
    return x


def fliplr(x: Tensor) -> Tensor:
    """Backwards along the second dim."""
    return flip(x, 1)


def flipud(x: Tensor) -> Tensor:
    """Backwards along the first dim."""
    return flip(x, 0)


@numpy_names
def roll(
    x: Tensor, shifts: Extent | Sequence[Extent], dim: int | Sequence[int] | None = None
) -> Tensor:
    """Shifted along `dim`; what leaves at one end enters at the other. None: of x flattened.

    One view: `out[i] = x[(i - shift) % n]`. Shifts may be Expressions of dims.
    """
    amounts: list[Any] = list(shifts) if isinstance(shifts, tuple | list) else [shifts]
    if dim is None:
        if len(amounts) != 1:
            raise ShapeError(f"roll: {len(amounts)} shifts without dims; give a dim for each")
        return reshape(roll(ravel(x), amounts[0], 0), x.extents)
    dims = [dim] if isinstance(dim, int) else list(dim)
    if len(dims) != len(amounts):
        raise ShapeError(f"roll: {len(amounts)} shifts for {len(dims)} dims; give one for each")
    entries = [along(k, n) for k, n in enumerate(x.extents)]
    for along_dim, shift in zip(dims, amounts, strict=True):
        axis = axis_of("roll", along_dim, x.ndim)
        if x.extents[axis] != const(0):
            entries[axis] = (entries[axis] - x.graph.extent(shift)) % x.extents[axis]
    return mapped(x, x.extents, entries)


def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by k quarters from the first of the two `dims` towards the second."""
    a, b = (axis_of("rot90", d, x.ndim) for d in dims)
    if a == b:
        raise ShapeError(f"rot90: dims {tuple(dims)} name one dimension twice; name two")
    if k % 2 == 0:
        return flip(x, (a, b)) if k % 4 else x
    return transpose(flip(x, b), a, b) if k % 4 == 1 else flip(transpose(x, a, b), b)


# --- more elements --------------------------------------------------------------------------------


def pad(x: Tensor, pairs: Sequence[Sequence[Extent]], value: float = 0) -> Tensor:
    """`value` around `x`; `pairs` holds (before, after) for each dim, from the first on.

    One view, under a Select where `value` is not 0. The method with further modes: `padding.pad`.
    """
    if len(pairs) != x.ndim or not all(len(pair) == 2 for pair in pairs):
        raise ShapeError(
            f"pad: {pairs} is not a (before, after) pair for each dim of {describe(x)}"
        )
    amounts = tuple((x.graph.extent(a), x.graph.extent(b)) for a, b in pairs)
    for amount in (n for pair in amounts for n in pair):
        x.graph.require(amount >= 0, "pad: an amount")
    view = views.pad(x.extents, amounts)
    padded = view_of(x, view)
    if value == 0 and not np.signbit(value):
        return padded
    valid = position(x.graph, view.domain, view.shape, dtypes.bool_)
    return where(valid, padded, x.dtype.rounded(value))


@numpy_names
def concat(tensors: Sequence[Tensor], dim: int | None = 0) -> Tensor:
    """The tensors one after the other along `dim`; their other extents agree. None: flattened.

    Views that are placed side by side, and Selects between them by position. As in PyTorch, a 1-d
    tensor without elements joins tensors of any rank.
    """
    if is_tensor(tensors) or is_tensor(dim):
        raise DTypeError("concat: takes a list of Tensors and a dim; write concat([a, b], dim)")
    if not tensors:
        raise ShapeError("concat: no tensors; give at least one")
    graph, values = together(*tensors)
    dtype = promotion(tensors)
    parts = [graph.wrap(value).cast(dtype) for value in values]
    if dim is None:
        return concat([ravel(part) for part in parts])
    parts = [part for part in parts if part.extents != (const(0),)] or parts[:1]
    axis = axis_of("concat", dim, parts[0].ndim)
    for part in parts:
        _check_concat(parts[0], part, axis)
    ends = [sum_of(p.extents[axis] for p in parts[: k + 1]) for k in range(len(parts))]
    result = _placed(parts[-1], axis, ends[-1] - parts[-1].extents[axis], ends[-1])
    for part, end in zip(parts[-2::-1], ends[-2::-1], strict=True):
        earlier = position(graph, along(axis, ends[-1]) < end, result.extents, dtypes.bool_)
        result = where(earlier, _placed(part, axis, end - part.extents[axis], ends[-1]), result)
    return result


def _check_concat(first: Tensor, other: Tensor, axis: int) -> None:
    rest = [(*x.extents[:axis], *x.extents[axis + 1 :]) for x in (first, other)]
    if first.ndim != other.ndim or rest[0] != rest[1]:
        raise ShapeError(
            f"concat: {describe(first)} and {describe(other)} differ outside of dim {axis}; "
            "make their other extents equal"
        )


def _placed(x: Tensor, axis: int, start: Expression, total: Expression) -> Tensor:
    """`x` from `start` on in an extent of `total` along `axis`, zeros around it."""
    pairs = [(const(0), const(0))] * x.ndim
    pairs[axis] = (start, total - start - x.extents[axis])
    return view_of(x, views.pad(x.extents, tuple(pairs)))


@numpy_names
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new dim."""
    if not tensors:
        raise ShapeError("stack: no tensors; give at least one")
    axis = axis_of("stack", dim, tensors[0].ndim + 1)
    return concat([unsqueeze(x, axis) for x in tensors], axis)
