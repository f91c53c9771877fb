"""Rows of products (matrices, dots, einsum) and of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
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
            note="int8, uint8, int16 and bool give int32, uint16 uint32, so that sums do not wrap; "
            "both others keep the dtype"),
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
    product("trace", lambda x: np.asarray(np.trace(x)), [(5, 7)], "numpy.trace"),
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

WIDE = ("float32", "float64")


def of_matrices(op: str, expected: Any, *others: Shape, **more: Any) -> Row:
    """Of well-conditioned matrices: the drawn ones plus a multiple of 1."""
    more.setdefault("others", {"empty": [(0, 5, 5), *((0, *n[1:]) for n in others)]})
    ours = function(f"linalg.{op}")
    return several(f"linalg.{op}", lambda x, *rest: expected(x + _heavy(x), *rest),
                   [(2, 5, 5), *others], dtypes=WIDE, largest=True, ulp=16, **more,
                   call=lambda x, *rest: ours(_plus(x, 16), *rest))  # fmt: skip


def _plus(x: Any, number: float) -> Any:
    return x + x.graph.eye(x.extents[-1]) * number


def _heavy(x: Any) -> Any:
    return 16 * np.eye(x.shape[-1])


def _symmetric(x: Any) -> Any:
    return x + x.swapaxes(-1, -2)


def _torch(op: str) -> Any:
    return by_torch(getattr(torch.linalg, op))


DECOMPOSITIONS = [
    of_matrices("det", np.linalg.det, against="numpy.linalg.det",
                note="from LAPACK's factors, as both, computed in float64"),
    of_matrices("slogdet", lambda x: tuple(np.linalg.slogdet(x)), against="numpy.linalg.slogdet"),
    of_matrices("inv", np.linalg.inv, against="numpy.linalg.inv",
                note="a singular matrix is an InputError of the run that says which one; "
                "`inv_ex` gives NaN and its info, PyTorch's infinities"),
    of_matrices("solve", np.linalg.solve, (2, 5, 3), against="numpy.linalg.solve",
                note="b is a batch of vectors where it has the shape of `a` without its last dim, "
                "as PyTorch; NumPy: only where b has one dim"),
    of_matrices("qr", _torch("qr"), against="torch.linalg.qr", note="signs as LAPACK's, in both"),
    of_matrices("lu_factor", _torch("lu_factor"), against="torch.linalg.lu_factor"),
    of_matrices("svdvals", lambda x: np.linalg.svdvals(x), against="numpy.linalg.svdvals",
                note="of NaN and infinities an InputError of the run; PyTorch raises for NaN only"),
    of_matrices("pinv", np.linalg.pinv, against="numpy.linalg.pinv"),
    several("linalg.matrix_exp", _torch("matrix_exp"), [(2, 5, 5)], dtypes=WIDE,
            call=function("linalg.matrix_exp"), against="torch.linalg.matrix_exp", largest=True),
    several("linalg.cholesky", lambda x: np.linalg.cholesky(_symmetric(x) + 2 * _heavy(x)),
            [(2, 5, 5)], dtypes=WIDE, against="numpy.linalg.cholesky", largest=True,
            call=lambda x: function("linalg.cholesky")(_plus(x + x.mT, 32)),
            note="not positive-definite is an InputError of the run; only one triangle is read"),
    several("linalg.eigvalsh", lambda x: np.linalg.eigvalsh(_symmetric(x)), [(2, 5, 5)],
            dtypes=WIDE, call=lambda x: function("linalg.eigvalsh")(x + x.mT), largest=True,
            against="numpy.linalg.eigvalsh", note="NaN of what is not finite"),
    several("linalg.solve_triangular",
            lambda x, y: scipy.linalg.solve_triangular(x + _heavy(x), y, lower=True),
            [(5, 5), (5, 3)], dtypes=WIDE, largest=True, against="scipy.linalg.solve_triangular",
            call=lambda x, y: function("linalg.solve_triangular", upper=False)(_plus(x, 16), y)),
]  # fmt: skip

ROWS: list[Row] = [*MATRICES, *EINSUM, *DECOMPOSITIONS]
