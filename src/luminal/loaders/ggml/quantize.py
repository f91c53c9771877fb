"""Numbers to packed types: of those here the greatest value of a block gives its scale; of others
it is fitted (`k_quantizers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from luminal.base import host
from luminal.base.errors import InputError
from luminal.loaders.ggml import k_quantizers, simple
from luminal.loaders.ggml.blocks import VALUES_AT_ONCE
from luminal.loaders.ggml.fitting import SMALL, inverse, lasting, rounded_down
from luminal.loaders.ggml.types import BLOCKS
from luminal.loaders.mapped import Array


def _q8_0(values: Array) -> Array:
    """Codes from -127 to 127, halves away from 0."""
    records = np.zeros(len(values), simple.TYPES["Q8_0"].record)
    scale = lasting(np.abs(values).max(1, keepdims=True) / np.float32(127))
    turned = values * inverse(scale)
    size = np.floor(np.abs(turned))
    codes = np.copysign(size + (np.abs(turned) - size >= 0.5), turned)
    records["scale"], records["codes"] = scale[:, 0], codes.astype(np.int8)
    return records


def _centered(kind: str, bits: int, values: Array) -> Array:
    """Codes around 0; the lowest is the value of the greatest size, whatever its sign."""
    half = 1 << (bits - 1)
    greatest = np.take_along_axis(values, np.abs(values).argmax(1)[:, None], 1)
    scale = lasting(greatest / np.float32(-half))
    codes = _rounded(values * inverse(scale) + np.float32(half), bits)
    return _record(kind, codes, scale=scale)


def _from_least(kind: str, bits: int, values: Array) -> Array:
    """Codes from the least value, which is 0, to the greatest."""
    least, most = values.min(1, keepdims=True), values.max(1, keepdims=True)
    steps = np.float32((1 << bits) - 1)
    scale = (most - least) / steps
    is_small = scale < SMALL
    if is_small.any():  # the least value is rounded, downwards, then the steps from there
        least = np.where(is_small, rounded_down(least), least)
        above = np.abs(rounded_down((least - most) / steps))
        scale = np.where(is_small, above, scale)
    codes = _rounded((values - least) * inverse(scale), bits)
    return _record(kind, codes, scale=scale, least=least)


def _rounded(codes: Array, bits: int) -> Array:
    # No code is below 0, so cutting off after adding a half rounds. What lies opposite to the
    # greatest value may come to one code more than there is.
    return (codes + np.float32(0.5)).astype(np.uint8).clip(0, (1 << bits) - 1)


def _record(kind: str, codes: Array, **numbers: Array) -> Array:
    """Blocks of codes of 4 bits, two in a byte, or of 5, the upper ones apart."""
    records = np.zeros(len(codes), simple.TYPES[kind].record)
    for name, number in numbers.items():
        records[name] = number[:, 0]
    records["low"] = codes[:, :16] & np.uint8(15) | codes[:, 16:] << np.uint8(4)
    if "high" in (records.dtype.names or ()):
        records["high"] = np.packbits(codes >> np.uint8(4), 1, "little")
    return records


def beyond(name: str, values: Array, kind: str, scales: str) -> InputError:
    """The error of values whose scales are not finite."""
    greatest = float(np.abs(values).max())
    return InputError(
        f"{name}: holds {greatest:.4g}, for which {kind.lower()} has no scale: {scales}; make the "
        "weight smaller, or leave it as it is (lm.quantize: skip=; scales of int8 are float32)"
    )


QUANTIZERS: Mapping[str, Callable[[Array], Array]] = {
    "Q8_0": _q8_0,
    "Q4_0": partial(_centered, "Q4_0", 4),
    "Q4_1": partial(_from_least, "Q4_1", 4),
    "Q5_0": partial(_centered, "Q5_0", 5),
    "Q5_1": partial(_from_least, "Q5_1", 5),
    **k_quantizers.QUANTIZERS,
}


def quantized(name: str, array: Array, kind: str) -> Array:
    """The blocks of an array of finite floats (..., rows of whole blocks), as (..., blocks).

    Raises InputError, which names the array, where it holds anything else, or values so great that
    half precision cannot hold their scales.
    """
    if not np.isfinite(array).all():
        raise InputError(f"{name}: has infinite values or no numbers, which {kind} cannot hold")
    size = BLOCKS[kind].size
    values = array.reshape(-1, size)
    blocks = np.empty(len(values), BLOCKS[kind].record)
    step = VALUES_AT_ONCE // size

    def make(first: int) -> None:
        piece = slice(first, first + step)
        # Cast piece by piece: of a matrix of half-precision numbers the whole as float32 would be
        # twice what it is.
        with np.errstate(all="ignore"):  # told by what is not finite then
            blocks[piece] = QUANTIZERS[kind](values[piece].astype(np.float32))

    with ThreadPoolExecutor(len(host.core_ids())) as pool:  # NumPy lets other threads run
        [*pool.map(make, range(0, len(values), step))]
    numbers = [field for field in ("scale", "least") if field in (blocks.dtype.names or ())]
    if not all(np.isfinite(blocks[field]).all() for field in numbers):
        raise beyond(name, array, kind, "blocks have half-precision ones, at most 65504")
    return blocks.reshape(*array.shape[:-1], array.shape[-1] // size)
