"""Sums of columns that walk their rows whole: when that pays, and how much of it is a chunk.

A tile of columns with its sums in registers runs through all rows, and jumps from one to the next
by a row's length, where no prefetcher follows. So where the rows come from memory some of them at a
time are added up to sums of many columns in scratch (`Schedule.sums`); and so are the products
of few rows by a matrix, which then passes once, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.algebra.frames import upper
from luminal.base.records import dataclass
from luminal.kernel.knobs import Choices
from luminal.kernel.loops import Access, LoopAxis
from luminal.schedule.vectors.facts import Facts
from luminal.schedule.vectors.vector_axis import positions

AT_ONCE = (8, 4, 2)  # rows that are added up to sums in scratch: more meet in few sets of a cache;
OF_FEW = (16, 8, 2)  # with several rows of another factor the sums themselves are what is read most
VECTORS = 2  # of columns at a time: with several rows of them more only take longer to compile
FEW = 8  # rows of another factor, at most
LONG_ROW = 128  # columns that a prefetcher follows,
LONGER_ROW = 1024  # and of which a tile with several rows of sums would read a bit of each page
PAGE = 4096  # bytes of a row: several that are no longer end before a prefetcher knows of them,
SHORT_ROW = 8  # but two at once come as fast as memory gives them: of so many vectors, with several
# rows of another factor; a tile of fewer has about all of a row
SHARES = 1  # chunks of such rows for each core, at least: shorter pieces of rows come slower (two
# for each took 1.15 times as long on a Zen 3)


@dataclass(frozen=True, slots=True)
class ByRows:
    """The rules for one kernel."""

    facts: Facts
    choices: Choices

    # Eight rows are as many streams as prefetchers follow; sixteen meet in few sets of the
    # first-level cache, and take 1.4 of eight's time. Rows of at most a page end before a
    # prefetcher has learnt of them, so of these two are taken.
    def at_once(self, columns: LoopAxis, rows: LoopAxis | None = None) -> int:
        """How many rows of the matrix are added up to the sums of all columns (and `rows`) before
        the next ones are; 0: every tile of columns runs through all of them.
        """
        facts, pick, summed = self.facts, self.choices.pick, self.facts.sequential[-1]
        if rows is not None and not (rows.extent.is_const and 1 < rows.estimate <= FEW):
            return 0
        options = [n for n in (OF_FEW if rows else AT_ONCE) if 2 * n <= summed.estimate]
        if facts.inner or not options:
            return pick("by_rows", 0)
        reads = [a for a in facts.accesses if a.moves(summed) and a.moves(columns)]
        lie = all(a.stride(columns) == 1 and not a.place.layout.blocks for a in reads)
        lie = lie and all(
            abs(a.stride(summed) or LONGER_ROW) >= min(columns.estimate, LONGER_ROW) for a in reads
        )
        size, target = max(map(self._apart, reads), default=0), facts.target
        row = max((a.bytes for a in reads), default=0) * columns.estimate
        far, best = target.cores * target.l2_bytes, options[0]
        least = LONG_ROW if rows is None else LONGER_ROW
        if row <= PAGE and 4 * size >= target.l3_bytes:
            short = SHORT_ROW * target.vector_lanes(max(a.bytes for a in reads))
            least, best = (LONG_ROW if rows is None else short), options[-1]
        pays = lie and size > far and columns.estimate >= least
        return pick("by_rows", best if pays else 0, (0, *options))

    def _apart(self, read: Access) -> int:
        """Bytes that pass until an element is read once more: all of them where none is, those of
        one window where it overlaps the next, which finds its rows in a cache.
        """
        moved = [x for x in self.facts.axes if read.moves(x)]
        held = upper(x for dimension in read.place.frame for x in dimension)
        if positions(moved) > held:
            moved = [x for x in moved if x in self.facts.sequential]
            return read.bytes * positions(moved)
        return read.bytes * positions(moved)

    def vectors(self, sums: int, rows: LoopAxis) -> int:
        """How many vectors of columns registers hold beside the matrix's own, with so many sums a
        row.
        """
        return max(1, (self.facts.target.registers - 1) // (sums * rows.estimate + 1))

    def chunk_work(self, order: Sequence[LoopAxis], columns: LoopAxis, *rows: LoopAxis) -> int:
        """The work of a chunk of as many columns as half the first-level cache keeps sums of (with
        rows, a part of the second's), or of fewer, so that there are chunks to share out.
        """
        facts, target = self.facts, self.facts.target
        size = sum(r.dtype.size for r in facts.reductions) * positions(rows)
        room = target.l2_bytes // 8 if rows else target.l1_bytes // 2
        kept, shares = room // size, SHARES * target.cores
        while kept > LONG_ROW and positions([*order, columns]) < shares * kept:
            kept //= 2
        return kept * positions([*rows, *facts.sequential]) * facts.operations
