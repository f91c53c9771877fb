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


def distance(found: Array, expected: Array) -> Distance:
    """See Distance and `errors`."""
    if not found.size:
        return Distance(0, 0, ())
    if found.dtype.kind in "biu":
        apart = np.where(found == expected, 0.0, np.inf)
    else:
        values = expected.astype(np.float64)
        known = np.where(np.isfinite(values), values, 0.0)
        scale = np.abs(known) + np.sqrt(np.mean(known * known)) + 1e-30
        apart = errors(values, found) / scale
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return Distance(found.size, int(np.sum(apart > FAR)), tuple(map(int, worst)))


def errors(exact: Array, found: Array) -> Array:
    """Distances. An infinity is at no distance from itself, else at infinite distance, as NaN is.
    Where `exact` is NaN all is right: another spelling may have a value there (numerics.Class).
    """
    values = found.astype(np.float64)
    same = (values == exact) | np.isnan(exact)
    finite = np.isfinite(values) & np.isfinite(exact)
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.where(finite, np.abs(values - exact), np.inf))
