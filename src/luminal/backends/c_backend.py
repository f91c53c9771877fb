"""Devices that run texts of C, as backends: what they have in common."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from luminal.backends import device_costs
from luminal.backends.backend import Prediction
from luminal.backends.dispatch_seconds import Model, Predicted, is_short
from luminal.backends.library_calls import algorithms, library_calls
from luminal.base.costs import Costs
from luminal.base.dots import Dot
from luminal.base.errors import CompileError
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.codegen.c_family.dialect import Dialect
from luminal.codegen.c_family.kernel import Spelled, expanded_for, spell_tiles
from luminal.codegen.c_family.persistent import Together
from luminal.expand import ir as expanded
from luminal.expand.expand import expanded_text
from luminal.kernel.boxes import Tensor
from luminal.kernel.layout import Panels
from luminal.kernel.tile_ir import Kernel
from luminal.program.launch_list import Program
from luminal.program.steps import CustomStep, KernelStep
from luminal.runtime.absent_driver import AbsentDriver
from luminal.runtime.device import Device
from luminal.runtime.device_runner import DeviceRunner
from luminal.runtime.driver import Driver
from luminal.schedule.groups import features
from luminal.schedule.groups.bounds import Occupancy, bounds, lines, occupancy
from luminal.schedule.groups.chip import Chip
from luminal.schedule.groups.counts import Work
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.schedules import GroupSchedules
from luminal.schedule.groups.work import work
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.shape.expression import Expression, Symbol

SCALARS = 8
"""Bits of a vector register: the widest that holds one element of any dtype, so none holds two."""
GROUPS = Groups(lanes=128, most=1024, shared_bytes=48 << 10, is_rule=True, subgroup=32)
"""Of a GPU: lanes for four rows that step together, the shared memory that all of them have. A chip
may have less.
"""
REGISTERS = 32  # of a worker: half of those that leave a GPU's unit full


def machine(
    name: str,
    units: int,
    shared_bytes: int,
    cache_bytes: int,
    registers: int = REGISTERS,
    dots: tuple[Dot, ...] = (),
) -> VectorTarget:
    """A machine of scalars: a device as programs for it are made, until groups share their work.

    `units` work side by side, each with `shared_bytes` close to it, all with `cache_bytes`.
    """
    return VectorTarget(
        name=name,
        vector_bits=SCALARS,
        registers=registers,
        dots=dots,
        cores=units,
        l1_bytes=shared_bytes,
        l2_bytes=cache_bytes,
        l3_bytes=cache_bytes,
    )


@dataclass(frozen=True, slots=True)
class CCode:
    """A driver's Code: what it launches, and the text that this was made of."""

    spelled: Spelled | Together
    handle: Any

    @property
    def lanes(self) -> int:
        """The number of lanes of a worker."""
        return self.spelled.lanes

    @property
    def dynamic_bytes(self) -> int:
        """The memory of a group that a launch has to give."""
        return self.spelled.dynamic_bytes

    @property
    def cluster(self) -> int:
        """The groups that a launch puts on the device together."""
        return self.spelled.cluster

    @property
    def params(self) -> tuple[Symbol, ...]:
        """The symbols of the kernel's parameters, in order."""
        return self.spelled.params

    @property
    def scratch(self) -> Expression:
        """The bytes of global working memory that a worker needs."""
        return self.spelled.scratch

    @property
    def maps(self) -> tuple[tuple[int, Tensor], ...]:
        """What of its buffers boxes are cut out, each with the buffer's number."""
        return self.spelled.maps


@dataclass(frozen=True, slots=True)
class CTogether(CCode):
    """A driver's TogetherCode, of several kernels."""

    spelled: Together

    @property
    def words(self) -> int:
        """The words of a task's record."""
        return self.spelled.words


