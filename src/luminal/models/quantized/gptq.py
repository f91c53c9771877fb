"""GPTQ (Frantar et al., arXiv 2210.17323), as AutoGPTQ and GPTQModel save it.

Of a matrix (out, in) there are `qweight`, the codes of each column of outputs side by side in words
of 32 bits, (in * bits / 32, out); `scales` (groups, out); `qzeros` (groups, out * bits / 32), the
zero points less one where checkpoint_format is "gptq", as they are in "gptq_v2"; and `g_idx` (in),
the group of each input, which is in order but where desc_act sorted them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.quantized.integers import WORD, Integers, unpacked
from luminal.models.quantized.parts import (
    Loaded,
    Parts,
    check_left_out,
    group_size,
    in_groups,
    matrices,
    one_of,
)

BITS = 2, 3, 4, 8
LESS_ONE = {"gptq": 1, "gptq_v2": 0}
"""What is to be added to stored zero points, by the `checkpoint_format`."""
PARTS = "qweight", "qzeros", "scales", "g_idx"


def read(tensors: Mapping[str, Array], section: Fields, keep: bool, path: Path) -> Loaded:
    """The weights of a GPTQ checkpoint. Raises LoadError."""
    bits = one_of(section, "bits", BITS)
    size = group_size(section)
    more = LESS_ONE[one_of(section, "checkpoint_format", tuple(LESS_ONE), "gptq")]
    if section.values.get("dynamic"):
        raise LoadError(
            f"{section.path}: GPTQ: 'dynamic' gives modules bits of their own, which is not read; "
            "take a checkpoint whose modules all have the same, or the unquantized model"
        )
    if section.values.get("rotation"):
        raise LoadError(
            f"{section.path}: GPTQ: 'rotation' is {shown(section.values['rotation'])}: what "
            "products take is turned before them, which is not read; take a checkpoint without "
            "one, or the unquantized model"
        )
    method = f"GPTQ, {bits} bits, {in_groups(size)}"
    modules, others = matrices(method, tensors, PARTS, path)
    check_left_out(modules, section)
    loaded = Loaded(method, keep, others)
    for parts in modules:
        loaded.add_integers(f"{parts.module}.weight", _integers(parts, bits, size, more))
    return loaded


def _integers(parts: Parts, bits: int, size: int | None, more: int) -> Integers:
    words = parts.array("qweight", "int32", (-1, -1))
    height, rows = words.shape
    if rows * bits % WORD or height * WORD % bits or not words.size:
        raise parts.wrong("qweight", f"must hold whole words of codes of {bits} bits")
    columns = height * WORD // bits
    size = size or columns
    count = -(-columns // size)
    scales = parts.scales("scales", (count, rows)).T
    zeros = unpacked(parts.array("qzeros", "int32", (count, rows * bits // WORD)), bits).T
    # Zero points are numbers of `bits` bits before and after the one is added: what is stored as
    # the greatest is 0.
    zeros = zeros + np.uint8(more) & np.uint8((1 << bits) - 1)
    codes = np.ascontiguousarray(unpacked(words.T, bits))
    order = parts.order("g_idx", columns, size) if "g_idx" in parts.arrays else None
    return Integers(bits, codes, zeros, np.ascontiguousarray(scales), size, order)
