"""Linear algebra under PyTorch's older names, `torch.qr` and the like, with their own arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from luminal.frontend.handle import Extent
from luminal.frontend.matrices import decompositions, functions
from luminal.frontend.matrices.decompositions import QR
from luminal.frontend.matrices.products import multi_dot
from luminal.frontend.movement.views import flip

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """`linalg.cholesky`."""
    return decompositions.cholesky(x, upper=upper)


def qr(x: Tensor, some: bool = True) -> QR:
    """`linalg.qr`: "reduced", or with some=False "complete"."""
    return decompositions.qr(x, "reduced" if some else "complete")


class SVD(NamedTuple):
    """What `svd` gives: x = U @ diag(S) @ V.mT, not Vh as `linalg.svd`."""

    U: Tensor
    S: Tensor
    V: Tensor


def svd(x: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """`linalg.svd` with V for Vh; `some`: only min(m, n) vectors. Zeros without `compute_uv`."""
    if compute_uv:
        u, s, vh = decompositions.svd(x, not some)
        return SVD(u, s, vh.mT)
    *batch, m, n = x.extents
    u, v = (x.graph.full((*batch, k, k), 0, x.dtype) for k in (m, n))
    return SVD(u, decompositions.svdvals(x), v)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """`linalg.lu_solve` with the right side first."""
    return functions.lu_solve(LU_data, LU_pivots, b)


def chain_matmul(*tensors: Tensor) -> Tensor:
    """`linalg.multi_dot` of the matrices, one argument each."""
    return tensors[0] if len(tensors) == 1 else multi_dot(tensors)


def vander(x: Tensor, N: Extent | None = None, increasing: bool = False) -> Tensor:
    """Powers of the 1-d x, a row for each element: N - 1 .. 0, or with `increasing` 0 .. N - 1."""
    found = functions.vander(x, N)
    return found if increasing else flip(found, -1)
