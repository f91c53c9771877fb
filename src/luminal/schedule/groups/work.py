"""What a launch does to a chip, counted from a kernel's expanded IR: how its lanes touch memory,
what they issue, and how often they wait.

One chunk is walked once, in the middle of the grid and of every loop, by all lanes of a group
together: addresses, masks and bounds of loops are computed as they would be there, and the body of
a loop counts as often as the loop has trips. Where chunks have more trips or fewer, as under causal
masks, several are walked, and the work is their mean. Floats are not computed. An integer that is
loaded stands for data: an access whose place depends on it is counted, but nobody can arrange it
better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luminal.base.records import dataclass
from luminal.expand.builder import Instructions
from luminal.expand.fragments import tensor_columns
from luminal.expand.ir import (
    Accumulate,
    Apply,
    AtPhase,
    Await,
    Barrier,
    Begin,
    Choice,
    Commit,
    Constant,
    Copy,
    CopyBox,
    Exchange,
    Fetch,
    If,
    Kernel,
    Load,
    LoadMatrix,
    LoadSums,
    Loop,
    Meeting,
    Multiply,
    MultiplyLeft,
    Operand,
    Phase,
    Publish,
    Statement,
    Store,
    Type,
    Value,
    memory_dtype,
)
from luminal.expand.operations import OPERATIONS
from luminal.kernel.tile_ir import Batch
from luminal.memory.alignment import ACCESS
from luminal.schedule.groups.counts import Access, Work, mean
from luminal.schedule.groups.live import live_words, unused
from luminal.schedule.groups.pipes import (
    EXCHANGE,
    FREE,
    I32,
    MATRIX,
    MEMORY,
    PORT,
    instructions,
    pipe_of,
    turns_of,
)
from luminal.schedule.groups.touched import (
    LINE,
    ROW,
    SECTOR,
    WORD,
    Touched,
    touched,
    touched_by_squares,
)

Array = NDArray[Any]

UNROLLED = 4  # trips of a simple loop whose loads a compiler puts before the first one's use
FIXED_REGISTERS = 10  # of a lane, for pointers and what a compiler adds
ALLOTTED = 8  # registers are given to a lane by so many,
MOST_REGISTERS = 255  # and so many at most
SELDOM = 1 / 16  # of the times that one comes by
TRIPS = 8  # of a loop of which nothing is known
WALKED = 12  # chunks at most, where they differ


def work(kernel: Kernel, params: Mapping[str, int], machine: Instructions = frozenset()) -> Work:
    """The work of one chunk of a kernel for values of its parameters, on a machine that has these
    operations of its own.
    """
    chunks = int(kernel.chunks.evaluate(params))
    with np.errstate(all="ignore"):
        if chunks > 1 and _are_uneven(kernel):
            walked = spread(chunks, WALKED)
            return mean([_Count(kernel, params, machine).work(chunk) for chunk in walked])
        return _Count(kernel, params, machine).work(chunks // 2)


def spread(count: int, most: int) -> Sequence[int]:
    """So many of the numbers below a count, pairwise as far from its ends: so their mean is that of
    all, also of what is left of them by any divisor of the count, as a row's blocks are.
    """
    if count <= most:
        return range(count)
    golden = (5**0.5 - 1) / 2  # multiples of it fill each interval evenly (Weyl)
    half = [int(count * ((n + 0.5) * golden % 1)) for n in range(most // 2)]
    return [*half, *(count - 1 - number for number in half)]


class _Unknown:
    """A value that is not computed."""


UNKNOWN = _Unknown()
Known = Array | _Unknown


class At(NamedTuple):
    """A place in a buffer, in elements, where a mask holds."""

    buffer: str
    address: Operand
    mask: Operand | None
    distance: int


def _at(statement: Load | Store) -> At:
    return At(statement.buffer, statement.address, statement.mask, statement.distance)


@dataclass
class _Seen:
    """What is counted on the way."""

    issued: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waits: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    beside: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    accesses: list[Access] = field(default_factory=list)
    awaited: dict[int, tuple[str, float]] = field(default_factory=dict)  # on their way, from where


class _Count:
    def __init__(self, kernel: Kernel, params: Mapping[str, int], machine: Instructions) -> None:
        self.kernel, self.machine, self.unused = kernel, machine, unused(kernel)
        self.params = params
        self.lanes = max(kernel.lanes, ROW)  # lone workers are neighbours in a row
        self.values: dict[int, Known] = {}
        self.by_data: set[int] = set()
        self.active: Array = np.ones(1, np.bool_)
        self.scope, self.scopes = 0, 0  # which lanes are active, by number
        self.seen = _Seen()
        self.depth = 0
        self.unrolled = 1
        self.touched: dict[Any, Touched] = {}
        self.places = {b.name: "global" for b in kernel.buffers}
        self.places |= {b.name: "shared" for b in kernel.shared}
        self.places |= {x.buffer.name: "scratch" for x in kernel.scratch}
        held = (*kernel.buffers, *kernel.shared, *(x.buffer for x in kernel.scratch))
        self.dtypes = {b.name: memory_dtype(b.dtype) for b in held}
        self.sizes = {name: dtype.size for name, dtype in self.dtypes.items()}
        self.far_of_copies = 0.0
        self.has_come = False
        awaited = (s for s in kernel.statements() if isinstance(s, Await))
        self.running = max((s.younger for s in awaited if s.of is Batch.PRODUCTS), default=0)
        self.depths = {buffer.name: buffer.size for buffer in kernel.shared}
        self.fetched: set[tuple[str, int]] = set()  # sectors, by their buffers

    def work(self, number: int) -> Work:
        """What the chunk of this number does."""
        kernel = self.kernel
        for param in kernel.params:
            self.values[param.value.id] = np.array([self.params[param.symbol.name]], np.int64)
        numbers = np.arange(self.lanes, dtype=np.int64)
        chunk = np.array([number], np.int64)
        if kernel.lane is None:
            chunk = chunk + numbers
        else:
            self.values[kernel.lane.id] = numbers
        self.values[kernel.chunk.id] = chunk
        if kernel.begin is not None:
            self.values[kernel.begin.id] = chunk
        if kernel.first is not None:
            self.values[kernel.first.id] = chunk
        self.body(kernel.early, 0.0)
        early = SECTOR * len(self.fetched)
        self.body(kernel.setup, 0.0)
        self.body(kernel.body, 1.0)
        shared = sum(int(b.size.evaluate(self.params)) * self.sizes[b.name] for b in kernel.shared)
        needed = FIXED_REGISTERS + live_words(kernel)
        registers = min(MOST_REGISTERS, -(-needed // ALLOTTED) * ALLOTTED)
        seen = self.seen
        return Work(
            self.lanes, registers, shared, dict(seen.issued), dict(seen.waits),
            tuple(seen.accesses), early, tensor_columns(kernel), dict(seen.beside),
        )  # fmt: skip

    # --- values ---------------------------------------------------------------------------------

    def value(self, operand: Operand) -> Known:
        """By lanes of the group, where they differ, and then by elements of a vector."""
        if isinstance(operand, Constant):
            return operand.values[None] if operand.type.lanes > 1 else operand.values
        return self.values[operand.id]

    def depends(self, *operands: Operand | None) -> bool:
        """Does one of them depend on data?"""
        return any(isinstance(o, Value) and o.id in self.by_data for o in operands)

    def set(self, out: Value, value: Known, by_data: bool = False) -> None:
        self.values[out.id] = value
        if by_data:
            self.by_data.add(out.id)
        else:
            self.by_data.discard(out.id)

    def most(self, operand: Operand, other: int) -> int:
        """The greatest of an integer's values in the lanes."""
        value = self.value(operand)
        return other if isinstance(value, _Unknown) else int(value.max())

    @property
    def rows(self) -> float:
        """Rows of lanes that take part where we are."""
        if self.active.size == 1:
            return self.lanes / ROW * float(self.active[0])
        return float(self.active.reshape(-1, ROW).any(1).sum())

    def issue(self, pipe: str, times: float) -> None:
        self.seen.issued[pipe] += times * self.rows * ROW

    def use(self, times: float, *operands: Operand | None) -> None:
        """Waits for what is used. What was asked of a place comes in turn, so later uses of it do
        not wait.
        """
        awaited = self.seen.awaited
        if not awaited:
            return
        places = {awaited[o.id][0] for o in operands if isinstance(o, Value) and o.id in awaited}
        for place in places:
            coming = {n: far for n, (where, far) in awaited.items() if where == place}
            far = max(coming.values())
            self.seen.waits[place] += times * far / self.unrolled
            self.seen.waits["near"] += times * (1 - far) / self.unrolled
            for number in coming:
                del awaited[number]

    # --- statements -----------------------------------------------------------------------------

    def body(self, body: Sequence[Statement], times: float) -> None:
        for statement in body:
            self.RULES[type(statement)](self, statement, times)

    def apply(self, statement: Apply, times: float) -> None:
        out, op, args = statement.out, statement.op, statement.args
        whole = args[0] if op == "extract" else None
        if isinstance(whole, Value) and whole.id in self.seen.awaited:
            self.seen.awaited[out.id] = self.seen.awaited[whole.id]  # which is when the whole comes
        else:
            self.use(times, *args)
        if out.id not in self.unused:
            for pipe, count in instructions(op, args[0].type, self.machine):
                self.issue(pipe, times * count)
        self.set(out, self.computed(statement), self.depends(*args))

    def computed(self, statement: Apply) -> Known:
        out, op = statement.out.type, statement.op
        if out.dtype.is_float or any(arg.type.dtype.is_float for arg in statement.args):
            return UNKNOWN
        args: list[Array] = []
        for arg in statement.args:
            value = self.value(arg)
            if isinstance(value, _Unknown):
                return UNKNOWN
            args.append(value)
        if op == "splat":
            return np.broadcast_to(args[0][:, None], (len(args[0]), out.lanes))
        if op == "extract":
            part: Array = args[0][:, int(args[1].flat[0])]
            return part
        if out.lanes > 1 and op in FREE:
            return UNKNOWN
        row = OPERATIONS[op]
        result = row.meaning(*args) if row.result else row.meaning(*args, out.dtype)
        return np.asarray(result).astype(out.dtype.numpy, copy=False)

    def load(self, statement: Load, times: float) -> None:
        out = statement.out
        access = self.access(_at(statement), out.type, "load", times)
        self.seen.awaited[out.id] = self.places[statement.buffer], access.far if access else 0.0
        address, dtype = self.value(statement.address), out.type.dtype
        varies = isinstance(address, _Unknown) or address.shape[0] > 1
        loaded: Known = UNKNOWN
        if dtype.is_int and dtype.size >= WORD and out.type.lanes == 1:
            loaded = np.ones(1, np.int64)
            if not isinstance(address, _Unknown):
                loaded = (address + statement.distance) * 40503 % 65521  # no two lanes alike
            loaded = loaded.astype(dtype.numpy)
        self.set(out, loaded, varies or self.depends(statement.address))

    def store(self, statement: Store, times: float) -> None:
        self.use(times, statement.value)
        self.access(_at(statement), statement.value.type, "store", times)

    def fetch(self, statement: Fetch, times: float) -> None:
        """Memory that is waited for by nobody."""
        if not isinstance(self.value(statement.address), _Unknown):
            at = At(statement.buffer, statement.address, None, statement.distance)
            starts = self.starts(at, Type(self.dtypes[statement.buffer]))
            assert starts is not None
            active = self.taking_part(None)
            sectors = starts[active] * self.sizes[statement.buffer] // SECTOR
            self.fetched |= {(statement.buffer, int(sector)) for sector in np.unique(sectors)}

    def copy(self, statement: Copy, times: float) -> None:
        self.has_come = False
        source, target = (
            At(
                statement.source,
                statement.source_address,
                statement.live,
                statement.source_distance,
            ),
            At(statement.buffer, statement.address, None, statement.distance),
        )
        type_ = Type(self.dtypes[statement.source], statement.count)
        access = self.access(source, type_, "copy", times)
        self.access(target, type_, "copy", times)
        self.far_of_copies = max(self.far_of_copies, access.far if access else 0.0)

    def once(self, statement: Publish | Begin | Commit, times: float) -> None:
        self.issue(I32, times)

    def wait(self, statement: Await, times: float) -> None:
        if statement.of is Batch.PRODUCTS:
            self.waits["matrix"] += times / (1 + statement.younger)
            return
        if not self.has_come:
            self.wait_for_batch(times / (1 + statement.younger))

    # As many batches are under way, of which one is waited for.
    def wait_for_batch(self, times: float) -> None:
        self.waits["global"] += times * self.far_of_copies
        self.waits["near"] += times * (1 - self.far_of_copies)

    @property
    def waits(self) -> dict[str, float]:
        """What waits here: in a loop in which products run on these run meanwhile."""
        return self.seen.beside if self.running and self.depth else self.seen.waits

    def at_phase(self, statement: AtPhase, times: float) -> None:
        """All blocks of a ring but those that are read are under way."""
        self.use(times, statement.address, statement.number)
        self.issue(I32, times)
        if statement.step is Phase.ENTER:
            self.waits["cluster"] += times
        if statement.step is Phase.AWAIT:
            ahead = self.depths[statement.buffer].constant - 1 - self.running
            self.wait_for_batch(times / max(1, ahead))
            self.has_come = True  # what lanes copy was asked for with the boxes
            self.seen.waits["global"] += min(times, 1.0)  # for the first one nothing runs on

    def copy_box(self, statement: CopyBox, times: float) -> None:
        """One lane asks; the lines of a box pass by the unit's own cache."""
        self.use(times, statement.address, statement.turn, *statement.origin)
        self.issue(MEMORY, times)
        self.far_of_copies, share = 1.0, statement.tensor.bytes
        size = statement.parts * share  # of which other groups have asked for the rest
        sides = (
            (statement.tensor.source, "global", share / SECTOR, size / PORT),
            (statement.buffer, "shared", size / LINE, 0.0),
        )
        for buffer, place, taken, lines in sides if times else ():
            self.seen.accesses.append(
                Access(
                    buffer,
                    "box",
                    place,
                    size,
                    times,
                    1,
                    taken,
                    taken,
                    lines,
                    is_looped=self.depth > 0,
                    by_data=False,
                )
            )

    def access(self, at: At, type_: Type, kind: str, times: float) -> Access | None:
        """The access, which is noted if it is ever made."""
        self.use(times, at.address, at.mask)
        self.issue(MEMORY, times)
        place, size = self.places[at.buffer], self.sizes[at.buffer]
        size *= max(1, type_.dtype.size // size)  # words of dots are counted in themselves
        starts = self.starts(at, type_)
        if starts is None:
            lines = Touched(int(self.rows), float(ROW), float(ROW), float(ROW))
        else:
            # Whole lines further, or whole words of shared memory, all is the same.
            period = WORD if place == "shared" else LINE
            key = (
                _name(at.address), _name(at.mask), self.scope, at.distance * size % period,
                 place == "shared", type_, size,
            )  # fmt: skip
            if key not in self.touched:
                active = self.taking_part(at.mask)
                self.touched[key] = touched(starts * size, active, type_, place == "shared")
            lines = self.touched[key]
        if not (lines.requests and times):
            return None
        by_data = starts is None or self.depends(at.address, at.mask)
        access = Access(
            at.buffer, kind, place, type_.dtype.size * type_.lanes, times, *lines,
            is_looped=self.depth > 0, by_data=by_data,
        )  # fmt: skip
        self.seen.accesses.append(access)
        return access

    def starts(self, at: At, type_: Type) -> Array | None:
        """Where each lane's elements begin, in elements: an array by lanes and elements."""
        address = self.value(at.address)
        if isinstance(address, _Unknown):
            return None
        place = address.astype(np.int64) + at.distance
        if place.ndim == 1:
            place = place[:, None] + np.arange(type_.lanes)
        return np.broadcast_to(place, (self.lanes, type_.lanes))

    def taking_part(self, mask: Operand | None) -> Array:
        """The lanes that touch memory: where a mask is not known, all that come by."""
        active = np.broadcast_to(self.active, (self.lanes,))
        holds = UNKNOWN if mask is None or self.depends(mask) else self.value(mask)
        if isinstance(holds, _Unknown):
            return active
        any_: Array = np.asarray(holds.any(-1)) if holds.ndim > 1 else holds
        taking: Array = active & np.broadcast_to(any_, (self.lanes,))
        return taking

    def loop(self, statement: Loop, times: float) -> None:
        self.use(times, statement.start, statement.stop, *(c.init for c in statement.carries))
        start, step = self.most(statement.start, 0), statement.step
        stop = self.most(statement.stop, start + TRIPS * step)
        trips = max(0, -(-(stop - start) // step))
        begun = self.value(statement.start)
        by_data = self.depends(statement.start)
        middle = max(0, trips - 1) // 2 * step
        self.set(statement.index, begun if isinstance(begun, _Unknown) else begun + middle, by_data)
        for carry in statement.carries:
            self.set(carry.inner, self.value(carry.init), self.depends(carry.init))
        if trips:
            self.depth += trips > 1
            self.issue(I32, 2 * times * trips)  # the index and the branch
            before = self.unrolled
            self.unrolled = min(trips, UNROLLED) if _is_simple(statement.body) else 1
            self.body(statement.body, times * trips)
            self.use(times * trips, *(carry.next for carry in statement.carries))
            self.unrolled = before
            self.depth -= trips > 1
        for carry in statement.carries:
            last = carry.next if trips else carry.init
            self.set(carry.result, self.value(last), self.depends(last))

    def branch(self, statement: If, times: float) -> None:
        self.use(times, statement.condition)
        self.issue(I32, times)
        scope, before, taken = self.scope, self.active, self.value(statement.condition)
        if not isinstance(taken, _Unknown) and not self.depends(statement.condition):
            self.active = before & taken
            self.scopes += 1
            self.scope = self.scopes
        if self.active.any() or statement.choices:  # else it is for other chunks
            self.body(statement.body, times * (SELDOM if statement.seldom else 1))
        self.scope, self.active = scope, before
        for choice in statement.choices:
            self.choose(choice, taken)

    def choose(self, choice: Choice, taken: Known) -> None:
        then, otherwise = self.value(choice.then), self.value(choice.otherwise)
        chosen: Known = UNKNOWN
        if not any(isinstance(value, _Unknown) for value in (then, otherwise, taken)):
            chosen = np.where(taken, then, otherwise)  # type: ignore[arg-type]
        self.set(choice.result, chosen, self.depends(choice.then, choice.otherwise))

    def barrier(self, statement: Barrier, times: float) -> None:
        self.waits["barrier"] += times
        self.issue(I32, times)

    def exchange(self, statement: Exchange, times: float) -> None:
        self.use(times, statement.value)
        self.issue(EXCHANGE, times * max(1, statement.value.type.dtype.size // WORD))
        self.seen.awaited[statement.out.id] = "shared", 1.0
        self.set(statement.out, UNKNOWN, self.depends(statement.value))

    def multiply(self, statement: Multiply, times: float) -> None:
        dot = statement.dot
        self.use(times, *statement.acc, *statement.a, *statement.b, *statement.scales)
        self.issue(I32, times)
        share = turns_of(dot) / dot.together
        self.issue(pipe_of(dot), times * dot.m * dot.n * dot.k * share)
        for out in statement.outs:
            self.seen.awaited[out.id] = MATRIX, 1.0
            self.set(out, UNKNOWN)

    def multiply_left(self, statement: MultiplyLeft | Accumulate, times: float) -> None:
        """A product whose factors are read in shared memory, each line of 16 bytes once."""
        dot, left = statement.dot, statement.left
        self.use(times, *statement.held, *(factor.address for factor in left))
        self.issue(I32, times)
        share = turns_of(dot) / dot.together
        self.issue(pipe_of(dot), times * dot.m * dot.n * dot.k * share)
        for factor, lines in zip(left[::-1], (dot.n, dot.m), strict=False):
            turns = lines * dot.k * dot.a.size / WORD / ROW
            lanes = self.rows / (dot.together / ROW)
            access = Access(
                factor.buffer, "multiply", "shared", ACCESS, times, int(lanes), turns, turns, turns,
                is_looped=self.depth > 0, by_data=False,
            )  # fmt: skip
            self.seen.accesses.append(access)
        for out in statement.outs if isinstance(statement, MultiplyLeft) else ():
            self.set(out, UNKNOWN)

    def load_sums(self, statement: LoadSums, times: float) -> None:
        """Each row of lanes loads its own part of tensor memory, a word a lane and cycle."""
        self.use(times, statement.address)
        self.issue(MEMORY, times * len(statement.outs))
        for out in statement.outs:
            self.seen.awaited[out.id] = "shared", 1.0
            self.set(out, UNKNOWN)

    def load_matrix(self, statement: LoadMatrix, times: float) -> None:
        self.use(times, statement.address)
        self.issue(MEMORY, times)
        place, size = self.places[statement.buffer], self.sizes[statement.buffer]
        address, squares = self.value(statement.address), len(statement.outs)
        if not isinstance(address, _Unknown) and times:
            starts = np.broadcast_to((address + statement.distance) * size, (self.lanes,))
            touched = touched_by_squares(starts, squares)
            access = Access(
                statement.buffer, "load", place, WORD * squares, times, *touched,
                is_looped=self.depth > 0, by_data=False,
            )  # fmt: skip
            self.seen.accesses.append(access)
        for out in statement.outs:
            self.seen.awaited[out.id] = place, 1.0
            self.set(out, UNKNOWN)

    RULES: Mapping[type, Callable[..., None]] = {
        Apply: apply,
        Load: load,
        Store: store,
        Fetch: fetch,
        Loop: loop,
        If: branch,
        Barrier: barrier,
        Exchange: exchange,
        Multiply: multiply,
        MultiplyLeft: multiply_left,
        Accumulate: multiply_left,
        LoadSums: load_sums,
        LoadMatrix: load_matrix,
        Copy: copy,
        Publish: once,
        Begin: once,
        Commit: once,
        Await: wait,
        AtPhase: at_phase,
        CopyBox: copy_box,
    }


def _name(operand: Operand | None) -> object:
    """What tells an operand from all others."""
    return operand.id if isinstance(operand, Value) else operand


def _are_uneven(kernel: Kernel) -> bool:
    """Does it follow from a chunk's number how many trips a loop has?"""
    if kernel.lane is None:
        return False
    moved = {kernel.chunk.id}
    for statement in kernel.statements():
        if isinstance(statement, Apply) and any(_name(arg) in moved for arg in statement.args):
            moved.add(statement.out.id)
        if isinstance(statement, Loop):
            start, stop = (_name(end) in moved for end in (statement.start, statement.stop))
            if stop and not start:
                return True
            moved |= {statement.index.id} if start else set()
    return False


def _is_simple(body: Sequence[Statement]) -> bool:
    """May loads of later trips come before what earlier ones do?"""
    return not any(isinstance(statement, Store | Loop | Meeting) for statement in body)
