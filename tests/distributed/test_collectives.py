"""Graphs with Collectives, run by ranks that are threads: bit for bit what lockstep computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.backends.cpu import backend as cpu
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.distributed.graphs import Draw, Drawn
from tests.distributed.late_engine import Group, LateEngine, on_ranks
from tests.distributed.lockstep import lockstep


def executable(graph: Graph, **engines: Any) -> Executable:
    """The graph for the CPU, with engines by mesh axis."""
    backend = cpu.current()
    variant = Variant({}, backend.runner(lower_to_program(graph, backend)))
    return Executable(graph, [variant], engines=engines)


def run_together(ranks: int, drawn: list[Drawn], runs: int = 1) -> tuple[list[Any], list[Any]]:
    """The results of every rank, States after its outputs, and what each has started."""
    group = Group(ranks, "data")

    def work(rank: int) -> tuple[Any, Any]:
        mine, engine = drawn[rank], LateEngine(group, rank)
        exe = executable(mine.graph, data=engine)
        for _ in range(runs):
            results = exe({name: mine.inputs[name] for name in exe.input_names}, dims=mine.dims)
        outputs = {name: np.array(results[name]) for name in exe._outputs.names}
        return outputs | {state.name: state.numpy().copy() for state in mine.states}, engine.calls

    return zip(*on_ranks(ranks, work, group), strict=True)  # type: ignore[return-value]


def check(seed: int, ranks: int) -> int:
    """Draws a graph and compares; the number of collectives that ran."""
    drawn = [Draw(seed, rank, ranks).drawn() for rank in range(ranks)]
    dims = [each.dims | {"rank_data": rank} for rank, each in enumerate(drawn)]
    held = [{state.name: state.numpy().copy() for state in each.states} for each in drawn]
    leaves = [each.inputs | states for each, states in zip(drawn, held, strict=True)]
    wanted = lockstep(drawn[0].graph, leaves, dims)
    results, calls = run_together(ranks, drawn)
    for rank in range(ranks):
        for name, value in wanted[rank].items():
            got = results[rank][name]
            assert got.dtype == value.dtype
            np.testing.assert_array_equal(got, value, err_msg=f"seed {seed}, rank {rank}, {name}")
    assert all(other == calls[0] for other in calls)
    return len(calls[0])


@pytest.mark.parametrize("ranks", [2, 4])
def test_random_graphs(ranks: int) -> None:
    started = sum(check(seed, ranks) for seed in range(8))
    assert started > 20
