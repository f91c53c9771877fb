"""compressed-tensors, as llm-compressor saves it for vLLM.

`config_groups` in the configuration says of which modules (`targets`) weights have which type. Of a
matrix (out, in) there are, with `weight_scale`:

- "pack-quantized": `weight_packed`, codes of 4 or 8 bits of a row in words of 32, the lowest bits
  first, with `weight_shape`; the zero points of groups in `weight_zero_point` are words of codes of
  neighbouring outputs. Codes and zero points have half of their range added.
- "int-quantized": `weight`, int8, and zero points of int8.
- "float-quantized": `weight`, float8_e4m3fn; scales by tensor, row or block.
- "nvfp4-pack-quantized": `weight_packed`, bytes of two floats of 4 bits (e2m1), the first in the
  lower bits; scales of 16 in float8_e4m3fn, which `weight_global_scale` divides.
- "mxfp4-pack-quantized": the same with powers of two for each 32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown
from luminal.models.quantized import float8
from luminal.models.quantized.integers import WORD, Integers, unpacked
from luminal.models.quantized.parts import (
    FLOATS,
    Loaded,
    Parts,
    check_left_out,
    group_size,
    is_listed,
    one_of,
)
from luminal.nn.packed_floats import MXFP4, NVFP4

LAYOUTS = (
    "pack-quantized", "int-quantized", "naive-quantized", "float-quantized", "nvfp4-pack-quantized",
    "mxfp4-pack-quantized", "mixed-precision",
)  # fmt: skip
PARTS = (
    "weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx",
    "weight_global_scale",
)  # fmt: skip
OF_ACTIVATIONS = re.compile(r".*\.((input|output|[kqv])_(scale|zero_point|global_scale))")
OFFLINE = "weight_input", "weight_output"
"""The places of a `transform_config` whose rotations are in the weights when they are saved."""
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
TABLE = np.concatenate([E2M1, -E2M1])


def read(tensors: Mapping[str, Array], section: Fields, keep: bool, path: Path) -> Loaded:
    """The weights of a compressed-tensors checkpoint. Raises LoadError."""
    kind = one_of(section, "format", LAYOUTS)
    sparse = section.section("sparsity_config").values.get("format", "dense")
    if sparse != "dense":
        raise LoadError(
            f"{section.path}: sparsity_config of quantization_config has the format "
            f"{shown(sparse)}, which is not read; take a checkpoint that is not sparse"
        )
    _check_transforms(section)
    schemes = _schemes(section)
    method = f"compressed-tensors, {kind}"
    loaded = Loaded(method, keep, {})
    modules: dict[str, dict[str, Array]] = {}
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        if part in PARTS:
            modules.setdefault(module, {})[part] = array
        elif not OF_ACTIVATIONS.fullmatch(name):
            loaded.tensors[name] = array
    packed = []
    for module, arrays in modules.items():
        weight = loaded.tensors.pop(f"{module}.weight", None)
        if weight is not None:
            arrays["weight"] = weight
        packed.append(parts := Parts(method, module, arrays, path))
        _add(loaded, parts, _scheme(schemes, module, section))
    if not packed:
        raise LoadError(
            f"{path}: {method}: no tensor ends in .weight_scale, though config.json says that the "
            "weights are so packed; take quantization_config out of it if they are not"
        )
    check_left_out(packed, section)
    return loaded


def _check_transforms(section: Fields) -> None:
    """Raises LoadError for rotations of what a product takes or gives: they are computed in each
    run. Those of weights are in the weights.
    """
    groups = section.section("transform_config").section("config_groups")
    for name in groups.values:
        applied = groups.section(name).values.get("apply")
        for rotation in applied if isinstance(applied, list) else [applied]:
            place = rotation.get("location") if isinstance(rotation, Mapping) else rotation
            if place not in OFFLINE:
                raise LoadError(
                    f"{section.path}: transform_config of quantization_config turns the "
                    f"{shown(place)} of modules in each run, which is not followed; take a "
                    "checkpoint without it, or the unquantized model"
                )


# --- what the configuration says of a module ------------------------------------------------------


def _schemes(section: Fields) -> list[tuple[list[str], Fields]]:
    """The targets and the scheme of weights of each group."""
    groups = section.section("config_groups")
    schemes = []
    for name in groups.values:
        group = groups.section(name)
        if group.section("weights"):
            schemes.append((group.listed("targets", str), group.section("weights")))
    if not schemes:
        raise LoadError(
            f"{section.path}: quantization_config has no config_groups that say how weights are "
            "packed; download config.json again"
        )
    return schemes


def _scheme(schemes: list[tuple[list[str], Fields]], module: str, section: Fields) -> Fields:
    """What is said of a module: by its name, else of all layers that are one matrix."""
    for targets, scheme in schemes:
        if any(is_listed(module, target, section.path) for target in targets):
            return scheme
    for targets, scheme in schemes:
        if "Linear" in targets:
            return scheme
    raise LoadError(
        f"{section.path}: no config_groups of quantization_config has {shown(module)} among its "
        "targets, though the module is packed; download the folder again"
    )


def _side(scheme: Fields) -> float8.Side:
    """Rows and columns of a block, where scales are by blocks."""
    if scheme.text("strategy", "tensor") != "block":
        return None
    said = scheme.values.get("block_structure")
    if isinstance(said, str) and re.fullmatch(r"\d{1,7}x\d{1,7}", said):
        said = [int(n) for n in said.split("x")]
    fields = Fields({"weight_block_size": said}, scheme.path)
    return float8.side_of(fields)


# --- matrices -------------------------------------------------------------------------------------


def _add(loaded: Loaded, parts: Parts, scheme: Fields) -> None:
    bits = one_of(scheme, "num_bits", (4, 8))
    kind = one_of(scheme, "type", ("int", "float"))
    name = parts.name("weight")
    if kind == "int":
        loaded.add_integers(name, _integers(parts, scheme, bits))
    elif bits == 8:
        side = _side(scheme)
        loaded.add(name, *float8.weight(parts, "weight", side, loaded.keep))
    else:
        loaded.add(name, *_floats_of_4(parts, scheme, loaded.keep))


def _integers(parts: Parts, scheme: Fields, bits: int) -> Integers:
    half = 1 << (bits - 1)
    by_group = "group" in scheme.text("strategy", "channel")  # also "tensor_group"
    if "weight_packed" in parts.arrays:
        words = parts.array("weight_packed", "int32", (-1, -1))
        rows, columns = _shape(parts)
        if words.shape != (rows, -(-columns * bits // WORD)):
            raise parts.wrong("weight_packed", f"must hold {[rows, columns]} codes of {bits} bits")
        codes = np.ascontiguousarray(unpacked(words, bits)[:, :columns])
    else:
        signed = parts.array("weight", "int8", (-1, -1))
        rows, columns = signed.shape
        codes = signed.view(np.uint8) ^ np.uint8(128)
        bits, half = 8, 128
    if not codes.size:
        raise parts.wrong(next(iter(parts.arrays)), "must hold codes")
    size = (group_size(scheme) if by_group else None) or columns
    count = -(-columns // size)
    scales = _spread(parts, "weight_scale", parts.of("weight_scale", FLOATS), rows, count)
    parts.finite("weight_scale", scales)
    zeros = np.full((rows, count), half, np.uint8)
    if "weight_zero_point" in parts.arrays:
        zeros = _zeros(parts, bits, rows, count)
    there = "weight_g_idx" in parts.arrays
    order = parts.order("weight_g_idx", columns, size) if there else None
    return Integers(bits, codes, zeros, scales, size, order)


def _shape(parts: Parts) -> tuple[int, int]:
    """What `weight_shape` holds: rows and columns."""
    shape = parts.array("weight_shape", ("int64", "int32"), (2,))
    rows, columns = int(shape[0]), int(shape[1])
    if rows < 1 or columns < 1:
        raise parts.wrong("weight_shape", "must hold two numbers above 0")
    return rows, columns


def _spread(parts: Parts, part: str, array: Array, rows: int, count: int) -> Array:
    """An array (rows, groups), of one that has these, one for each row, or one for all."""
    if array.size == 1:
        return np.full((rows, count), array.reshape(-1)[0], array.dtype)
    if count == 1 and array.shape == (rows,):
        return array.reshape(rows, 1)
    return parts.array(part, str(array.dtype), (rows, count))


def _zeros(parts: Parts, bits: int, rows: int, count: int) -> Array:
    """Zero points (rows, groups), with half of the range of codes added as these have it."""
    stored = parts.of("weight_zero_point", ("int8", "int32"))
    if stored.dtype == np.int8:
        half = np.uint8(1 << (bits - 1))
        return _spread(parts, "weight_zero_point", stored, rows, count).view(np.uint8) + half
    height = -(-rows * bits // WORD)
    words = parts.array("weight_zero_point", "int32", (height, count))
    return unpacked(np.ascontiguousarray(words.T), bits)[:, :rows].T


def _floats_of_4(parts: Parts, scheme: Fields, keep: bool) -> tuple[Array | Packed, str | None]:
    """A matrix of e2m1: of blocks of 16 with a scale for the tensor, or of 32."""
    size = one_of(scheme, "group_size", (16, 32))
    pairs = parts.array("weight_packed", "uint8", (-1, -1))
    rows, columns = pairs.shape[0], 2 * pairs.shape[1]
    if columns % size or not pairs.size:
        raise parts.wrong("weight_packed", f"must hold whole blocks of {size} numbers")
    kind = "float8_e4m3fn" if size == 16 else "uint8"
    scales = parts.array("weight_scale", kind, (rows, columns // size))
    codes = np.stack((pairs & np.uint8(15), pairs >> np.uint8(4)), -1).reshape(rows, -1, size)
    if size == 32:
        if (scales == 255).any():
            raise parts.wrong("weight_scale", "holds NaN (255), and must hold powers of two")
        steps = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
        data: dict[str, Array] = {"codes": _halves(codes), "scales": scales}
        format = MXFP4
    else:
        parts.finite("weight_scale", scales)
        of_all = parts.scales("weight_global_scale", (1,), ("float32",))
        if of_all[0] == 0:
            raise parts.wrong("weight_global_scale", "divides all scales, and must not be 0")
        steps = scales.astype(np.float32) / of_all[0]
        format = NVFP4
        whole = columns // 32
        data = {
            "codes": _halves(codes)[:, : 2 * whole].reshape(rows, whole, 2, 8),
            "scales": scales[:, : 2 * whole].reshape(rows, whole, 2),
            "scale": (np.float32(1) / of_all).reshape(1, 1),
        }
    reason = "rows are no whole blocks of 32" if columns % 32 else None
    if keep and reason is None:
        return Packed(format, (rows, columns), data, parts.name("weight")), None
    return (TABLE[codes] * steps[..., None]).reshape(rows, columns), reason


def _halves(codes: Array) -> Array:
    """Two codes a byte: the first half of the last dim in the lower bits."""
    half = codes.shape[-1] // 2
    return np.asarray(codes[..., :half] | codes[..., half:] << np.uint8(4))
