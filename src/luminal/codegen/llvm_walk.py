"""Expanded IR to LLVM IR, by one plain walk: a module with `@kernel`, as `codegen/llvm.py` says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby

from luminal.codegen.llvm_builder import (
    I8,
    I64,
    PTR,
    VOID,
    FunctionBuilder,
    IRType,
    IRValue,
    ModuleBuilder,
)
from luminal.codegen.llvm_operations import OPERATIONS, ir_type
from luminal.codegen.llvm_target import LlvmTarget
from luminal.expand.fold import constant, uniform
from luminal.expand.ir import (
    INDEX,
    LINE,
    Apply,
    Carry,
    Constant,
    Fetch,
    If,
    Kernel,
    Load,
    Loop,
    Operand,
    Statement,
    Store,
    Type,
    Value,
    memory_dtype,
)

PIECE_BYTES = 16  # of a non-temporal store: large arrays of NumPy begin so many behind a page
FAR = 1 << 14  # bytes from a pointer: what lies farther chooses a pointer of its own
NOWHERE = constant(INDEX, 0)
_PARAMS = [("slots", PTR), ("dims", PTR), ("begin", I64), ("end", I64), ("scratch", PTR)]


def render(kernel: Kernel, target: LlvmTarget) -> str:
    """The LLVM IR text of a verified kernel for a target."""
    module = ModuleBuilder(target.features)
    bits = target.vector_bits
    width = f'nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    if "sve" in target.features:  # registers of this width and no other: vectors have a fixed one
        width += f" vscale_range({bits // 128},{bits // 128})"
    b = FunctionBuilder(module, "kernel", VOID, _PARAMS, attributes=width)
    _Walk(b).kernel(kernel)
    b.ret()
    return module.text()


class _Zeros:
    """Zeros around an address, as far as is read from there where masks do not hold."""

    address = IRValue("@nothing", PTR)

    def __init__(self) -> None:
        self.first = self.last = 0  # bytes from the address, which is that of a line

    def reach(self, distance: int, size: int) -> None:
        first = distance // LINE * LINE
        self.first, self.last = min(self.first, first), max(self.last, distance + size)

    def write(self, module: ModuleBuilder) -> None:
        size = self.last - self.first
        if size:
            zeros = module.add_global("zeros", f"[{size} x i8]", "zeroinitializer", LINE)
            module.add_alias(self.address, zeros, -self.first)


class _Body:
    """A body that is open: the block before it, and addresses that are known in it."""

    def __init__(self, before: str) -> None:
        self.before = before
        self.kept: dict[Hashable, IRValue] = {}


class _Values(dict[int, IRValue]):
    """The values of statements by their numbers; what is not there yet is written where it is asked
    for.
    """

    def __init__(self, write: Callable[[int], IRValue]) -> None:
        self.write = write

    def __missing__(self, number: int) -> IRValue:
        return self.write(number)


# Accesses that are a constant apart share one pointer and differ in a constant, which is part of
# the instruction: LLVM would find that too, by a search through all addresses of a loop that takes
# a quarter of its time. That search is off (`backends/cpu/machine_code.py`).
class _Walk:
    """Writes statements; one method per kind."""

    def __init__(self, b: FunctionBuilder) -> None:
        self.b = b
        self.values = _Values(self.sum)
        self.constants: dict[Constant, IRValue] = {}
        self.depths: dict[int, int] = {}  # of values: the open body that has them
        self.spread: dict[int, Operand] = {}  # masks that are a scalar in every lane
        self.pointers: dict[str, IRValue] = {}  # to buffers
        self.elements: dict[str, IRType] = {}
        self.non_temporal: set[str] = set()  # buffers
        self.sums: dict[int, tuple[Operand, ...]] = {}  # places: what is added, outer ones first
        self.bodies = [_Body(b.current)]
        self.zeros = _Zeros()

    def kernel(self, kernel: Kernel) -> None:
        b = self.b
        slots, dims, begin, end, scratch = b.params
        for k, param in enumerate(kernel.params):
            self.bind(param.value, b.load(I64, b.gep(dims, b.const(I64, k), I64), 8))
        for k, buffer in enumerate(kernel.buffers):
            self.pointers[buffer.name] = b.load(PTR, b.gep(slots, b.const(I64, k), PTR), 8)
            self.elements[buffer.name] = ir_type(Type(memory_dtype(buffer.dtype)))
        self.non_temporal = {buffer.name for buffer in kernel.buffers if buffer.non_temporal}
        self.statements(kernel.setup)
        for scratch_buffer in kernel.scratch:
            self.pointers[scratch_buffer.buffer.name] = b.gep(
                scratch, self.value(scratch_buffer.offset), I8
            )

        if kernel.begin is not None:
            self.bind(kernel.begin, begin)
        self.counted("chunk", kernel.chunk, (begin, end), 1, (), kernel.body)
        if self.non_temporal and "neon" not in b.features:
            # Seen before what says that this is done; AArch64 orders such stores as others.
            b.call("llvm.x86.sse.sfence", VOID, [])
        self.zeros.write(b.module)

    def bind(self, value: Value, is_: IRValue) -> None:
        self.values[value.id] = is_
        self.depths[value.id] = len(self.bodies) - 1

    def depth(self, operand: Operand) -> int:
        """The outermost body, by number, in which the operand is known."""
        return self.depths[operand.id] if isinstance(operand, Value) else 0

    def value(self, operand: Operand) -> IRValue:
        if not isinstance(operand, Constant):
            return self.values[operand.id]
        written = self.constants.get(operand)
        if written is None:
            written = self.constants[operand] = self.constant(operand)
        return written

    def constant(self, operand: Constant) -> IRValue:
        type_, bits = ir_type(operand.type), operand.bits
        if len(set(bits)) == 1:
            return self.b.const_bits(type_, bits[0])
        assert not type_.is_float, "constants of floats are the same in every lane"
        numbers = self.b.vector_const(type_, bits)
        return (
            numbers if type_.scalar == "i1" else self.b.unknown(numbers)
        )  # masks are made of them

    def statements(self, body: Sequence[Statement]) -> None:
        stores = (other.buffer for other in body if type(other) is Store)
        if self.non_temporal.isdisjoint(stores):
            for statement in body:
                self.RULES[type(statement)](self, statement)
            return
        for place, statements in groupby(body, self.non_temporal_to):
            if place is None:
                for statement in statements:
                    self.RULES[type(statement)](self, statement)
            else:
                self.stream([other for other in statements if isinstance(other, Store)])

    @contextmanager
    def body(self, before: str) -> Iterator[None]:
        """What is written inside is a body that follows the block `before`."""
        self.bodies.append(_Body(before))
        yield
        self.bodies.pop()

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """What is written inside comes last of what an open body has so far."""
        bodies = self.bodies
        if depth == len(bodies) - 1:
            yield
            return
        self.bodies = bodies[: depth + 1]
        with self.b.at_end(bodies[depth + 1].before):
            yield
        self.bodies = bodies

    def kept(self, key: Hashable, depth: int, write: Callable[[], IRValue]) -> IRValue:
        """What is written once, in the body at this depth."""
        written = next((body.kept[key] for body in self.bodies if key in body.kept), None)
        if written is None:
            with self.at(depth):
                written = self.bodies[depth].kept[key] = write()
        return written

    def apply(self, statement: Apply) -> None:
        out, of = statement.out, statement.args[-1].type.dtype
        if statement.op == "add" and out.type == INDEX:
            self.sums[out.id] = statement.args
            self.depths[out.id] = len(self.bodies) - 1
            return
        if statement.op == "shuffle":
            x, y, lanes = statement.args
            assert isinstance(lanes, Constant)
            self.bind(out, self.b.shuffle(self.value(x), self.value(y), lanes.bits))
            return
        values = self.values
        args = [values[arg.id] if type(arg) is Value else self.value(arg) for arg in statement.args]
        if statement.op == "splat" and out.type.dtype.kind == "bool":
            self.spread[out.id] = statement.args[0]
        emit = OPERATIONS[statement.op]
        self.bind(out, emit(self.b, of, args, out.type))

    def sum(self, number: int) -> IRValue:
        """The sum of two integers, written where the statement stands; most are addresses, of which
        only the parts are asked for.
        """
        # An address is written where its last part is known, the outermost loop that can have it:
        # hoisting is done here, since no optimiser runs afterwards.
        parts = self.sums[number]
        with self.at(self.depths[number]):
            total = self.values[number] = self.b.binary("add", *map(self.value, parts))
        return total

    # --- memory -----------------------------------------------------------------------------------

    def pointer(
        self, statement: Load | Store, element: IRType, where: Operand | None = None
    ) -> IRValue:
        """What LLVM adds to one pointer for nothing is a distance from one that is kept."""
        base = self.base(statement.buffer, statement.address, element, where)
        if not statement.distance:
            return base
        return self.b.gep(base, self.b.const(I64, statement.distance), element)

    def pointer_or_zeros(self, load: Load, element: IRType, where: Operand) -> IRValue:
        """The pointer of a load, or one to zeros where the scalar does not hold."""
        type_ = load.out.type
        size, distance = type_.dtype.size, load.distance * type_.dtype.size
        is_near = abs(distance) <= FAR
        if type_.lanes == 1 and self.depth(where) < self.depth(load.address):
            self.b.module.is_in_order = True  # scalars of several pointers would be loaded too soon
        self.zeros.reach(distance if is_near else 0, type_.lanes * size)
        if is_near:
            return self.pointer(load, element, where)
        return self.b.select(self.value(where), self.pointer(load, element), self.zeros.address)

    def base(
        self, buffer: str, address: Operand, element: IRType, where: Operand | None = None
    ) -> IRValue:
        """For a sum, a pointer to its outer part, which LLVM moves out of the loop, with the rest
        added. A processor adds that for nothing, be it an index that came from memory.

        A mask that is known outside of a loop chooses the pointer there, and the rest is 0 where it
        does not hold. So the edges of a convolution leave no masks to the loop, whose loads can be
        operands of multiplications.
        """

        def chosen() -> IRValue:
            assert where is not None
            pointer = self.base(buffer, address, element)
            return self.b.select(self.value(where), pointer, self.zeros.address)

        def summed() -> IRValue:
            outer, rest = self.parts(address)
            pointer = self.pointers[buffer]
            if where is not None or outer is not NOWHERE:
                pointer = self.base(buffer, outer, element, where)
            return self.b.gep(pointer, self.masked(rest, where), element)

        key, depth = (buffer, address, element, where), len(self.bodies) - 1
        if where is None:
            return self.kept(key, depth, summed)
        mask_depth, depth = self.depth(where), self.depth(address)
        return self.kept(key, max(mask_depth, depth), summed if mask_depth < depth else chosen)

    def parts(self, address: Operand) -> tuple[Operand, ...]:
        """The outer part of a sum and the rest."""
        alone = (NOWHERE, address)
        return self.sums.get(address.id, alone) if isinstance(address, Value) else alone

    def masked(self, index: Operand, where: Operand | None) -> IRValue:
        """An integer; 0 where the scalar does not hold."""
        if where is None:
            return self.value(index)
        b = self.b
        ones = self.kept(where, self.depth(where), lambda: b.cast("sext", self.value(where), I64))
        depth = max(self.depth(where), self.depth(index))
        return self.kept((index, where), depth, lambda: b.binary("and", self.value(index), ones))

    def mask(self, statement: Load | Store) -> Operand | None:
        """The scalar where all lanes agree, else one a lane; None for everywhere."""
        mask = statement.mask
        return self.spread.get(mask.id, mask) if isinstance(mask, Value) else mask

    def load(self, statement: Load) -> None:
        b, out, type_ = self.b, statement.out, ir_type(statement.out.type)
        element, size = type_.with_lanes(1), out.type.dtype.size
        mask = self.mask(statement)
        if statement.address.type.lanes > 1:
            pointer, lanes = self.pointer(statement, element), self.lanes_of(mask, type_.lanes)
            value = b.masked_gather(type_, pointer, lanes, size, b.zero(type_))
        elif mask is None or mask.type.lanes == 1:
            if mask is None:
                pointer = self.pointer(statement, element)
            else:
                pointer = self.pointer_or_zeros(statement, element, mask)
            value = b.load(type_, pointer, size)
        else:
            pointer = self.pointer(statement, element)
            value = b.masked_load(type_, pointer, self.value(mask), size, b.zero(type_))
        self.bind(out, value)

    def fetch(self, statement: Fetch) -> None:
        element = self.elements[statement.buffer]
        base = self.base(statement.buffer, statement.address, element)
        self.b.prefetch(self.b.gep(base, self.b.const(I64, statement.distance), element))

    def lanes_of(self, mask: Operand | None, lanes: int) -> IRValue:
        if mask is None:
            return self.b.const(IRType("i1", lanes), True)
        written = self.value(mask)
        return self.b.splat(written, lanes) if written.type.lanes == 1 else written

    def store(self, statement: Store) -> None:
        b, value = self.b, self.value(statement.value)
        size = statement.value.type.dtype.size
        mask = self.mask(statement)
        pointer = self.pointer(statement, value.type.with_lanes(1))
        if pointer.type.lanes > 1:
            b.masked_scatter(value, pointer, self.lanes_of(mask, value.type.lanes), size)
        elif mask is None:
            b.store(value, pointer, size)
        elif mask.type.lanes > 1:
            b.masked_store(value, pointer, self.value(mask), size)
        else:
            then, after = b.label("then"), b.label("after")
            b.cond_br(self.value(mask), then, after)
            b.block(then)
            b.store(value, pointer, size)
            b.block(after)

    def non_temporal_to(self, statement: Statement) -> Hashable:
        """What non-temporal stores that are aligned alike have in common; None for the others."""
        if not isinstance(statement, Store) or statement.buffer not in self.non_temporal:
            return None
        type_ = statement.value.type
        size = type_.lanes * type_.dtype.size
        if size < PIECE_BYTES or statement.mask is not None or statement.address.type.lanes > 1:
            return None
        return statement.buffer, statement.address, statement.distance * type_.dtype.size % size

    def stream(self, stores: Sequence[Store]) -> None:
        """Lines, or quarters of a line, as they lie: a processor puts these together and writes
        whole lines (halves are no faster than quarters). Asked once for all: else LLVM moves what
        a store needs behind the branches of those before it, and computes one vector after another.
        """
        b = self.b
        values = [self.value(store.value) for store in stores]
        pointers = [self.pointer(store, values[0].type.with_lanes(1)) for store in stores]
        whole = values[0].type.lanes * values[0].type.bits // 8
        place = b.cast("ptrtoint", pointers[0], I64)
        after = b.label("after")
        for size in (whole, PIECE_BYTES) if whole == LINE else (PIECE_BYTES,):
            low = b.binary("and", place, b.const(I64, size - 1))
            past, there = b.label("past"), b.label("there")
            b.cond_br(b.icmp("eq", low, b.const(I64, 0)), past, there)
            b.block(past)
            for value, pointer in zip(values, pointers, strict=True):
                self.store_pieces(value, pointer, size)
            b.br(after)
            b.block(there)
        for value, pointer in zip(values, pointers, strict=True):
            b.store(value, pointer, value.type.bits // 8)
        b.block(after)

    def store_pieces(self, value: IRValue, pointer: IRValue, size: int) -> None:
        """A vector past the caches, by pieces of so many bytes, to which it is aligned."""
        b, lanes = self.b, 8 * size // value.type.bits
        if lanes == value.type.lanes:
            b.store(value, pointer, size, non_temporal=True)
            return
        for first in range(0, value.type.lanes, lanes):
            piece = b.shuffle(value, value, range(first, first + lanes))
            place = b.gep(pointer, b.const(I64, first), value.type.with_lanes(1))
            b.store(piece, place, size, non_temporal=True)

    # --- control ----------------------------------------------------------------------------------

    def loop(self, statement: Loop) -> None:
        bounds = self.value(statement.start), self.value(statement.stop)
        start, stop = uniform(statement.start), uniform(statement.stop)
        runs = start is not None and stop is not None and start < stop
        rest = statement.step, statement.carries, statement.body
        self.counted("loop", statement.index, bounds, *rest, runs=runs)

    def counted(
        self,
        name: str,
        index: Value,
        bounds: tuple[IRValue, IRValue],
        size: int,
        carries: Sequence[Carry],
        body: Sequence[Statement],
        *,
        runs: bool = False,
    ) -> None:
        """A loop that is tested at its end and, unless it certainly `runs`, at its start."""
        b, (start, stop) = self.b, bounds
        inits = [self.value(carry.init) for carry in carries]
        head, done, before = b.label(f"{name}.loop"), b.label(f"{name}.done"), b.current
        if runs:
            b.br(head)
        else:
            b.cond_br(b.icmp("slt", start, stop), head, done)
        b.block(head)
        with self.body(before):
            number = b.phi(I64, [(start, before)])
            phis = [b.phi(init.type, [(init, before)]) for init in inits]
            self.bind(index, number)
            for carry, phi in zip(carries, phis, strict=True):
                self.bind(carry.inner, phi)
            self.statements(body)
            following = [self.value(carry.next) for carry in carries]
        after, latch = b.binary("add", number, b.const(I64, size)), b.current
        for phi, value in zip((number, *phis), (after, *following), strict=True):
            b.add_incoming(phi, value, latch)
        b.cond_br(b.icmp("slt", after, stop), head, done)
        b.block(done)
        for carry, init, value in zip(carries, inits, following, strict=True):
            ways = [(init, before), (value, latch)]
            self.bind(carry.result, value if runs else b.phi(init.type, ways))

    def branch(self, statement: If) -> None:
        b, choices = self.b, statement.choices
        then, after = b.label("then"), b.label("after")
        otherwise = [self.value(choice.otherwise) for choice in choices]
        before = b.current
        b.cond_br(self.value(statement.condition), then, after, unlikely=statement.seldom)
        b.block(then)
        with self.body(before):
            self.statements(statement.body)
            taken, end = [self.value(choice.then) for choice in choices], b.current
        b.block(after)
        for choice, old, new in zip(choices, otherwise, taken, strict=True):
            phi = b.phi(old.type, [(old, before), (new, end)])
            self.bind(choice.result, phi)

    RULES: Mapping[type, Callable[..., None]] = {
        Apply: apply,
        Load: load,
        Store: store,
        Fetch: fetch,
        Loop: loop,
        If: branch,
    }
