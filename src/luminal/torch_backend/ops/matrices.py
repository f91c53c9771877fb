"""Decompositions of matrices, solutions of linear systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import luminal as lm
from luminal.torch_backend.ops.refusals import refuse_where
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor

rows(
    {
        "cholesky": lm.cholesky,
        "cholesky_inverse": lm.cholesky_inverse,
        "cholesky_solve": lm.cholesky_solve,
        "linalg_cholesky_ex": lm.linalg.cholesky_ex,
        "linalg_eigvalsh": lm.linalg.eigvalsh,
        "linalg_inv_ex": lm.linalg.inv_ex,
        "linalg_lu": lm.linalg.lu,
        "linalg_matrix_exp": lm.linalg.matrix_exp,
        "linalg_pinv.atol_rtol_tensor": lm.linalg.pinv,
        "linalg_pinv.atol_rtol_float": lm.linalg.pinv,
        "linalg_qr": lm.linalg.qr,
        "linalg_solve_triangular": lm.linalg.solve_triangular,
        "triangular_solve": lm.triangular_solve,
    }
)


def _info(factors: Tensor) -> Tensor:
    """Which element of U's diagonal is the first that is 0, from 1 on, or 0 where none is."""
    count = min(factors.shape[-2:])
    if count == 0:
        return lm.zeros(factors.shape[:-2], lm.int32)
    zeros = factors.diagonal(0, -2, -1) == 0
    return lm.where(zeros.any(-1), zeros.cast(lm.int32).argmax(-1) + 1, 0).cast(lm.int32)


@row("linalg_lu_factor_ex")
def lu_factor(x: Tensor, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    factors, pivots = lm.linalg.lu_factor(x, pivot=pivot)
    return factors, pivots, _info(factors)


def _factors(x: Tensor, held: torch.Tensor) -> tuple[Tensor, Tensor]:
    """LU of x, of its transpose where x is row-major: so PyTorch's derivatives expect it."""
    factors, pivots = lm.linalg.lu_factor(x.mT if held.is_contiguous() else x)
    return factors, pivots


@row("_linalg_det", knows_layout=True)
def det(x: Tensor, *, held: torch.Tensor) -> tuple[Tensor, ...]:
    return lm.linalg.det(x), *_factors(x, held)


@row("_linalg_slogdet", knows_layout=True)
def slogdet(x: Tensor, *, held: torch.Tensor) -> tuple[Tensor, ...]:
    sign, log = lm.linalg.slogdet(x)
    return sign, log, *_factors(x, held)


@row("_linalg_solve_ex")
def solve(
    a: Tensor, b: Tensor, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, ...]:
    factors, pivots = lm.linalg.lu_factor(a)
    solution, info = lm.linalg.solve_ex(a, b, left=left, check_errors=check_errors)
    return solution, factors, pivots, info


@row("_linalg_svd")
def svd(
    x: Tensor, full_matrices: bool = False, compute_uv: bool = True, driver: Any = None
) -> tuple[Tensor, ...]:
    if compute_uv:
        return tuple(lm.linalg.svd(x, full_matrices))
    nothing = lm.zeros((0,), x.dtype)
    return nothing, lm.linalg.svdvals(x), nothing


@row("_linalg_eigh")
def eigh(x: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, ...]:
    if compute_v:
        return tuple(lm.linalg.eigh(x, UPLO))
    return lm.linalg.eigvalsh(x, UPLO), lm.zeros((0,), x.dtype)


def _checked_pivots(pivots: Tensor, count: Any) -> Tensor:
    """The pivots of a matrix of so many rows, checked."""
    refuse_where(
        lm.logical_not((pivots >= 1) & (pivots <= count)),
        RuntimeError(f"pivots of LU factors should be between 1 and {count}, the number of rows"),
    )
    return pivots


@row("linalg_lu_solve")
def lu_solve(
    factors: Tensor, pivots: Tensor, b: Tensor, left: bool = True, adjoint: bool = False
) -> Tensor:
    checked = _checked_pivots(pivots, factors.shape[-2])
    return lm.linalg.lu_solve(factors, checked, b, left=left, adjoint=adjoint)


@row("lu_unpack")
def lu_unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, ...]:
    if unpack_pivots:
        pivots = _checked_pivots(pivots, factors.shape[-2])
    unpacked = lm.lu_unpack(factors, pivots)
    nothing = lm.zeros((0,), factors.dtype)
    p, lower, upper = unpacked
    return (
        p if unpack_pivots else nothing,
        lower if unpack_data else nothing,
        upper if unpack_data else nothing,
    )


@row("_trilinear")
def trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    wide = []
    for x, dims in ((a, expand1), (b, expand2), (c, expand3)):
        for dim in sorted(dims):
            x = x.unsqueeze(dim)
        wide.append(x)
    first, second, third = wide
    return (first * second * third).sum(tuple(sumdim)).cast(a.dtype)
