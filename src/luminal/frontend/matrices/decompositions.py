"""Matrices taken apart, inverted and solved: opaque kernels that call NumPy's LAPACK.

All take batches of matrices in the last two dims; extents may be dims. They run on the thread that
called the executable. float32 and float64 are computed as they are, all else in float32. Errors
of shapes are raised when recorded (for dims: when they are bound), those of values in the run:
InputError where a matrix is singular, not positive-definite or did not converge.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.frontend.custom import CustomOperation, custom_kernel
from luminal.frontend.handle import Shape, describe, together, work_dtype
from luminal.frontend.movement.views import flip
from luminal.frontend.pointwise.binary import broadcast, promotion, where
from luminal.hlir import lapack
from luminal.hlir.lapack import Evaluation, Failure
from luminal.hlir.types import TensorType
from luminal.shape.expression import Expression, minimum
from luminal.shape.view import broadcast_shapes

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Rule = Callable[..., list[tuple[Shape, Any]]]

SINGULAR = Failure(
    "is singular: its pivot {info} is 0",
    "use lm.linalg.pinv or lstsq, or inv_ex or solve_ex, which say so instead of raising",
    lapack.first_zero,
)
INDEFINITE = Failure(
    "is not positive-definite: its leading minor of order {info} is not",
    "add a little to its diagonal, or use cholesky_ex, which says so instead of raising",
    lapack.first_minor,
)
NOT_FINITE = Failure(
    "has no singular values: it holds NaN or infinity, or the algorithm did not converge",
    "look for what made it so",
    lapack.unknown,
)


# NumPy's LAPACK is in every installation, blocked and batched, and the reference runs the same. The
# price: the calling thread, no fusion, CPUs only.
@cache
def operation(
    name: str,
    meaning: Any,
    operands: int,
    failure: Failure,
    rule: Rule,
    info: bool = False,
    is_complex: tuple[bool, ...] = (),
) -> CustomOperation:
    """The one kernel of these fields, so that equal calls are one call. `is_complex`: of complex
    matrices, which come as two operands each, which results are so too.
    """
    evaluation = Evaluation(f"linalg.{name}", meaning, operands, failure, info, is_complex)

    def results(*types_in: TensorType) -> list[tuple[Shape, Any]]:
        types = rule(*(types_in[::2] if is_complex else types_in))
        if is_complex:
            pairs = zip(types, is_complex, strict=True)
            types = [kind for kind, is_pair in pairs for _ in range(1 + is_pair)]
        return [*types, (types_in[0].shape[:-2], dtypes.int32)] if info else types

    return custom_kernel(f"linalg.{name}", evaluation, results=results, flops=_flops)


def _flops(*operands: TensorType) -> Expression:
    """The order of the work: all elements of the first matrix, for each row or column of it."""
    *batch, rows, columns = operands[0].shape
    count = rows * columns * minimum(rows, columns)
    for n in batch:
        count = count * n
    return count


def alone(results: Any) -> tuple[Tensor, ...]:
    return results if type(results) is tuple else (results,)


# --- operands and shapes --------------------------------------------------------------------------


def matrix(what: str, x: Tensor) -> Tensor:
    """x in a float dtype; ShapeError if it is no matrix."""
    if x.ndim < 2:
        raise ShapeError(f"{what}: takes matrices in the last two dims; got {describe(x)}")
    return x.cast(work_dtype(x.dtype))


def square(what: str, x: Tensor) -> Tensor:
    """x in a float dtype; ShapeError if its matrices are not square, DimError if dims tell."""
    checked = matrix(what, x)
    rows, columns = x.extents[-2:]
    if rows != columns and rows.is_const and columns.is_const:
        raise ShapeError(f"{what}: takes square matrices; got {describe(x)}: {rows} != {columns}")
    x.graph.require(rows.eq(columns), f"{what}: square matrices")
    return checked


def back(x: Tensor, dtype: DType) -> Tensor:
    """A result in the dtype of 16-bit operands."""
    return x.cast(dtype) if dtype.is_storage else x


def like_first(a: TensorType, *others: TensorType) -> list[tuple[Shape, Any]]:
    return [(a.shape, a.dtype)]


def like_second(a: TensorType, b: TensorType) -> list[tuple[Shape, Any]]:
    return [(b.shape, b.dtype)]


def _batch(count: int, a: TensorType) -> list[tuple[Shape, Any]]:
    return [(a.shape[:-2], a.dtype)] * count


# --- square matrices ------------------------------------------------------------------------------


def det(x: Tensor) -> Tensor:
    """The determinant of each matrix: (..., n, n) to (...); 0 where it is singular."""
    call = operation("det", lapack.determinant, 1, SINGULAR, one_of_each)
    return back(call(square("linalg.det", x)), x.dtype)


def cofactors(x: Tensor) -> Tensor:
    """det(x) * inv(x).mT, the derivative of `det`: (..., n, n), of singular matrices too."""
    a = square("linalg.cofactors", x)
    return back(operation("cofactors", lapack.cofactors, 1, NOT_FINITE, like_first)(a), x.dtype)


one_of_each: Rule = partial(_batch, 1)
two_of_each: Rule = partial(_batch, 2)


class SignLog(NamedTuple):
    """The results of `slogdet`: the determinant's sign, and the logarithm of its size."""

    sign: Tensor
    logabsdet: Tensor


