"""Programs written by hand, on a device: what holds of them on the CPU holds here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.backends.interpreted.driver import InterpretedDriver
from luminal.base import config
from luminal.base.errors import VerifyError
from luminal.program.launch_list import KernelLaunch, Operand, Program, ProgramOutput
from luminal.program.verify import verify
from luminal.runtime.device import Device
from luminal.runtime.device_runner import DeviceRunner
from luminal.shape.expression import const
from tests.backends.cpu import hand_programs
from tests.backends.cpu.hand_programs import ProgramBuilder
from tests.backends.cpu.runtime.poison_cases import (
    ONES,
    arena,
    derived,
    hidden_output,
    output,
    prologue_arena,
    test_the_second_buffer_of_a_state_is_nan,
)
from tests.backends.cpu.runtime.program_cases import (
    test_a_call_that_raises_changes_neither_inputs_nor_states,
    test_a_loop_carries_streams_and_stacks,
    test_a_report_for_the_upper_ends_takes_no_memory,
    test_a_state_swaps_its_buffers_and_is_shared,
    test_static_and_dynamic_lengths_agree_with_numpy,
    test_the_prologue_runs_again_when_a_weight_is_set,
)
from tests.backends.cpu.tile_builder import backwards

__all__ = [
    "test_a_call_that_raises_changes_neither_inputs_nor_states",
    "test_a_loop_carries_streams_and_stacks",
    "test_a_report_for_the_upper_ends_takes_no_memory",
    "test_a_state_swaps_its_buffers_and_is_shared",
    "test_static_and_dynamic_lengths_agree_with_numpy",
    "test_the_prologue_runs_again_when_a_weight_is_set",
    "test_the_second_buffer_of_a_state_is_nan",
]


@pytest.fixture(autouse=True)
def _on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(InterpretedDriver())

    def runner(program: Program, target: object) -> DeviceRunner:
        return DeviceRunner(program, device)

    monkeypatch.setattr(hand_programs, "CpuRunner", runner)


def test_scratch_memory_is_no_one_elses() -> None:
    """y = turned(x + turned(w + w)): kernels that work in scratch memory, in prologue and run."""
    size = 128
    p = ProgramBuilder(size)
    w = lm.Parameter(np.arange(size, dtype=np.float32), name="w")
    cx = lm.Graph()
    (cx.tensor((size,), name="x") * cx.weight_of(w)).output("y")  # its inputs and outputs
    x, weight = p.buffer("input", "x"), p.weight(w)
    twice, turned = p.buffer("arena"), p.buffer("derived")
    total, y = p.buffer("arena"), p.buffer("output", "y")

    def turn(source: int, target: int) -> KernelLaunch:
        return KernelLaunch(1, (Operand(source), Operand(target)), (), const(1), "turn")

    prologue = [p.launch("Add", weight, weight, twice), turn(twice, turned)]
    launches = [p.launch("Add", x, turned, total), turn(total, y)]
    p.kernels.append(backwards("from", "to", size))
    exe = hand_programs.executable(cx, p.program(launches, prologue))
    given = np.ones(size, np.float32)
    np.testing.assert_array_equal(exe(x=given)["y"], given + 2 * w.numpy())


@pytest.mark.parametrize("program", [arena, output, hidden_output, derived, prologue_arena])
def test_what_nobody_wrote_is_nan(program: Callable[[], lm.Executable]) -> None:
    with config.override(LUMINAL_VERIFY=False):  # no verifier refuses these programs
        exe = program()
        for _ in range(2):  # the second run gets the first one's memory
            assert np.isnan(exe(x=ONES)["y"]).any()


def test_an_output_has_a_buffer_of_its_own() -> None:
    p = ProgramBuilder(32)
    x, y = p.buffer("input", "x"), p.buffer("output", "y")
    p.outputs.append(ProgramOutput("z", y))
    program = p.program([p.launch("Add", x, x, y)])
    with pytest.raises(VerifyError, match="output z: b1 is y already"):
        verify(program)
