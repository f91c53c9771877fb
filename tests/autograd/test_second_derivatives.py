"""Gradients of gradients against PyTorch's, in float64 on the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import luminal as lm

F, TF = lm.nn.functional, torch.nn.functional
RELATIVE = 1e-7  # of the largest value

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


class Row(NamedTuple):
    """A function of ours, PyTorch's, and the intervals and shapes of their operands."""

    ours: Function
    theirs: Function
    low: float = -2.0
    high: float = 2.0
    shapes: Sequence[tuple[int, ...]] = ((3, 4),)


def both(call: Function, **how: Any) -> Row:
    """The same text calls ours and PyTorch's."""
    return Row(call, call, **how)


def named(name: str, **how: Any) -> Row:
    """A function of `lm` and of `torch`."""
    return Row(getattr(lm, name), getattr(torch, name), **how)


def layer(name: str, *args: Any, **how: Any) -> Row:
    """A function of `nn.functional`, ours and PyTorch's."""
    ours, theirs = getattr(F, name), getattr(TF, name)
    return Row(lambda *x: ours(*x, *args), lambda *x: theirs(*x, *args), **how)


def positive_definite(x: Any) -> Any:
    return x @ x.mT + 3 * (x * 0 + 1).sum() / 16 * _eye(x)


def _eye(x: Any) -> Any:
    eye = np.eye(4)
    return torch.from_numpy(eye) if isinstance(x, torch.Tensor) else x.graph.constant(eye)


SQUARE = ((4, 4),)
UNIT = {"low": -0.9, "high": 0.9}
ABOVE = {"low": 0.2, "high": 3.0}

