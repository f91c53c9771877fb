"""Clipping as torch.nn.utils does it, and within a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import optim
from tests.close import close_each
from tests.optim.pairs import Ours, Theirs, assert_near, batches

GRADIENTS = {"a": (3, 4), "b": (), "c": (0, 2), "d": (5,)}


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.5, np.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e4])
def test_norms_are_clipped_as_in_torch(max_norm: float, norm_type: float) -> None:
    rng = np.random.default_rng(1)
    arrays = {n: np.asarray(rng.normal(0, 3, s), np.float32) for n, s in GRADIENTS.items()}
    params = [torch.nn.Parameter(torch.zeros(s)) for s in GRADIENTS.values()]
    for p, g in zip(params, arrays.values(), strict=True):
        p.grad = torch.from_numpy(g.copy())
    full = [p for p in params if p.numel()]  # PyTorch has no infinity norm of nothing
    expected = torch.nn.utils.clip_grad_norm_(full, max_norm, norm_type)
    cx = lm.Graph()
    given = {name: cx.tensor(g.shape, name=name) for name, g in arrays.items()}
    clipped, norm = optim.clip_grad_norm(given, max_norm, norm_type)
    norm.output("norm")
    for name, g in clipped.items():
        g.output(f"{name} clipped")
    found = lm.compile(cx, "reference")(arrays)
    close_each(found["norm"], expected, ulp=8)
    for name, p in zip(GRADIENTS, params, strict=True):
        assert p.grad is not None
        # norms of some hundred squares in another order: 8 to 80 ulp
        np.testing.assert_allclose(found[f"{name} clipped"], p.grad, 1e-5, 1e-7)


def test_values_are_clipped_and_structures_kept() -> None:
    cx = lm.Graph()
    x = cx.constant(np.asarray([-3, -0.5, 0.25, 7], np.float32))
    y = cx.constant(np.asarray([9], "float16"))
    first, nothing, (second,) = optim.clip_grad_value([x, None, (y,)], 0.5)
    assert nothing is None
    assert second.dtype is lm.float16
    np.testing.assert_array_equal(first.numpy(), [-0.5, -0.5, 0.25, 0.5])


def test_norms_of_16_bits_are_computed_in_float32() -> None:
    cx = lm.Graph()
    big = cx.constant(np.full(4, 3e4, "float16"))
    (clipped,), norm = optim.clip_grad_norm([big], 1.0)
    assert (norm.dtype, clipped.dtype) == (lm.float32, lm.float16)
    close_each(norm.numpy(), 6e4)
    # float16's digit, 2**-11
    np.testing.assert_allclose(clipped.numpy().astype(np.float32), 0.5, 1e-3)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("options", "clip"),
    [
        ({"clip_norm": 0.3}, lambda ps: torch.nn.utils.clip_grad_norm_(ps, 0.3)),
        ({"clip_value": 0.01}, lambda ps: torch.nn.utils.clip_grad_value_(ps, 0.01)),
    ],
    ids=["norm", "value"],
)
def test_steps_with_clipping(options: dict[str, Any], clip: Any, backend: str) -> None:
    ours, theirs = Ours(), Theirs()
    norm = optim.SGD(ours.params.values(), lr=0.5, momentum=0.9).step(ours.loss, **options)
    if norm is not None:
        norm.output("norm")
    step = lm.compile(ours.graph, backend)
    expected = torch.optim.SGD(theirs.params.values(), lr=0.5, momentum=0.9)
    norms: list[float] = []

    def noted(params: Any) -> None:
        norms.append(float(clip(params) or 0))

    for x, y in batches():
        found = step({"x": x, "y": y})
        theirs.step(expected, x, y, noted)
        assert_near(ours.numpy(), theirs.numpy())
        if norm is not None:
            close_each(found["norm"], norms[-1], ulp=128)


def test_what_is_refused() -> None:
    cx = lm.Graph()
    with pytest.raises(lm.InputError, match="got no gradients"):
        optim.clip_grad_norm([None], 1.0)
    with pytest.raises(lm.InputError, match="norm_type=0; it is greater than 0"):
        optim.clip_grad_norm([cx.ones(2)], 1.0, 0)
    with pytest.raises(lm.InputError, match="clip_value=-1; it must be a number of at least 0"):
        optim.clip_grad_value([cx.ones(2)], -1)
