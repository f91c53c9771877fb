"""AWQ (Lin et al., arXiv 2306.00978), as AutoAWQ's "gemm" saves it.

Of a matrix (out, in) there are `qweight`, the codes of 4 bits of eight outputs in a word of 32,
(in, out / 8); `qzeros`, the zero points of the groups alike, (groups, out / 8); and `scales`
(groups, out). Of the eight outputs of a word the lowest bits are those of the first, then the
third, the fifth and the seventh come, then the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from luminal.loaders.fields import Fields
from luminal.loaders.mapped import Array
from luminal.models.quantized.integers import Integers, unpacked
from luminal.models.quantized.parts import (
    Loaded,
    Parts,
    check_left_out,
    group_size,
    in_groups,
    matrices,
    one_of,
)

BITS = 4
PARTS = "qweight", "qzeros", "scales"
PLACES = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""Where the codes of eight outputs are in a word."""


def read(tensors: Mapping[str, Array], section: Fields, keep: bool, path: Path) -> Loaded:
    """The weights of an AWQ checkpoint. Raises LoadError."""
    short = "w_bit" in section.values  # AutoAWQ's own file
    one_of(section, "w_bit" if short else "bits", (BITS,))
    one_of(section, "version", ("gemm",), "gemm")
    size = group_size(section, "q_group_size" if short else "group_size")
    method = f"AWQ, {BITS} bits, {in_groups(size)}"
    modules, others = matrices(method, tensors, PARTS, path)
    check_left_out(modules, section)
    loaded = Loaded(method, keep, others)
    for parts in modules:
        loaded.add_integers(f"{parts.module}.weight", _integers(parts, size))
    return loaded


def _integers(parts: Parts, size: int | None) -> Integers:
    words = parts.array("qweight", "int32", (-1, -1))
    columns, width = words.shape
    if not words.size:
        raise parts.wrong("qweight", "must hold codes")
    size = size or columns
    if columns % size:
        raise parts.wrong("qweight", f"must have a row for each input of whole groups of {size}")
    count = columns // size
    scales = parts.scales("scales", (count, 8 * width))
    zeros = _in_order(parts.array("qzeros", "int32", (count, width)))
    codes = np.ascontiguousarray(_in_order(words).T)
    return Integers(BITS, codes, zeros.T, np.ascontiguousarray(scales.T), size)


def _in_order(words: Array) -> Array:
    codes = unpacked(words, BITS).reshape(len(words), -1, 8)
    return codes[..., PLACES].reshape(len(words), -1)
