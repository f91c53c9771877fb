"""The invariants of expanded IR, checked between steps.

Values are defined once and before their use, in scope; types, masks, buffers and operands are those
that statements and operations take; no access lies where its buffer cannot reach. A VerifyError
names the kernel's line at fault, the rule and the fix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from luminal.base import dtypes
from luminal.base.dots import WORD_DOTS, WORDS, Dot
from luminal.base.errors import VerifyError
from luminal.expand.divergence import divergent
from luminal.expand.fold import uniform
from luminal.expand.ir import (
    CONDITION,
    INDEX,
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
    Publish,
    Statement,
    Store,
    Type,
    Value,
    memory_dtype,
)
from luminal.expand.operations import OPERATIONS, Operation
from luminal.expand.ranges import Ranges, is_empty
from luminal.expand.text import headline, place
from luminal.kernel.tile_ir import Buffer, Role
from luminal.shape.expression import Expression
from luminal.shape.interval import Interval

OWN = {"select": slice(1, 3), "extract": slice(0, 1), "shuffle": slice(0, 2)}
OWN |= {dot.name: slice(1 + dot.is_pair, 3) for dot in WORD_DOTS.values()}
"""Which operands have the type that a row is about, where not all have it."""
INTEGERS = (INDEX, Type(dtypes.int32))
"""The types of loops' numbers and of addresses."""
CONVERSIONS = ("cast", "bitcast", "splat")
"""What the statement, not the row, gives a type."""


def verify(kernel: Kernel) -> None:
    """Raise VerifyError unless `kernel` is well formed."""
    _Verifier(kernel).run()


