"""The K types: 256 values in groups, whose scales are themselves integers times a scale.

https://github.com/ggml-org/llama.cpp/pull/1684
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from luminal.loaders.ggml.blocks import BlockType, fields, numbers, record
from luminal.loaders.mapped import Array

_HIGH_4, _HIGH_2 = np.uint8(4), np.uint8(2)


def _q2(blocks: Array) -> Array:
    scale = _times(blocks["scale"], blocks["scales"] & 15)
    least = _times(blocks["least"], blocks["scales"] >> 4)
    # A scale and a least value for each group: value = scale * code - least, with unsigned codes.
    return scale * numbers(fields(blocks["codes"], 2, 32), 16, 16) - least


def _q3(blocks: Array) -> Array:
    low, high = fields(blocks["scales"][:, :8], 4, 8), fields(blocks["scales"][:, 8:], 2, 4)
    scales = (low | high << _HIGH_4).astype(np.int8) - np.int8(32)
    codes = fields(blocks["low"], 2, 32) | fields(blocks["high"], 1, 32) << _HIGH_2
    return _times(blocks["scale"], scales) * numbers(codes.astype(np.int8) - np.int8(4), 16, 16)


def _q4(blocks: Array) -> Array:
    return _from_least(blocks, fields(blocks["low"], 4, 32))


def _q5(blocks: Array) -> Array:
    high = fields(blocks["high"], 1, 32)
    return _from_least(blocks, fields(blocks["low"], 4, 32) | high << _HIGH_4)


def _q6(blocks: Array) -> Array:
    codes = fields(blocks["low"], 4, 64) | fields(blocks["high"], 2, 32) << _HIGH_4
    scale = _times(blocks["scale"], blocks["scales"])
    return scale * numbers(codes.astype(np.int8) - np.int8(32), 16, 16)


def _from_least(blocks: Array, codes: Array) -> Array:
    """Eight groups. Of 12 bytes, 4 have six bits of a scale, 4 of a least value; their upper two
    bits belong to four further ones, whose lower halves are in the last 4 bytes.
    """
    first, second, third = np.split(blocks["scales"], 3, axis=1)
    scales = np.concatenate([first & 63, third & 15 | first >> 2 & 48], 1)
    least = np.concatenate([second & 63, third >> 4 | second >> 2 & 48], 1)
    return _times(blocks["scale"], scales) * numbers(codes, 8, 32) - _times(blocks["least"], least)


def _times(scale: Array, groups: Array) -> Array:
    """The factor of each group, (n, groups, 1)."""
    return (numbers(scale, 1) * numbers(groups, -1))[..., None]


_HEAD = ("scale", "<f2"), ("least", "<f2"), ("scales", "u1", 12)

TYPES: Mapping[str, BlockType] = {
    "Q2_K": BlockType(
        256,
        record(("scales", "u1", 16), ("codes", "u1", 64), ("scale", "<f2"), ("least", "<f2")),
        _q2,
    ),
    "Q3_K": BlockType(
        256,
        record(("high", "u1", 32), ("low", "u1", 64), ("scales", "u1", 12), ("scale", "<f2")),
        _q3,
    ),
    "Q4_K": BlockType(256, record(*_HEAD, ("low", "u1", 128)), _q4),
    "Q5_K": BlockType(256, record(*_HEAD, ("high", "u1", 32), ("low", "u1", 128)), _q5),
    "Q6_K": BlockType(
        256,
        record(("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("scale", "<f2")),
        _q6,
    ),
}
