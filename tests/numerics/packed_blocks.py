"""Random blocks of every packed type, and the values that the gguf package gives them."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np

from luminal.loaders.ggml.types import BLOCKS

Array = np.ndarray[Any, Any]


def blocks_of(kind: str, rows: int, columns: int, seed: int = 0) -> Array:
    """Random blocks whose scales are moderate."""
    each = BLOCKS[kind]
    rng = np.random.default_rng(seed)
    shape = rows, columns // each.size
    size = each.record.itemsize
    records = rng.integers(0, 256, (*shape, size), np.uint8).view(each.record)[..., 0].copy()
    for name in each.record.names or ():
        if each.record[name] == np.dtype("<f2"):
            records[name] = rng.standard_normal(shape).astype(np.float16)
        if name == "exponent":  # of a power of two
            records[name] = rng.integers(124, 128, shape, np.uint8)
        if kind == "IQ1_M" and name == "scales":  # whose upper bits are the scale's
            bits = rng.standard_normal(shape).astype(np.float16).view(np.uint16)[..., None]
            parts = bits >> np.array([0, 4, 8, 12], np.uint16) & np.uint16(15)
            records[name] = records[name] & np.uint16(4095) | parts << np.uint16(12)
    return records


def values_of(kind: str, blocks: Array) -> Array:
    """What the gguf package makes of blocks; of Q1_0, which it does not decode, the definition."""
    if kind == "Q1_0":
        bits = np.unpackbits(blocks["bits"], -1, bitorder="little").astype(np.float32)
        scales: Array = blocks["scale"].astype(np.float32)[..., None]
        return (scales * (2 * bits - 1)).reshape(len(blocks), -1)
    data = blocks.view(np.uint8).reshape(len(blocks), -1)
    found: Array = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind])
    return found
