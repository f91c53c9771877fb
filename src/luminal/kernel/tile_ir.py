"""Tile IR: one kernel as loops over tiles, with every choice of schedule written out.

A kernel runs its body once per point of its grid. Inside, each Loop walks one axis in steps of a
*tile*: `unroll * lanes.size * vector` consecutive positions, handled together. So tiling, unrolling
and vectorization are three numbers of a loop. A value computed inside has the tile axes it depends
on: `%5[m, n]` with m unrolled 8 times and n in 2 vectors of 16 is an
8 x 32 register tile, `%3[m]` eight scalars, `%1[]` one. Operands broadcast along the axes they
lack. Width lives only in the loops' bindings: renderers expand it.

A loop bound to neighbours takes one step, over as many positions as a dot multiplies together. What
has its axis holds them side by side, in a word: it is loaded, contracted, which adds them up, or
stored.

A loop bound to a part, a side of the blocks that lanes multiply together by a dot, takes one step
over all of it. A value with such axes is a fragment: the lanes hold it between them as the dot
says. Factors, which have rows or columns and steps of the sum, are loaded and contracted; results
are computed with like any other value.

A kernel with loops bound to lanes is run by groups: a chunk of the grid by all lanes of one. Every
lane takes every step of every loop, so that all meet at each barrier; of a tile it handles the
positions that are its own. A value without an axis of lanes is the same in all of them. Reduce
combines what lanes hold, as many as a `subgroup` has without memory; else they learn of each other
through shared memory and scratch, where a Barrier stands between what one lane writes and another
reads.

Tails are predicated, by guards: a tile position with `axis >= stop` is dead. Dead loads read 0,
dead stores do nothing, dead positions leave carried values as they are. Offsets, guards and bounds
are Expressions over grid and loop axes, parameters and, for data-dependent access, symbols bound to
integer tiles (`indices`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from luminal.base.dots import Dot
from luminal.base.dtypes import DType
from luminal.base.forks import cached_property
from luminal.base.records import dataclass
from luminal.hlir.attributes import CustomKernel, Shape
from luminal.kernel.boxes import Begin, BoxStatement
from luminal.kernel.lanes import ONE_LANE, Lanes, Part
from luminal.shape.expression import TRUE, ZERO, Expression, Symbol, product_of

COPIED_BYTES = (4, 8, 16)
"""What a lane copies to shared memory at once."""


class Binding(enum.Enum):
    """What walks an axis. The CPU uses vector, neighbours, unroll and serial."""

    CLUSTER = "cluster"
    GROUP = "group"
    LANE = "lane"
    VECTOR = "vector"
    NEIGHBOURS = "neighbours"
    PART = "part"
    UNROLL = "unroll"
    SERIAL = "serial"


class Space(enum.Enum):
    """The memory in which a tile value or buffer lives: `shared` is a group's own fast memory, of
    literal size, `scratch` working memory of a worker (a group, where there are such), `tensor`
    that of the sums of some dots. The CPU has neither shared nor tensor.
    """

    REGISTER = "register"
    SHARED = "shared"
    SCRATCH = "scratch"
    TENSOR = "tensor"
    GLOBAL = "global"


class Role(enum.Enum):
    """What a kernel does with a global buffer."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


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
    """`size` elements: a kernel operand (global) or a worker's working memory (scratch, shared).

    `non_temporal`: results are stored past the caches, as nothing reads them soon. `is_aligned`: it
    starts at a multiple of 16 bytes where lanes run the kernel; else of its dtype's size.
    """

    name: str
    dtype: DType
    size: Expression
    space: Space = Space.GLOBAL
    role: Role = Role.IN
    non_temporal: bool = False
    is_aligned: bool = True
    constant: bool = False  # no launch of its list writes it
    swizzle: int = 0  # bytes of the lines (`base/swizzles.py`) whose pieces change places; 0: none


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
    """`out = buffer[offset]` where `guard` holds, else 0; `indices` bind symbols to tiles.

    Where `prefetch` is not 0 as much as all of the tile, so many elements further on, is read soon
    and may be fetched.
    """

    out: Tile
    buffer: str
    offset: Expression  # in elements
    guard: Expression = TRUE
    indices: tuple[tuple[Symbol, Tile], ...] = ()
    prefetch: Expression = ZERO


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

    Of a dot of several neighbours `a` and `b` have one axis more, which is bound to these; of one
    that lanes compute together it is the part of the steps. `scales`: of both factors, or none.
    """

    out: Tile
    acc: Tile
    a: Tile
    b: Tile
    dot: Dot
    scales: tuple[Tile, ...] = ()


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`buffer[offset]`, in tensor memory, becomes `a * b`, and where `adds` holds as much more than
    it was, over the axes of `a` and `b`, as a Contract by `dot`. It is there after an Await.
    """

    buffer: str
    offset: Expression
    a: Tile
    b: Tile
    dot: Dot
    adds: Expression
    scales: tuple[Tile, ...] = ()


