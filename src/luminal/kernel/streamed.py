"""Cascades that are products of matrices by one dot, and the blocks in which groups compute them.

The contractions of a step have rows and steps; sums with further axes have as factors what a step
computes of its contractions, and what lies along the steps (in attention: scores, and values).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import At, Axes, Reduction, Term, axis_order, below
from luminal.base.dots import Dot
from luminal.base.dtypes import DType, float16
from luminal.base.records import dataclass
from luminal.base.swizzles import SWIZZLES, swizzle_of
from luminal.hlir.monoid import SUM
from luminal.kernel.cascade import Cascade, lane_axis
from luminal.kernel.cascade_work import is_contiguous
from luminal.kernel.fused import Fused, Store
from luminal.kernel.layout import ROW_MAJOR
from luminal.kernel.neighbours import word_offset
from luminal.memory.alignment import ACCESS
from luminal.shape.expression import Expression, Symbol

PARTS, SHORT_PARTS = 3, 2  # of a factor's 24 bits, by 8 or 11; for results of 16 bits


@dataclass(frozen=True, slots=True)
class Streamed:
    """A cascade as products of matrices by one dot: of each contraction the factors with the rows
    and with the steps, of each sum with further axes the factor that a step computes and the other.
    """

    fused: Fused
    cascade: Cascade
    dot: Dot
    lane: Symbol
    contractions: Mapping[Reduction, tuple[Term, Term]]
    sums: Mapping[Reduction, tuple[Term, Term]]

    @property
    def parts(self) -> int:
        """In how many parts of the dot's dtype a factor that a step computes is multiplied: as many
        as leave results their bits, or one less.
        """
        if self.dot.a is self.dot.accumulator:
            return 1
        wide = [store for store in self.fused.stores if not self.cascade.rows >= {*store.axes}]
        parts = SHORT_PARTS if all(store.dtype.size <= 2 for store in wide) else PARTS
        return parts - self.cascade.is_rough

    @property
    def scaled(self) -> frozenset[Term]:
        """The factors that a step computes beyond the range of the dot's dtype: they are multiplied
        as shares of the greatest one of their row so far. That of f16 is 1 here.
        """
        if self.dot.a is not float16:
            return frozenset()
        members = {m.term: m for m in self.cascade.members}
        factors = ((members[r], x) for r, (x, _) in self.sums.items())
        return frozenset(x for m, x in factors if m.rate is None or x.op != m.rate.base)

    @property
    def steps(self) -> Axes:
        """The axes that are reduced, walked as one: first those by which places are looked up, as
        pages are, so that what lies on one page is read together.
        """
        moved = (t for t in self.fused.terms if isinstance(t, At))
        looked_up = {a for at in moved for index in at.args[1:] for a in index.axes}
        return tuple(sorted(axis_order(self.cascade.steps), key=lambda a: a not in looked_up))

    def results_of(self, store: Store) -> frozenset[Term]:
        """The results that a store's value is computed of."""
        results, reads = self.cascade.results, self.fused.reads
        return results & below([store.term], lambda t: t in results or t in reads).keys()

    def further(self, term: Term) -> Axes:
        """The axes of a sum beside those of the rows."""
        return self.beside(term.axes)

    def beside(self, axes: frozenset[Symbol]) -> Axes:
        """These axes without those of the rows, in the order of the stores."""
        order = [a for store in self.fused.stores for a in store.axes]
        rest = axes - self.cascade.rows
        return tuple(sorted(rest, key=lambda a: (order.index(a) if a in order else -1, a.sort_key)))


def streamed(fused: Fused, cascade: Cascade) -> Streamed | None:
    """The products that the cascade is made of, if lanes can compute all of them together."""
    dots = {fused.dots.get(r) for r in cascade.inner}
    lane = lane_axis(cascade)
    (dot,) = dots if len(dots) == 1 else (None,)
    if dot is None or not dot.chains or lane is None:
        return None
    if {*fused.reductions} != {*cascade.reductions} or not _are_plain(fused, cascade):
        return None
    contractions = {r: _of_rows_and_steps(r, cascade, lane, dot, fused) for r in cascade.inner}
    wide = [m.term for m in cascade.members if not m.term.axes <= cascade.rows]
    sums = {r: _of_steps_and_further(r, cascade, lane, dot, fused) for r in wide}
    stream = Streamed(
        fused, cascade, dot, lane,
        {r: pair for r, pair in contractions.items() if pair is not None},
        {r: pair for r, pair in sums.items() if pair is not None},
    )  # fmt: skip
    whole = len(stream.contractions) == len(contractions) and len(stream.sums) == len(sums)
    further = {frozenset(stream.further(r)) for r in wide}
    stored = {frozenset(store.axes) - cascade.rows for store in fused.stores}
    return stream if whole and stored <= {*further, frozenset[Symbol]()} else None


