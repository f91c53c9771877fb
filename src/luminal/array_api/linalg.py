"""The standard's linear algebra extension."""

from __future__ import annotations

from typing import Any

from luminal.array_api.array import in_their_dtype, of_arrays, promoting
from luminal.frontend.matrices import (
    decompositions,
    linear_algebra,
    norms,
    products,
)
from luminal.frontend.matrices import (
    matmul as linalg,
)
from luminal.frontend.movement import padding, views
from luminal.frontend.reduce.reductions import Dims
from luminal.frontend.tensor import Tensor
from luminal.linalg import cholesky as _cholesky
from luminal.linalg import matrix_norm as _matrix_norm
from luminal.linalg import qr as _qr
from luminal.linalg import solve as _solve

cross = promoting(lambda x, y, /, *, axis=-1: products.cross(x, y, axis), "cross")
det = of_arrays(decompositions.det)
eigh = of_arrays(decompositions.eigh)
eigvalsh = of_arrays(decompositions.eigvalsh)
inv = of_arrays(decompositions.inv)
matmul = promoting(in_their_dtype(linalg.matmul))
matrix_power = of_arrays(products.matrix_power)
matrix_transpose = of_arrays(views.matrix_transpose)
outer = promoting(products.outer)
slogdet = of_arrays(decompositions.slogdet)
svdvals = of_arrays(decompositions.svdvals)


@of_arrays
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """L with L @ L.mT = x, or with `upper` U with U.mT @ U = x; of complex x with conjugates."""
    return _cholesky(x, upper=upper)


@of_arrays
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of the last two dims as the last one."""
    return padding.diagonal(x, offset, -2, -1)


@of_arrays
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of order `ord` of the matrices in the last two dims."""
    return _matrix_norm(x, ord, (-2, -1), keepdims)


@of_arrays
def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above rtol times the greatest (int64)."""
    return linear_algebra.matrix_rank(x, rtol=rtol)


@of_arrays
def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudoinverse; singular values up to rtol times the greatest count as 0."""
    return linear_algebra.pinv(x, rtol=rtol)


@of_arrays
def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and R, upper triangular; mode "reduced" or "complete"."""
    return _qr(x, mode)


@promoting
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """y with x1 @ y = x2: a vector where x2 has one dim, else matrices in the last two dims."""
    # PyTorch takes x2 for a stack of vectors where its shape is x1's without the last dim. The
    # standard knows vectors of one dim only, so a leading dim tells PyTorch's rule that these are
    # matrices.
    stacked = x2.ndim > 1 and x2.ndim == x1.ndim - 1
    return _solve(x1, x2.unsqueeze(0) if stacked else x2)


@of_arrays
def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """U, S and Vh with x = U @ diag(S) @ Vh."""
    return decompositions.svd(x, full_matrices)


@of_arrays
def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal of the last two dims; narrow integers give int64 (uint64)."""
    return padding.diagonal(x, offset, -2, -1).sum(-1, dtype=dtype)


@promoting
@in_their_dtype
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Summed products over the last `axes` dims of x1 and the first of x2, or over two lists."""
    return products.tensordot(x1, x2, axes)


@promoting
@in_their_dtype
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of products along `axis`, counted from the end where shapes broadcast."""
    return products.vecdot(x1, x2, axis)


@of_arrays
def vector_norm(
    x: Tensor, /, *, axis: Dims = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm of order `ord` over `axis`; None: of all elements."""
    return norms.vector_norm(x, ord, axis, keepdims)


__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
