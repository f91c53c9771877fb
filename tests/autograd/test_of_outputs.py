"""`lm.autograd.grad` gives what torch.autograd.grad gives, inside of models too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.nn import functional as F

Array = np.ndarray[Any, Any]


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 1, shape)


def residual(there: Any, u: Any, x: Any, t: Any, *, ones: Any) -> Any:
    """Burgers' equation, as ports write it."""
    (u_x,) = there.autograd.grad(u, x, grad_outputs=ones(u), create_graph=True)
    u_xx = there.autograd.grad(u_x.sum(), x, retain_graph=True, create_graph=True)[0]
    u_t = there.autograd.grad(u.sum(), t, create_graph=True)[0]
    return u_t + u * u_x - 0.1 * u_xx


class Ours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).to("float64")

    def forward(self, x: Any, t: Any) -> Any:
        u = self.net(lm.cat([x, t], dim=1))
        return residual(lm, u, x, t, ones=lm.ones_like)


class Theirs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)
        ).double()

    def forward(self, x: Any, t: Any) -> Any:
        u = self.net(torch.cat([x, t], dim=1))
        return residual(torch, u, x, t, ones=torch.ones_like)


@pytest.mark.long
def test_a_network_of_physics_trains() -> None:
    """Third derivatives: of a loss of second ones in the weights. `x` and `t` are views of one."""
    mine, other = Ours(), Theirs()
    mine.load_state_dict({k: v.detach().numpy() for k, v in other.state_dict().items()})
    ours: Any = lm.optim.SGD(mine.parameters(), lr=0.05)
    theirs = torch.optim.SGD(other.parameters(), lr=0.05)
    for k in range(3):
        rows = drawn(7, 2, seed=k)
        given: Any
        for there, model, optimizer, given in (
            (lm, mine, ours, lm.tensor(rows)), (torch, other, theirs, torch.from_numpy(rows)),
        ):  # fmt: skip
            x, t = given[:, :1], given[:, 1:]
            x.requires_grad_()
            t.requires_grad_()
            left = model(x, t)
            loss = (left**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert there in (lm, torch)
        for name, value in other.state_dict().items():
            # Float64, three steps of Adam, whose root makes small gradients' errors larger.
            np.testing.assert_allclose(mine.state_dict()[name], value.numpy(), 1e-9, 1e-11)


def penalty(there: Any, network: Any, real: Any, fake: Any, share: Any) -> Any:
    """That of WGAN-GP, at values that are computed."""
    between = share * real + (1 - share) * fake
    between.requires_grad_(True)
    scores = network(between)
    slopes = there.autograd.grad(
        outputs=scores, inputs=between, grad_outputs=there.ones_like(scores), create_graph=True,
    )[0]  # fmt: skip
    return ((slopes.norm(2, dim=1) - 1) ** 2).mean()


def test_a_gradient_penalty() -> None:
    real, fake, w = drawn(5, 3), drawn(5, 3, seed=1), drawn(3, 1, seed=2)
    share = np.random.default_rng(3).random((5, 1))

    def both(there: Any, tensor: Any) -> tuple[Any, Any]:
        weight = tensor(w).requires_grad_()
        loss = penalty(there, lambda x: (x @ weight).tanh(), *map(tensor, (real, fake, share)))
        return loss, there.autograd.grad(loss, weight)[0]

    found, expected = both(lm, lm.tensor), both(torch, torch.from_numpy)
    for a, b in zip(found, expected, strict=True):
        # Float64: a few roundings.
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), 1e-12)


def test_without_create_graph_gradients_are_constants() -> None:
    def slope(there: Any, tensor: Any, *, create: bool) -> Any:
        x = tensor(drawn(4)).requires_grad_()
        (g,) = there.autograd.grad((x**3).sum(), [x], create_graph=create)
        return there.autograd.grad((g * x).sum(), x)[0]

    for create in (True, False):
        found = slope(lm, lm.tensor, create=create)
        expected = slope(torch, torch.from_numpy, create=create)
        # Float64: a few roundings.
        np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-12)


def test_parameters_and_what_is_not_used() -> None:
    layer, other = nn.Linear(3, 2), lm.Parameter(np.ones(2, np.float32), name="spare")
    assert layer.bias is not None
    loss = (layer(lm.tensor(drawn(4, 3).astype(np.float32))) ** 2).sum()
    w, b = lm.autograd.grad(loss, layer.parameters())
    assert w is not None
    assert b is not None
    assert (w.shape, b.shape) == ((2, 3), (2,))
    assert lm.autograd.grad(loss, [other, layer.bias], allow_unused=True)[0] is None
    (zeros,) = lm.autograd.grad(loss, other, materialize_grads=True)
    assert zeros is not None
    assert zeros.tolist() == [0, 0]
    with pytest.raises(lm.GraphError, match=r"do not depend on input 1, .*spare.*allow_unused=Tr"):
        lm.autograd.grad(loss, [layer.weight, other])