def _are_plain(fused: Fused, cascade: Cascade) -> bool:
    """Is what is reduced asked for at the loops' own positions, and stored where it belongs?"""
    results = {*cascade.reductions}
    moved = [t.args[0] for t in fused.terms if isinstance(t, At) and t not in fused.reads]
    if results & below(moved, fused.reads.__contains__).keys():
        return False
    stores = fused.stores
    return all(s.index is None and not s.add and cascade.rows <= {*s.axes} for s in stores)


def _of_rows_and_steps(
    contraction: Reduction, cascade: Cascade, lane: Symbol, dot: Dot, fused: Fused
) -> tuple[Term, Term] | None:
    """The factors of a contraction, if it has rows and steps alone."""
    if contraction.axes != cascade.rows | cascade.steps:
        return None
    x, y = contraction.args[0].args
    rows, steps = (x, y) if lane in x.axes else (y, x)
    apart = cascade.steps.isdisjoint(rows.axes) and lane not in steps.axes
    apart = apart and cascade.steps <= steps.axes
    kept = all(taken(x, t, fused.reads) for x, t in ((rows, dot.a), (steps, dot.b)))
    return (rows, steps) if apart and lane in rows.axes and kept else None


# Movements stand above and below casts: PyTorch's transposed keys are a view of what was cast, and
# queries, keys and values of one product are parts of one array.
def taken(factor: Term, dtype: DType, reads: Container[Term]) -> tuple[Term, tuple[At, ...]] | None:
    """What of a factor is multiplied by a dot of this dtype: itself, or what it is cast from, below
    the Ats that say where it is read; the outermost of these first.
    """
    ats: list[At] = []
    term, is_cast = factor, False
    while term not in reads:
        if isinstance(term, At):
            ats.append(term)
        elif term.op == "Cast" and term.dtype is not dtype and not is_cast:
            is_cast = True
        else:
            break
        term = term.args[0]
    return (term, tuple(ats)) if term.dtype is dtype else None


def _of_steps_and_further(
    total: Reduction, cascade: Cascade, lane: Symbol, dot: Dot, fused: Fused
) -> tuple[Term, Term] | None:
    """The factor of rows and steps, and the one of steps and further axes, of a sum of products."""
    (product,) = total.args
    if total.monoid is not SUM or total.dtype is not dot.accumulator or product.op != "Mul":
        return None
    if product in fused.reads:
        return None
    block = cascade.rows | cascade.steps
    for computed, other in (product.args, product.args[::-1]):
        apart = computed.axes <= block and lane not in other.axes and other.axes >= cascade.steps
        if apart and total.axes - block <= other.axes and computed.dtype is dot.accumulator:
            return None if taken(other, dot.b, fused.reads) is None else (computed, other)
    return None


