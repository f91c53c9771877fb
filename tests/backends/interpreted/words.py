"""An interpreted device whose lanes multiply bytes in words of four."""

from __future__ import annotations

from luminal.backends.interpreted.backend import Interpreted
from luminal.backends.interpreted.driver import InterpretedDriver
from luminal.kernel.layout import Panels
from luminal.runtime.device import Device
from luminal.schedule.vectors.panels import panels

LANES = 16


class OfWords(Interpreted):
    """A CPU of vectors with a dot of bytes."""

    @property
    def memory(self) -> Device:
        return DEVICE

    @property
    def layouts(self) -> Panels:
        return panels(self.target)


DEVICE = Device(InterpretedDriver("words"))
