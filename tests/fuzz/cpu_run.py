"""Runs a Case on the CPU in several ways that must agree, and compares it with the reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from luminal.backends import registry
from luminal.backends.cpu import device
from luminal.backends.reference import Bounded, Results, evaluate_with_bounds
from luminal.base import config
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.hlir.substitute import all_nodes
from luminal.memory.state import State
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.schedule.vectors import costs, nest
from tests.backends.cpu.skewed import TEAMS, both, skewed
from tests.fuzz.graphs import Case
from tests.numerics.tolerance import UNSTABLE_SHARE, compare

Array = np.ndarray[Any, Any]
SMALL = {  # so that small graphs are cut into chunks, packed, split and stored as large ones are
    nest: {"CHUNK_WORK": 16, "SMALL_CONTRACTION": 64, "LARGE_CONTRACTION": 256, "PACK_ROWS": 2},
    costs: {
        "LAUNCH_WORK": 16,
        "ROW_BYTES": 64,
        "SHARES": replace(costs.SHARES, work=8, blocks=0, chunks=3, chunk=2, part=1),
    },
}


def compiled(graph: Graph) -> tuple[Executable, device.CpuRunner]:
    """The executable of a graph, and its runner."""
    backend = registry.compiling("cpu")
    runner = backend.runner(lower_to_program(graph, backend))
    return Executable(graph, (Variant({}, runner),)), runner


def cut_small(patch: pytest.MonkeyPatch) -> None:
    """Graphs compiled from now on are cut as if they were large, so that a team has work."""
    for module, values in SMALL.items():
        for name, value in values.items():
            patch.setattr(module, name, value)


def run(
    exe: Executable, case: Case, threads: int, out: dict[str, Array] | None
) -> dict[str, Array]:
    """The outputs of one run from the Case's first States."""
    case.reset()
    with config.override(LUMINAL_THREADS=threads):
        return dict(exe(case.inputs, dims=case.dims, out=out))


def check(case: Case, *others: Case, max_unstable: float = UNSTABLE_SHARE) -> None:
    """One thread, two, and several that run skewed give the same bits, near the reference's values.

    `others`: the same graph with other inputs and dims, run by the same executable.
    """
    exe, runner = compiled(case.graph)
    for each in (case, *others):
        check_run(exe, runner, each, max_unstable)


def check_run(
    exe: Executable,
    runner: device.CpuRunner,
    case: Case,
    max_unstable: float = UNSTABLE_SHARE,
    bounds: Results[Bounded] | None = None,
) -> None:
    """As `check`, of a compiled graph; `bounds` of the reference where they are known."""
    bounds = bounds or evaluate_with_bounds(case.graph, case.inputs, case.dims)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "TEAM_GAIN", -math.inf)  # the team even for tiny programs
        first = run(exe, case, 1, None)
        states = {state: state.numpy() for state in case.states}
        for name, array in first.items():
            compare(array, *bounds.outputs[name], name=name, max_unstable=max_unstable)
        for state in case.states:
            if state in bounds.states:
                compare(states[state], *bounds.states[state], name=state.name)
            else:
                assert states[state].tobytes() == case.states[state].tobytes(), state.name
        out = {name: np.zeros_like(array) for name, array in first.items()}
        check_bits(first, states, run(exe, case, 2, out), "two threads")
        for skew in both(TEAMS[sum(1 for _ in all_nodes(case.graph)) % len(TEAMS)]):
            for node in case.graph.by_op().get("Weight", ()):
                node.attrs.parameter.changed()  # so that the prologue runs skewed as well
            with skewed(skew):
                again = Executable(case.graph, (Variant({}, runner),))  # one that binds anew
                check_bits(first, states, run(again, case, 2, None), str(skew))


def check_bits(
    first: dict[str, Array], states: dict[State, Array], found: dict[str, Array], how: str
) -> None:
    """Another run has given the same outputs, and left the States with the same values."""
    for name, array in first.items():
        assert found[name].tobytes() == array.tobytes(), f"{name} differs with {how}"
    for state, array in states.items():
        assert state.numpy().tobytes() == array.tobytes(), f"{state.name} differs with {how}"
