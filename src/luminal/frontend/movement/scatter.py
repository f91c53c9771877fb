"""Writing at computed positions: copies of a tensor with elements set, added or combined.

Positions are integer tensors. Negative ones count from the end; those of an input are checked to be
in range before a run, any other that is out of range writes nothing. Where positions repeat, `set`
keeps the last in row-major order, sums go in row-major order (large ones in parts, as reductions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luminal.base import dtypes
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.creation import position
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
from luminal.frontend.movement.indexing import (
    Entries,
    beside,
    check_beside,
    gather,
    row_of,
    take,
    wrapped,
)
from luminal.frontend.movement.padding import diagonal_length
from luminal.frontend.movement.views import expand, mapped, narrow, ravel, reshape, unsqueeze
from luminal.frontend.pointwise.binary import (
    broadcast,
    common_shape,
    fill_value,
    lifted,
    precedence,
    promotion,
    where,
)
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.reductions import cumsum
from luminal.frontend.reduce.sorting import sort
from luminal.hlir.monoid import MAXIMUM, PRODUCT, SUM
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# --- set and add ----------------------------------------------------------------------------------


def written(x: Tensor, entries: Entries, src: Tensor, mode: str) -> Tensor:
    """A copy of x with src put at, or added to, the places of the map; bools add as `or`.

    Tensors among the entries have src's shape. 16-bit floats are added in float32.
    """
    graph, (dest, source) = together(x, src)
    # Sums that meet at one place are rounded once, at the end, as those of a reduction.
    work = x.dtype
    if mode == "add":
        work = dtypes.int32 if x.dtype is dtypes.bool_ else x.dtype.compute
    dest, source = (graph.builder.cast(value, work) for value in (dest, source))
    map_ = [e if isinstance(e, Expression) else graph.bring(e) for e in entries]
    return graph.wrap(graph.builder.scatter(dest, map_, source, mode)).cast(x.dtype)


def source_of(what: str, x: Tensor, src: Operand, shape: Shape | None = None) -> Tensor:
    """`src` in x's dtype, a number in `shape`; raises DTypeError where x cannot hold it.

    A bool takes any number, integers take whole ones.
    """
    if precedence(src) < 2:
        number = fill_value(what, x.graph, src, x.dtype)
        return number if shape is None else expand(number, shape)
    dtype = promotion((x, src))
    if dtype is not x.dtype:
        raise DTypeError(f"{what}: src has values of {dtype.name}, {describe(x)} has not; cast one")
    return lifted(what, x.graph, src, dtype)


def _index_and_source(
    what: str, x: Tensor, axis: int, index: Tensor, src: Operand
) -> tuple[Tensor, Tensor]:
    """The index, and the part of src in its shape."""
    check_beside(what, x, index, axis)
    source = source_of(what, x, src, index.extents)
    if source.ndim != index.ndim:
        raise ShapeError(f"{what}: {describe(source)} and {describe(index)} differ in rank")
    for k, n in enumerate(index.extents):
        source = narrow(source, k, 0, n)
    return index, source


@numpy_names
def scatter(
    x: Tensor,
    dim: int,
    index: Operand,
    src: Operand | None = None,
    reduce: str | None = None,
    value: Operand | None = None,
) -> Tensor:
    """A copy of x with `out[index[i][j]][j] = src[i][j]` for dim 0, and so on, as PyTorch.

    Where positions repeat, the last in row-major order wins, and has the gradient. `src` (or
    `value`) may be a number.
    `reduce`: "add" or "multiply" combines as scatter_reduce does. One Scatter.
    """
    source = value if src is None else src
    if source is None:
        raise ShapeError("scatter: neither src nor value is given; give one")
    if reduce is not None:
        kinds = {"add": "sum", "multiply": "prod"}
        return scatter_reduce(x, dim, index, source, kinds.get(reduce, reduce))
    return _scatter("scatter", x, dim, index, source, "set")


@numpy_names
def scatter_add(x: Tensor, dim: int, index: Operand, src: Operand) -> Tensor:
    """x with the values added at the positions, in row-major order where positions repeat. One
    Scatter.
    """
    return _scatter("scatter_add", x, dim, index, src, "add")


def _scatter(what: str, x: Tensor, dim: int, index: Operand, src: Operand, mode: str) -> Tensor:
    positions = x.graph.constant(index)
    if x.ndim == 0:
        row = reshape(x, 1), reshape(positions, 1)
        source = reshape(src, 1) if is_tensor(src) else src
        return reshape(_scatter(what, row[0], dim, row[1], source, mode), ())
    axis = axis_of(what, dim, x.ndim)
    if const(0) in positions.extents:
        return x
    positions, source = _index_and_source(what, x, axis, positions, src)
    return written(x, beside(x, axis, positions), source, mode)


# --- other ways to combine ------------------------------------------------------------------------

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@numpy_names
def scatter_reduce(
    x: Tensor, dim: int, index: Operand, src: Operand, reduce: str, include_self: bool = True
) -> Tensor:
    """x with all that meets at one position combined: sum, prod, mean, amax or amin.

    `include_self` counts x's own element among them. NaN wins in amax and amin; the mean of
    integers rounds down. Sum is a Scatter; mean two; amax sorts src along `dim`, so that the
    greatest is written last; prod sorts by position and multiplies runs in log2(n) steps.
    """
    if reduce not in REDUCTIONS:
        raise ShapeError(f"scatter_reduce: {reduce!r} is not one of {', '.join(REDUCTIONS)}")
    positions = x.graph.constant(index)
    if x.ndim == 0:
        source = reshape(src, 1) if is_tensor(src) else src
        row = scatter_reduce(
            reshape(x, 1), dim, reshape(positions, 1), source, reduce, include_self
        )
        return reshape(row, ())
    axis = axis_of("scatter_reduce", dim, x.ndim)
    if const(0) in positions.extents:
        return x
    positions, source = _index_and_source("scatter_reduce", x, axis, positions, src)
    if reduce == "amin":
        greatest = _combined(_mirrored(x), _mirrored(source), axis, positions, "amax", include_self)
        return _mirrored(greatest)
    return _combined(x, source, axis, positions, reduce, include_self)


def _mirrored(x: Tensor) -> Tensor:
    """Values in the reverse order of x's, so that a maximum is a minimum; NaN stays NaN."""
    return -x if x.dtype.is_float else ~x


