"""Shapes and views: what moves elements, and what tells of shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.movement import padding as pads
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call, extents_of, ints_of
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.table import operator
from luminal.onnx.values import Array, Coded, dtype_of_number, mapped
from luminal.shape.expression import Expression, const, maximum, minimum, product_of
from luminal.shape.prove import prove


def moving(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """`function` of the elements, be they of a narrow dtype."""
    return mapped(function, x)


def tensor_of(x: Any) -> Tensor:
    """The Tensor whose shape is that of a value."""
    return x.codes if isinstance(x, Coded) else x


def extent(x: Tensor, axis: int) -> int:
    """An extent as an int; raises ShapeError for a dim."""
    length = x.extents[axis]
    if not length.is_const:
        raise ShapeError(f"dim {axis} of {x.value.type} must be known")
    return length.value


def as_tensor(call: Call, extents: Any) -> Tensor:
    """Extents as a Tensor (int64)."""
    numbers = [call.graph.constant(n if isinstance(n, Expression) else int(n)) for n in extents]
    if not numbers:
        return call.graph.constant(np.zeros(0, np.int64))
    if all(isinstance(n, int) or n.is_const for n in extents):
        return call.graph.constant(np.array([int(n) for n in extents], np.int64))
    return lm.stack([x.cast(dtypes.int64) for x in numbers])


@operator("Shape", any_dtype=True)
def shape(call: Call, x: Any) -> Tensor:
    """The extents from `start` to `end`."""
    extents = tensor_of(x).shape
    return as_tensor(call, extents[call.attribute("start", 0) : call.attribute("end")])


@operator("Size", any_dtype=True)
def size(call: Call, x: Any) -> Tensor:
    """The number of elements."""
    return call.graph.constant(product_of(tensor_of(x).extents))


@operator("Identity", any_dtype=True)
def identity(call: Call, x: Any) -> Any:
    """Gives its operand as it is."""
    return x


@operator("Reshape", known_inputs=(1,), any_dtype=True)
def reshape(call: Call, x: Any, shape: Array | None = None) -> Any:
    """Another shape: 0 keeps an extent, -1 is what is left."""
    wanted = extents_of(shape) if shape is not None else call.required("shape")
    extents = tensor_of(x).extents
    if not call.attribute("allowzero", 0):
        zeros = [k for k, n in enumerate(wanted) if isinstance(n, int) and n == 0]
        if zeros and zeros[-1] >= len(extents):
            raise OnnxError(f"the shape {wanted} keeps dim {zeros[-1]}, the input has none")
        wanted = [extents[k] if k in zeros else n for k, n in enumerate(wanted)]
    return moving(x, lambda x: x.reshape(*_filled(wanted, x)))


def _filled(wanted: list[Any], x: Tensor) -> list[Any]:
    """The shape with its -1 resolved where 0 elements leave it open."""
    count = product_of(x.extents)
    # With no elements the quotient of the counts says nothing about the dim that is left open.
    if count == 0 and -1 in wanted:
        others = product_of(n for n in wanted if not (isinstance(n, int) and n == -1))
        if others == 0:
            raise OnnxError(f"the shape {wanted} leaves -1 open, since there are no elements")
        return [0 if isinstance(n, int) and n == -1 else n for n in wanted]
    return wanted


@operator("Flatten", any_dtype=True)
def flatten(call: Call, x: Any) -> Any:
    """Two dims: those before `axis`, and the rest."""
    extents = tensor_of(x).extents
    axis = call.attribute("axis", 1)
    axis = axis if axis == len(extents) else call.place(axis, len(extents))
    wanted = product_of(extents[:axis]), product_of(extents[axis:])
    return moving(x, lambda x: x.reshape(*wanted))


@operator("Transpose", any_dtype=True)
def transpose(call: Call, x: Any) -> Any:
    """The dims in another order, by default reversed."""
    order = call.attribute("perm", list(range(tensor_of(x).ndim))[::-1])
    return moving(x, lambda x: x.permute(*order))


@operator("Squeeze", any_dtype=True)
def squeeze(call: Call, x: Any, axes: Any = None) -> Any:
    """Without dims of extent 1: those named, or all."""
    named = call.ints(1, "axes")
    extents = tensor_of(x).extents
    if named is None:
        for n in extents:
            if not n.is_const:
                raise ShapeError(f"Squeeze: whether {n} is 1 is not known; name the axes")
        named = [k for k, n in enumerate(extents) if n == 1]
    gone = {k + len(extents) if k < 0 else k for k in named}
    for k in sorted(gone):
        if not 0 <= k < len(extents):
            raise ShapeError(f"Squeeze: axis {k} of {len(extents)} dims")
        call.graph.require(
            extents[k].eq(1), f"Squeeze: extent {extents[k]} of dim {k}, which must be 1"
        )
    kept = [n for k, n in enumerate(extents) if k not in gone]
    return moving(x, lambda x: x.reshape(*kept) if kept else x.reshape(()))


@operator("Unsqueeze", any_dtype=True)
def unsqueeze(call: Call, x: Any, axes: Any = None) -> Any:
    """New dims of extent 1 at `axes` of the result."""
    numbers = call.ints(1, "axes")
    if numbers is None:
        raise OnnxError("Unsqueeze needs axes")
    rank = tensor_of(x).ndim + len(numbers)
    places = sorted(k + rank if k < 0 else k for k in numbers)
    if len(set(places)) != len(places) or not all(0 <= k < rank for k in places):
        raise ShapeError(f"Unsqueeze: axes {numbers} for a result of {rank} dims")
    extents = list(tensor_of(x).extents)
    for k in places:
        extents.insert(k, 1)  # type: ignore[arg-type]
    return moving(x, lambda x: x.reshape(*extents))


@operator("Concat", any_dtype=True)
def concat(call: Call, *xs: Any) -> Any:
    """One after the other along an axis."""
    axis = call.attribute("axis", 1)
    if isinstance(xs[0], Coded):
        return Coded(lm.cat([x.codes for x in xs], axis), xs[0].number)
    return lm.cat(list(xs), axis)


@operator("Split", any_dtype=True)
def split(call: Call, x: Any, sizes: Any = None) -> Any:
    """Parts along an axis: of given sizes, or as many as there are outputs, the last the least."""
    wanted: list[Any] | None = call.ints(1, "split")
    whole = tensor_of(x)
    axis = call.axis(0, whole.ndim)
    extent = whole.extents[axis]
    if wanted is None:
        count = len(call.node.output)
        if call.attribute("num_outputs", count) != count:
            raise OnnxError(f"num_outputs is {call.attribute('num_outputs')}, not {count}")
        call.count(count)
        # Dims stay symbols: that the last part is not empty becomes a requirement of the program,
        # which is checked with the sizes of a call.
        part = (extent + count - 1) // count
        call.graph.require(part * (count - 1) <= extent, f"{count} parts of {part}, not {extent}")
        wanted = [minimum(part, maximum(extent - part * k, 0)) for k in range(count)]
    else:
        call.graph.require(extent.eq(sum(wanted)), f"parts of {wanted}, {extent} in all")
    starts = [sum(wanted[:k]) for k in range(len(wanted))]
    return tuple(
        moving(x, partial(lm.narrow, dim=axis, start=start, length=part))
        for start, part in zip(starts, wanted, strict=True)
    )


@operator("Slice", known_inputs=(1, 2, 3, 4), any_dtype=True)
def slice_(call: Call, x: Any, *bounds: Array | None) -> Any:
    """From `starts` to `ends` by `steps`, along `axes`; bounds beyond the ends are cut."""
    if call.version < 10:
        starts, ends = call.required("starts"), call.required("ends")
        axes, steps = call.attribute("axes"), None
    else:
        entries = [None if bound is None else extents_of(bound) for bound in bounds]
        starts, ends, axes, steps = (entries + [None] * 4)[:4]
    rank = tensor_of(x).ndim
    axes = list(range(len(starts))) if axes is None else [call.place(int(k), rank) for k in axes]
    steps = [1] * len(starts) if steps is None else [int(k) for k in steps]
    if len({*axes}) < len(axes):
        raise OnnxError(f"the axes {axes} name one twice")
    key: list[Any] = [slice(None)] * rank
    for k, start, end, step in zip(axes, starts, ends, steps, strict=True):
        key[k] = _clamped(call, tensor_of(x).extents[k], start, end, step)
    return moving(x, lambda x: x[tuple(key)])


_FAR = 2**30
"""Bounds from here on mean the end: exporters write the largest integers."""


def _clamped(call: Call, extent: Expression, start: Any, end: Any, step: int) -> slice:
    """A slice whose bounds lie in the extent; with dims, where that can be decided."""
    if step == 0:
        raise ShapeError("Slice: a step is 0")
    literal = isinstance(start, int) and isinstance(end, int)
    if extent.is_const and literal:
        return _literal_slice(extent.value, start, end, step)
    if step < 0:
        if (literal and start in (-1, _FAR)) or (literal and start > _FAR and end < -_FAR):
            return slice(None, None, step)
        raise ShapeError(f"Slice: bounds {start}, {end} by {step} of a dim {extent}")
    first, stop = (_place(call, extent, bound) for bound in (start, end))
    return slice(first, maximum(stop, first) if literal is False else stop, step)


def _literal_slice(extent: int, start: int, end: int, step: int) -> slice:
    """The bounds cut as ONNX says: going back, a start before the first element is the first."""
    first, stop = (n + extent if n < 0 else n for n in (start, end))
    if step > 0:
        inside = range(max(first, 0), min(stop, extent), step)
    else:
        inside = range(min(max(first, 0), extent - 1), max(stop, -1), step)
    if not inside:
        return slice(0, 0)
    # Python's slices cut bounds in another way when they go back, so they get bounds that need no
    # cut.
    behind = inside[-1] + (1 if step > 0 else -1)
    return slice(inside[0], behind if behind >= 0 else None, step)


def _place(call: Call, extent: Expression, at: Any) -> Any:
    """A bound counted from the front. That one with dims lies within the extent is required."""
    if isinstance(at, int):
        if at >= _FAR:
            return extent
        if at <= -_FAR:
            return 0
        return maximum(extent + at, 0) if at < 0 else minimum(extent, at)
    # A bound with dims means two things, by its sign. What can be proved for all sizes decides it.
    if prove(at >= 0):
        call.graph.require(at <= extent, "Slice: a bound")
        return at
    if prove(at < 0):
        return maximum(extent + at, 0)
    raise ShapeError(f"Slice: whether the bound {at} counts from the end is not known")


@operator("Expand", known_inputs=(1,), any_dtype=True)
def expand(call: Call, x: Any, shape: Array) -> Any:
    """Broadcast with a shape."""
    wanted = extents_of(shape)
    if any(isinstance(n, int) and n < 0 for n in wanted):
        raise OnnxError(f"the shape {wanted} has an extent below 0; 1 keeps one")
    shape_of_x = list(tensor_of(x).extents)
    rank = max(len(shape_of_x), len(wanted))
    shape_of_x = [const(1)] * (rank - len(shape_of_x)) + shape_of_x
    wanted = [1] * (rank - len(wanted)) + wanted
    both = [_common(a, b) for a, b in zip(shape_of_x, wanted, strict=True)]
    return moving(x, lambda x: x.broadcast_to(both))


def _common(a: Any, b: Any) -> Any:
    return a if isinstance(b, int) and b == 1 else b if a == 1 else a if a == b else b


@operator("Tile", known_inputs=(1, 2), any_dtype=True)
def tile(call: Call, x: Any, repeats: Array, axis: Array | None = None) -> Any:
    """Repeats along each dim; the first version repeats along one."""
    rank = tensor_of(x).ndim
    times = extents_of(repeats)
    if axis is not None:
        along = call.place(ints_of(axis)[0], rank)
        times = [times[0] if k == along else 1 for k in range(rank)]
    if len(times) != rank:
        raise OnnxError(f"the repeats {times} for {rank} dims; give one for each")
    return moving(x, lambda x: x.tile(*times) if rank else x)


@operator("Pad", known_inputs=(1, 3), any_dtype=True)
def pad(call: Call, x: Any, amounts: Any = None, value: Any = None, axes: Any = None) -> Any:
    """More elements before and after, or fewer where an amount is negative."""
    whole = tensor_of(x)
    if call.version < 11:
        counts = call.attribute("pads") or call.required("paddings")
        value = call.attribute("value", 0.0)
    else:
        counts = extents_of(amounts)
        if value is not None:
            value = value if isinstance(value, Coded) else call.known(value).reshape(-1)[0].item()
    places = (
        [call.place(k, whole.ndim) for k in ints_of(axes)]
        if axes is not None
        else range(whole.ndim)
    )
    pairs: list[Any] = [(0, 0)] * whole.ndim
    for n, k in enumerate(places):
        pairs[k] = (counts[n], counts[n + len(counts) // 2])
    mode = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}.get(
        call.attribute("mode", "constant"), "constant"
    )
    for there, (before, after) in zip(whole.extents, pairs, strict=True):
        if mode != "constant" and (before != 0 or after != 0):
            left = there + minimum(before, 0) + minimum(after, 0)
            call.graph.require(
                left >= 1, f"pads of {before} and {after}, which repeat some of {there}"
            )
    if isinstance(value, Coded):
        raise UnsupportedError("Pad of a narrow dtype with a value")
    return moving(x, lambda x: pads.pad(x, pairs, mode, value))


@operator("Constant")
def constant(call: Call) -> Any:
    """A tensor among the attributes."""
    for name in ("value", "sparse_value"):
        attribute = call.attribute(name)
        if attribute is not None:
            return call.tensor(attribute) if name == "value" else call.sparse(attribute)
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32),
                        ("value_int", np.int64), ("value_ints", np.int64)):  # fmt: skip
        attribute = call.attribute(name)
        if attribute is not None:
            return call.translation.initial(np.array(attribute, dtype))
    raise UnsupportedError("Constant of strings")


@operator("ConstantOfShape", known_inputs=(0,))
def constant_of_shape(call: Call, shape: Array) -> Any:
    """Gives a tensor of one number everywhere."""
    proto = call.attribute("value")
    extents = extents_of(shape)
    if proto is None:
        return call.graph.zeros(extents, dtype=dtypes.float32)
    return moving(call.tensor(proto), lambda x: x.reshape(()).broadcast_to(extents))


@operator("Range")
def range_(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """start, start + delta ... before limit."""
    if start.dtype.is_int:
        # Integers may be dims, and then so is the count; for floats the count must be a number.
        ends = [extents_of(call.known(x))[0] for x in (start, limit, delta)]
        return call.graph.arange(ends[0], ends[1], ends[2], start.dtype)
    first, last, step = (float(np.asarray(call.read(x))) for x in (start, limit, delta))
    count = max(int(np.ceil((last - first) / step)), 0)
    places = call.graph.arange(count).cast(start.dtype)
    return places * delta.reshape(()) + start.reshape(())


@operator("EyeLike")
def eye_like(call: Call, x: Tensor) -> Any:
    """Ones on the k-th diagonal, in the shape of a matrix."""
    if x.ndim != 2:
        raise ShapeError(f"EyeLike: a tensor of {x.ndim} dims; it must be a matrix")
    number = call.attribute("dtype")
    dtype = x.dtype if number is None else dtype_of_number(number)
    rows, columns = (call.graph.iota(x.extents, k) for k in (0, 1))
    return (rows + call.attribute("k", 0) == columns).cast(dtype)


@operator("Trilu", known_inputs=(1,), any_dtype=True)
def trilu(call: Call, x: Any, k: Array | None = None) -> Any:
    """The upper or the lower triangle, from the k-th diagonal on."""
    diagonal = ints_of(k)[0] if k is not None else 0
    function = lm.triu if call.attribute("upper", 1) else lm.tril
    return moving(x, lambda x: function(x, diagonal))


@operator("DepthToSpace", any_dtype=True)
def depth_to_space(call: Call, x: Any) -> Any:
    """Channels into blocks of the plane."""
    size, n = call.required("blocksize"), tensor_of(x).extents
    columns = call.attribute("mode", "DCR") == "CRD"

    def move(x: Tensor) -> Tensor:
        depth = n[1] // (size * size)
        if columns:
            x = x.reshape(n[0], depth, size, size, n[2], n[3]).permute(0, 1, 4, 2, 5, 3)
        else:
            x = x.reshape(n[0], size, size, depth, n[2], n[3]).permute(0, 3, 4, 1, 5, 2)
        return x.reshape(n[0], depth, n[2] * size, n[3] * size)

    return moving(x, move)


@operator("SpaceToDepth", any_dtype=True)
def space_to_depth(call: Call, x: Any) -> Any:
    """Blocks of the plane into channels; by `mode` the channel's number counts first or last."""
    size, n = call.required("blocksize"), tensor_of(x).extents
    high, wide = n[2] // size, n[3] // size
    first = call.attribute("mode", "DCR") == "CRD"
    order = (0, 1, 3, 5, 2, 4) if first else (0, 3, 5, 1, 2, 4)

    def move(x: Tensor) -> Tensor:
        blocks = x.reshape(n[0], n[1], high, size, wide, size).permute(*order)
        return blocks.reshape(n[0], n[1] * size * size, high, wide)

    return moving(x, move)


@operator("Dropout")
def dropout(
    call: Call, x: Tensor, ratio: Any = None, training: Any = None
) -> tuple[Tensor, Tensor]:
    """Nothing, but in training: then elements are 0, the rest scaled."""
    call.unneeded("seed", "ratio")
    if training is not None and bool(call.read(training)):
        rate = 0.5 if ratio is None else float(np.asarray(call.read(ratio)))
        if rate > 0:
            raise UnsupportedError("Dropout in training draws numbers that no two runtimes share")
    return x, lm.ones_like(x, dtype=dtypes.bool_)
