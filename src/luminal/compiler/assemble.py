"""A Partition becomes a Program: every kernel placed by its schedule, equal kernels once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from luminal.backends.backend import Backend
from luminal.base import tracing
from luminal.base.records import dataclass
from luminal.hlir.graph import Graph
from luminal.kernel.cost import bytes_moved, flops, label, origins
from luminal.kernel.custom import bytes_of
from luminal.kernel.knobs import KnobError, Knobs
from luminal.kernel.tile_ir import Kernel
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import (
    KernelLaunch,
    Launch,
    LoopLaunch,
    Operand,
    Program,
)
from luminal.program.steps import (
    CallStep,
    CollectiveStep,
    CustomStep,
    KernelStep,
    LoopStep,
    NestStep,
    Partition,
    Step,
)

Tuned = Mapping[str, Knobs]
"""Knobs by `text_key` of the kernel that the default schedule makes."""

UNTUNED: Tuned = {}

Begin = Callable[[Kernel, str], None]
"""Told of each kernel as soon as it is placed, with its text: it may be compiled meanwhile."""


class Origin(NamedTuple):
    """The origin of a Program's kernel: the name that it has under the default schedule (as in
    Tuned; a library's goes by the name its loops would have), the steps that it was placed for, and
    its text.
    """

    name: str
    steps: tuple[KernelStep | CustomStep, ...]
    text: str


# A network of 1,467 steps has 652 forms and 526 texts of kernels, so steps of one form are placed
# once, and kernels of one text are one.
@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A kernel with its text, and its launch but for its number and the operands, which are
    numbered as in the Form.
    """

    kernel: Kernel
    text: str
    launch: KernelLaunch
    operands: tuple[int, ...]

    @classmethod
    def of(cls, step: KernelStep, backend: Backend, knobs: Knobs) -> PlacedStep:
        """The kernel of a step, placed by the backend's schedules under these knobs."""
        fused, placed = step.fused, backend.schedules.place(step, knobs)
        operands = tuple(map(fused.form.operands.index, placed.operands))
        launch = KernelLaunch(
            0, (), placed.params, placed.chunks,
            label(fused), flops(fused), bytes_moved(fused),
        )  # fmt: skip
        return cls(placed.kernel, to_text(placed.kernel), launch, operands)

    def at(self, operands: Sequence[Operand]) -> PlacedStep:
        """This step for a launch on these operands: where lanes run it, buffers that may start
        anywhere are marked so.
        """
        buffers = tuple(
            replace(buffer, is_aligned=operand.is_aligned)
            for buffer, operand in zip(self.kernel.buffers, operands, strict=True)
        )
        if self.kernel.lanes == 1 or buffers == self.kernel.buffers:
            return self
        kernel = replace(self.kernel, buffers=buffers)
        return replace(self, kernel=kernel, text=to_text(kernel))


Placements = dict[tuple[Hashable, Knobs], PlacedStep]
"""By the key of a step, and knobs."""


def assemble(
    graph: Graph,
    parts: Partition,
    backend: Backend,
    tuned: Tuned,
    placements: Placements,
    begin: Begin | None = None,
) -> tuple[Program, tuple[Origin, ...]]:
    """The Program, and the origin of each of its kernels.

    `placements`: kernels placed before; new ones are added.
    """
    assembly = _Assembly(backend, tuned, placements, begin)
    program = Program(
        dims=graph.dims,
        requirements=graph.requirements,
        buffers=tuple(parts.buffers),
        table=tuple(parts.table),
        # Equal layers make equal kernels: each text is placed, compiled and loaded once, however
        # many launches it has.
        prologue=tuple(map(assembly.launch, parts.prologue)),
        launches=tuple(map(assembly.launch, parts.steps)),
        kernels=tuple(assembly.kernels),
        outputs=tuple(parts.outputs),
        swaps=tuple(parts.swaps),
    )
    return program, assembly.origins


@dataclass(slots=True)
class _Assembly:
    """A Program's kernels, numbered as launches ask for them."""

    backend: Backend
    tuned: Tuned
    known: Placements
    begin: Begin | None
    numbers: dict[str, int] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    names: list[tuple[str, str]] = field(default_factory=list)  # and the kernels' texts
    steps: list[list[KernelStep | CustomStep]] = field(default_factory=list)

    def launch(self, step: Step) -> Launch:
        if isinstance(step, LoopStep):
            return LoopLaunch(step.trips, tuple(map(self.launch, step.body)))
        if isinstance(step, CustomStep):
            return self._custom(step)
        if isinstance(step, CollectiveStep):
            return step.launch
        # A kernel is named by its text under the default schedule, so that what a search found out
        # about it holds wherever the same kernel occurs, in this program or another, whatever it is
        # tuned to now.
        placed = self._placed(step, ())
        loops = self._placed(NestStep(step.fused), ()) if isinstance(step, CallStep) else placed
        name = text_key(loops.text)
        if name in self.tuned:
            placed = self._tuned(step, self.tuned[name], placed)
        operands = tuple(step.fused.form.operands[k] for k in placed.operands)
        placed = placed.at(operands)
        if self.begin is not None and placed.text not in self.numbers:
            self.begin(placed.kernel, placed.text)
        kernel = self._number(placed.kernel, placed.text, name, placed.text, step)
        come = origins(step.fused)
        return replace(placed.launch, kernel=kernel, operands=operands, origins=come)

    def _custom(self, step: CustomStep) -> Launch:
        kernel = step.attrs.kernel
        placed = self.backend.schedules.place(step)
        text = to_text(placed.kernel)
        key = f"{text} {id(kernel)}"  # two functions may go by one name
        return KernelLaunch(
            self._number(placed.kernel, key, text_key(text), text, step),
            placed.operands, placed.params, placed.chunks,
            kernel.name, step.attrs.flops, bytes_of((*step.operands, *step.results)),
            step.origins,
        )  # fmt: skip

    def _tuned(self, step: KernelStep, knobs: Knobs, default: PlacedStep) -> PlacedStep:
        """The kernel under these knobs, or as it is where they are not legal: they may come from
        another kernel of the same text, or from another version of the compiler.
        """
        try:
            return self._placed(step, knobs)
        except KnobError:
            return default

    def _placed(self, step: KernelStep, knobs: Knobs) -> PlacedStep:
        key = (step.key, knobs)
        if key not in self.known:
            with tracing.span("place"):
                self.known[key] = PlacedStep.of(step, self.backend, knobs)
        return self.known[key]

    def _number(
        self, kernel: Kernel, key: str, name: str, text: str, step: KernelStep | CustomStep
    ) -> int:
        number = self.numbers.setdefault(key, len(self.kernels))
        if number == len(self.kernels):
            self.kernels.append(kernel)
            self.names.append((name, text))
            self.steps.append([])
        self.steps[number].append(step)
        return number

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The Origin of each kernel."""
        pairs = zip(self.names, self.steps, strict=True)
        return tuple(Origin(name, tuple(steps), text) for (name, text), steps in pairs)


def text_key(text: str) -> str:
    """The name of a kernel, or of anything with a canonical text, across processes."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
