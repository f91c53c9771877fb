"""A device of the interpreter that counts its calls, and programs on it."""

from __future__ import annotations

from typing import Any

import luminal as lm
from luminal.backends.interpreted.driver import InterpretedDriver, InterpretedRecording
from luminal.runtime.device import Device
from tests.backends.interpreted.devices import compiled_on


class RecordingDriver(InterpretedDriver):
    """Counts what it recorded, what it ran again, and what was queued call by call."""

    def __init__(self) -> None:
        super().__init__("recording", 1 << 30)
        self.recorded = self.again = self.listed = 0

    def record(self, given: Any, calls: Any, taken: Any) -> InterpretedRecording:
        self.recorded += 1
        made = super().record(given, calls, taken)
        driver = self

        class Counted(InterpretedRecording):
            def run(self) -> None:
                driver.again += 1
                driver.listed -= len(calls)
                super().run()

        return Counted(made.driver, made.sent, made.calls, made.taken)

    def enqueue(self, *call: Any) -> None:
        self.listed += 1
        super().enqueue(*call)


def compiled(graph: lm.Graph) -> tuple[lm.Executable, RecordingDriver]:
    driver = RecordingDriver()
    return compiled_on(Device(driver), graph), driver
