"""The NumPy meaning of every HLIR op: what each computes, on any input, to the last bit.

A meaning takes (attributes, values of the dims, operand arrays) and gives the result arrays. Every
op is total and works in its own dtype, except that float Sum and Scan accumulate in float64 and
round once, and float32 transcendentals are evaluated in float64 and rounded. Slow and plain on
purpose: all other ways to run a program are compared with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.shape.expression import TRUE
from luminal.shape.view import View, index

if TYPE_CHECKING:
    from luminal.hlir.attributes import (
        AxisAttrs,
        CastAttrs,
        ConstantAttrs,
        CustomAttrs,
        GatherAttrs,
        IotaAttrs,
        ScanAttrs,
        ScatterAttrs,
        Shape,
        ViewAttrs,
    )
    from luminal.shape.expression import Expression

Array = np.ndarray[Any, Any]
Dims = Mapping[str, int]
Arrays = Sequence[Array]
Meaning = Callable[[Any, Dims, Arrays], tuple[Array, ...]]


def _pointwise(function: Callable[..., Any]) -> Meaning:
    """The meaning that applies `function` to the operands without floating-point warnings."""

    def meaning(attrs: Any, dims: Dims, args: Arrays) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(function(*args)),)

    return meaning


def _transcendental(function: Callable[..., Any]) -> Meaning:
    """The meaning of a function that is evaluated in float64 and rounded: NumPy's own float32
    versions are off by up to 4 ulp.
    """
    return _pointwise(lambda x: np.asarray(function(x.astype(np.float64))).astype(x.dtype))


# --- unary ----------------------------------------------------------------------------------------

exp = _transcendental(np.exp)
log = _transcendental(np.log)
exp2 = _transcendental(np.exp2)
log2 = _transcendental(np.log2)
sin = _transcendental(np.sin)
cos = _transcendental(np.cos)
sqrt = _pointwise(np.sqrt)
recip = _pointwise(lambda x: np.divide(x.dtype.type(1), x))
floor = _pointwise(np.floor)
detach = _pointwise(lambda x: x)


def cast(attrs: CastAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    return (convert(args[0], attrs.dtype),)


def bitcast(attrs: CastAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    """The operand's bytes as another dtype; a byte other than 0 becomes True."""
    if attrs.dtype is dtypes.bool_:
        return (np.asarray(args[0].view(np.uint8) != 0),)
    return (args[0].view(attrs.dtype.numpy),)


# Where C and hardware leave a conversion undefined (floats beyond an integer's range, NaN) it is
# defined here, and every backend has these bits.
def convert(x: Array, to: DType) -> Array:
    """`x` cast to `to`, rounding once to nearest even.

    Float to int truncates and saturates and NaN gives 0; integers wrap; bool is `x != 0`.
    """
    if x.dtype == to.numpy:
        return x
    with np.errstate(all="ignore"):
        if dtypes.dtype_of(x).is_storage:
            x = x.astype(np.float32)  # exact
        if to is dtypes.bool_:
            return np.asarray(x != 0)
        if to.is_int and x.dtype.kind == "f":
            return _saturate(x, to)
        if to.is_storage and to is not dtypes.float16:
            return to.rounded(_round_to_odd_float32(x))
        return np.asarray(x.astype(to.numpy))


def _saturate(x: Array, to: DType) -> Array:
    """Float to integer: toward zero, clamped to the range of `to`, NaN to 0."""
    limits = np.iinfo(to.numpy)
    wide = np.asarray(x, np.float64)
    below = wide <= float(limits.min)
    above = wide >= float(int(limits.max) + 1)  # max itself has no float64 in 64 bits
    inside = ~(below | above | np.isnan(wide))
    whole = np.where(inside, wide, 0).astype(to.numpy)
    least, most = (to.numpy.type(end) for end in (limits.min, limits.max))
    ends = np.where(below, least, most)
    return np.asarray(np.where(below | above, ends, whole))


def _round_to_odd_float32(x: Array) -> Array:
    """`x` in float32 such that rounding again to fewer bits rounds as if once.

    Toward zero, with the last bit set if anything was lost (Boldo and Melquiond, 2008).
    """
    if x.dtype.itemsize <= 2 or x.dtype == np.float32:
        return x.astype(np.float32)
    wide = _sticky(x).astype(np.float64)
    near = np.asarray(wide.astype(np.float32))
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    bits = np.where(np.abs(back) > np.abs(wide), bits - np.uint32(1), bits)
    bits = np.where(back != wide, bits | np.uint32(1), bits)
    return np.asarray(bits, np.uint32).view(np.float32)


