"""Tile IR: one kernel as loops over tiles, with every choice of schedule written out.

A kernel runs its body once per point of its grid. Inside, each Loop walks one axis in steps of a
*tile*: `unroll * lanes * vector` consecutive positions, handled together. A value computed inside
has the tile axes it depends on: `%5[m, n]` with m unrolled 8 times and n in 2 vectors of 16 is an
8 x 32 register tile, `%3[m]` eight scalars, `%1[]` one. Operands broadcast along the axes they
lack. Width lives only in the loops' bindings: renderers expand it.

A loop bound to neighbours takes one step, over as many positions as a dot multiplies together. What
has its axis holds them side by side, in a word: it is loaded, contracted, which adds them up, or
stored.

A kernel with loops bound to lanes is run by groups: a chunk of the grid by all lanes of one. Every
lane takes every step of every loop, so that all meet at each barrier; of a tile it handles the
positions that are its own. A value without an axis of lanes is the same in all of them. Reduce
combines what lanes hold; else they learn of each other through shared memory and scratch, where a
Barrier stands between what one lane writes and another reads.

Tails are guards: a tile position with `axis >= stop` is dead. Dead loads read 0, dead stores do
nothing, dead positions leave carried values as they are. Offsets, guards and bounds are Expressions
over grid and loop axes, parameters and, for data-dependent access, symbols bound to integer tiles
(`indices`).
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.dots import Dot
from luminal.dtypes import DType
from luminal.forks import cached_property
from luminal.hlir.attributes import CustomKernel, Shape
from luminal.shape.expression import TRUE, Expression, Symbol


class Binding(enum.Enum):
    """What walks an axis. The CPU uses grid, vector, neighbours, unroll and serial."""

    GRID = "grid"
    GROUP = "group"
    LANE = "lane"
    VECTOR = "vector"
    NEIGHBOURS = "neighbours"
    UNROLL = "unroll"
    SERIAL = "serial"


class Space(enum.Enum):
    """Where a tile value or buffer lives: `shared` is a group's own fast memory, of literal size,
    `scratch` working memory of a worker (a group, where there are such). The CPU has no shared.
    """

    REGISTER = "register"
    FRAGMENT = "fragment"
    SHARED = "shared"
    SCRATCH = "scratch"
    GLOBAL = "global"


class Role(enum.Enum):
    """What a kernel does with a global buffer."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a loop deals its positions to the lanes of a group: as the digit of a lane's number that
    counts to `count` in steps of `stride`. Loops inside each other have digits of their own.
    """

    count: int = 1
    stride: int = 1

    def meets(self, other: Lanes) -> bool:
        """Have the two a part of the lane's number in common?"""
        return max(self.stride, other.stride) < min(
            self.count * self.stride, other.count * other.stride
        )

    def __str__(self) -> str:
        return f"{self.count}" if self.stride == 1 else f"{self.count} by {self.stride}"


ONE_LANE = Lanes()


