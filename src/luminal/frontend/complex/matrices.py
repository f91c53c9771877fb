"""Norms, products and decompositions of complex matrices: NumPy's LAPACK, as of real ones.

The kernels and the derivatives are those of `matrices/decompositions.py`: an operand is two arrays,
its parts, of which the kernel makes one of complex numbers. Eigenvalues, singular vectors and what
is made of them are left out: their gradients depend on phases that the results leave open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.complex.parts import as_complex, product
from luminal.frontend.handle import Pair, axes_of, axis_of, describe
from luminal.frontend.matrices import decompositions, norms, products
from luminal.frontend.matrices.decompositions import (
    INDEFINITE,
    NOT_FINITE,
    SINGULAR,
    Cholesky,
    Inverse,
    SignLog,
    WithInfo,
)
from luminal.frontend.movement.views import flip
from luminal.hlir import lapack
from luminal.hlir.lapack import Failure

# --- products -------------------------------------------------------------------------------------


def vdot(z: Any, other: Any) -> Any:
    """The sum of conj(z) * other of two vectors: 0-d."""
    return product(products.dot, z.conj(), other)


def vecdot(z: Any, other: Any, dim: int = -1) -> Any:
    """The sum of conj(z) * other along `dim`."""
    return product(products.vecdot, z.conj(), other, dim=dim)


def matrix_power(z: Any, n: int) -> Any:
    """The square matrices of the last two dims multiplied n times, by squaring; n < 0: inverses."""
    decompositions.square("matrix_power", z.real)
    if n < 0:
        return matrix_power(inv(z), -n)
    if n == 0:
        ones = z.graph.eye(z.extents[-1], dtype=z.dtype)
        return ones.expand(z.extents)
    half = matrix_power(z, n // 2) if n > 1 else None
    if half is None:
        return z
    return half @ half @ z if n % 2 else half @ half


# --- norms ----------------------------------------------------------------------------------------


def _of_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A norm, which is that of the absolute values."""

    @wraps(function)
    def norm(z: Any, *args: Any, dtype: Any = None, **options: Any) -> Any:
        return function(abs(z if dtype is None else z.to(dtype)), *args, **options)

    return norm


