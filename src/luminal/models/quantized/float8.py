"""Matrices of float8_e4m3fn with scales beside them: `quant_method` "fp8" and "fbgemm_fp8".

`W` times its scale is the weight. The scale is one, one for each row, or one for each block of so
many rows and columns, 128 x 128 as a rule (DeepSeek-AI, arXiv 2412.19437, section 3.3;
FineGrainedFP8Config and FbgemmFp8Config of transformers). It is called `W_scale_inv` or `W_scale`.
What activations are rounded by elsewhere is no part of the weights, and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from luminal.base.dtypes import float8_e4m3fn
from luminal.base.errors import LoadError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown
from luminal.models.quantized.parts import MOST_GROUP, Loaded, Parts, check_left_out
from luminal.nn.packed_floats import FLOAT8, SIDE

CODES = "float8_e4m3fn"
ENDS = "_scale_inv", "_scale"
OF_ACTIVATIONS = re.compile(r".*\.((activation|input|output|[kqv]|kv)_scale|input_scale_ub)")
NARROW = float8_e4m3fn.numpy
Side = tuple[int, int] | None


def read(tensors: Mapping[str, Array], section: Fields, keep: bool, path: Path) -> Loaded:
    """The weights of such a checkpoint. Raises LoadError."""
    side = side_of(section)
    kind = "scales by tensor or row" if side is None else f"scales by {side[0]} x {side[1]}"
    loaded = Loaded(f"fp8, {kind}", keep, {})
    modules = []
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        end = next((end for end in ENDS if name.endswith(end)), None)
        if array.dtype == NARROW:
            arrays = {f"{part}{end}": tensors.get(f"{name}{end}") for end in ENDS}
            there = {key: scale for key, scale in arrays.items() if scale is not None}
            parts = Parts(loaded.method, module, {part: array, **there}, path)
            modules.append(parts)
            loaded.add(name, *weight(parts, part, side, keep))
        elif end is not None and _stem(name, end) in tensors:
            codes = tensors[_stem(name, end)]
            if codes.dtype != NARROW:
                parts = Parts(loaded.method, module, {_stem(part, end): codes}, path)
                raise parts.wrong(_stem(part, end), f"must be {CODES}, as {shown(name)} scales it")
        elif end is not None and part.startswith(("weight", "gate_up_proj", "down_proj")):
            raise LoadError(
                f"{path}: {loaded.method}: there is {shown(name)}, and no {CODES} that it scales, "
                f"under its name without {end}; download the file again"
            )
        elif not OF_ACTIVATIONS.fullmatch(name):
            loaded.tensors[name] = array
    if not modules:
        raise LoadError(
            f"{path}: {loaded.method}: no tensor is {CODES}, though config.json says that the "
            "weights are; take quantization_config out of it if they are not"
        )
    check_left_out(modules, section)
    return loaded


def _stem(name: str, end: str) -> str:
    return name.removesuffix(end)


def side_of(section: Fields) -> Side:
    """Rows and columns of a block, where scales are by blocks."""
    said = section.values.get("weight_block_size")
    match said:
        case None:
            return None
        case [int(rows), int(columns)] if 0 < rows <= MOST_GROUP and 0 < columns <= MOST_GROUP:
            return rows, columns
    raise LoadError(
        f"{section.path}: weight_block_size is {shown(said)}; it must be two numbers from 1 to "
        f"{MOST_GROUP}, as [128, 128], or null"
    )


def weight(parts: Parts, part: str, side: Side, keep: bool) -> tuple[Array | Packed, str | None]:
    """A matrix of codes with its scales, and why it is decoded though it was to be kept."""
    codes = parts.array(part, CODES, (-1, -1))
    there = [f"{part}{end}" for end in ENDS if f"{part}{end}" in parts.arrays]
    if len(there) > 1:
        raise parts.wrong(there[0], f"must not be there beside {shown(parts.name(there[1]))}")
    name = there[0] if there else f"{part}{ENDS[side is None]}"
    scales = parts.scales(name, scale_shape(parts, name, codes.shape, side)).astype(np.float32)
    rows, columns = codes.shape
    if side is not None:
        ends = [np.arange(n) // block for n, block in zip(codes.shape, side, strict=True)]
        keeps, kind = side == (SIDE, SIDE) and columns % SIDE == 0, "_block"
        spread = scales if keeps and keep else scales[ends[0]][:, ends[1]]
    else:
        is_one = scales.size == 1
        keeps, kind = True, "_tensor" if is_one else ""
        spread = scales.reshape(1 if is_one else rows, 1)
    if keep and keeps:
        format = FLOAT8[f"{CODES}{kind}"]
        return Packed(
            format, codes.shape, {"codes": codes, "scales": spread}, parts.name(part)
        ), None
    values = np.asarray(codes.astype(np.float32) * spread)
    return values, None if keeps else f"rows are no whole blocks of {SIDE}"


def scale_shape(parts: Parts, name: str, shape: tuple[int, ...], side: Side) -> tuple[int, ...]:
    """The shape that a matrix's scales must have."""
    if side is not None:
        return tuple(-(-n // block) for n, block in zip(shape, side, strict=True))
    scales, rows = parts.arrays.get(name), shape[0]
    if scales is not None and (scales.size == 1 or scales.shape == (rows,)):
        return tuple(scales.shape)
    return rows, 1
