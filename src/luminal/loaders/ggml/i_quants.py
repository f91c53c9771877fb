"""The I types: groups of 4 or 8 values are points of a grid, with signs of their own.

https://github.com/ggml-org/llama.cpp/pull/4773; the grids are of the kind of Tseng et al.,
arXiv 2402.04396.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from luminal.loaders.ggml.blocks import BlockType, fields, numbers, record, signs
from luminal.loaders.ggml.grids import points
from luminal.loaders.ggml.simple import UNEVEN
from luminal.loaders.mapped import Array

_HALF, _QUARTER = np.float32(0.5), np.float32(0.25)
_SHIFT = np.float32(0.125)  # of all points of a group of IQ1_S and IQ1_M, up or down


def _even_signs(codes: Array) -> Array:
    """Seven bits of signs, each followed by the eighth: there are always evenly many minus."""
    # The sign of the eighth value is not stored: whoever wrote the block made their parity even,
    # which saves a bit for every eight values.
    codes = codes.astype(np.uint8)
    return signs(codes | (np.bitwise_count(codes) & np.uint8(1)) << np.uint8(7))


def _iq2_xxs(blocks: Array) -> Array:
    words = blocks["words"].reshape(-1, 8, 2)
    # Of two words the first is four codes of a byte each; a view as bytes wants it contiguous.
    grid = points("IQ2_XXS")[np.ascontiguousarray(words[..., 0]).view(np.uint8)]
    return _with_scale_in_signs(blocks["scale"], words[..., 1], grid, _QUARTER)


def _iq3_xxs(blocks: Array) -> Array:
    grid = points("IQ3_XXS")[blocks["codes"]]
    return _with_scale_in_signs(blocks["scale"], blocks["words"], grid, _HALF)


def _with_scale_in_signs(scale: Array, words: Array, grid: Array, unit: np.float32) -> Array:
    """Eight words have a scale in the upper 4 bits, below it the signs of four groups of 8."""
    scales = numbers(scale, 1) * (_HALF + (words >> 28).astype(np.float32)) * unit
    codes = (words[..., None] >> np.array([0, 7, 14, 21], np.uint32)) & np.uint32(127)
    signed = _even_signs(codes.reshape(len(scale), -1)).reshape(-1, 8, 32)
    return scales[..., None] * grid.reshape(-1, 8, 32) * signed


def _iq2_xs(blocks: Array) -> Array:
    # Nine bits of a code choose the point, the other seven are its signs.
    grid = points("IQ2_XS")[blocks["codes"] & 511]
    return _of_16(blocks, grid, _even_signs(blocks["codes"] >> 9))


def _iq2_s(blocks: Array) -> Array:
    high = fields(blocks["high"], 2).astype(np.uint16)
    grid = points("IQ2_S")[blocks["codes"] | high << np.uint16(8)]
    return _of_16(blocks, grid, signs(blocks["signs"]))


def _of_16(blocks: Array, grid: Array, signed: Array) -> Array:
    """Sixteen groups of 16 values."""
    scales = numbers(blocks["scale"], 1) * (_HALF + fields(blocks["scales"], 4)) * _QUARTER
    return scales[..., None] * grid.reshape(-1, 16, 16) * signed.reshape(-1, 16, 16)


def _iq3_s(blocks: Array) -> Array:
    high = fields(blocks["high"], 1).astype(np.uint16)
    grid = points("IQ3_S")[blocks["codes"] | high << np.uint16(8)].reshape(-1, 8, 32)
    scales = numbers(blocks["scale"], 1) * (1 + 2 * fields(blocks["scales"], 4))
    return scales[..., None] * grid * signs(blocks["signs"]).reshape(-1, 8, 32)


def _iq1_s(blocks: Array) -> Array:
    high = blocks["high"]
    codes = (high[..., None] >> np.array([0, 3, 6, 9], np.uint16)) & np.uint16(7)
    grid = points("IQ1_S")[blocks["codes"] | codes.reshape(len(blocks), -1) << np.uint16(8)]
    scales = numbers(blocks["scale"], 1) * (2 * (high >> 12 & 7) + 1)
    shift = np.where(high >> 15 == 0, _SHIFT, -_SHIFT)
    return scales[..., None] * (grid.reshape(-1, 8, 32) + shift[..., None])


def _iq1_m(blocks: Array) -> Array:
    """The upper 4 bits of four words are the scale of all, their other 12 those of groups of 16."""
    words = blocks["scales"]
    # No field of its own holds the block's scale: it fills the bits that four words had to spare.
    parts = words >> 12 << np.array([0, 4, 8, 12], np.uint16)
    scale = np.bitwise_or.reduce(parts, 1).astype(np.uint16).view(np.float16)
    codes = (words[..., None] >> np.array([0, 3, 6, 9], np.uint16)) & np.uint16(7)
    scales = numbers(scale, 1) * (2 * codes.reshape(len(blocks), -1) + 1)
    halves = fields(blocks["high"], 4)
    high = (halves & np.uint8(7)).astype(np.uint16)
    grid = points("IQ1_S")[blocks["codes"] | high << np.uint16(8)].reshape(-1, 16, 2, 8)
    shift = np.where(halves >> 3 == 0, _SHIFT, -_SHIFT).reshape(-1, 16, 2, 1)
    return scales[..., None, None] * (grid + shift)


def _iq4_xs(blocks: Array) -> Array:
    low = fields(blocks["low"], 4)
    high = fields(blocks["high"], 2).astype(np.uint8)
    # Six bits of each scale, stored with 32 added so that they are unsigned.
    scales = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    factors = (numbers(blocks["scale"], 1) * scales)[..., None]
    return factors * UNEVEN[fields(blocks["codes"], 4, 16)].reshape(-1, 8, 32)


TYPES: Mapping[str, BlockType] = {
    "IQ1_S": BlockType(
        256, record(("scale", "<f2"), ("codes", "u1", 32), ("high", "<u2", 8)), _iq1_s
    ),
    "IQ1_M": BlockType(
        256, record(("codes", "u1", 32), ("high", "u1", 16), ("scales", "<u2", 4)), _iq1_m
    ),
    "IQ2_XXS": BlockType(256, record(("scale", "<f2"), ("words", "<u4", 16)), _iq2_xxs),
    "IQ2_XS": BlockType(
        256, record(("scale", "<f2"), ("codes", "<u2", 32), ("scales", "u1", 8)), _iq2_xs
    ),
    "IQ2_S": BlockType(
        256,
        record(
            ("scale", "<f2"),
            ("codes", "u1", 32),
            ("signs", "u1", 32),
            ("high", "u1", 8),
            ("scales", "u1", 8),
        ),
        _iq2_s,
    ),
    "IQ3_XXS": BlockType(
        256, record(("scale", "<f2"), ("codes", "u1", 64), ("words", "<u4", 8)), _iq3_xxs
    ),
    "IQ3_S": BlockType(
        256,
        record(
            ("scale", "<f2"),
            ("codes", "u1", 64),
            ("high", "u1", 8),
            ("signs", "u1", 32),
            ("scales", "u1", 4),
        ),
        _iq3_s,
    ),
    "IQ4_XS": BlockType(
        256,
        record(("scale", "<f2"), ("high", "<u2", 1), ("low", "u1", 4), ("codes", "u1", 128)),
        _iq4_xs,
    ),
}
