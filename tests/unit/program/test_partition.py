"""A Selection to steps and buffers, on tiny graphs: where values live, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.hlir.prune import pruned
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Operand
from luminal.program.partition import partition
from luminal.program.scope import Scope
from luminal.program.steps import KernelStep, LoopStep, Partition
from luminal.selection.fast import select
from tests.fuzz.graphs import random_case
from tests.machines import COSTS


def parts(cx: lm.Graph) -> Partition:
    graph = pruned(cx.graph())
    return partition(graph, select(lower(graph), COSTS))


def kinds(found: Partition) -> list[str]:
    return [buffer.kind.value for buffer in found.buffers]


def writes(found: Partition) -> list[str]:
    """The kind of buffer that each store writes, in launch order."""
    out = []
    for step in found.steps:
        assert isinstance(step, KernelStep)
        for store in step.fused.stores:
            out.append(found.buffers[found.table[store.place.operand.entry]].kind.value)
    return out


def test_an_output_is_the_home_of_its_value() -> None:
    cx = lm.Graph()
    y = cx.tensor((4, 4), name="x").exp()
    y.output("y")
    (y @ y).output("z")
    found = parts(cx)
    assert kinds(found) == ["input", "output", "output"]
    assert len(found.steps) == 2


def test_a_second_output_of_a_value_is_a_copy() -> None:
    cx = lm.Graph()
    y = cx.tensor((4,), name="x").exp()
    y.output("y")
    y.output("z")
    assert writes(parts(cx)) == ["output", "output"]


def test_an_input_as_output_is_a_copy() -> None:
    cx = lm.Graph()
    cx.tensor((4,), name="x").output("y")
    assert writes(parts(cx)) == ["output"]


def test_swapped_states_take_second_buffers() -> None:
    cx = lm.Graph()
    a, b = lm.State((3,), name="a"), lm.State((3,), name="b")
    x, y = cx.read(a), cx.read(b)
    cx.assign(a, y)
    cx.assign(b, x)
    found = parts(cx)
    assert found.swaps == [a, b]
    assert writes(found) == ["next", "next"]


def test_a_state_assigned_to_itself_is_left_alone() -> None:
    cx = lm.Graph()
    a = lm.State((3,), name="a")
    cx.assign(a, cx.read(a))
    found = parts(cx)
    assert found.steps == []
    assert found.swaps == []


def test_rows_are_written_into_a_state_in_place() -> None:
    cx = lm.Graph()
    past = cx.dim("past", 0, 6)
    cache = lm.State((8, 4), name="cache")
    rows = cx.tensor((2, 4), name="rows")
    new = cx.read(cache).slice_scatter(rows, 0, past)
    cx.assign(cache, new)
    new[: past + 2].sum(0).output("y")
    found = parts(cx)
    assert found.swaps == []
    assert writes(found) == ["state", "output"]


def test_a_state_still_read_afterwards_is_not_written_in_place() -> None:
    cx = lm.Graph()
    cache = lm.State((8, 4), name="cache")
    old = cx.read(cache)
    new = old.slice_scatter(cx.tensor((2, 4), name="rows"), 0, 3)
    cx.assign(cache, new)
    (new * 2.0 + old).output("y")
    found = parts(cx)
    assert found.swaps == [cache]


def test_readers_of_an_old_value_go_before_the_write_in_place() -> None:
    cx = lm.Graph()
    cache = lm.State((8, 4), name="cache")
    old = cx.read(cache)
    cx.assign(cache, old.slice_scatter(cx.tensor((2, 4), name="rows"), 0, 3))
    old.sum(0).output("y")
    assert writes(parts(cx)) == ["output", "state"]


def test_what_weights_alone_decide_is_early() -> None:
    cx = lm.Graph()
    w = cx.weight((64, 64), name="w")
    x = cx.tensor((64, 64), name="x")
    (x @ w.exp()).output("y")
    found = parts(cx)
    assert len(found.prologue) == 1
    assert BufferKind.DERIVED.value in kinds(found)


def test_a_scan_is_a_loop_whose_carry_starts_and_ends_where_it_lies() -> None:
    cx = lm.Graph()
    xs, first = cx.tensor((5, 3), name="xs"), cx.tensor((3,), name="first")
    last, ys = lm.scan(lambda c, x: (c * 0.5 + x, c + x), first, xs)
    last.output("last")
    ys.output("ys")
    found = parts(cx)
    (loop,) = found.steps
    assert isinstance(loop, LoopStep)
    assert loop.trips.value == 5
    (carried,) = [operand for operand in stored(loop) if operand.modulus == 5]
    buffers = found.table[carried.entry - 1 : carried.entry + 5]
    assert [found.buffers[b].kind.value for b in buffers] == ["input", *4 * ["arena"], "output"]
    assert buffers[1] == buffers[3] != buffers[2] == buffers[4]


def test_a_scan_of_unknown_length_has_two_buffers_that_take_turns() -> None:
    cx = lm.Graph()
    xs = cx.tensor((cx.dim("n", 0, 9), 3), name="xs")
    lm.scan(lambda c, x: (c * 0.5 + x, None), cx.zeros((3,)), xs)[0].output("last")
    (loop,) = [step for step in parts(cx).steps if isinstance(step, LoopStep)]
    assert [operand.modulus for operand in stored(loop)] == [2]


def stored(loop: LoopStep) -> list[Operand]:
    """The operands that a Loop's kernels write."""
    groups = [step.fused for step in loop.body if isinstance(step, KernelStep)]
    return [store.place.operand for group in groups for store in group.stores]