ROWS: dict[str, Row] = {
    **{
        name: named(name)
        for name in (
            "exp exp2 expm1 sin cos tanh sinh cosh asinh atan sigmoid erf erfc square sinc"
        ).split()
    },
    **{name: named(name, **ABOVE) for name in "log log2 log10 log1p sqrt rsqrt reciprocal".split()},
    **{name: named(name, **UNIT) for name in "asin acos atanh erfinv tan".split()},
    **{name: named(name, **ABOVE) for name in "lgamma digamma".split()},
    "acosh": named("acosh", low=1.2, high=4.0),
    "logit": named("logit", low=0.1, high=0.9),
    **{
        name: layer(name)
        for name in (
            "silu gelu mish softplus logsigmoid elu selu celu softsign tanhshrink hardswish"
        ).split()
    },
    "gelu tanh": Row(lambda x: F.gelu(x, "tanh"), lambda x: TF.gelu(x, approximate="tanh")),
    "mul": both(lambda x, y: x * y, shapes=((3, 4), (4,))),
    "div": both(lambda x, y: x / y, **ABOVE, shapes=((3, 4), (4,))),
    "pow": both(lambda x, y: x**y, **ABOVE, shapes=((3, 4), (4,))),
    "pow of a number": both(lambda x: x**3 + abs(x) ** 2.5),
    "maximum": named("maximum", shapes=((3, 4), (4,))),
    "atan2": named("atan2", shapes=((3, 4), (3, 4))),
    "hypot": named("hypot", shapes=((3, 4), (3, 4))),
    "xlogy": named("xlogy", **ABOVE, shapes=((3, 4), (3, 4))),
    "logaddexp": named("logaddexp", shapes=((3, 4), (3, 4))),
    "lerp": named("lerp", shapes=((3, 4), (3, 4), (3, 4))),
    "softmax": both(lambda x: x.softmax(-1)),
    "log_softmax": both(lambda x: x.log_softmax(-1)),
    "logsumexp": both(lambda x: x.logsumexp(1)),
    "logcumsumexp": both(lambda x: x.logcumsumexp(1)),
    "sum": both(lambda x: x.sum(1).exp()),
    "mean": both(lambda x: x.mean(0).exp()),
    "var": both(lambda x: x.var(1).sqrt()),
    "std": both(lambda x: x.std(1)),
    "prod": both(lambda x: x.prod(1)),
    "cumprod": both(lambda x: x.cumprod(1)),
    "cumsum": both(lambda x: x.cumsum(1).sin()),
    "amax": both(lambda x: x.amax(1).exp()),
    "sort": Row(lambda x: x.sort(1).values.exp(), lambda x: x.sort(1).values.exp()),
    "norm": both(lambda x: x.norm(2, 1)),
    "norm of order 3": both(lambda x: x.norm(3, 1)),
    "cdist": Row(
        lm.cdist, lambda x, y: (x.unsqueeze(1) - y).norm(dim=-1), shapes=((3, 4), (2, 4))
    ),
    "matmul": both(lambda x, y: (x @ y).tanh(), shapes=((3, 4), (4, 2))),
    "conv2d": layer("conv2d", shapes=((2, 3, 5, 5), (4, 3, 3, 3), (4,))),
    "conv_transpose1d": layer("conv_transpose1d", shapes=((2, 3, 5), (3, 2, 3))),
    "max_pool2d": layer("max_pool2d", 2, shapes=((1, 2, 4, 4),)),
    "avg_pool2d": Row(
        lambda x: F.avg_pool2d(x, 2).exp(), lambda x: TF.avg_pool2d(x, 2).exp(),
        shapes=((1, 2, 4, 4),),
    ),
    "layer_norm": Row(
        lambda x, w, b: F.layer_norm(x, (4,), w, b), lambda x, w, b: TF.layer_norm(x, (4,), w, b),
        shapes=((3, 4), (4,), (4,)),
    ),
    "group_norm": layer("group_norm", 2, shapes=((2, 4, 3),)),
    "scaled_dot_product_attention": layer(
        "scaled_dot_product_attention", shapes=((2, 3, 4), (2, 5, 4), (2, 5, 4))
    ),
    "embedding": Row(
        lambda w: w.index_select(0, w.graph.constant([0, 2, 2])).tanh(),
        lambda w: w.index_select(0, torch.tensor([0, 2, 2])).tanh(),
    ),
    "cross_entropy": Row(
        lambda x: F.cross_entropy(x, x.graph.constant([1, 3, 0])),
        lambda x: TF.cross_entropy(x, torch.tensor([1, 3, 0])),
    ),
    "mse_loss": layer("mse_loss", shapes=((3, 4), (3, 4))),
    "huber_loss": layer("huber_loss", shapes=((3, 4), (3, 4))),
    "binary_cross_entropy_with_logits": layer(
        "binary_cross_entropy_with_logits", shapes=((3, 4), (3, 4))
    ),
    "linalg.inv": Row(lm.linalg.inv, torch.linalg.inv, shapes=SQUARE),
    "linalg.det": Row(lm.linalg.det, torch.linalg.det, shapes=SQUARE),
    "linalg.slogdet": Row(
        lambda x: lm.linalg.slogdet(x).logabsdet, lambda x: torch.linalg.slogdet(x).logabsdet,
        shapes=SQUARE,
    ),
    "linalg.solve": Row(lm.linalg.solve, torch.linalg.solve, shapes=((4, 4), (4, 2))),
    "linalg.cholesky": Row(
        lambda x: lm.linalg.cholesky(positive_definite(x)),
        lambda x: torch.linalg.cholesky(positive_definite(x)),
        shapes=SQUARE,
    ),
    "linalg.solve_triangular": Row(
        lambda a, b: lm.linalg.solve_triangular(a + 5 * _eye(a), b, upper=False),
        lambda a, b: torch.linalg.solve_triangular(a + 5 * _eye(a), b, upper=False),
        shapes=((4, 4), (4, 2)),
    ),
    "linalg.eigvalsh": Row(
        lambda x: lm.linalg.eigvalsh(x + x.mT), lambda x: torch.linalg.eigvalsh(x + x.mT),
        shapes=SQUARE,
    ),
    "linalg.svdvals": Row(lm.linalg.svdvals, torch.linalg.svdvals, shapes=((4, 3),)),
    "linalg.qr": Row(
        lambda x: lm.linalg.qr(x).Q ** 2, lambda x: torch.linalg.qr(x).Q ** 2, shapes=((4, 3),)
    ),
    "linalg.pinv": Row(lm.linalg.pinv, torch.linalg.pinv, shapes=((4, 3),)),
    "matrix_exp": Row(lm.linalg.matrix_exp, torch.linalg.matrix_exp, shapes=SQUARE),
}  # fmt: skip


def drawn(row: Row) -> list[Array]:
    """The operands; none lies on a kink."""
    rng = np.random.default_rng(7)
    return [np.asarray(rng.uniform(row.low, row.high, shape)) for shape in row.shapes]


def weights(shape: Sequence[Any], start: float) -> Array:
    """Fixed numbers, different everywhere."""
    count = int(np.prod(shape))
    return np.cos(start + np.arange(count, dtype=np.float64)).reshape(shape)


def ours(row: Row) -> list[Array]:
    """The gradients of the gradients' weighted sum."""
    cx = lm.Graph()
    arrays = drawn(row)
    variables = [cx.tensor(x.shape, "float64", f"x{k}") for k, x in enumerate(arrays)]
    y = row.ours(*variables)
    loss = (y * cx.constant(weights(y.shape, 0.3))).sum()
    first = lm.grad(loss, variables)
    total = cx.constant(0.0, "float64")
    for g in first:
        total = total + (g * cx.constant(weights(g.shape, 1.7))).sum()
    for k, g in enumerate(lm.grad(total, variables)):
        g.output(f"g{k}")
    loss.output("loss")
    for k, x in enumerate(variables):
        x.output(f"same{k}")  # so that every input is read
    found = lm.compile(cx, "reference")({f"x{k}": x for k, x in enumerate(arrays)})
    return [found[f"g{k}"] for k in range(len(arrays))]


