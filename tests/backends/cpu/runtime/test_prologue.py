"""Derived weights: made when they are stale, once for all programs that derive the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device, target, team
from luminal.backends.cpu import prologue as cpu_prologue
from luminal.backends.cpu.device import CpuRunner
from luminal.base import config
from luminal.hlir.attributes import ConstantAttrs
from luminal.memory import arrays
from luminal.memory.arrays import aligned_empty
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Operand
from luminal.runtime import prologue
from luminal.shape.expression import const
from tests.backends.cpu.hand_programs import ProgramBuilder
from tests.backends.cpu.tile_builder import TileBuilder, backwards

N = 128
W = np.arange(N, dtype=np.float32)
ONES = np.ones(N, np.float32)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The labels of the launches of each run of a prologue."""
    found: list[list[str]] = []
    derive = device.derive

    def noted(*given: Any) -> None:
        found.append([each.label for each in given[2] if isinstance(each, KernelLaunch)])
        derive(*given)

    monkeypatch.setattr(device, "derive", noted)
    return found


def weight(value: np.ndarray = W, name: str = "w") -> lm.Parameter:
    parameter = lm.Parameter((N,), name=name)
    parameter.set(value)
    return parameter


class Made(ProgramBuilder):
    """A program whose prologue is the subject; its run reads the buffer derived last."""

    def __init__(self) -> None:
        super().__init__(N)
        self.x, self.y = self.buffer("input", "x"), self.buffer("output", "y")

    def literal(self, value: np.ndarray) -> int:
        return self.buffer("constant", ConstantAttrs((N,), lm.float32, value.tobytes()))

    def runner(self, *launches: Launch) -> CpuRunner:
        last = max(b.id for b in self.buffers if b.kind.value == "derived")
        run = self.launch("Add", self.x, last, self.y)
        return CpuRunner(self.program([run], launches), target.current())  # type: ignore[arg-type]


def derived(runner: CpuRunner) -> list[np.ndarray]:
    """The derived arrays, as they are after a refresh."""
    runner.prologue.refresh()
    numbers = [b.id for b in runner.program.buffers if b.kind.value == "derived"]
    return [runner.prologue.buffers[number].array.view(np.float32) for number in numbers]


def doubled(parameter: lm.Parameter, op: str = "Add") -> CpuRunner:
    """w + w."""
    p = Made()
    w, twice = p.weight(parameter), p.buffer("derived")
    return p.runner(p.launch(op, w, w, twice))


def doubled_and_squared(parameter: lm.Parameter) -> CpuRunner:
    """t = w + w, then t * t."""
    p = Made()
    w, twice, squared = p.weight(parameter), p.buffer("derived"), p.buffer("derived")
    return p.runner(p.launch("Add", w, w, twice), p.launch("Mul", twice, twice, squared))


def test_what_is_fresh_does_not_run_again(runs: list[list[str]]) -> None:
    parameter = weight()
    runner = doubled_and_squared(parameter)
    stamps = [runner.prologue.refresh() for _ in range(3)]
    assert len(set(stamps)) == 1
    assert runs == [["add", "mul"]]
    np.testing.assert_array_equal(derived(runner), [2 * W, 4 * W * W])
    weight()  # another Parameter
    assert runner.prologue.refresh() == stamps[0]
    assert len(runs) == 1
    parameter.set(ONES)
    assert runner.prologue.refresh() != stamps[0]
    np.testing.assert_array_equal(derived(runner), [2 * ONES, 4 * ONES])
    assert runs == 2 * [["add", "mul"]]


def test_programs_take_what_others_have_derived(runs: list[list[str]]) -> None:
    parameter = weight()
    one = doubled(parameter)
    (twice,) = derived(one)
    two = doubled_and_squared(parameter)
    again, squared = derived(two)
    assert again.ctypes.data == twice.ctypes.data
    np.testing.assert_array_equal(squared, 4 * W * W)
    assert runs == [["add"], ["mul"]]


