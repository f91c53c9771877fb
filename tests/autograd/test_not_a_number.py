"""Gradients at NaN: as PyTorch's, and where they are others, which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.nn import functional
from tests.close import close_each

NAN = float("nan")
X = np.array([[1, NAN, 3, -2], [NAN, NAN, 0.5, 0.2], [0, 2, 2, -1]], np.float32)
Y = np.array([[NAN, 1, 3, NAN], [NAN, 0, 0.5, 1], [0, 1, 2, -1]], np.float32)
WEIGHTS = np.random.default_rng(0).normal(size=12).astype(np.float32)


def gradients_of(ours: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> list[Any]:
    """The gradients of the weighted sum of a function's result."""
    cx = lm.Graph()
    given = {f"x{k}": array for k, array in enumerate(arrays)}
    leaves = [cx.tensor(array.shape, name=name) for name, array in given.items()]
    y = ours(*leaves)
    weights = WEIGHTS[: int(np.prod(y.shape))].reshape(y.shape)
    for name, g in zip(given, lm.grad((y * weights).sum(), leaves), strict=True):
        g.output(name)
    found = lm.compile(cx)(given)
    return [found[name] for name in given]


def of_torch(theirs: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> list[Any]:
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]
    y = theirs(*leaves)
    weights = torch.tensor(WEIGHTS[: y.numel()].reshape(tuple(y.shape)))
    found = torch.autograd.grad((y * weights).sum(), leaves, allow_unused=True)
    return [
        np.zeros_like(x) if g is None else g.numpy() for x, g in zip(arrays, found, strict=True)
    ]


ONE = {
    "clip": lambda x: x.clamp(-1, 1),
    "clip below": lambda x: x.clamp(min=0.3),
    "clip above": lambda x: x.clamp(max=0.3),
    "relu": lambda x: x.relu(),
    "abs": lambda x: x.abs(),
    "max": lambda x: x.max(-1)[0],
    "min": lambda x: x.min(-1)[0],
    "cummax": lambda x: x.cummax(-1)[0],
    "cummin": lambda x: x.cummin(-1)[0],
    "cumprod": lambda x: x.cumprod(-1),
    "median": lambda x: x.median(-1)[0],
    "nanmedian": lambda x: x.nanmedian(-1)[0],
    "sort": lambda x: x.sort(-1)[0],
    "logsumexp": lambda x: x.logsumexp(-1),
    "nansum": lambda x: x.nansum(-1),
    "nan_to_num": lambda x: x.nan_to_num(),
}
NAMED = ("hardtanh", "relu6", "hardswish", "hardsigmoid", "leaky_relu", "hardshrink", "softshrink")


@pytest.mark.parametrize("name", ONE)
def test_of_one_argument(name: str) -> None:
    (found,), (wanted,) = gradients_of(ONE[name], X), of_torch(ONE[name], X)
    close_each(found, wanted)


@pytest.mark.parametrize("name", NAMED)
def test_of_an_activation(name: str) -> None:
    wanted = of_torch(getattr(torch.nn.functional, name), X)
    close_each(gradients_of(getattr(functional, name), X), wanted)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_of_two_arguments(name: str) -> None:
    found, wanted = gradients_of(getattr(lm, name), X, Y), of_torch(getattr(torch, name), X, Y)
    close_each(found, wanted)


def test_bounds_that_are_tensors() -> None:
    def clamp(x: Any, bound: Any) -> Any:
        return x.clamp(bound - 1, bound + 1)

    close_each(gradients_of(clamp, X, Y), of_torch(clamp, X, Y))


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_nans_share_what_the_greatest_has(name: str) -> None:
    """PyTorch divides by how many equal the result, and none equals NaN."""
    (found,) = gradients_of(lambda x: getattr(x, name)(-1), X)
    (theirs,) = of_torch(lambda x: getattr(x, name)(-1), X)
    assert np.isnan(theirs[:2]).all()
    nans = np.isnan(X[:2])
    shares = WEIGHTS[:2, None] / nans.sum(1, keepdims=True)
    close_each(found[:2], np.where(nans, shares, 0))
    close_each(found[2], theirs[2])


@pytest.mark.parametrize("axis", [0, 1])
def test_a_max_whose_frontend_function_is_not_known_is_amax(axis: int) -> None:
    """Graphs that were copied or read have the bare node, which is differentiated by itself."""

    def bare(x: Any) -> Any:
        return x.graph.wrap(x.graph.builder.max(x.value, axis))

    (found,), (wanted,) = gradients_of(bare, X), gradients_of(lambda x: x.amax(axis), X)
    assert np.isfinite(wanted).all()
    close_each(found, wanted)


def test_a_product_with_nan_has_no_gradients() -> None:
    (found,) = gradients_of(lambda x: x.prod(-1), X)
    (theirs,) = of_torch(lambda x: x.prod(-1), X)
    assert np.isnan(found[:2]).all()
    close_each(found[2], theirs[2])


def test_the_newest_of_zeros_is_itself_what_is_the_greatest() -> None:
    x = np.array([[0.0, -0.0, 0.0, -0.0], [-0.0, 0.0, -1.0, -0.0]], np.float32)
    cx = lm.Graph()
    at = cx.tensor(x.shape, name="x")
    for name in ("cummax", "cummin"):
        for part, value in zip(("values", "indices"), getattr(at, name)(-1), strict=True):
            value.output(f"{name} {part}")
    found = lm.compile(cx)({"x": x})
    for name in ("cummax", "cummin"):
        taken = np.take_along_axis(x, found[f"{name} indices"], -1)
        assert found[f"{name} values"].tobytes() == taken.tobytes()
