"""Placement of a cascade: one pass over blocks of the reduced axis, all state in scratch.

    for the grid: heads and such, blocks of the lane axis i
        m = -inf, sums = 0
        for blocks of t:
            x[t, i]                      what is maximised, with its contraction, by tiles
            m', rescale = f(m, max x)    lanes i
            e[t, i] = exp(x - m')        lanes i, with the sums that have no further axes
            o[i, d] = o * rescale + e v  tiles of i and d
        finish and store

Blocks that an index condition rules out are not visited. The running maximum `r` enters exponents
as `r is -inf ? 0 : r`; sums are rescaled by `r' == r ? 1 : exp(c*(r' - r))`, and in the end by what
turns the former into the latter: rows all masked, inf and NaN come out as they do in two passes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Axes, Term, below
from luminal.dtypes import bool_, float32
from luminal.kernel.cascade import Cascade, Member, derive, lane_axis
from luminal.kernel.evaluate import Env, Placed, Row
from luminal.kernel.group import Group
from luminal.kernel.guards import guarded, relaxed_range
from luminal.kernel.loops import LoopAxis
from luminal.kernel.placement import Placement
from luminal.kernel.schedule import Schedule
from luminal.kernel.tile_ir import Carry, Contract, Map, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const, minimum
from luminal.target import Target

LANE_BLOCK = 64  # queries, in attention's words: the scratch of a block stays in the first caches
STEP_BLOCK = 64  # keys
ROWS = 8  # of a register tile, by TILE_VECTORS vectors: see schedule.py
TILE_VECTORS = 2


def cascade_of(group: Group) -> Cascade | None:
    """The cascade that a group's reductions form, if they do."""
    reductions = group.reductions()
    for reduction in reductions:
        found = derive(reduction, reductions, group.reads.__contains__)
        if found is not None:
            return found
    return None


def place_cascade(group: Group, cascade: Cascade, target: Target) -> Placed:
    """The kernel of a cascade."""
    return _CascadePlacement(group, cascade, target).run()