@dataclass(frozen=True, slots=True)
class Tile:
    """A value: one element per position of its tile axes. Defined once (SSA)."""

    id: int
    axes: tuple[Symbol, ...]
    dtype: DType
    space: Space = Space.REGISTER

    def __str__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` elements: a kernel operand (global) or a worker's working memory (scratch, shared)."""

    name: str
    dtype: DType
    size: Expression
    space: Space = Space.GLOBAL
    role: Role = Role.IN


@dataclass(frozen=True, slots=True)
class Literal:
    """`out` is one exact value (a NumPy scalar of out's dtype; compared by its bytes)."""

    out: Tile
    data: bytes

    @property
    def value(self) -> Any:
        return np.frombuffer(self.data, self.out.dtype.numpy)[0]


@dataclass(frozen=True, slots=True)
class Index:
    """`out` is an Expression in axes and parameters, as i64, at each tile position."""

    out: Tile
    expr: Expression


@dataclass(frozen=True, slots=True)
class Map:
    """`out = op(args)`: an HLIR pointwise op; the operands broadcast to the union of their axes."""

    out: Tile
    op: str
    args: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """`out = buffer[offset]` where `guard` holds, else 0; `indices` bind symbols to tiles."""

    out: Tile
    buffer: str
    offset: Expression  # in elements
    guard: Expression = TRUE
    indices: tuple[tuple[Symbol, Tile], ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[offset] = value` (or `+=`) where `guard` holds.

    With data-dependent offsets positions are stored in row-major order of the loops, one at a time.
    What is added is added at every tile position of the loops around, depend on it or not.
    """

    buffer: str
    offset: Expression
    value: Tile
    guard: Expression = TRUE
    indices: tuple[tuple[Symbol, Tile], ...] = ()
    add: bool = False


@dataclass(frozen=True, slots=True)
class Contract:
    """`out = acc + a * b` as the row `dot` says, over the axes of out.

    Of a dot of several neighbours `a` and `b` have one axis more, which is bound to these.
    """

    out: Tile
    acc: Tile
    a: Tile
    b: Tile
    dot: Dot


@dataclass(frozen=True, slots=True)
class Reduce:
    """`out = value` folded over the tile positions of `axis`, those of all lanes, with `op` (Add,
    Mul or Maximum).

    It stands after the loop over `axis`: the carried partial results, one per position, become one.
    """

    out: Tile
    op: str
    value: Tile
    axis: Symbol


@dataclass(frozen=True, slots=True)
class Carry:
    """A loop-carried value: `inner` is `init` in the first step, then the last step's `next`.

    `result` is the value after the loop (`init` if it made no step). Its axes may include the
    loop's own axis: one partial result per tile position.
    """

    result: Tile
    init: Tile
    inner: Tile
    next: Tile


@dataclass(frozen=True, slots=True)
class Loop:
    """Walks `axis` from `start` to `stop` in steps of `unroll * lanes.count * vector`, of which one
    of lanes and vector is 1: neighbours belong to neighbouring lanes. Or in the one step from 0 of
    all its `neighbours`.
    """

    axis: Symbol
    start: Expression
    stop: Expression
    body: tuple[Statement, ...]
    carries: tuple[Carry, ...] = ()
    unroll: int = 1
    vector: int = 1
    lanes: Lanes = ONE_LANE
    neighbours: int = 1

    @property
    def tile(self) -> int:
        return self.unroll * self.across * self.neighbours

    @property
    def across(self) -> int:
        """Positions side by side: in a vector, or in the lanes."""
        return self.lanes.count * self.vector

    @property
    def bindings(self) -> tuple[tuple[Binding, int | Lanes], ...]:
        found: list[tuple[Binding, int | Lanes]] = [(Binding.SERIAL, 1)]
        if self.unroll > 1:
            found.append((Binding.UNROLL, self.unroll))
        if self.lanes.count > 1:
            found.append((Binding.LANE, self.lanes))
        if self.vector > 1:
            found.append((Binding.VECTOR, self.vector))
        if self.neighbours > 1:
            found.append((Binding.NEIGHBOURS, self.neighbours))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Runs:
    """Walks the runs among the positions `start` .. `stop` - 1: positions that follow each other
    and at which each key, an integer at an offset in terms of `axis`, has one value.

    `axis` is the first position of the run, `end` the one after its last.
    """

    axis: Symbol
    end: Symbol
    start: Expression
    stop: Expression
    keys: tuple[tuple[str, Expression], ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Runs the body where `condition`, free of tile axes, holds."""

    condition: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class SortRow:
    """Stable ascending sort of `extent` elements, NaN last, -0 equal to +0.

    `source[offset + k*stride]` are the keys; the sorted keys go to `values` and their positions
    (i64) to `order`, at the same offset and stride. `work` and `work_order` are scratch buffers of
    2*extent.
    """

    source: str
    values: str
    order: str
    offset: Expression
    stride: Expression
    extent: Expression
    work: str
    work_order: str