def _combined_derivative(
    g: Tensor,
    y: Tensor,
    x: Tensor,
    src: Tensor,
    axis: int,
    index: Tensor,
    reduce: str,
    include_self: bool,
) -> tuple[Tensor, Tensor, None]:
    """Equal extremes share evenly; a product's gradient is that of the others, as PyTorch."""
    of_x, of_src = x.graph.full(x.extents, True), src.graph.full(src.extents, True)
    if not include_self:
        of_x = ~_scatter("scatter_reduce", ~of_x, axis, index, True, "set")
    if reduce in ("sum", "mean"):
        ways = (of_x, of_src)
        share = g / _met(x, axis, index, *ways).maximum(1) if reduce == "mean" else g
        return where(of_x, share, 0), gather(share, axis, index), None
    if reduce == "amax":
        ways = (of_x & (x == y), src == gather(y, axis, index))
        share = g / _met(x, axis, index, *ways).maximum(1)
        return where(ways[0], share, 0), where(ways[1], gather(share, axis, index), 0), None
    ones = x.graph.ones(x.extents, x.dtype)
    met = _combined(ones, src, axis, index, "prod", True)
    others = gather(g * where(of_x, x, 1), axis, index) * _product_of_others(x, src, axis, index)
    return where(of_x, g * met, 0), others, None


