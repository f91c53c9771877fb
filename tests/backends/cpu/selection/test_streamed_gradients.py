"""Gradients through what streams: each pass computes scores anew, and none are ever in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from bench.attention import HEADS, WIDTH, gradients
from luminal.backends.cpu import backend
from luminal.compiler.compile import lower_to_program
from luminal.selection import cascades
from tests.backends.cpu.schedule.tile_work import work
from tests.backends.cpu.selection.held import held
from tests.long_share import long_but, long_rows
from tests.machines import usual

LENGTH = 1024
ROUNDED = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 1e-2}
MASKS = ("none", "causal", "window", "added", "before")


@pytest.mark.parametrize(
    ("causal", "dtype"),
    long_rows(product([False, True], ["float32", "bfloat16"]), [(True, "float32")]),
)
def test_no_scores_in_memory(causal: bool, dtype: str) -> None:
    program = lower_to_program(gradients((1, HEADS, LENGTH, WIDTH), causal, dtype).graph(), usual())
    assert len(program.launches) == 2
    statistics = 3 * HEADS * LENGTH * 4
    assert held(program) <= statistics + (4 << 20)  # a sixteenth of the scores of all heads
    contracted = sum(work(kernel)["Contract"] for kernel in program.kernels)
    every = 9 * HEADS * WIDTH * LENGTH**2  # those of both passes, what two sweeps need done twice
    assert contracted <= (0.53 if causal else 1) * every


@dataclass(frozen=True)
class Case:
    queries: int
    keys: int
    mask: str
    dtype: str = "float32"
    width: int = 24
    further: int = 13
    groups: int = 1
    function: str = "softmax"
    output: bool = True

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        wide = (2, self.groups, self.queries)
        return {
            "q": (*wide, self.width),
            "k": (2, 1, self.keys, self.width),
            "v": (2, 1, self.keys, self.further),
            "up": (*wide, self.further),
            "mask": (self.queries, self.keys),
        }

    def attend(self, lib: Any, given: dict[str, Any], i: Any, j: Any) -> Any:
        """With tensors of either library."""
        scores = given["q"] @ given["k"].mT * self.width**-0.5
        seen = {"causal": j <= i, "window": (j <= i) & (j > i - 20), "before": (j < i) | (j == 0)}
        if self.mask == "added":
            scores = scores + given["mask"]
        elif self.mask != "none":
            scores = lib.where(seen[self.mask], scores, -np.inf)
        weights = scores.sigmoid() if self.function == "sigmoid" else scores.softmax(-1)
        return weights @ given["v"]


CASES = (
    *(Case(67, 67, mask) for mask in MASKS),
    *(Case(130, 131, mask, groups=3) for mask in MASKS),
    Case(75, 40, "none", "bfloat16"),
    Case(75, 75, "causal", "bfloat16"),
    Case(75, 75, "causal", "float64", output=False),
    Case(2, 300, "none", output=False),
    Case(300, 5, "none"),
    Case(90, 90, "none", function="sigmoid"),
)
SHORT = [*[case for case in CASES if case.groups > 1][1:3], CASES[-6], CASES[-4]]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that can stream does, however small."""
    monkeypatch.setattr(cascades, "is_gain", lambda *_: True)


@pytest.mark.parametrize("case", long_but(CASES, SHORT), ids=str)
@pytest.mark.usefixtures("always")
def test_gradients_are_those_of_float64(case: Case) -> None:
    check(case)


@pytest.mark.usefixtures("always")
def test_of_any_length() -> None:
    for causal in ("none", "causal"):
        case = Case(200, 200, causal)
        exe = record(case, dynamic=True)
        assert len(exe.report().kernels) == 2
        for length in (1, 33, 200):
            compare(exe, replace(case, queries=length, keys=length))


