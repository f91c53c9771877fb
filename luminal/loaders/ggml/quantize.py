"""Numbers to the packed types that need no search: the greatest of a block gives its scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from luminal.errors import InputError
from luminal.loaders.ggml import simple
from luminal.loaders.mapped import Array


def _q8_0(values: Array) -> Array:
    """Codes from -127 to 127, halves away from 0."""
    found = np.zeros(len(values), simple.TYPES["Q8_0"].record)
    scale = np.abs(values).max(1, keepdims=True) / np.float32(127)
    turned = values * _inverse(scale)
    size = np.floor(np.abs(turned))
    codes = np.copysign(size + (np.abs(turned) - size >= 0.5), turned)
    found["scale"], found["codes"] = scale[:, 0], codes.astype(np.int8)
    return found


def _q4_0(values: Array) -> Array:
    """Codes from -8 to 7, of which -8 is the value of the greatest size, whatever its sign."""
    found = np.zeros(len(values), simple.TYPES["Q4_0"].record)
    greatest = np.take_along_axis(values, np.abs(values).argmax(1)[:, None], 1)
    scale = greatest / np.float32(-8)
    codes = (values * _inverse(scale) + np.float32(8.5)).astype(np.uint8).clip(0, 15)
    found["scale"], found["low"] = scale[:, 0], codes[:, :16] | codes[:, 16:] << np.uint8(4)
    return found


def _inverse(scale: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


QUANTIZERS: Mapping[str, Callable[[Array], Array]] = {"Q8_0": _q8_0, "Q4_0": _q4_0}


def quantized(name: str, array: Array, kind: str) -> Array:
    """The blocks of an array of finite floats (..., rows of whole blocks), as (..., blocks).

    Raises InputError, which names the array, where it holds anything else.
    """
    values = array.astype(np.float32).reshape(-1, simple.TYPES[kind].size)
    if not np.isfinite(values).all():
        raise InputError(f"{name}: has infinite values or no numbers, which {kind} cannot hold")
    return QUANTIZERS[kind](values).reshape(*array.shape[:-1], -1)
