"""One run on a device: how it is queued, and how its outputs get to where the caller has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from luminal.base.errors import LuminalError
from luminal.memory.arrays import Array
from luminal.runtime.device import DeviceBuffer
from luminal.runtime.device_array import DeviceArray
from luminal.runtime.device_watch import Watch
from luminal.runtime.driver import Call, DeviceError, DevicePointer, Driver, Recording
from luminal.runtime.exchange import Exchange
from luminal.runtime.recordings import NOTHING, Listing, Slot, staged
from luminal.runtime.workspace import Layout, Part, part_of

if TYPE_CHECKING:
    from luminal.runtime.device_runner import DeviceRunner

Walk: TypeAlias = "Callable[[Driver, Listing], None]"
"""Queues the calls of a list."""


class Made(NamedTuple):
    """What a binding's runs have in common; `size` of the workspace."""

    layout: Layout
    variant: tuple[int, ...]
    integers: Array
    size: int


class DeviceRun:
    """A run with its arrays; do its outputs `stay` on the device? Where they are addresses, kernels
    write them there.
    """

    __slots__ = (
        "inputs", "integers", "layout", "listing", "outputs", "runner",
        "slot", "stay", "watch", "workspace",
    )  # fmt: skip

    def __init__(
        self,
        runner: DeviceRunner,
        prepared: Made,
        workspace: DeviceBuffer,
        listing: Listing,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        stay: bool,
        watch: Watch | None = None,
    ) -> None:
        self.runner = runner
        self.watch = watch
        self.layout, self.integers = prepared.layout, prepared.integers
        self.workspace, self.listing = workspace, listing
        self.inputs, self.outputs, self.stay = inputs, outputs, stay
        self.slot: Slot | None = None

    def queue(self, driver: Driver, walk: Walk | None) -> None:
        """Queues it: as a recording where the list was seen before, else call by call."""
        self.listing.runs += 1
        if walk is None and self.runner.waits:
            walk = self._one_by_one
        comes_again = self.listing.runs > 1 and self.runner.dispatch != "list"
        if walk is None and comes_again and self._is_recorded(driver):
            return
        if self.runner.poisons or self.runner.told is not self.integers:
            driver.write(self.workspace.place, self.integers)
            self.runner.told = self.integers
        for part in (*self.layout.inputs, *self.layout.large_inputs):
            self._give(driver, part)
        if walk is not None:
            walk(driver, self.listing)
        else:
            for call in self.listing.queued:
                driver.put(call)
        self._come(driver)
        for part in (*self.layout.outputs, *self.layout.large_outputs):
            self._take(driver, part)

    def land(self) -> None:
        """Fills the caller's arrays once all has run."""
        if self.slot is not None:
            for part in () if self.stay else self.layout.outputs:
                array = self.outputs[part.array]
                array[...] = part_of(self.slot.taken, part, array)
            self.runner.slots.append(self.slot)

    def _is_recorded(self, driver: Driver) -> bool:
        """Queues it as a recording, if there is one."""
        runner, layout = self.runner, self.layout
        taken_bytes = 0 if self.stay else layout.taken
        is_staged = bool(layout.sent or taken_bytes)
        slot = runner.slot(driver, layout) if is_staged else NOTHING
        sent, taken = staged(slot, layout.sent, taken_bytes)

        def make(launches: Sequence[Call | Exchange]) -> Recording | None:
            source = DevicePointer(self.workspace.block, layout.sent)
            return driver.record((sent, self.workspace.place), launches, (source, taken))

        recording = self.listing.recording(slot, make)
        if recording is None:
            if is_staged:
                runner.slots.append(slot)
            return False
        sent[: self.integers.nbytes] = self.integers.view(np.uint8)
        for part in layout.inputs:
            array = self.inputs[part.array]
            if type(array) is not DeviceArray:
                part_of(sent, part, array)[...] = array
        for part in layout.large_inputs:
            self._give(driver, part)
        runner.told = None  # a copy of its own, which nobody compares
        recording.run()
        self.slot = slot if is_staged else None
        if layout.large_outputs:
            self._come(driver)
        for part in (*layout.outputs, *layout.large_outputs) if self.stay else layout.large_outputs:
            self._take(driver, part)
        return True

    def _come(self, driver: Driver) -> None:
        """Waits for collectives before the host is blocked by a copy, which looks for nothing."""
        if self.watch is not None and not self.stay:
            self.watch.wait(driver, driver.mark())

    def _one_by_one(self, driver: Driver, listing: Listing) -> None:
        driver.wait()
        for site, call in listing.calls:
            try:
                driver.put(call)
                driver.wait()
            except LuminalError as error:
                words = f"{error}; in {self.runner.sites.named(site)}"
                raise DeviceError(words) from error

    def _give(self, driver: Driver, part: Part) -> None:
        """Queues a copy of an input, unless kernels read it where it lies."""
        array = self.inputs[part.array]
        if type(array) is not DeviceArray:
            driver.write(self._place(part), array)

    def _take(self, driver: Driver, part: Part) -> None:
        """Queues a copy of an output to where the caller has it."""
        if not self.stay:
            driver.fetch(self._place(part), self.outputs[part.array])
            return
        target = self.outputs[part.array]
        driver.copy(self._place(part), target.place, target.nbytes)

    def _place(self, part: Part) -> DevicePointer:
        return DevicePointer(self.workspace.block, self.layout.offsets[part.buffer])
