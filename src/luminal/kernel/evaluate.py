"""Terms to tile statements: the values of a fused kernel at the current point of its loops.

A term is evaluated in an environment that gives each of its axes as an Expression in the loops'
symbols; At only changes the environment. Equal (term, environment) pairs are one value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from luminal.algebra import terms
from luminal.algebra.terms import Axes, Term, axis_order
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.hlir.attributes import Slot
from luminal.hlir.monoid import Monoid
from luminal.kernel.blocks import Blocks
from luminal.kernel.computed_index import compute
from luminal.kernel.environment import Env
from luminal.kernel.fused import Fused, Place
from luminal.kernel.guards import is_mask
from luminal.kernel.staged import Staged
from luminal.kernel.tile_ir import (
    Buffer,
    Grid,
    Index,
    Kernel,
    Literal,
    Load,
    Map,
    Role,
    Space,
    Store,
    Tile,
)
from luminal.shape.expression import (
    TRUE,
    ZERO,
    Expression,
    Symbol,
    all_of,
    axis,
    const,
    opaque,
    symbol,
)
from luminal.shape.prove import prove

Indices = tuple[tuple[Symbol, Tile], ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A kernel, and what the launch passes it: operands in slot order, values of the parameters."""

    kernel: Kernel
    operands: tuple[Any, ...]
    params: tuple[Expression, ...]
    chunks: Expression


