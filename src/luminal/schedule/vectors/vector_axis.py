"""Which axis of a kernel its vectors lie along, and which strips make one contiguous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from luminal.kernel.knobs import Choices
from luminal.kernel.loops import Access, LoopAxis
from luminal.kernel.schedule import TileChoice
from luminal.schedule.vectors.facts import Facts
from luminal.schedule.vectors.lanes import FULL, is_partly_moved
from luminal.schedule.vectors.vector_target import IDLE
from luminal.shape.expression import Symbol

ALIASING_BYTES = 2048  # rows this long may meet in few cache sets, so dot products pack them
LONG_SUM = 256  # steps of a sum beside which stores across the lanes cost little
TURNED_ROWS = 128  # so many pay for strips of columns that lie along the sum
NONE = -1  # in place of the number of a loop axis


class VectorAxis:
    """Chooses among the axes of one kernel."""

    def __init__(self, facts: Facts, choices: Choices) -> None:
        self.facts, self._pick = facts, choices.pick

    def pick(self, name: str, rule: LoopAxis | None, others: Sequence[LoopAxis]) -> LoopAxis | None:
        """A loop axis, by its number among the kernel's, or none."""

        def number(loop: LoopAxis | None) -> int:
            return NONE if loop is None else self.facts.axes.index(loop)

        chosen = self._pick(name, number(rule), [*map(number, others), NONE])
        return None if chosen == NONE else self.facts.axes[chosen]

    def of(
        self,
        candidates: Sequence[LoopAxis],
        reads: Sequence[Access],
        packed: Sequence[LoopAxis] = (),
    ) -> LoopAxis | None:
        """The axis of the lanes: where most accesses are contiguous, if any is. One of `packed`,
        which strips make contiguous, where that would leave most lanes idle, or lets the lines of
        the other factor meet in few sets of the cache.
        """
        contiguous = [x for x in candidates if any(a.contiguity(x) > 0 for a in reads)]
        others = [x for x in contiguous if self.facts.lanes.width(x) > 1]
        others.sort(key=lambda x: -self.facts.lanes.score(x, reads))
        rule = self.facts.lanes.best(candidates, reads) or self._beside_gathers(candidates, reads)
        used = 0.0 if rule is None else self.facts.lanes.used(rule)
        in_runs = next((x for x in packed if self._has_runs(x, reads)), None)
        in_panels = [x for x in packed if is_in_panels(x, reads)]
        if in_runs is not None:
            rule = in_runs
        elif packed and used < IDLE:
            rule = packed[0]
        elif (
            in_panels and rule in self.facts.grid and (used < FULL or self._is_jumping(rule, reads))
        ):
            rule = in_panels[0]
        elif rule in self.facts.grid:
            rule = self._uncollided(rule, packed) or rule
        elif rule in self.facts.sequential:
            rule = self._beside(packed, reads) or rule
        return self.pick("vector", rule, [*others, *packed])

    # A binary search computes each place that it reads from what it read before: with lanes 100,000
    # searches among 1,000 took 0.6 ms, without them 10.6 (Zen 4).
    def _beside_gathers(
        self, candidates: Sequence[LoopAxis], reads: Sequence[Access]
    ) -> LoopAxis | None:
        """The axis of a map for its lanes, chosen as if it read nothing whose place is computed:
        those places are computed in vectors. None where results do not lie side by side along it.
        """
        rule = self.facts.lanes.best(candidates, [a for a in reads if not a.chosen])
        stores = [access for access in self.facts.accesses if access.is_store]
        if rule is None or self.facts.reductions:
            return None
        return rule if all(store.contiguity(rule) > 0 for store in stores) else None

    def _has_runs(self, columns: LoopAxis, reads: Sequence[Access]) -> bool:
        """Do rows choose, by integers read for each, what would be packed for these columns?"""
        rows = self.facts.lanes.rows(columns, reads)
        return rows is not None and bool(self.facts.strips.in_runs(columns, rows))

    def _is_jumping(self, vector: LoopAxis, reads: Sequence[Access]) -> bool:
        """Does a factor jump from lane to lane, so that it would be packed?"""
        return any(a.is_factor and a.stride(vector) not in (0, 1) for a in reads)

    def _uncollided(self, vector: LoopAxis, packed: Sequence[LoopAxis]) -> LoopAxis | None:
        """Another axis for the lanes, whose factor would push its own lines out of the cache when
        read as rows, a few columns at a time. Results then lie across the lanes, so for long sums.
        """
        if positions(self.facts.sequential) < LONG_SUM or self.facts.strips.have_collisions(vector):
            return None
        return next(
            (x for x in packed if x is not vector and self.facts.strips.have_collisions(x)), None
        )

    def _beside(self, packed: Sequence[LoopAxis], reads: Sequence[Access]) -> LoopAxis | None:
        """The axis along which results lie side by side, where lanes would hold parts of one sum,
        if sums are so short that adding up their lanes at the end takes long, or rows so many that
        they pay for transposed strips. A strip then serves more columns, the rows are read less
        often, and what follows the sums runs in vectors.
        """
        is_short = self.facts.row_bytes() < ALIASING_BYTES
        stores = [access for access in self.facts.accesses if access.is_store]
        for columns in packed:
            rows = self.facts.lanes.rows(columns, reads)
            pays = is_short or (rows is not None and rows.estimate >= TURNED_ROWS)
            if pays and all(store.contiguity(columns) > 0 for store in stores):
                return columns
        return None

    def packed(self, reads: Sequence[Access]) -> list[LoopAxis]:
        """Axes of the grid that fill vectors of strips: those first whose strips hold what is
        computed, which else is for every tile of rows; then those with the least to pack, or of
        equals those along which results lie side by side.
        """
        stores = [access for access in self.facts.accesses if access.is_store]
        ranked: list[tuple[bool, int, float, LoopAxis]] = []
        for loop in self.facts.grid:
            rows = self.facts.lanes.rows(loop, reads)
            if rows is None or self.facts.lanes.used(loop) < IDLE:
                continue
            if not is_in_panels(loop, reads) and not self.facts.strips.pay(loop, rows):
                continue
            if not is_partly_moved(loop, reads) and not self.facts.strips.are_others_contiguous(
                loop, rows
            ):
                continue
            packs = self.facts.strips.factors(loop, rows)
            read = [[x for x in self.facts.axes if not f.axes.isdisjoint(x.members)] for f in packs]
            size = sum(map(positions, read))
            side_by_side = sum(store.contiguity(loop) for store in stores)
            ranked.append((self.facts.strips.are_others_computed(packs), size, -side_by_side, loop))
        return [loop for *_, loop in sorted(ranked, key=lambda entry: entry[:3])]

    def transposed(self, vector: LoopAxis, others: Sequence[LoopAxis]) -> LoopAxis | None:
        """The axis along which an access is contiguous that jumps along the vector axis."""
        for access in self.facts.accesses:
            if access.contiguity(vector) >= 0:
                continue
            for loop in others:
                if access.contiguity(loop) > 0 and loop.estimate > 1:
                    return loop
        return None

    # In a map nothing is shared between lanes, so the lanes follow the stores: a store across lanes
    # is a scatter, a load across lanes only a gather.
    def of_stores(
        self, inner: list[LoopAxis], tiles: Mapping[Symbol, TileChoice]
    ) -> LoopAxis | None:
        """The vector axis of the stores. Loops nested in each other have one vector axis together:
        an axis that a reduction runs over too keeps the choice made there.
        """
        wide = [x for x in self.facts.sequential if tiles.get(x.symbol, TileChoice()).vector > 1]
        for loop in inner:
            if loop in wide:
                return loop
        free = [x for x in inner if not wide or x not in self.facts.sequential]
        free = inner[-1:] if self.facts.ordered else free
        reads = [a for a in self.facts.accesses if a.reduction is None]
        return self.facts.lanes.best(free, reads)


def is_in_panels(loop: LoopAxis, reads: Sequence[Access]) -> bool:
    """Is a factor read in panels of columns along the loop, be it a single one?"""
    return any(a.panel(loop) or (a.place.layout.blocks and a.stride(loop) == 1) for a in reads)


def positions(loops: Sequence[LoopAxis]) -> int:
    """Steps of loops inside each other."""
    return prod(loop.estimate for loop in loops)
