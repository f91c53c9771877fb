"""Linear algebra against PyTorch and against its definitions, on both backends."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DimError, InputError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.matrices.decompositions import INDEFINITE, SINGULAR
from luminal.hlir import lapack
from tests.close import close
from tests.numerics.batch import BACKENDS, Case, check
from tests.numerics.recording import on, run

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)


def regular(*shape: int) -> Array:
    """Well-conditioned matrices."""
    found: Array = rng.normal(0, 0.3, shape) + 2 * np.eye(*shape[-2:])
    return found.astype(np.float32)


def definite(*shape: int) -> Array:
    a = rng.normal(0, 1, shape)
    found: Array = a @ a.swapaxes(-1, -2) + np.eye(shape[-1])
    return found.astype(np.float32)


def normal(*shape: int) -> Array:
    return rng.normal(0, 1, shape).astype(np.float32)


def both(name: str, *arrays: Array, **options: Any) -> Case:
    """A function that torch has under the same name, at the top or under linalg."""
    ours, theirs = (
        getattr(owner, name) if "." not in name else getattr(owner.linalg, name.removeprefix("."))
        for owner in (lm, torch)
    )
    return Case(
        f"{name}{[a.shape for a in arrays]}{options}",
        lambda *x: ours(*x, **options),
        lambda *x: theirs(*x, **options),
        arrays,
        ulp=100,  # LAPACK's bounds grow with the extents and the condition
    )


BATCHES: list[tuple[int, ...]] = [(3, 3), (1, 1), (2, 4, 4), (2, 3, 5, 5), (0, 3, 3), (2, 0, 0)]
SQUARE = [
    both(name, regular(*shape))
    for shape in BATCHES
    for name in (".det", ".slogdet", ".inv", ".inv_ex", ".qr", ".matrix_exp", "logdet", "pinverse")
]
DEFINITE = [
    both(name, definite(*shape))
    for shape in BATCHES
    for name in (".cholesky", ".cholesky_ex", ".eigvalsh", ".svdvals", ".matrix_rank", ".pinv")
]
LOWER = np.linalg.cholesky(definite(2, 4, 4))
# of ranks 1, 0, 2
DEFICIENT = np.stack([np.ones((3, 3)), np.zeros((3, 3)), np.diag([5, 0, 3])]).astype(np.float32)
FACTORS, PIVOTS = (x.numpy() for x in torch.linalg.lu_factor(torch.from_numpy(normal(2, 4, 4))))
SOLVED = [
    both(".solve", regular(3, 3), normal(3)),
    both(".solve", regular(3, 3), normal(3, 2)),
    both(".solve", regular(2, 3, 3), normal(2, 3)),
    both(".solve", regular(2, 3, 3), normal(3, 4)),
    both(".solve", regular(4, 1, 3, 3), normal(2, 3, 5)),
    both(".solve", regular(2, 3, 3), normal(2, 5, 3), left=False),
    both(".solve", regular(0, 0), normal(0, 2)),
    both(".solve", regular(3, 3), normal(3, 0)),
    both(".solve_ex", regular(2, 3, 3), normal(2, 3, 1)),
    both(".lstsq", normal(5, 3), normal(5, 2)),
    both(".lstsq", normal(2, 5, 3), normal(2, 5, 2), driver="gelsd"),
    both(".lstsq", normal(3, 5), normal(3)),
    both(".tensorinv", regular(6, 6).reshape(2, 3, 6)),
    both(".tensorinv", regular(6, 6).reshape(6, 2, 3), ind=1),
    both(".tensorsolve", regular(6, 6).reshape(2, 3, 6), normal(2, 3)),
    both(".tensorsolve", regular(6, 6).reshape(2, 6, 3), normal(2, 3), dims=(1,)),
    both(".pinv", DEFICIENT),
    both(".matrix_rank", DEFICIENT),
    both("pinverse", DEFICIENT[0], rcond=1e-5),  # else PyTorch's is what LAPACK rounds
    both(".pinv", DEFICIENT[:1], hermitian=True),
    both(".matrix_rank", DEFICIENT, tol=4.0),
    both(".pinv", normal(2, 3, 5), atol=1.0),
    both(".pinv", normal(3, 0)),
    both("cholesky_solve", normal(2, 4, 3), LOWER),
    both("cholesky_solve", normal(2, 4, 3), LOWER.swapaxes(-1, -2), upper=True),
    both("cholesky_inverse", LOWER),
    both("cholesky_inverse", LOWER.swapaxes(-1, -2), upper=True),
    both("lu_solve", normal(2, 4, 3), FACTORS, PIVOTS),
    both(".lu_solve", FACTORS, PIVOTS, normal(2, 4, 3), adjoint=True),
    both(".lu_solve", FACTORS, PIVOTS, normal(2, 3, 4), left=False),
    both(".matrix_power", regular(3, 3), n=-3),
    both("det", np.array([[0, 2], [3, 0]], np.float32)),
    both("logdet", np.array([[[0, 2], [3, 0]], [[1, 2], [2, 4]]], np.float32)),  # below 0, 0
]
TRIANGULAR = [
    both(".solve_triangular", regular(2, 3, 3), normal(2, *shape), **options)
    for shape, left in (((3, 5), True), ((5, 3), False))
    for options in (
        {"upper": upper, "unitriangular": unit, "left": left}
        for upper in (False, True)
        for unit in (False, True)
    )
]
LARGE = (rng.normal(0, 0.02, (2, 70, 70)) + np.eye(70)).astype(np.float32)  # more than one block
TRIANGULAR += [
    both(".solve_triangular", LARGE, normal(70, 2), upper=False),
    both(".solve_triangular", LARGE, normal(2, 3, 70), upper=True, left=False),
]
FACTORED = [
    *(both(".qr", normal(2, *shape), mode=mode)
      for shape in ((5, 3), (3, 5), (0, 3), (3, 0)) for mode in ("reduced", "complete", "r")),
    *(both("qr", normal(5, 3), some=some) for some in (True, False)),
    *(both(name, normal(2, *shape)) for shape in ((5, 3), (3, 5), (4, 4), (0, 3))
      for name in (".svdvals", ".lu_factor", ".lu")),
    *(both(".cond", regular(2, 4, 4), p=p) for p in (None, 2, -2, 1, float("inf"), "fro", "nuc")),
    *(both(".matrix_norm", normal(2, 5, 3), ord=ord, dim=dim) for ord in (2, -2, "nuc", "fro", 1)
      for dim in ((-2, -1), (0, 2))),
    both(".norm", normal(3, 4), ord=1), both(".norm", normal(3, 4), ord="nuc"),
    both(".norm", normal(3, 4)), both(".norm", normal(4), ord=1), both(".norm", normal(2, 3, 4)),
    both(".norm", normal(2, 3, 4), ord=3, dim=1), both("norm", normal(3, 4), p="nuc"),
    both(".cholesky", definite(2, 4, 4), upper=True), both("cholesky", definite(3, 3), upper=True),
    both(".eigvalsh", definite(3, 3), UPLO="U"), both(".matrix_exp", 9 * normal(2, 3, 3)),
    both("vander", normal(4)), both("vander", normal(4), N=2, increasing=True),
    both(".vander", normal(2, 3)), both(".vander", np.arange(5)),
    both("svd", normal(4, 3), compute_uv=False),
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", [SQUARE, DEFINITE, SOLVED, TRIANGULAR, FACTORED])
def test_like_torch(family: list[Case], backend: str) -> None:
    check(family, backend)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (3, 0), (0, 3)])
def test_vectors_of_svd_and_eigh_fulfil_their_equations(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    for full in (False, True):
        u, s, vh = run(lambda t, full=full: lm.linalg.svd(t, full), x)
        wanted = torch.linalg.svd(torch.from_numpy(x), full)
        assert [a.shape for a in (u, s, vh)] == [tuple(a.shape) for a in wanted]
        k = s.shape[-1]
        close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, 64)
        for q in (u, vh.swapaxes(-1, -2)):
            close(
                q.swapaxes(-1, -2) @ q,
                np.broadcast_to(np.eye(q.shape[-1]), q.shape[:-2] + (q.shape[-1],) * 2),
                64,
            )
    u, s, v = run(lambda t: t.svd(), x)
    close((u * s[..., None, :]) @ v.swapaxes(-1, -2), x, 64)
    symmetric = x @ x.swapaxes(-1, -2)
    for uplo in "LU":
        values, vectors = run(lambda t, uplo=uplo: lm.linalg.eigh(t, uplo), symmetric)
        close((vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2), symmetric, 256)


def test_only_one_triangle_is_read() -> None:
    a = definite(4, 4)
    half = np.where(np.tri(4, dtype=bool), a, np.nan).astype(np.float32)
    found = run(lambda x: [lm.linalg.cholesky(x), lm.linalg.eigvalsh(x)], half)
    close(found[0], np.linalg.cholesky(a), 32)
    close(found[1], np.linalg.eigvalsh(a), 32)
    b = normal(4, 2)
    close(run(lambda x, y: lm.linalg.solve_triangular(x, y, upper=False), half, b),
          np.linalg.solve(np.tril(a), b), 64)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BF16, np.int32])
def test_other_dtypes(dtype: Any) -> None:
    x = (4 * np.eye(3) + np.arange(9).reshape(3, 3)).astype(dtype)
    wide = x.astype(np.float64)
    inverse, det, q = run(lambda t: [t.inverse(), t.det(), t.qr().Q], x)
    wanted = np.dtype(np.float32) if dtype is np.int32 else np.dtype(dtype)
    assert inverse.dtype == det.dtype == q.dtype == wanted
    close(inverse, np.linalg.inv(wide), 64)
    close(det, np.linalg.det(wide), 64)


@pytest.mark.parametrize("backend", BACKENDS)
def test_dims_that_are_bound_at_each_run(backend: str) -> None:
    cx = lm.Graph()
    b, n, m = (cx.dim(name, 0, 9) for name in "bnm")
    x, y = cx.tensor((b, n, n), name="x"), cx.tensor((n, m), name="y")
    lm.linalg.solve(x, y).output("solved")
    for name, part in zip("qr", lm.linalg.qr(x[:, :, : n // 2]), strict=True):
        part.output(name)
    (lm.linalg.det(x) + 1).output("det")
    exe = lm.compile(cx, backend=backend)
    for sizes in ((2, 4, 3), (0, 4, 3), (3, 1, 0), (1, 5, 2)):
        a, r = regular(sizes[0], sizes[1], sizes[1]), normal(sizes[1], sizes[2])
        found = exe({"x": a, "y": r})
        close(found["solved"], np.linalg.solve(a, np.broadcast_to(r, (sizes[0], *r.shape))), 64)
        close(found["det"], np.linalg.det(a.astype(np.float64)) + 1, 16)
        close(found["q"] @ found["r"], a[:, :, : sizes[1] // 2], 16)
    lm.linalg.inv(y).output("inverse")
    square = lm.compile(cx, backend=backend)
    with pytest.raises(DimError, match="requirement m == n does not hold"):
        square({"x": a, "y": r})


# --- without a result -----------------------------------------------------------------------------

SINGULARS = np.stack([np.eye(3), np.diag([1.0, 0, 2]), np.ones((3, 3))]).astype(np.float32)
INDEFINITES = np.stack([np.eye(3), np.diag([1.0, 1, -2]), np.eye(3)]).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("fn", "arrays", "text"),
    [
        (lm.linalg.inv, [SINGULARS], r"linalg.inv: the matrix at \[1\] is singular: its pivot 2"),
        (lm.inverse, [SINGULARS[2]], r"linalg.inv: the matrix is singular: its pivot 2 is 0; use"),
        (lm.solve, [SINGULARS, SINGULARS], r"linalg.solve: the matrix at \[1\] is singular"),
        (lm.linalg.cholesky, [INDEFINITES], r"cholesky: the matrix at \[1\] is not positive-def.*"
                                            r"minor of order 3 is not; .* use cholesky_ex"),
        (lm.linalg.cholesky, [np.full((2, 2), np.nan, np.float32)], "minor of order 1"),
        (lm.linalg.svd, [np.full((2, 2), np.nan, np.float32)], "svd: the matrix has no singular"),
        (lm.linalg.svdvals, [np.full((2, 2), np.inf, np.float32)], "it holds NaN or infinity"),
    ],
)  # fmt: skip
def test_matrices_without_a_result_are_named_in_the_run(
    fn: Any, arrays: list[Array], text: str, backend: str
) -> None:
    with on(backend), pytest.raises(InputError, match=text):
        run(fn, *arrays)


def test_info_instead_of_errors() -> None:
    inverse, info = run(lm.linalg.inv_ex, SINGULARS)
    assert info.tolist() == [0, 2, 2]
    assert info.dtype == np.int32
    assert np.isnan(inverse[1:]).all()
    close(inverse[0], np.eye(3))
    factor, info = run(lm.linalg.cholesky_ex, INDEFINITES)
    assert info.tolist() == [0, 3, 0]
    close(factor[2], np.eye(3))
    solved, info = run(lm.linalg.solve_ex, SINGULARS, normal(3, 3, 1))
    assert info.tolist() == [0, 2, 2]
    assert np.isfinite(solved[0]).all()


def test_values_that_are_not_finite_like_torch() -> None:
    nan, inf = np.full((2, 2), np.nan, np.float32), np.array([[1, np.inf], [2, 3]], np.float32)
    for x in (nan, inf):
        t = torch.from_numpy(x)
        found = run(lambda t: [t.inverse(), t.det(), lm.linalg.eigvalsh(t)], x)
        for mine, wanted in zip(
            found, (t.inverse(), t.det(), torch.linalg.eigvalsh(t)), strict=True
        ):
            close(mine, wanted.numpy())
    zero = np.array([[0, 0], [1, 2]], np.float32)
    found = run(lambda a, b: lm.linalg.solve_triangular(a, b, upper=False), zero, normal(2, 1))
    assert not np.isfinite(found).any()


def test_a_solution_has_nan_where_elimination_brings_it_like_torch() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((60, 5, 5)).astype(np.float32)
    a[::3] = np.triu(a[::3])
    for each in a:
        each[tuple(rng.integers(0, 5, 2))] = rng.choice([np.nan, np.inf])
    b = rng.standard_normal((60, 5, 2)).astype(np.float32)
    found = run(lambda a, b: [*lm.linalg.lu_factor(a), lm.linalg.solve_ex(a, b).result], a, b)
    given = torch.from_numpy(a)
    wanted = [*torch.linalg.lu_factor(given), torch.linalg.solve_ex(given, torch.from_numpy(b))[0]]
    for mine, theirs in zip(found, wanted, strict=True):
        assert np.array_equal(np.isnan(mine), theirs.isnan().numpy())
    assert np.array_equal(found[1], wanted[1].numpy())


@pytest.mark.long
def test_made_up_operands_of_a_search_raise_nothing() -> None:
    kernel = lapack.Evaluation("linalg.inv", lapack.inverse, 1, SINGULAR)
    out = np.zeros_like(SINGULARS)
    with pytest.raises(InputError):
        kernel(SINGULARS, out)
    pickle.loads(pickle.dumps(kernel))(SINGULARS, out)
    assert np.isnan(out[1]).all()
    cx = lm.Graph()
    cx.tensor((3, 3), name="x").cholesky().output("y")  # no random matrix has a factor
    exe = lm.compile(cx, mode="0.5s")
    close(exe({"x": definite(3, 3)})["y"] * 0, np.zeros((3, 3)))


def test_equal_calls_are_one_call() -> None:
    cx = Recorder()
    x = cx.tensor((3, 3))
    before = x.inverse()
    count = len(cx.builder)
    assert x.inv().value == before.value
    assert lm.linalg.inv(x).value == before.value
    assert len(cx.builder) == count


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x, y: x.det(), r"linalg.det: takes square matrices; got x0: f32\[3, 4\]: 3 != 4"),
        (lambda x, y: x.inverse(), "linalg.inv: takes square matrices"),
        (lambda x, y: x.cholesky(), "linalg.cholesky: takes square matrices"),
        (lambda x, y: x.logdet(), "takes square matrices"),
        (lambda x, y: x.matrix_exp(), "takes square matrices"),
        (lambda x, y: lm.linalg.eigh(x), "linalg.eigh: takes square matrices"),
        (lambda x, y: lm.linalg.solve(x, y), "linalg.solve: takes square matrices"),
        (lambda x, y: lm.linalg.solve(y, x.mT), r"does not fit x1: f32\[3, 3\]: 4 != 3"),
        (lambda x, y: lm.linalg.solve(y, x[0, :3], left=False), "is a vector; left=False"),
        (lambda x, y: lm.linalg.solve(y.expand(2, 3, 3), x.expand(5, 3, 4)), "linalg.solve.*2.*5"),
        (lambda x, y: lm.linalg.solve_triangular(y, x[:, 0], upper=True), "holds no matrices"),
        (lambda x, y: x[0].qr(), r"linalg.qr: takes matrices in the last two dims; got f32\[4\]"),
        (lambda x, y: lm.linalg.qr(x, "raw"), 'mode .raw.; give "reduced", "complete" or "r"'),
        (lambda x, y: lm.linalg.eigh(y, "X"), 'UPLO=.X.; give "L" or "U"'),
        (lambda x, y: lm.linalg.lstsq(x, y, driver="qr"), "driver 'qr'; give"),
        (lambda x, y: lm.linalg.lstsq(x, y.expand(4, 3, 3)[:, :2]), "differ in rows"),
        (lambda x, y: lm.linalg.tensorinv(x, 0), "ind is 0"),
        (lambda x, y: lm.linalg.norm(x.expand(2, 3, 4), 1), "give dim, one or two"),
        (lambda x, y: lm.linalg.norm(x, "nuc", 1), "takes two dims"),
        (lambda x, y: lm.linalg.matrix_norm(x, "nuc", (0, 0)), "name one dimension twice"),
    ],
)
def test_shapes_that_do_not_fit_are_named_before_the_run(fn: Any, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        run(fn, normal(3, 4), normal(3, 3))


def test_the_pivot_that_is_named_and_the_minor() -> None:
    assert lapack.first_zero(SINGULARS[1]) == 2
    assert lapack.first_minor(np.diag([1.0, 1, -1, 1])) == 3
    assert INDEFINITE.at(np.diag([-1.0, 1])) == 1