NUMBER: Any = 1.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: lm.autograd.grad(x * 2, x), "no scalar; reduce it"),
        (lambda x: lm.autograd.grad(x * 2, x, lm.ones(4)), r"f32\[4\]\S* has another shape"),
        (lambda x: lm.autograd.grad(NUMBER, x), r"an output is 1.0, and must be a Tensor"),
        (lambda x: lm.autograd.grad(x.sum(), [x, NUMBER]), "1.0 is no Tensor and no Parameter"),
        (lambda x: lm.autograd.grad(x.sum(), []), "got no inputs"),
        (lambda x: lm.autograd.grad([], x), "got no outputs"),
        (lambda x: lm.autograd.grad([x.sum()] * 2, x, [None]), "1 grad_outputs for 2 outputs"),
        (lambda x: lm.autograd.grad(x.sum(), lm.arange(3)), "holds int64"),
        (lambda x: lm.autograd.grad(x.sum(), x, is_grads_batched=True), r"lm.vmap\(lm.vjp"),
        (
            lambda x: lm.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True),
            "leave allow_unused out",
        ),
        (lambda x: lm.autograd.grad((x[:2] + x.sum()).sum(), x[:2]), r"Call view.requires_grad_"),
        (lambda x: lm.autograd.grad(x.sum(), lm.Graph().tensor((3,))), "is of .*, the loss of"),
    ],
    ids=range(12),
)  # fmt: skip
def test_what_is_refused(call: Any, words: str) -> None:
    with pytest.raises(lm.LuminalError, match=f"autograd.grad: .*{words}"):
        call(lm.tensor(np.ones(3, np.float32)))


UNARY = ("tanh", "sin", "exp", "sigmoid", "square", "cos", "softplus")


def composed(there: Any, functional: Any, rng: Any, xs: list[Any], depth: int) -> Any:
    """Values of values, some of them gradients of what came before: each draws the same numbers."""
    for _ in range(depth):
        kind = rng.choice(["unary", "product", "sum", "matrix", "gradient", "view"])
        i, j = (int(k) for k in rng.integers(len(xs), size=2))
        if kind == "unary":
            name = str(rng.choice(UNARY))
            new = functional.softplus(xs[i]) if name == "softplus" else getattr(xs[i], name)()
        elif kind == "product":
            new = xs[i] * xs[j] * 0.5
        elif kind == "sum":
            new = xs[i].sum(0, keepdim=True) * 0.3 + xs[j]
        elif kind == "matrix":
            new = (xs[i] @ xs[j].mT) @ xs[j] * 0.1
        elif kind == "view":
            new = there.cat([xs[i][1:], xs[j][:1]], 0)
        else:
            ys = [xs[i].sin(), (xs[j] * xs[0]).tanh()]
            created = bool(rng.integers(2))
            got = there.autograd.grad(
                ys, [xs[0], xs[1]], [xs[i].detach(), there.ones_like(ys[1])],
                create_graph=created, allow_unused=True, retain_graph=True,
            )  # fmt: skip
            # PyTorch refuses outputs that depend on no variable.
            new = sum(g for g in got if g is not None) + 0.1 * xs[0]
        xs.append(new.tanh())
    return xs[-1] + 0.1 * xs[-2] * xs[0]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_drawn_compositions(seed: int) -> None:
    shape = tuple(int(k) for k in np.random.default_rng(seed).integers(1, 4, size=2))
    depth = 3 + seed % 5

    def both(there: Any, functional: Any, xs: list[Any]) -> list[Any]:
        out = composed(there, functional, np.random.default_rng(seed), list(xs), depth)
        first = there.autograd.grad(
            out, xs, there.ones_like(out), create_graph=True, allow_unused=True
        )
        total = sum((g**2).sum() for g in first if g is not None)
        second = there.autograd.grad(total, xs, allow_unused=True, materialize_grads=True)
        return [out, *(g for g in first if g is not None), *second]

    given = [drawn(*shape, seed=k) for k in (1, 2)]
    cx = lm.Graph()
    found = both(lm, F, [cx.tensor(shape, "float64", f"x{k}") for k in range(2)])
    for k, y in enumerate(found):
        y.output(f"y{k}")
    results = lm.compile(cx, "reference")({f"x{k}": x for k, x in enumerate(given)})
    expected = both(
        torch, torch.nn.functional, [torch.from_numpy(x).requires_grad_() for x in given]
    )
    assert len(found) == len(expected)
    for k, y in enumerate(expected):
        # Float64 through sums of drawn sizes and gradients of gradients.
        np.testing.assert_allclose(results[f"y{k}"], y.detach().numpy(), 1e-8, 1e-10)
