"""Rolled layers hand no scores from the forward Loop to the backward one: it computes them anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn, optim
from luminal.compiler import compile
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.hlir.prune import pruned
from luminal.models.llama import Llama, LlamaConfig
from luminal.nn import functional as F
from luminal.rolling import kept
from luminal.rolling.roll import roll
from luminal.selection import cascades
from tests.backends.cpu.selection.held import held
from tests.long_share import mostly_long
from tests.machines import COSTS, vectors

HEADS, WIDTH, VOCABULARY = 8, 16, 50
LAYERS, LENGTH, FEATURES = 6, 67, 8
ROUNDED = {"float32": 1e-5, "float64": 1e-13}


def step(length: int, heads: int = HEADS, width: int = WIDTH) -> Graph:
    """Of training four blocks."""
    sizes = (heads * width, 96, 4, heads, heads, width, VOCABULARY, length)
    nn.init.manual_seed(0)
    model = Llama(LlamaConfig(*sizes)).train()
    cx = lm.Graph()
    ids, wanted = (cx.tensor((length,), np.int64, name) for name in ("ids", "wanted"))
    loss = F.cross_entropy(model(ids), wanted).output("loss")
    optim.AdamW(model.parameters(), lr=1e-3).step(loss)
    return cx.graph()


@pytest.mark.parametrize("length", mostly_long([1024, 2048], 1))
def test_a_step_of_training_holds_no_scores(length: int) -> None:
    program = lower_to_program(step(length), vectors(512, 32))
    for buffer in program.buffers:
        assert [str(extent) for extent in buffer.shape].count(str(length)) < 2, buffer
    scores = 4 * HEADS * length**2 * 4  # of all layers
    assert held(program) < scores / 3  # activations, one after the other


@pytest.mark.parametrize(
    ("length", "heads", "width", "handed"),
    [
        (1024, HEADS, WIDTH, False),
        (96, HEADS, WIDTH, True),  # stays in the caches
        pytest.param(256, 8, 64, True, marks=pytest.mark.long),  # hardly larger than q and k
        (2048, 2, 256, True),  # dear to compute
    ],
)
def test_what_is_handed_out(length: int, heads: int, width: int, handed: bool) -> None:
    rolled = roll(pruned(step(length, heads, width)), COSTS)
    shapes = [t.shape for n in rolled.nodes() if n.op.name == "Loop" for t in n.types]
    assert shapes
    assert any([str(n) for n in shape].count(str(length)) > 1 for shape in shapes) is handed


@pytest.mark.parametrize("dtype", mostly_long(ROUNDED, 1))
def test_gradients_are_those_of_float64(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    shapes = {"x": (2, LENGTH, FEATURES)}
    shapes |= {f"{name}{n}": (FEATURES, FEATURES) for n in range(LAYERS) for name in "qkvo"}
    given = {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    unrolled = record(given)
    monkeypatch.setattr(compile, "roll", lambda graph, _: graph)
    apart = lm.compile(unrolled)(given)
    monkeypatch.undo()
    monkeypatch.setattr(cascades, "is_gain", lambda *_: True)
    monkeypatch.setattr(kept, "STREAMED", 1 << 40)  # however small
    exe = lm.compile(record(given))
    assert max(row.trips for row in exe.report().kernels) == LAYERS
    for buffer in lower_to_program(record(given).graph(), vectors(512, 32)).buffers:
        assert [str(extent) for extent in buffer.shape].count(str(LENGTH)) < 2, buffer
    found = exe(given)
    with torch.inference_mode(False):
        leaves = {k: torch.from_numpy(x).double().requires_grad_() for k, x in given.items()}
        wanted = torch.autograd.grad(loss(torch, leaves), [*leaves.values()])
    for name, expected in zip(leaves, wanted, strict=True):
        norm = np.linalg.norm(expected.numpy())
        assert np.linalg.norm(found[name] - expected.numpy()) <= ROUNDED[dtype] * norm, name
        assert np.linalg.norm(found[name] - apart[name]) <= ROUNDED[dtype] * norm, name


def record(given: dict[str, Any]) -> lm.Graph:
    cx = lm.Graph()
    named = {k: cx.tensor(x.shape, name=k, dtype=str(x.dtype)) for k, x in given.items()}
    for name, gradient in zip(named, lm.grad(loss(lm, named), [*named.values()]), strict=True):
        gradient.output(name)
    return cx


def loss(lib: Any, given: dict[str, Any]) -> Any:
    """Layers of causal attention, with tensors of either library."""
    h, i = given["x"], lib.arange(LENGTH) if lib is torch else given["x"].graph.arange(LENGTH)
    for n in range(LAYERS):
        q, k, v = (h @ given[f"{name}{n}"] * 0.3 for name in "qkv")
        scores = lib.where(i[None, :] <= i[:, None], q @ k.mT * 0.3, -np.inf)
        h = h + (scores.softmax(-1) @ v) @ given[f"o{n}"] * 0.3
    return (h * h).sum()