def _sticky(x: Array) -> Array:
    """64-bit integers cut to at most 44 significant bits; the lowest stands for those lost."""
    if x.dtype.kind == "f" or x.dtype.itemsize < 8:
        return x
    unit = x.dtype.type(1 << 20)
    low = x & (unit - x.dtype.type(1))
    lost = (x - low) | np.where(low != 0, unit, x.dtype.type(0))
    small = x < x.dtype.type(1 << 40)
    if x.dtype.kind == "i":
        small &= x > -(1 << 40)
    return np.asarray(np.where(small, x, lost))


# --- binary and ternary ---------------------------------------------------------------------------


def _maximum(a: Array, b: Array) -> Any:
    if a.dtype.kind != "f":
        return np.maximum(a, b)
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))  # -0 + +0 is +0


def _shift(function: Callable[..., Any], past: Callable[[Array], Any]) -> Meaning:
    def shifted(x: Array, count: Array) -> Any:
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        bits = 8 * x.dtype.itemsize
        inside = count.view(unsigned) < unsigned.type(bits)  # a negative count is past the width
        return np.where(inside, function(x, np.where(inside, count, x.dtype.type(0))), past(x))

    return _pointwise(shifted)


add = _pointwise(np.add)
mul = _pointwise(np.multiply)
div = _pointwise(np.divide)
floor_div = _pointwise(np.floor_divide)
mod = _pointwise(np.remainder)
maximum = _pointwise(_maximum)
less_than = _pointwise(np.less)
equal = _pointwise(np.equal)
bit_and = _pointwise(np.bitwise_and)
bit_or = _pointwise(np.bitwise_or)
bit_xor = _pointwise(np.bitwise_xor)
shift_left = _shift(np.left_shift, np.zeros_like)
shift_right = _shift(np.right_shift, lambda x: np.where(x < 0, ~np.zeros_like(x), np.zeros_like(x)))
select = _pointwise(np.where)


# --- reductions, scans, sorts ---------------------------------------------------------------------


def _accumulator(x: Array) -> np.dtype[Any]:
    return np.dtype(np.float64) if x.dtype.kind == "f" else x.dtype


