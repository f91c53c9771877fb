"""Recurrent operators with options that random nodes draw too seldom."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import luminal.onnx
from tests.close import close

STEPS, BATCH, WIDTH, HIDDEN = 3, 2, 4, 5


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("is_coupled", [False, True])
def test_a_forget_gate_that_is_what_the_input_gate_leaves(is_coupled: bool) -> None:
    """By the equations of ONNX, in float64."""
    text = f"""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[{STEPS}, {BATCH}, {WIDTH}] x, float[1, {4 * HIDDEN}, {WIDTH}] w,
           float[1, {4 * HIDDEN}, {HIDDEN}] r) => (float[a, b, c, d] y) {{
          y = LSTM<hidden_size = {HIDDEN}, input_forget = {int(is_coupled)}>(x, w, r)
        }}
    """
    rng = np.random.default_rng(0)
    shapes = ((STEPS, BATCH, WIDTH), (1, 4 * HIDDEN, WIDTH), (1, 4 * HIDDEN, HIDDEN))
    x, w, r = (rng.standard_normal(shape) for shape in shapes)
    h = c = np.zeros((BATCH, HIDDEN))
    wanted = []
    for row in x:
        i, o, f, new = np.split(row @ w[0].T + h @ r[0].T, 4, -1)
        c = (1 - sigmoid(i) if is_coupled else sigmoid(f)) * c + sigmoid(i) * np.tanh(new)
        h = sigmoid(o) * np.tanh(c)
        wanted.append(h[None])
    given = {name: v.astype(np.float32) for name, v in (("x", x), ("w", w), ("r", r))}
    found = luminal.onnx.load(parser.parse_model(text))(given)["y"]
    close(found, np.stack(wanted))
