"""When one kernel for a cascade takes less time than several that store what it reduces."""

from __future__ import annotations

from collections.abc import Collection, Set

from luminal.algebra.frames import extent_of, upper
from luminal.algebra.reductions import longest
from luminal.algebra.terms import Phase, Reduction, Term, axis_order
from luminal.base.costs import Costs
from luminal.hlir.ops import Value
from luminal.kernel.cascade import Cascade, lane_axis
from luminal.kernel.loops import estimate
from luminal.kernel.source import source_of
from luminal.selection.bodies import is_weight
from luminal.shape.expression import Symbol

COPIED = 1 << 15  # elements of a weight, from which it is copied so that it lies as it is read
WRITTEN = 2  # a line that is written comes from memory before it goes there
OWN = 4  # of the largest rows fill a unit's own cache
LONGEST = 256  # steps of a chunk, of an axis whose extent dims decide
STEPS = 16  # of which chunks are multiples: what lanes take at a time, and pages of a cache
LIGHTER = 4 / 3  # times as long may be what holds no value that leaves the caches


def is_gain(cascades: Collection[Cascade], costs: Costs, weights: Set[Value] = frozenset()) -> bool:
    """Do these cascades, which share what they compute in a step, take less time as one kernel each
    than as kernels that store it? Where that leaves the last cache, about the time will do: several
    values as large as all scores of an attention are not held then. `weights`: the arguments of a
    body that are weights outside.
    """
    return all(_is_long_enough(cascade, costs, weights) for cascade in cascades) and _is_worth(
        cascades, costs
    )


def _is_long_enough(cascade: Cascade, costs: Costs, weights: Set[Value]) -> bool:
    """Does the cascade compute longer in a step than it takes to read and make what that needs?"""
    if not cascade.inner:
        return True
    size, steps = cascade.inner[0].dtype.size, estimate(extent_of(axis_order(cascade.steps)))
    stored = sum(upper(r.axes) for r in cascade.inner) * size
    others = _others(cascade)
    # So few rows that there is no block of them for each unit: kernels of their own are shared out
    # by steps. Passes that are cut have chunks for rows.
    if costs.shares.passes:
        if steps_of_chunk(cascade, costs) is not None:
            return False
    elif _blocks(cascade, costs) < costs.units and _is_work(cascade, steps, costs):
        return False
    if cascade.sweeps == 1 and any(m.rate for m in cascade.members):
        return True
    lie = all(_is_aligned(m.term, cascade.rows) for m in cascade.members)
    # A row of the block that is shorter than what is read and made for it saves little.
    if not lie or others > steps or steps * others * size > costs.cache_bytes:
        return False
    lanes = len(cascade.inner) * costs.shares.lanes
    if stored >= costs.cache_bytes or others <= (WRITTEN + 1) * lanes:
        return True
    # The last cache holds what would be stored: it is written and read there. So are the other
    # factors, for each block, if a unit's own cache does not hold them; and weights, which products
    # of their own have in panels, are read as they lie.
    return steps * others * size <= OWN * costs.row_bytes and not _has_weights(cascade, weights)


def _others(cascade: Cascade) -> int:
    """The elements of the other factors of all its products that a block of rows reads in a step:
    from a cache, or it waits.
    """
    summed = sum(upper(r.attrs) for r in cascade.inner)
    return summed + sum(upper(m.term.axes - cascade.rows) for m in cascade.members)


def _blocks(cascade: Cascade, costs: Costs) -> int:
    """How many blocks of rows there are."""
    rows = _rows(cascade)
    return upper(cascade.rows) // rows * -(-rows // costs.shares.lanes)


def _rows(cascade: Cascade) -> int:
    """The rows that share what they read."""
    lane = lane_axis(cascade)
    return 1 if lane is None else estimate(extent_of((lane,)))


def _is_work(cascade: Cascade, steps: int, costs: Costs) -> bool:
    """Does it matter if blocks of rows that walk so many steps leave units idle?"""
    read = upper(cascade.rows) // _rows(cascade) * steps * _others(cascade)
    return read > costs.shares.work


