"""Functions of matrices made of decompositions: pseudoinverse, rank, condition, and PyTorch's
older names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.handle import Extent, axis_of, describe, in_float, is_tensor
from luminal.frontend.matrices.decompositions import (
    back,
    eigh,
    eigvalsh,
    inv,
    lu_factor,
    matrix,
    paired,
    row_order,
    slogdet,
    solve,
    solve_triangular,
    square,
    svd,
    svdvals,
)
from luminal.frontend.matrices.matmul import keeps, matmul
from luminal.frontend.matrices.norms import matrix_norm
from luminal.frontend.movement.embedding import one_hot
from luminal.frontend.movement.indexing import gather
from luminal.frontend.movement.padding import tril, triu
from luminal.frontend.movement.views import expand, narrow, permute, reshape
from luminal.frontend.pointwise.binary import broadcast, promotion, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.reductions import amax, amin, sum
from luminal.frontend.reduce.sorting import argsort
from luminal.shape.expression import const, maximum, minimum, product_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Limit = float | None


# --- rank and pseudoinverse -----------------------------------------------------------------------


@in_float
def logdet(x: Tensor) -> Tensor:
    """The logarithm of the determinant: -inf for 0, NaN below."""
    sign, logarithm = slogdet(x)
    return where(sign < 0, math.nan, logarithm)


@keeps
def pinv(x: Tensor, *, atol: Limit = None, rtol: Limit = None, hermitian: bool = False) -> Tensor:
    """The pseudoinverse (..., n, m) of (..., m, n), by the singular values.

    Those up to max(atol, rtol * the greatest) count as 0; rtol is max(m, n) epsilons, or 0 where
    atol is given. `hermitian`: x is symmetric, by eigenvalues. Moore 1920, Penrose 1955.
    """
    a = matrix("linalg.pinv", x)
    return back(_pseudoinverse(a, atol, rtol, hermitian), x.dtype)


def _pinv_derivative(
    g: Tensor, y: Tensor, a: Tensor, atol: Limit, rtol: Limit, hermitian: bool
) -> tuple[Tensor | None, ...]:
    """Golub and Pereyra, "The differentiation of pseudo-inverses ..." (1973); limits have none."""
    # Gradients of the SVD itself are infinite where singular values are equal; this formula is not.
    left, right = matmul(y.mT, y), matmul(y, y.mT)
    inner = matmul(g.mT, right) + matmul(left, g.mT)
    outer = matmul(a, matmul(y, matmul(g.mT, right))) + matmul(matmul(left, g.mT), matmul(y, a))
    gradient = inner - outer - matmul(y.mT, matmul(g, y.mT))
    return (gradient, *(None for limit in (atol, rtol) if is_tensor(limit)))


@differentiated(_pinv_derivative)
def _pseudoinverse(a: Tensor, atol: Limit, rtol: Limit, hermitian: bool) -> Tensor:
    if hermitian:
        values, vectors = eigh(a)
        size, left, right = values.abs(), vectors, vectors.mT
    else:
        left, size, right = svd(a, full_matrices=False)
        values = size
    # 1 / 0 stays out of both branches of the Select, or gradients would be NaN.
    kept = size > _limit(a, size, atol, rtol)
    scale = where(kept, 1 / where(kept, values, 1), 0)
    return matmul(right.mT * scale.unsqueeze(-2), left.mT)


def pinverse(x: Tensor, rcond: float = 1e-15) -> Tensor:
    """`pinv(x, rtol=rcond)`, as torch.pinverse."""
    return pinv(x, rtol=rcond)


def matrix_rank(
    x: Tensor,
    tol: Limit = None,
    *,
    atol: Limit = None,
    rtol: Limit = None,
    hermitian: bool = False,
) -> Tensor:
    """How many singular values (absolute eigenvalues) lie above the limit of `pinv` (int64)."""
    a = matrix("linalg.matrix_rank", x)
    size = eigvalsh(a).abs() if hermitian else svdvals(a)
    if tol is not None:
        atol, rtol = tol, 0.0
    return sum((size > _limit(x, size, atol, rtol)).cast(dtypes.int64), -1)


def _limit(x: Tensor, size: Tensor, atol: Limit, rtol: Limit) -> Tensor:
    """max(atol, rtol * the greatest) of each matrix, with a last dim of 1."""
    if size.extents[-1] == const(0):
        return x.graph.full((*size.extents[:-1], 1), 0, size.dtype)
    greatest = amax(size, -1, keepdim=True)
    if rtol is None and atol is not None and not _is_zero(atol):
        rtol = 0.0
    if rtol is None:
        longer = maximum(*x.extents[-2:])
        factor = x.graph.constant(longer, size.dtype) * size.dtype.epsilon
    else:
        factor = _column(rtol)
    relative = greatest * factor
    return relative if atol is None else relative.maximum(_column(atol))


def _is_zero(limit: Any) -> bool:
    return not is_tensor(limit) and limit == 0


def _column(limit: Any) -> Any:
    return limit.unsqueeze(-1) if is_tensor(limit) else limit


def cond(x: Tensor, p: float | str | None = None) -> Tensor:
    """The condition number: norm(x, p) * norm(inv(x), p); for None, 2 and -2 of singular values."""
    if p in (None, 2, -2):
        a = matrix("linalg.cond", x)
        size = svdvals(a)
        if size.extents[-1] == const(0):
            return x.graph.full(size.extents[:-1], 0, x.dtype)
        most, least = amax(size, -1), amin(size, -1)
        return back(least / most if p == -2 else most / least, x.dtype)
    a = square("linalg.cond", x)
    assert p is not None
    return back(matrix_norm(a, p) * matrix_norm(inv(a), p), x.dtype)


# --- systems of equations -------------------------------------------------------------------------


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """x with A @ x = b, where `factor` is A's: L @ L.mT = A, or with `upper` U.mT @ U = A."""
    first = factor.mT if upper else factor
    # L L' x = b: first L y = b, then L' x = y.
    half = solve_triangular(first, b, upper=False)
    return solve_triangular(first.mT, half, upper=True)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, where `factor` is A's, as for `cholesky_solve`."""
    a = square("cholesky_inverse", factor)
    eye = a.graph.eye(a.extents[-1], dtype=a.dtype)
    return back(cholesky_solve(eye, a, upper), factor.dtype)