class _Verifier:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers: dict[str, Buffer] = {}
        self.defined: set[int] = set()
        self.scope: dict[int, Value] = {}
        self.ranges = Ranges(kernel)
        self.counters: list[Value] = []  # of the chunks and loops around
        self.line: Statement | str = "kernel"

    def run(self) -> None:
        kernel = self.kernel
        for param in kernel.params:
            self.typed(param.value, INDEX)
            self.define(param.value)
        if (kernel.lane is None) != (kernel.lanes == 1):
            self.fail(f"it has {kernel.lanes} lanes; only a kernel of several has a lane's number")
        if kernel.subgroup < 1 or kernel.lanes % kernel.subgroup or kernel.subgroup.bit_count() > 1:
            self.fail(f"{kernel.subgroup} of {kernel.lanes} lanes exchange; take a power of two")
        if kernel.lane is not None:
            self.typed(kernel.lane, INDEX)
            self.define(kernel.lane)
        for statement in divergent(kernel):
            self.line = statement
            self.fail("some lanes may meet in it and others not; put that outside")
        self.line = "kernel"
        scratch = [memory.buffer for memory in kernel.scratch]
        for buffer in (*kernel.buffers, *scratch, *kernel.shared, *kernel.tensor):
            if buffer.name in self.buffers:
                self.fail(f"two buffers are named {buffer.name}; rename one")
            self.buffers[buffer.name] = buffer
        if kernel.first is not None:
            self.early(kernel.early)
            self.inside(kernel.early, kernel.first)
        for statement in kernel.setup:
            self.line = statement
            if not isinstance(statement, Apply):
                self.fail("the setup only computes; put it into the body")
        self.body(kernel.setup)
        for memory in kernel.scratch:
            self.line = f"scratch {memory.buffer.name}"
            self.operand(memory.offset, INDEX)
        self.typed(kernel.chunk, INDEX)
        begin = () if kernel.begin is None else (kernel.begin,)
        for value in begin:
            self.typed(value, INDEX)
        self.inside(kernel.body, kernel.chunk, *begin)

    def early(self, body: Sequence[Statement]) -> None:
        """Checks what runs before earlier launches have ended."""
        for statement in body:
            self.line = statement
            if isinstance(statement, If):
                self.early(statement.body)
            elif isinstance(statement, Fetch):
                buffer = self.buffers.get(statement.buffer)
                if buffer is None or not buffer.constant:
                    self.fail(
                        f"an earlier launch may be writing {statement.buffer}; fetch early from "
                        "constant buffers only"
                    )
            elif not isinstance(statement, Apply):
                self.fail("earlier launches have not ended here; put it into the body")

    def fail(self, text: str) -> NoReturn:
        line = self.line if isinstance(self.line, str) else headline(self.line)
        raise VerifyError(f"expanded IR: `{line}`: {text}")

    # --- rules shared by the statements -----------------------------------------------------------

    def typed(self, operand: Operand, expected: Type) -> None:
        if operand.type != expected:
            self.fail(f"{operand} is {operand.type}, expected {expected}; convert it first")

    def define(self, value: Value) -> None:
        type_ = value.type
        if type_.dtype.is_storage:
            self.fail(f"{value} is {type_}; hold it as {type_.dtype.word} words")
        if type_.lanes < 1 or type_.lanes.bit_count() != 1:
            self.fail(f"{value} has {type_.lanes} lanes; take a power of two")
        if value.id in self.defined:
            self.fail(f"{value} is defined twice; give the second one a fresh id")
        self.defined.add(value.id)
        self.scope[value.id] = value

    def operand(self, operand: Operand, expected: Type | None = None) -> Operand:
        """An operand that may be read here."""
        if isinstance(operand, Constant):
            size = operand.type.dtype.size * operand.type.lanes
            if len(operand.data) != size:
                self.fail(f"a constant of {operand.type} has {len(operand.data)} bytes, not {size}")
        elif self.scope.get(operand.id) != operand:
            state = "defined elsewhere" if operand.id in self.defined else "not defined before"
            self.fail(f"{operand} is {state}; use it in the scope and with the type it has there")
        if expected is not None:
            self.typed(operand, expected)
        return operand

    def integer(self, address: Operand) -> None:
        """An address that may be read here."""
        if self.operand(address).type not in INTEGERS:
            self.fail(f"the address is {address.type}; give an integer")

    def inside(self, body: Sequence[Statement], *values: Value) -> dict[int, Value]:
        """A body with values of its own, the first its counter; gives the scope at its end."""
        outer, line = dict(self.scope), self.line
        for value in values:
            self.define(value)
        self.counters += values[:1]
        self.body(body)
        del self.counters[len(self.counters) - len(values[:1]) :]
        inner, self.scope, self.line = self.scope, outer, line
        return inner

    def body(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.line = statement
            self.RULES[type(statement)](self, statement)

    # --- statements -------------------------------------------------------------------------------

    def apply(self, statement: Apply) -> None:
        row = OPERATIONS.get(statement.op)
        if row is None:
            self.fail(f"there is no operation {statement.op}; it takes a row of OPERATIONS")
        args = [self.operand(arg) for arg in statement.args]
        if len(args) != row.arity:
            self.fail(f"{row.name} takes {row.arity} operands, got {len(args)}")
        alike = args[OWN.get(row.name, slice(None))]
        for arg in alike:
            if arg.type.dtype.kind not in row.takes:
                self.fail(f"{row.name} takes {', '.join(sorted(row.takes))}, got {arg.type}")
            self.typed(arg, alike[0].type)
        if row.name == "select":
            self.operand(args[0], Type(dtypes.bool_, alike[0].type.lanes))
        if row.name in WORD_DOTS:
            dot = WORD_DOTS[row.name]
            self.typed(alike[-1], Type(dot.word, alike[-1].type.lanes))
            if dot.is_pair:
                self.typed(args[1], Type(dot.word, dot.m))
            self.typed(args[0], Type(dot.accumulator, alike[0].type.lanes * dot.m))
        if row.name in CONVERSIONS:
            self.converted(statement)
        elif row.result is not None:
            self.typed(statement.out, row.result([arg.type for arg in args]))
        self.domain(row, args)
        self.define(statement.out)
        self.ranges.note(statement)

    def converted(self, statement: Apply) -> None:
        (arg,), out = statement.args, statement.out
        before, after = arg.type, out.type
        if statement.op == "splat":
            self.typed(arg, Type(after.dtype))
        elif before.lanes != after.lanes:
            self.fail(f"{statement.op} keeps the lanes: {before} to {after}")
        elif statement.op == "cast" and after.dtype is dtypes.bool_:
            self.fail("nothing is cast to bool; compare with 0")
        elif statement.op == "bitcast" and before.dtype.size != after.dtype.size:
            self.fail(f"bitcast keeps the size: {before} to {after}")

    def domain(self, row: Operation, args: Sequence[Operand]) -> None:
        """Second operands that are known to be wrong."""
        second = uniform(args[1]) if len(args) == 2 else None
        if second is None:
            return
        if row.name in ("quotient", "remainder") and second in (0, -1):
            self.fail(f"nothing is divided by {second}; choose another divisor")
        if row.name in ("shl", "shr") and not 0 <= second < args[0].type.dtype.bits:
            self.fail(f"{args[0].type} is not shifted by {second}")
        if row.name == "extract" and not 0 <= second < args[0].type.lanes:
            self.fail(f"{args[0].type} has no lane {second}")

    def access(self, statement: Load | Store, type_: Type) -> Buffer:
        """The buffer of an access to elements of a type."""
        buffer = self.buffers.get(statement.buffer)
        if buffer is None:
            listed = ", ".join(self.buffers)
            self.fail(f"there is no buffer {statement.buffer}; the kernel has {listed}")
        address = self.operand(statement.address)
        if address.type not in (*INTEGERS, Type(dtypes.int64, type_.lanes)):
            self.fail(f"the address is {address.type}; give an integer, or an i64 for each lane")
        if statement.mask is not None:
            self.operand(statement.mask, Type(dtypes.bool_, type_.lanes))
        if statement.is_aligned:
            self.aligned(statement, buffer, type_)
        stored_as = memory_dtype(buffer.dtype)
        count = type_.dtype.size // stored_as.size  # of neighbours in a word
        if type_.dtype is not stored_as and (count < 2 or type_.dtype not in WORDS.values()):
            self.fail(f"elements of {buffer.name} are accessed as {stored_as}, not {type_.dtype}")
        distance = statement.distance
        found_at = self.ranges.of(address).plus(Interval(distance, distance))
        runs = not any(is_empty(self.ranges.of(counter)) for counter in self.counters)
        if runs and statement.mask is None and _is_outside(found_at, buffer.size // count):
            self.fail(
                f"{place(statement)} in {found_at.lo}..{found_at.hi} is outside {buffer.name}; "
                "mask it"
            )
        return buffer

    def aligned(self, statement: Load | Store, buffer: Buffer, type_: Type) -> None:
        """Checks a vector that is accessed as one."""
        if type_.lanes == 1 or statement.address.type.lanes > 1:
            self.fail("it is aligned; that takes a vector at one address")
        if not buffer.is_aligned:
            self.fail(f"{buffer.name} starts anywhere; access its elements one by one")
        if statement.distance % type_.lanes:
            self.fail(f"its distance is no multiple of {type_.lanes}; access it one by one")

    def load(self, statement: Load) -> None:
        self.access(statement, statement.out.type)
        self.define(statement.out)

    def store(self, statement: Store) -> None:
        buffer = self.access(statement, self.operand(statement.value).type)
        if buffer.role is Role.IN and buffer in self.kernel.buffers:
            self.fail(f"{buffer.name} is an input; give it the role out or inout to store to it")

    def fetch(self, statement: Fetch) -> None:
        if statement.buffer not in self.buffers:
            self.fail(f"there is no buffer {statement.buffer}; fetch from one that is read")
        self.integer(statement.address)

    def loop(self, statement: Loop) -> None:
        if statement.index.type not in INTEGERS:
            self.fail(f"it counts in {statement.index.type}; take i64, or i32")
        for bound in (statement.start, statement.stop):
            self.operand(bound, statement.index.type)
        if statement.step < 1:
            self.fail(f"it takes steps of {statement.step}; the least is 1")
        for carry in statement.carries:
            self.operand(carry.init, carry.result.type)
            self.typed(carry.inner, carry.result.type)
        self.ranges.enter(statement)
        inners = [carry.inner for carry in statement.carries]
        inner = self.inside(statement.body, statement.index, *inners)
        outer, self.scope = self.scope, inner
        for carry in statement.carries:
            self.operand(carry.next, carry.result.type)
        self.scope = outer
        for carry in statement.carries:
            self.define(carry.result)

    def branch(self, statement: If) -> None:
        self.operand(statement.condition, CONDITION)
        inner = self.inside(statement.body)
        for choice in statement.choices:
            self.operand(choice.otherwise, choice.result.type)
            outer, self.scope = self.scope, inner
            self.operand(choice.then, choice.result.type)
            self.scope = outer
        for choice in statement.choices:
            self.define(choice.result)

    def barrier(self, statement: Barrier) -> None:
        if self.kernel.lane is None:
            self.fail("there is one lane, which waits for nobody; leave the barrier out")

    def exchange(self, statement: Exchange) -> None:
        type_, distance = self.operand(statement.value).type, statement.distance
        self.typed(statement.out, type_)
        if type_.lanes > 1 or memory_dtype(type_.dtype) != type_.dtype:
            self.fail(f"lanes exchange single elements as they lie in memory, not {type_}")
        if not 0 < distance < self.kernel.subgroup or distance.bit_count() > 1:
            subgroup = self.kernel.subgroup
            self.fail(f"{subgroup} lanes exchange; take a power of two below for a distance")
        self.define(statement.out)

    def multiply(self, statement: Multiply) -> None:
        dot = statement.dot
        self.blocks(statement, {"a": statement.a, "b": statement.b, "c": statement.acc})
        if len(statement.scales) != (0 if dot.scale is None else 2):
            self.fail(f"{dot} takes a word of the scales of either factor, if it has some")
        for word in statement.scales:
            self.operand(word, Type(dtypes.uint32))
        if dot.is_from_memory:
            self.fail(f"{dot} reads its factors in shared memory; leave them there")

    def multiply_left(self, statement: MultiplyLeft) -> None:
        dot = statement.dot
        if not dot.is_from_memory or dot.in_tensor:
            self.fail(f"{dot} has its factors in registers, or its sums in tensor memory")
        for factor, dtype in zip(statement.left[::-1], (dot.b, dot.a), strict=False):
            self.left(factor, dtype)
        held = {"a": statement.a} if isinstance(statement.a, tuple) else {}
        if held and not dot.fragments[0]:
            self.fail(f"{dot} reads both its factors in shared memory; leave the first one there")
        self.blocks(statement, {"c": statement.acc, **held})

    def accumulate(self, statement: Accumulate) -> None:
        dot = statement.dot
        for factor, dtype in ((statement.a, dot.a), (statement.b, dot.b)):
            self.left(factor, dtype)
        self.columns(statement)
        self.operand(statement.adds, CONDITION)

    def load_sums(self, statement: LoadSums) -> None:
        self.columns(statement)
        self.blocks(statement, {})

    def columns(self, statement: Accumulate | LoadSums) -> None:
        """Checks where results stand in tensor memory."""
        buffer, dot = self.buffers.get(statement.buffer), statement.dot
        if buffer is None or buffer not in self.kernel.tensor or not dot.in_tensor:
            self.fail(f"{statement.buffer} is no tensor memory, or {dot} has its sums elsewhere")
        self.integer(statement.address)

    def left(self, factor: Left, dtype: dtypes.DType) -> None:
        """Checks where a factor lies."""
        buffer = self.buffers.get(factor.buffer)
        if buffer is None or buffer not in self.kernel.shared or not buffer.swizzle:
            self.fail(f"{factor.buffer} is no swizzled shared memory, which its dot reads")
        if buffer.dtype is not dtype:
            self.fail(f"{buffer.name} has {buffer.dtype}, and its dot reads {dtype}")
        if factor.turned and dtype.size != 2:
            self.fail(f"elements of {dtype} are not turned; those of 16 bits are")
        self.integer(factor.address)

    def blocks(
        self, statement: Multiply | MultiplyLeft | LoadSums, held: Mapping[str, tuple[Operand, ...]]
    ) -> None:
        """Checks the blocks that lanes hold between them."""
        dot = statement.dot
        if self.kernel.lanes % dot.together:
            self.fail(f"{dot.together} lanes multiply together; the group has {self.kernel.lanes}")
        of_results = Type(dot.accumulator)
        types = {block: of_results if block == "c" else register(dot, block) for block in held}
        for block, operands in held.items():
            count = dot.fragment(block).elements
            if len(operands) != count:
                self.fail(f"a lane holds {count} registers of {block}, got {len(operands)}")
            for operand in operands:
                self.operand(operand, types[block])
        if len(statement.outs) != (count := dot.fragment("c").elements):
            self.fail(f"{count} results are added to, {len(statement.outs)} come out")
        for out in statement.outs:
            self.typed(out, of_results)
            self.define(out)

    def load_matrix(self, statement: LoadMatrix) -> None:
        buffer = self.buffers.get(statement.buffer)
        if buffer is None or buffer not in self.kernel.shared:
            self.fail(f"{statement.buffer} is no shared memory, from which rows of lanes load")
        if statement.turned and memory_dtype(buffer.dtype).size != 2:
            self.fail(f"elements of {buffer.dtype} are not turned; those of 16 bits are")
        if self.kernel.lanes % 32:
            self.fail(f"32 lanes load together; the group has {self.kernel.lanes}")
        self.integer(statement.address)
        if len(statement.outs) not in (1, 2, 4):
            self.fail(f"{len(statement.outs)} squares are loaded; take 1, 2 or 4")
        for out in statement.outs:
            self.typed(out, Type(dtypes.uint32))
            self.define(out)

    def copy(self, statement: Copy) -> None:
        buffer, source = (self.buffers.get(name) for name in (statement.buffer, statement.source))
        if buffer not in self.kernel.shared or source not in self.kernel.buffers:
            self.fail(f"{statement.source} is no operand, or {statement.buffer} is not shared")
        assert buffer is not None
        assert source is not None
        if not source.is_aligned:
            self.fail(f"{source.name} starts anywhere; copy its elements through registers")
        if buffer.dtype is not source.dtype:
            self.fail(f"{source.dtype} is copied to {buffer.dtype}; copy elements as they lie")
        for address in (statement.address, statement.source_address):
            self.integer(address)
        if statement.live is not None:
            self.operand(statement.live, CONDITION)

    def at_phase(self, statement: AtPhase) -> None:
        buffer = self.buffers.get(statement.buffer)
        if buffer not in self.kernel.shared or buffer.dtype is not dtypes.uint64:
            self.fail(f"{statement.buffer} holds no barriers; take shared memory of u64")
        self.integer(statement.address)
        self.integer(statement.number)

    def copy_box(self, statement: CopyBox) -> None:
        tensor = statement.tensor
        buffer, source = (self.buffers.get(n) for n in (statement.buffer, tensor.source))
        if buffer not in self.kernel.shared or source not in self.kernel.buffers:
            self.fail(f"{tensor.source} is no operand, or {statement.buffer} is not shared")
        assert buffer is not None
        assert source is not None
        if not source.is_aligned:
            self.fail(f"{source.name} starts anywhere; copy its elements through registers")
        if tensor.refusal is not None or len(statement.origin) != len(tensor.extents):
            self.fail(f"{tensor.refusal or 'it has other dimensions'}; copy it by lanes")
        if buffer.dtype is not source.dtype or tensor.swizzle != buffer.swizzle:
            self.fail(f"{tensor} does not lie as {buffer.name} does")
        for operand in (statement.address, statement.turn, *statement.origin):
            self.integer(operand)

    def publish(self, statement: Publish) -> None:
        """What has been written may be nothing."""

    def begin_products(self, statement: Begin) -> None:
        """A batch may be empty."""

    def commit(self, statement: Commit) -> None:
        """A batch may be empty."""

    def wait(self, statement: Await) -> None:
        if statement.younger < 0:
            self.fail(f"{statement.younger} batches are younger; take 0 or more")

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
        Accumulate: accumulate,
        LoadSums: load_sums,
        LoadMatrix: load_matrix,
        Copy: copy,
        Publish: publish,
        Begin: begin_products,
        Commit: commit,
        Await: wait,
        AtPhase: at_phase,
        CopyBox: copy_box,
    }


def register(dot: Dot, block: str) -> Type:
    """What a register of a factor is: a word of elements, or one of 32 or 64 bits as it is."""
    dtype, count = dot.a if block == "a" else dot.b, dot.in_word(block)
    return Type(WORDS[count * dtype.size] if count > 1 else dtype)


def _is_outside(address: Interval, size: Expression) -> bool:
    """Is every address outside of a buffer, whatever its size? One that is always empty belongs to
    a kernel that never runs.
    """
    most = size.interval.hi
    return address.at_most(-1) or (most is not None and most > 0 and address.at_least(most))
