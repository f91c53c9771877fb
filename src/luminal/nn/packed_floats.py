"""Weights packed as floats of 8 and of 4 bits, with scales.

float8_e4m3fn and float8_e5m2 have a scale for each row, for the tensor, or for each block of 128 x
128 (DeepSeek-AI, arXiv 2412.19437, section 3.3); the greatest value becomes the greatest of the
dtype. MXFP8, of float8_e4m3fn, and MXFP4 have a power of two for each 32 values (Open Compute
Project, Microscaling Formats 1.0); NVFP4 a float8_e4m3fn for each 16, and a float32 for the tensor
(NVIDIA, "Introducing NVFP4", 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import ml_dtypes
import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.frontend.handle import Array
from luminal.frontend.matrices.block_scaled import Blocks
from luminal.frontend.matrices.float4 import doubled, halved_power
from luminal.frontend.matrices.packed import Codes, Format, Packed
from luminal.frontend.tensor import Tensor
from luminal.loaders.ggml.fitting import inverse

Pack = Callable[[str, Array], Packed]
SIDE = 128  # of a block that shares a scale
GREATEST = 6.0  # of e2m1
GREATEST_POWER = 2  # the exponent of that
GREATEST_POWER_8 = 8  # that of 448, the greatest of float8_e4m3fn

# --- 8 bits


def float8(format: Format, dtype: DType, side: tuple[int, int], name: str, values: Array) -> Packed:
    """Values (rows, columns) in a dtype of 8 bits with a scale for each block of so many rows and
    columns, of which 0 means all.
    """
    rows, columns = values.shape
    height, width = max(side[0] or rows, 1), side[1] or columns
    down = -(-rows // height)
    whole = np.zeros((down * height, columns), np.float32)
    whole[:rows] = values
    blocks = whole.reshape(down, height, columns // width, width)
    scales = np.abs(blocks).max((1, 3), keepdims=True) / np.float32(dtype.largest)
    # A subnormal scale has lost digits: such blocks share the least normal one.
    scales = np.where(scales > 0, np.maximum(scales, np.finfo(np.float32).tiny), 0)
    # Rounding may take the greatest value beyond the dtype's, where e5m2 has infinity.
    turned = np.clip(blocks * inverse(scales), -dtype.largest, dtype.largest)
    codes = dtype.rounded(turned).reshape(down * height, columns)[:rows]
    return Packed(
        format, values.shape, {"codes": codes, "scales": scales[:, 0, :, 0].astype("f4")}, name
    )


def _unpack_float8(
    side: tuple[int, int], data: Mapping[str, Array], shape: tuple[int, ...]
) -> Array:
    scales = data["scales"]
    (rows, columns), across = shape, scales.shape[1]
    height = side[0] or rows
    whole = np.repeat(np.repeat(scales, height, 0)[:rows], columns // across, 1)
    return np.asarray(data["codes"].astype(np.float32) * whole)


def _float8_codes(side: tuple[int, int], parts: Mapping[str, Tensor]) -> Codes:
    codes, scales = parts["codes"], parts["scales"]
    rows, columns = (n.value for n in codes.extents)
    down, across = (n.value for n in scales.extents)
    height = side[0] or rows
    spread = scales.unsqueeze(1).expand(down, height, across).reshape(down * height, across)[:rows]
    return Codes(codes.reshape(rows, across, columns // across), spread.unsqueeze(2))


# --- 4 bits


def _pairs(numbers: Array, half: int) -> Array:
    """Codes (..., 2 * half) of e2m1, two in a byte: the first half in the lower bits."""
    codes = np.clip(numbers, -GREATEST, GREATEST).astype(ml_dtypes.float4_e2m1fn)
    bits = codes.view(np.uint8) & np.uint8(15)
    return np.asarray(bits[..., :half] | bits[..., half:] << np.uint8(4))


def _numbers(pairs: Array) -> Array:
    """Twice the values of codes, as float32."""
    bits = np.concatenate([pairs & np.uint8(15), pairs >> np.uint8(4)], -1)
    return np.asarray(bits.view(ml_dtypes.float4_e2m1fn).astype(np.float32) * np.float32(2))


def mxfp4(name: str, values: Array) -> Packed:
    """Blocks of 32: the scale is the power of two of the greatest value, 2**2 less, as the
    specification has it (6.3); what it leaves beyond 6 becomes 6.
    """
    turned, scales = _by_powers(values, GREATEST_POWER)
    return Packed(MXFP4, values.shape, {"codes": _pairs(turned, 16), "scales": scales}, name)


def mxfp8(name: str, values: Array) -> Packed:
    """Blocks of 32, as those of `mxfp4`: what the scale leaves beyond 448 becomes that."""
    turned, scales = _by_powers(values, GREATEST_POWER_8)
    codes = dtypes.float8_e4m3fn.rounded(turned).reshape(values.shape)
    return Packed(_MXFP8, values.shape, {"codes": codes, "scales": scales}, name)


def _by_powers(values: Array, greatest_power: int) -> tuple[Array, Array]:
    """Blocks of 32 as float64 over their scales, and the scales' codes of e8m0: the power of two of
    the greatest value, 2**greatest_power less.
    """
    blocks = values.reshape(len(values), -1, 32)
    greatest = np.abs(blocks).max(-1, keepdims=True)
    exponents = np.clip(np.frexp(greatest)[1] - 1 - greatest_power, -127, 127)
    exponents = np.where(greatest == 0, -127, exponents)
    scales = (exponents[..., 0] + 127).astype(np.uint8)
    return np.ldexp(blocks.astype(np.float64), -exponents), scales


def _unpack_mxfp4(data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    half = np.ldexp(np.float32(1), data["scales"].astype(np.int32) - 128).astype(np.float32)
    return np.asarray(half[..., None] * _numbers(data["codes"])).reshape(shape)


def _mxfp4_codes(parts: Mapping[str, Tensor]) -> Codes:
    scale = halved_power(parts["scales"])
    return Codes(doubled(_bits(parts["codes"])), scale.unsqueeze(2).unsqueeze(3))


def _unpack_mxfp8(data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    scales = data["scales"].view(dtypes.float8_e8m0fnu.numpy).astype(np.float32)
    codes = data["codes"].astype(np.float32).reshape(*scales.shape, 32)
    return np.asarray(codes * scales[..., None]).reshape(shape)


def _mxfp8_codes(parts: Mapping[str, Tensor]) -> Codes:
    blocks = _mxfp8_blocks(parts)
    return Codes(blocks.codes, blocks.scales.cast(dtypes.float32).unsqueeze(2))


def _mxfp8_blocks(parts: Mapping[str, Tensor]) -> Blocks:
    scales = parts["scales"].bitcast(dtypes.float8_e8m0fnu)
    return Blocks(parts["codes"].reshape(*scales.extents, 32), scales)


def _mxfp4_blocks(parts: Mapping[str, Tensor]) -> Blocks:
    codes = _bits(parts["codes"]).bitcast(dtypes.float4_e2m1fn)
    return Blocks(codes, parts["scales"].bitcast(dtypes.float8_e8m0fnu))


def nvfp4(name: str, values: Array) -> Packed:
    """Blocks of 16: the greatest value is 6 times a scale in float8_e4m3fn, of which the greatest
    in the tensor is 448 times the tensor's.
    """
    blocks = values.reshape(len(values), -1, 2, 16)
    greatest = np.abs(blocks).max(-1)
    of_all = (greatest.max(initial=0) / np.float32(GREATEST * 448)).astype(np.float32)
    scales = dtypes.float8_e4m3fn.rounded(greatest / np.float32(GREATEST) * inverse(of_all))
    steps = scales.astype(np.float32) * of_all
    data = {
        "codes": _pairs(blocks * inverse(steps)[..., None], 8),
        "scales": scales,
        "scale": np.full((1, 1), of_all, np.float32),
    }
    return Packed(NVFP4, values.shape, data, name)


def _unpack_nvfp4(data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    steps = data["scales"].astype(np.float32) * (data["scale"] * np.float32(0.5))[0, 0]
    return np.asarray(steps[..., None] * _numbers(data["codes"])).reshape(shape)


def _nvfp4_codes(parts: Mapping[str, Tensor]) -> Codes:
    steps = parts["scales"].cast(dtypes.float32) * (parts["scale"] * 0.5)[0, 0]
    return Codes(doubled(_bits(parts["codes"])), steps.unsqueeze(3).unsqueeze(4))


def _nvfp4_blocks(parts: Mapping[str, Tensor]) -> Blocks:
    codes = _bits(parts["codes"]).bitcast(dtypes.float4_e2m1fn)
    return Blocks(codes, parts["scales"], parts["scale"][0, 0])


def _bits(pairs: Tensor) -> Tensor:
    """Codes of four bits (..., 2, half), of bytes (..., half)."""
    shifts = (pairs.graph.arange(2) * 4).cast(dtypes.uint8).reshape(2, 1)
    return (pairs.unsqueeze(-2) >> shifts) & 15


SIDES = {"": (1, 0), "_tensor": (0, 0), "_block": (SIDE, SIDE)}
"""Rows and columns that share a scale, by the end of a kind's name; 0 means all."""


