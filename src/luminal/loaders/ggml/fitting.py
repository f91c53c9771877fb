"""Scales by least squares: those for which a group's codes lie nearest to its values.

Codes that round a group's values are known once its scale is, and the best scale once the codes
are: a quotient of two sums. So a few scales around the greatest value's are tried, each is made the
best one for its own codes, and of these the one with the least sum of squared errors is taken. What
is tried is many groups at once, the last axis of an array, in units of their greatest values: no
square of those is too large or too small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from luminal.loaders.mapped import Array

Levels = Callable[[Array], Array]
"""Rounds values in units of a scale to what codes can stand for."""


SMALL = np.finfo(np.float16).tiny
"""Below it half precision has ever fewer bits, and 0 at last."""


def rounded_down(numbers: Array) -> Array:
    """Half-precision numbers that are not greater, as float32."""
    halves = numbers.astype(np.float16)
    # Rounding to the nearest half may have gone up: then the next one below is meant.
    lower = np.nextafter(halves, np.float16(-np.inf))
    return np.where(halves.astype(np.float32) > numbers, lower, halves).astype(np.float32)


# Half precision has few digits below its normal numbers. Rounded to nearest a scale may become 0
# while others stay; rounded away from 0 none is lost, and no block is worse than zeros.
def lasting(scale: Array) -> Array:
    """Scales that half precision keeps to 2 ** -11 of them: small ones are the next of its numbers
    of no less size, with which codes reach the greatest value.
    """
    away = np.copysign(rounded_down(-np.abs(scale)), scale)
    return np.where(np.abs(scale) < SMALL, away, scale)


def inverse(scale: Array) -> Array:
    """1 / scale, and 0 where that or the scale is no normal number: then codes are 0."""
    # What is too small is divided by 1 instead: `where` drops that quotient, and nothing warns.
    is_tiny = np.abs(scale) < np.finfo(np.float32).tiny
    return np.where(is_tiny, 0, 1 / np.where(is_tiny, np.float32(1), scale)).astype(np.float32)


def greatest(values: Array) -> Array:
    """The value of the greatest size in each group (..., n), as (..., 1)."""
    return np.take_along_axis(values, np.abs(values).argmax(-1)[..., None], -1)


def centered(bits: int) -> Levels:
    """Whole numbers around 0, one more of them below."""
    half = np.float32(1 << (bits - 1))
    return lambda values: np.rint(values).clip(-half, half - 1)


# Errors count alike. Weighting them by the values' sizes, as llama.cpp does, was tried: rms errors
# grow by up to a tenth.
def fitted(values: Array, levels: Levels, ends: Sequence[float]) -> Array:
    """The scales (..., 1) of groups (..., n); `ends`: levels that the greatest value is tried as.

    A scale explains (sum of values * levels) squared / (sum of levels squared) of the sum of
    squares: the more, the less is left as error.
    """
    unit = greatest(values)
    values = values * inverse(unit)
    best, scale = np.zeros_like(unit), np.zeros_like(unit)
    for end in ends:
        candidate, explained = _refitted(values, levels(values * np.float32(end)))
        is_better = explained > best
        best, scale = np.where(is_better, explained, best), np.where(is_better, candidate, scale)
    # Once more from the scale that was found: with it some values round to other codes, for which
    # another scale is the best one.
    candidate, explained = _refitted(values, levels(values * inverse(scale)))
    return np.where(explained > best, candidate, scale) * unit


def _refitted(values: Array, codes: Array) -> tuple[Array, Array]:
    """The best scale for some codes, and what it explains."""
    both = _dot(values, codes)
    scale = both * inverse(_dot(codes, codes))
    return scale, both * scale


def fitted_from_least(values: Array, top: int, ends: Sequence[float]) -> tuple[Array, Array]:
    """The scales and the least values, as sizes below 0, (..., 1) each, of groups (..., n).

    Codes are 0 to `top`; a group has 0 or less as its least value. `ends`: what the greatest value
    is tried as.
    """
    unit = np.abs(greatest(values))
    values = values * inverse(unit)
    line = _Line(values, np.float32(top))
    least = np.minimum(values.min(-1, keepdims=True), 0)
    part = inverse(values.max(-1, keepdims=True) - least)
    for end in ends:
        line.try_codes((values - least) * (part * np.float32(end)))
    line.try_codes((values - line.offset) * inverse(line.scale))
    return line.scale * unit, -line.offset * unit


class _Line:
    """The best `scale * code + offset` of those tried, of each group, by normal equations."""

    def __init__(self, values: Array, top: np.float32) -> None:
        self.values, self.top = values, top
        self.sum = values.sum(-1, keepdims=True)
        self.count = np.float32(values.shape[-1])
        self.scale, self.offset = np.zeros_like(self.sum), np.zeros_like(self.sum)
        self.error = np.zeros_like(self.sum)  # less the values' own squares

    def try_codes(self, turned: Array) -> None:
        """Takes the line through codes near to these numbers where it is better."""
        codes = np.rint(turned).clip(0, self.top)
        n, total, both = self.count, codes.sum(-1, keepdims=True), _dot(self.values, codes)
        squares = _dot(codes, codes)
        determinant = n * squares - total * total  # of whole numbers below 2 ** 24
        part = inverse(determinant)
        scale = (n * both - self.sum * total) * part
        offset = (squares * self.sum - total * both) * part
        offset = np.where(determinant > 0, offset, np.where(squares > 0, 0, self.sum / n))
        through_zero = (offset > 0) | (determinant == 0)  # an offset above 0 cannot be said
        scale = np.where(through_zero, both * inverse(squares), scale)
        offset = np.minimum(offset, 0)
        error = scale * (scale * squares + 2 * offset * total - 2 * both)
        error += offset * (n * offset - 2 * self.sum)
        # The formats' scales of groups are unsigned, so a falling line cannot be stored.
        is_better = (error < self.error) & (scale >= 0)
        self.error = np.where(is_better, error, self.error)
        self.scale = np.where(is_better, scale, self.scale)
        self.offset = np.where(is_better, offset, self.offset)


def _dot(a: Array, b: Array) -> Array:
    return np.einsum("...i,...i->...", a, b)[..., None]
