"""Training loops that nobody wrote, beside PyTorch: any order of what a script may do by hand.

Two models with an optimizer each are called, mixed, read late, differentiated, updated, scaled by
hand, set to train and to evaluate. What PyTorch refuses (a backward pass through what was changed)
is left out on both sides.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim

torch = pytest.importorskip("torch")

BATCHES = [np.random.default_rng(k).standard_normal((4, 3)).astype(np.float32) for k in range(3)]
MOVES = (
    "call call call fresh fresh mix read loss loss loss step step clip clear scale add gradients "
    "mode rate"
).split()
OPTIMIZERS: list[tuple[str, dict[str, float]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("Adam", {"lr": 0.05, "eps": 1e-2}),  # a large eps: noise in small gradients stays small
    ("RMSprop", {"lr": 0.02, "eps": 1e-1}),
]


pytestmark = pytest.mark.usefixtures("new_default_graph")


class Loop:
    """One library's side: its models, optimizers and values."""

    def __init__(self, library: Any, layers: Any, optimizers: Any, seed: int) -> None:
        choice = random.Random(seed)
        self.library, self.layers = library, layers
        self.models, self.optimizers, self.values = list[Any](), list[Any](), list[Any]()
        self.batches = [library.tensor(batch) for batch in BATCHES]
        for number in range(2):
            weight = np.random.default_rng([seed, number]).standard_normal((3, 3)) * 0.5
            linear = layers.Linear(3, 3)
            held = {"weight": weight.astype(np.float32), "bias": np.zeros(3, np.float32)}
            array = torch.tensor if library is torch else np.asarray
            linear.load_state_dict({name: array(value) for name, value in held.items()})
            norms = [layers.BatchNorm1d(3)] if choice.random() < 0.4 else []
            self.models.append(layers.Sequential(linear, layers.Tanh(), *norms))
            name, options = choice.choice(OPTIMIZERS)
            made = getattr(optimizers, name)(self.models[-1].parameters(), **options)
            self.optimizers.append(made)

    def parameters(self, number: int) -> list[Any]:
        return list(self.models[number].parameters())

    def move(self, name: str, k: int, a: int, b: int, share: float) -> list[Any]:
        """Does one thing with model `k`; gives what is to be compared."""
        if name == "call":
            x = self.batches[a % 3]
            if self.values and share < 0.3:
                x = self.values[a % len(self.values)]
                x = x.detach() if share < 0.15 else x
            self.values.append(self.models[k](x))
        elif name == "fresh":
            self.values.append(self.models[k](self.library.tensor(BATCHES[a % 3])))
        elif name == "mix" and self.values:
            count = len(self.values)
            self.values.append(self.values[a % count] * 0.5 + self.values[b % count])
        elif name == "read" and self.values:
            return [self.values[a % len(self.values)]]
        elif name == "loss" and self.values:
            loss = (self.values[a % len(self.values)] ** 2).mean()
            loss.backward(retain_graph=True)
            return [loss]
        elif name in ("step", "clip") and any(p.grad is not None for p in self.parameters(k)):
            norms = []
            if name == "clip":
                norms = [self.layers.utils.clip_grad_norm_(self.parameters(k), 0.3)]
            self.optimizers[k].step()
            return norms
        elif name == "clear":
            self.optimizers[k].zero_grad()
        elif name in ("scale", "add"):
            with self.library.no_grad():
                for p in self.parameters(k):
                    p.mul_(0.95) if name == "scale" else p.add_(0.01)
        elif name == "gradients":
            return [np.zeros(0) if p.grad is None else p.grad for p in self.parameters(k)]
        elif name == "mode":
            self.models[k].train(share < 0.5)
        elif name == "rate":
            self.optimizers[k].param_groups[0]["lr"] = 0.03
        return []


def numbers(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def check_loop(seed: int) -> None:
    choice = random.Random(seed)
    theirs, ours = Loop(torch, torch.nn, torch.optim, seed), Loop(lm, nn, optim, seed)
    moves = []
    for _ in range(choice.randint(8, 25)):
        move = (choice.choice(MOVES), choice.randrange(2), choice.randrange(99))
        move = (*move, choice.randrange(99), choice.random())
        moves.append(move)
        try:
            expected = theirs.move(*move)
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            continue
        check(ours.move(*move), expected, f"seed {seed}: {moves}")
    check(ours.values, theirs.values, f"seed {seed}, at the end: {moves}")
    for k in range(2):
        check(ours.parameters(k), theirs.parameters(k), f"seed {seed}, Parameters: {moves}")


def check(found: list[Any], expected: list[Any], what: str) -> None:
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        # Norms over four rows of nearly equal numbers multiply roundings by hundreds.
        np.testing.assert_allclose(numbers(x), numbers(y), rtol=2e-3, atol=2e-4, err_msg=what)


@pytest.mark.parametrize("seed", range(2))
def test_a_random_loop(seed: int) -> None:
    check_loop(seed)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(8))
def test_random_loops(chunk: int) -> None:
    for seed in range(3 + 20 * chunk, 23 + 20 * chunk):
        lm.reset()
        check_loop(seed)
