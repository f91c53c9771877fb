"""Tensor maps: what tells the copy engine how boxes are cut out of memory at an address."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from luminal.base.errors import DeviceError
from luminal.kernel.boxes import Tensor
from luminal.memory.arrays import Array

KINDS = {1: "UINT8", 2: "UINT16", 4: "UINT32"}
"""Elements are moved as they are, so integers of their size do for all."""


def encoded(tensor: Tensor, address: int) -> Array:
    """The 16 words of the map of a tensor at an address, as the CUDA driver makes them. Raises
    DeviceError where it refuses.
    """
    kind = getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{KINDS[tensor.size]}")
    swizzle = getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{tensor.swizzle}B")
    steps = [stride * tensor.size for stride in tensor.strides[1:]]
    rank = len(tensor.extents)
    status, map_ = cuda.cuTensorMapEncodeTiled(
        kind, rank, address,
        [*map(cuda.cuuint64_t, tensor.extents)], [*map(cuda.cuuint64_t, steps)],
        [*map(cuda.cuuint32_t, tensor.box)], [cuda.cuuint32_t(1)] * rank,
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    if status:
        raise DeviceError(f"tensor map of {tensor} at {address:#x}: {status.name}")
    words: list[Any] = map_.opaque
    return np.array([int(word) for word in words], np.uint64)
