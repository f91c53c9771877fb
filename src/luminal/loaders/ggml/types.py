"""Every type of tensor by its number, as in `ggml_type` of
https://github.com/ggml-org/ggml/blob/master/include/ggml.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from luminal.loaders.ggml import i_quants, k_quants, simple
from luminal.loaders.ggml.blocks import BlockType
from luminal.loaders.mapped import Array

PLAIN: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F64": np.dtype("<f8"),
    "I8": np.dtype("<i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
"""Types of numbers that are stored as they are."""

BLOCKS: Mapping[str, BlockType] = {**simple.TYPES, **k_quants.TYPES, **i_quants.TYPES}

_BY_RECORD = {each.record: name for name, each in BLOCKS.items()}
# An array tells its type by its record alone (`kind_of`), so no two types may have equal ones.
assert len(_BY_RECORD) == len(BLOCKS)


def kind_of(blocks: Array) -> str:
    """The name of the type whose records an array holds."""
    return _BY_RECORD[blocks.dtype]


def unpacked(array: Array) -> Array:
    """Blocks (..., n), which are records of a type, as float32 (..., n * size); numbers stay."""
    if array.dtype.names is None:
        return array
    kind = BLOCKS[kind_of(array)]
    length = array.shape[-1] * kind.size  # said, as there may be no rows
    return kind.decoded(array.reshape(-1)).reshape(*array.shape[:-1], length)


NUMBERS: Mapping[str, int] = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q8_1": 9,
    "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "Q8_K": 15, "IQ2_XXS": 16,
    "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ4_NL": 20, "IQ3_S": 21, "IQ2_S": 22, "IQ4_XS": 23,
    "I8": 24, "I16": 25, "I32": 26, "I64": 27, "F64": 28, "IQ1_M": 29, "BF16": 30, "TQ1_0": 34,
    "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40, "Q1_0": 41,
}  # fmt: skip
"""4, 5, 31 to 33 and 36 to 38 were types that are no longer part of the format."""
