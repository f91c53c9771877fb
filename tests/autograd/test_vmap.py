"""vmap beside torch.func.vmap: functions drawn from operations, dims and nestings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.base.errors import GraphError, InputError, ShapeError
from luminal.nn import functional as F
from tests.close import close_to_greatest
from tests.long_share import mostly_long

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
SHARE = 1e-5  # of the greatest element: some ten roundings of float32, and sums in another order

# Of matrices (3, 4); every one gives a matrix (3, 4) again, so that they can be composed at random.
UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "pointwise": lambda t, x: (x.exp() + 1).log() * x.sin() - x / (x * x + 1),
    "cases": lambda t, x: t.where(x > 0, x.relu(), x.abs()).clamp(max=0.7),
    "softmax": lambda t, x: x.softmax(-1) + x.log_softmax(0),
    "sums": lambda t, x: x - x.mean(0, keepdim=True) + x.sum(),
    "extremes": lambda t, x: x - x.amax(1, keepdim=True) + x.max(0).values,
    "running": lambda t, x: x.cumsum(1) * 0.3 + x.cumprod(0),
    "sorted": lambda t, x: x.sort(1).values + x.argsort(0).float(),
    "moved": lambda t, x: x.T.reshape(3, 4).flip(1) + x.roll(1, 0),
    "joined": lambda t, x: t.cat([x[:, 2:], x[:, :2]], 1) + t.stack(x.unbind(1), 1),
    "padded": lambda t, x: t.nn.functional.pad(x[1:, :3], (1, 0, 0, 1)),
    "by place": lambda t, x: x[:, [3, 0, 0, 1]] + x.gather(1, (x > 0).long()[:, [0, 1, 1, 0]]),
    "scattered": lambda t, x: x.scatter_add(1, (x < 0).long() * 2, x * 2),
    "products": lambda t, x: x @ x.T @ x * 0.1 + t.einsum("ij,kj->ik", x, x) @ x,
    "norms": lambda t, x: t.nn.functional.layer_norm(x, (4,)) * x.norm(dim=0),
    "integers": lambda t, x: ((x * 4).floor().long() % 3 + (x > 0.1)).float() * x,
    "convolved": lambda t, x: t.nn.functional.conv1d(
        x[None], t.ones(3, 3, 3) * 0.2, padding=1
    )[0],
    "nothing of it": lambda t, x: t.ones(3, 4).cumsum(0),
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda t, x, y: x + y * 0.5,
    "times": lambda t, x, y: x * y.tanh(),
    "matrices": lambda t, x, y: x @ y.T @ x * 0.2,
    "chosen": lambda t, x, y: t.where(x > y, x, y) + t.maximum(x, y),
    "rows by number": lambda t, x, y: x[(y[:, 0] > 0).long()] + y,
    "attention": lambda t, x, y: (x @ y.T).softmax(-1) @ y,
}


class Composition:
    """A function of two matrices, drawn: a chain of operations, a vmap of it, and where the
    examples lie. `batched` is called with either library.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.steps = [
            (str(rng.choice([*UNARY])), str(rng.choice([*BINARY])), bool(rng.integers(2)))
            for _ in range(rng.integers(1, 4))
        ]
        depth = int(rng.integers(1, 4)) if seed % 3 == 0 else 1
        self.dims: list[tuple[int | None, int | None]] = []
        shapes = [[3, 4], [3, 4]]
        for size in rng.integers(1, 4, depth).tolist():  # the innermost first
            wanted = [True, True]
            if rng.integers(3) == 0:
                wanted[int(rng.integers(2))] = False
            chosen: list[int | None] = []
            for shape, is_there in zip(shapes, wanted, strict=True):
                dim = int(rng.integers(len(shape) + 1)) if is_there else None
                if dim is not None:
                    shape.insert(dim, size)
                    dim = dim if rng.integers(2) else dim - len(shape)
                chosen.append(dim)
            self.dims.append((chosen[0], chosen[1]))
        # PyTorch (2.13) puts what all examples share along dim 0 alone, and raises elsewhere.
        shared = any("nothing of it" in step for step in self.steps)
        self.out = [0 if shared else int(rng.integers(-1, 2)) for _ in range(depth)]
        self.derivative = ("none", "grad inside", "grad around", "jacobian")[seed % 4]
        self.arrays = [rng.standard_normal(shape).astype(np.float32) * 0.6 for shape in shapes]

    def __call__(self, t: Any, func: Any, x: Any, y: Any) -> Any:
        for unary, binary, swapped in self.steps:
            x = UNARY[unary](t, x)
            x = BINARY[binary](t, y, x) if swapped else BINARY[binary](t, x, y)
        return x

    def batched(self, t: Any, func: Any) -> Any:
        def plain(x: Any, y: Any) -> Any:
            return self(t, func, x, y)

        f: Callable[..., Any] = plain
        if self.derivative == "grad inside":
            f = func.grad(lambda x, y: plain(x, y).square().sum())
        if self.derivative == "jacobian":
            f = lambda x, y: func.jacrev(lambda row: plain(x + row, y)[0])(x[0] * 0)[:3]  # noqa: E731
        for dims, out in zip(self.dims, self.out, strict=True):
            f = func.vmap(f, dims, out)
        tensors = [t.tensor(a) for a in self.arrays]
        if self.derivative == "grad around":
            return func.grad(lambda x, y: f(x, y).square().sum())(*tensors)
        return f(*tensors)