def _met(x: Tensor, axis: int, index: Tensor, of_x: Tensor, of_src: Tensor) -> Tensor:
    """How many of the elements that meet at a place are marked."""
    kept, met = of_x.cast(x.dtype), of_src.cast(x.dtype)
    return _scatter("scatter_reduce", kept, axis, index, met, "add")


@differentiated(_combined_derivative)
def _combined(
    x: Tensor, src: Tensor, axis: int, index: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """scatter_reduce in a compute dtype, of a source in the index's shape."""
    dtype, work = x.dtype, dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute
    x, src = x.cast(work), src.cast(work)
    monoid = {"sum": SUM, "mean": SUM, "prod": PRODUCT, "amax": MAXIMUM}[reduce]
    neutral = monoid.identity(work)
    # Without its own element a place that is met starts from the neutral one; others keep theirs.
    start = x if include_self else _scatter(reduce, x, axis, index, neutral, "set")
    if reduce == "amax":
        # The last write wins, so writing in ascending order leaves the greatest: no atomic maximum
        # is needed.
        values, order = sort(src, axis)
        place = gather(index, axis, order)
        least = x.graph.full(x.extents, neutral.item(), work)
        result = start.maximum(_scatter(reduce, least, axis, place, values, "set"))
    elif reduce == "prod":
        ones = x.graph.ones(x.extents, work)
        place, order = sort(wrapped(index, x.extents[axis]), axis)
        products = _run_products(place, gather(src, axis, order), axis)
        result = start * _scatter(reduce, ones, axis, place, products, "set")
    else:
        result = _scatter(reduce, start, axis, index, src, "add")
    if reduce == "mean":
        count = x.graph.full(x.extents, int(include_self), dtypes.int32)
        count = _scatter(reduce, count, axis, index, 1, "add").maximum(1).cast(work)
        result = result / count if work.is_float else result // count
    return result.cast(dtype)


def _product_of_others(x: Tensor, src: Tensor, axis: int, index: Tensor) -> Tensor:
    """The product of the others that meet at its place, for each element of src; no division."""
    place, order = sort(wrapped(index, x.extents[axis]), axis)
    values = gather(src, axis, order)
    # g * y / x would be 0/0 where an element is 0. Products from both sides have no such place.
    before = _products_before(place, values, axis)
    after = _products_before(place.flip(axis), values.flip(axis), axis).flip(axis)
    return scatter(src, axis, order, before * after)


def _products_before(place: Tensor, values: Tensor, axis: int) -> Tensor:
    """The product of the elements of a run before each one; 1 for the first of a run."""
    extents = place.extents
    inside = position(place.graph, along(axis, extents[axis]) >= 1, extents, dtypes.bool_)
    same = inside & (_earlier(place, axis, 1) == place)
    return where(same, _earlier(_run_products(place, values, axis), axis, 1), 1)


def _run_products(place: Tensor, products: Tensor, axis: int) -> Tensor:
    """The running product along `axis` in each run of equal places.

    Segmented scan by doubling (Hillis and Steele, 1986): after step k an element holds the product
    of up to 2**k elements of its run that end with it.
    """
    extent = place.extents[axis]
    hi = extent.interval.hi
    reach = 1
    at = along(axis, extent)
    while reach < (2**31 if hi is None else hi):
        inside = position(place.graph, at >= reach, place.extents, dtypes.bool_)
        same = inside & (_earlier(place, axis, reach) == place)
        products = where(same, _earlier(products, axis, reach) * products, products)
        reach *= 2
    return products


def _earlier(x: Tensor, axis: int, by: int) -> Tensor:
    """What stands `by` places before along `axis`, 0 before the first; one view."""
    entries = [along(k, n) for k, n in enumerate(x.extents)]
    inside = entries[axis] >= by
    entries[axis] = entries[axis] - by
    return mapped(x, x.extents, entries, inside)


# --- whole slices ---------------------------------------------------------------------------------


def _slices(
    what: str, x: Tensor, dim: int, index: Operand, src: Operand
) -> tuple[int, Tensor, Tensor]:
    """The axis, the 1-d index, and src in the shape of x with the index's extent along the axis."""
    axis = axis_of(what, dim, x.ndim)
    row = row_of(what, x, index)
    shape = (*x.extents[:axis], row.extents[0], *x.extents[axis + 1 :])
    source = source_of(what, x, src, shape)
    if source.extents != shape:
        wanted = ", ".join(map(str, shape))
        raise ShapeError(f"{what}: the source is {describe(source)}; it takes the shape ({wanted})")
    return axis, row, source


def _write_slices(
    what: str, x: Tensor, dim: int, index: Operand, src: Operand, mode: str
) -> Tensor:
    if x.ndim == 0:
        source = reshape(src, 1) if is_tensor(src) else src
        return reshape(_write_slices(what, reshape(x, 1), dim, index, source, mode), ())
    axis, row, source = _slices(what, x, dim, index, src)
    entries: list[Any] = [along(k, n) for k, n in enumerate(source.extents)]
    entries[axis] = _spread(wrapped(row, x.extents[axis]), axis, source.extents)
    return written(x, entries, source, mode)


def _spread(row: Tensor, axis: int, shape: Shape) -> Tensor:
    """A 1-d tensor along `axis` of `shape`."""
    return broadcast(reshape(row, (*row.extents, *(const(1),) * (len(shape) - axis - 1))), shape)


@numpy_names
def index_add(x: Tensor, dim: int, index: Operand, source: Operand, alpha: float = 1) -> Tensor:
    """A copy of x with alpha * source added to the slices at the 1-d `index`. One Scatter."""
    if alpha != 1:
        factor = fill_value("index_add: alpha", x.graph, alpha, x.dtype)
        source = source_of("index_add", x, source) * factor
    return _write_slices("index_add", x, dim, index, source, "add")


@numpy_names
def index_copy(x: Tensor, dim: int, index: Operand, source: Operand) -> Tensor:
    """A copy of x with the slices of `source` at the 1-d `index` along `dim`. One Scatter."""
    return _write_slices("index_copy", x, dim, index, source, "set")


@numpy_names
def index_fill(x: Tensor, dim: int, index: Operand, value: Operand) -> Tensor:
    """A copy of x with one number in the slices at the 1-d `index` along `dim`. One Scatter."""
    return _filled(x, value, dim, index)


def _filled_derivative(
    g: Tensor, y: Tensor, x: Tensor, value: Operand, dim: int, index: Operand
) -> tuple[Tensor | None, ...]:
    """Each place counts once, though its index be given twice."""
    falses = g.graph.full(g.extents, False)
    places = _write_slices("index_fill", falses, dim, index, True, "set")
    gradients: list[Tensor | None] = [where(places, 0, g)]
    if is_tensor(value):
        gradients.append(where(places, g, 0).sum())
    return (*gradients, None) if is_tensor(index) else tuple(gradients)


@differentiated(_filled_derivative)
def _filled(x: Tensor, value: Operand, dim: int, index: Operand) -> Tensor:
    return _write_slices("index_fill", x, dim, index, value, "set")


@numpy_names
def index_reduce(
    x: Tensor, dim: int, index: Operand, source: Operand, reduce: str, include_self: bool = True
) -> Tensor:
    """x with slices combined at the indices by prod, mean, amax or amin; see `scatter_reduce`."""
    if x.ndim == 0:
        slices = reshape(source, 1) if is_tensor(source) else source
        return reshape(index_reduce(reshape(x, 1), dim, index, slices, reduce, include_self), ())
    axis, row, slices = _slices("index_reduce", x, dim, index, source)
    return scatter_reduce(x, axis, _spread(row, axis, slices.extents), slices, reduce, include_self)


@numpy_names
def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Extent | None = 0,
    end: Extent | None = None,
    step: int = 1,
) -> Tensor:
    """A copy of x whose elements along `dim` from `start` on are those of `src`: a region write.

    `start` may be an Expression of dims; start + extent <= x's extent is proved or required. `end`
    and `step` may say again what src's extent says. One Scatter.
    """
    axis = axis_of("slice_scatter", dim, x.ndim)
    extent, count = x.extents[axis], src.extents[axis] if src.ndim == x.ndim else const(-1)
    first = x.graph.extent(0 if start is None else start)
    if first.is_const and first.value < 0:
        first = extent + first
    same = [n == m for n, m in zip(x.extents, src.extents, strict=False)]
    if src.ndim != x.ndim or not all(same[:axis] + same[axis + 1 :]):
        raise ShapeError(
            f"slice_scatter: {describe(src)} does not fit dim {axis} of {describe(x)}; "
            "all other extents must be equal"
        )
    if extent.is_const and isinstance(end, int) and first.is_const:
        start_, stop, _ = slice(first.value, end, step).indices(extent.value)
        first = const(start_)
        if count != const(len(range(start_, stop, step))):
            raise ShapeError(
                f"slice_scatter: {describe(src)} does not fit {start}:{end}:{step} of dim {axis}"
            )
    what = f"slice_scatter: the end of src in dim {axis}"
    x.graph.require(first >= 0, what)
    x.graph.require(first + (count - 1) * step + 1 <= extent, what)
    entries = [along(k, n) for k, n in enumerate(src.extents)]
    entries[axis] = first + entries[axis] * step
    return written(x, entries, src.cast(x.dtype), "set")