def slogdet(x: Tensor) -> SignLog:
    """The sign of the determinant and the logarithm of its magnitude: (0, -inf) where singular."""
    a = square("linalg.slogdet", x)
    parts = operation("slogdet", lapack.log_determinant, 1, SINGULAR, two_of_each)(a)
    return SignLog(*(back(part, x.dtype) for part in parts))


def inv(x: Tensor) -> Tensor:
    """The inverse of each matrix. InputError in the run where one is singular."""
    a = square("linalg.inv", x)
    return back(operation("inv", lapack.inverse, 1, SINGULAR, like_first)(a), x.dtype)


class WithInfo(NamedTuple):
    """What the functions `*_ex` give: the result, and 0 for each matrix that has one (int32)."""

    result: Tensor
    info: Tensor


class Inverse(NamedTuple):
    """The results of `inv_ex`: the inverse, and 0 or the number of the pivot that is 0."""

    inverse: Tensor
    info: Tensor


def inv_ex(x: Tensor, *, check_errors: bool = False) -> Inverse:
    """The inverse without an error: NaN for singular matrices, and their info is not 0."""
    a = square("linalg.inv", x)
    if check_errors:
        inverse = inv(x)
        return Inverse(inverse, x.graph.full(x.extents[:-2], 0, dtypes.int32))
    result, info = operation("inv_ex", lapack.inverse, 1, SINGULAR, like_first, True)(a)
    return Inverse(back(result, x.dtype), info)


def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    """x with a @ x = b, or x @ a = b without `left`; batches broadcast.

    b holds matrices, or vectors: where it has one dim, or the shape of a without its last dim.
    InputError in the run where a matrix is singular.
    """
    return _solved("solve", a, b, left, info=False)[0]


def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> WithInfo:
    """The solution without an error: NaN for singular matrices, and their info is not 0."""
    if check_errors:
        zeros = a.graph.full(a.extents[:-2], 0, dtypes.int32)
        return WithInfo(solve(a, b, left=left), zeros)
    return WithInfo(*_solved("solve_ex", a, b, left, info=True))


def _solved(name: str, a: Tensor, b: Tensor, left: bool, info: bool) -> tuple[Tensor, ...]:
    square("linalg.solve", a)
    vector = is_vector(a, b, left)
    common = promotion((a, b))
    first, second = paired("linalg.solve", a, b.unsqueeze(-1) if vector else b, left)
    call = operation(name, lapack.solve, 2, SINGULAR, like_second, info)
    if left:
        solution, *rest = alone(call(first, second))
    else:
        solution, *rest = alone(call(first.mT, second.mT))
        solution = solution.mT
    return back(solution.squeeze(-1) if vector else solution, common), *rest


def is_vector(a: Tensor, b: Tensor, left: bool) -> bool:
    """Does the right side b of `solve` hold vectors? ShapeError where it may not."""
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.extents == a.extents[:-1])
    if vector and not left:
        raise ShapeError(f"linalg.solve: {describe(b)} is a vector; left=False takes matrices")
    return vector