@pytest.mark.parametrize("seed", mostly_long([*range(160)], 6))
def test_drawn_functions_are_batched_as_in_pytorch(seed: int) -> None:
    lm.reset()
    drawn = Composition(seed)
    expected = drawn.batched(torch, torch.func).detach().numpy()
    got = drawn.batched(lm, lm).numpy()
    close_to_greatest(got, expected, SHARE)


def test_trees_shared_arguments_and_dims_of_results() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((4, 2), np.float32)

    def f(t: Any, vmap: Any) -> Any:
        def one(pair: Any, scale: float, shared: Any, *, plus: Any) -> Any:
            a, named = pair
            return {"sum": a * scale + shared["z"].sum() + plus, "both": (a, [named["b"] * 2])}

        g = vmap(one, ((1, {"b": 0}), None, {"z": None}), {"sum": -1, "both": (0, [1])})
        a, b = t.tensor(x), t.tensor(np.stack([y] * 3))
        return g((a, {"b": b}), 3.0, {"z": t.tensor(y)}, plus=t.tensor(np.ones(2, np.float32)))

    got, expected = f(lm, lm.vmap), f(torch, torch.func.vmap)
    assert got.keys() == expected.keys()
    pairs = [(got["sum"], expected["sum"]), (got["both"][0], expected["both"][0])]
    for ours, theirs in [*pairs, (got["both"][1][0], expected["both"][1][0])]:
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_gradients_of_single_examples_of_a_layer() -> None:
    layer, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    layer.load_state_dict(theirs.state_dict())
    xs = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)

    def loss(w: Any, x: Any) -> Any:
        return (F.linear(x, w, layer.bias).tanh() ** 2).sum()

    got = lm.vmap(lm.grad(loss), (None, 0))(layer.weight, lm.tensor(xs)).numpy()
    for k, x in enumerate(xs):
        theirs.zero_grad()
        (theirs(torch.tensor(x)).tanh() ** 2).sum().backward()
        close_to_greatest(got[k], theirs.weight.grad.numpy(), SHARE)


