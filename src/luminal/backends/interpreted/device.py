"""The interpreted backend's one device, and the machine that its programs are made for."""

from __future__ import annotations

import functools

from luminal.backends.interpreted.driver import InterpretedDriver
from luminal.runtime.device import Device
from luminal.schedule.vectors.vector_target import VectorTarget

TARGET = VectorTarget(
    name="interpreted",
    vector_bits=128,
    registers=16,
    dots=(),
    cores=2,
    l1_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=8 << 20,
)
"""A small machine of vectors: the interpreter takes an array for each tile, however long."""


@functools.cache
def device() -> Device:
    """The one device of the interpreter."""
    return Device(InterpretedDriver())
