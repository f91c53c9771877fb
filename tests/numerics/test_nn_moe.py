"""Mixture of experts against Hugging Face's, and both ways of computing it against each other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.base.errors import InputError
from luminal.nn.moe import Groups, Router
from tests.close import close
from tests.numerics.recording import on, run

transformers = pytest.importorskip("transformers")
rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(0, 1, shape).astype(np.float32)


def filled(layer: nn.Module) -> nn.Module:
    layer.load_state_dict({name: normal(*p.shape) / 2 for name, p in layer.named_parameters()})
    return layer


def exact(layer: nn.MoE, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Token by token in float64."""
    w = {name: array.astype(np.float64) for name, array in layer.state_dict().items()}
    top_k, rows = layer.gate.top_k, []

    def swiglu(v: Any, gate: Any, up: Any, down: Any) -> Any:
        g = gate @ v
        return down @ (g / (1 + np.exp(-g)) * (up @ v))

    for v in x.reshape(-1, x.shape[-1]).astype(np.float64):
        logits = w["gate.weight"] @ v
        scores = np.exp(logits) / np.exp(logits).sum()
        if layer.gate.scoring == "sigmoid":
            scores = 1 / (1 + np.exp(-logits))
        chosen = np.argsort(-scores)[:top_k]
        total = scores[chosen].sum() if layer.gate.normalize else 1
        y = np.zeros_like(v)
        for e in chosen:
            gate, up = np.split(w["experts.gate_up_proj"][e], 2)
            part = swiglu(v, gate, up, w["experts.down_proj"][e])
            y += scores[e] / total * layer.gate.scale * part
        if layer.shared_experts is not None:
            names = ("gate", "up", "down")
            part = swiglu(v, *(w[f"shared_experts.{n}_proj.weight"] for n in names))
            if layer.shared_expert_gate is not None:
                part = part / (1 + np.exp(-(w["shared_expert_gate.weight"] @ v)))
            y += part
        rows.append(y)
    return np.reshape(rows, x.shape)


OPTIONS = {
    "plain": {},
    "shared": {"shared": 5, "shared_gate": True, "normalize": False},
    "sigmoid": {"shared": 4, "scoring": "sigmoid", "scale": 2.5},
}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", OPTIONS)
def test_moe(name: str, backend: str) -> None:
    layer = filled(nn.MoE(8, 6, experts=5, top_k=2, **OPTIONS[name]))
    for shape in [(2, 8), (3, 7, 8)]:  # slot by slot, in blocks
        x = normal(*shape)
        with on(backend):
            close(run(layer, x), exact(layer, x).astype(np.float32), 64)


def test_any_number_of_tokens() -> None:
    layer = filled(nn.MoE(8, 6, experts=3, top_k=2))
    cx = lm.Graph()
    x = cx.tensor((cx.dim("tokens", 0, 500), 8), name="x")
    layer(x).output("y")
    exe = lm.compile(cx)
    for count in (0, 1, 2, 32, 101):
        x = normal(count, 8)
        close(exe({"x": x})["y"], exact(layer, x).astype(np.float32), 64)
    x = np.broadcast_to(normal(1, 8), (64, 8)).copy()  # all to the same experts
    close(exe({"x": x})["y"], exact(layer, x).astype(np.float32), 64)


def test_like_mixtral() -> None:
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = transformers.MixtralConfig(
        hidden_size=8, intermediate_size=6, num_local_experts=4, num_experts_per_tok=2
    )
    theirs = MixtralSparseMoeBlock(config).eval()
    for value in theirs.state_dict().values():
        torch.nn.init.normal_(value)
    ours = nn.MoE(8, 6, experts=4, top_k=2)
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    x = normal(2, 9, 8)
    with torch.no_grad(), on("cpu"):
        close(run(ours, x), theirs(torch.from_numpy(x)).numpy(), 64)


@pytest.mark.parametrize("shape", [(9, 8), (2, 0, 8), (0, 9, 8), (2, 1, 9, 8)])
def test_capacity_of_any_groups(shape: tuple[int, ...]) -> None:
    layer = filled(nn.MoE(8, 6, experts=5, top_k=2, capacity=9))
    x = normal(*shape)
    close(run(layer, x), exact(layer, x).astype(np.float32).reshape(shape), 64)


