"""Mixture of experts against Hugging Face's, and both ways of computing it against each other."""

from __future__ import annotations

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


def test_errors() -> None:
    with pytest.raises(InputError, match=r"top_k is 5; it is 1..4"):
        nn.MoE(8, 6, experts=4, top_k=5)
    with pytest.raises(InputError, match="scoring 'tanh' is not known"):
        nn.MoE(8, 6, experts=4, top_k=2, scoring="tanh")
    with pytest.raises(InputError, match=r"Groups\(count=3, kept=1\) of 4 experts; equal groups"):
        Router(8, 4, 2, groups=Groups(3, 1))
    with pytest.raises(InputError, match="hold fewer than top_k, 3"):
        Router(8, 4, 3, groups=Groups(2, 1))
