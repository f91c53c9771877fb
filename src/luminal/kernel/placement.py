"""Placement: a fused kernel and its schedule become one loop nest, by the once-per-point law.

Grid axes lie in the free axes of every reduction, so each reduction runs once per grid point; what
a later loop needs again is staged. Softmax, norms, matrix products with epilogues, convolutions and
plain maps are the same few steps:

    for the grid's chunk:          loops over the grid axes, some in tiles
        fill stages                 (contractions) one strip per tile of the vector axis
        for siblings of reductions, those that wait for no other together:
            loops over the reduced axes, accumulators carried
        for each store:             loops over the axes that remain
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from luminal.algebra.frames import extent_of, linear
from luminal.algebra.terms import Index
from luminal.base.dtypes import bool_
from luminal.kernel.dimensions import Dimension
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator, Placed
from luminal.kernel.fused import Fused
from luminal.kernel.grid_loops import GridLoops
from luminal.kernel.guards import cut_points, whole_vectors
from luminal.kernel.packing import Packing
from luminal.kernel.reductions import Reductions
from luminal.kernel.schedule import Schedule, Stage
from luminal.kernel.staging import Staging
from luminal.kernel.stores import Stores
from luminal.kernel.sums_by_rows import SumsByRows
from luminal.shape.expression import Expression, const

MOST_CUTS = 4  # of a loop into pieces: each is a copy of the code


def place(fused: Fused, schedule: Schedule) -> Placed:
    """The tile IR of a fused kernel under a schedule."""
    values = Evaluator(fused)
    grid = GridLoops(schedule, values)
    stores = Stores(fused.stores, schedule, values)
    cut = pieces(schedule, values)
    if cut is not None:
        write_in_pieces(*cut, grid, stores)
        return values.finish()
    reductions = Reductions(fused, schedule.sequential, schedule.tiles, values)
    if schedule.sums:
        env = sum_by_rows(schedule.sums, grid, reductions)
    else:
        if schedule.split is None:
            env = grid.open(schedule.grid, Env({}))
        else:
            packing = Packing(schedule, schedule.split, values, grid, reductions)
            env = packing.open(Env({}))
        # Inside of the grid's loops: a row holds one point of them, so its loads may not move out.
        stage_local_rows(schedule, values)
        reductions.run(env)
    stores.write(env)
    return values.finish()


def pieces(schedule: Schedule, values: Evaluator) -> tuple[int, list[Expression]] | None:
    """The innermost loop along which conditions change, by its number, and where; None where no
    loop is cut into pieces.
    """
    # Where there are reductions, guards bound their loops; plain maps are cut into pieces, each
    # with its conditions decided, so that vectors of a long middle part need no masks. Lanes have
    # no long middle part.
    if values.fused.reductions or schedule.split is not None or schedule.is_by_groups:
        return None
    indices = (t for t in values.fused.terms if isinstance(t, Index))
    conditions = [t.attrs for t in indices if t.dtype is bool_]
    # One loop is cut, or pieces would multiply: an inner one, where vectors would have masks.
    for number, (loop, _) in reversed(list(enumerate(schedule.grid))):
        extent, lanes = values.canonical(loop.extent), schedule.tile(loop).vector
        points = cut_points(map(values.canonical, conditions), loop.symbol, extent)
        if lanes > 1 and extent.is_const:
            points = whole_vectors(points, lanes, extent.value)
        if points and len(points) <= MOST_CUTS:
            return number, points
    return None


def write_in_pieces(
    number: int, points: Sequence[Expression], grid: GridLoops, stores: Stores
) -> None:
    """The loops of a kernel without reductions, one of them in pieces: in each of those all
    conditions along it are decided, or none.
    """
    values, whole_grid = grid.values, grid.schedule.grid
    outside = grid.open(whole_grid[:number], Env({}))
    # Once for all pieces: each time a chunk is asked for, the grid gets an axis.
    spans = [(loop, grid.chunk(loop, count)) for loop, count in whole_grid[number:]]
    (loop, span), *inner = spans
    depth = values.blocks.depth
    for piece in pairwise([const(0), *points, values.canonical(loop.extent)]):
        env = grid.open_loop(loop, span, outside, piece)
        for inner_loop, inner_span in inner:
            env = grid.open_loop(inner_loop, inner_span, env)
        stores.write(env)
        values.blocks.close_to(depth)


def sum_by_rows(sums: Sequence[Stage], grid: GridLoops, reductions: Reductions) -> Env:
    """All sums, in scratch; gives the point of the grid, for what is stored of them."""
    first = len(grid.schedule.grid) - len(sums[0].order)
    (_, rows), *_ = sums[0].fill
    env = grid.open(grid.schedule.grid[:first], Env({}))
    spans = [(loop, grid.chunk(loop, count)) for loop, count in grid.schedule.grid[first:]]
    count = grid.schedule.grid[first][1]
    size = const(count) if count else spans[0][1][1]
    columns = [(loop, span, grid.schedule.tile(loop)) for loop, span in spans]
    SumsByRows(reductions, columns, size, rows.unroll).run(env)
    for loop, span in spans:
        env = grid.open_loop(loop, span, env)
    return env


def stage_local_rows(schedule: Schedule, values: Evaluator) -> None:
    """Scratch for the local values that have axes inside the grid (no tile of rows at once)."""
    # A row holds one point of the grid at a time: several at once would write over each other.
    if any(schedule.tile(loop).size > 1 for loop, _ in schedule.grid):
        return
    fused, staging = values.fused, Staging(values)
    outer = {a for loop, _ in schedule.grid for a in loop.members}
    for term in fused.terms:
        if term in fused.local and not term.is_reduction and term.axes - outer:
            inner = term.axes - outer
            axes = tuple(a for x in schedule.axes for a in x.members if a in inner)
            row = Dimension(linear(axes), extent_of(axes))
            values.staged[term] = staging.room([row], term.dtype)
