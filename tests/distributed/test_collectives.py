"""Graphs with Collectives, run by ranks that are threads: bit for bit what the oracle computes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from luminal.backends.cpu import backend as cpu
from luminal.base import dtypes
from luminal.base.errors import CollectiveError, DimError, InputError
from luminal.compiler.compile import lower_to_program
from luminal.distribute.mesh import Mesh
from luminal.hlir.graph import Assign, Builder, Graph, Output
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.program.launch_list import CollectiveLaunch, Launch, LoopLaunch, walk
from luminal.program.launch_text import to_text
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import run_local
from luminal.shape.expression import const, symbol
from tests.distributed.graphs import Draw, Drawn, collective
from tests.distributed.late_engine import Group, LateEngine
from tests.distributed.together import check, executable, program_of


@pytest.mark.parametrize("ranks", [2, 4])
def test_random_graphs(ranks: int) -> None:
    seeds = range(8)
    started = [check([Draw(seed, rank, ranks).drawn() for rank in range(ranks)]) for seed in seeds]
    assert sum(map(len, started)) > 20


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_many_random_graphs(ranks: int) -> None:
    for seed in range(100, 160):
        check([Draw(seed, rank, ranks).drawn() for rank in range(ranks)])


# --- Loops and States


def layers(rank: int, ranks: int, count: int = 12) -> Drawn:
    """Equal layers with two collectives each, one of which updates a State of the layer."""
    b, n = Builder(), const(8)
    h, sinks, states = b.input("x", (n, n), dtypes.int32), [], []
    rng = np.random.default_rng(0)
    for layer in range(count):
        parameter = Parameter((8, 8), dtypes.int32)
        parameter.set(rng.integers(-1, 2, (8, 8)).astype(np.int32))
        w = b.weight(f"w{layer}", parameter)
        t = b.apply("Mul", h, w)
        for _ in range(3):
            t = b.apply("Add", b.apply("Mul", t, t), w)
        r = collective(b, "all_reduce", t, ranks, label=f"layers.{layer}.mlp")
        column = b.sum(b.apply("Mul", r, r), 0)
        g = collective(b, "all_gather", column, ranks, label=f"layers.{layer}.norm")
        h = b.apply("Maximum", b.apply("Add", r, w), b.apply("Mul", h, h))
        state = State((8 * ranks,), dtypes.int32, name=f"m{layer}")
        states.append(state)
        sinks.append(Assign(value=b.apply("Add", b.state(state), g), state=state))
    x = np.random.default_rng(rank).integers(-3, 4, (8, 8)).astype(np.int32)
    return Drawn(Graph((Output(h, "h"), *sinks)), tuple(states), {"x": x}, {})


def _begins(launch: Launch) -> bool:
    return isinstance(launch, CollectiveLaunch) and launch.phase != "wait"


def test_layers_roll_and_states_are_updated_where_they_lie() -> None:
    drawn = [layers(rank, 2) for rank in range(2)]
    program = program_of(drawn[0].graph)
    (loop,) = (launch for launch in program.launches if isinstance(launch, LoopLaunch))
    inside = [each.label for each in walk(loop.body) if _begins(each)]
    assert inside == ["layers.0.mlp", "layers.0.norm"]
    assert program.swaps == ()
    assert len(check(drawn)) == 24


def test_collectives_run_in_the_order_in_which_they_can_begin() -> None:
    b, n = Builder(), const(8)
    x = b.input("x", (n,), dtypes.int32)
    late = b.apply("Mul", collective(b, "all_reduce", x, 2, label="1"), x)
    first = collective(b, "all_reduce", b.apply("Add", late, x), 2, label="2")
    second = collective(b, "all_gather", b.apply("Mul", x, x), 2, label="0")
    graph = Graph((Output(first, "first"), Output(second, "second")))
    labels = [launch.label for launch in walk(program_of(graph).launches)]
    order = [*dict.fromkeys(label for label in labels if label.isdigit())]
    assert order == ["1", "0", "2"]


def test_scalars() -> None:
    def scalar(rank: int) -> Drawn:
        b = Builder()
        x = b.input("x", (), dtypes.float64)
        total = collective(b, "all_reduce", x, 2, reduction="Max", label="x")
        other = collective(b, "permute", b.apply("Add", x, x), 2, pairs=[(1, 0)], label="2x")
        graph = Graph((Output(total, "total"), Output(other, "other")))
        return Drawn(graph, (), {"x": np.array(rank + 1.0)}, {})

    assert len(check([scalar(0), scalar(1)])) == 2


def test_a_program_is_kept_between_processes() -> None:
    program = program_of(Draw(1, 0, 2).drawn().graph)
    assert any(isinstance(launch, CollectiveLaunch) for launch in walk(program.launches))
    again = pickle.loads(pickle.dumps(program))
    assert to_text(again) == to_text(program)


# --- engines


def doubled(ranks: int, kind: str = "all_reduce", axis: str = "data") -> Graph:
    """What ranks make of twice their input, each at its own place."""
    b, n = Builder(), const(4)
    x = b.input("x", (const(ranks), n), dtypes.float32)
    place = symbol(f"rank_{axis}", 0, ranks - 1)
    own = b.cast(b.iota(place, (const(ranks), n), dtypes.int64), dtypes.float32)
    y = collective(b, kind, b.apply("Add", b.apply("Add", x, x), own), ranks, axis=axis, label="y")
    return Graph((Output(y, "y"),), (place,))


X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_ranks_of_an_engine() -> None:
    def work(engine: Engine) -> Any:
        exe = executable(doubled(2), data=engine)
        return [np.array(exe(x=X + engine.rank)["y"]) for _ in range(3)][-1]

    for y in run_local(2, work):
        np.testing.assert_array_equal(y, 4 * X + 3)


def test_groups_along_two_axes_of_a_mesh() -> None:
    mesh = Mesh((2, 2), ("data", "tensor"))

    def work(engine: Engine) -> Any:
        results = []
        for axis in mesh.names:
            group = engine.split(mesh.groups(axis), axis)
            exe = executable(doubled(2, axis=axis), **{axis: group})
            results.append(np.array(exe(x=X * 10**engine.rank)["y"])[1, 3])
        return results

    assert run_local(4, work) == [
        [14 * a + 1, 14 * b + 1] for a, b in ((101, 11), (1010, 11), (101, 1100), (1010, 1100))
    ]


def test_a_run_without_an_engine_says_which() -> None:
    exe = executable(doubled(2))
    text = r"all_reduce of 'y' over 'data': no engine for this mesh axis; give one"
    with pytest.raises(InputError, match=text):
        exe(x=X, dims={"rank_data": 0})


def test_an_engine_of_another_group_is_refused() -> None:
    graph = doubled(2)
    with pytest.raises(InputError, match="for 2 ranks along this axis, and the engine has 4"):
        executable(graph, data=LateEngine(Group(4, "data"), 0))
    with pytest.raises(InputError, match="the engine is that of the mesh axis 'tensor'"):
        executable(graph, data=LateEngine(Group(2, "tensor"), 0))


def test_a_rank_knows_its_place() -> None:
    exe = executable(doubled(2), data=LateEngine(Group(2, "data"), 1))
    with pytest.raises(DimError, match="rank_data: 0, and this rank's place is 1; leave it out"):
        exe(x=X, dims={"rank_data": 0})


def test_ranks_with_other_programs_are_told_apart() -> None:
    def work(engine: Engine) -> None:
        kind = "all_to_all" if engine.rank else "all_reduce"
        executable(doubled(2, kind), data=engine)(x=X)

    with pytest.raises(CollectiveError, match="the program"):
        run_local(2, work)


def test_an_error_names_the_collective_and_the_next_run_works() -> None:
    class Failing(LateEngine):
        def wait(self, ticket: int, /, *, first: bool = False) -> None:
            super().wait(ticket, first=first)
            if ticket == 1:
                raise ZeroDivisionError("a cable")

    exe = executable(doubled(1), data=Failing(Group(1, "data"), 0))
    exe(x=X[:1])
    with pytest.raises(ZeroDivisionError, match="a cable") as failure:
        exe(x=X[:1])
    assert "in all_reduce of 'y' over 'data'" in failure.value.__notes__[0]
    np.testing.assert_array_equal(exe(x=X[:1])["y"], 2 * X[:1])


# --- reports and searches


def test_a_report_has_the_bytes_and_the_time_of_a_collective() -> None:
    def work(engine: Engine) -> Any:
        exe = executable(doubled(2, "all_to_all"), data=engine)
        report = exe.profile(x=X, runs=2)
        return report, str(report)

    for report, text in run_local(2, work):
        (row,) = (row for row in report.kernels if row.is_collective)
        assert row.label == "all_to_all of 'y' over 'data'"
        assert report.sent == row.bytes == 16
        assert row.seconds > 0
        assert report.bytes == 64
        assert "16 bytes sent" in text


def test_a_search_never_runs_a_collective() -> None:
    backend = cpu.current()
    runner = backend.runner(lower_to_program(doubled(2, "all_gather"), backend))
    runner.stand_alone()
    y = np.empty((4, 4), np.float32)
    runner.bind({"rank_data": 1}, ("x",), ("y",)).run((X,), (y,))
    np.testing.assert_array_equal(y, np.concatenate([2 * X + 1] * 2))