# The scores of attention are results of one product and factors of the next: what a lane holds of
# them is what it has to hold, so they never leave the registers.
@dataclass(frozen=True, slots=True)
class Retile:
    """`out`, rows and steps of the sum as the first factor of a matrix dot has them, is `value`,
    rows and columns of results of that dot, which chains (`Dot.chains`): step k is the column at
    `first + k` among all that `columns`, the axes of several blocks of columns and of a block's,
    have.
    """

    out: Tile
    value: Tile
    columns: tuple[Symbol, ...]
    first: int


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


# Lanes that moving leaves without a value keep theirs under a constant mask. Filling them with
# zeros looks simpler, and makes LLVM expand vectors (`vexpandps`), at twice the time.
@dataclass(frozen=True, slots=True)
class Prefix:
    """`out` at each position of the vector over `axis` is `value` there and before, combined with
    `op` as of Reduce; `total` is all of them. Dead positions count for nothing.

    In log2 of the lanes rounds, each with what stands 1, 2, 4 ... positions before (Hillis and
    Steele, Data parallel algorithms, 1986).
    """

    out: Tile
    total: Tile
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
    """Walks `axis` from `start` to `stop` in steps of `unroll * lanes.size * vector`, of which one
    of lanes and vector is 1: neighbouring runs belong to neighbouring lanes. Or in the one step
    from 0 of all its `neighbours`, or of all the positions of a `part`.
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
    part: Part | None = None

    @property
    def tile(self) -> int:
        return self.unroll * self.across * self.neighbours

    @property
    def across(self) -> int:
        """Positions side by side: in a vector, in the lanes, or in a part."""
        return self.lanes.size * self.vector * (1 if self.part is None else self.part.extent)

    @property
    def bindings(self) -> tuple[tuple[Binding, int | Lanes | Part], ...]:
        bindings: list[tuple[Binding, int | Lanes | Part]] = [(Binding.SERIAL, 1)]
        if self.unroll > 1:
            bindings.append((Binding.UNROLL, self.unroll))
        if self.lanes.count > 1:
            bindings.append((Binding.LANE, self.lanes))
        if self.vector > 1:
            bindings.append((Binding.VECTOR, self.vector))
        if self.neighbours > 1:
            bindings.append((Binding.NEIGHBOURS, self.neighbours))
        if self.part is not None:
            bindings.append((Binding.PART, self.part))
        return tuple(bindings)


# Runs let rows that choose one matrix by an integer share its strip (a mixture of experts). Nothing
# need be sorted for the result to be right: sorting only makes the runs long.
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


# Packing a strip is 5% of a chunk of 512 rows. A worker runs chunks that follow each other, so with
# this they share a strip, and chunks can stay small enough for even shares. Devices, whose workers
# take every n-th chunk, run it always.
@dataclass(frozen=True, slots=True)
class Once:
    """Runs the body, which fills scratch that nothing else writes, unless its worker has just run
    the chunk before this one, at the same positions along the first `outer` axes of the grid: it
    depends on no others, so what it would write is there. It stands outside of all loops.
    """

    outer: int
    body: tuple[Statement, ...]


# Kernels that need nothing of each other leave units idle one after the other where each has few
# chunks. As sections of one kernel they run side by side, for the price of one launch.
@dataclass(frozen=True, slots=True)
class Section:
    """Runs the body, which is all that a kernel does in its chunks from `first` on: as many as
    `grid` has points, whose axes it binds. Sections are all that the kernel's body consists of, and
    its own grid has one axis.
    """

    first: Expression
    grid: tuple[Grid, ...]
    body: tuple[Statement, ...]

    @property
    def chunks(self) -> Expression:
        return product_of(axis.count for axis in self.grid)


@dataclass(frozen=True, slots=True)
class SortRow:
    """Stable ascending sort of `extent` elements, NaN last, -0 equal to +0.

    `source[offset + k*stride]` are the keys; the sorted keys go to `values` and their positions
    (i64) to `order`, at the same offset and stride. `work` and `work_order` are scratch buffers of
    2*extent; positions are moved as `sort_memory.order_dtype`.
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

    `operands` and `results` are buffers with their shapes: their extents and `numbers` are params.
    """

    kernel: CustomKernel
    operands: tuple[tuple[str, Shape], ...]
    results: tuple[tuple[str, Shape], ...]
    chunk: Symbol
    chunks: Expression
    numbers: tuple[Symbol, ...] = ()  # that a library is told

    @property
    def is_python(self) -> bool:
        return self.kernel.ir is None

    @property
    def extents(self) -> tuple[Expression, ...]:
        """The extents of all dimensions, operands first."""
        return tuple(n for _, shape in (*self.operands, *self.results) for n in shape)


@dataclass(frozen=True, slots=True)
class Barrier:
    """All lanes of `scope`, a group or a cluster, meet: what each has written all can read then."""

    scope: Binding


@dataclass(frozen=True, slots=True)
class Copy:
    """`count` elements from `source[source_offset]` on go to `buffer[offset]`, as they lie, or 0
    where `guard` fails; into shared memory, without registers.

    Nothing is there before an Await, and what is read there until then may be old or new.
    """

    buffer: str
    offset: Expression
    source: str
    source_offset: Expression
    count: int
    guard: Expression = TRUE


class Batch(enum.Enum):
    """What is asked for in batches, and awaited later."""

    COPIES = "copies"
    PRODUCTS = "products"


@dataclass(frozen=True, slots=True)
class Commit:
    """The copies since the last Commit, or the products since the last Begin, are a batch."""

    of: Batch = Batch.COPIES


@dataclass(frozen=True, slots=True)
class Await:
    """All batches but the `younger` last ones have come. What a lane copied it can read then, and
    the others after a Barrier; products have been added up.
    """

    younger: int
    of: Batch = Batch.COPIES


Statement = (
    Literal
    | Index
    | Map
    | Load
    | Store
    | Contract
    | Accumulate
    | Retile
    | Reduce
    | Prefix
    | Loop
    | Runs
    | If
    | Once
    | Section
    | SortRow
    | Call
    | Barrier
    | Copy
    | Commit
    | Await
    | Begin
    | BoxStatement
)
NESTED = Loop | Runs | If | Once | Section  # statements with a body


@dataclass(frozen=True, slots=True)
class Grid:
    """One axis of the grid: `count` chunks, run in any order by any worker."""

    axis: Symbol
    count: Expression


def every_statement(body: Sequence[Statement]) -> Iterator[Statement]:
    """The statements of a body and all inside of them, outer before inner."""
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
    operands in slot order, `scratch` this worker's working memory, shared or not. The lanes of a
    `subgroup`, a power of two that divides the group, exchange values where they meet.
    """

    params: tuple[Symbol, ...]
    buffers: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    grid: tuple[Grid, ...]
    body: tuple[Statement, ...]
    subgroup: int = 1

    def statements(self) -> Iterator[Statement]:
        """Every statement, outer before inner."""
        return every_statement(self.body)

    @property
    def call(self) -> Call | None:
        """The hand-written code that is all of this kernel, if it is such a one."""
        return next((statement for statement in self.body if isinstance(statement, Call)), None)

    @cached_property
    def lanes(self) -> int:
        """The lanes of a group, by which a chunk is run; 1: there are no groups."""
        loops = [statement for statement in self.statements() if isinstance(statement, Loop)]
        dealt = [loop.lanes for loop in loops if loop.part is None]
        dealt += [loop.part.lanes for loop in loops if loop.part is not None]
        return max((lanes.count * lanes.stride for lanes in dealt), default=1)

    def tile_shapes(self) -> dict[Symbol, tuple[int, int]]:
        """Unroll and vector of each loop axis, by the first loop over it."""
        shapes: dict[Symbol, tuple[int, int]] = {}
        for statement in self.statements():
            if isinstance(statement, Loop):
                shapes.setdefault(statement.axis, (statement.unroll, statement.vector))
        return shapes
