"""What Parameters and States hold that are cut over a mesh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import GraphError, InputError
from luminal.distributed import Engine, run_local

MESH = lm.Mesh((2,), ("data",))
ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)


def doubled(held: Any, mesh: Any = MESH) -> lm.Executable:
    graph = lm.Graph()
    (graph.constant(held) * 2).output("y")
    return lm.compile(graph, mesh=mesh)


def test_a_rank_holds_its_part_and_all_together_the_whole() -> None:
    def work(engine: Engine) -> None:
        held = lm.shard(lm.Parameter(ROWS.copy(), name="p"), ("data", None))
        run = doubled(held)
        part = np.split(ROWS, 2)[engine.rank]
        np.testing.assert_array_equal(run()["y"], part * 2)
        np.testing.assert_array_equal(held.local(), part)
        np.testing.assert_array_equal(held.whole(), ROWS)
        held.set(ROWS + 1)  # takes the whole, keeps the part
        np.testing.assert_array_equal(run()["y"], (part + 1) * 2)
        np.testing.assert_array_equal(held.whole(), ROWS + 1)
        with pytest.raises(GraphError, match=r"p is cut \[data, .\], rank . of 2.*p.local\(\)"):
            held.numpy()

    run_local(2, work)


def test_a_program_of_one_rank_does_not_take_what_is_cut() -> None:
    def work(engine: Engine) -> None:
        held = lm.shard(lm.Parameter(ROWS.copy(), name="p"), ("data", None))
        doubled(held)
        with pytest.raises(GraphError, match=r"compiled with lm\.compile"):
            doubled(held, None)

    run_local(2, work)


def test_two_programs_want_it_cut_alike() -> None:
    def work(engine: Engine) -> None:
        held = lm.shard(lm.Parameter(ROWS.copy(), name="p"), ("data", None))
        doubled(held)
        lm.shard(held, (None, "data"))
        with pytest.raises(InputError, match="give both programs the same plan"):
            doubled(held)

    run_local(2, work)


def test_a_state_is_read_and_assigned_in_parts() -> None:
    def work(engine: Engine) -> None:
        state = lm.shard(lm.State((8,), name="s"), ("data",))
        graph = lm.Graph()
        x = graph.tensor((8,), name="x").shard("data")
        total = graph.read(state) + x
        graph.assign(state, total)
        total.sum().output("sum")
        run = lm.compile(graph, mesh=MESH)
        own = np.arange(4, dtype=np.float32) + 4 * engine.rank
        sums = [float(run({"x": own})["sum"]) for _ in range(3)]
        assert sums == [28, 56, 84]
        np.testing.assert_array_equal(state.local(), own * 3)
        np.testing.assert_array_equal(state.whole(), np.arange(8) * 3)
        state.reset()
        np.testing.assert_array_equal(state.whole(), np.zeros(8))

    run_local(2, work)
