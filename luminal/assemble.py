"""A Partition becomes a Program: every kernel placed by its schedule, equal kernels once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from luminal import config, tracing
from luminal.codegen.llvm_product import gemm
from luminal.hlir.graph import Graph
from luminal.kernel.cost import bytes_moved, flops, label
from luminal.kernel.custom import bytes_of, place_custom
from luminal.kernel.evaluate import Placed
from luminal.kernel.group import Group
from luminal.kernel.knobs import Choices, KnobError, Knobs
from luminal.kernel.opaque import is_opaque, place_opaque
from luminal.kernel.pairs import paired
from luminal.kernel.place_cascade import cascade_of, cascade_space, place_cascade
from luminal.kernel.placement import place
from luminal.kernel.product import BLAS, CALLED, place_product, product_of
from luminal.kernel.schedule import schedule
from luminal.kernel.space import space
from luminal.kernel.tile_ir import Kernel, to_text
from luminal.kernel.tile_verify import verify
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Program
from luminal.program.steps import CustomStep, KernelStep, LoopStep, Partition, Step
from luminal.target import Target

Tuned = Mapping[str, Knobs]
"""Knobs by `text_key` of the kernel that the default schedule makes."""

UNTUNED: Tuned = {}

Begin = Callable[[Kernel, str], None]
"""Told of each kernel as soon as it is placed, with its text: it may be compiled meanwhile."""


class Origin(NamedTuple):
    """Where a kernel of a Program is from: the name that it has under the default schedule (as in
    Tuned), a step that it was placed for, and its text.
    """

    name: str
    step: KernelStep | CustomStep
    text: str


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A kernel with its text, and its launch but for its number and the operands, which are
    numbered as in the group's Form.
    """

    kernel: Kernel
    text: str
    launch: KernelLaunch
    operands: tuple[int, ...]

    @classmethod
    def of(cls, step: KernelStep, target: Target, knobs: Knobs) -> PlacedStep:
        """Places one kernel."""
        group, placed = step.group, place_step(step, target, knobs)
        operands = tuple(map(group.form.operands.index, placed.operands))
        launch = KernelLaunch(
            0, (), placed.params, placed.chunks,
            label(group), flops(group), bytes_moved(group),
        )  # fmt: skip
        return cls(placed.kernel, to_text(placed.kernel), launch, operands)


Placements = dict[tuple[Hashable, Knobs], PlacedStep]
"""By the key of a group's Form, and knobs."""


def assemble(
    graph: Graph,
    parts: Partition,
    target: Target,
    tuned: Tuned,
    known: Placements,
    begin: Begin | None = None,
) -> tuple[Program, tuple[Origin, ...]]:
    """The Program, and the origin of each of its kernels.

    `known`: kernels placed before; new ones are added.
    """
    made = _Assembly(target, tuned, known, begin)
    program = Program(
        dims=graph.dims,
        requirements=graph.requirements,
        buffers=tuple(parts.buffers),
        table=tuple(parts.table),
        prologue=tuple(made.launch(step) for step in parts.steps if _is_early(step)),
        launches=tuple(made.launch(step) for step in parts.steps if not _is_early(step)),
        kernels=tuple(made.kernels),
        outputs=tuple(parts.outputs),
        swaps=tuple(parts.swaps),
    )
    return program, tuple(made.origins)


@dataclass(slots=True)
class _Assembly:
    """A Program's kernels, numbered as launches ask for them."""

    target: Target
    tuned: Tuned
    known: Placements
    begin: Begin | None
    numbers: dict[str, int] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)

    def launch(self, step: Step) -> Launch:
        if isinstance(step, LoopStep):
            return LoopLaunch(step.trips, tuple(map(self.launch, step.body)))
        if isinstance(step, CustomStep):
            return self._custom(step)
        made = self._placed(step, ())
        key = text_key(made.text)
        if key in self.tuned:
            made = self._tuned(step, self.tuned[key], made)
        origin = Origin(key, step, made.text)
        if self.begin is not None and made.text not in self.numbers:
            self.begin(made.kernel, made.text)
        operands = tuple(step.group.form.operands[k] for k in made.operands)
        kernel = self._number(made.kernel, made.text, origin)
        return replace(made.launch, kernel=kernel, operands=operands)

    def _custom(self, step: CustomStep) -> Launch:
        kernel = step.attrs.kernel
        placed = place_custom(step.attrs, step.operands, step.results)
        text = to_text(placed.kernel)
        name = f"{text} {id(kernel)}"  # two functions may go by one name
        return KernelLaunch(
            self._number(placed.kernel, name, Origin(text_key(text), step, text)),
            placed.operands, placed.params, placed.chunks,
            kernel.name, step.attrs.flops, bytes_of((*step.operands, *step.results)),
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
        key = (step.group.form.key, knobs)
        if key not in self.known:
            with tracing.span("place"):
                self.known[key] = PlacedStep.of(step, self.target, knobs)
        return self.known[key]

    def _number(self, kernel: Kernel, name: str, origin: Origin) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.kernels)
            self.kernels.append(kernel)
            self.origins.append(origin)
        return self.numbers[name]


def _is_early(step: Step) -> bool:
    return not isinstance(step, CustomStep) and step.early


def text_key(text: str) -> str:
    """The name of a kernel, or of anything with a canonical text, across processes."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def place_step(step: KernelStep, target: Target, knobs: Knobs = ()) -> Placed:
    """One kernel placed by the schedule that `knobs` make of the default. Raises KnobError for
    knobs that `knob_space` does not offer and that make no schedule of this kernel.
    """
    group = paired(step.group)
    cascade = cascade_of(group)
    if cascade is not None:
        placed = place_cascade(group, cascade, target, knobs)
    elif is_opaque(group):
        Choices(label(group), knobs).finish()
        placed = place_opaque(group, target)
    elif knobs == CALLED:
        placed = _place_call(group, target)
    else:
        placed = place(group, schedule(group, target, knobs))
    if config.get("LUMINAL_VERIFY"):
        verify(placed.kernel)
    return placed


def knob_space(step: KernelStep | CustomStep, target: Target) -> tuple[Knobs, ...]:
    """The schedules of a kernel worth timing, () first."""
    if isinstance(step, CustomStep):
        return ((),)
    group = paired(step.group)
    cascade = cascade_of(group)
    if cascade is not None:
        return cascade_space(group, cascade, target)
    if is_opaque(group):
        return ((),)
    default, *others = space(group, target)
    return (default, *([CALLED] if is_call(step, target) else []), *others)


def is_call(step: KernelStep | CustomStep, target: Target) -> bool:
    """May a library compute the kernel? That depends on layouts, which its text need not show."""
    if isinstance(step, CustomStep) or BLAS not in target.libraries:
        return False
    return product_of(paired(step.group)) is not None


def _place_call(group: Group, target: Target) -> Placed:
    """A product of matrices that a library computes. Raises KnobError where that cannot be."""
    product = product_of(group)
    if product is None or BLAS not in target.libraries:
        why = "it is no plain product" if product is None else "the library is not installed"
        raise KnobError(f"{label(group)}: knob call={BLAS} is not legal: {why}; leave it out")
    return place_product(product, gemm(product.c.dtype, product.turned))