@dataclass(frozen=True, slots=True)
class Call:
    """Runs hand-written code over whole row-major buffers: IR once per chunk, Python just once.

    `operands` and `results` are buffers with their shapes, whose extents are parameters.
    """

    kernel: CustomKernel
    operands: tuple[tuple[str, Shape], ...]
    results: tuple[tuple[str, Shape], ...]
    chunk: Symbol
    chunks: Expression

    @property
    def is_python(self) -> bool:
        return self.kernel.ir is None

    @property
    def extents(self) -> tuple[Expression, ...]:
        """Of all dimensions, operands first."""
        return tuple(n for _, shape in (*self.operands, *self.results) for n in shape)


@dataclass(frozen=True, slots=True)
class Barrier:
    """All lanes of `scope` (a group) meet: what each has written before, all can read after it."""

    scope: Binding


Statement = (
    Literal
    | Index
    | Map
    | Load
    | Store
    | Contract
    | Reduce
    | Loop
    | Runs
    | If
    | SortRow
    | Call
    | Barrier
)
NESTED = Loop | Runs | If  # statements with a body


@dataclass(frozen=True, slots=True)
class Grid:
    """One axis of the grid: `count` chunks, run in any order by any worker."""

    axis: Symbol
    count: Expression


def every_statement(body: Sequence[Statement]) -> Iterator[Statement]:
    """Those of a body and of all inside, outer before inner."""
    stack = list(reversed(body))
    while stack:
        statement = stack.pop()
        yield statement
        if isinstance(statement, NESTED):
            stack.extend(reversed(statement.body))


@dataclass(frozen=True)
class Kernel:
    """One launchable piece of code.

    `params` are the i64 parameters (dims of the program under canonical names), `buffers` the
    operands in slot order, `scratch` this worker's working memory, shared or not.
    """

    params: tuple[Symbol, ...]
    buffers: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    grid: tuple[Grid, ...]
    body: tuple[Statement, ...]

    @cached_property
    def text(self) -> str:
        """See `to_text`."""
        return _written(self)

    def statements(self) -> Iterator[Statement]:
        """Every statement, outer before inner."""
        return every_statement(self.body)

    @property
    def call(self) -> Call | None:
        """The hand-written code that is all of this kernel, if it is such a one."""
        return next((each for each in self.body if isinstance(each, Call)), None)

    @cached_property
    def lanes(self) -> int:
        """The lanes of a group, by which a chunk is run; 1: there are no groups."""
        loops = (each.lanes for each in self.statements() if isinstance(each, Loop))
        return max((lanes.count * lanes.stride for lanes in loops), default=1)

    def tile_shapes(self) -> dict[Symbol, tuple[int, int]]:
        """Unroll and vector of each loop axis, by the first loop over it."""
        shapes: dict[Symbol, tuple[int, int]] = {}
        for statement in self.statements():
            if isinstance(statement, Loop):
                shapes.setdefault(statement.axis, (statement.unroll, statement.vector))
        return shapes


def to_text(kernel: Kernel) -> str:
    """The kernel as text: canonical names make it the key under which it is compiled and priced."""
    return kernel.text


def _written(kernel: Kernel) -> str:
    group = f" by groups of {kernel.lanes}" if kernel.lanes > 1 else ""
    params = ", ".join(f"{p.name} in {p.lo}..{p.hi}" for p in kernel.params)
    lines = [f"kernel({params}){group} {{"]
    for buffer in (*kernel.buffers, *kernel.scratch):
        kind = buffer.role.value if buffer.space is Space.GLOBAL else buffer.space.value
        lines.append(f"  {kind} {buffer.name}: {buffer.dtype}[{buffer.size}]")
    for grid in kernel.grid:
        lines.append(f"  grid {grid.axis.name} in 0..<{grid.count}")
    _block(kernel.body, "  ", lines)
    return "\n".join([*lines, "}"])