def steps_of_chunk(cascade: Cascade, costs: Costs) -> int | None:
    """The positions of a chunk of the longest axis of steps, in which the units of a device share
    the steps of few rows; None where there would not be two chunks, or there are rows enough.

    Where dims say how many steps there are, chunks are no longer than `LONGEST`, for there may be
    few; else there are no more of them than blocks are wanted.
    """
    blocks, wanted = _blocks(cascade, costs), costs.shares.passes
    if blocks >= wanted or cascade.sweeps > 1 or not cascade.inner:
        return None
    if not _is_work(cascade, upper(cascade.steps), costs):
        return None
    along = longest(cascade.first.attrs)
    assert along.extent is not None
    length = upper((along,))
    a_step = _others(cascade) * upper(cascade.steps) // length
    most = length if along.extent.is_const else LONGEST
    size = max(min(-(-length * blocks // wanted), most), -(-costs.shares.chunk // a_step))
    size = -(-size // STEPS) * STEPS
    return size if size * 2 <= length else None


# A product with a weight reads it in panels, and so is faster by itself than inside a pass, where
# it would read the weight as it is given.
def _has_weights(cascade: Cascade, arguments: Set[Value]) -> bool:
    factors = [x for r in cascade.inner if r.product for x in r.product.args]
    sources = [source_of(x, lambda t: t.is_leaf) for x in factors]
    return any(s is not None and is_weight(s.term, arguments) for s in sources)


# A pass saves what it does not store, and pays where that leaves the caches: scores that fit are
# faster stored and read. Computing them anew takes a third more time than storing at worst, for
# which nothing is held: that is accepted.
def _is_worth(cascades: Collection[Cascade], costs: Costs) -> bool:
    """Is doing the contractions of these cascades anew worth what is not stored then: their
    results, and the factors that others multiply them by?
    """
    # A roofline estimate of both ways: the streamed one does contractions several times and touches
    # no memory, the other does each once and writes and reads the results. Flash attention is the
    # case where the first wins: the scores are never in memory.
    times = [
        r for cascade in cascades for r in cascade.inner for _ in range(_walks(cascade, costs))
    ]
    stored: set[Term] = {*times}
    if len(times) == len(stored):
        return True
    wide = [
        (cascade, m.term)
        for cascade in cascades
        for m in cascade.members
        if cascade.rows < m.term.axes
    ]
    factors = [
        x for cascade, r in wide for x in r.args[0].args if x.axes == cascade.rows | cascade.steps
    ]
    reads = len(stored) + len(factors)
    stored.update(factors)
    size = max(upper(t.axes) * t.dtype.size for t in stored)
    further = sum(_flops(r) for _, r in wide)
    streamed = sum(map(_flops, times)) + further
    once = sum(_flops(r) for r in {*times}) + further
    leaves = len(stored) * size >= costs.cache_bytes
    rate = costs.memory if leaves else costs.cache
    apart = once / costs.contraction_flops + (WRITTEN * len(stored) + reads) * size / rate
    return streamed / costs.contraction_flops <= (LIGHTER if leaves else 1) * apart


def _walks(cascade: Cascade, costs: Costs) -> int:
    """The number of times that the contractions of a cascade are done: once where what several
    sweeps need is kept, which is a block of rows, or half of one.
    """
    size, steps = cascade.inner[0].dtype.size, estimate(extent_of(axis_order(cascade.steps)))
    block = costs.shares.lanes * steps * size * len(cascade.inner)
    return 1 if block <= OWN * costs.row_bytes else cascade.sweeps


def _flops(contraction: Reduction) -> int:
    return 2 * upper(contraction.axes) * upper(contraction.attrs)


def _is_aligned(member: Reduction, rows: frozenset[Symbol]) -> bool:
    """Does the factor that a member multiplies with a block lie along the axes that the block
    lacks, or along the steps, to be turned?
    """
    (x,) = member.args
    member_axes = member.axes - rows
    for factor in x.args if member_axes and x.op == "Mul" else ():
        source = source_of(factor, lambda t: t.is_leaf)
        # A weight is copied as it is wanted, and a value that is computed is stored so.
        if not factor.axes.isdisjoint(member_axes) and source is not None and source.term.is_leaf:
            inner = [a for dimension in source.renamed(source.term.attrs.frame) for a in dimension]
            is_copied = source.term.phase is Phase.WEIGHT and upper(factor.axes) >= COPIED
            return is_copied or not inner or inner[-1] in member_axes.union(member.attrs)
    return True
