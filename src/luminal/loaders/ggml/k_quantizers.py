"""Numbers to the K types and to IQ4_NL, whose scales are fitted to the values.

A block's own scale is the one that lets its groups' scales, which are integers, reach the greatest
of them. Codes are chosen last, for the scales as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from luminal.loaders.ggml import simple
from luminal.loaders.ggml.blocks import packed_fields
from luminal.loaders.ggml.fitting import (
    centered,
    fitted,
    fitted_from_least,
    greatest,
    inverse,
    lasting,
)
from luminal.loaders.ggml.k_quants import TYPES
from luminal.loaders.mapped import Array

_TRIES = 9
_CODES = np.abs(np.arange(-128, 129)[:, None] - simple.UNEVEN).argmin(1)  # of whole numbers


def _around(half: int) -> list[float]:
    """Levels near that of the greatest value."""
    return [*np.linspace(-half - 0.9, -half + 0.9, _TRIES)]


def _halved(scale: Array) -> tuple[Array, Array]:
    """Scales as they are stored, and as they are read."""
    stored = lasting(scale).astype(np.float16)
    return stored, stored.astype(np.float32)


def _centered(bits: int, scale_bits: int, values: Array) -> tuple[Array, Array, Array]:
    """Codes and scales of 16 groups, signed, and the block's scale."""
    groups = values.reshape(len(values), 16, 16)
    scales = fitted(groups, centered(bits), _around(1 << (bits - 1)))[..., 0]
    stored, scale = _halved(greatest(scales) / np.float32(-1 << (scale_bits - 1)))
    scales = centered(scale_bits)(scales * inverse(scale))
    codes = centered(bits)(groups * inverse(scale * scales)[..., None])
    return codes.reshape(len(values), -1).astype(np.int8), scales.astype(np.int8), stored[:, 0]


def _from_least(
    bits: int, groups: int, scale_bits: int, values: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Codes, groups' scales and least values, the block's of both."""
    split = values.reshape(len(values), groups, -1)
    top = (1 << bits) - 1
    ends = [*np.linspace(top - 0.75, top + 1, _TRIES)]
    scale, least = fitted_from_least(split, top, ends)
    scale_numbers, half, scale = _numbered(scale, scale_bits)
    # The scale is by now the one that is stored, not the one that was fitted, so the least values
    # are fitted anew to what it can say.
    least = _best_least(split, _codes(split, scale, least, top) * scale)
    least_numbers, half_least, least = _numbered(least, scale_bits)
    codes = _codes(split, scale, least, top)
    codes = codes.reshape(len(values), -1).astype(np.uint8)
    return codes, scale_numbers, least_numbers, half, half_least


def _codes(groups: Array, scale: Array, least: Array, top: int) -> Array:
    return np.rint((groups + least) * inverse(scale)).clip(0, top)


def _best_least(groups: Array, turned: Array) -> Array:
    """For values as their codes' multiples of the scale."""
    return (turned - groups).mean(-1, keepdims=True).clip(0, None)


def _numbered(numbers: Array, bits: int) -> tuple[Array, Array, Array]:
    """The integers of the groups of numbers (blocks, groups, 1), the block's scale, and what is
    read.
    """
    most = np.float32((1 << bits) - 1)
    stored, scale = _halved(numbers[..., 0].max(1, keepdims=True) / most)
    codes = np.rint(numbers[..., 0] * inverse(scale)).clip(0, most)
    return codes.astype(np.uint8), stored[:, 0], (scale * codes)[..., None]


def _record(kind: str, **fields: Array) -> Array:
    record = np.zeros(len(fields["scale"]), TYPES[kind].record)
    for name, array in fields.items():
        record[name] = array
    return record


def _q2(values: Array) -> Array:
    codes, scales, leasts, scale, least = _from_least(2, 16, 4, values)
    both = scales | leasts << np.uint8(4)
    return _record("Q2_K", scale=scale, least=least, scales=both, codes=packed_fields(codes, 2, 32))


def _q3(values: Array) -> Array:
    codes, scales, scale = _centered(3, 6, values)
    # Fields of bits have no signs: half of the range is added, which readers take off again.
    codes, scales = (codes + 4).astype(np.uint8), (scales + 32).astype(np.uint8)
    parts = packed_fields(scales, 4, 8), packed_fields(scales >> 4, 2, 4)
    low, high = packed_fields(codes, 2, 32), packed_fields(codes >> 2, 1, 32)
    return _record("Q3_K", scale=scale, scales=np.concatenate(parts, 1), low=low, high=high)


def _q6(values: Array) -> Array:
    codes, scales, scale = _centered(6, 8, values)
    codes = (codes + 32).astype(np.uint8)
    low, high = packed_fields(codes, 4, 64), packed_fields(codes >> 4, 2, 32)
    return _record("Q6_K", scale=scale, scales=scales, low=low, high=high)


def _q4_or_q5(kind: str, bits: int, values: Array) -> Array:
    codes, scales, leasts, scale, least = _from_least(bits, 8, 6, values)
    upper = [numbers[:, 4:] >> 4 << 6 for numbers in (scales, leasts)]
    parts = (
        scales[:, :4] | upper[0],
        leasts[:, :4] | upper[1],
        scales[:, 4:] & 15 | (leasts[:, 4:] & 15) << 4,
    )
    record = _record(
        kind, scale=scale, least=least, scales=np.concatenate(parts, 1),
        low=packed_fields(codes, 4, 32),
    )  # fmt: skip
    if bits == 5:
        record["high"] = packed_fields(codes >> 4, 1, 32)
    return record


def _uneven_codes(turned: Array) -> Array:
    return _CODES[np.rint(turned).clip(-128, 128).astype(np.int16) + 128]


def _iq4(values: Array) -> Array:
    """The greatest value is tried as the greatest level of either side. No level is 0: of small
    scales the next one above is not always better than the nearest, which may be 0.
    """
    ends = (e * f for e in (simple.UNEVEN[0], simple.UNEVEN[-1]) for f in np.linspace(0.9, 1.1, 7))
    unit = inverse(greatest(values))
    scales = fitted(values, lambda turned: simple.UNEVEN[_uneven_codes(turned)], [*ends])
    records = np.zeros(len(values), simple.TYPES["IQ4_NL"].record)
    records["scale"], best = scales[:, 0], np.full_like(scales, np.inf)
    for stored in (scales.astype(np.float16), lasting(scales).astype(np.float16)):
        scale = stored.astype(np.float32)
        codes = _uneven_codes(values * inverse(scale)).astype(np.uint8)
        error = np.square((values - scale * simple.UNEVEN[codes]) * unit).sum(-1, keepdims=True)
        is_better = error < best
        best = np.where(is_better, error, best)
        records["scale"] = np.where(is_better, stored, records["scale"][:, None])[:, 0]
        records["codes"] = np.where(is_better, packed_fields(codes, 4, 16), records["codes"])
    return records


QUANTIZERS: Mapping[str, Callable[[Array], Array]] = {
    "IQ4_NL": _iq4,
    "Q2_K": _q2,
    "Q3_K": _q3,
    "Q4_K": partial(_q4_or_q5, "Q4_K", 4),
    "Q5_K": partial(_q4_or_q5, "Q5_K", 5),
    "Q6_K": _q6,
}
