"""What the rules of a schedule look at: the same for all schedules of a fused kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from luminal.algebra.terms import Reduction
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.kernel.cost import label
from luminal.kernel.fused import Fused
from luminal.kernel.loops import SHORT_STEP, Access, LoopAxis, accesses, loop_axes
from luminal.kernel.neighbours import copied, walked
from luminal.kernel.reductions import WRITTEN_OUT
from luminal.schedule.vectors.lanes import Lanes
from luminal.schedule.vectors.strips import Strips
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.shape.expression import Symbol

NARROW = 4  # bytes: what is that wide has as many lanes as positions and masks have


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
    reductions: tuple[Reduction, ...]
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
            if not is_repeated(reduction, reductions):
                free &= reduction.axes
        in_words = copied(fused)
        words = {in_words[0]} if in_words is not None else set[Symbol]()
        # A sum by words has loops of its own, beside those of stores along the same axis.
        walks = [x for x in axes if (x.neighbours > 1) == (x.members[-1] in words)]
        grid = tuple(x for x in walks if x.members[0] in free)
        along = walked(fused)
        sequential = tuple(x for x in axes if any(x.is_reduced(r, along) for r in reductions))
        summed = [r.dtype for r in reductions]
        stored_dtypes = [s.dtype for s in fused.stores]
        most, inside = (
            _lanes(target, dtypes) for dtypes in (stored_dtypes + summed, summed or stored_dtypes)
        )
        if not all(r.monoid.is_exact(r.dtype) for r in reductions):
            inside = most  # lanes are parts of sums: other lanes, other bits
        elif reductions and max(t.dtype.size for t in fused.terms) < NARROW:
            inside = target.vector_lanes(max(t.dtype.size for t in fused.terms))
        return cls(
            fused,
            target,
            label(fused),
            axes,
            reads,
            reductions,
            grid,
            sequential,
            inner=tuple(x for x in walks if x.members[0] in stored - free),
            ordered=tuple(x for x in walks if x.members[0] in ordered),
            operations=max(1, len(fused.terms) - len(fused.reads)),
            lanes=Lanes(most, inside, grid, sequential),
            strips=Strips(fused, reads, grid, sequential, target),
        )

    @property
    def nests(self) -> list[frozenset[LoopAxis]]:
        """The loop axes inside the grid that run inside each other: those of a reduction, also the
        ones along which it has results, and those of a store.
        """
        along = walked(self.fused)
        loops = dict.fromkeys((*self.sequential, *self.inner))
        nests = [
            frozenset(x for x in loops if x.is_reduced(r, along) or x.members[0] in r.axes)
            for r in self.reductions
        ]
        for store in self.fused.stores:
            nests.append(frozenset(x for x in self.inner if x.members[0] in store.axes))
        return nests

    def row_bytes(self) -> int:
        """About how many bytes of one operand a result of a contraction reads."""
        return prod(loop.estimate for loop in self.sequential) * self.reductions[0].dtype.size

    def kept(self, vector: LoopAxis, rows: LoopAxis) -> int:
        """Registers of factors that are the same all over a tile, as the window of a depthwise
        convolution: one for each position that is summed, where all of these are written out and
        leave most registers to sums. Else they are read anew.
        """
        steps = prod(loop.estimate for loop in self.sequential)
        factors = [a for a in self.accesses if a.is_factor]
        same = [a for a in factors if not (a.moves(vector) or a.moves(rows))]
        held = len(same) * steps
        return held if steps <= WRITTEN_OUT and 3 * held < self.target.registers else 0

    def step(self, vector: LoopAxis, rows: LoopAxis) -> int:
        """How many rows of memory a window moves by from one row of results to the next; 0 where
        the rows of a tile, of a product of matrices, are elements of the same lines.
        """
        factors = [a for a in self.accesses if a.is_factor]
        apart = [abs(a.stride(rows) or 0) * a.bytes for a in factors if a.moves(rows)]
        within = (0 < distance < self.target.line_bytes // 2 for distance in apart)
        if len(self.sequential) == 1 and all(within):
            return 0
        steps = [1]
        for access in factors:
            if access.moves(vector):
                far = abs(access.stride(rows) or 0)
                near = (abs(access.stride(loop) or 0) for loop in self.sequential)
                # Columns of a picture whose channels are last lie apart as well: rows do farthest.
                steps += sorted(far // n for n in near if n > SHORT_STEP and far % n == 0)[:1]
        return max(steps)

    def is_read_once(self, access: Access) -> bool:
        """Is it a factor whose every element is loaded for a single multiplication?"""
        moved = (access.moves(x) or x.symbol in access.chosen for x in self.axes if x.estimate > 1)
        return access.is_factor and all(moved)


def is_repeated(reduction: Reduction, reductions: Iterable[Reduction]) -> bool:
    """Is it computed again for results of another one along the same axes, as a norm is in the
    kernel of a product?
    """
    return any(r.attrs == reduction.attrs and reduction.axes < r.axes for r in reductions)


def _lanes(target: VectorTarget, dtypes: Sequence[DType]) -> int:
    return target.vector_lanes(max(4, min(8, max(dtype.size for dtype in dtypes))))
