"""What Parameters and States hold that are cut over a mesh."""

from __future__ import annotations

from pathlib import Path
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


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_columns_of_a_file_are_read_where_they_are_used(tmp_path: Path, backend: str) -> None:
    """By the program that reads them as they lie, and by one that packs them, in whatever order."""
    values = np.random.default_rng(3).integers(-9, 9, (64, 64)).astype(np.float32)
    lm.save(tmp_path / "w.safetensors", {"w": values})

    def work(engine: Engine) -> None:
        held = lm.Parameter((64, 64), name="w")
        held.set(lm.load(tmp_path / "w.safetensors")["w"])
        lm.shard(held, (None, "data"))
        part = np.split(values, 2, 1)[engine.rank]
        programs = []
        for _ in range(2):
            graph = lm.Graph()
            x = graph.tensor((16, 64), name="x")
            (x @ graph.constant(held)).output("y")
            (graph.constant(held) * 2).output("z")
            programs.append(lm.compile(graph, mesh=MESH, backend=backend))
        x = values[:16].copy()
        for run in (*programs, programs[0]):
            results = run({"x": x})
            np.testing.assert_array_equal(results["y"], x @ part)  # small integers: exact
            np.testing.assert_array_equal(results["z"], part * 2)
        np.testing.assert_array_equal(held.local(), part)
        np.testing.assert_array_equal(held.whole(), values)
        held.set(values + 1)
        np.testing.assert_array_equal(programs[0]({"x": x})["z"], (part + 1) * 2)

    run_local(2, work)


def test_what_is_packed_again_leaves_other_columns_in_their_file(tmp_path: Path) -> None:
    """Of two Parameters in a file one is set: the other one need not be in memory for that."""
    values = np.random.default_rng(4).integers(-9, 9, (2, 256, 256)).astype(np.float32)
    lm.save(tmp_path / "w.safetensors", {"a": values[0], "b": values[1]})

    def work(engine: Engine) -> None:
        loaded, weights = lm.load(tmp_path / "w.safetensors"), {}
        for name in "ab":
            weights[name] = lm.Parameter((256, 256), name=name)
            weights[name].set(loaded[name])
            lm.shard(weights[name], (None, "data"))
        graph = lm.Graph()
        x = graph.tensor((16, 256), name="x")
        for name, weight in weights.items():
            (x @ graph.constant(weight)).output(name)
        run, x = lm.compile(graph, mesh=MESH, backend="cpu"), values[0, :16].copy()
        for a in (values[0], values[0] + 1):
            weights["a"].set(a)
            results = run({"x": x})
            for name, whole in (("a", a), ("b", values[1])):
                part = np.split(whole, 2, 1)[engine.rank]
                np.testing.assert_array_equal(results[name], x @ part)  # small integers: exact

    run_local(2, work)


def test_zeros_of_a_state_keep_their_signs() -> None:
    """Memory is left alone where all bits are 0, and only there."""

    def work(engine: Engine) -> None:
        for init, shape in ((-0.0, (4,)), (0.0, (4,)), (-0.0, ()), (3.0, ())):
            state = lm.shard(lm.State(shape, init=init), ("data",) if shape else ())
            graph = lm.Graph()
            graph.read(state).output("y")
            value = lm.compile(graph, mesh=MESH)()["y"]
            assert np.array_equal(np.signbit(value), np.full_like(value, np.signbit(init), bool))
            np.testing.assert_array_equal(value, np.full_like(value, init))

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
