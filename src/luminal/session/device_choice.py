"""Which device programs are compiled for: the default one of a context, and all there are."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from luminal.backends import registry
from luminal.backends.backend import Backend, Interpreter
from luminal.base.errors import DeviceError
from luminal.base.records import dataclass
from luminal.memory.arrays import DeviceMemory

_device: ContextVar[str | None] = ContextVar("luminal_device", default=None)


class device:
    """Makes a device the default of compiles in this context: from now on, or in a `with` block.

    `lm.device("opencl:0")`; compiles that name a backend, and graphs that were moved (`graph.to`),
    keep theirs. Raises InputError for a device that cannot be used.
    """

    def __init__(self, device: Any) -> None:
        self.name = registry.usable("device", device).name
        self._token = _device.set(self.name)

    def __enter__(self) -> device:
        return self

    def __exit__(self, *error: object) -> None:
        _device.reset(self._token)

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name


def default_device() -> str | None:
    """The name that `lm.device` gave in this context."""
    return _device.get()


def chosen_device(device: str | None) -> str:
    """The name that is given, else that of this context, else the CPU's: for what compiles later,
    perhaps in another context.
    """
    return device if device is not None else _device.get() or "cpu"


@dataclass(frozen=True, slots=True)
class Device:
    """One device as this machine has it; `memory` in bytes, where it says."""

    name: str
    summary: str
    usable: bool
    reason: str | None  # why it is not usable
    memory: DeviceMemory | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.summary}" if self.usable else f"{self.name}: {self.reason}"


def devices() -> list[Device]:
    """Every device that programs can be compiled for, and why the rest is not usable."""
    rows = []
    for row in registry.BACKENDS.values():
        reason = row.unavailable()
        if reason is not None:
            rows.append(Device(row.name, row.summary, False, reason))
            continue
        for backend in map(row.current, range(row.count())):
            try:
                memory = backend.memory.memory()
            except DeviceError as error:  # that of a parent process, or one that has failed
                rows.append(Device(backend.name, row.summary, False, str(error)))
            else:
                rows.append(Device(backend.name, _summary(row, backend), True, None, memory))
    return rows


def _summary(row: registry.Row, backend: Backend | Interpreter) -> str:
    """What a device is, the chip where it has one, and the vendor's libraries for it."""
    chip = "" if isinstance(backend, Interpreter) or not row.knows_chips else backend.target.name
    told = ", ".join(filter(None, (chip, *row.libraries())))
    return f"{row.summary}: {told}" if told else row.summary
