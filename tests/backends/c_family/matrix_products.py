"""Products of two matrices, of any dtype and either way round."""

from __future__ import annotations

import luminal as lm
from luminal.hlir.graph import Graph


def product(dtype: str, m: int, k: int, n: int, turned: tuple[bool, bool]) -> Graph:
    cx = lm.Graph()
    a = cx.tensor((k, m) if turned[0] else (m, k), name="a", dtype=dtype)
    b = cx.tensor((n, k) if turned[1] else (k, n), name="b", dtype=dtype)
    a, b = (x.transpose(0, 1) if t else x for x, t in zip((a, b), turned, strict=True))
    if dtype == "int8" or dtype.startswith("float8"):
        a, b = (x.cast("i32" if dtype == "int8" else "f32") for x in (a, b))
    (a @ b).output("y")
    return cx.graph()
