"""A Program: kernels, buffers and the launches that run them, before any memory is placed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Literal, TypeGuard

from luminal.base.dtypes import DType
from luminal.base.lines import Recorded
from luminal.base.records import dataclass
from luminal.hlir.attributes import CollectiveAttrs
from luminal.hlir.sharding import sent
from luminal.kernel.tile_ir import Kernel, Role
from luminal.memory.alignment import ACCESS
from luminal.memory.state import Assignable
from luminal.program.buffers import Buffer
from luminal.shape.divisors import is_multiple
from luminal.shape.expression import Expression, Symbol, const, sum_of

_ZERO = const(0)


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer as one launch sees it: an entry of the Program's table, possibly moving with a Loop.

    In iteration `i` of the enclosing Loop of nesting `depth` (0: none) the pointer is
    `table[entry + (i + offset) % modulus] + start + i * stride`, both in bytes: a stream is a
    tensor with a stride, negative for its last slice first, or a list of `modulus` entries; a
    carried value is two entries that take turns.
    """

    entry: int
    depth: int = 0
    offset: Expression = _ZERO
    modulus: int = 1
    stride: Expression = _ZERO
    start: Expression = _ZERO

    @property
    def is_aligned(self) -> bool:
        """Is it surely at a multiple of ACCESS bytes, as the buffers of the table are?"""
        return is_multiple(self.stride, ACCESS) and is_multiple(self.start, ACCESS)


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of `Program.kernels[kernel]` over `chunks` grid chunks."""

    kernel: int
    operands: tuple[Operand, ...]  # one per buffer of the kernel
    params: tuple[Expression, ...]  # values of the kernel's parameters, in the Program's dims
    chunks: Expression
    label: str  # the operations that it computes, for reports: "Sum.Exp.Div"
    flops: Expression = _ZERO
    bytes: Expression = _ZERO
    origins: tuple[Recorded, ...] = field(default=(), compare=False, repr=False)
    """Where what it computes was recorded, which is no part of the program."""


Phase = Literal["both", "start", "wait"]
"""What a launch does of a collective: all of it, or one end of it."""


# Kernels may run between a start and its wait, but none that writes the operand or touches the
# result. A wait has both as its operands, so buffers live until then, and barriers stand where they
# must, with no rule of their own.
@dataclass(frozen=True, slots=True)
class CollectiveLaunch:
    """What all ranks along a mesh axis do together, or one end of it.

    `operands`: what the rank sends, then what it receives; `sizes` are their elements. Of a bucket
    each half is several buffers that lie side by side. `label` says which value it is. A start and
    its wait have one `ticket`, under which one collective is under way at a time; the wait is later
    in the same list, in the next trip of a Loop, or behind it.
    """

    attrs: CollectiveAttrs
    dtype: DType
    operands: tuple[Operand, ...]
    sizes: tuple[Expression, ...]
    label: str
    phase: Phase = "both"
    ticket: int = 0

    @property
    def members(self) -> int:
        """The number of collectives that it stands for: one, or as many as are in its bucket."""
        return len(self.operands) // 2

    @property
    def roles(self) -> tuple[Role, ...]:
        """What the launch does to its operands: a wait finds the results as the start left them."""
        written = Role.INOUT if self.phase == "wait" else Role.OUT
        return (Role.IN,) * self.members + (written,) * self.members

    @property
    def bytes(self) -> Expression:
        """The bytes that a rank has to send, at least; none by a wait, whose start has sent
        them.
        """
        if self.phase == "wait":
            return _ZERO
        count = sum_of(self.sizes[: self.members])
        return sent(self.attrs.kind, count, self.attrs.ranks) * self.dtype.size

    @property
    def title(self) -> str:
        """The collective in words: `all_gather of 'w' over 'data'`."""
        begun = "" if self.phase == "both" else f"{self.phase} of "
        value = f" of {self.label!r}" if self.label else ""
        return f"{begun}{self.attrs.kind}{value} over {self.attrs.axis!r}"


@dataclass(frozen=True, slots=True)
class LoopLaunch:
    """`trips` runs of `body`, with a barrier after each."""

    trips: Expression
    body: tuple[Launch, ...]


Launch = KernelLaunch | CollectiveLaunch | LoopLaunch


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """A named result and the buffer that holds it; hidden ones are computed but not returned."""

    name: str
    buffer: int
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """All that the runtime needs beside compiled code.

    `table[e]` is the buffer of table entry e. `prologue` runs once per change of a weight, before
    the next run. `swaps` are the States whose NEXT buffer becomes the State's own after a run.
    `dispatch`: how a device is given the launches, one of its backend's `dispatches`; None: the
    first of them.
    """

    dims: tuple[Symbol, ...]
    requirements: tuple[Expression, ...]
    buffers: tuple[Buffer, ...]
    table: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    prologue: tuple[Launch, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[ProgramOutput, ...]
    swaps: tuple[Assignable, ...]
    dispatch: str | None = None

    def entries(self, operand: Operand) -> range:
        """The table entries an operand may point to."""
        return range(operand.entry, operand.entry + operand.modulus)

    def used_entries(self) -> list[int]:
        """The table entries that runs look up, in order."""
        operands = (operand for launch in walk(self.launches) for operand in launch.operands)
        return sorted({entry for operand in operands for entry in self.entries(operand)})

    def accesses(self, launch: Launch) -> Iterator[tuple[int, Role]]:
        """(buffer id, role) of what a launch touches; a Loop touches what its body touches."""
        if isinstance(launch, LoopLaunch):
            for inner in launch.body:
                yield from self.accesses(inner)
            return
        for operand, role in zip(launch.operands, self.roles(launch), strict=True):
            for entry in self.entries(operand):
                yield self.table[entry], role

    def ends(self, launch: CollectiveLaunch) -> tuple[set[int], set[int]]:
        """The buffers that a collective may send and those that it may receive."""
        halves = launch.operands[: launch.members], launch.operands[launch.members :]
        sent, received = (
            {self.table[entry] for operand in half for entry in self.entries(operand)}
            for half in halves
        )
        return sent, received

    def roles(self, launch: KernelLaunch | CollectiveLaunch) -> tuple[Role, ...]:
        """What a launch does to each of its operands."""
        if isinstance(launch, CollectiveLaunch):
            return launch.roles
        return tuple([buffer.role for buffer in self.kernels[launch.kernel].buffers])


def walk(launches: tuple[Launch, ...]) -> Iterator[KernelLaunch | CollectiveLaunch]:
    """Every launch of a kernel or of a collective, Loop bodies once."""
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            yield from walk(launch.body)
        else:
            yield launch


def collects(launch: Launch) -> bool:
    """Is a launch a collective, or a Loop with one inside?"""
    return any(isinstance(inner, CollectiveLaunch) for inner in walk((launch,)))


def is_end(launch: Launch, phase: Phase) -> TypeGuard[CollectiveLaunch]:
    """Is a launch this end of a collective?"""
    return isinstance(launch, CollectiveLaunch) and launch.phase == phase


def tickets(launch: Launch) -> set[int]:
    """The tickets of what a launch starts or waits for."""
    ends = (inner for inner in walk((launch,)) if isinstance(inner, CollectiveLaunch))
    return {end.ticket for end in ends if end.phase != "both"}


def kernel_launches(launches: tuple[Launch, ...]) -> Iterator[KernelLaunch]:
    """Every launch of a kernel, Loop bodies once."""
    return (launch for launch in walk(launches) if isinstance(launch, KernelLaunch))


def barriers(program: Program, launches: tuple[Launch, ...]) -> tuple[bool, ...]:
    """A flag for each launch of a list: must a barrier stand before it?

    It must if since the last barrier a launch wrote what this one touches, or read what it writes.
    """
    # A barrier costs all threads a meeting, so one stands only where the launches since the last
    # one and this one touch a common buffer and at least one of them writes it.
    flags = []
    read: set[int] = set()
    written: set[int] = set()
    for launch in launches:
        reads, writes = set(), set()
        for buffer, role in program.accesses(launch):
            if role is not Role.OUT:
                reads.add(buffer)
            if role is not Role.IN:
                writes.add(buffer)
        needed = bool(written & (reads | writes) or read & writes)
        if needed:
            read, written = set(), set()
        flags.append(needed)
        read |= reads
        written |= writes
        if isinstance(launch, LoopLaunch):  # a loop ends with a barrier
            read, written = set(), set()
    return tuple(flags)
