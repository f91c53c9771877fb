"""Jacobians and Hessians beside torch.func's, for functions of several arguments and shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.close import close

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)
X = rng.standard_normal((2, 3)).astype(np.float32)
Y = rng.standard_normal((3, 4)).astype(np.float32)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "of elements": lambda x, y: (x**3).sin(),
    "of a product": lambda x, y: (x @ y).tanh(),
    "to a scalar": lambda x, y: ((x @ y) ** 2).sum(),
    "along a dim": lambda x, y: x.cumsum(1) * x.sum() + y[0, 0],
    "of none": lambda x, y: y * 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", ["jacrev", "jacfwd"])
def test_jacobians_are_torchs(name: str, transform: str) -> None:
    function = FUNCTIONS[name]
    # Forward mode loads decompositions in PyTorch, which warn; both modes give the same.
    theirs, ours = torch.func.jacrev, getattr(lm, transform)
    for argnums in (0, -1, (0, 1)):
        expected = theirs(function, argnums)(torch.tensor(X), torch.tensor(Y))
        found = ours(function, argnums)(lm.tensor(X), lm.tensor(Y))
        pairs = zip(found, expected, strict=True) if argnums == (0, 1) else [(found, expected)]
        for ours_, theirs_ in pairs:
            close(ours_.numpy(), theirs_.numpy(), ulp=16)


def test_hessians_are_torchs() -> None:
    def function(x: Any, y: Any) -> Any:
        return ((x @ y).exp()).sum() + (x**2).sum().sin()

    for argnums in (0, 1):
        twice = torch.func.jacrev(torch.func.jacrev(function, argnums), argnums)
        expected = twice(torch.tensor(X), torch.tensor(Y))
        found = lm.hessian(function, argnums)(lm.tensor(X), lm.tensor(Y))
        close(found.numpy(), expected.numpy(), ulp=32)


def test_under_jit_and_differentiated_again() -> None:
    @lm.jit
    def penalty(x: Any) -> Any:
        return lm.grad(lambda x: (lm.jacrev(lambda x: (x**3).sin())(x) ** 2).sum())(x)

    x = torch.tensor(X[0], requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(lambda x: (x**3).sin(), x, create_graph=True)
    (expected,) = torch.autograd.grad((jacobian**2).sum(), x)
    close(np.asarray(penalty(X[0])), expected.numpy(), ulp=32)


TRANSFORMS: dict[str, Any] = {
    "grad": lambda f, x: lm.grad(lambda x: f(x).sum())(x),
    "value_and_grad": lambda f, x: lm.value_and_grad(lambda x: f(x).sum())(x)[1],
    "vjp": lambda f, x: lm.vjp(f, x)[1](lm.ones(3))[0],
    "jvp": lambda f, x: lm.jvp(f, (x,), (lm.ones(3),))[1],
    "jacrev": lambda f, x: lm.jacrev(f)(x),
    "jacfwd": lambda f, x: lm.jacfwd(f)(x),
    "hessian": lambda f, x: lm.hessian(lambda x: f(x).sum())(x),
    "vmap": lambda f, x: lm.vmap(f)(x),
    "custom_vjp": lambda f, x: lm.custom_vjp(f, lambda g, _y, _x: g)(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_parameters_are_arguments_as_tensors_are(name: str) -> None:
    """Of values of its own: what the function closes over is another variable."""
    p = lm.Parameter((3,))
    p.set(X[0, :3])
    found = TRANSFORMS[name](lambda x: x**2 * p.sin(), p)
    x = lm.tensor(X[0, :3])
    expected = TRANSFORMS[name](lambda y: y**2 * x.sin(), lm.tensor(X[0, :3]))
    close(found.numpy(), expected.numpy(), ulp=4)


def test_what_is_refused() -> None:
    x = lm.tensor(X)
    with pytest.raises(lm.GraphError, match=r"jacrev: argnums has 1, the call 1 positional"):
        lm.jacrev(lambda x: x, 1)(x)
    with pytest.raises(lm.GraphError, match=r"jacfwd: argument 0 is a int; pass a Tensor"):
        lm.jacfwd(lambda x: x)(2)
    with pytest.raises(lm.GraphError, match=r"jacrev: the function gives .*must give one Tensor"):
        lm.jacrev(lambda x: (x, x))(x)  # type: ignore[arg-type,return-value]
