"""A device that runs kernels by groups, each by both of its meanings: the tile interpreter, which
takes all lanes together, and that of expanded IR, which runs each alone from barrier to barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from luminal.backends.c_backend import CBackend, machine
from luminal.backends.interpreted.driver import InterpretedCode, InterpretedDriver
from luminal.codegen.c_family.kernel import Spelled
from luminal.codegen.c_family.opencl import OPENCL
from luminal.expand import interpreter, ir
from luminal.expand.expand import expand
from luminal.expand.text import to_text as expanded_text
from luminal.expand.verify import verify
from luminal.hlir.graph import Graph
from luminal.kernel.tile_ir import Kernel, Map, Role
from luminal.kernel.tile_text import to_text
from luminal.runtime.driver import Array, DevicePointer, Driver
from luminal.runtime.executable import Executable
from luminal.schedule.groups.facts import Groups
from tests.backends import op_table
from tests.backends.on_device import compiled_on
from tests.close import close
from tests.expand.launches import same_bits

SMALL = Groups(lanes=8, most=16, shared_bytes=20 << 10, is_rule=True, subgroup=4)


class BothMeanings(InterpretedDriver):
    """What a kernel leaves must be the same bits by both. `lanes` has those of each launch."""

    def __init__(self) -> None:
        super().__init__("groups")
        self.expanded: dict[str, ir.Kernel] = {}
        self.lanes: list[int] = []

    def enqueue(
        self,
        code: InterpretedCode,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        kernel = code.kernel
        text = to_text(kernel)
        if text not in self.expanded:
            self.expanded[text] = expand(kernel)
            verify(self.expanded[text])
        expanded = self.expanded[text]
        copies: dict[int, Array] = {}
        ran: list[bool] = []
        maps = {each.op for each in kernel.statements() if isinstance(each, Map)}
        check = near if maps.intersection(op_table.TRANSCENDENTAL) else same_bits

        def elements(copied: bool) -> dict[str, Array]:
            found = {}
            values, _ = self.numbers(code, integers)
            for buffer, place in zip(kernel.buffers, operands, strict=True):
                size = int(buffer.size.evaluate(values)) * buffer.dtype.size
                held = (
                    copies[id(place.block)] if copied else self._bytes(DevicePointer(place.block))
                )
                part = held[place.offset : place.offset + size]
                found[buffer.name] = part.view(buffer.dtype.numpy)
            return found

        def before() -> None:
            self.lanes.append(kernel.lanes)
            for place in operands:
                copies[id(place.block)] = self._bytes(DevicePointer(place.block)).copy()
            values, chunks = self.numbers(code, integers)
            interpreter.run(expanded, elements(copied=True), values, range(chunks))
            ran.append(True)

        def after() -> None:
            if not ran:
                return  # the queue goes on, and raises what went wrong at its end
            own, other = elements(copied=False), elements(copied=True)
            for buffer in kernel.buffers:
                if buffer.role is not Role.IN:
                    try:
                        check(buffer.name, other[buffer.name], own[buffer.name])
                    except AssertionError as error:
                        error.add_note(f"{to_text(kernel)}\n{expanded_text(expanded)}")
                        raise

        self._queue.append(before)
        super().enqueue(code, workers, operands, integers, scratch)
        self._queue.append(after)


def near(name: str, found: Array, expected: Array) -> None:
    """Elementary functions are NumPy's in one of the meanings."""
    close(found, expected, ulp=64, err_msg=name)  # they differ by some, and sums add them up


class Both(CBackend):
    """As a device of C, but that its kernels are interpreted."""

    base = "groups"
    dialect = OPENCL

    @staticmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        return DRIVER


DRIVER = BothMeanings()


@cache
def backend(lanes: int = SMALL.lanes) -> Both:
    """The backend whose groups have so many lanes by rule."""
    return Both(machine("groups", 2, 32 << 10, 1 << 20), groups=replace(SMALL, lanes=lanes))


def compiled(graph: Graph) -> Executable:
    """The executable of a graph by groups."""
    return compiled_on(backend(), graph)


def groups_since(launches: int) -> list[int]:
    """The lanes of the launches after that many."""
    return DRIVER.lanes[launches:]
