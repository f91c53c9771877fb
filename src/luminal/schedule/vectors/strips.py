"""Strips: what of a contraction may be copied next to where it is used, and whether that pays."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from luminal.algebra.terms import Term, below
from luminal.base.records import dataclass
from luminal.kernel.fused import Fused
from luminal.kernel.guards import factors
from luminal.kernel.loops import Access, LoopAxis
from luminal.schedule.vectors.vector_target import VectorTarget
from luminal.shape.expression import Symbol

PACK_ROWS = 32  # fewer rows than this do not pay for packing
MASKED_ROWS = 128  # so many rows pay for packing what is read in masked vectors
MASKS = {"Select", "Index", "Literal"}
FAR_ROWS = 256  # and so many for what is only spread over many pages,
FEWER = 4  # a part of these where steps of tiles are short: they are done before a page is found
PAGES = 192  # three times as many as a core finds at once: fewer are found soon enough,
PAGE_BYTES = 4096
L1_WAYS = L2_WAYS = 8  # lines of one set of a cache


@dataclass(frozen=True, slots=True)
class Strips:
    """Judges the factors of a kernel's products; `sequential` are the reduced axes, `grid` those
    outside of all reductions.
    """

    fused: Fused
    accesses: Sequence[Access]
    grid: Sequence[LoopAxis]
    sequential: Sequence[LoopAxis]
    target: VectorTarget

    def factors(self, columns: LoopAxis, rows: LoopAxis) -> tuple[Term, ...]:
        """The factors shared by the rows that do not lie in panels."""
        in_panels = {a.source for a in self.accesses if a.panel(columns)}
        shared = self.shared(columns, rows)
        return tuple(f for f in shared if in_panels.isdisjoint(self.terms(f)))

    def shared(self, columns: LoopAxis, rows: LoopAxis) -> tuple[Term, ...]:
        """The factors that depend on the columns and not on the rows, but perhaps by keys."""
        factors_shared: list[Term] = []
        for reduction in self.fused.reductions:
            (product,) = reduction.args
            if product.op != "Mul" or product in self.fused.reads:
                continue
            for factor in factors(product, self.fused.reads.__contains__)[1]:
                reads_it = not factor.axes.isdisjoint(columns.members)
                bound = not factor.axes.isdisjoint(reduction.attrs)
                if reads_it and bound and self.keys(factor, columns, rows) is not None:
                    factors_shared.append(factor)
        return tuple(dict.fromkeys(factors_shared))

    def keys(self, factor: Term, columns: LoopAxis, rows: LoopAxis) -> tuple[Term, ...] | None:
        """What a factor depends on of the rows: integers read for each row, if that is all. While
        they stay the same from row to row, a strip of the factor serves all of these.
        """
        keys: dict[Term, None] = {}
        row_axes = set(rows.members)
        stack = [(factor, {a for x in (*self.sequential, columns) for a in x.members})]
        while stack:
            term, outside = stack.pop()
            if row_axes.isdisjoint(term.axes):
                continue
            if term in self.fused.reads:
                if term.dtype.is_float or not outside.isdisjoint(term.axes):
                    return None
                keys[term] = None
            elif term.op == "At":
                moved = {a for a, _ in term.attrs}
                direct = (at for _, at in term.attrs if not isinstance(at, int))
                if moved & row_axes or any(row_axes & at.symbols() for at in direct):
                    return None
                operand, *chosen = term.args
                stack.append((operand, outside | moved))
                stack += [(arg, outside) for arg in chosen]
            elif term.is_pointwise:
                stack += [(arg, outside) for arg in term.args]
            else:
                return None
        return tuple(keys)

    def in_runs(self, columns: LoopAxis, rows: LoopAxis) -> tuple[Term, ...]:
        """The keys of all shared factors."""
        keys = (self.keys(factor, columns, rows) for factor in self.shared(columns, rows))
        return tuple(dict.fromkeys(key for each_factor in keys for key in each_factor or ()))

    # A square of words is transposed in registers, half a cycle a word, by zips within 16 bytes and
    # exchanges of whole blocks. Shuffles across a register would need constants that say how; LLVM
    # keeps those in registers through the loop that multiplies, and the sums go to the stack.
    def transposed(
        self, packs: Sequence[Term], columns: LoopAxis, lanes: int
    ) -> tuple[Symbol, int] | None:
        """A reduced axis for transposed packing: factors lie side by side along it that jump from
        column to column. As many positions of it as lanes are transposed together.
        """
        packed = {term for factor in packs for term in self.terms(factor)}
        for access in self.accesses:
            if access.source in packed and access.stride(columns) not in (0, 1):
                for loop in self.sequential:
                    if access.stride(loop) == 1 and loop.estimate >= lanes:
                        return loop.symbol, lanes
        return None

    @property
    def are_masked(self) -> bool:
        """Are there sums of products that count where a condition holds only?"""
        is_read = self.fused.reads.__contains__
        products = [r.args[0] for r in self.fused.reductions if r.args[0].op == "Mul"]
        return any(not is_read(p) and factors(p, is_read)[0] is not None for p in products)

    # Packing costs 24 cycles a vector where it comes from far. In place a strip's lines are read
    # again for each tile of rows, which is free while they stay in a cache: so it pays only where
    # they do not (few sets, many pages), or where reading is no plain load (gathers, masks).
    def pay(self, columns: LoopAxis, rows: LoopAxis) -> bool:
        """Are there rows enough, and would factors read where they lie be slow?"""
        for factor in self.factors(columns, rows):
            users = prod(x.estimate for x in (rows, *self.free((factor,), (columns, rows))))
            if users < PACK_ROWS:
                continue
            if self.keys(factor, columns, rows):
                return True
            terms = self.terms(factor)
            if any(self.is_joined(access) for access in self.accesses if access.source in terms):
                return True
            computed = self.computed(factor) - ({"Cast"} if self.is_word(factor) else set())
            if computed - MASKS or (computed and users >= MASKED_ROWS):
                return True
            accesses = [access for access in self.accesses if access.source in terms]
            if any(self.is_scattered(access, columns) for access in accesses):
                return True
            if self.target.has_long_steps:
                away, least = any(map(self.is_far, accesses)), FAR_ROWS
            else:
                away = any(self.is_far(read) or self.is_crowded(read) for read in accesses)
                least = FAR_ROWS // FEWER
            if away and users >= least:
                return True
        return False

    def is_word(self, factor: Term) -> bool:
        """Is it read as a dot takes it, in memory's dtype?"""
        users = (r for r in self.fused.reductions if factor in r.args[0].args)
        return all(r in self.fused.dots for r in users)

    def is_joined(self, access: Access) -> bool:
        """Does a dot take neighbours that lie apart?"""
        return access.reduction in self.fused.dots and access.neighbours == 1

    def joined(self, columns: LoopAxis) -> int:
        """How many neighbours that lie apart a vector of columns is joined of, each a load."""
        reads = (a for a in self.accesses if self.is_joined(a) and a.moves(columns))
        return max((self.fused.dots[a.reduction].k for a in reads if a.reduction), default=1)

    def are_others_contiguous(self, columns: LoopAxis, rows: LoopAxis) -> bool:
        """Does what is not packed lie side by side along the columns?"""
        packed = {t for factor in self.factors(columns, rows) for t in self.terms(factor)}
        reads = (a for a in self.accesses if a.reduction is not None and a.source not in packed)
        return all(access.stride(columns) in (0, 1) for access in reads)

    def are_others_computed(self, packs: Sequence[Term]) -> bool:
        """Is a factor computed (decoded of a packed weight, say) that these are not?"""
        for reduction in self.fused.reductions:
            (product,) = reduction.args
            if product.op != "Mul" or product in self.fused.reads:
                continue
            for factor in factors(product, self.fused.reads.__contains__)[1]:
                if factor not in packs and self.computed(factor) - MASKS - {"Cast"}:
                    return True
        return False

    def computed(self, factor: Term) -> set[str]:
        """The operations that make a factor of what is read, but for other names of its axes."""
        return {t.op for t in self.terms(factor) if t not in self.fused.reads} - {"At"}

    def free(self, factors: Sequence[Term], pair: Sequence[LoopAxis]) -> list[LoopAxis]:
        """The other axes of the grid that these factors do not depend on: strips serve them all."""
        bound = {a for factor in factors for a in factor.axes}
        return [x for x in self.grid if x not in pair and bound.isdisjoint(x.members)]

    def is_scattered(self, access: Access, columns: LoopAxis) -> bool:
        """Are its columns no vectors, or do its lines meet in few sets of the L2 cache?"""
        return access.stride(columns) not in (0, 1) or self.is_colliding(access)

    def is_far(self, access: Access) -> bool:
        """Is each line of a column, of a product of matrices, far from the next one?"""
        if len(self.sequential) > 1:
            return False
        (loop,) = self.sequential
        step = (access.stride(loop) or 0) * access.bytes
        return step > self.target.line_bytes and step * loop.estimate > PAGES * PAGE_BYTES

    def is_crowded(self, access: Access) -> bool:
        """Do so many lines of a column, of a product of matrices, meet in sets of the first-level
        cache that they do not stay there from one tile of rows to the next? What a short step of
        a tile waits for then is not hidden.
        """
        if len(self.sequential) > 1:
            return False
        (loop,) = self.sequential
        step, line = (access.stride(loop) or 0) * access.bytes, self.target.line_bytes
        way = self.target.l1_bytes // L1_WAYS
        return step > line and loop.estimate > L1_WAYS * (way // max(gcd(step, way), line))

    def have_collisions(self, columns: LoopAxis) -> bool:
        """Do lines that hold several columns meet in few sets of the L2 cache?"""
        return any(a.stride(columns) == 1 and self.is_colliding(a) for a in self.accesses)

    def is_colliding(self, access: Access) -> bool:
        """Do the lines of one column meet in few sets of the L2 cache?"""
        way = self.target.l2_bytes // L2_WAYS
        for loop in filter(access.moves, self.sequential):
            stride = access.stride(loop)
            step = gcd((stride or 0) * access.bytes, way)
            if loop.estimate > L2_WAYS * (way // step):
                return True
        return False

    def terms(self, factor: Term) -> dict[Term, None]:
        return below((factor,), self.fused.reads.__contains__)
