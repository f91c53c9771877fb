"""Gradients of attention by warp groups (wgmma), as CUDA has them: their texts on the shims, where
every access and wait is checked, against PyTorch in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.backends import device_costs
from luminal.backends.c_backend import CBackend
from luminal.base.costs import Costs
from luminal.base.dots import WGMMA
from luminal.base.errors import VerifyError
from luminal.compiler.compile import lower_to_program
from luminal.frontend.random.keyed import dropout
from luminal.hlir.graph import Graph
from luminal.kernel.cascade_fragments import Fragments
from luminal.kernel.fragment_step import Step
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.selection import cascades
from luminal.shape.expression import const
from tests.backends.c_family.checked import preferring
from tests.backends.c_family.left_attention import MASKS, by_warp_groups
from tests.backends.on_device import compiled_on
from tests.long_share import mostly_long
from tests.simt.launching import DeviceFault

SCALE, DROPPED = 0.3, 0.25
WIDTHS = 16, 40, 64, 80, 128


@cache
def device() -> CBackend:
    """A device on the shims that prefers wgmma, and minds no idle units."""
    made = preferring(WGMMA)
    groups = replace(made.groups, shared_bytes=227 << 10)
    return replace(made, groups=groups, costs_of=of_one_unit)


def of_one_unit(target: VectorTarget) -> Costs:
    """The costs of a device on which work is never too little."""
    costs = device_costs.gpu(target)
    return replace(costs, shares=replace(costs.shares, work=1 << 30))


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that can stream does, however small."""
    monkeypatch.setattr(cascades, "is_gain", lambda *_: True)


@cache
def kept(shape: tuple[int, ...]) -> Any:
    """What dropout keeps of weights of this shape, and by what it multiplies them."""
    cx = lm.Graph()
    dropout(cx.ones(shape), DROPPED, lm.random.key(7, cx)).output("kept")
    return lm.compile(cx)({})["kept"].astype(np.float64)


def drawn(seed: int) -> tuple[Graph, dict[str, Any], dict[str, Any], str]:
    """A graph of attention's gradients, its inputs, float64's results, and what was drawn: lengths
    that are no multiple of tiles, heads that share keys, weights that are dropped.
    """
    rng = np.random.default_rng(seed)
    heads, shared = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    queries, keys = int(rng.integers(33, 140)), int(rng.integers(33, 140))
    width, further = WIDTHS[seed % len(WIDTHS)], int(rng.choice(WIDTHS[:-1]))
    # What sees nothing is NaN before its gradient.
    mask = [name for name in MASKS if name != "some see nothing"][seed % (len(MASKS) - 1)]
    is_dropped, wide = seed % 12 == 11, (heads, shared, queries)
    before = max(0, keys - queries)
    if mask == "window":
        keys = max(keys, queries)
        before = keys - queries
    if mask == "padded":
        queries, keys = min(queries, keys), max(queries, keys) + 17
        wide, before = (heads, shared, queries), keys - queries
    shapes = {
        "q": (*wide, width), "k": (heads, 1, keys, width), "v": (heads, 1, keys, further),
        "g": (*wide, further),
    }  # fmt: skip
    storage = ml_dtypes.bfloat16
    inputs = {n: rng.standard_normal(shape).astype(storage) for n, shape in shapes.items()}
    cx = lm.Graph()
    named = {n: cx.tensor(shape, name=n, dtype="bfloat16") for n, shape in shapes.items()}
    q, k, v, g = (x.cast("float32") for x in named.values())
    scores = q @ k.mT * SCALE
    at = cx.arange(queries).reshape(queries, 1), cx.arange(keys).reshape(1, keys)
    seen = MASKS[mask](*at, before)
    if seen is not None:
        scores = lm.where(seen, scores, -np.inf)
    weights = scores.softmax(-1)
    if is_dropped:
        weights = dropout(weights, DROPPED, lm.random.key(7, cx))
    y = weights @ v
    y.cast("bfloat16").output("y")
    pulled = lm.grad((y * g).sum(), [named[n] for n in "qkv"])
    for name, x in zip("qkv", pulled, strict=True):
        x.output(f"d{name}")
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    factor = kept((*wide, keys)) if is_dropped else None
    expected = by_pytorch(inputs, MASKS[mask](i, j, before), factor)
    return cx.graph(), inputs, expected, f"{shapes} {mask} dropped={is_dropped}"


def by_pytorch(inputs: dict[str, Any], seen: Any, factor: Any) -> dict[str, Any]:
    """The result and gradients in float64."""
    torch = pytest.importorskip("torch")
    with torch.inference_mode(False):
        q, k, v, g = (torch.from_numpy(x.astype(np.float64)) for x in inputs.values())
        leaves = [x.requires_grad_() for x in (q, k, v)]
        scores = q @ k.mT * SCALE
        if seen is not None:
            scores = scores.masked_fill(~torch.from_numpy(seen), -torch.inf)
        weights = scores.softmax(-1)
        if factor is not None:
            weights = weights * torch.from_numpy(factor)
        y = weights @ v
        pulled = torch.autograd.grad((y * g).sum(), leaves)
    gradients = {f"d{name}": x.numpy() for name, x in zip("qkv", pulled, strict=True)}
    return {"y": y.detach().numpy(), **gradients}


def check(seed: int) -> None:
    """All results are float64's, rounded once: what was computed errs a hundred times less."""
    graph, inputs, expected, text = drawn(seed)
    found = compiled_on(device(), graph)(inputs)
    for name, wanted in expected.items():
        least = 2.0**-12 * max(1.0, float(abs(wanted).max()))  # of sums that cancel
        np.testing.assert_allclose(
            found[name].astype(np.float64), wanted, rtol=1.05 * 2.0**-8, atol=least,
            err_msg=f"{name} of {text}",
        )  # fmt: skip


@pytest.mark.parametrize("seed", mostly_long(range(24), 0))
def test_drawn_gradients_on_the_shims(seed: int) -> None:
    check(seed)


@pytest.mark.long
def test_gradients_are_by_warp_groups() -> None:
    """Both passes; with dropout weights are kept for what drops them, and nothing streams."""
    for seed, is_streamed in ((2, True), (11, False)):
        kernels = lower_to_program(drawn(seed)[0], device()).kernels
        assert [*map(by_warp_groups, kernels)] == [is_streamed] * len(kernels)


@pytest.mark.long
def test_a_pass_without_fences_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragments, "batch", lambda self, running=0: nullcontext())
    with pytest.raises((DeviceFault, VerifyError)):
        check(2)


@pytest.mark.long
@pytest.mark.parametrize("name", ["at_steps", "inside"])
def test_wrong_steps_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of the first block for all of them, and no end of the last one."""
    own = getattr(Step, name)
    wrong: dict[str, Callable[..., Any]] = {
        "at_steps": lambda self: own(_at_the_start(self)),
        "inside": lambda self, env, value, nothing: value,
    }
    monkeypatch.setattr(Step, name, wrong[name])
    with pytest.raises((DeviceFault, AssertionError, VerifyError)):
        check(1)


def _at_the_start(step: Step) -> Step:
    other = copy(step)
    other.first = const(0)
    return other