@pytest.mark.usefixtures("always")
def test_the_loss_lies_between_forward_and_backward() -> None:
    """Both compute the scores; what the forward pass stored is what the others read."""
    given = {name: np.random.default_rng(0).standard_normal((3, 70, 20)) for name in "qkv"}
    weight = np.random.default_rng(1).standard_normal((20, 9))
    cx = lm.Graph()
    named = {name: cx.tensor(x.shape, name=name, dtype="float64") for name, x in given.items()}
    w = cx.tensor(weight.shape, name="w", dtype="float64")
    pulled = lm.grad(loss(**named, w=w), [*named.values(), w])
    for name, gradient in zip((*named, "w"), pulled, strict=True):
        gradient.output(name)
    buffers = lower_to_program(cx.graph(), backend.current()).buffers
    assert not [b for b in buffers if [str(e) for e in b.shape].count("70") > 1]
    found = lm.compile(cx)({**given, "w": weight})
    with torch.inference_mode(False):
        tensors = {name: torch.from_numpy(x) for name, x in {**given, "w": weight}.items()}
        leaves = {name: x.requires_grad_() for name, x in tensors.items()}
        wanted = torch.autograd.grad(loss(**leaves), [*leaves.values()])
    for name, expected in zip(leaves, wanted, strict=True):
        # float64, gradients through a softmax: 10,000 ulp where terms cancel
        np.testing.assert_allclose(found[name], expected.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("always")
def test_most_of_a_step_lies_between_forward_and_backward() -> None:
    """As of a model's first layer: what depends on its scores only by way of their results is no
    part of a pass, however much there is.
    """
    shape, random = (40, 8), np.random.default_rng(0)
    cx = lm.Graph()
    q, k, v = (cx.tensor(shape, name=name) for name in "qkv")
    w = cx.tensor((8, 8), name="w")
    y = (q @ k.mT).softmax(-1) @ v
    for what in random.choice(["sin", "cos", "exp", "square"], cascades.ABOVE // 6):
        y = getattr(y @ w, what)()
    for name, gradient in zip("qkv", lm.grad(y.sum(), [q, k, v]), strict=True):
        gradient.output(name)
    buffers = lower_to_program(cx.graph(), backend.current()).buffers
    assert not [b for b in buffers if [str(e) for e in b.shape].count("40") > 1]


def loss(q: Any, k: Any, v: Any, w: Any) -> Any:
    """With tensors of either library; the gradients of q and k are read at other positions."""
    q, k = q[..., :10] - q[..., 10:], k[..., :10] * k[..., 10:]
    return (((q @ k.mT * 0.3).softmax(-1) @ v) @ w).square().sum()


def check(case: Case) -> None:
    exe = record(case)
    if case.function == "softmax" and not (case.output and case.dtype == "bfloat16"):
        assert len(exe.report().kernels) == 2
    compare(exe, case)


def record(case: Case, *, dynamic: bool = False) -> lm.Executable:
    cx = lm.Graph()
    queries: Any = cx.dim("s", 1, case.queries) if dynamic else case.queries
    keys: Any = queries if dynamic else case.keys
    named = {"q": (-2, queries), "up": (-2, queries), "k": (-2, keys), "v": (-2, keys)}
    given = {}
    for name, shape in case.shapes.items():
        if name == "mask" and case.mask != "added":
            continue
        sizes: list[Any] = [*shape]
        if name in named:
            at, size = named[name]
            sizes[at] = size
        given[name] = cx.tensor(tuple(sizes), name=name, dtype=case.dtype)
    i, j = cx.arange(queries).reshape(queries, 1), cx.arange(keys).reshape(1, keys)
    y = case.attend(lm, given, i, j)
    pulled = lm.grad((y * given["up"]).sum(), [given[name] for name in "qkv"])
    for name, gradient in zip("qkv", pulled, strict=True):
        gradient.output(name)
    if case.output:
        y.output("y")
    return lm.compile(cx)


def compare(exe: lm.Executable, case: Case) -> None:
    random = np.random.default_rng(0)
    drawn = {name: random.standard_normal(shape) for name, shape in case.shapes.items()}
    if case.mask != "added":
        del drawn["mask"]
    given = {name: torch.from_numpy(x).to(getattr(torch, case.dtype)) for name, x in drawn.items()}
    found = exe(given)
    with torch.inference_mode(False):
        doubles = {name: x.double().requires_grad_() for name, x in given.items()}
        i, j = torch.arange(case.queries)[:, None], torch.arange(case.keys)[None]
        y = case.attend(torch, doubles, i, j)
        leaves = [doubles[name] for name in "qkv"]
        wanted = dict(zip("qkv", torch.autograd.grad(y, leaves, doubles["up"]), strict=True))
    if case.output:
        wanted["y"] = y.detach()
    for name, expected in wanted.items():
        off = np.asarray(found[name], np.float64) - expected.numpy()
        norm = np.linalg.norm(expected.numpy()) + 1e-3
        assert np.linalg.norm(off) <= ROUNDED[case.dtype] * norm, name
