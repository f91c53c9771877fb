"""The derivatives of the kernels of linear algebra, by what they compute (`hlir/lapack.py`).

Giles, "An extended collection of matrix derivative results for forward and reverse mode automatic
differentiation" (2008), unless a rule names another source. A rule takes the operands, the results
and their gradients, None where nothing flows, and gives each operand's gradient. Gradients of
symmetric matrices are symmetric. Vectors of equal singular values or eigenvalues have none: NaN.
The rules are those of complex matrices: of real ones an adjoint is a transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from luminal.base.errors import GraphError
from luminal.frontend.complex.making import imag
from luminal.frontend.complex.matrices import svd_of_gradient
from luminal.frontend.handle import Pair, of_tensors
from luminal.frontend.matrices import decompositions
from luminal.frontend.matrices.decompositions import eigh, matrix_exp, row_order, svd
from luminal.frontend.movement import padding, views
from luminal.frontend.movement.indexing import gather
from luminal.frontend.pointwise import binary
from luminal.frontend.pointwise.binary import broadcast
from luminal.frontend.reduce.sorting import argsort
from luminal.frontend.tensor import Tensor
from luminal.hlir import lapack
from luminal.hlir.lapack import Evaluation
from luminal.shape.expression import Expression
from luminal.shape.prove import prove

# Of complex matrices too.
cofactors = of_tensors(decompositions.cofactors)
inv_ex = of_tensors(decompositions.inv_ex)
solve_ex = of_tensors(decompositions.solve_ex)
solve_triangular = of_tensors(decompositions.solve_triangular)
tril, triu = of_tensors(padding.tril), of_tensors(padding.triu)
concat, narrow = of_tensors(views.concat), of_tensors(views.narrow)
where = of_tensors(binary.where)

Found: TypeAlias = "Sequence[Tensor | None]"
Rule: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor], Found], Found]


def _symmetric(x: Tensor) -> Tensor:
    return (x + x.mH) * 0.5


def _diagonal(x: Tensor) -> Tensor:
    """Where the diagonal of a square matrix is (bool)."""
    return x.graph.eye(x.extents[-1], dtype=bool)


def _or_zeros(g: Tensor | None, like: Any) -> Tensor:
    zeros: Tensor = like.graph.zeros(like.extents, dtype=like.dtype)
    return zeros if g is None else g


# --- square matrices ------------------------------------------------------------------------------


def _inverse(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    y, g = results[0], gradients[0]
    return [None if g is None else -(y.mH @ g @ y.mH)]


def _solve(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    (a, _), x, g = args, results[0], gradients[0]
    if g is None:
        return [None, None]
    right = solve_ex(a.mH, g).result
    return [-(right @ x.mH), right]


def _determinant(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    (a,), (g,) = args, gradients
    return [None if g is None else g.to(a.dtype).unsqueeze((-2, -1)) * cofactors(a).conj()]


def _cofactors(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    """The gradient through C = det(A) * inv(A).T: tr(G.T @ inv(A).T) * C - C @ G.T @ inv(A).T, of
    complex matrices with the conjugates of C and inv(A).
    """
    (a,), (y,), (g,) = args, results, gradients
    if g is None:
        return [None]
    inverse, y = inv_ex(a).inverse.mH, y.conj()
    trace = (g * inverse).sum((-2, -1), keepdim=True)
    return [trace * y - y @ g.mT @ inverse]


def _log_determinant(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    (a,), (sign, _), (to_sign, g) = args, results, gradients
    if isinstance(sign, Pair) and to_sign is not None:
        # The sign is exp(i * angle), and i * angle the imaginary part of the determinant's log.
        turn: Tensor = imag(to_sign * sign.conj())  # type: ignore[arg-type]
        g = Pair.kind(_or_zeros(g, turn), turn)
    return [None if g is None else g.unsqueeze((-2, -1)) * inv_ex(a).inverse.mH]


def _cholesky(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    """Murray, "Differentiation of the Cholesky decomposition" (arXiv 1602.07527)."""
    factor, g = results[0], gradients[0]
    if g is None:
        return [None]
    inner = tril(factor.mH @ g)
    inner = where(_diagonal(inner), inner * 0.5, inner)
    left = solve_triangular(factor.mH, inner, upper=True)
    return [_symmetric(solve_triangular(factor, left, upper=False, left=False))]


def _triangular(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    (a, _), (x,), (g,) = args, results, gradients
    if g is None:
        return [None, None]
    right = solve_triangular(a.mH, g, upper=True)
    return [-tril(right @ x.mH), right]


def _exponential(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    """The upper right block of exp([[A.T, G], [0, A.T]]). Mathias, "A chain rule for matrix
    functions and applications" (1996)."""
    (a,), (g,) = args, gradients
    if g is None:
        return [None]
    n = a.extents[-1]
    top = concat((a.mH, g), -1)
    low = concat((g.graph.zeros(a.extents, dtype=a.dtype), a.mH), -1)
    exponential = matrix_exp(concat((top, low), -2))
    return [narrow(narrow(exponential, -2, 0, n), -1, n, n)]


