"""Layers at symbolic extents, compiled once; and in 16 bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from tests.close import close

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(0, 1, shape).astype(np.float32)


# The shapes' dims are drawn anew for every run.
ROWS = {
    "Conv2d": (lambda nn: nn.Conv2d(3, 4, 3, stride=2, padding=1), ("n", 3, "h", "w")),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(3, 2, 4, stride=3), ("n", 3, "w")),
    "MaxPool2d": (lambda nn: nn.MaxPool2d(3, 2, 1), ("n", 3, "h", "w")),
    "AdaptiveAvgPool2d": (lambda nn: nn.AdaptiveAvgPool2d((2, 3)), ("n", 3, "h", "w")),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(3), ("n", 3, "w")),
    "GroupNorm": (lambda nn: nn.GroupNorm(1, 3), ("n", 3, "w")),
    "Embedding": (lambda nn: nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1)), ("n", "w", 3)),
    "LSTM": (lambda nn: nn.LSTM(3, 4, bidirectional=True), ("w", "n", 3)),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0),
        ("w", "n", 6),
    ),
    "ReflectionPad1d": (lambda nn: nn.ReflectionPad1d(2), ("n", 3, "w")),
}


def test_symbolic_extents() -> None:
    cx, theirs = lm.Graph(), {}
    cx.dim("n", 2, 8)
    cx.dim("h", 4, 20)
    cx.dim("w", 4, 20)
    for name, (build, shape) in ROWS.items():
        theirs[name] = build(torch.nn)
        ours = build(nn)  # in training mode, as theirs
        ours.load_state_dict({n: v.numpy() for n, v in theirs[name].state_dict().items()})
        y = ours(cx.tensor(shape, name=name))
        (y[0] if isinstance(y, tuple) else y).output(f"{name}.y")
    exe = lm.compile(cx)
    for n, h, w in [(2, 7, 5), (3, 4, 9), (8, 20, 20)]:
        dims = {"n": n, "h": h, "w": w}
        inputs = {
            name: normal(*(dims.get(d, d) for d in shape)) for name, (_, shape) in ROWS.items()
        }
        found = exe(inputs)
        for name, layer in theirs.items():
            y = layer(torch.from_numpy(inputs[name]))
            y = y[0] if isinstance(y, tuple) else y
            close(found[f"{name}.y"], y.detach().numpy(), 128)  # training stacks two norms


LAYERS_16 = {
    "Linear": lambda: nn.Linear(6, 4, dtype="bfloat16"),
    "LayerNorm": lambda: nn.LayerNorm(6, dtype="bfloat16"),
    "RMSNorm": lambda: nn.RMSNorm(6, dtype="bfloat16"),
    "GRU": lambda: nn.GRU(6, 4, dtype="bfloat16"),
    "LSTM": lambda: nn.LSTM(6, 4, proj_size=2, dtype="bfloat16"),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(6, 2, 8, dtype="bfloat16"),
    "SwiGLU": lambda: nn.SwiGLU(6, 8, dtype="bfloat16"),
    "MoE": lambda: nn.MoE(6, 8, 4, 2, dtype="bfloat16"),
}


def output_of(layer: nn.Module, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    cx = lm.Graph()
    y = layer(cx.tensor(x.shape, x.dtype, name="x"))
    (y[0] if isinstance(y, tuple) else y).output("y")
    return lm.compile(cx, backend="reference")({"x": x})["y"]


@pytest.mark.parametrize("name", LAYERS_16)
def test_16_bits_in_16_bits_out(name: str) -> None:
    lm.manual_seed(0)  # others may draw a row whose two best experts are as near as 8 bits
    x = normal(5, 3, 6).astype(ml_dtypes.bfloat16)
    x = x if name != "MoE" else x.reshape(15, 6)
    narrow = LAYERS_16[name]().eval()
    found = output_of(narrow, x)
    assert found.dtype == ml_dtypes.bfloat16
    wide = LAYERS_16[name]().eval()  # the same values, computed in float32
    state = {n: a.astype(np.float32) for n, a in narrow.state_dict().items()}
    wide.load_state_dict(state, adopt_dtypes=True)
    expected = output_of(wide, x.astype(np.float32))
    close(found.astype(np.float32), expected, 16 * 2.0**16)  # 16 roundings to 8 bits, in f32's ulp