def headline(statement: Statement) -> str:
    """The statement's own printed line: of one with a body, its head without carries and body."""
    lines: list[str] = []
    _block((statement,), "", lines)
    return lines[0].split("\n")[0]


def _block(body: tuple[Statement, ...], indent: str, lines: list[str]) -> None:
    for statement in body:
        if isinstance(statement, Loop):
            carries = "".join(f"\n{indent}  {_carry(c)}" for c in statement.carries)
            bound = "".join(f" {kind.value}({n})" for kind, n in statement.bindings[1:])
            head = f"for {statement.axis.name} in {statement.start}..<{statement.stop}{bound}:"
            lines.append(f"{indent}{head}{carries}")
            _block(statement.body, indent + "  ", lines)
        elif isinstance(statement, Runs):
            keys = ", ".join(f"{buffer}[{offset}]" for buffer, offset in statement.keys)
            ends = f"{statement.axis.name}..<{statement.end.name}"
            span = f"{statement.start}..<{statement.stop}"
            lines.append(f"{indent}for runs {ends} in {span} of {keys}:")
            _block(statement.body, indent + "  ", lines)
        elif isinstance(statement, If):
            lines.append(f"{indent}if {statement.condition}:")
            _block(statement.body, indent + "  ", lines)
        else:
            lines.append(indent + _line(statement))


def _typed(tile: Tile) -> str:
    return f"{tile}: {tile.dtype}[{', '.join(axis.name for axis in tile.axes)}]"


def _carry(carry: Carry) -> str:
    after = _typed(carry.result)
    return f"carry {_typed(carry.inner)} = {carry.init} -> {carry.next}, after {after}"


def _access(statement: Load | Store) -> str:
    bound = "".join(f", {symbol.name}={tile}" for symbol, tile in statement.indices)
    guard = "" if statement.guard is TRUE else f" if {statement.guard}"
    return f"{statement.buffer}[{statement.offset}{bound}]{guard}"


def _line(statement: Statement) -> str:
    match statement:
        case Literal(out):
            return f"{_typed(out)} = literal {statement.value} (0x{statement.data[::-1].hex()})"
        case Index(out, expr):
            return f"{_typed(out)} = index {expr}"
        case Map(out, op, args):
            return f"{_typed(out)} = {op} {' '.join(map(str, args))}"
        case Load(out):
            return f"{_typed(out)} = load {_access(statement)}"
        case Store():
            return (
                f"{'add' if statement.add else 'store'} {_access(statement)} <- {statement.value}"
            )
        case Contract(out, acc, a, b, dot):
            by = f" by {dot}" if dot.k > 1 else ""
            return f"{_typed(out)} = contract {acc} + {a} * {b}{by}"
        case Reduce(out, op, value, axis):
            return f"{_typed(out)} = reduce {op} {value} over {axis.name}"
        case SortRow():
            where = f"{statement.offset} + k*{statement.stride}, k < {statement.extent}"
            target = f"{statement.values}, {statement.order}"
            return f"sort {statement.source} -> {target} at {where}"
        case Call():
            return _call(statement)
        case Barrier(scope):
            return f"barrier {scope.value}"
        case _:
            raise AssertionError(statement)


def _call(call: Call) -> str:
    """With a hash of the IR: equal code has equal text."""
    ir = call.kernel.ir
    code = "python" if ir is None else f"ir {hashlib.sha256(ir.encode()).hexdigest()[:32]}"
    operands, results = (
        ", ".join(f"{name}[{', '.join(map(str, shape))}]" for name, shape in buffers)
        for buffers in (call.operands, call.results)
    )
    part = f"{call.chunk.name} of {call.chunks}"
    return f"call {call.kernel.name!r} ({code}) ({operands}) -> ({results}), {part}"
