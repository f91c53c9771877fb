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
from luminal.runtime import output_pool
from luminal.shape.expression import const
from tests.backends.cpu.hand_programs import ProgramBuilder, executable
from tests.backends.cpu.runtime.poison_cases import (
    ONES,
    N,
    arena,
    derived,
    half,
    hidden_output,
    one_input,
    output,
    prologue_arena,
)
from tests.backends.cpu.tile_builder import TileBuilder


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


def test_an_array_given_for_an_output_is_poisoned_too() -> None:
    mine = np.zeros(N, np.float32)
    output()(x=ONES, out=mine)
    assert np.isnan(mine[N // 2 :]).all()
    assert (mine[: N // 2] == 2).all()


def test_a_profile_begins_with_poison() -> None:
    p = ProgramBuilder(N)
    x, y = p.buffer("input", "x"), p.buffer("output", "y")
    bound = CpuRunner(p.program([half(p, p.launch("Add", x, x, y))]), target.current()).bind(
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
