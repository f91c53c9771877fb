"""States that lanes share: each reads what one of them overwrites, in a kernel with what reads it.

A seed is one to three States of a row, a column, an element or whole, the values that they are
changed by, and outputs that read them as they were.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import luminal as lm
from tests.backends.c_family.dialects import checked
from tests.backends.groups.launch_labels import drawn
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case
from tests.long_share import mostly_long

CHUNK = 4
REDUCTIONS = ("sum", "mean", "amax")


def states(seed: int) -> Case:
    """What a seed says."""
    rng = random.Random(f"states {seed}")
    rows, width = rng.choice((1, 3, 20, 64, 130)), rng.choice((1, 4, 32, 40))
    cx, before = lm.Graph(), {}
    x = cx.tensor((rows, width), name="x")
    for number in range(rng.randint(1, 3)):
        shape = rng.choice(((1, 1), (1, 1), (1, width), (rows, 1), (rows, width)))
        axes = [k for k, n in enumerate(shape) if n == 1]
        values = np.random.default_rng(seed + number).standard_normal(shape).astype(np.float32)
        state = lm.State(shape, name=f"s{number}")
        before[state] = values
        old, change = cx.read(state), x * x if rng.random() < 0.5 else x
        for axis in rng.sample(axes, len(axes)):
            change = getattr(change, rng.choice(REDUCTIONS))(axis, keepdim=True)
        cx.assign(state, old + (change - old) * 0.25 if rng.random() < 0.7 else old * 2 + change)
        if rng.random() < 0.7:
            x = rng.choice((x * old, x + old, (x - old).tanh()))
    x.output("y")
    case = drawn(cx.graph())
    return Case(case.graph, case.inputs, {}, before)


@pytest.mark.parametrize("chunk", mostly_long((12, *range(12), *range(13, 25)), 1))
@pytest.mark.parametrize("dialect", ["cuda"])
def test_lanes_share_states(dialect: str, chunk: int) -> None:
    backend = checked(dialect)
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        case = states(seed)
        case.reset()
        check_case(compiled_on(backend, case.graph), case)
