"""Schedules for devices that run kernels by groups of lanes: the second set of choice points.

The first choice of a kernel is its group's size. Of one lane it is run as on a CPU of scalars; of
more, lanes share each chunk, and what they learn of each other goes through shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from luminal.base import config
from luminal.base.records import dataclass
from luminal.kernel import library_product
from luminal.kernel.barriers import exchanging, in_shared_memory, with_barriers
from luminal.kernel.cascade_fragments import ByFragments
from luminal.kernel.cost import label
from luminal.kernel.evaluate import Placed
from luminal.kernel.knobs import Choices, Knobs
from luminal.kernel.place_cascade import place_cascade
from luminal.kernel.placement import place
from luminal.kernel.product_blocks import place_blocks
from luminal.kernel.product_sides import sides_of
from luminal.kernel.product_tiling import ProductTiling
from luminal.kernel.rows import place_scan, place_sort
from luminal.kernel.schedule import SINGLE, Schedule
from luminal.kernel.tile_ir import Copy, Kernel, Loop, Space
from luminal.kernel.tile_verify import verify
from luminal.program.steps import (
    CallStep,
    CascadeStep,
    CustomStep,
    KernelStep,
    NestStep,
    ScanStep,
    SortStep,
)
from luminal.schedule.groups import cascades, nests, rows
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.products import ProductChoices
from luminal.schedule.vectors import cascade as scalar_cascades
from luminal.schedule.vectors import nest as scalar_nests
from luminal.schedule.vectors.facts import Facts
from luminal.schedule.vectors.space import COMBINED as SCALAR_COMBINED
from luminal.schedule.vectors.space import nearby
from luminal.schedule.vectors.steps import VectorSchedules
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.shape.expression import Expression

FOLD_BYTES = 16 << 10  # of shared memory that folds over lanes may take
FEW = 16  # groups a unit holds: more chunks than all hold leave none idle
MOST_BUFFERS = 24  # of a launch that several kernels share: all devices take so many arguments
COMBINED = ("dot", "blocks", "deep", "group", "along", "short")
"""Choices that may change which others are best."""

Step = NestStep | CascadeStep | ScanStep | SortStep
"""What groups may run."""
Made = (
    Schedule
    | ProductTiling
    | ByFragments
    | scalar_cascades.Plan
    | rows.ScanChoice
    | rows.SortChoice
    | None
)
"""All the choices of a kernel; None: there is but one way."""


@dataclass(frozen=True, slots=True)
class GroupSchedules:
    """The schedules of devices whose groups share their work; `target` is a machine of scalars.
    `algorithms`: how many a library has for a product.
    """

    target: VectorTarget
    groups: Groups
    algorithms: int = 1

    def place(self, step: KernelStep | CustomStep, knobs: Knobs = ()) -> Placed:
        """One kernel placed by the schedule that `knobs` make of the default."""
        if isinstance(step, CallStep):
            return library_product.place(step.fused, step.library, knobs, self.algorithms)
        if isinstance(step, CustomStep):
            return VectorSchedules(self.target).place(step, knobs)
        chosen, _ = self.explored(step, self.facts(step), knobs)
        by_blocks = isinstance(chosen, ProductTiling | ByFragments)  # which place barriers
        placed = _placed(step if by_blocks else _of_words(step), chosen)
        if not by_blocks:
            placed = replace(placed, kernel=self.by_groups(placed.kernel))
        if config.get("LUMINAL_VERIFY"):
            verify(placed.kernel)
        return placed

    def space(self, step: KernelStep | CustomStep) -> tuple[Knobs, ...]:
        """The schedules of a kernel worth timing, () first."""
        if isinstance(step, CallStep):
            return library_product.space(self.algorithms)
        if isinstance(step, CustomStep):
            return VectorSchedules(self.target).space(step)
        explore = partial(self.explored, step, self.facts(step))
        return nearby(explore, (*COMBINED, *SCALAR_COMBINED))

    def by_groups(self, kernel: Kernel) -> Kernel:
        """The kernel with what its lanes share in shared memory, if it fits, behind barriers, or
        exchanged.
        """
        most = self.groups.shared_bytes - FOLD_BYTES
        kernel = with_barriers(in_shared_memory(kernel, most))
        return exchanging(kernel, self.groups.subgroup)

    @property
    def begins_early(self) -> bool:
        """May a kernel begin while the one ahead of it still runs?"""
        return self.groups.begins_early

    # Where vectors are made of lanes, compilers take a loop for each barrier, and none in a branch
    # is worth a launch.
    def share_launch(self, kernels: Sequence[Kernel], chunks: Sequence[Expression]) -> bool:
        """Are all but one of few chunks, by groups of as many lanes, and is there room for what
        each shares? Kernels that multiply by fragments or in rings have registers of their own.
        """
        lanes = {kernel.lanes for kernel in kernels}
        if len(lanes) > 1 or lanes == {1} or not self.groups.meets_often:
            return False
        few = FEW * self.target.cores
        if sum(not count.interval.at_most(few) for count in chunks) > 1:
            return False
        buffers = [buffer for kernel in kernels for buffer in (*kernel.buffers, *kernel.scratch)]
        shared = [b for b in buffers if b.space is Space.SHARED]
        size = sum(b.size.constant * b.dtype.size for b in shared)
        if (
            len(buffers) - len(shared) > MOST_BUFFERS
            or size > self.groups.shared_bytes - FOLD_BYTES
        ):
            return False
        return not any(
            isinstance(statement, Copy) or (isinstance(statement, Loop) and statement.part)
            for kernel in kernels
            for statement in kernel.statements()
        )

    def facts(self, step: Step) -> Facts | None:
        """What the rules of a nest look at."""
        return Facts.of(step.fused.of_words, self.target) if isinstance(step, NestStep) else None

    def explored(self, step: Step, facts: Facts | None, knobs: Knobs) -> tuple[Made, Choices]:
        """What knobs make of a kernel, and what could have been chosen on the way."""
        choices = Choices(label(step.fused), knobs)
        tiling: ProductTiling | ByFragments | None = self.tiling(step, choices)
        if tiling is None and isinstance(step, CascadeStep) and self.groups.is_rule:
            tiling = cascades.fragments(step.fused, step.cascade, choices, self.groups, self.target)
        if tiling is not None:
            choices.finish()
            return tiling, choices
        step = _of_words(step)
        group = self.group(choices, step, facts)
        if group > 1 or (isinstance(step, SortStep) and rows.is_in_blocks(step.fused)):
            chosen = self.shared(step, facts, choices, group)
        else:
            chosen = self.alone(step, facts, choices)
        choices.finish()
        return chosen, choices

    def tiling(self, step: Step, choices: Choices) -> ProductTiling | None:
        """The blocks in which a kernel multiplies, if it does."""
        sides = sides_of(step.fused) if isinstance(step, NestStep) else None
        if sides is None:
            return None
        return ProductChoices(sides, self.target, self.groups).tiling(choices)

    def alone(self, step: Step, facts: Facts | None, choices: Choices) -> Made:
        """What is chosen for workers of one lane."""
        match step:
            case NestStep():
                assert facts is not None
                return scalar_nests.chosen(facts, choices)
            case CascadeStep(fused, cascade):
                return scalar_cascades.plan(fused, cascade, self.target, choices)
            case ScanStep() | SortStep():
                return None

    def shared(self, step: Step, facts: Facts | None, choices: Choices, group: int) -> Made:
        """What is chosen for groups of so many lanes."""
        match step:
            case NestStep():
                assert facts is not None
                return nests.chosen(facts, choices, group, in_vectors=self.groups.in_vectors)
            case CascadeStep(fused, cascade):
                return "steps", cascades.blocks(fused, cascade, choices, self.groups, group)
            case ScanStep():
                units = self.target.cores if self.groups.meets_often else None
                return rows.scan(step.fused, choices, group, units)
            case SortStep():
                return rows.sort(step.fused, choices, group)

    # On CPUs Intel's OpenCL compiler makes a vector of a group's lanes, and a loop around them for
    # each barrier. So what meets at many barriers (a sort, a scan along rows, one query) is faster
    # by workers there, and by groups on GPUs alone.
    def pays(self, step: Step) -> bool:
        """Do groups pay by rule? Lanes that share a sort, a scan along a row, or the steps of a few
        positions of a cascade, meet often.
        """
        match step:
            case NestStep():
                return True
            case CascadeStep():
                return self.groups.meets_often or not cascades.is_narrow(step.cascade)
            case ScanStep(fused):
                return self.groups.meets_often or not rows.is_along_rows(fused)
            case SortStep(fused):
                return self.groups.meets_often or rows.is_in_blocks(fused)

    def group(self, choices: Choices, step: Step, facts: Facts | None) -> int:
        """The lanes of a group; 1: every worker is alone."""
        usual = self.groups.lanes
        can_share = facts is None or nests.can_share(facts)
        sizes = [usual, 2 * usual, usual // 2, 4 * usual, usual // 4] if can_share else []
        sizes = [n for n in sizes if 1 < n <= self.groups.most]
        if not (self.groups.is_rule and self.pays(step) and sizes):
            return choices.pick("group", 1, sizes)
        rule = usual
        if isinstance(step, SortStep) and rows.is_long(step.fused, max(sizes)):
            rule = max(sizes)
        elif facts is not None and not self.groups.in_vectors:
            rule = nests.busy_lanes(facts, usual, sizes)
        return choices.pick("group", rule, [*sizes, 1])


def _of_words(step: Step) -> Step:
    """The step without the dots that only products in blocks are computed by."""
    fused = step.fused.of_words
    return step if fused is step.fused else replace(step, fused=fused)


def _placed(step: Step, chosen: Made) -> Placed:
    match chosen:
        case Schedule():
            return place(step.fused, chosen)
        case ByFragments():
            return chosen.place()
        case ProductTiling():
            return place_blocks(step.fused, chosen)
        case rows.ScanChoice() | rows.SortChoice():
            return chosen.place(step.fused)
        case None:
            if isinstance(step, ScanStep):
                return place_scan(step.fused, SINGLE, rows.CHUNK)
            return place_sort(step.fused, rows.CHUNK)
        case _:
            assert isinstance(step, CascadeStep)
            return place_cascade(step.fused, step.cascade, *chosen)
