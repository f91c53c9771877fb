"""Products by weights of every packed kind, on devices."""

from __future__ import annotations

import numpy as np

import luminal as lm
from luminal.base.dtypes import DType
from luminal.loaders.ggml.packed import RECORDED, packed
from luminal.memory.parameter import Parameter
from luminal.nn.packed_floats import PACKED
from tests.fuzz.graphs import Case
from tests.numerics.packed_blocks import blocks_of

KINDS = (*RECORDED, "int8", "int4", *PACKED)
IN_TABLES = tuple(kind for kind in RECORDED if kind.startswith("IQ"))
"""What is looked up in a table, byte by byte."""


def weight(kind: str, rows: int, columns: int) -> Parameter:
    """A random matrix that is packed so."""
    if kind in RECORDED:
        return packed(blocks_of(kind, rows, columns))
    lm.manual_seed(0)
    layer = lm.nn.Linear(columns, rows, bias=False)
    lm.quantize(layer, kind)
    return layer.weight


def product(kind: str, rows: int, shape: tuple[int, int], dtype: DType = lm.float32) -> Case:
    """Rows of random values by the transposed weight, whose values are rounded to `dtype`."""
    cx = lm.Graph()
    x = cx.tensor((rows, shape[1]), dtype, "x")
    (x @ cx.weight_of(weight(kind, *shape)).cast(dtype).mT).output("y")
    values = np.random.default_rng(1).standard_normal((rows, shape[1]))
    return Case(cx.graph(), {"x": values.astype(dtype.numpy)}, {}, {})
