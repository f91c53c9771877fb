"""Expanded IR to LLVM IR, by one plain walk: a module with `@kernel`, as `codegen/llvm.py` says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
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
from luminal.expand.fold import uniform
from luminal.expand.ir import (
    INDEX,
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

ZERO_BYTES = 1024  # 64 lanes of 16 bytes
PIECE_BYTES = 16  # of a streamed store: large arrays of NumPy begin so many behind a page
_PARAMS = [("slots", PTR), ("dims", PTR), ("begin", I64), ("end", I64), ("scratch", PTR)]


def render(kernel: Kernel, target: LlvmTarget) -> str:
    """The LLVM IR text of a verified kernel for a target."""
    module = ModuleBuilder(target.features)
    bits = target.vector_bits
    width = f'nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    b = FunctionBuilder(module, "kernel", VOID, _PARAMS, attributes=width)
    _Walk(b).kernel(kernel)
    b.ret()
    return module.text()


def zeros(b: FunctionBuilder) -> IRValue:
    """The address of as many zeros as the widest load reads."""
    return b.module.add_global("zeros", f"[{ZERO_BYTES} x i8]", "zeroinitializer")


class _Walk:
    """Writes statements; one method per kind."""

    def __init__(self, b: FunctionBuilder) -> None:
        self.b = b
        self.values: dict[int, IRValue] = {}
        self.constants: dict[Constant, IRValue] = {}
        self.spread: dict[int, IRValue] = {}  # masks that are a scalar in every lane
        self.pointers: dict[str, IRValue] = {}  # to buffers
        self.elements: dict[str, IRType] = {}
        self.streamed: set[str] = set()  # buffers
        self.sums: dict[int, tuple[Operand, ...]] = {}  # of integers, outer ones first
        self.kept: list[
            dict[tuple[str, Operand, IRType], IRValue]
        ] = []  # pointers, by the open body

    def kernel(self, kernel: Kernel) -> None:
        b = self.b
        slots, dims, begin, end, scratch = b.params
        for k, param in enumerate(kernel.params):
            self.values[param.value.id] = b.load(I64, b.gep(dims, b.const(I64, k), I64), 8)
        for k, buffer in enumerate(kernel.buffers):
            self.pointers[buffer.name] = b.load(PTR, b.gep(slots, b.const(I64, k), PTR), 8)
            self.elements[buffer.name] = ir_type(Type(memory_dtype(buffer.dtype)))
        self.streamed = {buffer.name for buffer in kernel.buffers if buffer.streamed}
        self.body(kernel.setup)
        for each in kernel.scratch:
            self.pointers[each.buffer.name] = b.gep(scratch, self.value(each.offset), I8)

        if kernel.begin is not None:
            self.values[kernel.begin.id] = begin
        self.counted("chunk", kernel.chunk, (begin, end), 1, (), kernel.body)
        if self.streamed:
            b.call("llvm.x86.sse.sfence", VOID, [])  # seen before what says that this is done

    def value(self, operand: Operand) -> IRValue:
        if not isinstance(operand, Constant):
            return self.values[operand.id]
        found = self.constants.get(operand)
        if found is None:
            found = self.constants[operand] = self.constant(operand)
        return found

    def constant(self, operand: Constant) -> IRValue:
        type_, bits = ir_type(operand.type), operand.bits
        if len(set(bits)) == 1:
            return self.b.const_bits(type_, bits[0])
        assert not type_.is_float, "constants of floats are the same in every lane"
        numbers = self.b.vector_const(type_, bits)
        return (
            numbers if type_.scalar == "i1" else self.b.unknown(numbers)
        )  # masks are made of them

    def body(self, body: Sequence[Statement]) -> None:
        self.kept.append({})
        for place, statements in groupby(body, self.streamed_to):
            if place is None:
                for statement in statements:
                    self.RULES[type(statement)](self, statement)
            else:
                self.stream([each for each in statements if isinstance(each, Store)])
        self.kept.pop()

    def apply(self, statement: Apply) -> None:
        out, of = statement.out, statement.args[-1].type.dtype
        if statement.op == "shuffle":
            x, y, lanes = statement.args
            assert isinstance(lanes, Constant)
            self.values[out.id] = self.b.shuffle(self.value(x), self.value(y), lanes.bits)
            return
        args = [self.value(arg) for arg in statement.args]
        if statement.op == "splat" and out.type.dtype.kind == "bool":
            self.spread[out.id] = args[0]
        if statement.op == "add" and out.type == INDEX:
            self.sums[out.id] = statement.args
        emit = OPERATIONS[statement.op]
        self.values[out.id] = emit(self.b, of, args, out.type)

    # --- memory -----------------------------------------------------------------------------------

    def pointer(self, statement: Load | Store, element: IRType) -> IRValue:
        """What LLVM adds to one pointer for nothing is a distance from one that is kept."""
        base = self.base(statement.buffer, statement.address, element)
        if not statement.distance:
            return base
        return self.b.gep(base, self.b.const(I64, statement.distance), element)

    def base(self, buffer: str, address: Operand, element: IRType) -> IRValue:
        """Of a sum: a pointer to its outer part, which LLVM moves out of the loop, and the rest.
        A processor adds that for nothing, be it an index that came from memory.
        """
        key = buffer, address, element
        found = next((kept[key] for kept in self.kept if key in kept), None)
        if found is None:
            pointer = self.pointers[buffer]
            if isinstance(address, Value) and address.id in self.sums:
                outer, address = self.sums[address.id]
                pointer = self.base(buffer, outer, element)
            found = self.kept[-1][key] = self.b.gep(pointer, self.value(address), element)
        return found

    def mask(self, statement: Load | Store, lanes: int) -> IRValue | None:
        """The scalar where all lanes agree, else one a lane; None for everywhere."""
        mask = statement.mask
        if mask is None:
            return None
        if not isinstance(mask, Constant) and mask.id in self.spread:
            return self.spread[mask.id]
        return self.value(mask)

    def load(self, statement: Load) -> None:
        b, type_ = self.b, ir_type(statement.out.type)
        size = statement.out.type.dtype.size
        pointer = self.pointer(statement, type_.with_lanes(1))
        mask = self.mask(statement, type_.lanes)
        if pointer.type.lanes > 1:
            where = self.lanes_of(mask, type_.lanes)
            value = b.masked_gather(type_, pointer, where, size, b.zero(type_))
        elif mask is None or mask.type.lanes == 1:
            if mask is not None:
                pointer = b.select(mask, pointer, zeros(b))
            value = b.load(type_, pointer, size)
        else:
            value = b.masked_load(type_, pointer, mask, size, b.zero(type_))
        self.values[statement.out.id] = value

    def fetch(self, statement: Fetch) -> None:
        element = self.elements[statement.buffer]
        base = self.base(statement.buffer, statement.address, element)
        self.b.prefetch(self.b.gep(base, self.b.const(I64, statement.distance), element))

    def lanes_of(self, mask: IRValue | None, lanes: int) -> IRValue:
        if mask is None:
            return self.b.const(IRType("i1", lanes), True)
        return self.b.splat(mask, lanes) if mask.type.lanes == 1 else mask

    def store(self, statement: Store) -> None:
        b, value = self.b, self.value(statement.value)
        size = statement.value.type.dtype.size
        mask = self.mask(statement, value.type.lanes)
        pointer = self.pointer(statement, value.type.with_lanes(1))
        if pointer.type.lanes > 1:
            b.masked_scatter(value, pointer, self.lanes_of(mask, value.type.lanes), size)
        elif mask is None:
            b.store(value, pointer, size)
        elif mask.type.lanes > 1:
            b.masked_store(value, pointer, mask, size)
        else:
            then, after = b.label("then"), b.label("after")
            b.cond_br(mask, then, after)
            b.block(then)
            b.store(value, pointer, size)
            b.block(after)

    def streamed_to(self, statement: Statement) -> Hashable:
        """What streamed stores have in common that are aligned alike; None for other statements."""
        if not isinstance(statement, Store) or statement.buffer not in self.streamed:
            return None
        type_ = statement.value.type
        size = type_.lanes * type_.dtype.size
        if size < PIECE_BYTES or statement.mask is not None or statement.address.type.lanes > 1:
            return None
        return statement.buffer, statement.address, statement.distance * type_.dtype.size % size

    def stream(self, stores: Sequence[Store]) -> None:
        """Whole, or by quarters of a line, as they lie: a processor puts these together and writes
        whole lines. Asked once for all: else LLVM moves what a store needs behind the branches of
        those before it, and computes one vector after the other.
        """
        b = self.b
        values = [self.value(store.value) for store in stores]
        pointers = [self.pointer(store, values[0].type.with_lanes(1)) for store in stores]
        whole = values[0].type.lanes * values[0].type.bits // 8
        place = b.cast("ptrtoint", pointers[0], I64)
        after = b.label("after")
        for size in dict.fromkeys((whole, PIECE_BYTES)):
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
        for first in range(0, value.type.lanes, lanes):
            piece = b.shuffle(value, value, range(first, first + lanes))
            place = b.gep(pointer, b.const(I64, first), value.type.with_lanes(1))
            b.store(piece, place, size, streamed=True)

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
        number = self.values[index.id] = b.phi(I64, [(start, before)])
        phis = [b.phi(init.type, [(init, before)]) for init in inits]
        for carry, phi in zip(carries, phis, strict=True):
            self.values[carry.inner.id] = phi
        self.body(body)
        following = [self.value(carry.next) for carry in carries]
        after, latch = b.binary("add", number, b.const(I64, size)), b.current
        for phi, value in zip((number, *phis), (after, *following), strict=True):
            b.add_incoming(phi, value, latch)
        b.cond_br(b.icmp("slt", after, stop), head, done)
        b.block(done)
        for carry, init, value in zip(carries, inits, following, strict=True):
            ways = [(init, before), (value, latch)]
            self.values[carry.result.id] = value if runs else b.phi(init.type, ways)

    def branch(self, statement: If) -> None:
        b, choices = self.b, statement.choices
        then, after = b.label("then"), b.label("after")
        otherwise = [self.value(choice.otherwise) for choice in choices]
        before = b.current
        b.cond_br(self.value(statement.condition), then, after, unlikely=statement.seldom)
        b.block(then)
        self.body(statement.body)
        taken, end = [self.value(choice.then) for choice in choices], b.current
        b.block(after)
        for choice, old, new in zip(choices, otherwise, taken, strict=True):
            phi = b.phi(old.type, [(old, before), (new, end)])
            self.values[choice.result.id] = phi

    RULES: Mapping[type, Callable[..., None]] = {
        Apply: apply,
        Load: load,
        Store: store,
        Fetch: fetch,
        Loop: loop,
        If: branch,
    }
