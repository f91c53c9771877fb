"""Products of vectors, matrices and tensors besides `matmul`, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.frontend.handle import (
    Scalar,
    along,
    axes_of,
    axis_of,
    describe,
    in_float,
    numpy_names,
    together,
)
from luminal.frontend.matrices.decompositions import inv
from luminal.frontend.matrices.matmul import keeps, matmul, product_dtype, rounds, sum_products
from luminal.frontend.matrices.norms import vector_norm
from luminal.frontend.movement.indexing import take
from luminal.frontend.movement.padding import diagonal
from luminal.frontend.movement.views import permute, reshape, view_of
from luminal.frontend.pointwise.binary import promotion
from luminal.shape import view as views
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Contracted: TypeAlias = int | tuple[int | Sequence[int], int | Sequence[int]]


def _check_rank(what: str, rank: int, *tensors: Tensor) -> None:
    for x in tensors:
        if x.ndim != rank:
            raise ShapeError(f"{what}: takes tensors of {rank} dims; got {describe(x)}")


def _check_equal(what: str, x: Tensor, a: int, y: Tensor, b: int) -> None:
    if x.extents[a] != y.extents[b]:
        raise ShapeError(
            f"{what}: {describe(x)} and {describe(y)} differ: {x.extents[a]} != {y.extents[b]}; "
            "the dims that are summed over must be equal"
        )


def up_together(*tensors: Tensor) -> tuple[list[Tensor], DType]:
    """The tensors in the dtype that their products are formed in, and the dtype of a result."""
    graph, values = together(*tensors)
    common = promotion(tensors)
    # One cast up, one rounding at the end: a bias is added before the sum is rounded.
    work = product_dtype(common)
    return [graph.wrap(v).cast(work) for v in values], common if common.is_storage else work


# --- vectors --------------------------------------------------------------------------------------


def dot(x: Tensor, other: Tensor) -> Tensor:
    """Sum(x * other) of two vectors of one extent: 0-d."""
    _check_rank("dot", 1, x, other)
    return matmul(x, other)


@numpy_names
def vecdot(x: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    """Sum(x * other) along `dim`; the other dims broadcast."""
    (a, b), dtype = up_together(x, other)
    product = a * b
    axis = axis_of("vecdot", dim, product.ndim)
    _check_equal("vecdot", x, axis - product.ndim, other, axis - product.ndim)
    return product.graph.wrap(product.graph.builder.sum(product.value, axis)).cast(dtype)


def inner(x: Tensor, other: Tensor) -> Tensor:
    """Sum over the last dims of both: (..., k), (*, k) to (..., *); 0-d operands multiply."""
    if x.ndim == 0 or other.ndim == 0:
        return x * other
    return tensordot(x, other, ((-1,), (-1,)))


def outer(x: Tensor, other: Tensor) -> Tensor:
    """x[i] * other[j] of two vectors."""
    _check_rank("outer", 1, x, other)
    return x.unsqueeze(1) * other


@numpy_names
def cross(x: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along a dim of extent 3: the first such dim, if it is not given.

    x[i+1] * y[i+2] - x[i+2] * y[i+1], indices modulo 3; the other dims broadcast.
    """
    product = x * other
    if dim is None:
        threes = [k for k, n in enumerate(product.extents) if n == const(3)]
        if not threes:
            raise ShapeError(f"cross: {describe(x)} has no dim of extent 3; give one")
        dim = threes[0]
    axis = axis_of("cross", dim, product.ndim) - product.ndim
    if any(t.ndim < -axis or t.extents[axis] != const(3) for t in (x, other)):
        raise ShapeError(f"cross: {describe(x)} and {describe(other)} need extent 3 in dim {dim}")
    # Rotations are views modulo 3; no component is gathered.
    return _rotated(x, axis, 1) * _rotated(other, axis, 2) - (
        _rotated(x, axis, 2) * _rotated(other, axis, 1)
    )


def _rotated(x: Tensor, axis: int, by: int) -> Tensor:
    """out[i] = x[(i + by) % extent] along `axis`."""
    entries = [along(k, n) for k, n in enumerate(x.extents)]
    entries[axis] = (entries[axis] + by) % x.extents[axis]
    return view_of(x, views.made(x.extents, x.extents, entries))


# --- matrices -------------------------------------------------------------------------------------


def mv(x: Tensor, vec: Tensor) -> Tensor:
    """A matrix (n, k) times a vector (k,)."""
    _check_rank("mv", 2, x)
    _check_rank("mv", 1, vec)
    return matmul(x, vec)


def mm(x: Tensor, mat2: Tensor) -> Tensor:
    """A matrix (n, k) times a matrix (k, m); nothing broadcasts."""
    _check_rank("mm", 2, x, mat2)
    return matmul(x, mat2)


def bmm(x: Tensor, mat2: Tensor) -> Tensor:
    """Matrices (b, n, k) times matrices (b, k, m), each with its own; nothing broadcasts."""
    _check_rank("bmm", 3, x, mat2)
    _check_equal("bmm", x, 0, mat2, 0)
    return matmul(x, mat2)