def _float8_kinds(dtype: DType) -> Iterator[tuple[str, tuple[int, Pack]]]:
    for end, side in SIDES.items():
        kind = f"{dtype.name}{end}"
        yield kind, (max(side[1], 1), partial(float8, FLOAT8[kind], dtype, side))


FLOAT8: Mapping[str, Format] = {
    f"{dtype.name}{end}": Format(
        f"{dtype.name}{end}", partial(_float8_codes, side), partial(_unpack_float8, side)
    )
    for dtype in (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
    for end, side in SIDES.items()
}
"""Of codes and scales (blocks down, blocks across), by kind."""
_MXFP8 = Format("mxfp8", _mxfp8_codes, _unpack_mxfp8, blocks=_mxfp8_blocks)
MXFP4 = Format("mxfp4", _mxfp4_codes, _unpack_mxfp4, blocks=_mxfp4_blocks)
NVFP4 = Format("nvfp4", _nvfp4_codes, _unpack_nvfp4, blocks=_nvfp4_blocks)
PACKED: Mapping[str, tuple[int, Pack]] = {
    **dict(_float8_kinds(dtypes.float8_e4m3fn)),
    **dict(_float8_kinds(dtypes.float8_e5m2)),
    "mxfp8": (32, mxfp8),
    "mxfp4": (32, mxfp4),
    "nvfp4": (32, nvfp4),
}
"""By kind: values that a row has a whole number of, and what packs a matrix of a name."""
