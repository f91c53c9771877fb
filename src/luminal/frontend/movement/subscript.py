"""`x[...]`: ints, slices, None, Ellipsis, integer tensors, constant masks; PyTorch's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError, ShapeError
from luminal.base.records import dataclass
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent, Operand, Shape, along, describe, is_tensor, listed
from luminal.frontend.movement.indexing import elements_of, gather_at, literal_of, noted, wrapped
from luminal.frontend.movement.scatter import source_of, written
from luminal.frontend.movement.views import ravel, reshape, view_of
from luminal.frontend.pointwise.binary import broadcast, common_shape, where
from luminal.frontend.reduce.reductions import sum
from luminal.memory.data import array_of, is_array
from luminal.memory.state import State
from luminal.shape import view as views
from luminal.shape.expression import Expression, ceil_div, const, maximum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@dataclass(slots=True)
class _Plan:
    """What an index does to `x`: a slice of every dim, then the places of the result's dims."""

    x: Tensor
    starts: list[Expression] = field(default_factory=list)
    steps: list[Expression] = field(default_factory=list)
    extents: list[Expression] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)  # result dims: of x or new
    picks: dict[int, Tensor] = field(default_factory=dict)  # dims indexed by tensors
    first_pick: int = 0  # where in `places` the dims of the integer tensors go

    def take(self, start: Expression, step: int, extent: Expression) -> None:
        """Slices the next dim of x."""
        self.starts.append(start)
        self.steps.append(const(step))
        self.extents.append(extent)


def subscript(x: Tensor, key: Any) -> Tensor:
    """`x[key]`. A slice bound must lie in the dim: what is not proved, the graph requires.

    Literal bounds of literal dims are clamped as NumPy's. Raises ShapeError or DTypeError.
    """
    entries = _entries(x, key if isinstance(key, tuple) else (key,))
    tensors = [e for e in entries if is_tensor(e)]
    plan = _Plan(x)
    for entry in entries:
        _plan_entry(plan, entry)
    # First one view of all slices and ints, then one Gather for all tensors: a subscript is two
    # nodes at most, however many entries it has.
    view = views.slice_(x.extents, tuple(plan.starts), tuple(plan.steps), tuple(plan.extents))
    part = view_of(x, view)
    if not tensors:
        shape = [const(1) if k is None else part.extents[k] for k in plan.places]
        return reshape(part, tuple(shape))
    return gather_at(part, *_picked(part.extents, plan, _is_split(entries, least=1)))


def index_put(
    x: Tensor, indices: Sequence[Any], values: Operand, accumulate: bool = False
) -> Tensor:
    """A copy of x with `values` at x[indices], or added there; they broadcast. One Scatter.

    The indices are integer tensors, constant masks and None (all of a dim), as PyTorch's.
    """
    # A mask that only a run knows has no positions of a known number; one value for all of them is
    # a Select.
    masked = _put_by_mask(x, indices, values, accumulate)
    if masked is not None:
        return masked
    entries = _entries(x, tuple(_put_key(x, index) for index in indices))
    if not any(is_tensor(e) for e in entries):
        raise ShapeError("index_put: no index is a tensor; use slice_scatter or where")
    plan = _Plan(x)
    for entry in entries:
        _plan_entry(plan, entry)
    shape, places = _picked(x.extents, plan, _is_split(entries, least=0))
    source = broadcast(source_of("index_put", x, values), shape)
    return written(x, places, source, "add" if accumulate else "set")


def _put_key(x: Tensor, index: Any) -> Any:
    """An index of `index_put` as a subscript's; ints are 0-d tensors."""
    if isinstance(index, slice):
        raise ShapeError("index_put: an index is a slice; use slice_scatter, or None for all")
    if index is None:
        return slice(None)
    return x.graph.constant(index) if isinstance(index, int | np.integer) else index


def _put_by_mask(
    x: Tensor, indices: Sequence[Any], values: Operand, accumulate: bool
) -> Tensor | None:
    """index_put where the index is one computed mask, and all its places get the same values."""
    # Values of their own for each place would need the places' number.
    if len(indices) != 1 or not is_tensor(indices[0]) or indices[0].dtype is not dtypes.bool_:
        return None
    mask = indices[0]
    source = source_of("index_put", x, values)
    if literal_of(mask) is not None or source.ndim > x.ndim - mask.ndim:
        return None
    wide = reshape(mask, (*mask.extents, *(const(1),) * (x.ndim - mask.ndim)))
    return where(wide, x + source if accumulate else source, x)


