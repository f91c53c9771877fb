"""Expanded IR: one kernel as explicit loops over scalars and vectors.

What tile IR leaves to a machine is written out: every value is a scalar or a vector of `lanes`
elements and is defined once (SSA), an address is i64 arithmetic like any other, a tail is a loop of
its own or a mask. A renderer walks the statements and spells each; it decides nothing.

Dtypes are those that every device computes in: bool lies in memory as u8 (0 or 1), short floats are
u16 words everywhere and are converted by operations on bits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.expand.operands import CONDITION as CONDITION
from luminal.expand.operands import INDEX as INDEX
from luminal.expand.operands import LINE as LINE
from luminal.expand.operands import Constant as Constant
from luminal.expand.operands import Operand as Operand
from luminal.expand.operands import Type as Type
from luminal.expand.operands import Value as Value
from luminal.expand.operands import memory_dtype as memory_dtype
from luminal.kernel.boxes import Tensor
from luminal.kernel.tile_ir import Batch, Buffer
from luminal.shape.expression import Expression, Symbol


@dataclass(frozen=True, slots=True)
class Apply:
    """`out = op(args)`: a row of `operations.OPERATIONS`, lane by lane where there are lanes."""

    out: Value
    op: str
    args: tuple[Operand, ...]


# Where the mask does not hold memory is not touched: reading beyond an array, even a value that
# nobody uses, may be a page that is not there.
@dataclass(frozen=True, slots=True)
class Load:
    """`out = buffer[address + distance]`, in elements, which have the buffer's `memory_dtype`, or
    in words of several of them: the buffer is counted in these then.

    Of a scalar address a vector takes the elements that follow it, of a vector of addresses each
    lane its own. Where `mask` (a bool per lane of out) does not hold, the lane is 0 and memory is
    not touched: the address may be anything there. Accesses that are a constant apart share an
    address and differ in distance. `is_aligned`: a vector that is accessed as one, under one mask,
    from a multiple of its lanes on.
    """

    out: Value
    buffer: str
    address: Operand
    mask: Operand | None = None
    distance: int = 0
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[address + distance] = value` where `mask` holds; addresses and mask as in Load.

    Lanes with addresses of their own never meet at one address.
    """

    buffer: str
    address: Operand
    value: Operand
    mask: Operand | None = None
    distance: int = 0
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """What lies at `buffer[address + distance]`, if that is in the buffer at all, is read soon."""

    buffer: str
    address: Operand
    distance: int


@dataclass(frozen=True, slots=True)
class Carry:
    """A loop-carried value: `inner` is `init` in the first step, then the last step's `next`.

    `result` is the value after the loop (`init` if it made no step).
    """

    result: Value
    init: Operand
    inner: Value
    next: Operand


