"""What the rules of a schedule look at: the same for all schedules of a fused kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from luminal.algebra.terms import Term
from luminal.backends.cpu.schedule.lanes import Lanes
from luminal.backends.cpu.schedule.strips import Strips
from luminal.backends.cpu.schedule.vector_target import VectorTarget
from luminal.dtypes import DType
from luminal.kernel.cost import label
from luminal.kernel.fused import Fused
from luminal.kernel.loops import Access, LoopAxis, accesses, loop_axes
from luminal.kernel.neighbours import walked


@dataclass(frozen=True, slots=True)
class Facts:
    """A kernel's loop axes: `grid` outside every reduction, `sequential` of reductions, `inner` of
    stores inside the grid (`ordered`: those that run in row-major order); what it reads, sums, and
    computes at a point (`operations`).
    """

    fused: Fused
    target: VectorTarget
    label: str
    axes: tuple[LoopAxis, ...]
    accesses: list[Access]
    reductions: tuple[Term, ...]
    grid: tuple[LoopAxis, ...]
    sequential: tuple[LoopAxis, ...]
    inner: tuple[LoopAxis, ...]
    ordered: tuple[LoopAxis, ...]
    operations: int
    lanes: Lanes
    strips: Strips

    @classmethod
    def of(cls, fused: Fused, target: VectorTarget) -> Facts:
        axes, reductions = loop_axes(fused), fused.reductions
        reads = accesses(fused, axes)
        stored = {a for store in fused.stores for a in store.axes}
        ordered = {a for store in fused.stores for a in store.ordered}
        free = frozenset(stored - ordered)
        for reduction in reductions:
            free &= reduction.axes
        grid = tuple(x for x in axes if x.members[0] in free)
        along = walked(fused)
        sequential = tuple(x for x in axes if any(x.is_reduced(r, along) for r in reductions))
        summed = [r.dtype for r in reductions]
        made = [s.dtype for s in fused.stores]
        most, inside = (_lanes(target, dtypes) for dtypes in (made + summed, summed or made))
        if not all(r.monoid.is_exact(r.dtype) for r in reductions):
            inside = most  # lanes are parts of sums: other lanes, other bits
        return cls(
            fused,
            target,
            label(fused),
            axes,
            reads,
            reductions,
            grid,
            sequential,
            inner=tuple(x for x in axes if x.members[0] in stored - free),
            ordered=tuple(x for x in axes if x.members[0] in ordered),
            operations=max(1, len(fused.terms) - len(fused.reads)),
            lanes=Lanes(most, inside, grid, sequential),
            strips=Strips(fused, reads, grid, sequential, target),
        )

    def row_bytes(self) -> int:
        """About how many bytes of one operand a result of a contraction reads."""
        return prod(loop.estimate for loop in self.sequential) * self.reductions[0].dtype.size

    def is_read_once(self, access: Access) -> bool:
        """Is it a factor whose every element is loaded for a single multiplication?"""
        moved = (access.moves(x) or x.symbol in access.chosen for x in self.axes if x.estimate > 1)
        return access.is_factor and all(moved)


def _lanes(target: VectorTarget, dtypes: Sequence[DType]) -> int:
    return target.vector_lanes(max(4, min(8, max(dtype.size for dtype in dtypes))))
