"""What the kernels of linear algebra compute: NumPy's LAPACK, over batches of matrices.

Each meaning takes arrays (..., rows, columns) of one batch and gives its results, or raises NumPy's
LinAlgError where one of the matrices has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.hlir.attributes import Array

Results = tuple[Array, ...]
LinAlgError = np.linalg.LinAlgError


@dataclass(frozen=True, slots=True)
class Failure:
    """What a matrix without a result is, and the way round it. `at`: LAPACK's info for it, > 0."""

    wrong: str
    fix: str
    at: Callable[[Array], int]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The function of a custom kernel: takes operands, then places for results and maybe for info.

    Where a matrix has no result, it is NaN, and its info is not 0; without a place for info that is
    an InputError. In the processes of a search, where operands are made up, nothing is raised.
    `is_complex`: of complex matrices, which lie as their parts, which results are so too.
    """

    name: str
    meaning: Callable[..., Results]
    operands: int
    failure: Failure
    has_info: bool = False
    is_complex: tuple[bool, ...] = ()
    strict: bool = True

    def __call__(self, *arrays: Array) -> None:
        count = self.operands * (2 if self.is_complex else 1)
        operands, places = arrays[:count], arrays[count:]
        if self.is_complex:
            operands = tuple(map(_joined, operands[::2], operands[1::2]))
        info = places[-1] if self.has_info else np.zeros(operands[0].shape[:-2], np.int32)
        outs = places[:-1] if self.has_info else places
        with np.errstate(all="ignore"):
            self._evaluate(operands, outs, info)
        if self.strict and not self.has_info and info.any():
            # The first matrix in order, as LAPACK's own loop over a batch would meet it, so that
            # the message is the same in each run.
            at = np.argwhere(info)[0].tolist()
            which = f"the matrix at {at}" if at else "the matrix"
            wrong = self.failure.wrong.format(info=int(info[tuple(at)]))
            raise InputError(f"{self.name}: {which} {wrong}; {self.failure.fix}")

    def _evaluate(self, operands: Results, outs: Results, info: Array) -> None:
        """Computes all matrices at once; where one fails, each alone."""
        info[...] = 0
        try:
            # NumPy's gufuncs say only that some matrix of the batch failed. Batches mostly succeed,
            # so they are tried whole, and only one that fails is gone through alone.
            for out, result in zip(outs, self._parts(*operands), strict=True):
                out[...] = result
        except LinAlgError:
            for at in np.ndindex(info.shape):
                one = tuple(x[at] for x in operands)
                try:
                    here: tuple[Any, ...] = self._parts(*one)
                except LinAlgError:
                    here = (np.nan,) * len(outs)
                    # LAPACK counts from 1, and 0 stands for success: a failure whose place is
                    # unknown must not look like one.
                    info[at] = max(1, self.failure.at(one[0]))
                for out, part in zip(outs, here, strict=True):
                    out[at] = part

    def _parts(self, *operands: Array) -> Results:
        """The results, of complex ones both parts."""
        results = self.meaning(*operands)
        if not self.is_complex:
            return results
        pairs = zip(results, self.is_complex, strict=True)
        return tuple(
            part for y, is_pair in pairs for part in ((y.real, y.imag) if is_pair else (y,))
        )

    # In another process it is a candidate of a search, with operands that were made up: these may
    # be singular, and a candidate is not wrong for that.
    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.name, self.meaning, self.operands, self.failure, self.has_info)
        return _lenient, (*fields, self.is_complex)


def _joined(real: Array, imag: Array) -> Array:
    numbers: Array = np.empty(real.shape, np.result_type(real, np.complex64))
    numbers.real, numbers.imag = real, imag
    return numbers


def _lenient(*fields: Any) -> Evaluation:
    return replace(Evaluation(*fields), strict=False)


# --- square matrices ------------------------------------------------------------------------------


def inverse(a: Array) -> Results:
    # By `solve`, so that infinities and NaN in a matrix reach the same elements of the inverse as
    # of a solution.
    return solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def solve(a: Array, b: Array) -> Results:
    """x with a @ x = b; NaN and infinities in `a` reach what elimination, done in order, adds them
    to, while NumPy's blocked one may leave them behind.
    """
    if np.isfinite(a).all():
        # The plain case is LAPACK's, which is many times faster than the loops below.
        return (np.linalg.solve(a, b),)
    factors, pivots = lu(a)
    if (np.diagonal(factors, axis1=-2, axis2=-1) == 0).any():
        raise LinAlgError
    (order,) = row_order(factors, pivots[..., None])
    x = np.take_along_axis(b, np.broadcast_to(order[..., None], b.shape), -2)
    count = x.shape[-2]
    for k in range(count):
        x[..., k + 1 :, :] -= factors[..., k + 1 :, k, None] * x[..., k, None, :]
    for k in reversed(range(count)):
        x[..., k, :] /= factors[..., k, k, None]
        x[..., :k, :] -= factors[..., :k, k, None] * x[..., k, None, :]
    return (x,)


def determinant(a: Array) -> Results:
    """From the logarithm (NumPy's way), so in float64, where that costs no digit of float32."""
    return (np.linalg.det(_wide(a)),)


def _wide(a: Array) -> Array:
    """a in float64 or complex128."""
    return a.astype(np.result_type(a, np.float64))


def cofactors(a: Array) -> Results:
    """det(a) * inv(a).T, of singular matrices too, by the singular values; in float64."""
    # By the inverse they would be det / 0 for a singular matrix, whose gradient is finite all the
    # same.
    u, s, vh = np.linalg.svd(_finite(_wide(a)))
    # u and vh are unitary: their determinants are the signs (phases) that the product of singular
    # values, which is never negative, has lost.
    sign = np.linalg.det(u) * np.linalg.det(vh)
    others = np.where(np.eye(s.shape[-1], dtype=bool), 1, s[..., None, :]).prod(-1)
    return (sign[..., None, None] * ((u * others[..., None, :]) @ vh).conj(),)


def log_determinant(a: Array) -> Results:
    sign, logarithm = np.linalg.slogdet(a)
    return sign, logarithm


def cholesky(a: Array) -> Results:
    """L with L @ L.T.conj() = a, from the lower triangle. A NaN is not positive."""
    factor = np.linalg.cholesky(a)
    # LAPACK compares a pivot with 0, and NaN compares as false: it would come back as a factor of
    # NaN.
    if not (np.diagonal(factor, axis1=-2, axis2=-1).real > 0).all():
        raise LinAlgError
    return (factor,)


def first_minor(a: Array) -> int:
    """The order of the first leading minor that is not positive-definite."""
    # If a leading minor is not positive definite, no larger one is, so the first can be found by
    # halving.
    low, high = 0, len(a)  # of order `low` the minor is, of order `high` it is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cholesky(a[:middle, :middle])
            low = middle
        except LinAlgError:
            high = middle
    return high


def triangular(a: Array, b: Array) -> Results:
    """x with a @ x = b, a lower triangular: by substitution, inf and NaN for zeros in its diagonal.

    Blocks of rows are multiplied at once.
    """
    x = np.array(b)
    # Rows above a block act on it in one product of matrices, which BLAS does; only within a block
    # are rows taken one by one.
    extent, block = a.shape[-1], 32
    for start in range(0, extent, block):
        stop = min(start + block, extent)
        x[..., start:stop, :] -= a[..., start:stop, :start] @ x[..., :start, :]
        for k in range(start, stop):
            row = a[..., k : k + 1, start:k] @ x[..., start:k, :]
            x[..., k : k + 1, :] = (x[..., k : k + 1, :] - row) / a[..., k : k + 1, k : k + 1]
    return (x,)


# The numerator of Pade's approximant of order 13, and the norm up to which it holds in float64.
PADE = [math.comb(13, k) * math.factorial(26 - k) / math.factorial(13) for k in range(14)]
PADE_NORM = 5.371920351148152


def exponential(a: Array) -> Results:
    """exp(a / 2**s) ** (2**s), s so that a / 2**s is small. Higham 2005, algorithm 2.3."""
    a = a.astype(np.float64)
    norm = np.abs(a).sum(-2).max(-1, initial=0)
    # The logarithm of an infinite norm would be no number of halvings; the NaN comes out by the
    # products all the same.
    size = np.where(np.isfinite(norm), norm, 1)
    halvings = np.ceil(np.log2(np.maximum(size / PADE_NORM, 1))).astype(np.int64)
    a = a / 2.0 ** halvings[..., None, None]
    square, eye = a @ a, np.eye(a.shape[-1])
    powers = [eye, square]
    # Even powers up to 12 are enough: of order 13 the odd part is `a` times a polynomial in its
    # square.
    while len(powers) < 7:
        powers.append(powers[-1] @ square)
    even = sum(c * p for c, p in zip(PADE[0::2], powers, strict=True))
    odd = a @ sum(c * p for c, p in zip(PADE[1::2], powers, strict=True))
    result = np.linalg.solve(even - odd, even + odd)
    # Matrices of one batch need different numbers of squarings; all are squared, and those that are
    # done keep what they had.
    for k in range(int(halvings.max(initial=0))):
        more = (halvings > k)[..., None, None]
        result = np.where(more, result @ result, result)
    return (result,)


# --- factors --------------------------------------------------------------------------------------


def qr(a: Array) -> Results:
    q, r = np.linalg.qr(a, "reduced")
    return q, r


def full_qr(a: Array) -> Results:
    q, r = np.linalg.qr(a, "complete")
    return q, r


def only_r(a: Array) -> Results:
    r: Array = np.linalg.qr(a, "r")  # type: ignore[assignment]  # one array in this mode
    return (r,)


def lu(a: Array) -> Results:
    """The two factors of a matrix in one, and the row (from 1) that each row was exchanged with.

    Gaussian elimination with partial pivoting, column by column. Golub and Van Loan, 3.4.
    A NaN is chosen where its row comes first, as LAPACK's search for the greatest goes.
    """
    a = np.array(a)
    rows, columns = a.shape[-2:]
    count = min(rows, columns)
    pivots = np.zeros((*a.shape[:-2], count), np.int32)
    for k in range(count):
        size = np.abs(a[..., k:, k])
        if np.isnan(size).any():
            size[..., :1] = np.where(np.isnan(size[..., :1]), np.inf, size[..., :1])
            size = np.where(np.isnan(size), -1, size)
        # Pivots decide all that follows, so they are chosen as LAPACK does: by the greatest
        # absolute value, the first of equals.
        chosen = k + np.argmax(size, axis=-1)
        pivots[..., k] = chosen + 1
        at = chosen[..., None, None]
        taken = np.take_along_axis(a, np.broadcast_to(at, (*a.shape[:-2], 1, columns)), -2)
        np.put_along_axis(a, at, a[..., k : k + 1, :].copy(), -2)
        a[..., k : k + 1, :] = taken
        pivot = taken[..., k : k + 1]
        # A pivot of 0 means that its whole column below is 0: divided by 1 it stays so, where 0 / 0
        # would spread NaN over what is defined.
        a[..., k + 1 :, k : k + 1] /= np.where(pivot == 0, 1, pivot)
        a[..., k + 1 :, k + 1 :] -= a[..., k + 1 :, k : k + 1] * a[..., k : k + 1, k + 1 :]
    return a, pivots


def row_order(a: Array, pivots: Array) -> Results:
    """Which row stands where after the exchanges, counted from 0; `a` tells how many rows."""
    order = np.broadcast_to(np.arange(a.shape[-2]), a.shape[:-1]).copy()
    for k in range(pivots.shape[-2]):
        at = pivots[..., k, :] - 1
        chosen = np.take_along_axis(order, at, -1)
        np.put_along_axis(order, at, order[..., k : k + 1].copy(), -1)
        order[..., k : k + 1] = chosen
    return (order,)


def first_zero(a: Array) -> int:
    """The number (from 1) of the first pivot that is 0; the last one's, where rounding hides it."""
    diagonal = np.diagonal(lu(a)[0])
    return int(np.argmax(diagonal == 0)) + 1 if (diagonal == 0).any() else diagonal.size


def _finite(a: Array) -> Array:
    if not np.isfinite(a).all():
        raise LinAlgError
    # LAPACK's iterations for singular values need not end on infinities and NaN, or end with any
    # numbers; such a matrix has no result.
    return a


def svd(a: Array) -> Results:
    u, s, vh = np.linalg.svd(_finite(a), full_matrices=False)
    return u, s, vh


def full_svd(a: Array) -> Results:
    u, s, vh = np.linalg.svd(_finite(a), full_matrices=True)
    return u, s, vh


def singular_values(a: Array) -> Results:
    return (np.linalg.svd(_finite(a), compute_uv=False),)


def symmetric_eigen(a: Array) -> Results:
    """The ascending eigenvalues of the lower triangle, then vectors as columns; NaN where it is not
    finite.
    """
    lower, is_finite = _lower(a)
    values, vectors = np.linalg.eigh(lower, "L")
    return np.where(is_finite[..., 0], values, np.nan), np.where(is_finite, vectors, np.nan)


def symmetric_values(a: Array) -> Results:
    """The values of `symmetric_eigen`."""
    lower, is_finite = _lower(a)
    return (np.where(is_finite[..., 0], np.linalg.eigvalsh(lower, "L"), np.nan),)


def _lower(a: Array) -> tuple[Array, Array]:
    """The lower triangles, zeros instead of those that are not finite, and which are."""
    # Whatever stands above the diagonal is not read, a NaN neither; by itself LAPACK would scale by
    # it.
    lower = np.tril(a)
    is_finite = np.asarray(np.isfinite(lower).all((-2, -1), keepdims=True))
    return np.where(is_finite, lower, 0), is_finite


def unknown(a: Array) -> int:
    """The place at which LAPACK failed, for functions that have nothing to tell of it."""
    return 1
