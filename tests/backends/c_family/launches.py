"""Launches by themselves: the integers of one stand in memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.runtime.driver import DevicePointer, Driver, integers_of, scratch_of


def scratch_bytes(code: Any, params: Sequence[int]) -> int:
    """What a worker needs for these parameters."""
    return scratch_of(code, params).value


def enqueue(
    driver: Driver,
    code: Any,
    chunks: int,
    workers: int,
    operands: Sequence[DevicePointer],
    params: Sequence[int],
    scratch: DevicePointer | None = None,
) -> None:
    """Queues a launch of so many chunks of code with these parameters."""
    integers = [number.value for number in integers_of(code, params, chunks)]
    place = DevicePointer(driver.allocate(8 * len(integers))) if integers else None
    if place is not None:
        driver.write(place, np.array(integers, np.int64))
    driver.enqueue(code, workers, operands, place, scratch)
    if place is not None:
        driver.free(place.block)