class _CascadePlacement(Placement):
    def __init__(self, group: Group, cascade: Cascade, target: Target) -> None:
        bound = [a for r in cascade.inner for a in r.attrs]
        sequential = tuple(LoopAxis(a, (a,)) for a in dict.fromkeys(bound))
        super().__init__(group, Schedule((), (), sequential, (), {}))
        self.cascade = cascade
        self.lanes = target.vector_lanes(4)
        self.step = cascade.maximum.attrs[0]
        lane = lane_axis(cascade)
        assert lane is not None  # selection asked
        self.lane = lane
        self.start: Expression = const(0)  # the block of the lane axis
        self.stop: Expression = const(0)
        self.first: Expression = const(0)  # the block of the step axis
        self.last: Expression = const(0)
        self.maximum = self.row((self.lane,))
        self.sums = {m: self.row((self.lane, *self.extra(m.term))) for m in cascade.members}
        rates = dict.fromkeys((m.base, m.factor) for m in cascade.members)
        self.rescale = {rate: self.row((self.lane,)) for rate in rates}

    def extra(self, term: Term) -> Axes:
        """The axes of a sum or store beside those of the maximum, in the order of the stores."""
        order = [a for store in self.group.stores for a in store.axes]
        rest = [a for a in term.axes if a not in self.cascade.maximum.axes]
        return tuple(sorted(rest, key=lambda a: (order.index(a) if a in order else -1, a.sort_key)))

    # --- scratch

    def row(self, axes: Axes, steps: int = 1) -> Row:
        """Scratch over a block of lanes and further whole axes; or over (steps, lanes)."""
        blocks = {self.lane: LANE_BLOCK, self.step: steps}
        size = const(1)
        for a in axes:
            size = size * (blocks[a] if a in blocks else extent_of((a,)))
        buffer = self.values.new_scratch(float32, size)

        def offset(env: Env) -> Expression:
            total, stride = const(0), const(1)
            for a in reversed(axes):
                total = total + (env.values[a] - self.origin(a)) * stride
                stride = stride * (blocks[a] if a in blocks else extent_of((a,)))
            return total

        return Row(buffer, offset)

    def origin(self, a: Symbol) -> Expression:
        if a is self.lane:
            return self.start
        return self.first if a is self.step else const(0)

    def read(self, row: Row, env: Env) -> Tile:
        return self.values.load_row(row, env, float32)

    def write(self, row: Row, env: Env, tile: Tile) -> None:
        self.values.store_row(row, env, tile)

    # --- loops and values

    def open(self, a: Symbol, env: Env, unroll: int = 1, vector: int = 1) -> Env:
        """A loop over the block of the lanes or steps, or over a whole axis."""
        extent = self.values.canonical(extent_of((a,)))
        start, stop = const(0), extent
        if a is self.lane:
            start, stop = self.start, self.stop
        elif a is self.step:
            start, stop = self.first, self.last
        symbol = self.blocks.fresh_axis(extent)
        self.blocks.open(symbol, start, stop, unroll, vector)
        return env.bind({a: symbol})

    def close(self, loops: int) -> None:
        for _ in range(loops):
            self.blocks.close()

    def apply(self, op: str, *args: Tile) -> Tile:
        dtype = bool_ if op == "Equal" else float32
        return self.values.map(op, args, dtype)

    def number(self, value: float) -> Tile:
        return self.values.constant(value, float32)

    def safe(self, maximum: Tile) -> Tile:
        """The maximum as it enters exponents."""
        lowest = self.number(-np.inf)
        return self.apply("Select", self.apply("Equal", maximum, lowest), self.number(0), maximum)

    def moved(self, rate: tuple[str, float], old: Tile, new: Tile) -> Tile:
        """`new == old ? 1 : exp(c*(new - old))`."""
        base, factor = rate
        difference = self.apply("Add", new, self.apply("Mul", old, self.number(-1)))
        power = self.apply(base, self.apply("Mul", difference, self.number(factor)))
        return self.apply("Select", self.apply("Equal", new, old), self.number(1), power)

    def know(self, term: Term, env: Env, tile: Tile) -> None:
        """From here on, in the innermost loop, `term` is `tile`."""
        self.blocks.stack[-1].known[self.values.key(term, env)] = tile

    # --- the kernel

    def run(self) -> Placed:
        env = self.grid_env()
        self.begin(env)
        self.pack_lanes(env)
        low, high = self.visited(env)
        self.blocks_of_steps(low, high)
        self.maximise(env)
        self.move_maximum(env)
        self.exponentiate(env)
        for member in self.cascade.members:
            if self.extra(member.term):
                self.accumulate_tiles(member, env)
        self.blocks.close()
        self.finish(env)
        return self.values.finish()

    def grid_env(self) -> Env:
        """One grid axis per axis of the maximum; the lanes in blocks."""
        values: dict[Symbol, Expression] = {}
        order = [a for a in self.group.stores[0].axes if a in self.cascade.maximum.axes]
        for a in order:
            extent = extent_of((a,))
            if a is not self.lane:
                values[a] = self.values.grid_axis(extent)
                continue
            block = self.values.grid_axis(ceil_div(extent, LANE_BLOCK))
            self.start = block * LANE_BLOCK
            self.stop = minimum(self.start + LANE_BLOCK, self.values.canonical(extent))
        return Env(values)

    def begin(self, env: Env) -> None:
        """No maximum yet, all sums empty."""
        inside = self.open(self.lane, env, TILE_VECTORS, self.lanes)
        self.write(self.maximum, inside, self.number(-np.inf))
        for member, row in self.sums.items():
            if not self.extra(member.term):
                self.write(row, inside, self.number(0))
        self.close(1)
        for member, row in self.sums.items():
            axes = self.extra(member.term)
            if axes:
                inside = self.open(self.lane, env)
                for a in axes[:-1]:
                    inside = self.open(a, inside)
                inside = self.open(axes[-1], inside, TILE_VECTORS, self.lanes)
                self.write(row, inside, self.number(0))
                self.close(1 + len(axes))

    def pack_lanes(self, env: Env) -> None:
        """Factors of the contractions that vary along the lanes, copied lane by lane."""
        for reduction in self.cascade.inner:
            (product,) = reduction.args
            factors = product.args if product.op == "Mul" else ()
            for factor in dict.fromkeys(factors):
                if self.lane in factor.axes:
                    self.pack_factor(factor, reduction, env)

    def pack_factor(self, factor: Term, reduction: Term, env: Env) -> None:
        axes = tuple(a for a in reduction.attrs if a in factor.axes)
        strip = self.row((*axes, self.lane))
        inside = env
        for a in axes:
            inside = self.open(a, inside)
        inside = self.open(self.lane, inside, TILE_VECTORS, self.lanes)
        self.write(strip, inside, self.values.evaluate(factor, inside))
        self.close(1 + len(axes))
        strip.ready = True
        self.values.rows[factor] = strip

    def visited(self, env: Env) -> tuple[Expression, Expression]:
        """The range of steps in which some lane of the block has something to do."""
        extent = self.values.canonical(extent_of((self.step,)))
        found = guarded(self.cascade.maximum)
        if found is None:
            return const(0), extent
        condition = self.values.canonical(found[0].attrs.substitute(env.values))
        return relaxed_range(condition, self.step, extent, self.lane, self.start, self.stop - 1)

    def blocks_of_steps(self, low: Expression, high: Expression) -> None:
        """Opens the loop over blocks of steps."""
        extent = self.values.canonical(extent_of((self.step,)))
        number = self.blocks.fresh_axis(ceil_div(extent, STEP_BLOCK))
        self.blocks.open(number, low // STEP_BLOCK, ceil_div(high, STEP_BLOCK))
        self.first = number * STEP_BLOCK
        self.last = minimum(self.first + STEP_BLOCK, extent)

    def maximise(self, env: Env) -> None:
        """x over the block, in register tiles of steps by lanes."""
        (x,) = self.cascade.maximum.args
        row = self.row((self.step, self.lane), STEP_BLOCK)
        inside = self.open(self.lane, env, TILE_VECTORS, self.lanes)
        inside = self.open(self.step, inside, ROWS)
        self.pending = list(self.cascade.inner)
        while self.pending:
            self.reduce(self.next_stage(), inside)
        self.write(row, inside, self.values.evaluate(x, inside))
        self.close(2)
        row.ready = True
        self.values.rows[x] = row

    def move_maximum(self, env: Env) -> None:
        """The maximum of the block, the new maximum, and what the move multiplies sums by."""
        (x,) = self.cascade.maximum.args
        lanes = self.open(self.lane, env, TILE_VECTORS, self.lanes)
        old = self.read(self.maximum, lanes)
        inside = self.open(self.step, lanes)
        value = self.values.evaluate(x, inside)
        (new,) = self.fold("Maximum", [old], [(value,)])
        for rate, row in self.rescale.items():
            self.write(row, lanes, self.moved(rate, old, new))
        self.write(self.maximum, lanes, new)
        self.close(1)

    def fold(
        self, op: str, inits: Sequence[Tile], values: Sequence[tuple[Tile, ...]]
    ) -> list[Tile]:
        """Closes a loop that folds values (two: their product) into accumulators."""
        depth = self.blocks.depth
        carries = []
        for init, value in zip(inits, values, strict=True):
            axes = {a for tile in (init, *value) for a in tile.axes}
            inner, after = (self.blocks.new(axes, float32, depth) for _ in range(2))
            if len(value) == 2:
                self.blocks.put(Contract(after, inner, *value), depth)
            else:
                self.blocks.put(Map(after, op, (inner, *value)), depth)
            result = self.blocks.new(axes, float32, depth - 1)
            carries.append(Carry(result, init, inner, after))
        self.blocks.close(tuple(carries))
        return [carry.result for carry in carries]

    def exponentials(self) -> list[Term]:
        """The exponentials of the sums that use the maximum."""
        found: dict[Term, None] = {}
        is_read = self.group.reads.__contains__
        for member in self.cascade.members:
            for term in below(member.term.args, is_read):
                mine = term.op == member.base and self.cascade.maximum in below((term,), is_read)
                if mine and self.step in term.axes:
                    found[term] = None
        return list(found)

    def exponentiate(self, env: Env) -> None:
        """The exponentials of the block, and the sums without further axes."""
        rows = {e: self.row((self.step, self.lane), STEP_BLOCK) for e in self.exponentials()}
        plain = [m for m in self.cascade.members if not self.extra(m.term)]
        lanes = self.open(self.lane, env, TILE_VECTORS, self.lanes)
        self.know(self.cascade.maximum, lanes, self.safe(self.read(self.maximum, lanes)))
        scaled = []
        for member in plain:
            factor = self.read(self.rescale[member.base, member.factor], lanes)
            scaled.append(self.apply("Mul", self.read(self.sums[member], lanes), factor))
        inside = self.open(self.step, lanes)
        for e, row in rows.items():
            self.write(row, inside, self.values.evaluate(e, inside))
        values = [(self.values.evaluate(m.term.args[0], inside),) for m in plain]
        for member, result in zip(plain, self.fold("Add", scaled, values), strict=True):
            self.write(self.sums[member], lanes, result)
        self.close(1)
        for e, row in rows.items():
            row.ready = True
            self.values.rows[e] = row

    def accumulate_tiles(self, member: Member, env: Env) -> None:
        """A sum with further axes: tiles of lanes by its last axis."""
        axes = self.extra(member.term)
        inside = env
        for a in axes[:-1]:
            inside = self.open(a, inside)
        inside = self.open(axes[-1], inside, TILE_VECTORS, self.lanes)
        inside = self.open(self.lane, inside, ROWS)
        factor = self.read(self.rescale[member.base, member.factor], inside)
        init = self.apply("Mul", self.read(self.sums[member], inside), factor)
        steps = self.open(self.step, inside)
        values = self.operands(member.term, member.term.args[0], steps)
        (total,) = self.fold("Add", [init], [values])
        self.write(self.sums[member], inside, total)
        self.close(1 + len(axes))

    def finish(self, env: Env) -> None:
        """The last rescaling, and the stores."""
        for store in self.group.stores:
            axes = [a for a in store.axes if a not in self.cascade.maximum.axes]
            lanes = (1, 1) if axes else (TILE_VECTORS, self.lanes)
            inside = self.open(self.lane, env, *lanes)
            maximum = self.read(self.maximum, inside)
            safe = self.safe(maximum)
            last = {rate: self.moved(rate, safe, maximum) for rate in self.rescale}
            for a in axes[:-1]:
                inside = self.open(a, inside)
            if axes:
                inside = self.open(axes[-1], inside, TILE_VECTORS, self.lanes)
            self.know(self.cascade.maximum, inside, maximum)
            for member, row in self.sums.items():
                if member.term.axes <= inside.values.keys():
                    rate = last[member.base, member.factor]
                    value = self.apply("Mul", self.read(row, inside), rate)
                    self.know(member.term, inside, value)
            offset = store.offset(inside.values)
            value = self.values.evaluate(store.term, inside)
            self.values.store(store.place, offset, value, TRUE, add=False)
            self.close(1 + len(axes))