@rounds("x", "weight", "bias")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., in) times weight (out, in) transposed, plus bias (out,); also a weight (in,)."""
    operands = (x, weight) if bias is None else (x, weight, bias)
    (a, w, *rest), dtype = up_together(*operands)
    product = matmul(a, w if w.ndim == 1 else w.transpose(0, 1))
    return (product + rest[0] if rest else product).cast(dtype)


@rounds("x", "a", "b")
def _plus(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    beta: Scalar,
    alpha: Scalar,
    sum_first: bool = False,
    leaves_out: bool = False,
) -> Tensor:
    """beta * x + alpha * (a @ b), rounded once; beta 0 leaves x out, with its NaN, and so does
    alpha 0 with the product where PyTorch does (`leaves_out`).
    """
    (addend, left, right), dtype = up_together(x, a, b)
    product = matmul(left, right)
    if sum_first:
        product = product.sum(0, dtype=product.dtype)
    is_empty = left.extents[-1] == const(0) or (sum_first and left.extents[0] == const(0))
    if is_empty or (alpha == 0 and leaves_out):  # an infinite alpha makes no NaN of no terms
        product = x.graph.zeros(product.extents, dtype=product.dtype)
    elif alpha != 1:
        product = product * alpha
    shape = product.extents
    # BLAS's rule: beta = 0 means that x is not read, so its NaN does not count.
    if beta != 0:
        product = (addend if beta == 1 else addend * beta) + product
    if product.extents != shape:
        raise ShapeError(
            f"addmm: {describe(x)} does not broadcast to the product's {shape}; reduce it first"
        )
    return product.cast(dtype)


def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * x + alpha * (mat @ vec)."""
    _check_rank("addmv", 2, mat)
    _check_rank("addmv", 1, vec)
    return _plus(x, mat, vec, beta, alpha, leaves_out=True)


def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * x + alpha * (mat1 @ mat2); beta 0 leaves x out, with its NaN."""
    _check_rank("addmm", 2, mat1, mat2)
    return _plus(x, mat1, mat2, beta, alpha, leaves_out=True)


def baddbmm(
    x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """beta * x + alpha * (batch1 @ batch2), of batches of matrices."""
    _check_rank("baddbmm", 3, batch1, batch2)
    _check_equal("baddbmm", batch1, 0, batch2, 0)
    return _plus(x, batch1, batch2, beta, alpha)


def addbmm(
    x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """beta * x + alpha * the sum over the batch of batch1 @ batch2."""
    _check_rank("addbmm", 3, batch1, batch2)
    _check_equal("addbmm", batch1, 0, batch2, 0)
    return _plus(x, batch1, batch2, beta, alpha, sum_first=True, leaves_out=True)


def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * x + alpha * the outer product of two vectors."""
    _check_rank("addr", 1, vec1, vec2)
    return _plus(x, vec1.unsqueeze(1), vec2.unsqueeze(0), beta, alpha)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of a chain of matrices, in the order of least work; the ends may be vectors.

    The order is found over literal extents; symbolic ones count as 1024. Cormen et al., 15.2.
    """
    if len(tensors) < 2:
        raise ShapeError(f"multi_dot: {len(tensors)} tensors; give at least two")
    first, last = tensors[0], tensors[-1]
    chain = [first.unsqueeze(0) if first.ndim == 1 else first, *tensors[1:-1]]
    chain.append(last.unsqueeze(1) if last.ndim == 1 else last)
    _check_rank("multi_dot", 2, *chain)
    ups, dtype = up_together(*chain)
    sizes = [_size(n) for n in (ups[0].extents[0], *(x.extents[1] for x in ups))]
    product = _multiplied(ups, _best_splits(sizes), 0, len(ups) - 1).cast(dtype)
    gone = [0] * (first.ndim == 1) + [1] * (last.ndim == 1)
    return reshape(product, tuple(n for k, n in enumerate(product.extents) if k not in gone))


def _size(extent: Expression) -> int:
    return extent.value if extent.is_const else 1024


def _best_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of a chain of matrices, matrix i being sizes[i] x sizes[i+1]."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    splits = {}
    # Shorter runs first: each is the best of its splits into two that are known already.
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = {
                k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            }
            splits[i, j] = min(costs, key=lambda k: costs[k])
            cost[i, j] = costs[splits[i, j]]
    return splits


def _multiplied(
    chain: Sequence[Tensor], splits: dict[tuple[int, int], int], first: int, last: int
) -> Tensor:
    if first == last:
        return chain[first]
    middle = splits[first, last]
    left = _multiplied(chain, splits, first, middle)
    return matmul(left, _multiplied(chain, splits, middle + 1, last))


@keeps
def matrix_power(x: Tensor, n: int) -> Tensor:
    """The square matrices of the last two dims multiplied n times, by squaring; n < 0: inverses."""
    if x.ndim < 2 or x.extents[-1] != x.extents[-2]:
        raise ShapeError(f"matrix_power: takes square matrices; got {describe(x)}")
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        ones = x.graph.eye(x.extents[-1], dtype=x.dtype)
        return ones.expand(x.extents)
    (base,), dtype = up_together(x)
    result: Tensor | None = None
    while n:
        if n & 1:
            result = base if result is None else matmul(result, base)
        n >>= 1
        base = matmul(base, base) if n else base
    assert result is not None
    return result.cast(dtype)


def trace(x: Tensor, offset: int = 0) -> Tensor:
    """The sum of a diagonal of the last two dims; `offset` moves it to the right."""
    if x.ndim < 2:
        raise ShapeError(f"trace: takes matrices in the last two dims; got {describe(x)}")
    return diagonal(x, offset, -2, -1).sum(-1)


# --- tensors --------------------------------------------------------------------------------------


@rounds("x", "other")
def tensordot(
    x: Tensor, other: Tensor, dims: Contracted = 2, *, axes: Contracted | None = None
) -> Tensor:
    """Sum over pairs of dims: the last n of x and first n of other, or the dims that are listed.

    `axes` is the array API's name of `dims`. The result has x's other dims, then other's.
    Raises ShapeError where paired extents differ.
    """
    dims = dims if axes is None else axes
    if isinstance(dims, int):
        if not 0 <= dims <= min(x.ndim, other.ndim):
            raise ShapeError(f"tensordot: {dims} dims of {describe(x)} and {describe(other)}")
        ours, theirs = list(range(x.ndim - dims, x.ndim)), list(range(dims))
    else:
        ours, theirs = (
            [
                axis_of("tensordot", d, t.ndim)
                for d in ([contracted] if isinstance(contracted, int) else contracted)
            ]
            for contracted, t in zip(dims, (x, other), strict=True)
        )
    if len(ours) != len(theirs):
        raise ShapeError(f"tensordot: {dims} pairs {len(ours)} dims with {len(theirs)}")
    for a, b in zip(ours, theirs, strict=True):
        if const(1) not in (x.extents[a], other.extents[b]):  # which broadcasts
            _check_equal("tensordot", x, a, other, b)
    axes_of("tensordot", ours, x.ndim)
    axes_of("tensordot", theirs, other.ndim)
    (first, second), dtype = up_together(x, other)
    left = [k for k in range(x.ndim) if k not in ours]
    right = [k for k in range(other.ndim) if k not in theirs]
    rows = permute(first, *left, *ours).unsqueeze([len(left) + k for k in range(len(right))])
    columns = permute(second, *right, *theirs)
    return sum_products(rows, columns, *range(-len(ours), 0)).cast(dtype)


def kron(x: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: out[i * m + j] = x[i] * other[j] in each dim; missing dims are 1."""
    rank = max(x.ndim, other.ndim)
    a, b = (reshape(t, (1,) * (rank - t.ndim) + t.extents) for t in (x, other))
    product = a.unsqueeze([2 * k + 1 for k in range(rank)]) * b.unsqueeze(
        [2 * k for k in range(rank)]
    )
    return reshape(product, [n * m for n, m in zip(a.extents, b.extents, strict=True)])