def paired(what: str, a: Tensor, b: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    """A square matrix and right sides in one dtype and one batch; ShapeError if they differ."""
    graph, values = together(a, b)
    a, b = (graph.wrap(value) for value in values)
    work = work_dtype(promotion((a, b)))
    rows, extent = b.extents[-2 if left else -1] if b.ndim > 1 else None, a.extents[-1]
    if rows != extent:
        raise ShapeError(f"{what}: {describe(b)} does not fit {describe(a)}: {rows} != {extent}")
    try:
        batch = broadcast_shapes(a.extents[:-2], b.extents[:-2])
    except ShapeError as error:
        raise ShapeError(f"{what}({describe(a)}, {describe(b)}): {error}") from None
    first, second = (broadcast(x.cast(work), (*batch, *x.extents[-2:])) for x in (a, b))
    return first, second


def cholesky(x: Tensor, *, upper: bool = False) -> Tensor:
    """L, lower triangular, with L @ L.mT = x; with `upper` its transpose.

    x is symmetric; only its lower (upper) triangle is read. InputError in the run where a matrix is
    not positive-definite.
    """
    a = square("linalg.cholesky", x)
    return _factor(a, upper, x.dtype, info=False)[0]


class Cholesky(NamedTuple):
    """The results of `cholesky_ex`: the factor, and 0 or the order of the minor that fails."""

    L: Tensor
    info: Tensor


def cholesky_ex(x: Tensor, *, upper: bool = False, check_errors: bool = False) -> Cholesky:
    """The Cholesky factor without an error: NaN for a matrix that is not positive-definite, and its
    info is the order of its first leading minor that is not.
    """
    a = square("linalg.cholesky", x)
    if check_errors:
        zeros = x.graph.full(x.extents[:-2], 0, dtypes.int32)
        return Cholesky(cholesky(x, upper=upper), zeros)
    return Cholesky(*_factor(a, upper, x.dtype, info=True))


def _factor(a: Tensor, upper: bool, dtype: DType, info: bool) -> tuple[Tensor, ...]:
    name = "cholesky_ex" if info else "cholesky"
    # LAPACK reads one triangle; of a symmetric matrix the transpose has the other one in its place.
    call = operation(name, lapack.cholesky, 1, INDEFINITE, like_first, info)
    factor, *rest = alone(call(a.mT if upper else a))
    return back(factor.mT if upper else factor, dtype), *rest


def solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """x with a @ x = b (x @ a = b without `left`), a triangular; its other triangle is not read.

    inf and NaN for zeros in the diagonal, which `unitriangular` takes as ones. Batches broadcast.
    """
    what = "linalg.solve_triangular"
    square(what, a)
    if b.ndim < 2:
        raise ShapeError(f"{what}: {describe(b)} holds no matrices; unsqueeze it")
    common = promotion((a, b))
    first, second = paired(what, a, b, left)
    # x a = b is a' x' = b', and a' is triangular the other way.
    if not left:
        first, second, upper = first.mT, second.mT, not upper
    if upper:
        # An upper triangle with rows and columns reversed is a lower one: one kernel serves both.
        first, second = flip(first, (-2, -1)), flip(second, -2)
    if unitriangular:
        eye = first.graph.eye(first.extents[-1], dtype=dtypes.bool_)
        first = where(eye, 1, first)
    call = operation("solve_triangular", lapack.triangular, 2, SINGULAR, like_second)
    solution = call(first, second)
    solution = flip(solution, -2) if upper else solution
    return back(solution if left else solution.mT, common)


# --- factors --------------------------------------------------------------------------------------


class QR(NamedTuple):
    """The results of `qr`: Q with orthonormal columns, and R, upper triangular."""

    Q: Tensor
    R: Tensor


def qr(x: Tensor, mode: str = "reduced") -> QR:
    """Q with orthonormal columns and R, upper triangular, with Q @ R = x (m, n).

    "reduced": (m, k) and (k, n), k = min(m, n); "complete": (m, m) and (m, n); "r": Q is empty.
    Householder's reflections; signs as LAPACK's.
    """
    a = matrix("linalg.qr", x)
    if mode == "r":
        factors = operation("qr_r", lapack.only_r, 1, NOT_FINITE, only_r)(a)
        return QR(x.graph.full((0,), 0, x.dtype), back(factors, x.dtype))
    meaning, rule = qr_of_mode(mode)
    factors = operation(f"qr_{mode}", meaning, 1, NOT_FINITE, rule)(a)
    return QR(*(back(factor, x.dtype) for factor in factors))


def qr_of_mode(mode: str) -> tuple[Any, Rule]:
    """What the kernel computes, and the shapes of its results; ShapeError for other modes."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f'linalg.qr: mode {mode!r}; give "reduced", "complete" or "r"')
    return (lapack.qr, _qr) if mode == "reduced" else (lapack.full_qr, _full_qr)


def _qr(a: TensorType) -> list[tuple[Shape, Any]]:
    *batch, m, n = a.shape
    k = minimum(m, n)
    return [((*batch, m, k), a.dtype), ((*batch, k, n), a.dtype)]


def _full_qr(a: TensorType) -> list[tuple[Shape, Any]]:
    *batch, m, n = a.shape
    return [((*batch, m, m), a.dtype), ((*batch, m, n), a.dtype)]


def only_r(a: TensorType) -> list[tuple[Shape, Any]]:
    return [_qr(a)[1]]


class SVD(NamedTuple):
    """The results of `svd`: x = U @ diag(S) @ Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def svd(x: Tensor, full_matrices: bool = True) -> SVD:
    """x (m, n) = U @ diag(S) @ Vh; S is (k,), k = min(m, n), descending and at least 0.

    U is (m, m) and Vh (n, n), or (m, k) and (k, n) without `full_matrices`. Signs of vectors are
    LAPACK's. InputError in the run for NaN and infinities.
    """
    a = matrix("linalg.svd", x)
    meaning, rule = (lapack.full_svd, _full_svd) if full_matrices else (lapack.svd, svd_shapes)
    name = "svd" if full_matrices else "svd_reduced"
    return SVD(*(back(y, x.dtype) for y in operation(name, meaning, 1, NOT_FINITE, rule)(a)))


def svdvals(x: Tensor) -> Tensor:
    """The singular values, descending: (..., m, n) to (..., min(m, n))."""
    a = matrix("linalg.svdvals", x)
    call = operation("svdvals", lapack.singular_values, 1, NOT_FINITE, values_of_each)
    return back(call(a), x.dtype)


def svd_shapes(a: TensorType) -> list[tuple[Shape, Any]]:
    *batch, m, n = a.shape
    k = minimum(m, n)
    shapes: list[Shape] = [(*batch, m, k), (*batch, k), (*batch, k, n)]
    return [(shape, a.dtype) for shape in shapes]


def _full_svd(a: TensorType) -> list[tuple[Shape, Any]]:
    *batch, m, n = a.shape
    shapes: list[Shape] = [(*batch, m, m), (*batch, minimum(m, n)), (*batch, n, n)]
    return [(shape, a.dtype) for shape in shapes]


def values_of_each(a: TensorType) -> list[tuple[Shape, Any]]:
    return [svd_shapes(a)[1]]


class Eigen(NamedTuple):
    """The results of `eigh`: ascending eigenvalues, and a column of eigenvectors for each."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def eigh(x: Tensor, UPLO: str = "L") -> Eigen:
    """Ascending eigenvalues (..., n) and the eigenvectors as columns (..., n, n) of symmetric x.

    Only the lower ("L") or upper ("U") triangle is read; NaN where it is not finite.
    """
    a = _symmetric("linalg.eigh", x, UPLO)
    parts = operation("eigh", lapack.symmetric_eigen, 1, NOT_FINITE, _eigen)(a)
    return Eigen(*(back(part, x.dtype) for part in parts))


def eigvalsh(x: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of `eigh`."""
    a = _symmetric("linalg.eigvalsh", x, UPLO)
    call = operation("eigvalsh", lapack.symmetric_values, 1, NOT_FINITE, values_of_each)
    return back(call(a), x.dtype)


def _symmetric(what: str, x: Tensor, uplo: str) -> Tensor:
    if uplo not in ("L", "U"):
        raise ShapeError(f'{what}: UPLO={uplo!r}; give "L" or "U"')
    a = square(what, x)
    return a if uplo == "L" else a.mT


def _eigen(a: TensorType) -> list[tuple[Shape, Any]]:
    return [(a.shape[:-1], a.dtype), (a.shape, a.dtype)]


class LUFactor(NamedTuple):
    """The results of `lu_factor`: L and U in one matrix, and the rows that were exchanged."""

    LU: Tensor
    pivots: Tensor


def lu_factor(x: Tensor, *, pivot: bool = True) -> LUFactor:
    """L (unit lower) and U (upper) in one matrix, and the row (from 1, int32) that each row was
    exchanged with. Gaussian elimination with partial pivoting; U has zeros where x is singular."""
    a = matrix("linalg.lu_factor", x)
    if not pivot:
        raise ShapeError("linalg.lu_factor: pivot=False; rows are exchanged, as PyTorch's on CPUs")
    factors, pivots = operation("lu_factor", lapack.lu, 1, SINGULAR, _lu)(a)
    return LUFactor(back(factors, x.dtype), pivots)


def _lu(a: TensorType) -> list[tuple[Shape, Any]]:
    *batch, m, n = a.shape
    return [(a.shape, a.dtype), ((*batch, minimum(m, n)), dtypes.int32)]


def row_order(factors: Tensor, pivots: Tensor) -> Tensor:
    """(..., m) int64: which of x's rows each row of `lu_factor(x)` is, from its pivots."""
    call = operation("row_order", lapack.row_order, 2, SINGULAR, _rows)
    order: Tensor = call(matrix("linalg.lu", factors), pivots.unsqueeze(-1).cast(dtypes.int64))
    return order


def _rows(a: TensorType, pivots: TensorType) -> list[tuple[Shape, Any]]:
    return [(a.shape[:-1], dtypes.int64)]


def matrix_exp(x: Tensor) -> Tensor:
    """1 + x + x @ x / 2 + ...: Pade's approximant of order 13, scaled and squared, in float64."""
    a = square("linalg.matrix_exp", x)
    return back(operation("matrix_exp", lapack.exponential, 1, NOT_FINITE, like_first)(a), x.dtype)
