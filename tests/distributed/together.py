"""A graph on several ranks that are threads, compared with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.backends.cpu import backend as cpu
from luminal.backends.reference.ranks import interpret_ranks
from luminal.compiler.compile import lower_to_program
from luminal.distribute.mesh import Mesh
from luminal.hlir.graph import Graph, Output
from luminal.program.launch_list import CollectiveLaunch, Program, walk
from luminal.runtime.executable import Executable
from luminal.runtime.ranks import OnRanks
from luminal.runtime.variants import Variant
from tests.distributed.graphs import Drawn
from tests.distributed.late_engine import Group, LateEngine, on_ranks


def executable(graph: Graph, **engines: Any) -> Executable:
    """The graph for the CPU, with engines by mesh axis."""
    backend = cpu.current()
    variant = Variant({}, backend.runner(lower_to_program(graph, backend)))
    # Ranks of a test have one dims, of which they need not tell.
    own = frozenset(dim.name for dim in graph.dims)
    return Executable(graph, [variant], mesh=OnRanks(engines, own_dims=own))


def run(drawn: Drawn, exe: Executable) -> dict[str, Any]:
    """The outputs of a run, and the States after it, by name."""
    inputs = {name: drawn.inputs[name] for name in exe.input_names}
    results = exe(inputs, dims=drawn.dims)
    outputs = {sink.name: np.array(results[sink.name]) for sink in _outputs(drawn.graph)}
    return outputs | {state.name: state.numpy().copy() for state in drawn.states}


def expected(drawn: Sequence[Drawn]) -> list[dict[str, Any]]:
    """What the oracle says of each rank, from its States as they are."""
    first, ranks = drawn[0], range(len(drawn))
    inputs = {name: [each.inputs[name] for each in drawn] for name in first.inputs}
    parts: dict[Any, Any] = {
        state: tuple(each.states[k].numpy().copy() for each in drawn)
        for k, state in enumerate(first.states)
    }
    mesh = Mesh((len(drawn),), ("data",))
    results = interpret_ranks(first.graph, mesh, inputs, first.dims, parts)
    states = {state.name: by_rank for state, by_rank in (parts | results.states).items()}
    return [{k: by_rank[r] for k, by_rank in (results.outputs | states).items()} for r in ranks]


def _outputs(graph: Graph) -> list[Output]:
    return [sink for sink in graph.sinks if isinstance(sink, Output)]


def check(drawn: Sequence[Drawn]) -> list[tuple[Any, ...]]:
    """Runs ranks together and compares them with the oracle; what one of them has started."""
    wanted = expected(drawn)
    group = Group(len(drawn), "data")

    def work(rank: int) -> tuple[Any, Any]:
        engine = LateEngine(group, rank)
        return run(drawn[rank], executable(drawn[rank].graph, data=engine)), engine.calls

    results = on_ranks(len(drawn), work, group)
    for (values, calls), here in zip(results, wanted, strict=True):
        for name, value in here.items():
            assert values[name].dtype == value.dtype
            np.testing.assert_array_equal(values[name], value, err_msg=name)
        assert calls == results[0][1]
    return results[0][1]


def program_of(graph: Graph) -> Program:
    """What `fast` makes of a graph for the CPU."""
    return lower_to_program(graph, cpu.current())


def members(program: Program) -> list[int]:
    """How many collectives each launch stands for."""
    launches = [each for each in walk(program.launches) if isinstance(each, CollectiveLaunch)]
    return [launch.members for launch in launches if launch.phase != "wait"]
