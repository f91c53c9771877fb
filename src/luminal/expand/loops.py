"""Loops over tiles: whole tiles without masks, then a tail.

The main loop takes a tile a step. What is left takes a piece a step, or, where partial results
belong to positions of the tile, one vector a step, masked unless the trip count is a multiple of
it. All vectors of a tail whose length is known are one step where loops inside are walked for each
step. What provably never runs is not written. The rows of a run, which may be few, are left in
halves of a tile: 8, then 4, 2 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from luminal.base.dtypes import bool_
from luminal.base.records import dataclass
from luminal.expand.builder import integer
from luminal.expand.extremes import Greatest, begun, greatest_of, has_integers, joined
from luminal.expand.fold import constant
from luminal.expand.ir import Operand, Type
from luminal.expand.lanes import Lanes
from luminal.expand.pairs import added_to, joined_rows, pairs_of
from luminal.expand.tiles import Digits, Elements, Key, Pieces, Position, Row, Tiles, is_divided
from luminal.kernel.tile_ir import NESTED, Carry, Index, Load, Loop, Map, Statement, Store, Tile
from luminal.shape.divisors import is_multiple
from luminal.shape.expression import ZERO, Expression, Symbol, all_of, maximum, opaque

Body = Callable[[tuple[Statement, ...]], None]


@dataclass(frozen=True, slots=True)
class _Steps:
    """Equal steps of one loop: from `start` below `stop`, some pieces at a time."""

    start: Expression
    stop: Expression
    pieces: Pieces
    masked: bool
    sure: int = 0  # of a masked step's pieces: before the stop whatever the dims are

    @property
    def trips(self) -> tuple[int, int | None]:
        """Bounds of how many steps are taken."""
        lo, hi = (self.stop - self.start).interval
        size = self.pieces.size
        return (
            0 if lo is None else max(0, -(-lo // size)),
            None if hi is None else max(0, -(-hi // size)),
        )


def _in_turn(loop: Loop, start: Expression, sizes: Iterable[int]) -> Iterator[_Steps]:
    """Tiles of the first size while there are rows for one, then of the next size."""
    for rows in sizes:
        whole = start + maximum(loop.stop - start, 0) // rows * rows
        yield _Steps(start, whole, Pieces(rows, 1, 1), False)
        start = whole


def _halves(rows: int) -> list[int]:
    """So many rows, then half as many, down to one."""
    return [rows >> n for n in range(rows.bit_length())]


def _rows_left(loop: Loop) -> list[int]:
    """How many rows may be left that are no whole tile: all of these are one step, as rows one by
    one would wait for their own few sums. Powers of two, where the number is not known.
    """
    rests = {(end - loop.start) % loop.tile for end in _ends(loop.stop)}
    if all(rest.is_const for rest in rests):
        return sorted({rest.constant for rest in rests} - {0}, reverse=True)
    return _halves(1 << ((loop.unroll - 1).bit_length() - 1))


# Loops written twice, with masks and without, were here for convolutions' edges as well: as fast as
# a mask that chooses a pointer (`codegen/llvm_walk.py`), and 1.5 times as long to compile.
def _phases(loop: Loop, pieces: Pieces) -> Iterator[_Steps]:
    """The main loop and the tail."""
    if loop.tile == 1:
        yield _Steps(loop.start, loop.stop, pieces, False)
        return
    trips = maximum(loop.stop - loop.start, 0)
    one_mask = is_multiple(loop.stop - loop.start, loop.lanes.run)
    if loop.lanes.count > 1 and not loop.carries and trips.interval.at_most(loop.tile) and one_mask:
        # One step for a chunk: a mask costs each lane less than a second copy of the code.
        yield _Steps(loop.start, loop.stop, pieces, (trips % loop.tile) is not ZERO)
        return
    whole = loop.start + trips // loop.tile * loop.tile
    yield _Steps(loop.start, whole, pieces, False)
    # No tail only where there is none whatever the dims are.
    rest = trips % loop.tile
    if rest is not ZERO and _are_rows(loop):
        yield from _in_turn(loop, whole, _rows_left(loop))
    elif rest is not ZERO:
        is_partial = any(loop.axis in carry.inner.axes for carry in loop.carries)
        tail, sure = pieces._replace(unroll=1), 0
        if not is_partial and loop.lanes.count == 1:
            number, sure = _pieces_left(loop, trips, pieces.width)
            tail = Pieces(number, 1, pieces.width)
        yield _Steps(whole, loop.stop, tail, (trips % tail.size) is not ZERO, sure)


def _are_rows(loop: Loop) -> bool:
    """Is it a loop over rows of a tile, each with sums that loops inside carry?"""
    inside = (statement for statement in loop.body if isinstance(statement, Loop))
    return loop.tile == loop.unroll and not loop.carries and any(x.carries for x in inside)


def _pieces_left(loop: Loop, trips: Expression, width: int) -> tuple[int, int]:
    """How many pieces a tail's step has, and how many of them surely are whole. A step is one
    piece; but where loops inside would be walked again for each, with too few sums to fill the
    pipeline, it is all that is left if one step takes it.
    """
    if width > 1 and any(isinstance(statement, Loop) for statement in loop.body):
        rest = trips if trips.interval.at_most(loop.tile) else trips % loop.tile
        least = rest.interval.lo or 0
        number = -(-least // width)
        if number and rest.interval.at_most(number * width):
            return number, least // width
    return 1, 0


Held = dict[Key, tuple[Operand, ...]]


@dataclass(frozen=True, slots=True)
class _Carried:
    """A carry as it is held from step to step: as it is, or, where the greatest of floats is all
    that becomes of it, in integers.
    """

    carry: Carry
    greatest: Map | None

    @staticmethod
    def of(tiles: Tiles, loop: Loop, carry: Carry) -> _Carried:
        dot = added_to(loop, carry)
        pairs = None if dot is None or loop.axis in dot.out.axes else pairs_of(tiles, dot)
        if pairs is not None:
            axes = carry.inner.axes
            firsts = {tuple(places[0][axis] for axis in axes): places for places in pairs}
            return _OfRows(carry, None, firsts)
        held = Type(carry.inner.dtype, tiles.lanes(carry.inner.axes))
        in_integers = held.dtype.is_float and has_integers(tiles.b, held)
        return _Carried(carry, greatest_of(loop, carry) if in_integers else None)

    def initial(self, tiles: Tiles) -> Held:
        """The init, broadcast to all positions."""
        axes = self.carry.inner.axes
        lanes = tiles.lanes(axes)
        values = {
            key: tiles.element(self.carry.init, at, lanes) for key, at in tiles.positions(axes)
        }
        if self.greatest is None:
            return {key: (value,) for key, value in values.items()}
        return {key: begun(tiles.b, value) for key, value in values.items()}

    def bind_inner(self, tiles: Tiles, held: Held) -> None:
        if self.greatest is None:
            tiles.values[self.carry.inner.id] = {key: value for key, (value,) in held.items()}

    def next(
        self, tiles: Tiles, loop: Loop, key: Key, held: tuple[Operand, ...]
    ) -> Sequence[Operand]:
        """What is held in the next step; dead positions keep theirs."""
        axes = self.carry.inner.axes
        position = dict(zip(axes, key, strict=True))
        if self.greatest is None:
            new: Sequence[Operand] = (tiles.element(self.carry.next, position, tiles.lanes(axes)),)
        else:
            (x,) = (arg for arg in self.greatest.args if arg != self.carry.inner)
            x_here = tiles.element(x, position, tiles.lanes(axes))
            new = joined(tiles.b, held, begun(tiles.b, x_here))
        if loop.axis not in axes or loop.axis not in tiles.live:
            return new
        live = tiles.live[loop.axis][position[loop.axis]]
        return [tiles.b.op("select", live, *pair) for pair in zip(new, held, strict=True)]

    def bind_result(self, tiles: Tiles, held: Held) -> None:
        dtype = self.carry.inner.dtype
        tiles.values[self.carry.result.id] = {
            key: parts[0] if self.greatest is None else Greatest(parts, dtype)
            for key, parts in held.items()
        }


@dataclass(frozen=True, slots=True)
class _OfRows(_Carried):
    """Sums of two rows, which a dot adds to together: by the key of the first are both held, by the
    other's nothing.
    """

    pairs: Mapping[Key, tuple[Position, ...]]

    def initial(self, tiles: Tiles) -> Held:
        return {
            key: self.both(tiles, self.carry.init, key)
            for key, _ in tiles.positions(self.carry.inner.axes)
        }

    def both(self, tiles: Tiles, tile: Tile, key: Key) -> tuple[Operand, ...]:
        places, lanes = self.pairs.get(key), tiles.lanes(self.carry.inner.axes)
        return () if places is None else (joined_rows(tiles, tile, places, lanes),)

    def bind(self, tile: Tile, tiles: Tiles, held: Held) -> None:
        values: dict[Key, Row] = {}
        for key, places in self.pairs.items():
            (both,) = held[key]
            values |= {tuple(at[a] for a in tile.axes): Row(both, n) for n, at in enumerate(places)}
        tiles.values[tile.id] = values

    def bind_inner(self, tiles: Tiles, held: Held) -> None:
        self.bind(self.carry.inner, tiles, held)

    def next(
        self, tiles: Tiles, loop: Loop, key: Key, held: tuple[Operand, ...]
    ) -> Sequence[Operand]:
        return self.both(tiles, self.carry.next, key)

    def bind_result(self, tiles: Tiles, held: Held) -> None:
        self.bind(self.carry.result, tiles, held)


def write_loop(tiles: Tiles, loop: Loop, body: Body) -> None:
    """Write the loop; `body` writes its statements. The carries' results are bound after it."""
    if loop.part is not None:
        _write_part(tiles, loop, body)
        return
    whole = tiles.cut(loop)
    tiles.pieces[loop.axis] = whole
    tiles.dealt.pop(loop.axis, None)
    if loop.lanes.count > 1:
        tiles.dealt[loop.axis] = loop.lanes
    carried = [_Carried.of(tiles, loop, carry) for carry in loop.carries]
    state = [carrier.initial(tiles) for carrier in carried]
    in_run = loop.stop in tiles.ends and loop.vector == 1 and not loop.carries
    halves = _in_turn(loop, loop.start, _halves(loop.unroll))
    for steps in halves if in_run else _phases(loop, whole):
        tiles.pieces[loop.axis] = steps.pieces
        state = _phase(tiles, loop, steps, carried, state, body)
    tiles.pieces[loop.axis] = whole
    for carrier, held in zip(carried, state, strict=True):
        carrier.bind_result(tiles, held)


