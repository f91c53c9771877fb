"""Functions that PyTorch has a second time, under the same name and with other arguments.

`torch.qr` is not `torch.linalg.qr`, and torch.nn.functional's `layer_norm` takes a shape where the
method takes dims. The first form stands with its subject, the second one here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base.errors import ShapeError
from luminal.frontend.handle import Extent, describe
from luminal.frontend.matrices import decompositions, linear_algebra, products
from luminal.frontend.matrices.decompositions import QR
from luminal.frontend.movement import padding
from luminal.frontend.movement.views import flip
from luminal.frontend.pointwise import binary
from luminal.frontend.reduce import normalization, searching

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def where(condition: Any, *operands: Any) -> Any:
    """`where(condition, a, b)`; of a condition alone `nonzero(condition, as_tuple=True)`."""
    return binary.where(condition, *operands) if operands else searching.nonzero(condition, True)


# --- norms over the last dims, which are given by their extents -----------------------------------


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[Extent],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`Tensor.layer_norm` over the last dims, which have the extents `normalized_shape`."""
    dims = _last_dims("layer_norm", x, normalized_shape)
    return normalization.layer_norm(x, dims, weight, bias, eps)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[Extent],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """`Tensor.rms_norm` over the last dims; `eps` is by default the dtype's own epsilon."""
    dims = _last_dims("rms_norm", x, normalized_shape)
    return normalization.rms_norm(x, dims, weight, x.dtype.epsilon if eps is None else eps)


def _last_dims(what: str, x: Tensor, shape: Sequence[Extent]) -> tuple[int, ...]:
    """The last dims of x; ShapeError if `shape` is not theirs."""
    if isinstance(shape, int):
        shape = (shape,)
    count = len(shape)
    if not count or x.extents[x.ndim - count :] != x.graph.extents(tuple(shape)):
        raise ShapeError(f"{what}: {describe(x)} does not end in {tuple(shape)}")
    return tuple(range(-count, 0))


# --- linear algebra: torch's older names, and what torch.linalg has otherwise than the methods ----


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor, `linalg.cholesky`, with `upper` as torch.cholesky has it."""
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
    return linear_algebra.lu_solve(LU_data, LU_pivots, b)


def chain_matmul(*tensors: Tensor) -> Tensor:
    """`linalg.multi_dot` of the matrices, one argument each."""
    return tensors[0] if len(tensors) == 1 else products.multi_dot(tensors)


def vander(x: Tensor, N: Extent | None = None, increasing: bool = False) -> Tensor:
    """Powers of the 1-d x, a row for each element: N - 1 .. 0, or with `increasing` 0 .. N - 1."""
    powers = linear_algebra.vander(x, N)
    return powers if increasing else flip(powers, -1)


def cross(x: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    """The cross product along `dim`, of extent 3; see `Tensor.cross`."""
    return products.cross(x, other, dim)


def diagonal(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A diagonal of two dims, by default the last two, as the new last dim."""
    return padding.diagonal(x, offset, dim1, dim2)