def test_what_another_program_reads_is_never_overwritten() -> None:
    parameter = weight()
    one = doubled(parameter)
    (twice,) = derived(one)
    twice[:] = 3  # no launch of another program's prologue may write here
    _, squared = derived(doubled_and_squared(parameter))
    assert (twice == 3).all()
    assert (squared == 9).all()
    parameter.set(ONES)
    (after,) = derived(one)
    assert after.ctypes.data != twice.ctypes.data
    assert (twice == 3).all()
    assert (after == 2).all()


def test_what_is_no_longer_used_is_let_go(runs: list[list[str]]) -> None:
    parameter = weight()
    derived(doubled(parameter))
    derived(doubled(parameter))
    assert runs == [["add"], ["add"]]


def test_other_kernels_and_other_weights_share_nothing() -> None:
    one, two = weight(), weight(ONES, "v")
    runners = [doubled(one), doubled(one, "Mul"), doubled(two)]
    found = [derived(runner)[0] for runner in runners]
    np.testing.assert_array_equal(found, [2 * W, W * W, 2 * ONES])


def test_the_order_of_operands_matters() -> None:
    one, two = weight(W + 1), weight(2 * ONES, "v")
    found, runners = [], []
    for turned in (False, True):
        p = Made()
        a, b, c = p.weight(one), p.weight(two), p.buffer("derived")
        a, b = (b, a) if turned else (a, b)
        runners.append(p.runner(p.launch("Div", a, b, c)))
        found.append(derived(runners[-1])[0])
    np.testing.assert_array_equal(found, [(W + 1) / 2, 2 / (W + 1)])


def test_literals_are_told_apart_by_their_values(runs: list[list[str]]) -> None:
    found, runners = [], []
    for value in (W, ONES, W):
        p = Made()
        c, t = p.literal(value), p.buffer("derived")
        runners.append(p.runner(p.launch("Add", c, c, t)))
        found.append(derived(runners[-1])[0])
    np.testing.assert_array_equal(found, [2 * W, 2 * ONES, 2 * W])
    assert found[0].ctypes.data == found[2].ctypes.data
    assert len(runs) == 2


def test_only_what_depends_on_a_weight_is_made_anew(runs: list[list[str]]) -> None:
    one, two = weight(), weight(ONES, "v")
    p = Made()
    a, b = p.weight(one), p.weight(two)
    twice, squared, both = (p.buffer("derived") for _ in range(3))
    runner = p.runner(
        p.launch("Add", a, a, twice),
        p.launch("Mul", b, b, squared),
        p.launch("Add", twice, squared, both),
    )
    first = derived(runner)
    two.set(3 * ONES)
    second = derived(runner)
    assert runs == [["add", "mul", "add"], ["mul", "add"]]
    assert second[0].ctypes.data == first[0].ctypes.data
    np.testing.assert_array_equal(second, [2 * W, 9 * ONES, 2 * W + 9])
    one.set(ONES)
    np.testing.assert_array_equal(derived(runner), [2 * ONES, 9 * ONES, 11 * ONES])
    assert runs[2] == ["add", "add"]


def test_what_lies_in_the_arena_is_made_for_those_who_need_it(runs: list[list[str]]) -> None:
    """a + a in the arena, its square and its double derived; another program has the double."""
    one, two = weight(), weight(ONES, "v")

    def runner() -> CpuRunner:
        p = Made()
        a, b, t = p.weight(one), p.weight(two), p.buffer("arena")
        product, total = p.buffer("derived"), p.buffer("derived")
        return p.runner(
            p.launch("Add", a, a, t), p.launch("Mul", t, a, product), p.launch("Add", t, b, total)
        )

    made = runner()
    np.testing.assert_array_equal(derived(made), [2 * W * W, 2 * W + 1])
    two.set(3 * ONES)
    np.testing.assert_array_equal(derived(made), [2 * W * W, 2 * W + 3])
    assert runs == [["add", "mul", "add"], ["add", "add"]]