def test_loops_and_what_has_no_rule_are_batched() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 5, 3)).astype(np.float32)
    a = rng.standard_normal((4, 3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)

    def run(x: Any, h: Any) -> Any:  # h is shared, and what is carried differs by example
        return lm.scan(lambda c, row: (c * 0.5 + row * h, c.sum()), lm.zeros(3), x)

    last, sums = lm.vmap(run, (0, None))(lm.tensor(x), lm.tensor(a[0, 0]))
    carry, kept = np.zeros((4, 3)), []
    for row in x.astype(np.float64).transpose(1, 0, 2):
        kept.append(carry.sum(1))
        carry = carry * 0.5 + row * a[0, 0]
    close_to_greatest(last.numpy(), carry, SHARE)
    close_to_greatest(sums.numpy(), np.stack(kept, 1), SHARE)
    close_to_greatest(lm.vmap(lm.linalg.inv)(lm.tensor(a)).numpy(), np.linalg.inv(a), SHARE)
    slopes = lm.vmap(lm.grad(lambda a: lm.linalg.inv(a).sum()))(lm.tensor(a)).numpy()
    theirs = torch.func.vmap(torch.func.grad(lambda a: torch.linalg.inv(a).sum()))(torch.tensor(a))
    close_to_greatest(slopes, theirs.numpy(), 10 * SHARE)  # of two inverses
    through = lm.grad(lambda x: lm.vmap(run, (0, None))(x, lm.ones(3))[0].square().sum())
    inside = lm.vmap(lm.grad(lambda x: run(x, lm.ones(3))[0].square().sum()))
    close_to_greatest(through(lm.tensor(x)).numpy(), inside(lm.tensor(x)).numpy(), SHARE)


def test_derivatives_of_their_own_are_batched() -> None:
    reversed_ = lm.custom_vjp(lambda x, w: x * w, lambda g, y, x, w: (-g * w, g * x + y * 0))
    x = lm.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    w = lm.tensor(np.ones(3, np.float32) * 2)
    f = lm.vmap(reversed_, (0, None))
    np.testing.assert_array_equal(lm.grad(lambda x: f(x, w).sum())(x).numpy(), np.full((2, 3), -2))
    shared = lm.grad(lambda w: f(x, w).sum())(w).numpy()
    np.testing.assert_array_equal(shared, [3, 5, 7])  # summed over the examples


def test_random_numbers_are_refused_or_different_or_the_same() -> None:
    x = lm.zeros(4, 50)
    for draw in (lambda x: x + lm.randn(50), lambda x: F.dropout(x + 1)):
        with pytest.raises(GraphError, match=r'the function of vmap draws; say randomness="diff'):
            lm.vmap(draw)(x)
        same = lm.vmap(draw, randomness="same")(x).numpy()
        assert (same == same[0]).all()
        for f in (lm.vmap(draw, randomness="different"), lm.vmap(
            lm.vmap(draw, randomness="different"), randomness="different"
        )):  # fmt: skip
            rows = f(x if f.__wrapped__ is draw else x.reshape(2, 2, 50)).numpy().reshape(4, 50)
            assert len({row.tobytes() for row in rows}) == 4
    lm.manual_seed(3)
    first = lm.vmap(lambda x: x + lm.rand(50), randomness="same")(x).numpy()[0]
    lm.manual_seed(3)
    np.testing.assert_array_equal(first, lm.rand(50).numpy())


def test_under_jit_and_of_open_extents() -> None:
    f = lm.jit(lm.vmap(lambda x, w: (x @ w).softmax(-1), (0, None)), shapes={"x": ("n", 2, 3)})
    w = np.eye(3, dtype=np.float32)
    for n in (1, 4):
        x = np.random.default_rng(n).standard_normal((n, 2, 3)).astype(np.float32)
        close_to_greatest(f(x, w), torch.tensor(x).softmax(-1).numpy(), SHARE)


def test_mistakes_are_named() -> None:
    x, y = lm.ones(2, 3), lm.ones(4, 3)
    with pytest.raises(ShapeError, match="the numbers of examples are"):
        lm.vmap(lambda x, y: x)(x, y)
    with pytest.raises(InputError, match=r"in_dims has 0.0; give an int, None, or a tree"):
        lm.vmap(lambda x: x, 0.0)(lm.ones(2))
    with pytest.raises(InputError, match=r"in_dims \(0,\) for 2 arguments"):
        lm.vmap(lambda x, y: x, (0,))(x, y)
    with pytest.raises(
        InputError, match=r"argument \[1\] is a int and no Tensor, and in_dims says"
    ):
        lm.vmap(lambda x, n: x * n)(x, 3)
    with pytest.raises(InputError, match="out_dims is None for a result that differs by example"):
        lm.vmap(lambda x: x, out_dims=None)(x)
    with pytest.raises(InputError, match="is no tree like what it is for"):
        lm.vmap(lambda x: x, ({"a": 0},))(x)
    with pytest.raises(InputError, match="randomness='all'; it is one of error, different, same"):
        lm.vmap(lambda x: x, randomness="all")
    with pytest.raises(GraphError, match="the function gives 3; it must give Tensors"):
        lm.vmap(lambda x: 3)(x)
    with pytest.raises(GraphError, match="while the function of vmap is recorded"):
        lm.vmap(lambda x: x if x.sum() > 0 else -x)(x)
    with pytest.raises(ShapeError, match="dim 2 is out of range"):
        lm.vmap(lambda x: x, 2)(x)