def _entries(x: Tensor, key: tuple[Any, ...]) -> list[Any]:
    """One entry per dim of x, besides None: Ellipsis is filled in, arrays are constants."""
    entries = [entry for part in key for entry in _entry(x, part)]
    used = len([e for e in entries if e is not None and e is not Ellipsis])
    if used > x.ndim:
        raise ShapeError(
            f"index: {used} entries for {describe(x)}, which has {x.ndim} dims; give at most one "
            "for each"
        )
    gaps = [k for k, e in enumerate(entries) if e is Ellipsis]
    # Two of them would not say which dims each stands for.
    if len(gaps) > 1:
        raise ShapeError("index: more than one Ellipsis; keep one")
    at = gaps[0] if gaps else len(entries)
    filled = entries[:at] + [slice(None)] * (x.ndim - used) + entries[at + 1 :]
    _check_masks(x, filled)
    return [e.tensor if isinstance(e, _MaskPick) else e for e in filled]


@dataclass(frozen=True, slots=True)
class _MaskPick:
    """The positions along one dim of a mask, and the extent that the mask has there."""

    tensor: Tensor
    extent: int


def _check_masks(x: Tensor, entries: list[Any]) -> None:
    """A mask has the extents of the dims that it stands for."""
    dims = (e for e in entries if e is not None)
    for dim, entry in enumerate(dims):
        if isinstance(entry, _MaskPick) and x.extents[dim] != const(entry.extent):
            raise ShapeError(
                f"index: a mask has {entry.extent} elements along dim {dim} of {describe(x)}, "
                f"which has {x.extents[dim]}; make them equal"
            )


def _entry(x: Tensor, entry: Any) -> list[Any]:
    """An entry with arrays and lists as Tensors and NumPy's ints as ints; masks as positions."""
    if isinstance(entry, np.integer):
        return [int(entry)]
    if isinstance(entry, State):
        entry = x.graph.read(entry)
    if isinstance(entry, list | tuple | range) or (is_array(entry) and not is_tensor(entry)):
        array = array_of(list(entry) if isinstance(entry, range) else entry, None, "index")
        empty = array.size == 0 and isinstance(entry, list | tuple | range)
        entry = x.graph.constant(array.astype(np.int64) if empty else array)
    if is_tensor(entry) and entry.dtype is dtypes.bool_ and entry.ndim:
        return _positions(x, entry)
    if is_tensor(entry) and not entry.dtype.is_int:
        raise DTypeError(f"index: {describe(entry)} does not hold integers; write .to(lm.int64)")
    is_scalar = isinstance(entry, int | Expression | slice) and not isinstance(entry, bool)
    if is_scalar or is_tensor(entry) or entry is None or entry is Ellipsis:
        return [entry]
    raise DTypeError(
        f"index: {entry!r} is not an int, slice, None, Ellipsis, Expression or integer tensor"
    )


def _positions(x: Tensor, mask: Tensor) -> list[Any]:
    """The positions where a mask of known elements is true: one entry for each of its dims."""
    array = elements_of(mask)
    if array is None:
        raise ShapeError(
            f"index: the mask {describe(mask)} would decide the shape, which is fixed before a run;"
            " use lm.where for choices by element, or a constant mask"
        )
    per_dim = zip(np.nonzero(array), array.shape, strict=True)
    return [_MaskPick(noted(mask, part), extent) for part, extent in per_dim]


def _is_split(entries: list[Any], least: int) -> bool:
    """Do slices or None part the tensors of at least so many dims? Those then come first."""
    kept = [
        e
        for e in entries
        if not isinstance(e, int | Expression) and not (is_tensor(e) and e.ndim < least)
    ]
    picks = [k for k, e in enumerate(kept) if is_tensor(e)]
    return bool(picks) and picks[-1] - picks[0] + 1 != len(picks)


def _plan_entry(plan: _Plan, entry: Any) -> None:
    """Adds one entry of the index to the plan."""
    if entry is None:
        plan.places.append(None)
        return
    dim = len(plan.starts)
    extent = plan.x.extents[dim]
    if isinstance(entry, slice):
        plan.take(*_slice(plan.x, dim, entry))
        plan.places.append(dim)
    elif is_tensor(entry):
        # A 0-d tensor takes its dim away, as an int does, so it does not fix the place of the
        # others.
        if not any(pick.ndim for pick in plan.picks.values()):
            plan.first_pick = len(plan.places)
        plan.take(const(0), 1, extent)
        plan.picks[dim] = entry
    else:
        plan.take(_position(plan.x, dim, entry), 1, const(1))


def _position(x: Tensor, dim: int, entry: int | Expression) -> Expression:
    """An int index counted from the front; raises ShapeError where it is out of range."""
    extent = x.extents[dim]
    position = x.graph.extent(entry)
    if position.is_const and position.value < 0:
        position = extent + position
    inside = (position >= 0) & (position < extent)
    if inside.is_const and not inside.value:
        n = x.extents[dim]
        raise ShapeError(
            f"index: {entry} is out of range for dim {dim} of {describe(x)}; "
            f"indices lie in -{n}..{n - 1}"
        )
    x.graph.require(inside, f"index {entry}")
    return position