def theirs(row: Row) -> list[Array]:
    """The same by PyTorch."""
    variables = [torch.from_numpy(x).requires_grad_() for x in drawn(row)]
    y = row.theirs(*variables)
    loss = (y * torch.from_numpy(weights(y.shape, 0.3))).sum()
    first = torch.autograd.grad(loss, variables, create_graph=True)
    total = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for g in first:
        total = total + (g * torch.from_numpy(weights(g.shape, 1.7))).sum()
    found = torch.autograd.grad(total, variables, allow_unused=True, materialize_grads=True)
    return [g.numpy() for g in found]


@pytest.mark.parametrize("name", ROWS)
def test_second_derivatives_are_pytorchs(name: str) -> None:
    for found, wanted in zip(ours(ROWS[name]), theirs(ROWS[name]), strict=True):
        scale = 1 + np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=RELATIVE * scale)


def test_there_are_many() -> None:
    assert len(ROWS) >= 90


def test_most_are_not_zero() -> None:
    curved = [name for name, row in ROWS.items() if any(np.abs(g).max() > 1e-6 for g in ours(row))]
    assert len(curved) >= 85


# --- where a formula has cases --------------------------------------------------------------------

ZEROS = np.array([[0.0, 2.0, -3.0, 0.0], [0.0, 0.0, 4.0, 1.0], [0.0, 2.0, 3.0, -1.0]])
STEP = 1e-4  # of central differences: their error is about its square

AT_ZEROS: dict[str, Function] = {
    **{
        name: getattr(lm, name)
        for name in "square tanh sigmoid erf expm1 sinh asinh atan sinc prod".split()
    },
    **{
        name: getattr(F, name)
        for name in "gelu silu mish softplus logsigmoid tanhshrink softsign".split()
    },
    "pow 2": lambda x: x**2,
    "pow 3": lambda x: x**3.0,
    "prod of a dim": lambda x: x.prod(1),
    "cumprod": lambda x: x.cumprod(1),
    "gradient of cumprod": lambda x: lm.grad(
        (x.cumprod(1) * x.graph.constant(weights(x.shape, 2.0))).sum(), x
    ),
    "scatter_reduce prod": lambda x: x.scatter_reduce(1, places(x), x * 1, "prod"),
    "scatter_reduce prod without self": lambda x: x.scatter_reduce(
        1, places(x), x * 1, "prod", include_self=False
    ),
    "softmax": lambda x: x.softmax(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "logaddexp": lambda x: x.logaddexp(x.flip(0)),
    "mse_loss": lambda x: F.mse_loss(x, x.flip(0)),
    "huber_loss": lambda x: F.huber_loss(x, x.flip(0), delta=1.5),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x.flip(0), beta=1.5),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(
        x, x.graph.constant(ZEROS > 1).cast("float64"), pos_weight=x.graph.constant(2.5)
    ),
    "sigmoid_focal_loss": lambda x: F.sigmoid_focal_loss(
        x, x.graph.constant(ZEROS > 1).cast("float64")
    ),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, x.graph.constant(np.sign(ZEROS - 1.5))),
    "multilabel_soft_margin_loss": lambda x: F.multilabel_soft_margin_loss(
        x, x.graph.constant(ZEROS > 1).cast("float64")
    ),
}


def places(x: lm.Tensor) -> lm.Tensor:
    """Two or three elements of a row meet at one."""
    return x.graph.constant([[0, 0, 1, 1], [2, 2, 2, 0], [1, 1, 1, 1]])


@pytest.mark.parametrize("name", AT_ZEROS)
def test_at_zeros_and_equals_second_derivatives_are_differences_of_first_ones(name: str) -> None:
    cx = lm.Graph()
    x = cx.tensor(ZEROS.shape, "float64", "x")
    y = AT_ZEROS[name](x)
    along = weights(ZEROS.shape, 1.7)
    first = lm.grad((y * cx.constant(weights(y.shape, 0.3))).sum(), x).output("first")
    lm.grad((first * cx.constant(along)).sum(), x).output("second")
    run = lm.compile(cx, "reference")
    ahead, behind = (run({"x": ZEROS + step * along})["first"] for step in (STEP, -STEP))
    wanted = (ahead - behind) / (2 * STEP)
    scale = 1 + np.abs(wanted).max()
    # differences of step STEP: their own error is the step's square
    np.testing.assert_allclose(run({"x": ZEROS})["second"], wanted, rtol=0, atol=1e-6 * scale)