def sum_(attrs: AxisAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    (x,) = args
    with np.errstate(all="ignore"):
        total = np.asarray(np.sum(x, axis=attrs.axis, dtype=_accumulator(x)))
        return (total.astype(x.dtype),)


def prod_(attrs: AxisAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    """The product along an axis. It is an operation of terms: HLIR has Scans of products, and reads
    where they end.
    """
    (x,) = args
    with np.errstate(all="ignore"):
        return (np.asarray(np.prod(x, axis=attrs.axis, dtype=_accumulator(x))).astype(x.dtype),)


def max_(attrs: AxisAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    (x,) = args
    with np.errstate(all="ignore"):
        lowest = dtypes.dtype_of(x).lowest
        largest = np.asarray(np.max(x, axis=attrs.axis, initial=lowest))
        if x.dtype.kind == "f":
            largest = _with_zero_sign(largest, np.any(_is_plus_zero(x), axis=attrs.axis))
        return (largest,)


REDUCED = {"Sum": sum_, "Prod": prod_, "Max": max_}
"""The meaning of reductions, by the name of a monoid's."""


def _is_plus_zero(x: Array) -> Array:
    return np.asarray((x == 0) & ~np.signbit(x))


def _with_zero_sign(largest: Array, has_plus_zero: Any) -> Array:
    """NumPy's maximum of -0 and +0 is either; ours is +0."""
    return np.asarray(np.where((largest == 0) & has_plus_zero, largest.dtype.type(0), largest))


def scan(attrs: ScanAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    (x,) = args
    axis = attrs.axis
    with np.errstate(all="ignore"):
        if attrs.kind == "max":
            largest = np.maximum.accumulate(x, axis=axis)
            if x.dtype.kind == "f":
                seen = np.logical_or.accumulate(_is_plus_zero(x), axis=axis)
                largest = _with_zero_sign(largest, seen)
            return (largest,)
        function = {"add": np.add, "mul": np.multiply}[attrs.kind]
        return (function.accumulate(x, axis=axis, dtype=_accumulator(x)).astype(x.dtype),)


def sort(attrs: AxisAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    (x,) = args
    order = np.argsort(x, axis=attrs.axis, kind="stable")
    return np.take_along_axis(x, order, attrs.axis), order.astype(np.int64)


# --- memory, views, leaves ------------------------------------------------------------------------


def extents(shape: Shape, dims: Dims) -> tuple[int, ...]:
    """The ints that a shape stands for at these dims."""
    return tuple(int(extent.evaluate(dims)) for extent in shape)


def _index_values(shape: tuple[int, ...], dims: Dims) -> dict[str, Any]:
    """`i0, i1, ...` as broadcastable ranges over `shape`, beside the dims."""
    rank = len(shape)
    ranges = {
        f"i{k}": np.arange(extent, dtype=np.int64).reshape((-1,) + (1,) * (rank - 1 - k))
        for k, extent in enumerate(shape)
    }
    return {**dims, **ranges}


def _locate(
    entries: Sequence[Expression | int],
    indices: Arrays,
    shape: tuple[int, ...],
    within: tuple[int, ...],
    dims: Dims,
) -> tuple[Array, Array]:
    """The row-major position of each point of `shape` in an array of shape `within`, and whether
    the position is inside (it is 0 if not).
    """
    env = _index_values(shape, dims)
    flat: Any = np.int64(0)
    valid: Any = np.bool_(True)
    for entry, extent in zip(entries, within, strict=True):
        position = indices[entry] if isinstance(entry, int) else entry.evaluate(env)
        index = np.asarray(position).astype(np.int64)
        valid = valid & (index >= 0) & (index < extent)
        with np.errstate(all="ignore"):
            flat = flat * extent + index
    flat = np.where(valid, flat, 0)
    return np.broadcast_to(flat, shape), np.broadcast_to(valid, shape)


def _read(source: Array, flat: Array, valid: Array) -> Array:
    """`source` at row-major positions, 0 where not valid."""
    zero = source.dtype.type(0)
    if source.size == 0:
        # There is no element 0 then, at which the positions that are not valid look.
        return np.full(flat.shape, zero, source.dtype)
    return np.asarray(np.where(valid, source.reshape(-1)[flat], zero))


def gather(attrs: GatherAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    source, *indices = args
    shape = extents(attrs.shape, dims)
    return (_read(source, *_locate(attrs.map, indices, shape, source.shape, dims)),)


def scatter(attrs: ScatterAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    dest, source, *indices = args
    flat, valid = _locate(attrs.map, indices, source.shape, dest.shape, dims)
    out = dest.copy().reshape(-1)
    with np.errstate(all="ignore"):
        if attrs.mode == "add":
            # Unlike `out[at] += source` this adds for each of the points that meet at one element.
            np.add.at(out, flat[valid], source[valid])
        else:
            out[flat[valid]] = source[valid]
    return (out.reshape(dest.shape),)


def view(attrs: ViewAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    (source,) = args
    shape = extents(attrs.view.shape, dims)
    strided = _strided(source, attrs.view, shape, dims)
    if strided is not None:
        return (strided,)
    flat, valid = _locate(attrs.view.map, (), shape, source.shape, dims)
    domain = np.asarray(attrs.view.domain.evaluate(_index_values(shape, dims))).astype(np.bool_)
    return (_read(source, flat, valid & domain),)


def _strided(source: Array, view: View, shape: tuple[int, ...], dims: Dims) -> Array | None:
    """The view without a copy, where its map is affine, inside the source and unconditional."""
    # The reference would otherwise gather element by element: a convolution's windows as one
    # strided view are no copy at all. Only what is affine and inside the source can be
    # one.
    if view.domain is not TRUE or source.size == 0 or 0 in shape:
        return None
    origin = {**dims, **{f"i{k}": 0 for k in range(len(shape))}}
    starts: list[slice] = []
    strides = [0] * len(shape)
    for entry, extent, stride in zip(view.map, source.shape, source.strides, strict=True):
        start = low = high = int(entry.evaluate(origin))
        occurring = entry.symbols()
        for k, size in enumerate(shape):
            position = index(k, view.shape[k])
            if position not in occurring:
                continue
            factor = entry.coefficient(position)
            if factor is None or any(s.extent is not None for s in factor.symbols()):
                return None
            step = int(factor.evaluate(dims))
            low, high = low + min(step * (size - 1), 0), high + max(step * (size - 1), 0)
            strides[k] += step * stride
        if low < 0 or high >= extent:
            return None
        starts.append(slice(start, None))
    # As words: as_strided makes the dtype anew of its letters, which floats of 8 bits have not.
    corner = source.view(dtypes.dtype_of(source).word.numpy)[tuple(starts)]
    seen = np.lib.stride_tricks.as_strided(corner, shape, strides, writeable=False)
    return seen.view(source.dtype)


def iota(attrs: IotaAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    shape = extents(attrs.shape, dims)
    values = np.asarray(attrs.expr.evaluate(_index_values(shape, dims)), np.int64)
    return (convert(np.broadcast_to(values, shape), attrs.dtype),)


def constant(attrs: ConstantAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    return (attrs.array,)


def custom(attrs: CustomAttrs, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    results = tuple(np.zeros(extents(shape, dims), dtype.numpy) for shape, dtype in attrs.types)
    attrs.kernel.run(args, results)
    return results


def after(attrs: None, dims: Dims, args: Arrays) -> tuple[Array, ...]:
    return (args[0],)
