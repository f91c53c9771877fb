"""Norms, decompositions and variances of complex numbers: values and gradients of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DTypeError, InputError, ShapeError
from luminal.session.eager import default_graph
from tests.close import close_to_greatest
from tests.long_share import long_but

torch = pytest.importorskip("torch")

Case = Callable[[Any, Any], Any]


def numbers(seed: int, *shape: int) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


RIGHT, TALL = numbers(1, 2, 3, 2), numbers(2, 2, 4, 3)
SQUARES: dict[str, Case] = {
    "inv": lambda n, a: n.linalg.inv(a),
    "inverse": lambda n, a: a.inverse(),
    "inv_ex": lambda n, a: n.linalg.inv_ex(a)[0],
    "det": lambda n, a: n.linalg.det(a),
    "slogdet": lambda n, a: tuple(n.linalg.slogdet(a)),
    "solve": lambda n, a: n.linalg.solve(a, n.tensor(RIGHT)),
    "solve a vector": lambda n, a: n.linalg.solve(a[0], n.tensor(RIGHT[0, :, 0])),
    "solve from the right": lambda n, a: n.linalg.solve(a, n.tensor(RIGHT).mT, left=False),
    "solve_ex of a real side": lambda n, a: n.linalg.solve_ex(a, n.tensor(RIGHT.real) * a.sum())[0],
    "triangular": lambda n, a: n.linalg.solve_triangular(a, n.tensor(RIGHT), upper=False),
    "triangular of ones": lambda n, a: n.linalg.solve_triangular(
        a, n.tensor(RIGHT).mT, upper=True, left=False, unitriangular=True
    ),
    "cholesky": lambda n, a: n.linalg.cholesky(a @ a.mH + n.eye(3)),
    "upper cholesky": lambda n, a: n.linalg.cholesky(a @ a.mH + n.eye(3), upper=True),
    "whole qr": lambda n, a: tuple(n.linalg.qr(a, mode="complete")),
    "matrix_power": lambda n, a: n.linalg.matrix_power(a, 3) + n.linalg.matrix_power(a, -2),
}
ORDERS = ("fro", "nuc", 2, -2, 1)
OTHERS: dict[str, Case] = {
    "qr": lambda n, a: tuple(n.linalg.qr(a)),
    "qr of wide ones": lambda n, a: tuple(n.linalg.qr(a.mT)),
    "svdvals": lambda n, a: n.linalg.svdvals(a),
    "matrix norms": lambda n, a: tuple(n.linalg.matrix_norm(a, k) for k in ORDERS),
    "matrix norm of dims": lambda n, a: n.linalg.matrix_norm(a, "nuc", dim=(1, 0), keepdim=True),
    "norm": lambda n, a: n.norm(a) + n.norm(a, 3, dim=1).sum() + n.norm(a, "nuc", dim=(1, 2)).sum(),
    "linalg.norm": lambda n, a: n.linalg.norm(a[0], 2) + n.linalg.norm(a, dim=(0, 1)).sum(),
    "vector_norm": lambda n, a: n.linalg.vector_norm(a, 1.5, dim=0, keepdim=True),
    "var": lambda n, a: n.var(a, dim=1) + a.var(dim=(0, 1), correction=0),
    "std": lambda n, a: n.std(a, dim=(0, 2), keepdim=True),
    "var_mean": lambda n, a: tuple(n.var_mean(a, dim=1)) + tuple(n.std_mean(a, dim=0)),
    "vdot": lambda n, a: n.vdot(a[0, :, 0], a[1, :, 1]) + a[0, 0].vdot(a[1, 0]),
    "vecdot": lambda n, a: n.linalg.vecdot(a[0], a[1], dim=0),
}  # fmt: skip
CASES = SQUARES | OTHERS
QUICK = ("solve", "cholesky", "matrix norms", "std")


def leaves(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def weighted(parts: list[Any], tensor: Callable[[Any], Any]) -> Any:
    """A scalar that depends on both parts of all results, otherwise than on their size."""
    total: Any = 0
    for number, x in enumerate(parts):
        weight = numbers(10 + number, *x.shape)
        if x.is_complex():
            turned = x * tensor(weight)
            total = total + turned.real.sum() + turned.imag.square().sum()
        else:
            total = total + (x * tensor(np.asarray(weight.real))).sum()
    return total


def check(name: str) -> None:
    """Values and gradients in float64: LAPACK's on both sides, and some products."""
    a = numbers(0, 2, 3, 3) if name in SQUARES else TALL
    x: Any = lm.tensor(a).requires_grad_()
    theirs = torch.tensor(a, requires_grad=True)
    found, wanted = leaves(CASES[name](lm, x)), leaves(CASES[name](torch, theirs))
    for y, z in zip(found, wanted, strict=True):
        exact = z.detach().resolve_conj().numpy()
        assert y.numpy().dtype == exact.dtype
        close_to_greatest(y.numpy(), exact, 1e-12)
    gradient = lm.grad(weighted(found, lm.tensor), x).numpy()
    weighted(wanted, torch.tensor).backward()
    close_to_greatest(gradient, theirs.grad.resolve_conj().numpy(), 1e-10)


@pytest.mark.parametrize("name", long_but(CASES, QUICK))
def test_values_and_gradients_are_pytorchs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_graph(), "_backend", "reference")
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_compiled_values_and_gradients_are_pytorchs(name: str) -> None:
    check(name)


@pytest.mark.long
def test_second_derivatives_of_a_determinant() -> None:
    """Of a singular matrix too, whose cofactors need no inverse."""
    a = numbers(0, 3, 3)
    x: Any = lm.tensor(a).requires_grad_()
    first = lm.grad(lm.linalg.det(x).abs().square(), x)
    second = lm.grad(first.abs().square().sum(), x).numpy()
    theirs = torch.tensor(a, requires_grad=True)
    value = torch.linalg.det(theirs).abs().square()
    (step,) = torch.autograd.grad(value, theirs, create_graph=True)
    step.abs().square().sum().backward()
    close_to_greatest(second, theirs.grad.numpy(), 1e-9)
    flat: Any = lm.tensor(np.outer(a[0], a[1])).requires_grad_()  # of rank 1: all cofactors are 0
    assert np.abs(lm.grad(lm.linalg.det(flat).real, flat).numpy()).max() < 1e-12


def test_wrong_matrices_are_refused() -> None:
    z: Any = lm.tensor(np.array([[1j, 1], [-1, 1j]]))
    with pytest.raises(InputError, match=r"linalg\.inv: the matrix is singular: its pivot 2 is 0"):
        z.inverse().numpy()
    with pytest.raises(InputError, match=r"minor of order 1 is not"):
        lm.linalg.cholesky(z).numpy()
    assert lm.linalg.det(z).numpy() == 0
    assert lm.linalg.inv_ex(z).info.numpy() == 2
    for wrong, kind, text in (
        (lambda: lm.linalg.det(z[:1]), ShapeError, r"linalg\.det: takes square matrices"),
        (lambda: lm.linalg.solve(z, z[0], left=False), ShapeError, "is a vector; left=False"),
        (lambda: lm.linalg.qr(z, "best"), ShapeError, "mode 'best'; give"),
        (lambda: lm.linalg.matrix_norm(z, 5), ShapeError, "ord=5 is not one of"),
        (lambda: lm.linalg.eigh(z), DTypeError, "eigh: takes real Tensors, got a ComplexTensor"),
        (lambda: lm.linalg.svd(z), DTypeError, "svd: takes real Tensors, got a ComplexTensor"),
    ):
        with pytest.raises(kind, match=text):
            wrong()
