"""Where the gradient goes when one element of several is chosen, and equal ones are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from tests.close import close
from tests.long_share import mostly_long

F, TF = lm.nn.functional, torch.nn.functional
TIES = np.array([[1.0, 3.0, 3.0, 0.0, 3.0], [2.0, 2.0, 1.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0]])

Function = Callable[..., Any]

CHOICES: dict[str, tuple[Function, Function]] = {
    "max of a dim": (lambda x: x.max(1).values, lambda x: x.max(1).values),
    "min of a dim": (lambda x: x.min(1).values, lambda x: x.min(1).values),
    "max of a dim, kept": (lambda x: x.max(0, True).values, lambda x: x.max(0, True).values),
    "max of all": (lambda x: x.max(), lambda x: x.max()),
    "amax": (lambda x: x.amax(1), lambda x: x.amax(1)),
    "amin of all": (lambda x: x.amin(), lambda x: x.amin()),
    "both": (lambda x: x.amax(1) + 2 * x.max(1).values, lambda x: x.amax(1) + 2 * x.max(1).values),
    "cummax": (lambda x: x.cummax(1).values, lambda x: x.cummax(1).values),
    "cummin": (lambda x: x.cummin(1).values, lambda x: x.cummin(1).values),
    "max_pool1d": (
        lambda x: F.max_pool1d(x.unsqueeze(0), 2, 1),
        lambda x: TF.max_pool1d(x.unsqueeze(0), 2, 1),
    ),
    "max_pool2d, padded": (
        lambda x: F.max_pool2d(x.unsqueeze(0), 3, 1, 1),
        lambda x: TF.max_pool2d(x.unsqueeze(0), 3, 1, 1),
    ),
    "max_pool2d with places": (
        lambda x: F.max_pool2d(x.unsqueeze(0), 2, 1, return_indices=True)[0],
        lambda x: TF.max_pool2d(x.unsqueeze(0), 2, 1, return_indices=True)[0],
    ),
    "adaptive_max_pool1d": (
        lambda x: F.adaptive_max_pool1d(x.unsqueeze(0), 2),
        lambda x: TF.adaptive_max_pool1d(x.unsqueeze(0), 2),
    ),
    "maximum": (lambda x: x.maximum(x.flip(1)), lambda x: torch.maximum(x, x.flip(1))),
    "minimum": (lambda x: x.minimum(x.flip(1)), lambda x: torch.minimum(x, x.flip(1))),
    "norm of order inf": (
        lambda x: lm.linalg.vector_norm(x, np.inf, 1),
        lambda x: torch.linalg.vector_norm(x, np.inf, 1),
    ),
    "prod": (lambda x: x.prod(1), lambda x: x.prod(1)),
    "cumprod": (lambda x: x.cumprod(1), lambda x: x.cumprod(1)),
    "prod of all": (lambda x: x.prod(), lambda x: x.prod()),
    "scatter_reduce amax": (
        lambda x: x.scatter_reduce(1, x.graph.constant([[0, 0, 1, 1, 1]] * 3), x * 1, "amax"),
        lambda x: x.scatter_reduce(1, torch.tensor([[0, 0, 1, 1, 1]] * 3), x * 1, "amax"),
    ),
    "scatter_reduce prod": (
        lambda x: x.scatter_reduce(1, x.graph.constant([[0, 0, 1, 1, 1]] * 3), x * 1, "prod"),
        lambda x: x.scatter_reduce(1, torch.tensor([[0, 0, 1, 1, 1]] * 3), x * 1, "prod"),
    ),
}


@pytest.mark.parametrize("backend", mostly_long(["reference", "cpu"], 1))
@pytest.mark.parametrize("name", CHOICES)
def test_equal_elements_share_or_give_way_as_in_pytorch(name: str, backend: str) -> None:
    ours, theirs = CHOICES[name]
    cx = lm.Graph()
    x = cx.tensor(TIES.shape, "float64", "x")
    y = ours(x)
    weights = np.cos(np.arange(np.prod(y.shape), dtype=np.float64)).reshape(y.shape)
    lm.grad(y, x, cx.constant(weights)).output("g")
    found = lm.compile(cx, backend)({"x": TIES})["g"]
    leaf = torch.from_numpy(TIES).requires_grad_()
    (wanted,) = torch.autograd.grad(theirs(leaf), leaf, torch.from_numpy(weights))
    close(found, wanted.numpy())


def table(how: dict[str, Any]) -> tuple[Any, Any]:
    """The gradients of an embedding's weight, ours and PyTorch's."""
    ids, weight = np.array([[1, 2, 2], [0, 2, 4]]), np.arange(10.0).reshape(5, 2)
    cx = lm.Graph()
    w = cx.tensor(weight.shape, "float64", "w")
    rows = F.embedding(cx.constant(ids), w, **how)
    (w * 0 + lm.grad((rows * rows).sum(), w)).output("g")
    found = lm.compile(cx, "reference")({"w": weight})["g"]
    leaf = torch.from_numpy(weight).requires_grad_()
    (TF.embedding(torch.from_numpy(ids), leaf, **how) ** 2).sum().backward()
    return found, leaf.grad


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"padding_idx": 2},
        {"padding_idx": -1},
        {"scale_grad_by_freq": True},
        {"padding_idx": 0, "scale_grad_by_freq": True},
    ],
    ids=str,
)
def test_rows_of_an_embedding(how: dict[str, Any]) -> None:
    found, wanted = table(how)
    np.testing.assert_allclose(found, wanted)


def test_an_embedding_with_padding_leaves_another_one_alone() -> None:
    cx = lm.Graph()
    w, ids = cx.tensor((3, 2), "float64", "w"), cx.constant([0, 1])
    both = F.embedding(ids, w, padding_idx=0).sum() + 10 * F.embedding(ids, w).sum()
    lm.grad(both, w).output("g")
    found = lm.compile(cx, "reference")({})["g"]
    np.testing.assert_array_equal(found, [[10, 10], [11, 11], [0, 0]])


def test_queries_that_see_nothing_have_no_gradient() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 3, 4)) for _ in range(3))
    mask = np.array([[True, False, True], [False, False, False], [True, True, True]])
    cx = lm.Graph()
    inputs = [cx.tensor(x.shape, "float64", n) for n, x in zip("qkv", (q, k, v), strict=True)]
    out = F.scaled_dot_product_attention(*inputs, attn_mask=cx.constant(mask))
    for name, g in zip("qkv", lm.grad((out * out).sum(), inputs), strict=True):
        g.output(f"g{name}")
    found = lm.compile(cx, "cpu")({"q": q, "k": k, "v": v})
    leaves = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    seen = TF.scaled_dot_product_attention(*leaves, attn_mask=torch.from_numpy(mask))
    wanted = torch.autograd.grad((seen.nan_to_num() ** 2).sum(), leaves)
    for name, g in zip("qkv", wanted, strict=True):
        close(found[f"g{name}"], g.nan_to_num().numpy())


@pytest.mark.parametrize("reduction", mostly_long(["mean", "sum", "none"], 1))
def test_ctc_through_log_softmax(reduction: str) -> None:
    """PyTorch's own gradient is right behind log_softmax only."""
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((8, 2, 5))
    targets, times, counts = np.array([[1, 2, 2], [4, 1, 0]]), [8, 6], [3, 2]
    cx = lm.Graph()
    x = cx.tensor(logits.shape, "float64", "x")
    loss = F.ctc_loss(x.log_softmax(-1), cx.constant(targets), times, counts, reduction=reduction)
    lm.grad((loss * loss).sum(), x).output("g")
    found = lm.compile(cx, "cpu")({"x": logits})["g"]
    leaf = torch.from_numpy(logits).requires_grad_()
    own = TF.ctc_loss(
        leaf.log_softmax(-1), torch.from_numpy(targets), times, counts, reduction=reduction
    )
    (own * own).sum().backward()
    close(found, leaf.grad, ulp=16)


