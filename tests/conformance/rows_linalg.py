"""Rows of products: matrices, dots, einsum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.conformance.rows import Row, Shape, by_torch, function, several

FLOATS = ("float32", "float64", "bfloat16", "float16")
WITH_INT = (*FLOATS, "int32")


def product(
    op: str, expected: Any, shapes: list[Shape], against: str = "", call: Any = None, **more: Any
) -> Row:
    more.setdefault("dtypes", FLOATS)
    return several(op, expected, shapes, call=call, against=against, largest=True, **more)


def einsum(equation: str, *shapes: Shape) -> Row:
    return product(f"einsum {equation}", lambda *x: np.asarray(np.einsum(equation, *x)),
                   list(shapes), "numpy.einsum", lambda *x: _einsum(equation, *x))  # fmt: skip


def _einsum(equation: str, *x: Any) -> Any:
    return function("einsum")(equation, *x)


MATRICES = [
    product("matmul", np.matmul, [(3, 5), (5, 7)], dtypes=WITH_INT,
            others={"empty": [(3, 0), (0, 7)], "broadcast": [(2, 1, 3, 5), (4, 5, 7)]},
            note="int8 gives int32; both others wrap in int8"),
    product("matmul of vectors", np.matmul, [(5,), (5,)], "numpy.matmul", lambda x, y: x @ y,
            dtypes=WITH_INT, others={"empty": [(0,), (0,)], "broadcast": [(5,), (2, 5, 7)]}),
    product("dot", np.dot, [(5,), (5,)], "numpy.dot"),
    product("vdot", np.vdot, [(5,), (5,)], "numpy.vdot"),
    product("inner", np.inner, [(3, 5), (7, 5)], "numpy.inner"),
    product("outer", np.outer, [(3,), (5,)], "numpy.outer", others={"empty": [(0,), (5,)]}),
    product("mv", np.matmul, [(3, 5), (5,)], "torch.mv"),
    product("mm", np.matmul, [(3, 5), (5, 7)], "torch.mm"),
    product("bmm", np.matmul, [(2, 3, 5), (2, 5, 7)], "torch.bmm"),
    product("addmm", lambda c, a, b: c + a @ b, [(3, 7), (3, 5), (5, 7)], "torch.addmm"),
    product("baddbmm", lambda c, a, b: c + a @ b, [(2, 3, 7), (2, 3, 5), (2, 5, 7)],
            "torch.baddbmm"),
    product("tensordot", lambda a, b: np.tensordot(a, b, 2), [(3, 5, 7), (5, 7, 2)],
            "numpy.tensordot", lambda a, b: a.tensordot(b, 2)),
    product("kron", np.kron, [(2, 3), (5, 7)], "numpy.kron"),
    product("trace", lambda x: np.asarray(np.trace(x)), [(5, 7)], "numpy.trace", dynamic=False),
    product("cross", lambda a, b: np.cross(a, b), [(5, 3), (5, 3)], "numpy.cross",
            dynamic=False),
    product("cdist", by_torch(lambda a, b: torch.cdist(
        a, b, compute_mode="donot_use_mm_for_euclid_dist")), [(3, 5), (7, 5)], "torch.cdist",
            dtypes=("float32", "float64")),
]  # fmt: skip

EINSUM = [
    einsum("ij,jk->ik", (3, 5), (5, 7)),
    einsum("bij,bjk->bik", (2, 3, 5), (2, 5, 7)),
    einsum("...i,...i->...", (2, 3, 5), (3, 5)),
    einsum("ij->ji", (3, 5)),
    einsum("ii->i", (5, 5)),
    einsum("ij,jk,kl->il", (3, 5), (5, 7), (7, 2)),
]

ROWS: list[Row] = [*MATRICES, *EINSUM]
