"""Variables of functions are values of their own: views of them, and what else is equal to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import GraphError
from tests.close import close_each

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
X = np.arange(1.0, 7.0).reshape(2, 3)


class _Torch:
    """The same names for PyTorch."""

    grad = staticmethod(lambda f, argnums=0: torch.func.grad(f, argnums))
    jvp = staticmethod(torch.func.jvp)

    @staticmethod
    def vjp(f: Any, *primals: Any) -> Any:
        return torch.func.vjp(f, *primals)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "turned": lambda of, x: of.grad(lambda h: (h.T * 3).sum())(x.T),
    "turned_and_read": lambda of, x: of.grad(lambda h: (h * 2).sum() + (h.T * 5).sum())(x.T),
    "reshaped_slice": lambda of, x: of.grad(lambda h: (h[1:3] * h[2:4]).sum())(x.reshape(6)),
    "vjp_of_a_view": lambda of, x: of.vjp(lambda h: h.reshape(6) * 2, x.T)[1](x.reshape(6))[0],
    "jvp_of_a_view": lambda of, x: of.jvp(lambda h: h.reshape(6), (x.T,), (x.T * 2,))[1],
    "same_twice": lambda of, x: of.grad(lambda a, b: (a * 2 + b * 3).sum(), argnums=1)(x, x),
    "closure": lambda of, x: of.grad(lambda a: (a * x).sum())(x),
    "jvp_of_one": lambda of, x: of.jvp(lambda a, b: a * b, (x, x), (x * 0 + 1, x * 0))[1],
    "nested": lambda of, x: of.grad(
        lambda a: (a * of.grad(lambda b: (b * b).sum())(a)).sum()
    )(x),
    "nested_closure": lambda of, x: of.grad(
        lambda a: (a * of.grad(lambda b: (a * b * b).sum())(a)).sum()
    )(x),
    "view_and_closure": lambda of, x: of.grad(lambda a: (a.T * x[0, 1] * a[0, 1]).sum())(x),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_like_torch(name: str) -> None:
    cx = lm.Graph()
    x = cx.tensor(X.shape, np.float64, "x")
    FUNCTIONS[name](lm, x).output("y")
    wanted = FUNCTIONS[name](_Torch, torch.from_numpy(X))
    close_each(lm.compile(cx)({"x": X})["y"], wanted.numpy())


VIEWS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "view_of_it": lambda x: (h := x.T, h.T.sum()),
    "part_of_it": lambda x: (h := x.reshape(6), (h * 2).sum() + h[1:3].sum()),
    "repeated": lambda x: (h := x.unsqueeze(0).expand(2, 2, 3), h.sum() + (x * 2).sum()),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_whose_readers_cannot_be_told_apart_is_refused(name: str) -> None:
    view, loss = VIEWS[name](lm.Graph().tensor(X.shape, np.float64, "x"))
    with pytest.raises(GraphError, match=r"is a view of x: f64\[2, 3\], which the loss reads in"):
        lm.grad(loss, view)


def test_a_view_that_is_all_the_loss_reads() -> None:
    cx = lm.Graph()
    x = cx.tensor(X.shape, np.float64, "x")
    view = x.exp().T
    lm.grad((view * view).sum(), view).output("y")
    close_each(lm.compile(cx)({"x": X})["y"], 2 * np.exp(X.T))