def test_a_kernel_of_two_results_overwrites_neither(runs: list[list[str]]) -> None:
    """d = w + w and t = w * w are one kernel; e = t + v. A new v needs t, but nobody writes d."""
    one, two = weight(), weight(ONES, "v")
    k = TileBuilder()
    k.buffer("w", N)
    k.buffer("d", N, "out")
    k.buffer("t", N, "out")
    k.grid("c", 1)
    with k.loop("i", N, vector=16) as i:
        value = k.load("w", i.axis)
        k.store("d", i.axis, k.map("Add", value, value))
        k.store("t", i.axis, k.map("Mul", value, value))
    p = Made()
    w, v = p.weight(one), p.weight(two)
    d, t, e = p.buffer("derived"), p.buffer("arena"), p.buffer("derived")
    last = p.launch("Add", t, v, e)
    p.kernels.append(k.kernel())
    operands = (Operand(w), Operand(d), Operand(t))
    both = KernelLaunch(len(p.kernels) - 1, operands, (), const(1), "both")
    runner = p.runner(both, last)
    twice, total = derived(runner)
    np.testing.assert_array_equal([twice, total], [2 * W, W * W + 1])
    twice[:] = 3
    two.set(5 * ONES)
    again, total = derived(runner)
    np.testing.assert_array_equal(total, W * W + 5)
    np.testing.assert_array_equal(again, 2 * W)
    assert (twice == 3).all()
    assert runs == 2 * [["both", "add"]]


def stacked(parameter: lm.Parameter) -> CpuRunner:
    """Two derived buffers, made by a Loop: w + w, then that plus w."""
    p = Made()
    w = p.weight(parameter)
    twice = p.buffer("derived")
    p.buffer("derived")
    first = p.launch("Add", w, w, twice)
    body = p.launch("Add", Operand(twice, 1, const(0), 1), w, Operand(twice + 1, 1, const(0), 1))
    return p.runner(first, LoopLaunch(const(1), (body,)))


def test_loops_are_written_out_and_shared(runs: list[list[str]]) -> None:
    parameter = weight()
    one, two = stacked(parameter), stacked(parameter)
    np.testing.assert_array_equal(derived(one), [2 * W, 3 * W])
    np.testing.assert_array_equal(derived(two), [2 * W, 3 * W])
    assert runs == [["add", "add"]]


def test_a_loop_over_slices_stays_and_is_not_shared(runs: list[list[str]]) -> None:
    """rows[i] = w + w, three times."""
    parameter = weight()

    def runner() -> CpuRunner:
        p = Made()
        w, rows = p.weight(parameter), p.buffer("derived", rows=3)
        target = Operand(rows, 1, stride=const(4 * N))
        return p.runner(LoopLaunch(const(3), (p.launch("Add", w, w, target),)))

    one, two = runner(), runner()
    for made in (one, two):
        np.testing.assert_array_equal(derived(made)[0].reshape(3, N), 3 * [2 * W])
    assert len(runs) == 2
    parameter.set(ONES)
    np.testing.assert_array_equal(derived(one)[0].reshape(3, N), 3 * [2 * ONES])


def test_a_buffer_of_two_writers_is_the_programs_own(runs: list[list[str]]) -> None:
    """t = w + w, then t = w * w: its key is no name for either."""
    parameter, other = weight(), weight(ONES, "v")

    def runner() -> CpuRunner:
        p = Made()
        w, v, t = p.weight(parameter), p.weight(other), p.buffer("derived")
        return p.runner(p.launch("Add", w, v, t), p.launch("Mul", w, w, t))

    one, two = runner(), runner()
    for made in (one, two):
        np.testing.assert_array_equal(derived(made), [W * W])
    assert runs == 2 * [["add", "mul"]]
    parameter.set(ONES)
    np.testing.assert_array_equal(derived(one), [ONES])
    assert len(runs) == 3


