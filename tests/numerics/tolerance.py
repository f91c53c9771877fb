"""The one way tests compare a backend with the reference: tolerance table and comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.backends.reference.bounded import MARGIN
from luminal.base import dtypes

Array = np.ndarray[Any, Any]

# How many error bounds a result may be away, per dtype. Both sides may be off by one bound, and
# transcendentals by 2 ulp; what lies within MARGIN bounds is not even called unstable.
TOLERANCE: dict[str, float] = {
    "float8_e4m3fn": MARGIN,
    "float8_e5m2": MARGIN,
    "float16": MARGIN,
    "bfloat16": MARGIN,
    "float32": MARGIN,
    "float64": MARGIN,
}
UNSTABLE_SHARE = 0.05  # more than this share of unstable points makes a comparison worthless


def mismatches(
    actual: Array, value: Array, error: Array, unstable: Array, tol: float | None = None
) -> Array:
    """The positions, one row each, where `actual` is not `value` within `tol` bounds.

    Integers and bools agree exactly, NaN and infinities by position; unstable points are skipped.
    """
    dtype = dtypes.dtype_of(value)
    if not dtype.is_float:
        return np.argwhere(~unstable & (actual != value))
    tol = TOLERANCE[dtype.name] if tol is None else tol
    tiny = float(np.finfo(np.float32 if dtype.is_storage else dtype.numpy).tiny)
    with np.errstate(all="ignore"):
        found, expected = actual.astype(np.float64), value.astype(np.float64)
        near = np.abs(found - expected) <= tol * error + tiny
    agree = np.where(
        np.isfinite(expected), near, (found == expected) | (np.isnan(found) & np.isnan(expected))
    )
    return np.argwhere(~unstable & ~agree)


def compare(
    actual: Any,
    value: Array,
    error: Array,
    unstable: Array,
    tol: float | None = None,
    *,
    name: str = "result",
    max_unstable: float = UNSTABLE_SHARE,
) -> None:
    """Raises AssertionError that lists the worst places where `actual` is not `value`.

    Also for another shape or dtype, or if more than the share `max_unstable` is unstable.
    """
    actual = np.asarray(actual)
    assert actual.dtype == value.dtype, f"{name}: dtype {actual.dtype}, expected {value.dtype}"
    assert actual.shape == value.shape, f"{name}: shape {actual.shape}, expected {value.shape}"
    share = float(np.mean(unstable)) if unstable.size else 0.0
    assert share <= max_unstable, f"{name}: {share:.0%} of the points are unstable"
    wrong = mismatches(actual, value, error, unstable, tol)
    if len(wrong):
        raise AssertionError(f"{name}: {_report(wrong, actual, value, error)}")


def _report(wrong: Array, actual: Array, value: Array, error: Array) -> str:
    lines = [f"{len(wrong)} of {value.size} points differ"]
    for position in map(tuple, wrong[:5]):
        found, expected = actual[position], value[position]
        bounds = ""
        if error[position] > 0:
            distance = abs(float(found) - float(expected)) / error[position]
            bounds = f", {distance:.3g} error bounds apart"
        at = ", ".join(map(str, position))
        lines.append(f"  [{at}]: {found!r}, expected {expected!r}{bounds}")
    return "\n".join(lines)