def _write_part(tiles: Tiles, loop: Loop, body: Body) -> None:
    """The one step over a side of a block: what is carried is what comes after it."""

    def at_all(carry: Carry, tile: Tile) -> Elements:
        return {key: tiles.element(tile, at) for key, at in tiles.positions(carry.inner.axes)}

    for carry in loop.carries:
        tiles.values[carry.inner.id] = at_all(carry, carry.init)
    tiles.active.append(loop.axis)
    body(loop.body)
    for carry in loop.carries:
        tiles.values[carry.result.id] = at_all(carry, carry.next)
    tiles.active.pop()


def _phase(
    tiles: Tiles,
    loop: Loop,
    steps: _Steps,
    carried: Sequence[_Carried],
    state: list[Held],
    body: Body,
) -> list[Held]:
    """Write some equal steps; gives what is held after them."""
    # The positions that these steps update; of the loop's own axis a tail takes the first only.
    keys = [[key for key, _ in tiles.positions(carrier.carry.inner.axes)] for carrier in carried]
    # Carries of a loop are single values in expanded IR, while a tile holds one for each of its
    # positions.
    flat = [
        one
        for held, own_keys in zip(state, keys, strict=True)
        for key in own_keys
        for one in held[key]
    ]
    folds = {carrier.greatest for carrier in carried}
    rest = tuple(statement for statement in loop.body if statement not in folds)

    def again(values: Iterable[Operand]) -> list[Held]:
        values = iter(values)
        return [
            {key: tuple(islice(values, len(held[key]))) for key in own_keys}
            for held, own_keys in zip(state, keys, strict=True)
        ]

    def step(base: Operand, values: Sequence[Operand]) -> list[Operand]:
        _enter(tiles, loop, steps, base)
        now = again(values)
        for carrier, held in zip(carried, now, strict=True):
            carrier.bind_inner(tiles, held)
        body(rest)
        following = [
            one
            for carrier, held in zip(carried, now, strict=True)
            for key in held
            for one in carrier.next(tiles, loop, key, held[key])
        ]
        _leave(tiles, loop)
        return following

    after = again(_counted(tiles, steps, flat, step))
    return [{**held, **new} for held, new in zip(state, after, strict=True)]


