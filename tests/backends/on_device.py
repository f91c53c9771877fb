"""Programs on devices of any kind."""

from __future__ import annotations

from luminal.backends.backend import Backend
from luminal.backends.reference import evaluate_with_bounds
from luminal.base.numerics import Numerics
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.fuzz.graphs import Case
from tests.numerics.tolerance import UNSTABLE_SHARE, compare


def compiled_on(
    backend: Backend, graph: Graph, numerics: Numerics = Numerics.STANDARD
) -> Executable:
    """The executable of a graph there."""
    runner = backend.runner(lower_to_program(graph, backend, numerics))
    return Executable(graph, (Variant({}, runner),))


def check_case(exe: Executable, case: Case, max_unstable: float = UNSTABLE_SHARE) -> None:
    """One run from the Case's first States gives outputs and States near the reference's; a second
    one gives the same bits.
    """
    bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
    case.reset()
    first = dict(exe(case.inputs, dims=case.dims))
    for name, array in first.items():
        compare(array, *bounds.outputs[name], name=name, max_unstable=max_unstable)
    for state in case.states:
        if state in bounds.states:
            compare(state.numpy(), *bounds.states[state], name=state.name)
        else:
            assert state.numpy().tobytes() == case.states[state].tobytes(), state.name
    case.reset()
    for name, array in exe(case.inputs, dims=case.dims).items():
        assert array.tobytes() == first[name].tobytes(), f"{name} differs in a second run"
