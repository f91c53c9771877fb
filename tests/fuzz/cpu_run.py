"""Runs a Case on the CPU in several ways that must agree, and compares it with the reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from luminal import config
from luminal.backends import registry
from luminal.backends.cpu import device
from luminal.backends.reference import Bounded, Results, evaluate_with_bounds
from luminal.compiler import lower_to_program
from luminal.hlir.graph import Graph
from luminal.hlir.state import State
from luminal.runtime.executable import Executable, Variant
from tests.fuzz.graphs import Case
from tests.numerics.tolerance import UNSTABLE_SHARE, compare

Array = np.ndarray[Any, Any]
JUNK = 0xA7  # every byte of memory that a run must write before it reads


def compiled(graph: Graph) -> tuple[Executable, device.CpuRunner]:
    """The executable of a graph, and its runner (whose memory a test may spoil)."""
    target = registry.find("cpu").target()  # type: ignore[misc]
    runner = device.CpuRunner(lower_to_program(graph, target), target)
    return Executable(graph, (Variant({}, runner),)), runner


def run(
    exe: Executable, case: Case, threads: int, out: dict[str, Array] | None
) -> dict[str, Array]:
    """The outputs of one run from the Case's first States."""
    case.reset()
    with config.override(LUMINAL_THREADS=threads):
        return dict(exe(case.inputs, dims=case.dims, out=out))


def check(case: Case, *others: Case, max_unstable: float = UNSTABLE_SHARE) -> None:
    """One and two threads give the same bits over spoilt memory, near the reference's values.

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
        spoil(runner, case.states)
        out = {name: junk(array) for name, array in first.items()}
        second = run(exe, case, 2, out)
    for name, array in first.items():
        assert second[name].tobytes() == array.tobytes(), f"{name} differs with two threads"
    for state, array in states.items():
        assert state.numpy().tobytes() == array.tobytes(), f"{state.name} differs with two threads"


def spoil(runner: device.CpuRunner, states: dict[State, Array]) -> None:
    """Fills all working memory with junk."""
    runner.arena[...] = JUNK
    runner.scratch[...] = JUNK
    for state in states:
        if state.spare is not None:
            state.spare[...] = junk(state.spare)


def junk(array: Array) -> Array:
    """An array of the same type, full of junk."""
    return np.frombuffer(bytes([JUNK]) * array.nbytes, array.dtype).reshape(array.shape).copy()
