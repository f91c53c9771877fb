"""Packed matrices in files of plain arrays: `W.q4_0.blocks` has the bytes of the blocks of W.

So a module's state_dict has them, and so `luminal quantize` writes folders and safetensors files;
the `config.json` of such a folder says `"quantization_config": {"quant_method": "luminal"}`, at
which other readers stop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.ggml.packed import RECORDED
from luminal.loaders.ggml.types import BLOCKS, kind_of, unpacked
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown

METHOD = "luminal"
_NAME = re.compile(rf"(.+)\.({'|'.join(RECORDED).lower()})\.blocks")


def named(name: str, blocks: Array) -> tuple[str, Array]:
    """The name and the bytes (..., blocks, bytes) of an array of records (..., blocks)."""
    data = np.ascontiguousarray(blocks).view(np.uint8)
    shape = *blocks.shape, blocks.itemsize  # also of no elements
    return f"{name}.{kind_of(blocks).lower()}.blocks", data.reshape(shape)


def with_blocks(arrays: Mapping[str, Array], keep: bool, source: object) -> dict[str, Array]:
    """The arrays of a file, those of blocks under their matrices' names: as records of a type, if
    they are matrices and `keep`, else as float32. Raises LoadError for what are no blocks.
    """
    decoded: dict[str, Array] = {}
    for name, array in arrays.items():
        match = _NAME.fullmatch(name)
        if match is None:
            decoded[name] = array
            continue
        record = BLOCKS[match[2].upper()].record
        if array.dtype != np.uint8 or array.ndim < 2 or array.shape[-1] != record.itemsize:
            raise LoadError(
                f"{source}: tensor {shown(name)} is {array.dtype}{list(array.shape)}; blocks of "
                f"{match[2]} are uint8[..., {record.itemsize}]"
            )
        # Both would be one weight's values, and nothing says which of them counts.
        if match[1] in arrays:
            raise LoadError(f"{source}: has both {shown(name)} and {shown(match[1])}")
        blocks = array.view(record)[..., 0]
        decoded[match[1]] = blocks if keep and blocks.ndim == 2 else unpacked(blocks)
    return decoded
