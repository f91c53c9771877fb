"""Matrices of folders whose `config.json` says `"quant_method": "fp8"`: floats of 8 bits, with
scales beside them.

`W` in float8_e4m3fn times `W_scale_inv` is the weight: of one scale, or one for each block of 128 x
128 (DeepSeek-AI, arXiv 2412.19437, section 3.3; FineGrainedFP8Config of transformers). What
activations are rounded by elsewhere is no part of the weights, and is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from luminal.base.dtypes import float8_e4m3fn
from luminal.base.errors import LoadError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown
from luminal.nn.packed_floats import FLOAT8, SIDE

SCALES, ACTIVATIONS = "_scale_inv", ".activation_scale"
NUMBERS = "float32", "bfloat16", "float16"  # dtypes of scales


def described(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a `config.json` says of such matrices, if it does."""
    said = config.get("quantization_config")
    return said if isinstance(said, Mapping) and said.get("quant_method") == "fp8" else None


def scaled(
    tensors: Mapping[str, Array], said: Mapping[str, Any], keep: bool, source: object
) -> dict[str, Any]:
    """The tensors without the scales: matrices as float32, or to be kept as Packed, but for those
    whose rows are no whole blocks.

    Raises LoadError for blocks of another size, and for codes and scales that do not fit each other
    or are without each other.
    """
    side = said.get("weight_block_size")
    if side not in (None, [SIDE, SIDE]):
        raise LoadError(
            f"{source}: weight_block_size={shown(side)} is not supported; [{SIDE}, {SIDE}] and "
            "null are"
        )
    whole: dict[str, Any] = {}
    for name, array in tensors.items():
        if array.dtype == float8_e4m3fn.numpy:
            scales = _scales(name, array, tensors.get(name + SCALES), side is not None, source)
            whole[name] = _weight(name, array, scales, keep)
        elif name.endswith(SCALES):
            codes = tensors.get(name.removesuffix(SCALES))
            if codes is None or codes.dtype != float8_e4m3fn.numpy:
                raise LoadError(
                    f"{source}: there is {shown(name)}, and no float8_e4m3fn that it scales, under "
                    "its name without _scale_inv"
                )
        elif not name.endswith(ACTIVATIONS):
            whole[name] = array
    return whole


def _scales(
    name: str, codes: Array, scales: Array | None, by_blocks: bool, source: object
) -> Array:
    """The scales of a matrix, (blocks down, blocks across)."""
    grid = tuple(-(-n // SIDE) for n in codes.shape) if by_blocks else (1, 1)
    is_one = not by_blocks and scales is not None and scales.size == 1
    if scales is None or str(scales.dtype) not in NUMBERS or codes.ndim != 2:
        has = "none" if scales is None else f"{scales.dtype}{list(scales.shape)}"
        raise LoadError(
            f"{source}: {shown(name)} is float8_e4m3fn{list(codes.shape)} with scales {has}; it "
            f"must be a matrix, and {shown(name + SCALES)} floats"
        )
    if scales.shape != grid and not is_one:
        raise LoadError(
            f"{source}: {shown(name + SCALES)} has shape {list(scales.shape)}; for "
            f"{list(codes.shape)} it must be {list(grid)}, one for each block"
        )
    return scales.astype(np.float32).reshape(grid)


def _weight(name: str, codes: Array, scales: Array, keep: bool) -> Array | Packed:
    is_one = scales.size == 1
    if keep and (is_one or codes.shape[1] % SIDE == 0):
        kind = "float8_e4m3fn_tensor" if is_one else "float8_e4m3fn_block"
        return Packed(FLOAT8[kind], codes.shape, {"codes": codes, "scales": scales}, name)
    rows, columns = codes.shape
    if not is_one:
        scales = np.repeat(np.repeat(scales, SIDE, 0)[:rows], SIDE, 1)[:, :columns]
    return np.asarray(codes.astype(np.float32) * scales)
