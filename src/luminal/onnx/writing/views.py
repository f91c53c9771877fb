"""Views in ONNX: the plain ones by the operator of their kind, others by reading at positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from luminal.base.dtypes import DType, int64
from luminal.base.errors import ShapeError
from luminal.onnx.writing.expressions import Expressions
from luminal.onnx.writing.writer import Writer
from luminal.shape import view as views
from luminal.shape.expression import ONE, TRUE, ZERO, Expression, Symbol, all_of, const
from luminal.shape.view import View, index

Shape = tuple[Expression, ...]


class Axes(NamedTuple):
    """A view that only moves, drops and repeats dims: for each source dim the result's, or None."""

    places: tuple[int | None, ...]


def axes_of(view: View, source: Shape) -> Axes | None:
    """What the view does to dims, where that is all it does."""
    if view.domain is not TRUE:
        return None
    places: list[int | None] = []
    for entry, n in zip(view.map, source, strict=True):
        k = _dim(entry, view)
        if k is not None and view.shape[k] == n and k not in places:
            places.append(k)
        elif entry == ZERO and n is ONE:
            places.append(None)
        else:
            return None
    return Axes(tuple(places))


def _dim(entry: Expression, view: View) -> int | None:
    """The result's dim that an entry is the index of."""
    if not isinstance(entry, Symbol) or entry.extent is None:
        return None
    k = int(entry.name[1:])
    return k if entry is index(k, view.shape[k]) else None


def write_view(
    writer: Writer, at: Expressions, x: str, source: Shape, view: View, dtype: DType
) -> str:
    """`x` through a view."""
    axes = axes_of(view, source)
    if axes is not None:
        return _moved(writer, at, x, axes, view)
    if _is_reshape(source, view):
        return str(writer.op("Reshape", x, at.shape(view.shape), allowzero=1))
    shifted = _shifted(writer, at, x, source, view)
    if shifted is not None:
        return shifted
    return read_at(writer, at, x, source, view.map, view.domain, view.shape, dtype)


def _is_reshape(source: Shape, view: View) -> bool:
    """Does the view keep the order of all elements?"""
    try:
        return views.reshape(source, view.shape) == view
    except ShapeError:  # not as many elements
        return False


def _moved(writer: Writer, at: Expressions, x: str, axes: Axes, view: View) -> str:
    dropped = [k for k, place in enumerate(axes.places) if place is None]
    if dropped:
        x = writer.op("Squeeze", x, writer.ints(*dropped))
    kept = [place for place in axes.places if place is not None]
    order = sorted(range(len(kept)), key=kept.__getitem__)
    if order != list(range(len(order))):
        x = writer.op("Transpose", x, perm=order)
    new = [k for k in range(len(view.shape)) if k not in kept]
    if new:
        x = writer.op("Unsqueeze", x, writer.ints(*new))
        if any(view.shape[k] is not ONE for k in new):
            x = writer.op("Expand", x, at.shape(view.shape))
    return x


def _shifted(writer: Writer, at: Expressions, x: str, source: Shape, view: View) -> str | None:
    """Parts and padding: entries that are an index plus a constant, each of its own dim."""
    shifts: list[Expression] = []
    for k, entry in enumerate(view.map):
        if k >= len(view.shape) or len(view.map) != len(view.shape):
            return None
        along = ZERO if view.shape[k] is ONE else index(k, view.shape[k])
        shift = entry - along
        if any(symbol.extent is not None for symbol in shift.symbols()):
            return None
        shifts.append(shift)
    allowed = {TRUE}
    for entry, n in zip(view.map, source, strict=True):
        allowed |= {entry >= 0, entry < n, entry <= n - 1}
    parts = view.domain.args if view.domain.op == "and" else (view.domain,)
    if any(part not in allowed for part in parts):
        return None
    before = [-shift for shift in shifts]
    after = [count + shift - n for count, shift, n in zip(view.shape, shifts, source, strict=True)]
    if all(n.interval.hi is not None and n.interval.hi <= 0 for n in (*before, *after)):
        starts = at.shape(shifts)
        ends = at.shape([s + n for s, n in zip(shifts, view.shape, strict=True)])
        return str(writer.op("Slice", x, starts, ends))
    if all(n.interval.lo is not None and n.interval.lo >= 0 for n in (*before, *after)):
        return str(writer.op("Pad", x, at.shape([*before, *after])))
    return None


def read_at(
    writer: Writer,
    at: Expressions,
    x: str,
    source: Shape,
    entries: Sequence[Any],
    domain: Expression,
    shape: Shape,
    dtype: DType,
) -> str:
    """`x` at positions: entries are Expressions of the indices of `shape`, or names of tensors.

    Outside of the domain, and of `x`, it reads 0.
    """
    flat, valid = flat_positions(writer, at, source, entries, domain, shape)
    whole = writer.op("Reshape", x, writer.ints(-1))
    if valid is None:
        return str(writer.op("Expand", writer.op("Gather", whole, flat), at.shape(shape)))
    safe = writer.op("Where", valid, flat, writer.scalar(0, int64))
    read = writer.op("Gather", whole, safe)
    nothing = writer.scalar(0, dtype)
    return str(writer.op("Expand", writer.op("Where", valid, read, nothing), at.shape(shape)))


def flat_positions(
    writer: Writer,
    at: Expressions,
    source: Shape,
    entries: Sequence[Any],
    domain: Expression,
    shape: Shape,
) -> tuple[str, str | None]:
    """Row-major positions in `source`, and which of them are inside; None: all."""
    conditions = [domain]
    flat: Any = ZERO
    tensors: list[tuple[str, Expression]] = []
    stride: Expression = ONE
    checks: list[str] = []
    # Innermost first, as strides grow. Expressions add up to one number; tensors are added to it.
    for entry, n in zip(reversed(entries), reversed(source), strict=True):
        if isinstance(entry, str):
            tensors.append((entry, stride))
            low = writer.op("GreaterOrEqual", entry, writer.scalar(0, int64))
            high = writer.op("Less", entry, at.scalar(n))
            checks += [low, high]
        else:
            flat = flat + entry * stride
            conditions += [entry >= 0, entry < n]
        stride = stride * n
    condition = all_of(conditions)
    total = at.over(flat, shape)
    for name, step in tensors:
        total = writer.op("Add", total, writer.op("Mul", name, at.scalar(step)))
    if condition is not TRUE and condition != const(1):
        checks.insert(0, at.condition(condition, shape))
    valid: str | None = None
    for check in checks:
        valid = check if valid is None else writer.op("And", valid, check)
    return total, valid