@dataclass(frozen=True, slots=True)
class FragmentTiling:
    """`teams` of lanes that multiply together have `rows` rows between them; `steps` at a time, in
    one of `stages` blocks of shared memory, which lanes copy without registers if there are more.
    `runs_on`: products of a block are made while the next block's factors are computed.
    """

    rows: int
    steps: int
    teams: int
    stages: int = 1
    runs_on: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A factor's block in shared memory: its positions along the sum and along its rows or columns,
    of axes walked as one. `term` is what is copied, read where the `ats` say. It lies in lines of
    `swizzle` bytes if a dot reads it there.
    """

    term: Term
    ats: tuple[At, ...]
    depth: tuple[Axes, int]
    place: tuple[Axes, int]
    deep_first: bool
    swizzle: int

    def lengths(self) -> tuple[int, int]:
        """The outer and the inner one."""
        pair = self.place[1], self.depth[1]
        return pair if self.deep_first else pair[::-1]

    @property
    def near(self) -> Axes:
        """The axes along which neighbours lie side by side."""
        return self.depth[0] if self.deep_first else self.place[0]

    @property
    def bytes(self) -> int:
        outer, inner = self.lengths()
        if self.swizzle:
            whole = SWIZZLES[self.swizzle].alignment
            return -(-outer * inner * self.term.dtype.size // whole) * whole
        return outer * (inner * self.term.dtype.size + ACCESS)


def blocks_of(stream: Streamed, tiling: FragmentTiling) -> dict[tuple[Reduction, int], Block]:
    """The blocks of all factors that are copied: 0, of the rows or 1, of the steps of a product."""
    dot, reads = stream.dot, stream.fused.reads
    blocks: dict[tuple[Reduction, int], Block] = {}

    def block(
        factor: Term, dtype: DType, depth: tuple[Axes, int], place: tuple[Axes, int], side: int = 1
    ) -> Block:
        term_and_ats = taken(factor, dtype, reads)
        assert term_and_ats is not None, f"{factor!r} is none for {dot}"
        deep_first = is_contiguous(stream.fused, factor, depth[0][-1])
        line = depth[1] if deep_first else (dot.m, dot.n)[side]
        swizzle = swizzle_of(line * dtype.size) if dot.is_from_memory else 0
        return Block(*term_and_ats, depth, place, deep_first, swizzle)

    for r, (rows, steps) in stream.contractions.items():
        depth = tuple(r.attrs), rounded(r.attrs, dot.k)
        blocks[r, 0] = block(rows, dot.a, depth, ((stream.lane,), tiling.rows), 0)
        blocks[r, 1] = block(steps, dot.b, depth, (stream.steps, tiling.steps))
    for r, (_, other) in stream.sums.items():
        further = stream.further(r)
        place = further, rounded(further, dot.n)
        blocks[r, 1] = block(other, dot.b, (stream.steps, tiling.steps), place)
    return blocks


def lines_of(stream: Streamed, tiling: FragmentTiling) -> dict[Term, Block]:
    """The blocks of what is read and is a number a step, if lanes can copy them without registers:
    what rows before had (their maxima and sums, in gradients of keys), and masks of keys.
    """
    reads, steps = stream.fused.reads, (stream.steps, tiling.steps)
    ends = stream.cascade.results.__contains__
    roots = [r.args[0] for r in stream.cascade.reductions if r not in stream.contractions]
    # What an At moves is asked for at other positions.
    seen = below(roots, lambda t: t in reads or ends(t) or isinstance(t, At))
    apart = stream.cascade.rows - {stream.lane}
    narrow = (
        t for t in seen if t in reads and stream.cascade.steps <= t.axes <= apart | {*stream.steps}
    )
    blocks = {t: Block(t, (), ((), 1), steps, deep_first=False, swizzle=0) for t in narrow}
    return {t: block for t, block in blocks.items() if _lies_whole(stream.fused, block)}


def shared_bytes(stream: Streamed, tiling: FragmentTiling) -> int:
    """Shared memory that a tiling takes."""
    blocks = dict.fromkeys(
        (b, tiling.stages if s else 1) for (_, s), b in blocks_of(stream, tiling).items()
    )
    lines = lines_of(stream, tiling).values() if tiling.stages > 1 else ()
    blocks |= dict.fromkeys((line, tiling.stages) for line in lines)
    return sum(block.bytes * stages for block, stages in blocks)


def lie_whole(stream: Streamed, blocks: Iterable[Block]) -> bool:
    """Can lanes copy the blocks without registers? All must lie so in memory, in whole words."""
    return all(_lies_whole(stream.fused, block) for block in blocks)


def _lies_whole(fused: Fused, block: Block) -> bool:
    place, count = fused.reads.get(block.term), ACCESS // block.term.dtype.size
    if place is None or place.layout != ROW_MAJOR:
        return False
    values: dict[Symbol, Expression] = {}
    for at in block.ats:
        moved = {a: x.substitute(values) for a, x in at.attrs if not isinstance(x, int)}
        if len(moved) < len(at.attrs):  # integers say where
            return False
        values = {a: values.get(a, a) for a in at.args[0].axes} | moved
    near, (_, inner) = block.near[-1], block.lengths()
    offset = place.offset({a: values.get(a, a) for a in block.term.axes})
    is_whole = extent_of((near,)).is_const and extent_of((near,)).constant % count == 0
    return is_whole and inner % count == 0 and word_offset(offset, near, count) is not None


def has_lengths(stream: Streamed) -> bool:
    """Are the sums and the further axes of lengths that are known, as blocks of memory must be?"""
    axes = [a for r in stream.contractions for a in r.attrs]
    axes += [a for r in stream.sums for a in stream.further(r)]
    return all(extent_of((a,)).is_const for a in axes)


def rounded(axes: Iterable[Symbol], size: int) -> int:
    extent = extent_of(tuple(axes))
    return -(-extent.constant // size) * size
