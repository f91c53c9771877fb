"""Under test no read of what nobody wrote can pass: memory holds NaN before each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device, frame, prologue, target
from luminal.backends.cpu.device import CpuRunner
from luminal.base import config
from luminal.memory import arrays
from luminal.memory.arrays import aligned_empty
from luminal.memory.poison import poison
from luminal.program.launch_list import KernelLaunch
from luminal.runtime import output_pool
from luminal.shape.expression import const
from tests.backends.cpu.hand_programs import ProgramBuilder, executable
from tests.backends.cpu.tile_builder import TileBuilder

N = 128  # two chunks
ONES = np.ones(N, np.float32)


@pytest.fixture(autouse=True)
def _calm_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """New memory holds zeros, not another test's poison; no verifier refuses these programs."""

    def zeros(shape: Sequence[int], dtype: lm.DType) -> np.ndarray:
        array = aligned_empty(shape, dtype)
        array[...] = 0
        return array

    for module in (device, frame, arrays, prologue, output_pool):
        monkeypatch.setattr(module, "aligned_empty", zeros)
    with config.override(LUMINAL_VERIFY=False):
        yield


def one_input() -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((N,), name="x") * 2).output("y")
    return cx


def ones() -> lm.Parameter:
    parameter = lm.Parameter((N,), name="w")
    parameter.set(ONES)
    return parameter


def half(launch: KernelLaunch) -> KernelLaunch:
    """The launch without the second of its chunks."""
    return replace(launch, chunks=const(1))


def arena() -> lm.Executable:
    """y = x + t, of which nobody writes t."""
    p = ProgramBuilder(N)
    x, t, y = p.buffer("input", "x"), p.buffer("arena"), p.buffer("output", "y")
    return executable(one_input(), p.program([p.launch("Add", x, t, y)]))


def output() -> lm.Executable:
    """y = x + x, the second half left out."""
    p = ProgramBuilder(N)
    x, y = p.buffer("input", "x"), p.buffer("output", "y")
    return executable(one_input(), p.program([half(p.launch("Add", x, x, y))]))


def hidden_output() -> lm.Executable:
    """y = x + h, where nobody writes the output h that a run does not give."""
    p = ProgramBuilder(N)
    x, h, y = p.buffer("input", "x"), p.buffer("output", "h"), p.buffer("output", "y")
    return executable(one_input(), p.program([p.launch("Add", x, h, y)]))


def derived() -> lm.Executable:
    """y = x + (w + w), the second half of w + w left out by the prologue."""
    p = ProgramBuilder(N)
    x, w = p.buffer("input", "x"), p.weight(ones())
    made, y = p.buffer("derived"), p.buffer("output", "y")
    prologue = [half(p.launch("Add", w, w, made))]
    return executable(one_input(), p.program([p.launch("Add", x, made, y)], prologue))


def prologue_arena() -> lm.Executable:
    """y = x + (w + t), where nobody writes t, which is the prologue's own."""
    p = ProgramBuilder(N)
    x, w = p.buffer("input", "x"), p.weight(ones())
    t, made, y = p.buffer("arena"), p.buffer("derived"), p.buffer("output", "y")
    prologue = [p.launch("Add", w, t, made)]
    return executable(one_input(), p.program([p.launch("Add", x, made, y)], prologue))


def scratch() -> lm.Executable:
    """y = x + s, where nobody writes the scratch s."""
    k = TileBuilder()
    k.buffer("x", N)
    k.buffer("y", N, "out")
    k.scratch("s", N)
    k.grid("c", 1)
    with k.loop("i", N) as i:
        k.store("y", i.axis, k.map("Add", k.load("x", i.axis), k.load("s", i.axis)))
    p = ProgramBuilder(N)
    x, y = p.buffer("input", "x"), p.buffer("output", "y")
    launch = replace(p.launch("Add", x, x, y), kernel=1)
    launch = replace(launch, operands=(launch.operands[0], launch.operands[2]), chunks=const(1))
    p.kernels.append(k.kernel())
    return executable(one_input(), p.program([launch]))


@pytest.mark.parametrize(
    "program", [arena, output, hidden_output, derived, prologue_arena, scratch]
)
def test_what_nobody_wrote_is_nan(program: Callable[[], lm.Executable]) -> None:
    exe = program()
    for _ in range(2):  # the second run gets the first one's memory
        assert np.isnan(exe(x=ONES)["y"]).any()


def test_the_second_buffer_of_a_state_is_nan() -> None:
    state = lm.State((N,), init=1, name="s")
    cx = lm.Graph()
    x = cx.tensor((N,), name="x")
    (x * 2).output("y")
    cx.assign(state, cx.read(state) + x)
    p = ProgramBuilder(N)
    ins, one = p.buffer("input", "x"), p.buffer("state", state)
    after, y = p.buffer("next", state), p.buffer("output", "y")
    launches = [p.launch("Add", ins, ins, y), half(p.launch("Add", one, ins, after))]
    exe = executable(cx, p.program(launches, swaps=[state]))
    for _ in range(3):
        exe(x=ONES)
        assert np.isnan(state.numpy()[N // 2 :]).all()


def test_an_array_given_for_an_output_is_poisoned_too() -> None:
    mine = np.zeros(N, np.float32)
    output()(x=ONES, out=mine)
    assert np.isnan(mine[N // 2 :]).all()
    assert (mine[: N // 2] == 2).all()


def test_a_profile_begins_with_poison() -> None:
    p = ProgramBuilder(N)
    x, y = p.buffer("input", "x"), p.buffer("output", "y")
    bound = CpuRunner(p.program([half(p.launch("Add", x, x, y))]), target.current()).bind(
        {}, ["x"], ["y"]
    )
    result = np.zeros(N, np.float32)
    bound.profile([ONES], [result])
    assert np.isnan(result[N // 2 :]).all()


def test_without_the_flag_memory_stays_as_it_is() -> None:
    with config.override(LUMINAL_POISON=False):
        exe = output()
    mine = np.zeros(N, np.float32)
    exe(x=ONES, out=mine)
    assert (mine[N // 2 :] == 0).all()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 16, 33])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_every_float_is_nan(dtype: str, size: int) -> None:
    array = np.zeros(size, dtype)
    poison([array])
    assert np.isnan(array).all()


def test_integers_are_neither_small_nor_all_alike() -> None:
    for dtype in ("i4", "i8"):
        array = np.zeros(32, dtype)
        poison([array])
        assert set(array.tolist()) == {-1, np.iinfo(dtype).max}
