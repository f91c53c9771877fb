"""bitsandbytes: rows of 8-bit integers, and blocks of 4-bit codes of a table.

Of 8 bits (Dettmers et al., arXiv 2208.07339) there are `weight`, int8 (out, in), and `SCB`, the
greatest size of each row, which is 127 times its scale. Of 4 bits (arXiv 2305.14314) there are
`weight`, two codes a byte, the first in the upper bits; `weight.quant_map`, what the sixteen codes
stand for; `weight.absmax`, a scale for each `blocksize` values, one row after the other; and a JSON
text with the sizes. Scales may be packed themselves: then `absmax` are codes of
`weight.nested_quant_map`, with the scales `weight.nested_absmax` and one offset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import LoadError
from luminal.frontend.matrices.packed import Codes, Format, Packed
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import parse_object
from luminal.loaders.mapped import Array
from luminal.models.quantized.integers import VALUES_AT_ONCE, Integers
from luminal.models.quantized.parts import (
    MOST_GROUP,
    Loaded,
    Parts,
    check_left_out,
    one_of,
)

KINDS = "nf4", "fp4"
STATES = tuple(f"weight.quant_state.bitsandbytes__{kind}" for kind in KINDS)
OF_8, OF_4 = ("SCB", "weight_format"), ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
GREATEST = 127  # code of 8 bits
STORAGE = "uint8", "int8", "bfloat16", "float16", "float32"
"""What the bytes of codes of 4 bits may be stored as: `bnb_4bit_quant_storage`."""


def read(tensors: Mapping[str, Array], section: Fields, keep: bool, path: Path) -> Loaded:
    """The weights of a bitsandbytes checkpoint. Raises LoadError."""
    of_4 = section.flag("load_in_4bit", False)
    if of_4 == section.flag("load_in_8bit", not of_4):
        raise LoadError(
            f"{section.path}: load_in_4bit and load_in_8bit of quantization_config: one of both "
            "must be true"
        )
    method = f"bitsandbytes, {'4' if of_4 else '8'} bits"
    loaded = Loaded(method, keep, {})
    modules: dict[str, dict[str, Array]] = {}
    for name, array in tensors.items():
        module, part = _split(name, of_4)
        if part:
            modules.setdefault(module, {})[part] = array
        else:
            loaded.tensors[name] = array
    packed = []
    for module, arrays in modules.items():
        weight = loaded.tensors.pop(f"{module}.weight", None)
        parts = Parts(
            method, module, {**({} if weight is None else {"weight": weight}), **arrays}, path
        )
        packed.append(parts)
        if of_4:
            loaded.add(f"{module}.weight", *_codes_of_4(parts, keep))
        else:
            loaded.add_integers(f"{module}.weight", _integers(parts))
    if not packed:
        raise LoadError(
            f"{path}: {method}: no tensor ends in .{'weight.absmax' if of_4 else 'SCB'}, though "
            "config.json says that the weights are so packed; take quantization_config out of it "
            "if they are not"
        )
    check_left_out(packed, section)
    return loaded


def _split(name: str, of_4: bool) -> tuple[str, str]:
    """The module and the part of a tensor that belongs to a packed weight; "" for others."""
    if not of_4:
        module, _, part = name.rpartition(".")
        return (module, part) if part in OF_8 else (name, "")
    for part in (*(f"weight.{end}" for end in OF_4), *STATES):
        if name.endswith(f".{part}"):
            return name.removesuffix(f".{part}"), part
    return name, ""


def _integers(parts: Parts) -> Integers:
    codes = parts.array("weight", "int8", (-1, -1))
    rows, columns = codes.shape
    if not codes.size:
        raise parts.wrong("weight", "must hold codes")
    scales = parts.scales("SCB", (rows,), ("float32", "float16", "bfloat16"))
    layout = parts.arrays.get("weight_format")
    # 0 is "row": the others are orders in which old GPUs multiplied, and are not saved any more.
    if layout is not None and (layout.size != 1 or layout.reshape(-1)[0] != 0):
        raise parts.wrong("weight_format", 'must be 0 ("row"): no other order of codes is read')
    steps = scales.astype(np.float32).reshape(rows, 1) / np.float32(GREATEST)
    zeros = np.full((rows, 1), 128, np.uint8)
    return Integers(8, codes.view(np.uint8) ^ np.uint8(128), zeros, steps, columns)


# --- 4 bits


def _codes_of_4(parts: Parts, keep: bool) -> tuple[Array | Packed, str | None]:
    """A matrix, and why it is decoded though it was to be kept."""
    state = _state(parts)
    shape = tuple(state.listed("shape", int))
    size = state.integer("blocksize", most=MOST_GROUP)
    count = math.prod(shape)
    if len(shape) != 2 or min(shape) < 1:
        raise parts.wrong(_state_name(parts), "must hold the shape of a matrix")
    pairs = np.ascontiguousarray(parts.of("weight", STORAGE))
    if pairs.nbytes != -(-count // 2) or pairs.ndim != 2:
        raise parts.wrong(
            "weight", f"must hold {count} codes of 4 bits, of the shape {list(shape)}"
        )
    table = parts.scales("weight.quant_map", (16,), ("float32",))
    scales = _scales(parts, state, -(-count // size))
    flat = pairs.reshape(-1).view(np.uint8)
    reason = None
    if shape[1] % size or size % 2:
        reason = "rows are no whole blocks"
    if keep and reason is None:
        codes = _split_codes(flat).reshape(shape[0], -1, 2, size // 2)
        data = {
            "codes": codes[:, :, 0] | codes[:, :, 1] << np.uint8(4),
            "scales": scales.reshape(shape[0], -1),
            "table": table,
        }
        return Packed(TABLE4, shape, data, parts.name("weight")), None
    values = np.empty(count, np.float32)
    step = max(VALUES_AT_ONCE // (2 * size), 1) * 2 * size
    for first in range(0, count, step):
        codes = _split_codes(flat[first // 2 : (first + step) // 2])[: count - first]
        places = np.arange(first, first + len(codes)) // size
        values[first : first + len(codes)] = table[codes] * scales[places]
    return values.reshape(shape), reason


def _split_codes(pairs: Array) -> Array:
    """Two codes of each byte, the upper one first."""
    return np.stack((pairs >> np.uint8(4), pairs & np.uint8(15)), -1).reshape(-1)


def _state_name(parts: Parts) -> str:
    return next((name for name in STATES if name in parts.arrays), STATES[0])


def _state(parts: Parts) -> Fields:
    """The JSON text that goes with a matrix."""
    name = _state_name(parts)
    text = parts.array(name, "uint8", (-1,)).tobytes()
    try:
        values = parse_object(text, "it")
    except LoadError as error:
        raise parts.wrong(name, f"must be a JSON text, and {error}") from None
    state = Fields(values, parts.path, f"tensor {parts.name(name)!r}")
    one_of(state, "quant_type", (name.rpartition("__")[2],))
    return state


def _scales(parts: Parts, state: Fields, count: int) -> Array:
    """The scale of each block, float32."""
    if "weight.nested_absmax" not in parts.arrays:
        return parts.scales("weight.absmax", (count,), ("float32",))
    codes = parts.array("weight.absmax", "uint8", (count,))
    size = state.integer("nested_blocksize", most=MOST_GROUP)
    table = parts.scales("weight.nested_quant_map", (256,), ("float32",))
    nested = parts.scales("weight.nested_absmax", (-(-count // size),), ("float32",))
    offset = state.values.get("nested_offset")
    if not isinstance(offset, int | float) or not math.isfinite(offset):
        raise parts.wrong(_state_name(parts), "must hold nested_offset, a finite number")
    scales = table[codes] * nested[np.arange(count) // size] + np.float32(offset)
    return parts.finite("weight.absmax", scales)


def _recorded(parts: Mapping[str, Tensor]) -> Codes:
    pairs = parts["codes"].unsqueeze(2)
    shifts = (pairs.graph.arange(2) * 4).cast(dtypes.uint8).reshape(2, 1)
    values = parts["table"].take(((pairs >> shifts) & 15).cast(dtypes.int64))
    return Codes(values, parts["scales"].unsqueeze(2).unsqueeze(3))


def _unpack(data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    pairs, scales = data["codes"], data["scales"][..., None]
    codes = np.concatenate([pairs & np.uint8(15), pairs >> np.uint8(4)], -1)
    return np.asarray(data["table"][codes] * scales).reshape(shape)


TABLE4 = Format("table4", _recorded, _unpack)
"""Data are `codes` (rows, blocks, bytes), the first half of a block in the lower bits, `scales`
(rows, blocks), and `table` (16,)."""
