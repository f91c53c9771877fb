"""The schedules of vector CPUs, by kind of kernel: what can be chosen, and the placement."""

from __future__ import annotations

from dataclasses import replace

from luminal import config
from luminal.backends.cpu.product import place_product, product_of
from luminal.backends.cpu.schedule import nest
from luminal.backends.cpu.schedule.cascade import cascade_blocks, cascade_space
from luminal.backends.cpu.schedule.fetched import fetched
from luminal.backends.cpu.schedule.nest import schedule
from luminal.backends.cpu.schedule.space import space as nest_space
from luminal.backends.cpu.schedule.streamed import streamed
from luminal.backends.cpu.schedule.vector_target import VectorTarget
from luminal.codegen.llvm_product import gemm
from luminal.errors import CompileError
from luminal.kernel.cost import label
from luminal.kernel.custom import place_custom
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.knobs import Choices, Knobs
from luminal.kernel.place_cascade import place_cascade
from luminal.kernel.placement import place
from luminal.kernel.rows import place_scan, place_sort
from luminal.kernel.schedule import TileChoice
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
from luminal.records import dataclass

SORT_WORK = 16  # operations that sorting costs for each key of a row


@dataclass(frozen=True, slots=True)
class VectorSchedules:
    """Those for cores with vector registers and caches."""

    target: VectorTarget

    def place(self, step: KernelStep | CustomStep, knobs: Knobs = ()) -> Placed:
        """One kernel placed by the schedule that `knobs` make of the default. Raises KnobError for
        knobs that `space` does not offer and that make no schedule of this kernel.
        """
        placed = self._place(step, knobs)
        kernel = fetched(streamed(placed.kernel, self.target), self.target)
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
                return _place_call(fused, library)
            case CustomStep(attrs, operands, results):
                Choices(attrs.kernel.name, knobs).finish()
                return place_custom(attrs, operands, results)


def _place_call(fused: Fused, library: str) -> Placed:
    product = product_of(fused)
    if product is None:
        raise CompileError(f"{label(fused)}: no call of {library}: it is no plain product")
    return place_product(product, gemm(product.c.dtype, product.turned))