def _counted(
    tiles: Tiles,
    steps: _Steps,
    carried: list[Operand],
    step: Callable[[Operand, Sequence[Operand]], list[Operand]],
) -> Sequence[Operand]:
    """The steps as a loop; a single one without, and none as nothing."""
    at_least, at_most = steps.trips
    if at_most == 0:
        return carried
    start = tiles.index.scalar(steps.start)
    # One step needs no loop, and with its index a number all offsets fold.
    if at_least == at_most == 1:
        return step(start, carried)
    with tiles.b.loop(start, tiles.index.scalar(steps.stop), steps.pieces.size, carried) as loop:
        loop.next = step(loop.index, loop.inner)
    return loop.results


def _enter(tiles: Tiles, loop: Loop, steps: _Steps, base: Operand) -> None:
    if loop.axis in tiles.dealt:
        first = tiles.index.op("shl", tiles.digit(loop.lanes), loop.lanes.run.bit_length() - 1)
        base = tiles.index.op("add", base, first)
    tiles.index.bind(loop.axis, base)
    if loop.tile > 1:
        tiles.active.append(loop.axis)
    if steps.pieces.width > 1 and loop.lanes.count == 1 and _is_divided(loop.body, loop.axis):
        _split_lanes(tiles, loop.axis, steps)
    run = loop.lanes.run
    if run > 1 and is_multiple(steps.start, run):
        if steps.pieces.across == run:
            tiles.even.add(loop.axis)
        if _is_divided(loop.body, loop.axis):
            _split_runs(tiles, loop)
    if not steps.masked and loop.tile > 1 and steps.pieces == tiles.cut(loop):
        pieces = steps.pieces
        last = loop.axis + (pieces.at(pieces.number - 1) + pieces.width * pieces.neighbours - 1)
        tiles.whole[loop.axis] = all_of(last < end for end in _ends(loop.stop))
    if steps.masked:
        tiles.live[loop.axis] = list(_live(tiles, loop.axis, steps, base))