@dataclass(frozen=True, slots=True)
class Loop:
    """`for (index = start; index < stop; index += step)`; all are i64, or i32, and the step is
    positive.
    """

    index: Value
    start: Operand
    stop: Operand
    step: int
    carries: tuple[Carry, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`result` is `then`, which the If's body may define, where the condition holds."""

    result: Value
    then: Operand
    otherwise: Operand


@dataclass(frozen=True, slots=True)
class If:
    """Runs the body where `condition`, a scalar bool, holds; `choices` are bound after it.

    `seldom`: that is not to be expected.
    """

    condition: Operand
    choices: tuple[Choice, ...]
    body: tuple[Statement, ...]
    seldom: bool = False


@dataclass(frozen=True, slots=True)
class Barrier:
    """All lanes of a group meet here, once for each time that one comes by: all or none do. What
    was written before it, to shared memory or any other, can be read after it. Or of a cluster.
    """

    of_cluster: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """`out` is what `value` is in the lane whose number differs in the bit `distance`, a power of
    two below the kernel's `subgroup`. All lanes come by, as at a Barrier; no memory is ordered.
    """

    out: Value
    value: Operand
    distance: int


@dataclass(frozen=True, slots=True)
class Multiply:
    """`outs` is `acc + a * b` of the blocks that the lanes hold between them as the fragments of
    `dot` say: in each lane results, words of the first factor, words of the second one. The lanes
    whose numbers are alike but for the first `dot.together` do it together. All lanes come by.
    `scales`: the lane's words of those of both factors, or none.
    """

    outs: tuple[Value, ...]
    dot: Dot
    acc: tuple[Operand, ...]
    a: tuple[Operand, ...]
    b: tuple[Operand, ...]
    scales: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """A block of a factor that a dot reads in shared memory, from `buffer[address + distance]` on:
    where that is before pieces change places. Lines of the buffer's width follow each other along
    rows or columns or, `turned`, along the sum; tiles of lines lie `apart`. All are elements.
    """

    buffer: str
    address: Operand
    distance: int
    apart: int
    turned: bool


@dataclass(frozen=True, slots=True)
class MultiplyLeft:
    """`outs` becomes `acc + a * b`, as of a Multiply, of blocks of factors that `dot` reads where
    they are, the first one in registers too: at some time until the lanes' Await for their batch.
    Until then `outs` are there for further products only. All lanes come by.
    """

    outs: tuple[Value, ...]
    dot: Dot
    acc: tuple[Operand, ...]
    a: Left | tuple[Operand, ...]
    b: Left

    @property
    def left(self) -> tuple[Left, ...]:
        """The factors that are read in shared memory."""
        return (self.b,) if isinstance(self.a, tuple) else (self.a, self.b)

    @property
    def held(self) -> tuple[Operand, ...]:
        """The registers of the first factor, if that is not one of these."""
        return self.a if isinstance(self.a, tuple) else ()

    @property
    def starts(self) -> bool:
        """Is it the first one, that is added to nothing?"""
        return all(isinstance(acc, Constant) and not acc.values[0] for acc in self.acc)


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Results in tensor memory, from column `address + distance` of `buffer` on, become `a * b`, or
    where `adds` holds as much more than they were, in the time of a MultiplyLeft.
    """

    buffer: str
    address: Operand
    distance: int
    dot: Dot
    a: Left
    b: Left
    adds: Operand
    scales: tuple[Left, ...] = ()

    @property
    def left(self) -> tuple[Left, ...]:
        """The factors, which both are read in shared memory."""
        return self.a, self.b

    @property
    def held(self) -> tuple[Operand, ...]:
        """The registers of factors: none."""
        return ()


@dataclass(frozen=True, slots=True)
class LoadSums:
    """`outs` are what the lane has of the results of `dot` there, which it has awaited. The lanes
    that multiply together come by together.
    """

    outs: tuple[Value, ...]
    buffer: str
    address: Operand
    distance: int
    dot: Dot


@dataclass(frozen=True, slots=True)
class Publish:
    """What the lane has written to shared memory, and what it has awaited of its copies, dots that
    read there may read after a Barrier.
    """


@dataclass(frozen=True, slots=True)
class LoadMatrix:
    """Loads squares of words for the 32 lanes of a row together: `outs`, a u32 each, of as many
    squares of eight rows of 16 bytes. Row r of square s starts at `buffer[address + distance]` as
    lane 8s + r has the address. Lane l gets word l % 4 of row l // 4; or, `turned`, elements of 16
    bits: those of column l // 4 in rows 2(l % 4) and the next. All lanes come by.
    """

    outs: tuple[Value, ...]
    buffer: str
    address: Operand
    distance: int = 0
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """`count` elements from `source[source_address + source_distance]` on go to
    `buffer[address + distance]`, which is shared, or 0 where `live` does not hold: at some time
    until the lane's Await for their batch.
    """

    buffer: str
    address: Operand
    distance: int
    source: str
    source_address: Operand
    source_distance: int
    count: int
    live: Operand | None = None


class Phase(enum.Enum):
    """What is done with a barrier that counts bytes: its phases begin, or end for good; the present
    one ends once so many bytes have come; or the end of that of a parity is awaited. A room is
    freed by each group of a cluster, and entered likewise, by a parity.
    """

    BEGIN = "begin"
    END = "end"
    EXPECT = "expect"
    AWAIT = "await"
    FREE = "free"
    ENTER = "enter"


@dataclass(frozen=True, slots=True)
class AtPhase:
    """Does so with the barrier `buffer[address]`, of so many groups, bytes, or of this parity."""

    step: Phase
    buffer: str
    address: Operand
    number: Operand = Constant(INDEX, bytes(8))


@dataclass(frozen=True, slots=True)
class CopyBox:
    """The box of `tensor` from `origin` on goes to `buffer[address + distance]`, before pieces
    change places, at some time until the phase of `phases[turn]` ends which is the present one. Of
    `parts`, one behind the other, each group of a cluster brings one to all.
    """

    buffer: str
    address: Operand
    distance: int
    tensor: Tensor
    origin: tuple[Operand, ...]
    phases: str
    turn: Operand
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Begin:
    """The lane's accumulators are ready for a batch of products; `lifts` are brought before, of so
    many elements `apart` as there are.
    """

    lifts: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """The lane's copies, or products, since its last Commit of such are a batch."""

    of: Batch = Batch.COPIES


@dataclass(frozen=True, slots=True)
class Await:
    """All the lane's batches but the `younger` last ones have come."""

    younger: int
    of: Batch = Batch.COPIES


Statement = (
    Apply
    | Load
    | Store
    | Fetch
    | Loop
    | If
    | Barrier
    | Exchange
    | Multiply
    | MultiplyLeft
    | Accumulate
    | LoadSums
    | LoadMatrix
    | Copy
    | Publish
    | Begin
    | Commit
    | Await
    | AtPhase
    | CopyBox
)
Meeting = Barrier | Exchange | Multiply | MultiplyLeft | Accumulate | LoadSums | LoadMatrix
"""What all lanes of a group come to."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the kernel: the value of a dim, i64."""

    symbol: Symbol
    value: Value


@dataclass(frozen=True, slots=True)
class Scratch:
    """Working memory of the worker, from byte `offset` of its part on (a multiple of 64)."""

    buffer: Buffer
    offset: Operand


@dataclass(frozen=True)
class Kernel:
    """One launchable piece of code: `setup` once a worker, `body` once a chunk.

    `buffers` are the operands in slot order. `scratch_bytes` a worker and the number of `chunks`
    are Expressions in the parameters: the host evaluates them. Chunks run in any order, by any
    worker; scratch holds nothing from one to the next, but that of a worker which runs those from
    `begin` up to this one on end.

    With more than one of `lanes` a worker is a group of them: each runs all statements, knows its
    number by `lane`, and shares with the others the `shared` buffers, and those in `tensor` memory,
    as it does the scratch.
    Those whose numbers are alike down to the last `subgroup` may Exchange values.
    `early` runs before earlier launches have ended, for the `first` chunk of a worker.
    """

    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    scratch: tuple[Scratch, ...]
    scratch_bytes: Expression
    chunks: Expression
    setup: tuple[Statement, ...]
    chunk: Value
    body: tuple[Statement, ...]
    lanes: int = 1
    lane: Value | None = None
    shared: tuple[Buffer, ...] = ()
    subgroup: int = 1
    begin: Value | None = None
    first: Value | None = None
    early: tuple[Statement, ...] = ()
    tensor: tuple[Buffer, ...] = ()

    def statements(self) -> Iterator[Statement]:
        """Every statement, outer before inner."""
        return every((*self.early, *self.setup, *self.body))


def every(body: Sequence[Statement]) -> Iterator[Statement]:
    """The statements of a body and all inside of them, outer before inner."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | If):
            yield from every(statement.body)
