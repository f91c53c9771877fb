"""Values deep below others: chains of a few operations, with derivatives of their own among them.

Whatever walks values must not do so by recursion: Python's ends at a thousand calls, and that of
pickles at fewer layers. `y.max(-1)` behind 35 layers did not compile, since the mark of its
derivative held its operand, and the key of kept programs followed that down.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from tests.close import close_each
from tests.long_share import mostly_long

Step = Callable[[lm.Tensor], lm.Tensor]
CHUNK = 5

STEPS: tuple[Step, ...] = (
    lambda y: (y + 0.5).tanh(),
    lambda y: y.sin() * 1.1,
    lambda y: y - y.max(-1, keepdim=True)[0] * 0.3,
    lambda y: y - y.min(0, keepdim=True)[0] * 0.2,
    lambda y: y.cummax(1)[0] * 0.7,
    lambda y: (y.cumsum(0) * 0.2).tanh(),
    lambda y: y.topk(5, -1)[0].flip(-1) * 0.8,
    lambda y: y.sort(-1, descending=True)[0] * 0.9,
    lambda y: y.gather(1, y.detach().argsort(-1)) + 0.1,
    lambda y: y.relu() - 0.3,
    lambda y: y + y.detach() * 0.1 - y.floor() * 0.2,
    lambda y: y.T.reshape(3, 5).softmax(-1) - y * 0.1,
    lambda y: lm.where(y > 0.2, y, y * 0.5).erf(),
    lambda y: y.clamp(-1, 1).logsumexp(-1, keepdim=True) - y,
    lambda y: lm.checkpoint(lambda z: (z * 0.7).gelu())(y),
)
ENDS: tuple[Step, ...] = (
    lambda y: y.max(-1)[0],
    lambda y: y.min(0)[0],
    lambda y: y.median(-1)[0],
    lambda y: y.cummin(0)[0],
    lambda y: y.amax(),
)


def chain(rng: random.Random, depth: int, x: lm.Tensor) -> lm.Tensor:
    """So many layers of one, two or three steps, over and over."""
    steps = [rng.choice(STEPS) for _ in range(rng.randint(1, 3))]
    for number in range(depth):
        x = steps[number % len(steps)](x)
    return rng.choice(ENDS)(x)


def check(seed: int, depth: int) -> None:
    """The graph, mostly with a gradient, gives what the reference gives."""
    rng = random.Random(seed)
    cx = lm.Graph()
    x = cx.tensor((3, 5), name="x")
    y = chain(rng, depth, x)
    y.output("y")
    if rng.random() < 0.7:
        lm.grad(y.sum(), [x])[0].output("g")
    given = {"x": np.random.default_rng(seed).normal(0, 1, (3, 5)).astype(np.float32)}
    wanted = lm.compile(cx, backend="reference")(given)
    for name, value in lm.compile(cx)(given).items():
        # Rounding may choose another of two near greatest values, each layer adds to that.
        np.testing.assert_allclose(value, wanted[name], rtol=1e-3, atol=1e-3, err_msg=f"{seed}")


@pytest.mark.parametrize("chunk", mostly_long(range(400), 1))
def test_chains_of_seeds(chunk: int) -> None:
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        check(seed, random.Random(seed).randint(20, 80))


@pytest.mark.long
def test_a_mark_is_not_followed_down() -> None:
    cx = lm.Graph()
    y = cx.tensor((2, 3), name="x")
    for number in range(150):
        y = (y + number).tanh()
    y.max(-1)[0].output("y")
    found = lm.compile(cx)({"x": np.zeros((2, 3), np.float32)})["y"]
    close_each(found, [1, 1])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [0, 2, 8])
def test_twenty_thousand_layers(kind: int) -> None:
    cx = lm.Graph()
    y = cx.tensor((3, 5), name="x")
    for _ in range(20_000):
        y = STEPS[kind](y)
    y.max(-1)[0].output("y")
    given = {"x": np.random.default_rng(0).normal(0, 1, (3, 5)).astype(np.float32)}
    found, wanted = (lm.compile(cx, backend=b)(given)["y"] for b in ("cpu", "reference"))
    np.testing.assert_allclose(found, wanted, rtol=1e-3)  # 20,000 roundings in a row
