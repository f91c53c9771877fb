"""The compiler: HLIR to a Program, one pure step after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from luminal import config, trace
from luminal.algebra.lower import Lowered, lower
from luminal.codegen.llvm_product import gemm
from luminal.errors import CompileError
from luminal.hlir import verify as hlir_verify
from luminal.hlir.graph import Graph
from luminal.hlir.roll import roll
from luminal.kernel.cost import bytes_moved, flops, label
from luminal.kernel.custom import bytes_of, place_custom
from luminal.kernel.evaluate import Placed
from luminal.kernel.group import Group
from luminal.kernel.knobs import Choices, Knobs
from luminal.kernel.opaque import is_opaque, place_opaque
from luminal.kernel.pairs import paired
from luminal.kernel.place_cascade import cascade_of, cascade_space, place_cascade
from luminal.kernel.placement import place
from luminal.kernel.product import BLAS, CALLED, place_product, product_of
from luminal.kernel.schedule import schedule
from luminal.kernel.space import space
from luminal.kernel.tile_ir import Kernel, to_text
from luminal.kernel.tile_verify import verify as verify_kernel
from luminal.program import selection as selections
from luminal.program import selection_text
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Program
from luminal.program.partition import partition
from luminal.program.selection import Selection
from luminal.program.steps import CustomStep, KernelStep, LoopStep, Partition, Step
from luminal.select import fast, layouts
from luminal.target import Target

Tuned = Mapping[str, Knobs]
"""Knobs by `text_key` of the kernel that the default schedule makes."""

UNTUNED: Tuned = {}


class Origin(NamedTuple):
    """Where a kernel of a Program is from: the name that it has under the default schedule (as in
    Tuned), a step that it was placed for, and its text.
    """

    name: str
    step: KernelStep | CustomStep
    text: str


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A kernel with its text, and its launch but for the kernel's number."""

    kernel: Kernel
    text: str
    launch: KernelLaunch

    @classmethod
    def of(cls, step: KernelStep, target: Target, knobs: Knobs) -> PlacedStep:
        """Places one kernel."""
        group, placed = step.group, place_step(step, target, knobs)
        launch = KernelLaunch(
            0, placed.operands, placed.params, placed.chunks,
            label(group), flops(group), bytes_moved(group),
        )  # fmt: skip
        return cls(placed.kernel, to_text(placed.kernel), launch)


Placements = dict[tuple[int, Knobs], PlacedStep]
"""By the identity of a step's group, which the Partition keeps alive, and knobs."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Every IR of one compile, in order; the Program is what a backend runs.

    `origins` has one for each kernel of the Program. `placed` are the kernels placed so far.
    """

    graph: Graph
    lowered: Lowered
    selection: Selection
    partition: Partition
    program: Program
    origins: tuple[Origin, ...]
    placed: Placements


def lower_to_program(graph: Graph, target: Target, numerics: str = "standard") -> Program:
    """The program of `fast` for a graph; `numerics` as in `luminal.compile`."""
    return lower_by_stages(graph, target, numerics).program


def lower_by_stages(graph: Graph, target: Target, numerics: str = "standard") -> Stages:
    """HLIR to a Program by `fast`. Every step takes one IR and gives the next."""
    graph, lowered = lower_to_algebra(graph)
    with trace.span("select"):
        selection = layouts.by_rule(fast.select(lowered, numerics), target, numerics)
    return finish(graph, lowered, selection, target)


def lower_to_algebra(graph: Graph) -> tuple[Graph, Lowered]:
    """The steps that no choice enters: the graph as it will run, and its terms."""
    if config.get("LUMINAL_VERIFY"):
        hlir_verify.verify(graph)
    with trace.span("roll"):
        graph = roll(graph)
    if config.get("LUMINAL_VERIFY"):
        hlir_verify.verify(graph)
    with trace.span("lower"):
        return graph, lower(graph)


