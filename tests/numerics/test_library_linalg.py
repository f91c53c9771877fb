"""Products of vectors, matrices and tensors, einsum and distances against PyTorch and NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from luminal.base.errors import ShapeError
from luminal.frontend.matrices.einsum import _path, einsum
from luminal.frontend.matrices.products import bilinear, cdist, multi_dot, tensordot
from tests.close import close
from tests.numerics.batch import BACKENDS, Case, check
from tests.numerics.recording import run

rng = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(0, 1, shape).astype(np.float32)


def integers(*shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(-9, 9, shape)


def named(name: str, *shapes: tuple[int, ...], **options: Any) -> Case:
    """A method that torch.Tensor has too."""
    arrays = [normal(*shape) for shape in shapes]
    fn = lambda *xs: getattr(xs[0], name)(*xs[1:], **options)  # noqa: E731
    return Case(f"{name}{shapes}{options}", fn, fn, arrays)


METHODS = [
    named("dot", (7,), (7,)),
    named("dot", (0,), (0,)),
    named("vdot", (7,), (7,)),
    named("inner", (2, 3, 4), (5, 4)),
    named("inner", (4,), (4,)),
    named("inner", (3,), ()),
    named("outer", (3,), (4,)),
    named("ger", (3,), (1,)),
    named("mv", (3, 4), (4,)),
    named("mm", (3, 4), (4, 5)),
    named("mm", (3, 0), (0, 5)),
    named("bmm", (2, 3, 4), (2, 4, 5)),
    named("bmm", (0, 3, 4), (0, 4, 5)),
    named("addmv", (3,), (3, 4), (4,), beta=0.5, alpha=2),
    named("addmm", (5,), (3, 4), (4, 5)),
    named("addmm", (3, 5), (3, 4), (4, 5), beta=0.2, alpha=-3),
    named("addr", (3, 4), (3,), (4,), alpha=3),
    named("baddbmm", (2, 3, 5), (2, 3, 4), (2, 4, 5), beta=2),
    named("addbmm", (3, 5), (2, 3, 4), (2, 4, 5)),
    named("matrix_power", (2, 3, 3), n=5),
    named("matrix_power", (3, 3), n=0),
    named("matrix_power", (3, 3), n=1),
    named("trace", (3, 5)),
    named("trace", (1, 1)),
    named("kron", (2, 3), (4, 2)),
    named("kron", (3,), (2, 2, 2)),
    named("kron", (), (2, 2)),
    named("cross", (4, 3), (4, 3), dim=1),
    named("cross", (3, 5, 3), (3, 5, 3), dim=-1),
    named("cross", (1, 3, 1), (4, 3, 5), dim=-2),
]

FUNCTIONS = [
    Case(
        "linear",
        lambda x, w, b: x.linear(w, b),
        torch.nn.functional.linear,
        [normal(2, 3, 4), normal(5, 4), normal(5)],
    ),
    Case(
        "linear to a vector",
        lambda x, w: x.linear(w),
        torch.nn.functional.linear,
        [normal(3, 4), normal(4)],
    ),
    Case(
        "vecdot",
        lambda x, y: x.vecdot(y, axis=0),
        lambda x, y: torch.linalg.vecdot(x, y, dim=0),
        [normal(4, 3), normal(4, 3)],
    ),
    Case(
        "tensordot 1",
        lambda x, y: tensordot(x, y, 1),
        lambda x, y: torch.tensordot(x, y, 1),
        [normal(2, 3), normal(3, 4)],
    ),
    Case(
        "tensordot 0",
        lambda x, y: tensordot(x, y, 0),
        lambda x, y: torch.tensordot(x, y, 0),
        [normal(2, 3), normal(4)],
    ),
    Case(
        "tensordot with an extent of 1",
        tensordot,
        torch.tensordot,
        [normal(2, 3, 1), normal(3, 4, 2)],
    ),
    Case(
        "tensordot pairs",
        lambda x, y: tensordot(x, y, ((-1, 0), (1, 2))),
        lambda x, y: torch.tensordot(x, y, ((2, 0), (1, 2))),
        [normal(2, 3, 4), normal(5, 4, 2)],
    ),
    Case(
        "multi_dot",
        lambda *xs: multi_dot(xs),
        lambda *xs: torch.linalg.multi_dot(xs),
        [normal(2, 9), normal(9, 3), normal(3, 8), normal(8, 4)],
    ),
    Case(
        "multi_dot of vectors",
        lambda *xs: multi_dot(xs),
        lambda *xs: torch.linalg.multi_dot(xs),
        [normal(9), normal(9, 3), normal(3)],
    ),
    Case(
        "bilinear",
        bilinear,
        torch.nn.functional.bilinear,
        [normal(2, 6, 3), normal(2, 6, 4), normal(5, 3, 4), normal(5)],
    ),
    Case(
        "cross without dim",
        lambda x, y: x.cross(y),
        lambda x, y: torch.linalg.cross(x, y, dim=1),
        [normal(4, 3, 3), normal(4, 3, 3)],
    ),
    *(
        Case(
            f"cdist {p}",
            lambda x, y, p=p: cdist(x, y, p),
            lambda x, y, p=p: torch.cdist(x, y, p),
            [normal(2, 5, 3), normal(4, 3)],
            64,
        )
        for p in (0, 1, 2, 3.5, np.inf)
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_products(backend: str) -> None:
    check(METHODS + FUNCTIONS, backend)


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("ji,jk", [(4, 3), (4, 5)]),
    ("i,i->", [(4,), (4,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,j->ji", [(3,), (4,)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->i", [(3, 4)]),
    ("ii->", [(4, 4)]),
    ("ii->i", [(4, 4)]),
    ("iji->j", [(3, 4, 3)]),
    ("ii", [(3, 3)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (6, 4, 5)]),
    ("...ij,...jk", [(2, 3, 4), (4, 5)]),
    ("...i->...", [(2, 3, 4)]),
    ("...,...->...", [(3, 4), (4,)]),
    ("i...,i->...", [(3, 4, 2), (3,)]),
    ("ij,jk,kl->il", [(2, 9), (9, 3), (3, 4)]),
    ("ab,bc,cd,de,ea->", [(2, 3), (3, 4), (4, 2), (2, 5), (5, 2)]),
    ("ijk,ilm,njm,nlk,abc->abc", [(2, 3, 4), (2, 5, 3), (4, 3, 3), (4, 5, 4), (2, 2, 2)]),
    ("ij,ij,ij->ij", [(3, 4)] * 3),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bn,anm,bm->ba", [(2, 3), (4, 3, 5), (2, 5)]),
    ("i,i,ii->i", [(3,), (3,), (3, 3)]),
    ("ij,jk->ik", [(3, 1), (4, 5)]),
    ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)]),
    ("ij,jk->ik", [(3, 0), (0, 5)]),
    ("ij , jk -> ik", [(1, 4), (4, 1)]),
    ("Ab,bA->", [(3, 4), (4, 3)]),
    (",->", [(), ()]),
    ("...ik,...j->ij", [(2, 3, 4), (2, 5)]),
    ("a,->a", [(3,), ()]),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_einsum(backend: str) -> None:
    cases = [
        Case(
            f"{equation} {shapes}",
            lambda *xs, e=equation: einsum(e, *xs),
            lambda *xs, e=equation: torch.einsum(e, *xs),
            [np.abs(normal(*shape)) for shape in shapes],  # nothing cancels
            64,
        )
        for equation, shapes in EQUATIONS
    ]
    cases.append(
        Case(
            "list of ints",
            lambda x, y: einsum("ij,kj", [x, y]),
            lambda x, y: x @ y.T,
            [integers(3, 4), integers(5, 4)],
        )
    )
    check(cases, backend)


def test_einsum_of_many_operands_is_greedy() -> None:
    names = "abcdefghijk"
    equation = ",".join(a + b for a, b in pairwise(names)) + "->ak"
    arrays = [normal(2, 2) for _ in names[1:]]
    expected = np.linalg.multi_dot(arrays)
    close(run(lambda *xs: einsum(equation, *xs), *arrays), expected, ulp=64)


def test_einsum_takes_the_cheapest_order() -> None:
    """A vector at the end of a chain makes every step a matrix times a vector."""
    sizes = dict.fromkeys("abcd", 100)
    labels = [frozenset("ab"), frozenset("bc"), frozenset("cd"), frozenset("d")]
    assert _path(labels, frozenset("a"), sizes) == (0, (1, (2, 3))) or _path(
        labels, frozenset("a"), sizes
    ) == (((3, 2), 1), 0)


def test_symbolic_products() -> None:
    x, y = normal(3, 4), normal(3, 4)
    shapes, dims = [("s", 4), ("s", 4)], {"s": 3}
    both = lambda a, b: (einsum("id,jd->ij", a, b), a.cdist(b), a.inner(b), a.kron(b))  # noqa: E731
    found = run(both, x, y, shapes=shapes, dims=dims)
    close(found[0], x @ y.T, ulp=32)
    close(found[1], torch.cdist(torch.from_numpy(x), torch.from_numpy(y)).numpy(), ulp=64)
    close(found[2], x @ y.T, ulp=32)
    close(found[3], np.kron(x, y))


def test_storage_products_round_once() -> None:
    """bf16 operands: everything in f32, one Cast down."""
    x, y, z = (normal(*s).astype(BF16) for s in ((3, 40), (40, 2), (3, 2)))
    wide = [a.astype(np.float32) for a in (x, y, z)]
    expected = (wide[0] @ wide[1] * 2 + wide[2]).astype(BF16)
    np.testing.assert_array_equal(
        run(lambda a, b, c: c.addmm(a, b, alpha=2), x, y, z).astype(np.float32),
        expected.astype(np.float32),
    )
    assert run(lambda a, b: einsum("ij,jk", a, b), x, y).dtype == BF16
    small = rng.integers(-128, 128, (3, 40)).astype(np.int8)
    close(
        run(lambda a: einsum("ij,kj", a, a), small),
        small.astype(np.int32) @ small.T.astype(np.int32),
    )


def test_addmm_without_its_addend() -> None:
    """beta 0 leaves NaN of the addend out."""
    x, y = normal(2, 3), normal(3, 2)
    close(run(lambda a, b: (a[:, :2] * np.nan).addmm(a, b, beta=0), x, y), x @ y)


ERRORS = [
    (lambda x, y: x.dot(y), "dot: takes tensors of 1 dims"),
    (lambda x, y: x.mm(y), r"matmul: inner dims differ: \(3, 4\) @ \(3, 4\); 4 != 3"),
    (lambda x, y: x.bmm(y), "bmm: takes tensors of 3 dims"),
    (lambda x, y: tensordot(x, y, ((0,), (1,))), "tensordot: .* differ: 3 != 4"),
    (lambda x, y: einsum("ij", x, y), "einsum: 'ij' has 1 parts for 2 operands"),
    (lambda x, y: einsum("i,ij", x, y), "einsum: 'i' of 'i,ij' has 1 labels for 2 dims"),
    (lambda x, y: einsum("ij,jk", x, y), "einsum: 'j' of 'ij,jk' is 4 and, in .*, 3"),
    (lambda x, y: einsum("ij,ij->k", x, y), "labels that no operand has"),
    (lambda x, y: einsum("i1,ij", x, y), "labels are letters"),
    (lambda x, y: x.matrix_power(2), "matrix_power: takes square matrices"),
    (lambda x, y: x.cross(y, dim=1), "cross: .* need extent 3 in dim 1"),
    (lambda x, y: x[:, :3].expand(2, 3, 3).addmm(x, y.T), "addmm: .* does not broadcast"),
]


@pytest.mark.parametrize(("fn", "message"), ERRORS)
def test_errors(fn: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        run(fn, normal(3, 4), normal(3, 4))