def test_a_sum_in_place_is_named_by_all_that_makes_it() -> None:
    """t = w + w or w * w; then d = w and t = t + w in one kernel, which alone is no name for t."""
    parameter = weight(W + 3)

    def runner(first: str) -> CpuRunner:
        k = TileBuilder()
        k.buffer("w", N)
        k.buffer("d", N, "out")
        k.buffer("t", N, "inout")
        k.grid("c", 1)
        with k.loop("i", N, vector=16) as i:
            value = k.load("w", i.axis)
            k.store("d", i.axis, value)
            k.store("t", i.axis, k.map("Add", k.load("t", i.axis), value))
        p = Made()
        w, d, t = p.weight(parameter), p.buffer("derived"), p.buffer("derived")
        begin = p.launch(first, w, w, t)
        p.kernels.append(k.kernel())
        operands = (Operand(w), Operand(d), Operand(t))
        both = KernelLaunch(len(p.kernels) - 1, operands, (), const(1), "both")
        return p.runner(begin, both)

    runners = [runner("Add"), runner("Mul")]
    found = [derived(made)[1] for made in runners]
    np.testing.assert_array_equal(found, [3 * (W + 3), (W + 3) ** 2 + W + 3])


class Memory:
    """What prologues take and what they give to the driver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[np.ndarray] = []
        self.records: list[tuple[Any, ...]] = []
        run_record = team.run_record

        def taken(shape: tuple[int, ...], dtype: lm.DType) -> np.ndarray:
            """Half-way between two pairs of cache lines."""
            (size,) = shape
            whole = aligned_empty((size + 192,), dtype)
            start = (64 - whole.ctypes.data) % 128
            self.held.append(whole[start : start + size])
            return self.held[-1]

        def noted(*arguments: Any) -> Any:
            self.records.append(arguments)
            return run_record(*arguments)

        for module in (arrays, cpu_prologue):
            monkeypatch.setattr(module, "aligned_empty", taken)
        monkeypatch.setattr(team, "run_record", noted)

    def holds(self, address: int, size: int) -> bool:
        """Do these bytes lie in an array that was taken?"""
        ends = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in self.held]
        return any(first <= address and address + size <= last for first, last in ends)


def test_every_member_of_the_team_has_scratch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Memory(monkeypatch)
    p = Made()
    w, d = p.weight(weight()), p.buffer("derived")
    p.launch("Add", w, w, d)
    p.kernels.append(backwards("w", "d", N))
    launch = KernelLaunch(1, (Operand(w), Operand(d)), (), const(1), "turn")
    with config.override(LUMINAL_THREADS=3):
        np.testing.assert_array_equal(derived(p.runner(launch)), [W[::-1]])
    ((*_, threads, start, stride),) = taken.records
    assert threads == 3
    assert start % 128 == stride % 128 == 0
    assert stride >= 4 * (N + 1)
    assert taken.holds(start, threads * stride)


def test_what_lies_in_the_arena_lies_inside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Memory(monkeypatch)
    p = Made()
    w, s, t, d = p.weight(weight()), p.buffer("arena"), p.buffer("arena"), p.buffer("derived")
    runner = p.runner(p.launch("Add", w, w, s), p.launch("Mul", w, w, t), p.launch("Add", s, t, d))
    np.testing.assert_array_equal(derived(runner), [2 * W + W * W])
    ((_, _, table, *_),) = taken.records
    addresses = [int(table[number]) for number in (s, t, d)]
    assert all(taken.holds(address, 4 * N) for address in addresses)
    assert abs(addresses[0] - addresses[1]) >= 4 * N


def test_a_run_looks_at_no_weight_while_none_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = doubled(weight())
    stamp = runner.prologue.refresh()
    monkeypatch.setattr(runner.prologue, "_parameters", None)
    assert runner.prologue.refresh() == stamp


def test_memory_and_report() -> None:
    runner = doubled_and_squared(weight())
    assert runner.prologue.nbytes == 0
    runner.prologue.refresh()
    assert runner.prologue.nbytes == 2 * 4 * N
    assert [row.label for row in runner.prologue.report()] == ["add", "mul"]


def test_the_lock_is_held_while_a_program_derives(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    derive = device.derive

    def looked(*given: Any) -> None:
        held.append(prologue._lock._is_owned())  # type: ignore[attr-defined]
        derive(*given)

    monkeypatch.setattr(device, "derive", looked)
    derived(doubled(weight()))
    assert held == [True]
