"""Resize: along each dim a few taps for each position of the result, with weights.

Where the taps lie and what they weigh depends on extents and options alone; both are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.onnx.budget import check_table
from luminal.onnx.call import Call, extents_of, ints_of
from luminal.onnx.errors import OnnxError
from luminal.onnx.table import operator
from luminal.onnx.values import Array


@operator("Resize", known_inputs=(1, 2, 3))
def resize(call: Call, x: Tensor, *inputs: Array | None) -> Any:
    """Another extent for some dims, by interpolation."""
    call.unneeded("nearest_mode", "cubic_coeff_a", "extrapolation_value")  # of other modes
    if call.version < 11:
        scales, roi, sizes = inputs[0], None, None
        transform = "asymmetric"
    else:
        roi, scales, sizes = (*inputs, None, None, None)[:3]
        transform = call.attribute("coordinate_transformation_mode", "half_pixel")
    axes = call.attribute("axes") or list(range(x.ndim))
    axes = [call.place(k, x.ndim) for k in axes]
    kept = scales is None or not scales.size
    whole = axes == list(range(x.ndim))
    given_scales = [] if kept or scales is None else scales.reshape(-1).tolist()
    # Where `interpolate` has the same mapping it is taken: a model from ONNX then runs as one
    # written here does.
    mode = _mode_of_library(call, x, transform, given_scales)
    if kept and sizes is not None and mode:
        whole = whole and extents_of(sizes)[:2] == [*x.shape[:2]]
    if whole and mode and (kept or given_scales[:2] == [1.0, 1.0]):
        return _by_library(x, mode, sizes if kept else None, scales)
    extents = _literal(x)
    out, factors = _sizes(call, extents, axes, sizes if kept else None, scales)
    rest = {
        k: (roi[n], roi[n + len(axes)]) for n, k in enumerate(axes) if roi is not None and roi.size
    }
    outside = []
    work = x.cast(dtypes.float32)
    for k in range(x.ndim):
        same = out[k] == extents[k] and factors[k] == 1 and transform != "tf_crop_and_resize"
        if same:
            continue
        # One dim after the other: an interpolation is a product of those along single dims.
        at = _places(extents[k], out[k], factors[k], transform, rest.get(k, (0.0, 1.0)))
        if transform == "tf_crop_and_resize":
            outside.append((k, (at < 0) | (at > extents[k] - 1)))
        work = _interpolated(call, work, k, at, factors[k])
    if outside and call.attribute("mode", "nearest") != "none":
        value = call.attribute("extrapolation_value", 0.0)
        for k, beyond in outside:
            mask = call.graph.constant(beyond).reshape(-1, *(1,) * (x.ndim - k - 1))
            work = lm.where(mask, value, work)
    return _back(work, x)


def _mode_of_library(call: Call, x: Tensor, transform: str, factors: Sequence[float]) -> str | None:
    """What `interpolate` calls the same mapping; None where it has none. No factors: sizes."""
    mode = call.attribute("mode", "nearest")
    rank = x.ndim - 2
    plain = not (call.attribute("antialias", 0) or call.attribute("exclude_outside", 0))
    stretched = call.attribute("keep_aspect_ratio_policy", "stretch") == "stretch"
    if rank not in (1, 2, 3) or not (plain and stretched):
        return None
    if mode == "nearest":
        lower = factors and all(_rounding(call, factor) == "floor" for factor in factors)
        return "nearest" if transform == "asymmetric" and lower else None
    if transform != "half_pixel" or not x.dtype.is_float:
        return None
    if mode == "linear":
        return ("linear", "bilinear", "trilinear")[rank - 1]
    cubic = mode == "cubic" and rank == 2 and call.attribute("cubic_coeff_a", -0.75) == -0.75
    return "bicubic" if cubic else None


def _by_library(x: Tensor, mode: Any, sizes: Array | None, scales: Array | None) -> Any:
    """The spatial dims resized, where batch and channels stay."""
    if scales is not None:
        factors = scales.reshape(-1).tolist()
        return F.interpolate(x, None, tuple(factors[2:]), mode)
    assert sizes is not None
    wanted = extents_of(sizes)
    return F.interpolate(x, tuple(wanted[2:]), None, mode)


def _back(work: Tensor, x: Tensor) -> Any:
    return work.cast(x.dtype) if x.dtype.is_float else lm.round(work).cast(x.dtype)


@operator("Upsample", known_inputs=(1,))
def upsample(call: Call, x: Tensor, scales: Array | None = None) -> Any:
    """Resize as it was called before version 10."""
    factors = call.required("scales") if scales is None else scales.reshape(-1).tolist()
    extents = _literal(x)
    work = x.cast(dtypes.float32)
    for k, factor in enumerate(factors):
        if factor != 1:
            out = int(np.floor(extents[k] * np.float32(factor)))
            at = _places(extents[k], out, factor, "asymmetric", (0.0, 1.0))
            work = _interpolated(call, work, k, at, factor, nearest="floor")
    return _back(work, x)


def _literal(x: Tensor) -> list[int]:
    if not all(n.is_const for n in x.extents):
        raise ShapeError(f"Resize of {x.value.type}: the extents must be known")
    return [n.value for n in x.extents]


def _sizes(
    call: Call, extents: list[int], axes: Sequence[int], sizes: Any, scales: Any
) -> tuple[list[int], list[float]]:
    """The extents of the result and the factors to them."""
    out, factors = list(extents), [1.0] * len(extents)
    if sizes is None:
        if scales is None:
            raise OnnxError("Resize takes scales or sizes")
        for k, factor in zip(axes, scales.reshape(-1).tolist(), strict=True):
            if factor <= 0:
                raise OnnxError(f"a scale is {factor}; it must be above 0")
            out[k], factors[k] = int(np.floor(extents[k] * factor)), float(factor)
        return out, factors
    wanted = ints_of(sizes)
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    for n, k in zip(wanted, axes, strict=True):
        if n < 0:
            raise OnnxError(f"the sizes {wanted} hold {n}; an extent is 0 or more")
        if n and not extents[k]:
            raise OnnxError(f"Resize: dim {k} has no elements to make {n} of; give it the size 0")
    # With the aspect ratio kept one factor serves all dims, and extents are rounded from it.
    ratios = [n / (extents[k] or 1) for n, k in zip(wanted, axes, strict=True)]
    if policy != "stretch":
        one = min(ratios) if policy == "not_larger" else max(ratios)
        for k in axes:
            out[k], factors[k] = int(np.floor(extents[k] * one + 0.5)), one
        return out, factors
    for k, n, ratio in zip(axes, wanted, ratios, strict=True):
        out[k], factors[k] = n, ratio
    return out, factors


def _places(
    n: int, out: int, factor: float, transform: str, part: tuple[float, float]
) -> np.ndarray[Any, Any]:
    """Where each position of the result lies in the source, as real numbers."""
    check_table(out)
    x: Array = np.arange(out, dtype=np.float32)
    factor = np.float32(factor)  # type: ignore[assignment]  # ties fall as in float32
    match transform:
        case "half_pixel":
            return (x + 0.5) / factor - 0.5
        case "half_pixel_symmetric":
            offset = n / 2 * (1 - out / (factor * n))
            return offset + (x + 0.5) / factor - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / factor - 0.5 if out > 1 else np.zeros(out)
        case "align_corners":
            size = (
                factor * n
            )  # not rounded: the last place is the last element's only if it is whole
            return x * (n - 1) / (size - 1) if out > 1 else np.zeros(out)
        case "asymmetric":
            return x / factor
        case "tf_crop_and_resize":
            start, end = map(float, part)
            if out > 1:
                return start * (n - 1) + x * (end - start) * (n - 1) / (out - 1)
            return np.full(out, 0.5 * (start + end) * (n - 1))
    raise OnnxError(f"coordinate_transformation_mode {transform!r} is not one of ONNX's")


def _interpolated(
    call: Call, x: Tensor, axis: int, at: np.ndarray[Any, Any], factor: float, nearest: str = ""
) -> Any:
    """x read at real places along an axis."""
    n = x.shape[axis]
    assert isinstance(n, int)
    if not at.size:
        return x.take(call.graph.constant(np.zeros(0, np.int64)), axis)
    mode = call.attribute("mode", "nearest")
    if mode == "nearest":
        rounded = _ROUNDINGS[nearest or _rounding(call, factor)](at)
        taps = np.clip(rounded, 0, n - 1).astype(np.int64)
        return x.take(call.graph.constant(taps), axis)
    shrink = min(factor, 1.0) if call.attribute("antialias", 0) else 1.0
    base = np.ceil(at) - 1
    ratio = at - base
    reach = 2 if mode == "cubic" else 1
    # Antialiasing widens the kernel as the picture shrinks, so the number of taps follows from the
    # factor.
    start = int(np.floor(-reach / shrink)) + 1
    check_table(at.size, 2 * (reach - start))
    call.count(2 * (reach - start))
    offsets = np.arange(start, 2 * reach - start)
    distance = (offsets[None] - ratio[:, None]) * shrink
    if mode == "cubic":
        weights = _cubic(distance, call.attribute("cubic_coeff_a", -0.75))
    else:
        weights = np.clip(1 - np.abs(distance), 0, 1)
    places = (base[:, None] + offsets[None]).astype(np.int64)
    if call.attribute("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= n), 0, weights)
    # What lies outside has lost its weight; the rest adds up to 1 again.
    weights = weights / weights.sum(1, keepdims=True)
    return _weighted(call, x, axis, np.clip(places, 0, n - 1), weights)


def _rounding(call: Call, factor: float) -> str:
    """Which neighbour is nearest. Version 10 had no word for it: up where a dim shrinks."""
    if call.version < 11:
        return "ceil" if factor < 1 else "floor"
    mode: str = call.attribute("nearest_mode", "round_prefer_floor")
    return mode


def _weighted(
    call: Call, x: Tensor, axis: int, places: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]
) -> Tensor:
    total: Any = None
    behind = (1,) * (x.ndim - axis - 1)
    for k in range(places.shape[1]):
        # A tap without any weight would read the whole picture for nothing.
        if not weights[:, k].any():
            continue
        weight = call.graph.constant(weights[:, k].astype(np.float32)).reshape(-1, *behind)
        tap = x.take(call.graph.constant(places[:, k]), axis) * weight
        total = tap if total is None else total + tap
    return total  # type: ignore[no-any-return]


_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(distance: np.ndarray[Any, Any], a: float) -> np.ndarray[Any, Any]:
    """The weights of cubic convolution (Keys, 1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
