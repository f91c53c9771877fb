"""Random graphs with dims, States and Loops on the interpreted device, near the reference."""

from __future__ import annotations

import pytest

from luminal.backends.reference import evaluate_with_bounds
from tests.backends.interpreted.devices import compiled_on, made
from tests.fuzz.graphs import random_case
from tests.numerics.tolerance import UNSTABLE_SHARE, compare

SAMPLE, ALL = 12, 200


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=() if s < SAMPLE else pytest.mark.long) for s in range(ALL)]
)
def test_a_random_graph_gives_what_the_reference_gives(seed: int) -> None:
    case = random_case(seed)
    bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
    exe = compiled_on(made()[0], case.graph)
    for _ in range(2):  # the second run finds States on the device
        case.reset()
        found = exe(case.inputs, dims=case.dims)
        for name, array in found.items():
            compare(array, *bounds.outputs[name], name=name, max_unstable=UNSTABLE_SHARE)
        for state, value in case.states.items():
            if state in bounds.states:
                compare(state.numpy(), *bounds.states[state], name=state.name)
            else:
                assert state.numpy().tobytes() == value.tobytes(), state.name
