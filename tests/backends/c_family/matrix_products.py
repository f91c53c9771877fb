"""Products of two matrices, of any dtype and either way round."""

from __future__ import annotations

import numpy as np

import luminal as lm
from luminal.base.dtypes import dtype_of
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable


def product(dtype: str, m: int, k: int, n: int, turned: tuple[bool, bool]) -> Graph:
    cx = lm.Graph()
    a = cx.tensor((k, m) if turned[0] else (m, k), name="a", dtype=dtype)
    b = cx.tensor((n, k) if turned[1] else (k, n), name="b", dtype=dtype)
    a, b = (x.transpose(0, 1) if t else x for x, t in zip((a, b), turned, strict=True))
    if dtype == "int8" or dtype.startswith("float8"):
        a, b = (x.cast("i32" if dtype == "int8" else "f32") for x in (a, b))
    (a @ b).output("y")
    return cx.graph()


def check_product(
    exe: Executable, dtype: str, m: int, k: int, n: int, turned: tuple[bool, bool]
) -> None:
    """A compiled product of small numbers, whose sums are exact whatever their order."""
    rng, storage = np.random.default_rng(0), dtype_of(dtype).numpy
    a, b = (
        rng.integers(-3, 4, shape[::-1] if t else shape).astype(storage)
        for shape, t in zip(((m, k), (k, n)), turned, strict=True)
    )
    wide = [x.astype(np.float64) for x in (a.T if turned[0] else a, b.T if turned[1] else b)]
    found = exe({"a": a, "b": b})["y"]
    np.testing.assert_array_equal(found, (wide[0] @ wide[1]).astype(found.dtype))