def test_gradients_of_extremes_of_rows_with_nan() -> None:
    """NaN of amax is shared by the NaN of its row; cummax gives the newest all, as in PyTorch."""
    n = np.nan
    x = np.array([[1, n, 3, n, 2], [n, n, n, n, n], [2, 2, 1, 3, n]], np.float32)
    running = ("cummax", "cummin")
    cx = lm.Graph()
    taken = cx.tensor(x.shape, name="x")
    for name in ("amax", "amin"):
        lm.grad(lambda t, name=name: getattr(t, name)(1).sum())(taken).output(name)
    for name in running:
        lm.grad(lambda t, name=name: getattr(t, name)(1).values.sum())(taken).output(name)
    found = lm.compile(cx, backend="reference")({"x": x})
    shared = np.isnan(x) / np.isnan(x).sum(1, keepdims=True)
    for name in ("amax", "amin"):
        np.testing.assert_allclose(found[name], shared)
    for name in running:
        theirs = torch.tensor(x, requires_grad=True)
        getattr(theirs, name)(1).values.sum().backward()
        assert theirs.grad is not None
        np.testing.assert_array_equal(found[name], theirs.grad.numpy())


@pytest.mark.parametrize("backend", ["cpu", "interpreted", "reference"])
def test_the_sign_of_both_zeros_is_zero(backend: str) -> None:
    x = np.array([0.0, -0.0, 2.0, -2.0, np.nan, -np.inf], np.float32)
    cx = lm.Graph()
    cx.tensor(x.shape, name="x").sign().output("y")
    found = lm.compile(cx, backend=backend)({"x": x})["y"]
    np.testing.assert_array_equal(found, np.sign(x))
    assert not np.signbit(found[:2]).any()
