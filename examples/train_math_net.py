"""A small network that learns arithmetic: a * b, a / b and the root of a**2 + b**2, at once.

python examples/train_math_net.py
"""

from __future__ import annotations

import argparse

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.nn import functional as F
from luminal.optim.lr_scheduler import CosineAnnealingLR
from luminal.training import ArrayDataset, Batches, Record, fit

STEPS = 3000


def answers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(count, 3) right answers for (count,) numbers."""
    return np.stack([a * b, a / b, np.hypot(a, b)], 1).astype(np.float32)


def questions(count: int, seed: int) -> ArrayDataset:
    """Pairs of numbers from 1 to 2, and what is to be computed of them."""
    pairs = np.random.default_rng(seed).uniform(1, 2, (count, 2)).astype(np.float32)
    return ArrayDataset(pairs, answers(*pairs.T))


def train(steps: int = STEPS, progress: bool = True) -> tuple[nn.Module, Record]:
    """The network, and how its training went."""
    lm.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3)
    )
    record = fit(
        model, F.mse_loss, Batches(questions(4096, 0), 64, drop_last=True),
        optim.AdamW(model.parameters(), lr=3e-3),
        steps=steps, scheduler=CosineAnnealingLR(3e-3, T_max=steps), clip_norm=1.0,
        validate=Batches(questions(1000, 1), 1000, shuffle=False), progress=progress,
    )  # fmt: skip
    return model, record


def ask(model: nn.Module, a: float, b: float) -> list[float]:
    """What the network computes for one pair."""
    cx = lm.Graph("question")
    found = model.eval()(cx.tensor([[a, b]])).output("answers")
    return [float(x) for x in lm.compile(cx)()[found][0]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    network, history = train(parser.parse_args().steps)
    print(f"validation loss {history.validation_loss:.2e}")
    product, quotient, root = ask(network, 1.5, 1.25)
    print(f"1.5 * 1.25 = {product:.3f}, 1.5 / 1.25 = {quotient:.3f}, hypot = {root:.3f}")
