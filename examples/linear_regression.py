"""A line through points, by gradient descent: the smallest training loop, without `fit`.

python examples/linear_regression.py
"""

from __future__ import annotations

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.nn import functional as F

SLOPE, OFFSET = 3.0, -1.0


def points(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """x and SLOPE * x + OFFSET with some noise, both (count, 1)."""
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, (count, 1)).astype(np.float32)
    return x, (SLOPE * x + OFFSET + draw.normal(0, 0.1, x.shape)).astype(np.float32)


def regress(steps: int = 200) -> tuple[float, float, list[float]]:
    """The slope and offset found, and the loss before every step."""
    points_x, points_y = points()
    model = nn.Linear(1, 1)
    cx = lm.Graph("linear regression")
    x, y = (cx.tensor(points_x.shape, name=name) for name in "xy")
    lr = cx.tensor((), name="lr")
    loss = F.mse_loss(model(x), y).output("loss")
    optim.SGD(model.parameters(), lr=lr).step(loss)  # backward pass and update, in the same graph
    step = lm.compile(cx)
    losses = [float(step({"x": points_x, "y": points_y, "lr": 0.2})["loss"]) for _ in range(steps)]
    return model.weight.numpy().item(), model.bias.numpy().item(), losses


if __name__ == "__main__":
    slope, offset, losses = regress()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}")
    print(f"y = {slope:.3f} x {offset:+.3f}   (the points: y = {SLOPE} x {OFFSET:+})")