class Evaluator:
    """Emits the statements that compute terms, and collects the operands they touch."""

    def __init__(self, fused: Fused) -> None:
        self.fused = fused
        self.blocks = Blocks()
        self.operands: dict[Any, tuple[int, Place]] = {}
        self.roles: list[Role] = []
        self.scratch: list[Buffer] = []
        self.params: dict[Symbol, Symbol] = {}
        self.bound: dict[Symbol, Tile] = {}  # symbols that stand for integer tiles
        self.facts = [*fused.facts]  # of dims, and of symbols in `bound`
        self.named: set[Symbol] = set()  # symbols that need no other name: parameters, bound tiles
        self.staged: dict[Term, Staged] = {}
        self.orders: dict[Term, Axes] = {}
        self.moves: dict[Hashable, Env] = {}
        self.guards: dict[int, Expression] = {}  # of loads, by tile: where they do not read 0
        self.grid: list[Grid] = []

    # --- the kernel

    def grid_axis(self, chunks: Expression) -> Symbol:
        """One more axis of the grid, with this many chunks."""
        count = self.canonical(chunks)
        symbol = axis(f"g{len(self.grid)}", count)
        self.grid.append(Grid(symbol, count))
        return symbol

    def finish(self) -> Placed:
        """Closes all loops and makes the kernel."""
        while self.blocks.depth:
            self.blocks.close()
        buffers = []
        for (number, place), role in zip(self.operands.values(), self.roles, strict=True):
            size = self.canonical(place.size)
            buffers.append(Buffer(f"b{number}", place.dtype, size, Space.GLOBAL, role))
        kernel = Kernel(
            tuple(self.params.values()),
            tuple(buffers),
            tuple(self.scratch),
            tuple(self.grid),
            tuple(self.blocks.stack[0].statements),
        )
        dims = {param: dim for dim, param in self.params.items()}
        chunks = math.prod((grid.count for grid in self.grid), start=const(1)).substitute(dims)
        return Placed(kernel, tuple(self.operands), tuple(self.params), chunks)

    # --- names

    def canonical(self, expr: Expression) -> Expression:
        """`expr` with the program's dims replaced by the kernel's parameters p0, p1 ..."""
        # Kernels know only numbered parameters, so kernels of different dims have one text, one
        # entry of the cache and one code.
        dims = [s for s in expr.symbols() if s.extent is None and s not in self.named]
        if not dims:
            return expr
        for dim in sorted(dims, key=lambda s: s.sort_key):
            if dim not in self.params:
                assert dim.lo is not None
                assert dim.hi is not None
                self.params[dim] = symbol(f"p{len(self.params)}", dim.lo, dim.hi)
                self.named.add(self.params[dim])
        return expr.substitute({dim: self.params[dim] for dim in dims})

    def operand(self, place: Place, role: Role) -> str:
        """The kernel's name for the buffer of a place."""
        if place.operand not in self.operands:
            self.operands[place.operand] = (len(self.operands), place)
            self.roles.append(role)
        number = self.operands[place.operand][0]
        # Read and written in one kernel: an operand that is overwritten where it lies.
        if self.roles[number] is not role:
            self.roles[number] = Role.INOUT
        return f"b{number}"

    def new_buffer(
        self, dtype: DType, size: Expression, space: Space = Space.SCRATCH, swizzle: int = 0
    ) -> str:
        """The name of one more buffer of working memory."""
        name = f"s{len(self.scratch)}"
        buffer = Buffer(name, dtype, self.canonical(size), space, Role.INOUT, swizzle=swizzle)
        self.scratch.append(buffer)
        return name

    def key(self, term: Term, env: Env) -> Hashable:
        if term not in self.orders:
            self.orders[term] = axis_order(term.axes)
        return (term, env.guard, *(env.values[a] for a in self.orders[term]))

    # --- values

    def evaluate(self, term: Term, env: Env) -> Tile:
        """The tile value of `term` in `env`, computed in the outermost block where it is known.

        Operands first, by a stack: terms are thousands deep.
        """
        stack = [(term, env)]
        while True:
            top, inside = stack[-1]
            key = self.key(top, inside)
            known_tile = self.blocks.find(key)
            waiting = [] if known_tile is not None else self.waiting(top, inside)
            if waiting:
                stack.extend(reversed(waiting))
                continue
            tile = self.emit(top, inside, key) if known_tile is None else known_tile
            stack.pop()
            if not stack:
                return tile

    def waiting(self, term: Term, env: Env) -> list[tuple[Term, Env]]:
        """The operands, with the environments they are read in, that have no value yet."""
        # What is staged is the value at the loops' own positions;
        # behind an At another position is asked for.
        room = self.staged.get(term) if env.is_base else None
        if term in self.fused.reads or (room is not None and room.is_ready):
            return []
        args = (
            term.args[1:] if isinstance(term, terms.At) else term.args if term.is_pointwise else ()
        )
        arm = self.decided(term, env)
        if arm is not None:
            return [(arm, env)] if self.blocks.find(self.key(arm, env)) is None else []
        if is_mask(term):
            if self.blocks.find(self.key(args[1], env)) is None:
                return [(args[1], env)]
            if self.masked(term, env) is not None:
                return []
        wanted = [(arg, env) for arg in args if self.blocks.find(self.key(arg, env)) is None]
        if isinstance(term, terms.At) and not wanted:
            moved = self.move(term, env)
            operand = term.args[0]
            return [] if self.blocks.find(self.key(operand, moved)) else [(operand, moved)]
        return wanted

    def emit(self, term: Term, env: Env, key: Hashable) -> Tile:
        """Computes or loads a term whose operands have values."""
        room = self.staged.get(term) if env.is_base else None
        if room is not None and room.is_ready:
            tile = self.load_staged(room, env)
        else:
            tile = self.compute(term, env)
            if room is not None:
                self.store_staged(room, env, tile)
        # Known where it was computed, the outermost block that can: so whatever is free of a loop
        # stands before it, and equal values are one, without any pass over the statements.
        level = self.blocks.tile_levels[tile.id]
        self.blocks.stack[level].known[key] = tile
        return tile

    def compute(self, term: Term, env: Env) -> Tile:
        if term in self.fused.reads:
            return self.load(term, env)
        if isinstance(term, terms.Literal):
            return self.literal(term.attrs.data, term.dtype)
        if isinstance(term, terms.Index):
            return self.index(term.attrs.substitute(env.values), term.dtype)
        if isinstance(term, terms.At):
            return self.evaluate(term.args[0], self.move(term, env))
        assert term.is_pointwise, f"{term!r} has no place in this kernel"
        arm = self.decided(term, env)
        if arm is not None:
            return self.evaluate(arm, env)
        tile = self.masked(term, env) if is_mask(term) else None
        if tile is not None:
            return tile
        args = tuple(self.evaluate(arg, env) for arg in term.args)
        return self.map(term.op, args, term.dtype)

    def decided(self, term: Term, env: Env) -> Term | None:
        """The arm that a Select takes everywhere in the present loops."""
        if term.op != "Select" or not isinstance(term.args[0], terms.Index):
            return None
        condition = term.args[0].attrs.substitute(env.values)
        return term.args[1 if condition.value else 2] if condition.is_const else None

    def masked(self, term: Term, env: Env) -> Tile | None:
        """The value of `Select(condition, x, 0)` where the load x reads 0 elsewhere anyway."""
        # A load under a guard gives 0 where it does not read: the same condition again is free.
        tile = self.blocks.find(self.key(term.args[1], env))
        condition = self.canonical(term.args[0].attrs.substitute(env.values))
        return tile if tile is not None and self.guards.get(tile.id) == condition else None

    def map(self, op: str, args: tuple[Tile, ...], dtype: DType) -> Tile:
        level = max(self.blocks.tile_levels[arg.id] for arg in args)
        out = self.blocks.new({a for arg in args for a in arg.axes}, dtype, level)
        self.blocks.put(Map(out, op, args), level)
        return out

    def literal(self, data: bytes, dtype: DType) -> Tile:
        key = (data, dtype)
        literals = self.blocks.stack[0].known
        if key not in literals:
            literals[key] = self.blocks.new((), dtype, 0)
            self.blocks.put(Literal(literals[key], data), 0)
        return literals[key]

    def constant(self, value: Any, dtype: DType) -> Tile:
        return self.literal(dtype.numpy.type(value).tobytes(), dtype)

    def identity(self, monoid: Monoid, dtype: DType) -> Tile:
        """What an accumulator starts from."""
        return self.literal(monoid.identity_bytes(dtype), dtype)

    def index(self, expr: Expression, dtype: DType) -> Tile:
        """An Expression in loop symbols as a value."""
        expr = self.canonical(expr)
        if expr.is_const and -(2**63) <= expr.value < 2**63:
            value = dtypes.int64.numpy.type(expr.value).astype(dtype.numpy)
            return self.literal(value.tobytes(), dtype)
        level = self.blocks.level_of(expr.symbols())
        key = (expr, dtype)
        tiles = self.blocks.stack[level].known
        if key not in tiles:
            if expr.symbols().isdisjoint(self.bound):
                out = self.blocks.new(expr.symbols(), dtypes.int64, level)
                self.blocks.put(Index(out, expr), level)
            else:
                out = compute(expr, self.bound, self.map, self.index)
            tiles[key] = out if dtype is dtypes.int64 else self.map("Cast", (out,), dtype)
        return tiles[key]

    def move(self, at: Term, env: Env) -> Env:
        """The environment of At's operand: its axes at the new indices, guarded to lie inside."""
        key = self.key(at, env)
        if key not in self.moves:
            self.moves[key] = self._moved(at, env)
        return self.moves[key]

    def _moved(self, at: Term, env: Env) -> Env:
        values = {a: v for a, v in env.values.items() if a in at.args[0].axes}
        guards = [env.guard]
        for a, position in at.attrs:
            if isinstance(position, Slot):
                index: Expression = self.bind(self.evaluate(at.args[1 + position], env))
            else:
                index = position.substitute(env.values)
            values[a] = index
            assert a.extent is not None
            inside = index >= 0, index < a.extent
            if isinstance(position, Slot) and position.inside:
                self.facts += [c for c in inside if c not in self.facts]
                continue
            # Where the position may be outside, a Select above chooses another value, but loads are
            # made for both arms: so they are guarded, and read 0.
            guards += [c for c in inside if not self.holds(c)]
        return Env(values, all_of(guards), is_base=False)

    def holds(self, condition: Expression) -> bool:
        return condition is TRUE or prove(condition, tuple(self.facts)) is True

    def bind(self, tile: Tile) -> Symbol:
        """A symbol that stands for an integer tile in offsets and guards."""
        name = opaque(f"v{tile.id}")
        self.bound[name] = tile
        self.named.add(name)
        self.blocks.levels[name] = self.blocks.tile_levels[tile.id]
        return name

    # --- memory

    def load(self, term: Term, env: Env) -> Tile:
        place = self.fused.reads[term]
        offset = self.canonical(place.offset(env.values))
        guard = self.canonical(env.guard)
        return self.emit_load(self.operand(place, Role.IN), offset, guard, term.dtype)

    def emit_load(
        self, buffer: str, offset: Expression, guard: Expression, dtype: DType, level: int = 0
    ) -> Tile:
        """A load in the outermost block where the position is known, but not outside of `level`."""
        used = offset.symbols() | guard.symbols()
        indices = self.indices(used)
        level = max(level, self.blocks.level_of(used))
        out = self.blocks.new(used | {a for _, t in indices for a in t.axes}, dtype, level)
        self.blocks.put(Load(out, buffer, offset, guard, indices), level)
        self.guards[out.id] = guard
        return out

    def indices(self, used: frozenset[Symbol]) -> Indices:
        bound = [s for s in used if s in self.bound]
        return tuple((s, self.bound[s]) for s in sorted(bound, key=lambda s: s.sort_key))

    def store(
        self, place: Place, offset: Expression, value: Tile, guard: Expression, *, add: bool
    ) -> None:
        """Stores in the innermost open block."""
        offset, guard = self.canonical(offset), self.canonical(guard)
        indices = self.indices(offset.symbols() | guard.symbols())
        name = self.operand(place, Role.INOUT if add else Role.OUT)
        self.blocks.put(Store(name, offset, value, guard, indices, add), self.blocks.depth)

    def load_staged(self, room: Staged, env: Env, turn: Expression = ZERO) -> Tile:
        """What is staged for a point; loaded no further out than where it is written anew."""
        offset = self.canonical(room.offset(env, turn))
        return self.emit_load(room.buffer, offset, TRUE, room.dtype, room.level)

    def store_staged(self, room: Staged, env: Env, tile: Tile, turn: Expression = ZERO) -> None:
        """Stores outside of the innermost loops along which the value is the same."""
        offset = self.canonical(room.offset(env, turn))
        used = offset.symbols()
        level = max(room.level, self.blocks.tile_levels[tile.id], self.blocks.level_of(used))
        self.blocks.put(Store(room.buffer, offset, tile), level)
        # Stored inside of a loop that may have no trips is maybe not stored.
        if not self.blocks.may_be_skipped(room.level, level, used):
            room.offsets.add(offset)

    def staged_at(self, points: Sequence[Env]) -> None:
        """After a loop nest with these points inside: what it staged at all of them can be read."""
        for room in self.staged.values():
            room.is_ready = room.is_ready or all(
                self.canonical(room.offset(p)) in room.offsets for p in points
            )