def matrix_norm(
    z: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Any:
    """The norm of the matrices in the two dims `dim`, real; see the one of real matrices."""
    z = z if dtype is None else z.to(dtype)
    if ord not in norms.BY_SINGULAR_VALUES:
        return norms.matrix_norm(abs(z), ord, dim, keepdim)
    rows, columns = (axis_of("matrix_norm", d, z.ndim) for d in dim)
    if rows == columns:
        raise ShapeError(f"matrix_norm: dims {dim} name one dimension twice; name two")
    sizes = svdvals(z.movedim((rows, columns), (-2, -1)))
    return norms.of_sizes(sizes, ord, (rows, columns), keepdim)


def norm(z: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The p-norm of all elements over `dim`, real; "nuc" is that of matrices."""
    if p != "nuc":
        return _of_sizes(norms.norm)(z, p, dim, keepdim, dtype=dtype)
    axes = axes_of("norm", dim, z.ndim) if dim is None or isinstance(dim, int) else tuple(dim)
    if len(axes) != 2:
        raise ShapeError(f'norm: p="nuc" of {describe(z.real)} takes two dims; got {dim}')
    return matrix_norm(z, p, axes, keepdim, dtype)


def linalg_norm(
    z: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """The norm as torch.linalg.norm has it: `matrix_norm` with two dims, else `vector_norm`."""
    axes = tuple(range(z.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if ord in norms.BY_SINGULAR_VALUES and len(axes) == 2:
        return matrix_norm(z, ord, axes, keepdim, dtype)
    return _of_sizes(norms.linalg_norm)(z, ord, dim, keepdim, dtype=dtype)


# --- decompositions -------------------------------------------------------------------------------


def _called(
    name: str, meaning: Any, failure: Failure, rule: Any, is_complex: tuple[bool, ...],
    *operands: Any, info: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """The results of a kernel of complex matrices; `is_complex`: which of them are complex."""
    count = len(operands)
    kernel = decompositions.operation(name, meaning, count, failure, rule, info, is_complex)
    remaining = iter(decompositions.alone(kernel(*(part for z in operands for part in z.parts))))
    numbers = [
        Pair.kind(next(remaining), next(remaining)) if pair else next(remaining)
        for pair in is_complex
    ]
    return (*numbers, *remaining)


def _square(what: str, z: Any) -> Any:
    decompositions.square(what, z.real)
    return z


def det(z: Any) -> Any:
    """The determinant of each matrix: (..., n, n) to (...); 0 where it is singular."""
    a, rule = _square("linalg.det", z), decompositions.one_of_each
    return _called("det", lapack.determinant, SINGULAR, rule, (True,), a)[0]


def cofactors(z: Any) -> Any:
    """det(z) * inv(z).mT, of singular matrices too."""
    rule = decompositions.like_first
    return _called("cofactors", lapack.cofactors, NOT_FINITE, rule, (True,), z)[0]


def slogdet(z: Any) -> SignLog:
    """The determinant over its size, complex, and the logarithm of that: (0, -inf) if singular."""
    a, rule = _square("linalg.slogdet", z), decompositions.two_of_each
    return SignLog(*_called("slogdet", lapack.log_determinant, SINGULAR, rule, (True, False), a))


def inv(z: Any) -> Any:
    """The inverse of each matrix. InputError in the run where one is singular."""
    a, rule = _square("linalg.inv", z), decompositions.like_first
    return _called("inv", lapack.inverse, SINGULAR, rule, (True,), a)[0]


def inv_ex(z: Any, *, check_errors: bool = False) -> Inverse:
    """The inverse without an error: NaN for singular matrices, and their info is not 0."""
    if check_errors:
        return Inverse(inv(z), z.graph.full(z.extents[:-2], 0, dtypes.int32))
    a, rule = _square("linalg.inv", z), decompositions.like_first
    return Inverse(*_called("inv_ex", lapack.inverse, SINGULAR, rule, (True,), a, info=True))


def solve(a: Any, b: Any, *, left: bool = True) -> Any:
    """x with a @ x = b, or x @ a = b without `left`; see the one of real matrices."""
    return _solved("solve", a, b, left, info=False)[0]


def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> WithInfo:
    """The solution without an error: NaN for singular matrices, and their info is not 0."""
    if check_errors:
        return WithInfo(solve(a, b, left=left), a.graph.full(a.extents[:-2], 0, dtypes.int32))
    return WithInfo(*_solved("solve_ex", a, b, left, info=True))


def _solved(name: str, a: Any, b: Any, left: bool, info: bool) -> tuple[Any, ...]:
    a, b = _both(a, b)
    decompositions.square("linalg.solve", a.real)
    is_vector = decompositions.is_vector(a.real, b.real, left)
    first, second = _paired("linalg.solve", a, b.unsqueeze(-1) if is_vector else b, left)
    if not left:
        first, second = first.mT, second.mT
    rule = decompositions.like_second
    x, *rest = _called(name, lapack.solve, SINGULAR, rule, (True,), first, second, info=info)
    x = x if left else x.mT
    return x.squeeze(-1) if is_vector else x, *rest


def _both(a: Any, b: Any) -> tuple[Any, Any]:
    some = a if isinstance(a, Pair) else b
    return as_complex(a, some), as_complex(b, some)


def _paired(what: str, a: Any, b: Any, left: bool) -> tuple[Any, Any]:
    parts = (decompositions.paired(what, x, y, left) for x, y in zip(a.parts, b.parts, strict=True))
    first, second = (Pair.kind(*both) for both in zip(*parts, strict=True))
    return first, second


def cholesky(z: Any, *, upper: bool = False) -> Any:
    """L, lower triangular, with L @ L.mH = z; with `upper` its adjoint.

    z is Hermitian; only its lower (upper) triangle is read. InputError in the run where a matrix is
    not positive-definite.
    """
    return _factor("cholesky", z, upper, info=False)[0]


def cholesky_ex(z: Any, *, upper: bool = False, check_errors: bool = False) -> Cholesky:
    """The Cholesky factor without an error; see the one of real matrices."""
    if check_errors:
        zeros = z.graph.full(z.extents[:-2], 0, dtypes.int32)
        return Cholesky(cholesky(z, upper=upper), zeros)
    return Cholesky(*_factor("cholesky_ex", z, upper, info=True))


def _factor(name: str, z: Any, upper: bool, info: bool) -> tuple[Any, ...]:
    a, rule = _square("linalg.cholesky", z), decompositions.like_first
    a = a.mH if upper else a
    factor, *rest = _called(name, lapack.cholesky, INDEFINITE, rule, (True,), a, info=info)
    return factor.mH if upper else factor, *rest


def solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """x with a @ x = b (x @ a = b without `left`), a triangular; see the one of real matrices."""
    what = "linalg.solve_triangular"
    a, b = _both(a, b)
    decompositions.square(what, a.real)
    if b.ndim < 2:
        raise ShapeError(f"{what}: {describe(b.real)} holds no matrices; unsqueeze it")
    first, second = _paired(what, a, b, left)
    if not left:
        first, second, upper = first.mT, second.mT, not upper
    if upper:
        first, second = (
            Pair.kind(*(flip(part, dims) for part in x.parts))
            for x, dims in ((first, (-2, -1)), (second, -2))
        )
    if unitriangular:
        eye = first.graph.eye(first.extents[-1], dtype=dtypes.bool_)
        first = first.masked_fill(eye, 1)
    rule = decompositions.like_second
    (x,) = _called("solve_triangular", lapack.triangular, SINGULAR, rule, (True,), first, second)
    x = x.flip(-2) if upper else x
    return x if left else x.mT


def qr(z: Any, mode: str = "reduced") -> decompositions.QR:
    """Q with orthonormal columns and R, upper triangular with a real diagonal; Q @ R = z (m, n)."""
    decompositions.matrix("linalg.qr", z.real)
    if mode == "r":
        rule = decompositions.only_r
        (factor,) = _called("qr_r", lapack.only_r, NOT_FINITE, rule, (True,), z)
        return decompositions.QR(z.graph.full((0,), 0, z.dtype), factor)
    meaning, rule = decompositions.qr_of_mode(mode)
    return decompositions.QR(*_called(f"qr_{mode}", meaning, NOT_FINITE, rule, (True, True), z))


def svdvals(z: Any) -> Any:
    """The singular values, real and descending: (..., m, n) to (..., min(m, n))."""
    decompositions.matrix("linalg.svdvals", z.real)
    rule = decompositions.values_of_each
    return _called("svdvals", lapack.singular_values, NOT_FINITE, rule, (False,), z)[0]


def svd_of_gradient(z: Any, full_matrices: bool = False) -> decompositions.SVD:
    """The reduced SVD, for gradients in which the phases of its vectors cancel."""
    is_complex = (True, False, True)
    rule = decompositions.svd_shapes
    return decompositions.SVD(*_called("svd_reduced", lapack.svd, NOT_FINITE, rule, is_complex, z))


OF_COMPLEX: dict[Callable[..., Any], Callable[..., Any]] = {
    decompositions.cholesky: cholesky,
    decompositions.cholesky_ex: cholesky_ex,
    decompositions.cofactors: cofactors,
    decompositions.det: det,
    decompositions.inv: inv,
    decompositions.inv_ex: inv_ex,
    decompositions.qr: qr,
    decompositions.slogdet: slogdet,
    decompositions.solve: solve,
    decompositions.solve_ex: solve_ex,
    decompositions.solve_triangular: solve_triangular,
    decompositions.svdvals: svdvals,
    norms.linalg_norm: linalg_norm,
    norms.matrix_norm: matrix_norm,
    norms.norm: norm,
    norms.vector_norm: _of_sizes(norms.vector_norm),
    products.matrix_power: matrix_power,
    products.vecdot: vecdot,
}
"""By the function of real matrices."""