@dataclass(frozen=True, slots=True)
class CBackend(ABC):
    """Kernels spelled in a dialect, compiled and run by the Driver of a device, the `number`-th.

    A subclass has its name, its dialect and its driver, and rows of `chips` that programs are made
    for by name. `costs_of`: what work costs on its device. `chip`: what is known of it; without a
    number that is all there is, and nothing runs. `walkers`: groups that its driver launches for
    each unit at most, `dispatches` what a Backend says.
    """

    target: VectorTarget
    number: int | None = 0
    groups: Groups = GROUPS
    costs_of: Callable[[VectorTarget], Costs] = device_costs.gpu
    chip: Chip | None = None
    base: ClassVar[str]
    dialect: ClassVar[Dialect]
    chips: ClassVar[tuple[Chip, ...]] = ()
    walkers: ClassVar[int] = 8
    dispatches: ClassVar[tuple[str, ...]] = ("list",)

    @classmethod
    def of(cls, chip: Chip, number: int | None = None) -> Self:
        """The backend of a chip: of the device of this number, or of one that is not here."""
        groups = replace(
            GROUPS,
            most=min(GROUPS.most, chip.most_lanes),
            shared_bytes=chip.group_bytes,
            copies=chip.copies,
            copies_beside=cls.dialect.copies_beside,
            pipes=chip.pipes,
            boxes=bool(chip.left),
            cluster=2 if chip.left else 1,
            begins_early=chip.is_chained and bool(cls.dialect.depend),
            left=chip.left,
        )
        target = machine(str(chip), chip.units, chip.unit_bytes, chip.cache_bytes, dots=chip.dots)
        return cls(target, number, groups, chip=chip)

    @classmethod
    def named(cls, name: str) -> Self:
        """The backend of a chip that need not be here. Raises CompileError for an unknown one."""
        chip = next((chip for chip in cls.chips if chip.name == name), None)
        if chip is None:
            names = ", ".join(repr(f"{cls.base}:{chip.name}") for chip in cls.chips)
            raise CompileError(
                f"no chip {name!r} is known; takes {names}, or the number of a device, as in "
                f"'{cls.base}:0'"
            )
        return cls.of(chip)

    @staticmethod
    @abstractmethod
    def driver(spell: Callable[[Kernel], Spelled], number: int) -> Driver:
        """The driver of the device of a number, which is below the module's `count()`."""

    @property
    def name(self) -> str:
        """The name by which users call the device, or the chip."""
        if self.number is None:
            assert self.chip is not None
            return f"{self.base}:{self.chip.name}"
        # The first device has no number, so that a program which names "cuda" means it on every
        # machine.
        return f"{self.base}:{self.number}" if self.number else self.base

    @property
    def hardware(self) -> str:
        """The chip with what a driver says of it."""
        if self.chip is None:
            return f"{self.target.name}, {self.target.cores} units"
        rate = self.chip.memory / 1e9
        return f"{self.chip}, {self.chip.units} units, memory of {rate:,.0f} GB/s"

    @property
    def memory(self) -> Device:
        """The memory of the device. Raises CompileError where there is none."""
        if self.number is None:
            return _absent(self.name, self.groups.most)
        return _device(type(self), self.number)

    @property
    def makers(self) -> tuple[str, ...]:
        """The walk and the dialect."""
        return "luminal.codegen.c_family.kernel", type(self.dialect).__module__

    @property
    def costs(self) -> Costs:
        """What work costs on this kind of device."""
        return self.costs_of(self.target)

    @property
    def layouts(self) -> Panels | None:
        """Weights lie as they are given."""
        return None

    @property
    def schedules(self) -> GroupSchedules:
        """The schedules of groups of lanes where the device has them, else those of a CPU of
        scalars.
        """
        return GroupSchedules(self.target, self.groups, algorithms(self.target.libraries))

    @property
    def renderers(self) -> Mapping[str, Callable[[Kernel], str]]:
        """Expanded IR, then the text."""
        return {"expanded": expanded_text, "c": self.text}

    def text(self, kernel: Kernel) -> str:
        """The kernel in the dialect."""
        return spell_tiles(kernel, self.dialect).text

    def library_calls(
        self, step: KernelStep | CustomStep, numerics: Numerics = Numerics.STANDARD
    ) -> tuple[str, ...]:
        """The device's libraries that compute such a product of matrices as the kernel is."""
        return library_calls(step, self.target.libraries, numerics)

    def predict(
        self, kernel: Kernel, params: Mapping[str, int], flops: float, size: float
    ) -> Prediction:
        """The seconds of a launch by what its lanes do to the chip, where that is known; else by
        its operations and bytes alone.
        """
        told = {"flops": flops, "bytes": size}
        if kernel.call is not None:
            return Prediction(self.costs.seconds(flops, size), told | {"calls": 1.0})
        chunk_work, chunks = self.counted(kernel, params)
        told |= features.of_work(chunk_work, chunks)
        if self.chip is None:
            return Prediction(self.costs.seconds(flops, size), told)
        bound = bounds(chunk_work, self.chip, chunks, size, self.walkers)
        return Prediction(bound.seconds, told | features.of_bounds(bound))

    def explained(self, kernel: Kernel, params: Mapping[str, int], size: float) -> tuple[str, ...]:
        """What a launch should take on the chip, what bounds it, and its worst accesses."""
        if self.chip is None or kernel.call is not None:  # nothing is known of a library's code
            return ()
        chunk_work, chunks = self.counted(kernel, params)
        return lines(chunk_work, bounds(chunk_work, self.chip, chunks, size, self.walkers))

    def occupancy(self, kernel: Kernel, params: Mapping[str, int]) -> Occupancy | None:
        """What of a unit a launch takes, as its text is counted: no compiler was asked."""
        if self.chip is None or kernel.call is not None:
            return None
        counted, chunks = self.counted(kernel, params)
        return occupancy(counted, self.chip, chunks, self.walkers)

    def predicted(self, program: Program, dims: Mapping[str, int]) -> Mapping[str, Predicted]:
        """What a run takes as a graph, and as one kernel where the device has that, of which a
        library's calls end parts; nothing where the chip is not known, and of long lists.
        """
        chip = self.chip
        if chip is None or not program.launches or not is_short(program, dims):
            return {}

        def counted(number: int, params: Mapping[str, int]) -> tuple[expanded.Kernel, Work]:
            kernel = self.expansion(program.kernels[number])
            return kernel, work(kernel, params, self.dialect.instructions)

        model = Model(program, dims, chip, self.walkers, counted, self.costs.seconds)
        ways = {"graph": model.as_graph()}
        warp = chip.subgroup if self.dialect.part_barrier else 0
        one = model.as_one(warp) if "one" in self.dispatches else None
        return ways if one is None else {**ways, "one": one}

    def counted(self, kernel: Kernel, params: Mapping[str, int]) -> tuple[Work, int]:
        """What a chunk of a launch does to a unit, and how many chunks there are."""
        whole = self.expansion(kernel)
        counts = work(whole, params, self.dialect.instructions)
        return counts, int(whole.chunks.evaluate(params))

    def expansion(self, kernel: Kernel) -> expanded.Kernel:
        """The kernel as its text says it."""
        return expanded_for(kernel, self.dialect, early=bool(self.dialect.depend))

    def expect(self, operations: int) -> None:
        """Does nothing: drivers compile what is loaded."""
        return

    def begin(self, kernel: Kernel, text: str) -> None:
        """Does nothing: drivers compile what is loaded."""
        return

    def compile(self, kernel: Kernel, text: str) -> object:
        """Compiles the kernel into the object cache."""
        # Through the Device and not the driver: it lets in one thread at a time, and a driver is
        # not written for two.
        return self.memory.compile(kernel, text)

    def runner(self, program: Program) -> DeviceRunner:
        """The program on the device."""
        return DeviceRunner(program, self.memory, self.dispatches, self.predicted)


@functools.cache
# One for the process, since buffers of two Devices could not meet in one program even where the
# hardware is the same.
def _device(backend: type[CBackend], number: int) -> Device:
    """The process's one Device of that number."""
    return Device(backend.driver(lambda kernel: spell_tiles(kernel, backend.dialect), number))


@functools.cache
def _absent(name: str, most_lanes: int) -> Device:
    """The process's one Device of a chip that is not here."""
    return Device(AbsentDriver(name, most_lanes))