@numpy_names
def select_scatter(x: Tensor, src: Tensor, dim: int, index: Extent) -> Tensor:
    """A copy of x with `src` as its slice at one position of `dim`. One Scatter."""
    return slice_scatter(x, unsqueeze(src, axis_of("select_scatter", dim, x.ndim)), dim, index)


def diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of x with `src` as its diagonal (see `diagonal`): a Select of a view of src."""
    first, second = (axis_of("diagonal_scatter", d, x.ndim) for d in (dim1, dim2))
    row, column = along(first, x.extents[first]), along(second, x.extents[second])
    kept = [along(k, n) for k, n in enumerate(x.extents) if k not in (first, second)]
    inside = (column - row).eq(offset)
    wanted = [n for k, n in enumerate(x.extents) if k not in (first, second)]
    if src.extents != (*wanted, diagonal_length(x, offset, first, second)):
        raise ShapeError(f"diagonal_scatter: {describe(src)} is not a diagonal of {describe(x)}")
    placed = mapped(src, x.extents, [*kept, row if offset >= 0 else column], inside)
    mask = position(x.graph, inside, x.extents, dtypes.bool_)
    return where(mask, placed.cast(x.dtype), x)


# --- flattened ------------------------------------------------------------------------------------


def put(x: Tensor, index: Operand, source: Operand, accumulate: bool = False) -> Tensor:
    """A copy of x with `source` at positions in x flattened, or added there. One Scatter."""
    positions = ravel(x.graph.constant(index))
    values = source_of("put", x, source, positions.extents)
    flat = ravel(x)
    place = wrapped(positions, flat.extents[0])
    mode = "add" if accumulate else "set"
    return reshape(written(flat, [place], ravel(values), mode), x.extents)


def masked_scatter(x: Tensor, mask: Operand, source: Operand) -> Tensor:
    """A copy of x where the elements under `mask` are those of `source`, in row-major order.

    A running count of the mask says which; then a take and a Select. Source elements that lack
    read 0.
    """
    chosen = x.graph.constant(mask).cast(dtypes.bool_)
    shape = common_shape("masked_scatter", (x, chosen))
    x, chosen = broadcast(x, shape), broadcast(chosen, shape)
    # The k-th chosen place takes the k-th source element; its number is how many were chosen
    # before.
    order = reshape(cumsum(ravel(chosen), 0) - 1, x.extents)
    values = ravel(source_of("masked_scatter", x, source))
    return where(chosen, take(values, order.maximum(0), 0), x)