def _slice(x: Tensor, dim: int, entry: slice) -> tuple[Expression, int, Expression]:
    """(start, step, extent) of a slice of dim `dim`."""
    extent = x.extents[dim]
    step = 1 if entry.step is None else entry.step
    if not isinstance(step, int) or step == 0:
        raise ShapeError(f"index: the step {step!r} of a slice is not an int other than 0")
    literal = (entry.start, entry.stop)
    if extent.is_const and all(n is None or isinstance(n, int | np.integer) for n in literal):
        # Python's own clamping, which NumPy has too.
        start, stop, _ = entry.indices(extent.value)
        return const(start), step, const(len(range(start, stop, step)))
    return _symbolic_slice(x, extent, entry, step)


def _symbolic_slice(
    x: Tensor, extent: Expression, entry: slice, step: int
) -> tuple[Expression, int, Expression]:
    """Start, step and length of a slice whose bounds are not clamped: that they lie in the dim is
    proved or required.

    Literal bounds that have passed each other hold nothing; those given as Expressions may not.
    """
    forward = step > 0
    start = _bound(x, extent, entry.start, const(0) if forward else extent - 1)
    stop = _bound(x, extent, entry.stop, extent if forward else const(-1))
    # The positions read lie in low .. high - 1, whichever way they are walked.
    low, high = (start, stop) if forward else (stop + 1, start + 1)
    if low.is_const and high.is_const and low.value >= high.value:
        return const(0), step, const(0)
    what = "index: the bounds of a slice"
    x.graph.require(high <= extent, what)
    if isinstance(entry.start, Expression) or isinstance(entry.stop, Expression):
        x.graph.require(low >= 0, what)
        x.graph.require(low <= high, what)
        return start, step, ceil_div(high - low, abs(step))
    x.graph.require(start >= 0 if forward else stop >= -1, what)
    return start, step, maximum(ceil_div(high - low, abs(step)), 0)


def _bound(x: Tensor, extent: Expression, bound: Any, default: Expression) -> Expression:
    """A bound of a slice counted from the front."""
    if bound is None:
        return default
    position = x.graph.extent(bound)
    return extent + position if position.is_const and position.value < 0 else position


def _picked(extents: Shape, plan: _Plan, split: bool) -> tuple[Shape, list[Expression | Tensor]]:
    """The result's shape, and for each dim of a part with these extents the position it is read at.

    The picks' common shape stands where PyTorch puts it.
    """
    common = common_shape("index", list(plan.picks.values()))
    # NumPy's rule: tensors side by side leave their dims where they stand; parted ones put them
    # first.
    at = 0 if split else plan.first_pick
    rest = [const(1) if k is None else extents[k] for k in plan.places]
    shape: Shape = (*rest[:at], *common, *rest[at:])
    after = len(shape) - at - len(common)
    place = {k: n if n < at else n + len(common) for n, k in enumerate(plan.places)}
    entries: list[Expression | Tensor] = []
    for dim, extent in enumerate(extents):
        if dim in plan.picks:
            pick = wrapped(plan.picks[dim], extent)
            entries.append(broadcast(_with_trailing(pick, common, after), shape))
        else:
            entries.append(along(place[dim], extent) if dim in place else const(0))
    return shape, entries


def _with_trailing(pick: Tensor, common: Shape, after: int) -> Tensor:
    """`pick` in the common shape, with `after` dims of extent 1 behind it."""
    return reshape(broadcast(pick, common), (*common, *(const(1),) * after))


# --- resizing -------------------------------------------------------------------------------------


def sum_to_size(x: Tensor, *size: Extent | Sequence[Extent]) -> Tensor:
    """The sums that make x's shape `size`, which broadcasts to it: the reverse of expand."""
    wanted = x.graph.extents(listed(size))
    lead = x.ndim - len(wanted)
    pairs = list(zip(wanted, x.extents[max(lead, 0) :], strict=False))
    if lead < 0 or any(n not in (const(1), m) for n, m in pairs):
        shape = ", ".join(map(str, wanted))
        raise ShapeError(f"sum_to_size: ({shape}) does not broadcast to {describe(x)}")
    axes = [*range(lead), *(lead + k for k, (n, m) in enumerate(pairs) if n != m)]
    total = sum(x, axes, keepdim=True) if axes else x
    return reshape(total, wanted)


def as_strided_scatter(
    x: Tensor,
    src: Tensor,
    size: Sequence[Extent],
    stride: Sequence[int],
    storage_offset: int = 0,
) -> Tensor:
    """x with `src` where `x.as_strided(size, stride, storage_offset)` reads; x counts row-major."""
    extents = x.graph.extents(tuple(size))
    if len(extents) != len(stride) or src.extents != extents:
        raise ShapeError(
            f"as_strided_scatter: the source {describe(src)}, {len(extents)} sizes and "
            f"{len(stride)} strides; they have one shape"
        )
    at: Expression = const(storage_offset)
    for k, step in enumerate(stride):
        at = at + along(k, extents[k]) * step
    places = ravel(position(x.graph, at, extents, dtypes.int64))
    flat = written(ravel(x), [places], ravel(source_of("as_strided_scatter", x, src)), "set")
    return reshape(flat, x.extents)