def _ends(stop: Expression) -> tuple[Expression, ...]:
    return stop.args if stop.op == "min" else (stop,)


def _is_divided(body: Sequence[Statement], axis: Symbol) -> bool:
    """Does an Expression of the body divide the axis?"""
    for statement in body:
        exprs: tuple[Expression, ...] = ()
        if isinstance(statement, Load | Store):
            exprs = statement.offset, statement.guard
        elif isinstance(statement, Index):
            exprs = (statement.expr,)
        elif isinstance(statement, NESTED) and _is_divided(statement.body, axis):
            return True
        if any(is_divided(expr, axis) for expr in exprs):
            return True
    return False


def _split_lanes(tiles: Tiles, axis: Symbol, steps: _Steps) -> None:
    """Name the multiple of the steps' size, or of their lanes, that the axis is in each of them.

    It is one only where these steps start at one: a tail starts where the whole tiles end, which
    is no multiple of the tail's own size.
    """
    pieces = steps.pieces
    size = next((n for n in (pieces.size, pieces.width) if steps.start % n is ZERO), None)
    if size is not None:
        step = opaque(f"{axis.name}.step", 0, None if axis.hi is None else axis.hi // size)
        lane = opaque(f"{axis.name}.lane", 0, pieces.width - 1)
        tiles.index.bind(step, tiles.index.scalar(axis // size))
        tiles.index.bind(lane, integer(0))
        tiles.digits[axis] = Digits(step * size, lane)


def _split_runs(tiles: Tiles, loop: Loop) -> None:
    """Name the multiple of a run's length at which a lane's own run starts."""
    axis, run = loop.axis, loop.lanes.run
    number = opaque(f"{axis.name}.run", 0, None if axis.hi is None else axis.hi // run)
    tiles.index.bind(number, tiles.index.scalar(axis // run))
    tiles.runs[axis] = number * run


def _live(tiles: Tiles, axis: Symbol, steps: _Steps, base: Operand) -> Iterator[Operand]:
    """The positions of each piece that are before the stop: of a run all where its first is, if
    that is so of each.
    """
    op, stop, pieces = tiles.index.op, tiles.index.scalar(steps.stop), steps.pieces
    lanes = Lanes(tiles.index, axis, pieces.width, {})
    run = pieces.across if axis in tiles.dealt else 1
    alike = run if is_multiple(steps.stop - steps.start, run) else 1
    for piece in range(pieces.number):
        if piece < steps.sure:
            yield constant(Type(bool_, lanes.count), True)
            continue
        first = op("add", base, pieces.at(piece // alike * alike))
        yield op("lt", first, stop) if lanes.count == 1 else lanes.below(op("sub", stop, first))


def _leave(tiles: Tiles, loop: Loop) -> None:
    tiles.digits.pop(loop.axis, None)
    tiles.runs.pop(loop.axis, None)
    tiles.even.discard(loop.axis)
    tiles.live.pop(loop.axis, None)
    tiles.whole.pop(loop.axis, None)
    if loop.tile > 1:
        tiles.active.pop()
