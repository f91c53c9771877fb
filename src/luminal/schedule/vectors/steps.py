"""The schedules of vector CPUs, by kind of kernel: what can be chosen, and the placement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from luminal.base import config
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.kernel.cost import label
from luminal.kernel.custom import place_custom
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.knobs import Choices, Knobs
from luminal.kernel.place_cascade import place_cascade
from luminal.kernel.placement import place
from luminal.kernel.rows import place_scan, place_sort
from luminal.kernel.schedule import TileChoice
from luminal.kernel.tile_ir import Kernel
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
from luminal.schedule.vectors import nest
from luminal.schedule.vectors.cascade import cascade_blocks, cascade_space
from luminal.schedule.vectors.nest import schedule
from luminal.schedule.vectors.non_temporal import with_non_temporal_stores
from luminal.schedule.vectors.prefetch import with_prefetches
from luminal.schedule.vectors.space import space as nest_space
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.shape.expression import Expression

SORT_WORK = 16  # operations that sorting costs for each key of a row


@dataclass(frozen=True, slots=True)
class VectorSchedules:
    """The schedules of cores with vector registers and caches; `place_call` places a call of a
    library, where the backend has one.
    """

    target: VectorTarget
    place_call: Callable[[Fused, str], Placed] | None = None

    @property
    def begins_early(self) -> bool:
        """Workers meet between launches that need each other."""
        return False

    def share_launch(self, kernels: Sequence[Kernel], chunks: Sequence[Expression]) -> bool:
        """No: a team takes the chunks of a launch as soon as those of the one before are taken."""
        return False

    def place(self, step: KernelStep | CustomStep, knobs: Knobs = ()) -> Placed:
        """One kernel placed by the schedule that `knobs` make of the default. Raises KnobError for
        knobs that `space` does not offer and that make no schedule of this kernel.
        """
        placed = self._place(step, knobs)
        kernel = with_non_temporal_stores(placed.kernel, self.target)
        kernel = with_prefetches(kernel, self.target)
        placed = replace(placed, kernel=kernel)
        if config.get("LUMINAL_VERIFY"):
            verify(placed.kernel)
        return placed

    def space(self, step: KernelStep | CustomStep) -> tuple[Knobs, ...]:
        """The schedules of a kernel worth timing, () first."""
        match step:
            case NestStep(fused):
                return nest_space(fused, self.target)
            case CascadeStep(fused, cascade):
                return cascade_space(fused, cascade, self.target)
            case ScanStep() | SortStep() | CallStep() | CustomStep():
                return ((),)

    def _place(self, step: KernelStep | CustomStep, knobs: Knobs) -> Placed:
        match step:
            case NestStep(fused):
                return place(fused, schedule(fused, self.target, knobs))
            case CascadeStep(fused, cascade):
                blocks = cascade_blocks(fused, cascade, self.target, knobs)
                return place_cascade(fused, cascade, *blocks)
            case ScanStep(fused):
                Choices(label(fused), knobs).finish()
                width = self.target.vector_lanes(max(4, fused.stores[0].term.dtype.size))
                return place_scan(fused, TileChoice(1, width), nest.CHUNK_WORK)
            case SortStep(fused):
                Choices(label(fused), knobs).finish()
                return place_sort(fused, nest.CHUNK_WORK // SORT_WORK)
            case CallStep(fused, library):
                Choices(label(fused), knobs).finish()
                if self.place_call is None:
                    raise CompileError(f"{label(fused)}: this backend calls no {library}")
                return self.place_call(fused, library)
            case CustomStep(attrs, operands, results):
                Choices(attrs.kernel.name, knobs).finish()
                return place_custom(attrs, operands, results)
