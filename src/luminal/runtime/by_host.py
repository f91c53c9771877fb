"""Collectives that the host carries: of devices without a library for them, and of ranks whose
devices are of several kinds.

A start waits for what the device was given before, reads the operand and gives it to the engine; a
wait writes what has come. Between the two the device computes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from luminal.base.dtypes import DType, uint8
from luminal.hlir.stand_in import stand_in
from luminal.program.launch_list import CollectiveLaunch
from luminal.runtime.driver import DevicePointer, Driver
from luminal.runtime.exchange import Signal
from luminal.runtime.on_ranks import Ranks
from luminal.runtime.ranks import Engine, request


class ByHost(NamedTuple):
    """The ranks along a mesh axis, where the host carries values between them."""

    engine: Engine
    ranks: Ranks


class HostExchange(NamedTuple):
    """A collective or one end of it, with all its places, as `Driver.put` takes it. `elements` are
    those that it takes and gives. Without a group ranks are only thought of.
    """

    launch: CollectiveLaunch
    places: tuple[DevicePointer, DevicePointer]
    elements: tuple[int, int]
    signal: Signal
    group: ByHost | None

    @property
    def dtype(self) -> DType:
        """What is sent: only sums and maxima are more than bytes."""
        return self.launch.dtype if self.launch.attrs.reduction else uint8

    def put(self, driver: Driver) -> None:
        """Does it, in the order of what the device was given."""
        launch = self.launch
        if launch.phase != "wait":
            source, target = (np.empty(count, self.dtype.numpy) for count in self.elements)
            driver.read(self.places[0], source)
            ticket = None
            if self.group is None:
                target[...] = stand_in(launch.attrs, source)
            else:
                asked = request(launch.attrs, launch.label)
                ticket = self.group.engine.start(launch.attrs.kind, source, target, **asked)
            self.signal.event = ticket, target
        if launch.phase != "start":
            ticket, target = self.signal.event
            if self.group is not None:
                self.group.engine.wait(ticket, first=self.group.ranks.is_first)
            driver.write(self.places[1], target)
            self.signal.event = None


def carries(driver: Driver, engine: Engine) -> bool:
    """Does the host carry what this device exchanges with these ranks?"""
    return not driver.has_library or engine.unlike