@rounds("x1", "x2", "weight", "bias")
def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out[..., o] = sum over i, j of x1[..., i] * weight[o, i, j] * x2[..., j], plus bias[o]."""
    _check_rank("bilinear", 3, weight)
    operands = (x1, x2, weight) if bias is None else (x1, x2, weight, bias)
    (a, b, w, *rest), dtype = up_together(*operands)
    if a.ndim != b.ndim or a.extents[:-1] != b.extents[:-1]:
        raise ShapeError(
            f"bilinear: {describe(x1)} and {describe(x2)} differ before their last dim; "
            "expand one of them"
        )
    _check_equal("bilinear", x1, -1, weight, 1)
    _check_equal("bilinear", x2, -1, weight, 2)
    rows = tensordot(a, w, ((-1,), (1,)))  # (..., out, j)
    total = sum_products(rows, b.unsqueeze(-2), -1)
    return (total + rest[0] if rest else total).cast(dtype)


# --- distances ------------------------------------------------------------------------------------


@in_float
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """p-norm distances of rows x1 (..., n, k) to rows x2 (..., m, k): (..., n, m).

    From the differences, whatever `compute_mode` says, so that near rows keep their distance.
    """
    if x1.ndim < 2 or x2.ndim < 2:
        raise ShapeError(f"cdist: takes (..., rows, k); got {describe(x1)} and {describe(x2)}")
    _check_equal("cdist", x1, -1, x2, -1)
    return vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances of all pairs of rows (0, 1), (0, 2) ... of x (n, k): n (n - 1) / 2.

    n is literal. In float32, or float64.
    """
    if x.ndim != 2 or not x.extents[0].is_const:
        raise ShapeError(f"pdist: {describe(x)}; it takes (rows, k), rows a literal extent")
    rows, columns = np.triu_indices(x.extents[0].value, 1)
    apart = take(x, rows, 0) - take(x, columns, 0)
    return vector_norm(apart, p, -1)
