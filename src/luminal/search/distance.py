"""How far the results of two programs are apart, element by element."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from luminal.runtime.arrays import Array

FAR = 3e-2  # relative distance of two elements that needs an explanation


class Distance(NamedTuple):
    """How far two arrays are apart. The distance of elements is relative to their size and to the
    root mean square of all; of integers it is 0 or infinite.
    """

    size: int
    far: int  # elements further apart than FAR
    worst: tuple[int, ...]  # where the distance is largest


def distance(result: Array, expected: Array) -> Distance:
    """The Distance of a result from what is expected, with its worst element."""
    if not result.size:
        return Distance(0, 0, ())
    if result.dtype.kind in "biu":
        apart = np.where(result == expected, 0.0, np.inf)
    else:
        values = expected.astype(np.float64)
        finite = np.where(np.isfinite(values), values, 0.0)
        scale = np.abs(finite) + np.sqrt(np.mean(finite * finite)) + 1e-30
        apart = errors(values, result) / scale
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return Distance(result.size, int(np.sum(apart > FAR)), tuple(map(int, worst)))


def errors(exact: Array, result: Array) -> Array:
    """The distances of elements. An infinity is at no distance from itself, else at infinite
    distance, as NaN is. Where `exact` is NaN all is right: another spelling may have a value there
    (numerics.Class).
    """
    values = result.astype(np.float64)
    same = (values == exact) | np.isnan(exact)
    finite = np.isfinite(values) & np.isfinite(exact)
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.where(finite, np.abs(values - exact), np.inf))
