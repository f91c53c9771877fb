"""The CPU as a backend.

A process that finds its programs and their code on disk compiles nothing: what only a compile asks
for is imported where it asks, which is a third of the time that such a process takes to start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from luminal.backends.backend import Prediction
from luminal.backends.cpu import ahead, compiler, device, kernels, target
from luminal.backends.cpu.target import CpuTarget
from luminal.base import config
from luminal.base.costs import Costs
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.kernel.tile_ir import Kernel
from luminal.memory.arrays import HOST, Host
from luminal.program.launch_list import Program
from luminal.schedule.vectors import costs

if TYPE_CHECKING:
    from luminal.backends.dispatch_seconds import Predicted
    from luminal.kernel.layout import Panels
    from luminal.program.steps import CustomStep, KernelStep
    from luminal.schedule.vectors.steps import VectorSchedules


@dataclass(frozen=True, slots=True)
class Cpu:
    """Native code through LLVM, run by a team of threads."""

    target: CpuTarget
    name: str = "cpu"
    makers: tuple[str, ...] = (kernels.RENDERER, compiler.COMPILER)
    dispatches: tuple[str, ...] = ("list",)

    @property
    def hardware(self) -> str:
        """The cores, as LLVM names them, and their caches."""
        cores = self.target
        sizes = cores.l1_bytes, cores.l2_bytes, cores.l3_bytes
        caches = ", ".join(f"{size >> 10} KiB" for size in sizes)
        width = f"{cores.cores} cores of {cores.vector_bits} bits"
        return f"{cores.cpu or cores.triple}, {width}, caches of {caches}"

    @property
    def memory(self) -> Host:
        """The memory of the host, which is this device's."""
        return HOST

    @property
    def costs(self) -> Costs:
        """Rough facts of vector CPUs."""
        return costs.of(self.target)

    @property
    def layouts(self) -> Panels:
        """Panels as wide as register tiles."""
        from luminal.schedule.vectors.panels import panels

        return panels(self.target)

    @property
    def schedules(self) -> VectorSchedules:
        """The schedules of vectors in registers."""
        from luminal.backends.cpu.product import place_call
        from luminal.schedule.vectors.steps import VectorSchedules

        return VectorSchedules(self.target, place_call)

    @property
    def renderers(self) -> Mapping[str, Callable[[Kernel], str]]:
        """Expanded IR, LLVM IR, then assembly."""
        return {"expanded": self.expanded, "llvm": self.ir, "asm": self.assembly}

    def expanded(self, kernel: Kernel) -> str:
        """Expanded IR, with vectors where the kernel has them."""
        from luminal.expand.expand import expanded_text

        return expanded_text(kernel, self.target.vector_lanes(1))

    def ir(self, kernel: Kernel) -> str:
        """The kernel as LLVM IR."""
        from luminal.codegen.llvm import render

        return render(kernel, self.target)

    def assembly(self, kernel: Kernel) -> str:
        """The assembly that LLVM makes of the kernel."""
        from luminal.backends.cpu import machine_code

        return machine_code.assembly(self.ir(kernel), self.target)

    def library_calls(
        self, step: KernelStep | CustomStep, numerics: Numerics = Numerics.STANDARD
    ) -> tuple[str, ...]:
        """A BLAS for what is a product of matrices and nothing else."""
        from luminal.backends.cpu import product

        return product.calls(step, self.target)

    def predict(
        self, kernel: Kernel, params: Mapping[str, int], flops: float, size: float
    ) -> Prediction:
        """The seconds of a launch, by counting what the kernel makes a core do, and how its loops
        are written.
        """
        from luminal.backends.cpu import features, work
        from luminal.backends.cpu.core import Core

        features_of = {"flops": flops, "bytes": size}
        if kernel.call is not None:
            return Prediction(self.costs.seconds(flops, size), features_of | {"calls": 1.0})
        core = Core(self.target)
        counted = work.work(kernel, params, core)
        features_of |= features.of(kernel, counted, core)
        return Prediction(work.seconds(counted, size, core), features_of)

    def explained(self, kernel: Kernel, params: Mapping[str, int], size: float) -> tuple[str, ...]:
        """Nothing: the kernels of a CPU are looked at by `exe.profile`."""
        return ()

    def occupancy(self, kernel: Kernel, params: Mapping[str, int]) -> None:
        """Nothing: a core runs one kernel at a time."""

    def predicted(self, program: Program, dims: Mapping[str, int]) -> Mapping[str, Predicted]:
        """Nothing: launches of a CPU are given in one way."""
        return {}

    def expect(self, operations: int) -> None:
        """Starts another process for large graphs; who has steps verified is in no hurry."""
        if not config.get("LUMINAL_VERIFY"):
            ahead.ahead.expect(operations)

    def begin(self, kernel: Kernel, text: str) -> None:
        """Lets the kernel be compiled on the side, in another thread or process."""
        kernels.begin(kernel, text, self.target)

    def compile(self, kernel: Kernel, text: str) -> object:
        """Compiles the kernel into the object cache."""
        return kernels.compiled(kernel, text, self.target)

    def runner(self, program: Program) -> device.CpuRunner:
        """The program for the team of threads."""
        return device.CpuRunner(program, self.target)


def current(number: int = 0) -> Cpu:
    """The backend of this machine, capped by LUMINAL_TARGET. Raises CompileError where it is none
    of ours.
    """
    return Cpu(target.current())


def count() -> int:
    """The number of devices, which is one: all cores are one device."""
    return 1