def finish(
    graph: Graph, lowered: Lowered, selection: Selection, target: Target, tuned: Tuned = UNTUNED
) -> Stages:
    """A Selection to its Program; `tuned` holds the schedules that differ from the defaults."""
    if config.get("LUMINAL_VERIFY"):
        selections.verify(selection)
    if config.get("LUMINAL_DEBUG") >= 3:
        trace.debug(3, selection_text.to_text(selection))
    with trace.span("partition"):
        parts = partition(graph, selection)
    placed: Placements = {}
    program, origins = assemble(graph, parts, target, tuned, placed)
    return Stages(graph, lowered, selection, parts, program, origins, placed)


def reschedule(stages: Stages, target: Target, tuned: Tuned) -> Stages:
    """The same Selection with other schedules."""
    program, origins = assemble(stages.graph, stages.partition, target, tuned, stages.placed)
    return replace(stages, program=program, origins=origins)


def assemble(
    graph: Graph, parts: Partition, target: Target, tuned: Tuned, known: Placements
) -> tuple[Program, tuple[Origin, ...]]:
    """Places every kernel of a partition, equal kernels once; the Program and its `origins`.

    `known`: kernels placed before; new ones are added.
    """
    numbers: dict[str, int] = {}
    kernels: list[Kernel] = []
    origins: list[Origin] = []

    def number(kernel: Kernel, name: str, origin: Origin) -> int:
        if name not in numbers:
            numbers[name] = len(kernels)
            kernels.append(kernel)
            origins.append(origin)
        return numbers[name]

    def launch(step: Step) -> Launch:
        if isinstance(step, LoopStep):
            return LoopLaunch(step.trips, tuple(map(launch, step.body)))
        if isinstance(step, CustomStep):
            return launch_custom(step)
        made = place_known(step, ())
        key = text_key(made.text)
        if key in tuned:
            made = place_known(step, tuned[key])
        origin = Origin(key, step, made.text)
        return replace(made.launch, kernel=number(made.kernel, made.text, origin))

    def place_known(step: KernelStep, knobs: Knobs) -> PlacedStep:
        found = known.get((id(step.group), knobs))
        if found is None:
            with trace.span("place"):
                found = known[id(step.group), knobs] = PlacedStep.of(step, target, knobs)
        return found

    def launch_custom(step: CustomStep) -> Launch:
        kernel = step.attrs.kernel
        placed = place_custom(step.attrs, step.operands, step.results)
        text = to_text(placed.kernel)
        name = f"{text} {id(kernel)}"  # two functions may go by one name
        return KernelLaunch(
            number(placed.kernel, name, Origin(text_key(text), step, text)),
            placed.operands, placed.params, placed.chunks,
            kernel.name, step.attrs.flops, bytes_of((*step.operands, *step.results)),
        )  # fmt: skip

    prologue = tuple(launch(s) for s in parts.steps if _is_early(s))
    launches = tuple(launch(s) for s in parts.steps if not _is_early(s))
    program = Program(
        graph.dims,
        graph.requirements,
        tuple(parts.buffers),
        tuple(parts.table),
        tuple(kernels),
        prologue,
        launches,
        tuple(parts.outputs),
        tuple(parts.swaps),
    )
    return program, tuple(origins)


def _is_early(step: Step) -> bool:
    return not isinstance(step, CustomStep) and step.early


def text_key(text: str) -> str:
    """The name of a kernel, or of anything with a canonical text, across processes."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def place_step(step: KernelStep, target: Target, knobs: Knobs = ()) -> Placed:
    """One kernel placed by the schedule that `knobs` make of the default."""
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
        verify_kernel(placed.kernel)
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
    calls = BLAS in target.libraries and product_of(group) is not None
    return (default, *([CALLED] if calls else []), *others)


def _place_call(group: Group, target: Target) -> Placed:
    """A product of matrices that a library computes. Raises CompileError where that cannot be."""
    product = product_of(group)
    if product is None or BLAS not in target.libraries:
        why = "it is no plain product" if product is None else "the library is not installed"
        raise CompileError(f"{label(group)}: knob call={BLAS} is not legal: {why}; leave it out")
    return place_product(product, gemm(product.c.dtype, product.turned))
