"""What a kernel of expanded IR means, in NumPy: the oracle of every renderer. Slow and plain.

Beyond the values it checks what renderers take for granted: that addresses lie in their buffers and
operands in the domain of their operation; of lanes of a group, that none touches what another
writes without a barrier between them, and that all meet at each barrier. Scratch memory and shared
memory are overwritten before each chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.errors import VerifyError
from luminal.base.swizzles import PERIOD, PIECE
from luminal.expand.ir import (
    Accumulate,
    Apply,
    AtPhase,
    Await,
    Barrier,
    Begin,
    Commit,
    Constant,
    Copy,
    CopyBox,
    Exchange,
    Fetch,
    If,
    Kernel,
    Left,
    Load,
    LoadMatrix,
    LoadSums,
    Loop,
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
from luminal.expand.lockstep import (
    BOX,
    GARBAGE,
    Accesses,
    Barriers,
    Coming,
    Lane,
    Running,
    elements_of,
    in_turns,
)
from luminal.expand.operations import OPERATIONS
from luminal.expand.text import headline
from luminal.kernel.boxes import cut_out, part_origin
from luminal.kernel.tile_interpreter import FOLLOWING
from luminal.kernel.tile_ir import Batch, Buffer
from luminal.memory.alignment import ACCESS

Array = NDArray[Any]


def run(
    kernel: Kernel,
    buffers: Mapping[str, Array],
    params: Mapping[str, int],
    chunks: range | None = None,
) -> None:
    """Run `chunks` of `kernel`, or all, on the flat or shaped, contiguous arrays in `buffers`.

    `params` are the kernel's parameters by name. Raises VerifyError on an access out of bounds and
    on an operand that its operation does not take.
    """
    if chunks is None:
        chunks = range(int(kernel.chunks.evaluate(params)))
    with np.errstate(all="ignore"):
        _Interpreter(kernel, buffers, params).run(chunks)


class _Interpreter:
    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Array], params: Mapping[str, int]
    ) -> None:
        self.kernel = kernel
        self.params = params
        self.values: dict[int, Array] = {}
        self.memory = {b.name: self.bound(b, buffers[b.name]) for b in kernel.buffers}
        scratch = (memory.buffer for memory in kernel.scratch)
        self.working = [*scratch, *kernel.shared, *kernel.tensor]
        for buffer in self.working:
            self.memory[buffer.name] = np.zeros(self.size(buffer), memory_dtype(buffer.dtype).numpy)
        self.lane = 0
        self.batches: list[list[Callable[[], None]]] = [[]]  # of copies, the open one last
        self.products: list[list[Running]] = [[]]  # likewise
        self.by_devices = {buffer.name for buffer in kernel.shared if buffer.swizzle}
        begun = (s for s in kernel.statements() if isinstance(s, Begin))
        self.by_devices |= {lift.buffer for statement in begun for lift in statement.lifts}
        self.begun = False
        self.is_early = False
        self.accesses: Accesses | None = None  # of a group's lanes
        self.barriers = Barriers()

    def size(self, buffer: Buffer) -> int:
        return int(buffer.size.evaluate(self.params))

    def bound(self, buffer: Buffer, array: Array) -> Array:
        """The array's memory, in the dtype that elements are accessed in."""
        size = self.size(buffer)
        if array.dtype != buffer.dtype.numpy or array.size < size or not array.flags.c_contiguous:
            raise VerifyError(
                f"expanded IR: buffer {buffer.name}: {array.dtype}[{array.size}] given; "
                f"it takes contiguous {buffer.dtype}[{size}]"
            )
        return array.reshape(-1)[:size].view(memory_dtype(buffer.dtype).numpy)

    def run(self, chunks: range) -> None:
        kernel = self.kernel
        for param in kernel.params:
            self.values[param.value.id] = np.array([self.params[param.symbol.name]], np.int64)
        if kernel.lane is None:
            self.body(kernel.setup)
        begin = chunks.start
        for number, chunk in enumerate(chunks):
            self.values[kernel.chunk.id] = np.array([chunk], np.int64)
            if kernel.begin is None or number % FOLLOWING == 0:
                begin = chunk  # before it chunks share nothing, and they may not rely on zeros
                for buffer in self.working:
                    # Bytes that are neither 0 nor a plausible number: who reads what nobody has
                    # written gets a result that no test takes for right.
                    self.memory[buffer.name].view(np.uint8)[:] = 0xA5
                for buffer in kernel.tensor:
                    self.memory[buffer.name].view(np.uint32)[:] = GARBAGE  # to which more is added
            if kernel.begin is not None:
                self.values[kernel.begin.id] = np.array([begin], np.int64)
            if kernel.first is not None:  # any chunk may be its worker's first one
                self.values[kernel.first.id] = np.array([chunk], np.int64)
            if kernel.lane is None:
                self.early()
                self.body(kernel.body)
            else:
                self.group(kernel.lane)

    def group(self, number: Value) -> None:
        """One chunk by all lanes, each with values of its own."""
        self.accesses = Accesses()
        self.barriers = self.accesses.barriers
        lanes = []
        for n in range(self.kernel.lanes):
            lane = copy(self)
            lane.batches, lane.products = [[]], [[]]
            lane.lane, lane.values = n, {**self.values, number.id: np.array([n], np.int64)}
            lanes.append(lane.alone())
        in_turns(lanes, self.accesses)

    def early(self) -> None:
        """What comes before earlier launches have ended; what it fetches is there."""
        self.is_early = True
        self.body(self.kernel.early)
        self.is_early = False

    def alone(self) -> Lane:
        """All that one lane does; it stops where it meets others."""
        self.early()
        self.body(self.kernel.setup)
        yield from self.to_meetings(self.kernel.body)

    def to_meetings(self, body: Sequence[Statement]) -> Lane:
        """Runs a body, with a stop wherever all lanes meet."""
        for statement in body:
            match statement:
                case Barrier():
                    yield statement, None
                case Exchange(out, value):
                    self.values[out.id] = yield statement, self.value(value)
                case Multiply():
                    blocks = (statement.acc, statement.a, statement.b)
                    held = [np.concatenate([*map(self.value, block)]) for block in blocks]
                    held += map(self.value, statement.scales)
                    self.take(statement.outs, (yield statement, held))
                case MultiplyLeft():
                    self.products[-1].append((yield statement, self.left(statement)))
                case Accumulate():
                    self.products[-1].append((yield statement, self.accumulated(statement)))
                case LoadSums():
                    yield statement, None
                    self.load_sums(statement)
                case LoadMatrix():
                    self.load_matrix(statement, (yield statement, self.value(statement.address)))
                case Loop():
                    for _ in self.trips(statement):
                        yield from self.to_meetings(statement.body)
                case If():
                    if self.is_taken(statement):
                        yield from self.to_meetings(statement.body)
                    self.choose(statement)
                case _:
                    self.RULES[type(statement)](self, statement)

    def body(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.RULES[type(statement)](self, statement)

    def value(self, operand: Operand) -> Array:
        return operand.values if isinstance(operand, Constant) else self.values[operand.id]

    def scalar(self, operand: Operand) -> int:
        return int(self.value(operand)[0])

    def bind(self, values: Sequence[Value], operands: Sequence[Operand]) -> None:
        """All at once: an operand may be one of the values."""
        bound = [self.value(operand) for operand in operands]
        self.values.update(zip((value.id for value in values), bound, strict=True))

    def fail(self, statement: Statement, text: str) -> None:
        raise VerifyError(f"expanded IR: `{headline(statement)}`: {text}")

    # --- statements -------------------------------------------------------------------------------

    def apply(self, statement: Apply) -> None:
        row, out = OPERATIONS[statement.op], statement.out
        args = [self.value(arg) for arg in statement.args]
        domain = DOMAINS.get(statement.op)
        if domain is not None and not domain(out.type, *args).all():
            self.fail(statement, f"takes no {', '.join(map(str, args))}; choose others before it")
        result = row.meaning(*args) if row.result else row.meaning(*args, out.type.dtype)
        if np.shape(result) != (out.type.lanes,):
            result = np.broadcast_to(result, (out.type.lanes,))
        self.values[out.id] = np.asarray(result, out.type.dtype.numpy)

    def places(
        self, statement: Load | Store, lanes: int, dtype: np.dtype[Any]
    ) -> tuple[Array, Array, Array]:
        """The buffer in elements, or words, of a dtype, and (address, active) of each lane; active
        ones are checked against its size.
        """
        addresses = self.value(statement.address) + statement.distance
        if len(addresses) < lanes:
            addresses = addresses + np.arange(lanes)
        active = np.ones(lanes, np.bool_)
        if statement.mask is not None:
            active = self.value(statement.mask)
        memory = self.memory[statement.buffer]
        words = dtype.itemsize // memory.itemsize
        if words > 1:
            memory = memory[: memory.size // words * words].view(dtype)
        size = memory.size
        if statement.is_aligned and active.any() and addresses[0] % lanes:
            self.fail(statement, f"{addresses[0]} is no multiple of {lanes}; access it one by one")
        outside = active & ((addresses < 0) | (addresses >= size))
        if outside.any():
            address = addresses[outside][0]
            self.fail(statement, f"{address} is outside {statement.buffer}[{size}]; mask it")
        if self.accesses is not None:
            touched = addresses[active]
            if words > 1:
                touched = (touched[:, None] * words + np.arange(words)).reshape(-1)
            self.accesses.note(self.lane, statement, touched)
        return memory, addresses, active

    def load(self, statement: Load) -> None:
        type_ = statement.out.type
        loaded = np.zeros(type_.lanes, type_.dtype.numpy)
        memory, addresses, active = self.places(statement, type_.lanes, loaded.dtype)
        loaded[active] = memory[addresses[active]]
        self.values[statement.out.id] = loaded

    def store(self, statement: Store) -> None:
        value = self.value(statement.value)
        memory, addresses, active = self.places(statement, len(value), value.dtype)
        if len(set(addresses[active])) < active.sum():
            self.fail(statement, "two lanes meet at one address; store them one by one")
        memory[addresses[active]] = value[active]
        words = value.itemsize // self.memory[statement.buffer].itemsize
        self.hide(statement.buffer, addresses[active], words)

    def hide(self, buffer: str, addresses: Iterable[int], count: int) -> None:
        """Products do not see these elements, each the first of so many, before the lane publishes
        them.
        """
        if buffer in self.by_devices and self.accesses is not None:
            hidden = self.accesses.hidden.setdefault(self.lane, set())
            hidden |= {(buffer, int(at) * count + n) for at in addresses for n in range(count)}

    def left(self, statement: MultiplyLeft) -> Any:
        """The lane's results of a product, which are not there, what it adds to, what it has of the
        first factor, and where the factors lie that it has not.
        """
        if not self.begun:
            self.fail(statement, "its accumulators are not ready; put a Begin before it")
        dot = statement.dot
        outs = np.full(len(statement.outs), GARBAGE, np.uint32).view(dot.accumulator.numpy)
        acc = [*map(self.value, statement.acc)]
        self.take(statement.outs, outs)
        held = [*map(self.value, statement.held)]
        lines = (dot.n, dot.m)
        left = [self.block(statement, *pair) for pair in zip(statement.left[::-1], lines)]  # noqa: B905
        return outs, acc, held, left[::-1]

    def accumulated(self, statement: Accumulate) -> Any:
        """Where a product's results are, whether it adds to them, and where both factors lie."""
        dot = statement.dot
        a, b = self.block(statement, statement.a, dot.m), self.block(statement, statement.b, dot.n)
        sums = *self.columns(statement), bool(self.value(statement.adds)[0])
        scales = [
            self.scales(statement, left, lines)
            for left, lines in zip(statement.scales, (dot.m, dot.n), strict=False)
        ]
        return sums, None, (), (a, b, *scales)

    def scales(self, statement: Accumulate, left: Left, lines: int) -> tuple[Array, Array]:
        """The memory of scales, and where those of so many rows, or columns, are in it."""
        start = self.scalar(left.address) + left.distance
        row, number = np.arange(lines)[:, None], np.arange(statement.dot.k // statement.dot.block)
        elements = start + row // 128 * left.apart + row % 32 * 16 + row % 128 // 32 * 4 + number
        return self.memory[left.buffer], elements

    def columns(self, statement: Accumulate | LoadSums) -> tuple[Array, Array]:
        """The tensor memory of results, and where in it they are, by rows and columns."""
        memory, dot = self.memory[statement.buffer], statement.dot
        wide = memory.size // dot.m
        start = self.scalar(statement.address) + statement.distance
        if not 0 <= start <= wide - dot.n:
            self.fail(statement, f"{dot.n} columns from {start} on are not among {wide}")
        return memory, np.arange(dot.m)[:, None] * wide + start + np.arange(dot.n)

    def load_sums(self, statement: LoadSums) -> None:
        (memory, places), held = self.columns(statement), statement.dot.fragment("c")
        lane = self.lane % statement.dot.together
        mine = [places[held.position("m", lane, n), held.position("n", lane, n)]
                for n in range(held.elements)]  # fmt: skip
        if self.accesses is not None:
            self.accesses.note(self.lane, statement, mine)
        self.take(statement.outs, memory[mine])

    def block(
        self, statement: MultiplyLeft | Accumulate, factor: Left, lines: int
    ) -> tuple[Array, Array]:
        """The memory of a factor, and where its elements are."""
        (buffer,) = (x for x in self.kernel.shared if x.name == factor.buffer)
        start = self.scalar(factor.address) + factor.distance
        elements = elements_of(factor, buffer, start, (lines, statement.dot.k))
        memory = self.memory[factor.buffer]
        if not 0 <= elements.min() <= elements.max() < memory.size:
            self.fail(statement, f"a block from {start} on is not inside {buffer.name}")
        return memory, elements

    def publish(self, statement: Publish) -> None:
        if self.accesses is not None:
            self.accesses.hidden.pop(self.lane, None)
            self.barriers.publish(self.lane)

    def begin_products(self, statement: Begin) -> None:
        self.begun = True

    def take(self, outs: Sequence[Value], held: Array) -> None:
        """Binds what the lane got of a block."""
        self.values.update({out.id: held[n : n + 1] for n, out in enumerate(outs)})

    def load_matrix(self, statement: LoadMatrix, addresses: Sequence[Array]) -> None:
        """The lane's words of the squares whose rows lie at these addresses."""
        memory = self.memory[statement.buffer]
        row, lane = ACCESS // memory.itemsize, self.lane % 32
        words = []
        for square in range(len(statement.outs)):
            starts = [int(x[0]) + statement.distance for x in addresses[8 * square :][:8]]
            for start in starts:
                if not 0 <= start <= memory.size - row or start % row:
                    self.fail(statement, f"{start} is no 16 bytes of {memory.size} elements")
            if statement.turned:
                wanted = np.array([starts[2 * (lane % 4) + n] + lane // 4 for n in (0, 1)])
            else:
                part = row // 4
                wanted = starts[lane // 4] + lane % 4 * part + np.arange(part)
            if self.accesses is not None:
                self.accesses.note(self.lane, statement, wanted)
            words.append(memory[wanted].view(np.uint32))
        self.take(statement.outs, np.concatenate(words))

    # A copy comes when it is waited for, and no sooner. But it may come at once: so from where it
    # is asked for on no other lane may read what is copied over.
    def copy(self, statement: Copy) -> None:
        count, live = statement.count, statement.live is None or bool(self.scalar(statement.live))
        to, source = self.memory[statement.buffer], self.memory[statement.source]
        start = self.scalar(statement.address) + statement.distance
        first = self.scalar(statement.source_address) + statement.source_distance
        ends = [(start, statement.buffer, to)]
        ends += [(first, statement.source, source)] if live else []
        for at, name, memory in ends:
            if not 0 <= at <= memory.size - count or at % count:
                self.fail(statement, f"{at} is no place for {count} in {name}[{memory.size}]")
        self.touch(statement, start)

        def make() -> None:
            to[start : start + count] = source[first : first + count] if live else 0
            self.touch(statement, start)
            self.hide(statement.buffer, range(start, start + count), 1)

        self.batches[-1].append(make)

    def touch(self, statement: Copy, start: int) -> None:
        """Notes what a copy writes."""
        if self.accesses is not None:
            self.accesses.note(self.lane, statement, range(start, start + statement.count))

    def at_phase(self, statement: AtPhase) -> None:
        barriers, number = self.barriers, self.scalar(statement.number)
        barrier = statement.buffer, self.scalar(statement.address)
        match statement.step:
            case Phase.BEGIN:
                barriers.begin(barrier, self.lane)
            case Phase.END:
                barriers.end(statement, barrier)
            case Phase.EXPECT:
                barriers.expect(statement, barrier, number)
            case Phase.FREE:
                barriers.free(statement, barrier)
            case Phase.AWAIT | Phase.ENTER:
                barriers.wait(statement, barrier, number, self.lane)

    def copy_box(self, statement: CopyBox) -> None:
        tensor, memory = statement.tensor, self.memory[statement.buffer]
        start = self.scalar(statement.address) + statement.distance
        origin = [*map(self.scalar, statement.origin)]
        width = tensor.box[0]
        count = statement.parts * prod(tensor.box)
        if start % (PERIOD * width) or not 0 <= start <= memory.size - count:
            self.fail(statement, f"{start} is no place for a box in {statement.buffer}")
        straight = start + np.arange(count)
        piece = (tensor.swizzle - PIECE) // tensor.size
        there = straight ^ (straight >> 3 & piece)
        values = np.concatenate([
            cut_out(self.memory[tensor.source], tensor, part_origin(origin, tensor, part)).ravel()
            for part in range(statement.parts)
        ])  # fmt: skip
        if self.accesses is not None:
            self.accesses.note(BOX, statement, there)

        def make() -> None:
            memory[there] = values

        barrier = statement.phases, self.scalar(statement.turn)
        self.barriers.send(statement, barrier, Coming(there, count * tensor.size, make))

    def commit(self, statement: Commit) -> None:
        (self.batches if statement.of is Batch.COPIES else self.products).append([])

    def wait(self, statement: Await) -> None:
        if statement.of is Batch.PRODUCTS:
            self.begun = False
            while len(self.products) - 1 > statement.younger:
                for product in self.products.pop(0):
                    product.make()
            return
        while len(self.batches) - 1 > statement.younger:
            for make in self.batches.pop(0):
                make()

    def fetch(self, statement: Fetch) -> None:
        """Memory that is waited for by nobody."""
        if self.is_early:
            at = int(self.value(statement.address)[0]) + statement.distance
            size = self.memory[statement.buffer].size
            if not 0 <= at < size:
                raise VerifyError(
                    f"expanded IR: `{headline(statement)}`: element {at} is fetched early of the "
                    f"{size} of {statement.buffer}; fetch what is read"
                )

    def loop(self, statement: Loop) -> None:
        for _ in self.trips(statement):
            self.body(statement.body)

    def trips(self, statement: Loop) -> Iterator[None]:
        """Each trip, with the index and the carried values bound; what follows runs the body."""
        carries = statement.carries
        results, inners = [c.result for c in carries], [c.inner for c in carries]
        self.bind(results, [c.init for c in carries])
        start, stop = self.scalar(statement.start), self.scalar(statement.stop)
        for position in range(start, stop, statement.step):
            number = np.array([position], statement.index.type.dtype.numpy)
            self.values[statement.index.id] = number
            self.bind(inners, results)
            yield
            self.bind(results, [c.next for c in carries])

    def branch(self, statement: If) -> None:
        if self.is_taken(statement):
            self.body(statement.body)
        self.choose(statement)

    def is_taken(self, statement: If) -> bool:
        return bool(self.scalar(statement.condition))

    def choose(self, statement: If) -> None:
        """Binds what comes after an If."""
        taken, choices = self.is_taken(statement), statement.choices
        chosen = [choice.then if taken else choice.otherwise for choice in choices]
        self.bind([choice.result for choice in choices], chosen)

    RULES: Mapping[type, Callable[..., None]] = {
        Apply: apply,
        Load: load,
        Store: store,
        Fetch: fetch,
        Loop: loop,
        If: branch,
        Copy: copy,
        Publish: publish,
        Begin: begin_products,
        Commit: commit,
        Await: wait,
        AtPhase: at_phase,
        CopyBox: copy_box,
    }


def _divides(out: Type, x: Array, y: Array) -> Array:
    return np.asarray((y != 0) & ((y != -1) if out.dtype.is_signed else True))


def _shifts(out: Type, x: Array, count: Array) -> Array:
    return np.asarray((count >= 0) & (count < out.dtype.bits))


def _converts(out: Type, x: Array) -> Array:
    if x.dtype.kind != "f" or not out.dtype.is_int:
        return np.array([True])
    low, high = np.iinfo(out.dtype.numpy).min, np.iinfo(out.dtype.numpy).max
    above = x >= float(low) if out.dtype.size == 8 else x > float(low) - 1
    return np.asarray(above & (x < float(high) + 1))


DOMAINS: Mapping[str, Callable[..., Array]] = {
    "quotient": _divides,
    "remainder": _divides,
    "shl": _shifts,
    "shr": _shifts,
    "cast": _converts,
}
"""The operands that an operation takes, where it does not take all."""