# --- factors --------------------------------------------------------------------------------------


def _qr(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    """Walter and Lehmann, "Algorithmic differentiation of linear algebra functions" (2010). The
    columns behind a square are Q @ R's of theirs."""
    (a,), (q, r) = args, results
    gq, gr = (_or_zeros(g, y) for g, y in zip(gradients, results, strict=True))
    m, n = a.extents[-2:]
    is_tall = _at_least("linalg.qr", m, n)
    if is_tall and m is not n and q.extents[-1] is m:
        raise GraphError(
            f'linalg.qr: mode="complete" of {m} rows and {n} columns has no derivative; '
            'use mode="reduced"'
        )
    if is_tall:
        return [_square_qr(q, r, gq, gr)]
    behind = narrow(a, -1, m, n - m)
    left, right = narrow(gr, -1, 0, m), narrow(gr, -1, m, n - m)
    first = _square_qr(q, narrow(r, -1, 0, m), gq + behind @ right.mH, left)
    return [concat((first, q @ right), -1)]


def _square_qr(q: Tensor, r: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    upper = triu(gr @ r.mH - q.mH @ gq)
    both = where(_diagonal(upper), upper.real, upper + upper.mH)
    return solve_triangular(r.mH, gq + q @ both, upper=False, left=False)


def _only_r(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    raise GraphError('linalg.qr: mode="r" has no derivative, which needs Q; use mode="reduced"')


def _lu(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    """The gradient of a square's L and U by Giles; rows below it are L @ U's of theirs, and columns
    behind it.
    """
    (a,), (factors, pivots), (g, _) = args, results, gradients
    if g is None:
        return [None]
    m, n = a.extents[-2:]
    is_tall = _at_least("linalg.lu", m, n)
    k = n if is_tall else m
    square = narrow(narrow(factors, -2, 0, k), -1, 0, k)
    lower = tril(square, -1) + a.graph.eye(k, dtype=a.dtype)
    upper = triu(square)
    block = narrow(narrow(g, -2, 0, k), -1, 0, k)
    to_lower, to_upper = tril(block, -1), triu(block)
    if is_tall and m is not n:
        below = narrow(factors, -2, n, m - n)
        rest = solve_triangular(upper.mH, narrow(g, -2, n, m - n), upper=False, left=False)
        to_upper = to_upper - triu(below.mH @ rest)
    if not is_tall:
        behind = narrow(factors, -1, m, n - m)
        rest = solve_triangular(lower.mH, narrow(g, -1, m, n - m), upper=True)
        to_lower = to_lower - tril(rest @ behind.mH, -1)
    inner = tril(lower.mH @ to_lower, -1) + triu(to_upper @ upper.mH)
    inner = solve_triangular(upper.mH, inner, upper=False, left=False)
    gradient = solve_triangular(lower.mH, inner, upper=True)
    if m is not n:
        gradient = concat((gradient, rest), -2 if is_tall else -1)
    # Rows were exchanged for pivots: each gradient goes back to the row that it is of.
    rows = argsort(row_order(factors, pivots), -1).unsqueeze(-1)
    return [gather(gradient, -2, broadcast(rows, gradient.extents))]


def _at_least(what: str, rows: Expression, columns: Expression) -> bool:
    """Whether there are as many rows as columns or more; GraphError where dims leave it open."""
    answer = prove(rows >= columns)
    if answer is None:
        raise GraphError(
            f"{what}: {rows} rows, {columns} columns: its derivative needs to know which are more; "
            "give literal extents, or dims whose intervals tell"
        )
    return answer


# --- values and vectors ---------------------------------------------------------------------------


def _svd(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    """Vectors beyond the singular values count as constants, as in PyTorch.

    Townsend, "Differentiating the singular value decomposition" (2016).
    """
    (u, s, vh), (gu, gs, gvh) = results, gradients
    m, n, k = u.extents[-2], vh.extents[-1], s.extents[-1]
    u, vh = narrow(u, -1, 0, k), narrow(vh, -2, 0, k)
    column, row = s.unsqueeze(-2), s.unsqueeze(-1)
    inner = u.graph.zeros((*s.extents, k), dtype=s.dtype)
    if gu is not None:
        gu = narrow(gu, -1, 0, k)
        inner = inner + _skew(u.mH @ gu) * column
    if gvh is not None:
        gvh = narrow(gvh, -2, 0, k)
        inner = inner + row * _skew(vh @ gvh.mH)
    if gu is not None or gvh is not None:
        inner = inner / _gaps(s * s)
    if gs is not None:
        inner = inner + where(_diagonal(inner), gs.unsqueeze(-1), 0)
    left = u @ inner
    if gu is not None and m != k:
        scaled = gu / column
        left = left + scaled - u @ (u.mH @ scaled)
    gradient = left @ vh
    if gvh is not None and n != k:
        scaled = gvh / row
        gradient = gradient + u @ (scaled - (scaled @ vh.mH) @ vh)
    return [gradient]


def _skew(x: Tensor) -> Tensor:
    return x - x.mH


def _gaps(x: Tensor) -> Tensor:
    """x[j] - x[i] at (i, j), 1 on the diagonal."""
    apart = x.unsqueeze(-2) - x.unsqueeze(-1)
    return where(_diagonal(apart), 1, apart)


def _singular_values(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    (a,), (g,) = args, gradients
    if g is None:
        return [None]
    u, _, vh = svd_of_gradient(a) if isinstance(a, Pair) else svd(a, full_matrices=False)
    return [(u * g.unsqueeze(-2)) @ vh]


def _symmetric_eigen(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    (values, vectors), (to_values, to_vectors) = results, gradients
    inner = vectors.graph.zeros(vectors.extents, dtype=vectors.dtype)
    if to_vectors is not None:
        inner = where(_diagonal(inner), 0, (vectors.mH @ to_vectors) / _gaps(values))
    if to_values is not None:
        inner = inner + where(_diagonal(inner), to_values.unsqueeze(-1), 0)
    return [_symmetric(vectors @ inner @ vectors.mH)]


def _symmetric_values(args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found) -> Found:
    (a,), (g,) = args, gradients
    if g is None:
        return [None]
    vectors = eigh(a).eigenvectors
    return [(vectors * g.unsqueeze(-2)) @ vectors.mH]


RULES: Mapping[Callable[..., Any], Rule] = {
    lapack.inverse: _inverse,
    lapack.solve: _solve,
    lapack.determinant: _determinant,
    lapack.cofactors: _cofactors,
    lapack.log_determinant: _log_determinant,
    lapack.cholesky: _cholesky,
    lapack.triangular: _triangular,
    lapack.exponential: _exponential,
    lapack.qr: _qr,
    lapack.full_qr: _qr,
    lapack.only_r: _only_r,
    lapack.lu: _lu,
    lapack.svd: _svd,
    lapack.full_svd: _svd,
    lapack.singular_values: _singular_values,
    lapack.symmetric_eigen: _symmetric_eigen,
    lapack.symmetric_values: _symmetric_values,
}
"""By the meaning of a kernel."""


def of_matrices(
    kernel: Evaluation, args: Sequence[Tensor], results: Sequence[Tensor], gradients: Found
) -> Found:
    """The gradients of a kernel's operands, of complex matrices of both parts of each."""
    rule = RULES[kernel.meaning]
    if not kernel.is_complex:
        return rule(args, results, gradients)
    numbers = [Pair.kind(*both) for both in zip(args[::2], args[1::2], strict=True)]
    count = len(results) - kernel.has_info
    both_of = _pairs(results[:count], kernel.is_complex)
    flowing = _pairs(gradients[:count], kernel.is_complex)
    pulled = rule(numbers, both_of, flowing)
    return [part for g in pulled for part in (g.parts if isinstance(g, Pair) else (None, None))]


def _pairs(values: Sequence[Any], is_complex: Sequence[bool]) -> list[Any]:
    """Complex results, or gradients of them, of their parts; None where neither part has one."""
    remaining = iter(values)
    parts = [[next(remaining) for _ in range(1 + is_pair)] for is_pair in is_complex]
    joined: list[Any] = []
    for both in parts:
        some = next((part for part in both if part is not None), None)
        is_whole = len(both) == 1 or some is None
        joined.append(some if is_whole else Pair.kind(*(_or_zeros(x, some) for x in both)))
    return joined