def test_errors() -> None:
    with pytest.raises(InputError, match=r"capacity is 2 and capacity_factor 1.5; give one"):
        nn.MoE(8, 6, experts=4, top_k=2, capacity=2, capacity_factor=1.5)
    with pytest.raises(InputError, match=r"capacity is 0; it is the slots .* of at least 1"):
        nn.MoE(8, 6, experts=4, top_k=2, capacity=0)
    with pytest.raises(InputError, match=r"capacity_factor is -1.0; .* more than 0: give 1.25"):
        nn.MoE(8, 6, experts=4, top_k=2, capacity_factor=-1.0)
    cx = lm.Graph()
    with pytest.raises(InputError, match=r"x is \(tokens, 8\); .* to be literal: pad them"):
        nn.MoE(8, 6, 4, 2, capacity=2)(cx.tensor((cx.dim("tokens", 1, 9), 8), name="x"))
    with pytest.raises(InputError, match=r"top_k is 5; it is 1..4"):
        nn.MoE(8, 6, experts=4, top_k=5)
    for numbers in ({"experts": 2.0, "top_k": 1}, {"experts": 2, "top_k": True}):
        with pytest.raises(InputError, match=r"MoE: .* is (2.0|True); give an int of at least 1"):
            nn.MoE(8, 6, **numbers)
    with pytest.raises(InputError, match="capacity_factor is '2'; an expert's room"):
        nn.MoE(8, 6, experts=4, top_k=2, capacity_factor="2")
    nn.MoE(8, 6, experts=4, top_k=2, capacity=np.int64(2))
    with pytest.raises(InputError, match="scoring 'tanh' is not known"):
        nn.MoE(8, 6, experts=4, top_k=2, scoring="tanh")
    with pytest.raises(InputError, match=r"Groups\(count=3, kept=1\) of 4 experts; equal groups"):
        Router(8, 4, 2, groups=Groups(3, 1))
    with pytest.raises(InputError, match="hold fewer than top_k, 3"):
        Router(8, 4, 3, groups=Groups(2, 1))


def bounded(layer: nn.MoE, x: Any, w: dict[str, Any], capacity: int) -> Any:
    """A mixture of (groups, tokens, hidden) by PyTorch, slot by slot, and how many it dropped."""
    rows, dropped = [], 0
    for group in x:
        scores = (group @ w["gate.weight"].mT).softmax(-1)
        best = scores.topk(layer.gate.top_k, -1)
        weights = best.values / best.values.sum(-1, keepdim=True)
        taken: Counter[int] = Counter()
        y = [torch.zeros_like(v) for v in group]
        for k in range(layer.gate.top_k):
            for t, v in enumerate(group):
                e = int(best.indices[t, k])
                taken[e] += 1
                if taken[e] > capacity:
                    dropped += 1
                    continue
                v = v * weights[t, k] if layer.weighted_inputs else v
                gate, up = (w["experts.gate_up_proj"][e] @ v).chunk(2)
                if layer.experts.down_proj_bias is not None:
                    biases = w["experts.gate_up_proj_bias"][e].chunk(2)
                    gate, up = gate + biases[0], up + biases[1]
                part = w["experts.down_proj"][e] @ (torch.nn.functional.silu(gate) * up)
                if layer.experts.down_proj_bias is not None:
                    part = part + w["experts.down_proj_bias"][e]
                y[t] = y[t] + (part if layer.weighted_inputs else part * weights[t, k])
        rows.append(torch.stack(y))
    return torch.stack(rows), dropped


@pytest.mark.parametrize(
    ("options", "capacity", "backend"),
    [
        ({"capacity": 3}, 3, "reference"),
        ({"capacity_factor": 0.7, "bias": True}, 3, "cpu"),  # ceil(0.7 * 2 * 9 / 5)
        ({"capacity": 2, "weighted_inputs": True}, 2, "reference"),
        ({"capacity": 50}, 9, "reference"),
    ],
)
def test_capacity(options: dict[str, Any], capacity: int, backend: str) -> None:
    numbers = np.random.default_rng(3)
    layer = nn.MoE(8, 6, experts=5, top_k=2, **options)
    named = dict(layer.named_parameters())
    for p in named.values():
        p.set(numbers.normal(0, 0.5, p.shape).astype(np.float32))
    x, upon = numbers.normal(0, 1, (2, 3, 9, 8)).astype(np.float32)[:, :2]
    arrays = {"x": x} | {name: p.numpy() for name, p in named.items()}
    theirs = {name: torch.tensor(array, dtype=torch.float64) for name, array in arrays.items()}
    for tensor in theirs.values():
        tensor.requires_grad_()
    y, dropped = bounded(layer, theirs["x"], theirs, capacity)
    (y * torch.from_numpy(upon)).sum().backward()
    assert (dropped > 0) == (capacity < 9)

    def step(at: Any, upon: Any) -> list[Any]:
        out = layer(at)
        return [out, *lm.grad((out * upon).sum(), [at, *named.values()])]

    with on(backend):
        out, *gradients = run(step, x, upon)
    close(out, y.detach().numpy().astype(np.float32), 64)
    for name, gradient in zip(("x", *named), gradients, strict=True):
        close(gradient, theirs[name].grad.numpy().astype(np.float32), 64)
