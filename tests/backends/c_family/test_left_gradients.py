"""Gradients of attention by warp groups (wgmma), as CUDA has them: their texts on the shims, where
every access and wait is checked, against PyTorch in float64.
"""

from __future__ import annotations

import os
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
from luminal.algebra.terms import Term
from luminal.backends import device_costs
from luminal.backends.c_backend import CBackend
from luminal.base.costs import Costs
from luminal.base.dots import WGMMA
from luminal.base.errors import VerifyError
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.compiler.compile import lower_to_program
from luminal.frontend.random.keyed import dropout
from luminal.hlir.graph import Graph
from luminal.kernel.cascade_fragments import Fragments
from luminal.kernel.fragment_step import Step
from luminal.kernel.streamed import Streamed
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


FOUND = 3  # the status of a child that has found what was planted
STORAGE = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # by which results are rounded


@dataclass(frozen=True, slots=True)
class Drawn:
    """Attention's gradients: float64's results, and how large they would be if no terms of their
    sums cancelled each other.
    """

    graph: Graph
    inputs: dict[str, Any]
    expected: dict[str, Any]
    sizes: dict[str, Any]
    text: str
    scale: float

    def one(self, name: str) -> float:
        """What is 1 where nothing is scaled."""
        return 1.0 if name == "y" else self.scale


def drawn(seed: int, dtype: str = "bfloat16") -> Drawn:
    """A random attention: lengths that are no multiple of tiles, heads that share keys, weights
    that are dropped; what comes from above is large or small in some, so that a step's factors are
    beyond the range of float16.
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
    inputs = {n: rng.standard_normal(shape).astype(STORAGE[dtype]) for n, shape in shapes.items()}
    scale = 2.0 ** (0, 12, -12)[seed % 3 if dtype == "float16" else 0]
    inputs["g"] *= STORAGE[dtype](scale)
    cx = lm.Graph()
    named = {n: cx.tensor(shape, name=n, dtype=dtype) for n, shape in shapes.items()}
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
    y.cast(dtype).output("y")
    pulled = lm.grad((y * g).sum(), [named[n] for n in "qkv"])
    for name, x in zip("qkv", pulled, strict=True):
        x.output(f"d{name}")
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    factor = kept((*wide, keys)) if is_dropped else None
    expected, sizes = by_pytorch(inputs, MASKS[mask](i, j, before), factor)
    text = f"{shapes} {mask} dropped={is_dropped}"
    return Drawn(cx.graph(), inputs, expected, sizes, text, scale)


def by_pytorch(inputs: dict[str, Any], seen: Any, factor: Any) -> tuple[Any, Any]:
    """The result and gradients in float64, and their sizes."""
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
        *pulled, of_scores = torch.autograd.grad((y * g).sum(), [*leaves, scores])
    gradients = {f"d{name}": x.numpy() for name, x in zip("qkv", pulled, strict=True)}
    w, s, q, k, v, g = (abs(x.detach()) for x in (weights, of_scores, q, k, v, g))
    sizes = {
        "y": w @ v, "dq": s @ k * SCALE,
        "dk": (s.mT @ q * SCALE).sum(1, keepdim=True), "dv": (w.mT @ g).sum(1, keepdim=True),
    }  # fmt: skip
    every = {name: x.numpy() for name, x in sizes.items()}
    return {"y": y.detach().numpy(), **gradients}, every


def check(seed: int, dtype: str = "bfloat16") -> None:
    """All results are float64's, rounded once: what was computed errs a hundred times less."""
    run = drawn(seed, dtype)
    found, unit = compiled_on(device(), run.graph)(run.inputs), UNIT[dtype]
    for name, wanted in run.expected.items():
        least = unit * 2.0**-4 * max(run.one(name), float(abs(wanted).max()))  # of sums that cancel
        np.testing.assert_allclose(
            found[name].astype(np.float64), wanted, rtol=1.05 * unit,
            atol=least + tiny(dtype), err_msg=f"{name} of {run.text}",
        )  # fmt: skip


def tiny(dtype: str) -> float:
    """Half of the least number but zero."""
    return 2.0**-25 if dtype == "float16" else 0.0


def check_relaxed(seed: int, dtype: str) -> None:
    """Each factor that a step computes is rounded to 16 bits once, and so are results: by UNIT of
    it at most, where its digits are those of a power of two.
    """
    run = drawn(seed, dtype)
    found = compiled_on(device(), run.graph, Numerics.RELAXED)(run.inputs)
    unit = UNIT[dtype]
    for name, wanted in run.expected.items():
        most = 1.05 * unit * (run.sizes[name] + abs(wanted)) + tiny(dtype)
        most += unit * 2.0**-5 * run.sizes[name].max()
        error = abs(found[name].astype(np.float64) - wanted)
        assert np.all(error <= most), f"{name} of {run.text}: {(error / most).max()}"


@pytest.mark.parametrize("seed", mostly_long(range(24), 0))
def test_drawn_gradients_on_the_shims(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", mostly_long(range(24), 0))
def test_drawn_gradients_of_f16(seed: int) -> None:
    check(seed, "float16")


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("seed", mostly_long(range(12), 0))
def test_drawn_gradients_relaxed(seed: int, dtype: str) -> None:
    check_relaxed(seed, dtype)


@pytest.mark.long
def test_small_factors_that_are_no_shares_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float16 without scales: 2**-12 of what is usual is below its least numbers."""
    monkeypatch.setattr(Streamed, "scaled", frozenset[Term]())
    with pytest.raises(AssertionError):
        check(2, "float16")


@pytest.mark.long
def test_gradients_are_by_warp_groups() -> None:
    """Both passes; with dropout weights are kept for what drops them, and nothing streams."""
    for seed, dtype, is_streamed in (
        (2, "bfloat16", True), (11, "bfloat16", False), (2, "float16", True),
    ):  # fmt: skip
        kernels = lower_to_program(drawn(seed, dtype).graph, device()).kernels
        assert [*map(by_warp_groups, kernels)] == [is_streamed] * len(kernels)


@pytest.mark.long
def test_a_pass_without_fences_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that has no room for more products under way ends the process: a child's."""
    monkeypatch.setattr(Fragments, "batch", lambda self, running=0: nullcontext())
    child = os.fork()
    if child == 0:
        try:
            check(2)
        except (DeviceFault, VerifyError):
            os._exit(FOUND)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == FOUND


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