def test_an_empty_output_is_not_a_home() -> None:
    cx = lm.Graph()
    y = cx.tensor((), name="x").exp()
    y.expand((2, 0)).output("nothing")
    (y.expand((3,)) * np.float32(2)).output("y")
    found = parts(cx)
    assert kinds(found).count("arena") == 1


def test_a_copy_for_a_loop_runs_before_it_however_early_that_is_needed() -> None:
    """A merged kernel pulls a Loop forward, and with it what fills the Loop's stream."""

    def accumulated(factors: lm.Tensor, terms: lm.Tensor) -> lm.Tensor:
        def step(r: lm.Tensor, row: Any) -> tuple[lm.Tensor, lm.Tensor]:
            r = row[0] * r + row[1]
            return r, r

        found: lm.Tensor = lm.scan(step, terms[0] * 0, (factors, terms))[1]
        return found

    values = np.random.default_rng(0).standard_normal((4, 2))
    found = []
    for backend in ("cpu", "reference"):
        cx = lm.Graph()
        x = cx.tensor((4, 2), "float64", "x")
        wave, ahead = x.sin(), x.roll(-1, 0)
        back = (wave * accumulated(ahead, x)).roll(-1, 0)
        (accumulated(x, wave * x.exp()) + back).output("y")
        (accumulated(ahead, x.cos()) + back).output("z")  # the copy serves two Loops
        results = lm.compile(cx, backend)({"x": values})
        found.append(np.stack([results["y"], results["z"]]))
    # float64, two plans of the same sums: 4,500 ulp
    np.testing.assert_allclose(found[0], found[1], 1e-12)


def test_values_lie_where_the_selection_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dots count on it: in a sink's buffer a value may lie turned."""
    scopes: list[Scope] = []
    make = Scope.__init__

    def recorded(scope: Scope, *args: Any) -> None:
        scopes.append(scope)
        make(scope, *args)

    monkeypatch.setattr(Scope, "__init__", recorded)
    for seed in range(16):
        graph = pruned(random_case(seed).graph)
        partition(graph, select(lower(graph), COSTS))
    turned = 0
    for scope in scopes:
        for term, place in scope.places.items():
            home = scope.selection.home(term)
            assert place.frame == home, term
            turned += home != scope.selection.frames.get(term, home)
    assert turned
