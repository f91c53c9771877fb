"""Programs written by hand, on a device: what holds of them on the CPU holds here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal import config
from luminal.backends.interpreted.driver import InterpretedDriver
from luminal.program.launch_list import Program
from luminal.runtime.device import Device
from luminal.runtime.device_runner import DeviceRunner
from tests.backends.cpu import hand_programs
from tests.backends.cpu.test_executable import (
    test_a_call_that_raises_changes_neither_inputs_nor_states,
    test_a_loop_carries_streams_and_stacks,
    test_a_report_for_the_upper_ends_takes_no_memory,
    test_a_state_swaps_its_buffers_and_is_shared,
    test_static_and_dynamic_lengths_agree_with_numpy,
    test_the_prologue_runs_again_when_a_weight_is_set,
)
from tests.backends.cpu.test_poison import (
    ONES,
    arena,
    derived,
    hidden_output,
    output,
    prologue_arena,
    test_the_second_buffer_of_a_state_is_nan,
)

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


@pytest.mark.parametrize("program", [arena, output, hidden_output, derived, prologue_arena])
def test_what_nobody_wrote_is_nan(program: Callable[[], lm.Executable]) -> None:
    with config.override(LUMINAL_VERIFY=False):  # no verifier refuses these programs
        exe = program()
        for _ in range(2):  # the second run gets the first one's memory
            assert np.isnan(exe(x=ONES)["y"]).any()
