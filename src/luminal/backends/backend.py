"""What the compiler, a search and the runtime ask of a backend: all of it, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from luminal.base.costs import Costs
from luminal.base.numerics import Numerics
from luminal.base.target import Target
from luminal.hlir.graph import Graph
from luminal.memory.arrays import MemorySpace
from luminal.runtime.runner import Runner

if TYPE_CHECKING:  # the compiler's records are imported when something is compiled
    from luminal.backends.dispatch_seconds import Predicted
    from luminal.kernel.evaluate import Placed
    from luminal.kernel.knobs import Knobs
    from luminal.kernel.layout import Panels
    from luminal.kernel.tile_ir import Kernel
    from luminal.program.launch_list import Program
    from luminal.program.steps import CustomStep, KernelStep
    from luminal.schedule.groups.bounds import Occupancy
    from luminal.shape.expression import Expression


class Prediction(NamedTuple):
    """The seconds that a launch should take, and by name what was counted of it, none negative:
    from counts and clocks a search learns how far such seconds are off.
    """

    seconds: float
    features: Mapping[str, float]


# A protocol and no base class: what places kernels for vectors and what places them for groups of
# lanes share no code, only these two questions.
class Schedules(Protocol):
    """The choice points of every kind of kernel, and their defaults."""

    def space(self, step: KernelStep | CustomStep) -> tuple[Knobs, ...]:
        """The schedules of a kernel worth timing, the default first: ()."""

    def place(self, step: KernelStep | CustomStep, knobs: Knobs = ()) -> Placed:
        """The kernel of a step under a schedule. Raises KnobError for knobs that it does not
        have.
        """

    @property
    def begins_early(self) -> bool:
        """May a kernel begin while the one ahead of it still runs?"""

    def share_launch(self, kernels: Sequence[Kernel], chunks: Sequence[Expression]) -> bool:
        """May kernels that need nothing of each other be one launch, and do they gain by that?"""


# A backend is a plain value, so a search can send it to its workers, and a test can pretend a
# machine has less. All that the layers above ask of one is here: a rule that needs to know more of
# a machine asks for a fact or a cost, never for the backend's name.
class Backend(Protocol):
    """A machine that Programs are compiled for. A plain value, which other processes may be sent;
    equal ones make interchangeable programs.

    `target`: facts that all devices share; those of its own a backend keeps to itself. `hardware`:
    the chip in words, and how much of it; times of one are no other's. `costs`: what work costs
    there. `layouts`: the panels that it wants weights in, None for weights as they
    are given. `renderers` make the texts a kernel becomes on its way to a binary, by name and in
    order. `makers` are the modules that make a kernel's code: with all that they import, other
    sources make other code. `memory` is its device's. `dispatches` are the ways in which launches
    can be given to it, of `config.DISPATCHES`; a Program that names none is run by the first.
    """

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> Target: ...
    @property
    def hardware(self) -> str: ...
    @property
    def costs(self) -> Costs: ...
    @property
    def layouts(self) -> Panels | None: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def renderers(self) -> Mapping[str, Callable[[Kernel], str]]: ...
    @property
    def makers(self) -> tuple[str, ...]: ...
    @property
    def memory(self) -> MemorySpace[Any]: ...
    @property
    def dispatches(self) -> tuple[str, ...]: ...

    def library_calls(
        self, step: KernelStep | CustomStep, numerics: Numerics = Numerics.STANDARD
    ) -> tuple[str, ...]:
        """The libraries that may compute a kernel under these numerics. Layouts decide that, which
        its text need not show.
        """

    def predict(
        self, kernel: Kernel, params: Mapping[str, int], flops: float, size: float
    ) -> Prediction:
        """What a launch should take, beside what every one does (`costs.launch`), for values of the
        kernel's parameters: so many operations on `size` bytes. It orders what a search tries.
        """

    def explained(self, kernel: Kernel, params: Mapping[str, int], size: float) -> tuple[str, ...]:
        """Lines that say what a launch should take and what bounds it; none where only `costs` are
        known.
        """

    def occupancy(self, kernel: Kernel, params: Mapping[str, int]) -> Occupancy | None:
        """What of a unit's registers and memory a launch takes, by the facts of the chip; None
        where these are not known.
        """

    def predicted(self, program: Program, dims: Mapping[str, int]) -> Mapping[str, Predicted]:
        """What a run should take by ways of giving its launches; nothing where no chip is known."""

    def expect(self, operations: int) -> None:
        """Says that kernels of a graph of so many operations follow, which no cache is known to
        have: who compiles them may get ready.
        """

    def begin(self, kernel: Kernel, text: str) -> None:
        """Lets a kernel be compiled while others are placed; `text` names it in every cache."""

    def compile(self, kernel: Kernel, text: str) -> object:
        """Compiles a kernel for later programs, loading nothing."""

    def runner(self, program: Program) -> Runner:
        """The program on this backend's device."""


@runtime_checkable
class Interpreter(Protocol):
    """Runs graphs as they are, without a Program."""

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> MemorySpace[Any]: ...

    def interpret(self, graph: Graph) -> Runner:
        """The graph, ready to run."""