class Triangular(NamedTuple):
    """The results of `triangular_solve`: the solution, and the matrix that it was given."""

    solution: Tensor
    cloned_coefficient: Tensor


def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Triangular:
    """(x, a) with a @ x = b (a.mT @ x = b with `transpose`), as torch.triangular_solve."""
    first, is_upper = (a.mT, not upper) if transpose else (a, upper)
    solution = solve_triangular(first, b, upper=is_upper, unitriangular=unitriangular)
    return Triangular(solution, a)


class LeastSquares(NamedTuple):
    """The results of `lstsq`: the solution, and what is known of its fit."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@keeps
def lstsq(a: Tensor, b: Tensor, rcond: Limit = None, *, driver: str | None = None) -> LeastSquares:
    """x (n, k) of the least norm among those with the least norm of a @ x - b, a (m, n), b (m, k).

    By the pseudoinverse; singular values up to rcond (max(m, n) epsilons) times the greatest count
    as 0. `driver` says what else is given, as in PyTorch: "gelsy" (the default) the `rank` (...);
    "gels" `residuals` (..., k), sums of squares, where m > n; "gelsd" and "gelss" both and the
    `singular_values`. What is not given is empty, (0,). b may be vectors, as for `solve`.
    """
    what = "linalg.lstsq"
    if driver not in (None, "gelsy", "gels", "gelsd", "gelss"):
        raise ShapeError(f'{what}: driver {driver!r}; give "gelsy", "gels", "gelsd" or "gelss"')
    if b.ndim == 1 or (a.ndim - 1 == b.ndim and b.extents == a.extents[:-1]):
        fit = lstsq(a, b.unsqueeze(-1), rcond, driver=driver)
        return fit._replace(solution=fit.solution.squeeze(-1))
    first, second = matrix(what, a), matrix(what, b)
    m, n = a.extents[-2:]
    if b.extents[-2] != m:
        raise ShapeError(f"{what}: {describe(a)} and {describe(b)} differ in rows")
    solution = matmul(pinv(first, rtol=rcond), second)
    residuals, size = (a.graph.full((0,), 0, a.dtype) for _ in range(2))
    rank = a.graph.full((0,), 0, dtypes.int64)
    if driver in ("gels", "gelsd", "gelss") and m.is_const and n.is_const and m.value > n.value:
        residuals = back(sum((matmul(first, solution) - second).square(), -2), a.dtype)
    if driver != "gels":
        rank = matrix_rank(first, rtol=rcond)
    if driver in ("gelsd", "gelss"):
        size = back(svdvals(first), a.dtype)
    return LeastSquares(back(solution, a.dtype), residuals, rank, size)


def lu_solve(
    factors: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """x with A @ x = b (x @ A = b without `left`), A given by `lu_factor`; `adjoint`: by A.mT."""
    what = "linalg.lu_solve"
    square(what, factors)
    common = promotion((factors, b))
    # x A = b is A' x' = b'.
    if not left:
        return lu_solve(factors, pivots, b.mT, adjoint=not adjoint).mT
    a, right = paired(what, factors, b, True)
    order = row_order(factors, pivots)
    rows = broadcast(order, a.extents[:-1])
    if adjoint:
        half = solve_triangular(a.mT, right, upper=False)
        solution = solve_triangular(a.mT, half, upper=True, unitriangular=True)
        rows = argsort(rows, -1)
    else:
        solution = right
    columns = expand(rows.unsqueeze(-1), solution.extents)
    solution = gather(solution, -2, columns)
    if not adjoint:
        half = solve_triangular(a, solution, upper=False, unitriangular=True)
        solution = solve_triangular(a, half, upper=True)
    return back(solution, common)


class LU(NamedTuple):
    """The results of `lu`: x = P @ L @ U."""

    P: Tensor
    L: Tensor
    U: Tensor


def lu(x: Tensor, *, pivot: bool = True) -> LU:
    """P, L, U with P @ L @ U = x (m, n): a permutation (m, m), unit lower (m, k), upper (k, n)."""
    return lu_unpack(*lu_factor(x, pivot=pivot))


def lu_unpack(factors: Tensor, pivots: Tensor) -> LU:
    """The three matrices that `lu_factor` gives as two."""
    m, n = factors.extents[-2:]
    k = minimum(m, n)
    eye = factors.graph.eye(m, k, dtype=factors.dtype)
    lower = tril(narrow(factors, -1, 0, k), -1) + eye
    upper = triu(narrow(factors, -2, 0, k))
    order = row_order(factors, pivots)
    return LU(one_hot(order, m, factors.dtype).mT, lower, upper)


# --- tensors as matrices --------------------------------------------------------------------------


def tensorinv(x: Tensor, ind: int = 2) -> Tensor:
    """The inverse of x as a matrix whose rows are its first `ind` dims; they come last in it."""
    if not 0 < ind <= x.ndim:
        raise ShapeError(f"linalg.tensorinv: ind is {ind}; {describe(x)} takes 1..{x.ndim}")
    rows, columns = x.extents[:ind], x.extents[ind:]
    flat = reshape(x, (product_of(rows), product_of(columns)))
    return reshape(inv(flat), (*columns, *rows))


def tensorsolve(a: Tensor, b: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """x with tensordot(a, x, x.ndim) = b; the dims `dims` of a are moved to its end first."""
    if dims is not None:
        moved = [axis_of("linalg.tensorsolve", d, a.ndim) for d in dims]
        a = permute(a, *(k for k in range(a.ndim) if k not in moved), *moved)
    shape = a.extents[b.ndim :]
    flat = reshape(a, (product_of(b.extents), product_of(shape)))
    return reshape(solve(flat, reshape(b, (-1,))), shape)


def vander(x: Tensor, N: Extent | None = None) -> Tensor:
    """Powers of x along a new last dim: 0 .. N-1, N is by default x's last extent."""
    x = x.reshape(1) if x.ndim == 0 else x
    extent = x.extents[-1] if N is None else x.graph.extent(N)
    powers = x.graph.arange(extent, dtype=x.dtype if x.dtype.is_int else dtypes.int64)
    return x.unsqueeze(-1) ** powers
