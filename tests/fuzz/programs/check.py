"""Runs a Program and compares it with PyTorch, within the reference's error bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import luminal as lm
from luminal.backends.reference import Bounded, Results, evaluate_with_bounds
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable
from tests.fuzz.cpu_run import check_run
from tests.fuzz.cpu_run import run as run_once
from tests.fuzz.graphs import Case
from tests.fuzz.programs import torch_meaning
from tests.fuzz.programs.form import Array, Program
from tests.fuzz.programs.record import Recording, case_of, record


@dataclass(frozen=True, slots=True)
class How:
    """How a program is compiled and judged."""

    oracle: str = "torch"  # or "reference", "bits": the reference's very bits
    numerics: str = "standard"
    seconds: float = 0.0  # of search


@dataclass
class Compared:
    """How many elements were compared, and how many of them were masked as unstable."""

    elements: int = 0
    masked: int = 0

    def __add__(self, other: Compared) -> Compared:
        return Compared(self.elements + other.elements, self.masked + other.masked)


FAST = How()


def check(program: Program, how: How = FAST) -> Compared:
    """Raises AssertionError where a result differs, and whatever the compiler raises."""
    recording = record(program)
    graph = recording.cx.graph()
    exe = compiled(recording.cx, how)
    runner: Any = exe._variants[0].runner
    compared = Compared()
    for run in range(program.runs):
        case = case_of(recording, graph, program, run)
        case.reset()
        bounds = evaluate_with_bounds(graph, case.inputs, case.dims)
        if how.oracle == "torch":
            bounds = of_torch(program, graph, case, bounds, recording, run)
        check_run(exe, runner, case, 1.0, bounds)
        if how.oracle == "bits":
            compare_bits(run_once(exe, case, 1, None), bounds.outputs)
        for each in (*bounds.outputs.values(), *bounds.states.values()):
            masked = 0 if how.oracle == "bits" else int(np.sum(each.unstable))
            compared += Compared(each.unstable.size, masked)
    return compared


def compiled(cx: lm.Graph, how: How) -> Executable:
    mode: Any = lm.TimeBudget(how.seconds) if how.seconds else "fast"
    return lm.compile(cx, numerics=how.numerics, mode=mode)


def compare_bits(found: dict[str, Array], expected: dict[str, Bounded]) -> None:
    """Raises AssertionError unless all bits agree; NaN is NaN whatever its payload."""
    for name, array in found.items():
        wanted = expected[name].value
        same = array.view(f"u{array.itemsize}") == wanted.view(f"u{wanted.itemsize}")
        wrong = np.argwhere(~(same | ((array != array) & (wanted != wanted))))
        if len(wrong):
            at = tuple(wrong[0])
            raise AssertionError(
                f"{name}: {len(wrong)} of {array.size} points differ in their bits: "
                f"{at}: {array[at]!r}, expected {wanted[at]!r}"
            )


def of_torch(
    program: Program,
    graph: Graph,
    case: Case,
    bounds: Results[Bounded],
    recording: Recording,
    run: int,
) -> Results[Bounded]:
    """PyTorch's values in the place of the reference's."""
    numbers = {state.name: k for state, k in _states(program, recording)}
    held = {numbers[state.name]: value for state, value in case.states.items()}
    values = torch_meaning.evaluate(program, run, held)
    found = [torch_meaning.to_numpy(values[k]) for k in program.outputs]
    outputs = {f"out{k}": array for k, array in enumerate(found)}
    states: dict[Any, Array] = {}
    for leaf, value in program.assigns:
        states[recording.tensors[leaf].state] = torch_meaning.to_numpy(values[value])
    return Results(
        {name: _as(bounds.outputs[name], array) for name, array in outputs.items()},
        {state: _as(bounds.states[state], array) for state, array in states.items()},
    )


def _as(bounded: Bounded, value: Array) -> Bounded:
    shape, dtype = bounded.value.shape, bounded.value.dtype
    assert value.shape == shape, f"shape {shape}, PyTorch {value.shape}"
    assert value.dtype == dtype, f"dtype {dtype}, PyTorch {value.dtype}"
    return bounded._replace(value=value)


def _states(program: Program, recording: Recording) -> list[tuple[Any, int]]:
    by_leaf = {tensor.value: k for k, tensor in enumerate(recording.tensors)}
    return [(state, by_leaf[recording.cx.read(state).value]) for state in recording.states]
