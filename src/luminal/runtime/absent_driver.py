"""A device that is not here: programs are made for it, and nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from luminal.base.errors import DeviceError
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import (
    Array,
    Code,
    DeviceBlock,
    DeviceMemory,
    DevicePointer,
    Driver,
    Mark,
)
from luminal.shape.expression import Symbol, const


class AbsentCode:
    """A kernel that was made and will not be launched."""

    lanes = 1
    scratch = const(0)

    def __init__(self, params: tuple[Symbol, ...]) -> None:
        self.params = params


class AbsentError(DeviceError):
    """A program is to run on a chip that is not here."""


class AbsentDriver(Driver):
    """The driver of a chip that is known by its name alone. It takes every kernel; all else raises
    AbsentError.
    """

    workers = groups = 1
    survives_fork = True

    def __init__(self, name: str, most_lanes: int) -> None:
        self.name = name
        self.most_lanes = most_lanes

    def _refuse(self) -> NoReturn:
        here = self.name.partition(":")[0]
        raise AbsentError(
            f"{self.name}: this chip is not here; programs for it can be read "
            "(executable.text('c'), luminal compile --dump c, luminal viz) and do not "
            f"run. Compile for '{here}' where such a device is, or for 'cpu'"
        )

    def compile(self, kernel: Kernel, text: str) -> Code:
        return AbsentCode(kernel.params)

    def memory(self) -> DeviceMemory:
        self._refuse()

    def allocate(self, size: int) -> DeviceBlock:
        self._refuse()

    def free(self, block: DeviceBlock) -> None:
        self._refuse()

    def write(self, target: DevicePointer, source: Array) -> None:
        self._refuse()

    def read(self, source: DevicePointer, target: Array) -> None:
        self._refuse()

    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        self._refuse()

    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        self._refuse()

    def wait(self, mark: Mark | None = None) -> None:
        self._refuse()

    def mark(self) -> Mark:
        self._refuse()

    def seconds(self, first: Mark, last: Mark) -> float:
        self._refuse()
