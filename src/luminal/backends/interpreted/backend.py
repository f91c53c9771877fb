"""The interpreter of tile IR as a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from luminal.backends.backend import Prediction
from luminal.backends.dispatch_seconds import Predicted
from luminal.backends.interpreted import device
from luminal.base.costs import Costs
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.expand.expand import expanded_text
from luminal.kernel.layout import Panels
from luminal.kernel.tile_ir import Kernel
from luminal.program.launch_list import Program
from luminal.program.steps import CustomStep, KernelStep
from luminal.runtime.device import Device
from luminal.runtime.device_runner import DeviceRunner
from luminal.schedule.vectors import costs
from luminal.schedule.vectors.steps import VectorSchedules
from luminal.schedule.vectors.vector_target import VectorTarget


@dataclass(frozen=True, slots=True)
class Interpreted:
    """The backend of tile IR on NumPy, scheduled as for a small CPU."""

    target: VectorTarget = device.TARGET
    name: str = "interpreted"
    makers: tuple[str, ...] = ("luminal.kernel.tile_interpreter",)
    dispatches: tuple[str, ...] = ("graph", "list")

    @property
    def hardware(self) -> str:
        """NumPy on whatever runs it."""
        return self.target.name

    @property
    def renderers(self) -> Mapping[str, Callable[[Kernel], str]]:
        """Expanded IR, which is not run here."""
        return {"expanded": expanded_text}

    @property
    def memory(self) -> Device:
        """The memory of the device, apart from the host's."""
        return device.device()

    @property
    def costs(self) -> Costs:
        """The costs that a CPU like this would have."""
        return costs.of(self.target)

    @property
    def layouts(self) -> Panels | None:
        """Weights lie as they are given."""
        return None

    @property
    def schedules(self) -> VectorSchedules:
        """The schedules of vectors in registers."""
        return VectorSchedules(self.target)

    def library_calls(
        self, step: KernelStep | CustomStep, numerics: Numerics = Numerics.STANDARD
    ) -> tuple[str, ...]:
        """No library computes a kernel here."""
        return ()

    def predict(
        self, kernel: Kernel, params: Mapping[str, int], flops: float, size: float
    ) -> Prediction:
        """The seconds of a launch by its operations and bytes alone."""
        return Prediction(self.costs.seconds(flops, size), {"flops": flops, "bytes": size})

    def explained(self, kernel: Kernel, params: Mapping[str, int], size: float) -> tuple[str, ...]:
        """Nothing: the kernels of a CPU are looked at by `exe.profile`."""
        return ()

    def occupancy(self, kernel: Kernel, params: Mapping[str, int]) -> None:
        """Nothing: no chip is known."""

    def predicted(self, program: Program, dims: Mapping[str, int]) -> Mapping[str, Predicted]:
        """Nothing: no chip is known."""
        return {}

    def expect(self, operations: int) -> None:
        """Does nothing: no kernel is compiled."""

    def begin(self, kernel: Kernel, text: str) -> None:
        """Does nothing: no kernel is compiled."""

    def compile(self, kernel: Kernel, text: str) -> None:
        """Does nothing: no kernel is compiled."""

    def runner(self, program: Program) -> DeviceRunner:
        """The program on the one device."""
        return DeviceRunner(program, self.memory, self.dispatches)


def current(number: int = 0) -> Interpreted:
    """The backend of the one device there is."""
    return Interpreted()


def count() -> int:
    """The number of devices, which is one."""
    return 1
