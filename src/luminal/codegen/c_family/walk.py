"""A kernel of expanded IR as C: one walk for all dialects, which decides nothing.

The kernel takes the operands' memory, the scratch memory, and where it has parameters the memory
of a row of i64: the parameters, the bytes of scratch memory for each worker, and the number of
chunks, of which each worker takes every `workers`-th. A kernel without parameters knows the last
two. A worker is a thread, or, of a kernel with lanes, a group of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from luminal.base.dtypes import DType
from luminal.base.swizzles import SWIZZLES, Swizzle
from luminal.codegen.c_family import phases, tensor_memory, warpgroups
from luminal.codegen.c_family.dialect import DYNAMIC, Dialect
from luminal.codegen.c_family.in_place import variables
from luminal.codegen.c_family.launched import (
    SHARED_ALIGNMENT,
    cluster_of,
    dynamic_bytes,
    fewest_copies,
    offsets_of,
    shared_bytes,
    tensors,
)
from luminal.codegen.c_family.matrices import (
    AWAIT,
    AWAIT_BESIDE,
    COMMIT,
    MOST_AWAITED,
    copier_of,
    loader_of,
    name_of,
)
from luminal.codegen.c_family.spelling import (
    EXTREMES,
    INSTRUCTIONS,
    float_extremes,
    operand,
    operation,
)
from luminal.expand.fragments import OF_SQUARE, scale_columns, tensor_columns
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
from luminal.kernel.tile_ir import Batch, Role

SCRATCH, STRIDE, CHUNKS = "scratch", "scratch_stride", "chunks"
RANGE_BYTES = 1 << 31  # of ranges: what lies there or beyond is in none


def range_of(buffer: str) -> str:
    """The name of what tells loads where a buffer ends."""
    return f"{buffer}_range"


def dtypes_of(kernel: Kernel) -> frozenset[DType]:
    """The dtypes that a kernel computes in."""
    dtypes = set()
    for statement in kernel.statements():
        if isinstance(statement, Apply):
            dtypes |= {value.type.dtype for value in (statement.out, *statement.args)}
        elif isinstance(statement, Load):
            dtypes.add(statement.out.type.dtype)
        elif isinstance(statement, Store):
            dtypes.add(statement.value.type.dtype)
    return frozenset(dtypes)


def _form(statement: MultiplyLeft | Accumulate) -> warpgroups.Form:
    """Which function makes a product by warp groups, and which of its factors are turned."""
    *first, b = statement.left
    turned = "a" * any(factor.turned for factor in first) + "b" * b.turned
    starts = isinstance(statement, MultiplyLeft) and statement.starts
    return warpgroups.Form(statement.dot, turned, bool(statement.held), starts)


def _constant(operand: Operand) -> int:
    """The value of a constant."""
    assert isinstance(operand, Constant)
    return int(operand.values[0])


def _vectors(kernel: Kernel) -> list[Type]:
    """The types of what is loaded, joined and stored at once."""
    outs = (
        statement.out.type
        for statement in kernel.statements()
        if isinstance(statement, Load | Apply)
    )
    return [*dict.fromkeys(t for t in outs if t.lanes > 1 and t.dtype.kind != "bool")]


# The walk decides nothing: what a machine has or lacks was decided in `expand/`. So all dialects
# differ in spelling only, and a kernel that is right in one is right in all, but for the vendor's
# compiler.
class Walk:
    """The walk of one kernel."""

    def __init__(self, kernel: Kernel, dialect: Dialect) -> None:
        self.kernel = kernel
        self.dialect = dialect
        within = (*(buffer.buffer for buffer in kernel.scratch), *kernel.shared)
        self.elements = {
            buffer.name: memory_dtype(buffer.dtype) for buffer in (*kernel.buffers, *within)
        }
        self.shared = {buffer.name for buffer in kernel.shared}
        self.swizzles = {b.name: SWIZZLES[b.swizzle] for b in kernel.shared if b.swizzle}
        self.barrier = dialect.barrier
        self.meeting = f"{phases.MEET}();"
        if kernel.tensor:
            self.barrier, self.meeting = map(tensor_memory.meeting, (self.barrier, self.meeting))
        self.scales = scale_columns(kernel)
        self.maps = {tensor: n for n, tensor in enumerate(tensors(kernel))}
        self.cluster = cluster_of(kernel)
        self.ranged = self._ranged() if dialect.ranges else {}
        self.variables = variables(kernel)
        self.applied = {s.out for s in kernel.statements() if isinstance(s, Apply)}
        self.begun: set[int] = set()  # sums that have their beginnings
        self.declared: set[int] = set()  # of those that are several values
        # By products that are not awaited yet, batch by batch, by their names.
        self.summed: list[dict[str, Value]] = [{}]
        self.lines: list[str] = []
        self.depth = 0

    def text(self) -> str:
        """The text of a module with this kernel alone."""
        kernel, dialect = self.kernel, self.dialect
        # The signature is the driver's contract: operands, scratch, then integers. They lie in
        # memory, so that a recorded launch serves all dims.
        signature = dialect.signature(
            self.pointers, bool(kernel.params), kernel.lanes, kernel.subgroup
        )
        head = [dialect.head(dtypes_of(kernel)), *self.declarations()]
        self.lines = [*head, signature, "{"]
        self.depth = 1
        self.base_pointers()
        self._integers()
        self._worker()
        self.rest(dialect.depend)
        return "\n".join([*self.lines, ""])

    @property
    def pointers(self) -> list[str]:
        """The names of the memory that a launch is given."""
        maps = map(phases.map_of, range(len(self.maps)))
        return [*(f"{buffer.name}_memory" for buffer in self.kernel.buffers), *maps, SCRATCH]

    def declarations(self) -> list[str]:
        """What stands before the kernel, behind the head."""
        extremes = [
            float_extremes(self.dialect, dtype, self.dialect.inline)
            if dtype.is_float
            else self.dialect.extremes(dtype)
            for dtype in self._compared()
        ]
        vectors = self.dialect.vectors(_vectors(self.kernel))
        ranges = [self.dialect.ranges] if self.ranged else []
        return [*filter(None, extremes), *ranges, *self._functions(), *vectors]

    def base_pointers(self) -> None:
        """The kernel's buffers in the memory that it is given."""
        for buffer, pointer in zip(self.kernel.buffers, self.pointers, strict=False):
            constant = "const " if buffer.role is Role.IN else ""
            self._pointer(buffer.name, buffer.dtype, self.dialect.base(pointer), constant)
            if buffer.name in self.ranged:
                size = self.ranged[buffer.name]
                self._put(f"const Range {range_of(buffer.name)} = RANGE({buffer.name}, {size});")

    def _ranged(self) -> dict[str, int]:
        """The bytes of buffers that nobody writes and that are loaded under masks."""
        loads = (s for s in self.kernel.statements() if isinstance(s, Load))
        masked = {load.buffer for load in loads if load.mask is not None}
        return {
            buffer.name: size
            for buffer in self.kernel.buffers
            if buffer.name in masked and buffer.role is Role.IN and buffer.size.is_const
            if (size := buffer.size.value * self.elements[buffer.name].size) < RANGE_BYTES
        }

    def rest(self, depend: str) -> None:
        """All that follows a worker's number and that of all, up to the end; `depend` waits for
        earlier launches.
        """
        # Workers take every n-th chunk, so neighbours in memory are at work at the same time.
        kernel, dialect = self.kernel, self.dialect
        index = dialect.types["i64"]
        if kernel.first is not None:
            self._put(f"if (worker < {CHUNKS}) {{")
            self._put(f"    const {index} v{kernel.first.id} = worker;")
            self._inside(kernel.early)
        if depend:
            # Integers lie there since before the first launch of a run; all else may be written by
            # a launch that has not ended.
            self._put(depend)
        for number in self.maps.values():
            self._put(f"if ({dialect.lane} == 0) {phases.ACQUIRE}({phases.map_of(number)});")
        self._block(kernel.setup)
        for scratch in kernel.scratch:
            start = f"{dialect.base(SCRATCH)} + worker * {STRIDE} + {self._operand(scratch.offset)}"
            self._pointer(scratch.buffer.name, scratch.buffer.dtype, start)
        if kernel.tensor:
            size = shared_bytes(kernel) - SHARED_ALIGNMENT
            place, columns = f"{DYNAMIC} + {size}", tensor_columns(kernel)
            self.lines += tensor_memory.opened(place, columns, self.barrier)
        chunk = f"v{kernel.chunk.id}"
        self._put(f"for ({index} {chunk} = worker; {chunk} < {CHUNKS}; {chunk} += workers) {{")
        if kernel.begin is not None:  # chunks of a worker lie apart
            self._put(f"    const {index} v{kernel.begin.id} = {chunk};")
        self._inside(kernel.body)
        if kernel.tensor:
            self.lines += tensor_memory.closed(tensor_columns(kernel), self.barrier)
        self.depth -= 1
        self._put("}")

    def integers(self) -> dict[str, str]:
        """The kernel's parameters, bytes of scratch and chunks by their names."""
        kernel = self.kernel
        names = [*(f"v{param.value.id}" for param in kernel.params), STRIDE, CHUNKS]
        values = [f"{self.dialect.integers}[{place}]" for place in range(len(names))]
        if not kernel.params:
            values = [str(figure.value) for figure in (kernel.scratch_bytes, kernel.chunks)]
        return dict(zip(names, values, strict=True))

    def _integers(self) -> None:
        for name, value in self.integers().items():
            self._put(f"const {self.dialect.types['i64']} {name} = {value};")

    def _worker(self) -> None:
        """The worker's number and that of all; of a group, its shared memory, and the lane's."""
        kernel, dialect = self.kernel, self.dialect
        worker, workers = dialect.worker, dialect.workers
        if kernel.lane is not None:
            worker, workers = dialect.group, dialect.groups
        self.group(dynamic_bytes(kernel, dialect) > 0)
        self._put(f"const {dialect.types['i64']} worker = {worker}, workers = {workers};")
        if self.cluster > 1:
            self._put(f"const int {phases.RANK} = {dialect.group} % {self.cluster};")
        self.lane()

    def lane(self) -> None:
        """The lane's number, of a group."""
        kernel, dialect = self.kernel, self.dialect
        if kernel.lane is not None:
            lane = dialect.lane if kernel.subgroup == 1 else dialect.lane_in_rows
            self._put(f"const {dialect.types['i64']} v{kernel.lane.id} = {lane};")

    def group(self, is_dynamic: bool) -> None:
        """The memory of a group: declared one by one, or parts of what the launch gives."""
        dialect = self.dialect
        if is_dynamic:
            self._put(dialect.dynamic())
        for buffer, start in zip(self.kernel.shared, offsets_of(self.kernel), strict=False):
            element = dialect.types[memory_dtype(buffer.dtype).short]
            if is_dynamic:
                pointer = f"{dialect.in_shared}{element} *"
                self._put(f"{pointer}const {buffer.name} = ({pointer})({DYNAMIC} + {start});")
            else:
                self._put(dialect.shared(element, buffer.name, buffer.size.constant))

    def _compared(self) -> Iterator[DType]:
        """The dtypes of which greater or lesser ones are taken."""
        applied = [s for s in self.kernel.statements() if isinstance(s, Apply) and s.op in EXTREMES]
        yield from dict.fromkeys(s.out.type.dtype for s in applied)

    def _put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def _pointer(self, name: str, dtype: DType, start: str, constant: str = "") -> None:
        element = self.dialect.types[memory_dtype(dtype).short]
        pointer = f"{self.dialect.space}{constant}{element} *"
        self._put(f"{pointer}const {name} = ({pointer})({start});")

    def _operand(self, value: Operand) -> str:
        if isinstance(value, Value) and value.id in self.variables:
            return f"v{self.variables[value.id]}"
        return operand(self.dialect, value)

    def _define(self, value: Value, text: str, constant: str = "const ") -> None:
        name, type_ = self._operand(value), f"{constant}{self._type(value.type)} "
        if value.id in self.variables:
            number = self.variables[value.id]
            type_ = "" if number in self.declared else f"{self._type(value.type)} "
            self.declared.add(number)
        if name != text:
            self._put(f"{type_}{name} = {text};")

    def _type(self, type_: Type) -> str:
        # Vectors are loaded, stored and taken apart, under masks that are one for all elements.
        if type_.lanes == 1 or type_.dtype.kind == "bool":
            return self.dialect.types[type_.dtype.short]
        return self.dialect.vector(type_)

    def _inside(self, body: Sequence[Statement], *last: str) -> None:
        """The body of what was opened, then these lines and its end."""
        self.depth += 1
        self._block(body)
        for line in last:
            self._put(line)
        self.depth -= 1
        self._put("}")

    def _block(self, body: Sequence[Statement]) -> None:
        for at, statement in enumerate(body):
            match statement:
                case Apply():
                    self._apply(statement)
                case Load():
                    self._load(statement)
                case Store():
                    self._store(statement)
                case Loop():
                    self._loop(statement)
                case If():
                    self._if(statement)
                case Barrier():
                    meets = statement.of_cluster and self.cluster > 1
                    self._put(self.meeting if meets else self.barrier)
                case Exchange(out, value, distance):
                    text = self.dialect.exchange(out.type.dtype, self._operand(value), distance)
                    self._define(out, text)
                case Multiply():
                    self._multiply(statement)
                case MultiplyLeft():
                    self._multiply_left(statement)
                case Accumulate():
                    self._accumulate(statement)
                case LoadSums():
                    self._load_sums(statement)
                case LoadMatrix():
                    self._load_matrix(statement)
                case Copy():
                    self._copy(statement)
                case Fetch() if self.dialect.fetch:
                    self._put(self.dialect.fetch.format(place=f"&{self._place(statement)}"))
                case AtPhase():
                    self._at_phase(statement)
                case CopyBox():
                    self._copy_box(statement)
                case Publish():
                    self._put(f"{warpgroups.PUBLISH}();")
                case Begin(lifts) if self.kernel.tensor:
                    self._lift(lifts)
                case Begin():
                    self._begin(body[at:])
                case Commit(Batch.PRODUCTS) if self.kernel.tensor:
                    self._put(tensor_memory.COMMITTED)
                case Await(younger, Batch.PRODUCTS) if self.kernel.tensor:
                    self._put(tensor_memory.awaited(younger))
                case Commit(Batch.PRODUCTS):
                    self.summed.append({})
                    self._put(f"{warpgroups.COMMIT}();")
                case Commit() if not self.dialect.copies_beside:
                    self._put(f"{COMMIT}();")
                case Await(younger, Batch.PRODUCTS):
                    self._put(f"{warpgroups.AWAIT}<{younger}>();")
                    self._awaited(younger)
                case Await(younger) if self.dialect.copies_beside:
                    left = min(younger * fewest_copies(self.kernel), MOST_AWAITED)
                    self._put(f"{AWAIT_BESIDE}<{left}>();")
                case Await(younger):
                    self._put(f"{AWAIT}<{younger}>();")

    def _multiply(self, statement: Multiply) -> None:
        for out, acc in zip(statement.outs, statement.acc, strict=True):
            self._define(out, self._operand(acc), constant="")
        held = [*statement.outs, *statement.a, *statement.b, *statement.scales]
        self._put(f"{name_of(statement.dot)}({', '.join(map(self._operand, held))});")

    def _multiply_left(self, statement: MultiplyLeft) -> None:
        if statement.starts:
            names = ", ".join(map(self._operand, statement.outs))
            self._put(f"{self._type(statement.outs[0].type)} {names};")
            self.declared |= {self.variables[out.id] for out in statement.outs}
        elif statement.outs[0].id not in self.begun:
            for out, acc in zip(statement.outs, statement.acc, strict=True):
                self._define(out, self._operand(acc), constant="")
        self.summed[-1] |= {self._operand(out): out for out in statement.outs}
        factors = map(self._described, statement.left)
        held = map(self._operand, (*statement.outs, *statement.held))
        self._put(f"{_form(statement).name}({', '.join([*held, *factors])});")

    def _accumulate(self, statement: Accumulate) -> None:
        factors = [self._described(f, tensor_memory.factor_of) for f in statement.left]
        instruction = tensor_memory.instruction_of(statement.dot, _form(statement).turned)
        adds, name = self._operand(statement.adds), tensor_memory.multiplier_of(statement.dot)
        place = f"{tensor_memory.FIRST} + {self._at(statement)}"
        what, scales = f"{instruction:#x}", [f"(unsigned)({self._at(s)})" for s in statement.scales]
        if scales:
            what += f" | {tensor_memory.PART}({', '.join(scales)})"
        firsts = [f"{tensor_memory.FIRST} + {self.scales[s.buffer]}" for s in statement.scales]
        pairs = zip(firsts, scales, strict=True)
        columns = [f"{tensor_memory.SCALES_AT}({first}, {at})" for first, at in pairs]
        held = ", ".join([place, *factors, what, adds, *columns])
        self._put(f"if ({tensor_memory.LEADS}) {name}({held});")

    def _lift(self, lifts: Sequence[Left]) -> None:
        """Scales are brought to tensor memory, square by square, by the lane that multiplies."""
        for lift in lifts:
            first = f"{tensor_memory.FIRST} + {self.scales[lift.buffer]}"
            for byte in range(0, lift.apart, OF_SQUARE):
                at = f"{self._at(lift)} + {byte}"
                to = f"{tensor_memory.SCALES_AT}({first}, (unsigned)({at}))"
                square = f"{tensor_memory.SQUARE_AT}(&{lift.buffer}[{at}], 0)"
                self._put(f"if ({tensor_memory.LEADS}) {tensor_memory.LIFT}({to}, {square});")

    def _load_sums(self, statement: LoadSums) -> None:
        outs, count = ", ".join(map(self._operand, statement.outs)), len(statement.outs)
        self._put(f"{self._type(statement.outs[0].type)} {outs};")
        place = f"{tensor_memory.FIRST} + {self._at(statement)} + {tensor_memory.OWN_LANES}"
        self._put(f"{tensor_memory.columns_loader_of(count)}({outs}, {place});")
        self._put(f"{tensor_memory.columns_awaiter_of(count)}({outs});")

    def _described(
        self, factor: Left, name_of: Callable[[Swizzle], str] = warpgroups.describer_of
    ) -> str:
        """The descriptor of a block of a factor."""
        name = name_of(self.swizzles[factor.buffer])
        apart = factor.apart * self.elements[factor.buffer].size
        return f"{name}(&{self._place(factor)}, {apart})"

    def _load_matrix(self, statement: LoadMatrix) -> None:
        for out in statement.outs:
            self._put(f"{self.dialect.types[out.type.dtype.short]} v{out.id};")
        outs = ", ".join(map(self._operand, statement.outs))
        name = loader_of(len(statement.outs), statement.turned)
        self._put(f"{name}({outs}, &{self._place(statement)});")

    def _copy(self, statement: Copy) -> None:
        source = Fetch(statement.source, statement.source_address, statement.source_distance)
        live = "true" if statement.live is None else self._operand(statement.live)
        size, beside = self.elements[statement.buffer].size, self.dialect.copies_beside
        name, place = copier_of(statement.count * size, beside), self._place(statement)
        if beside:  # where the first lane's begin is told once, and all else behind it
            address, further = self._operand(statement.address), statement.distance * size
            place = f"{statement.buffer}[{address}], {further}"
        self._put(f"{name}(&{place}, &{self._place(source)}, {live});")

    def _at_phase(self, statement: AtPhase) -> None:
        step, number = statement.step, statement.number
        told = {
            Phase.BEGIN: str(min(self.cluster, _constant(number))) if step is Phase.BEGIN else "",
            Phase.FREE: str(self.cluster),
            Phase.END: "",
        }.get(step, self._operand(number))
        place = f"&{statement.buffer}[{self._operand(statement.address)}]"
        self._put(f"{phases.FUNCTIONS[step]}({', '.join(filter(None, (place, told)))});")

    def _copy_box(self, statement: CopyBox) -> None:
        tensor, dimensions = statement.tensor, len(statement.origin)
        line, *others = map(self._operand, statement.origin)
        barrier = f"&{statement.phases}[{self._operand(statement.turn)}]"
        is_shared = self.cluster > 1 and statement.parts > 1
        name = (phases.sharer_of if is_shared else phases.copier_of)(dimensions)
        last = [f"(unsigned short){(1 << self.cluster) - 1}"] if is_shared else []
        parts = [phases.RANK] if is_shared else [*map(str, range(statement.parts))]
        for part in parts:
            there, below = "", [*others]
            if statement.parts > 1:
                there = f" + {part} * {prod(tensor.box)}"
                below[0] += f" + {part} * {tensor.box[1]}"
            place = f"&{statement.buffer}[{self._at(statement)}{there}]"
            held = [place, phases.map_of(self.maps[tensor]), barrier, line, *below, *last]
            self._put(f"{name}({', '.join(held)});")

    def _functions(self) -> Iterator[str]:
        """Those for the matrices that lanes multiply, or load, together, and of conversions."""
        statements = [*self.kernel.statements()]
        applied = dict.fromkeys(s.op for s in statements if isinstance(s, Apply))
        yield from map(self.dialect.instruction, (op for op in applied if op in INSTRUCTIONS))
        for dot in dict.fromkeys(s.dot for s in statements if isinstance(s, Multiply)):
            yield self.dialect.multiply(dot)
        left = [s for s in statements if isinstance(s, MultiplyLeft)]
        if left:
            products = dict.fromkeys(map(_form, left))
            swizzles = dict.fromkeys(self.swizzles[f.buffer] for s in left for f in s.left)
            yield from self.dialect.products([*products], [*swizzles])
        into = [s for s in statements if isinstance(s, Accumulate)]
        sums = [s for s in statements if isinstance(s, LoadSums)]
        if sums:
            swizzles = dict.fromkeys(self.swizzles[f.buffer] for s in into for f in s.left)
            loaded = dict.fromkeys((s.outs[0].type.dtype, len(s.outs)) for s in sums)
            dots = dict.fromkeys(s.dot for s in into)
            yield from self.dialect.tensor_products([*dots], [*swizzles], [*loaded])
        if self.kernel.early:
            yield self.dialect.fetching()
        loads = [(len(s.outs), s.turned) for s in statements if isinstance(s, LoadMatrix)]
        for load in dict.fromkeys(loads):
            yield self.dialect.load_matrix(*load)
        copies = (s for s in statements if isinstance(s, Copy))
        sizes = dict.fromkeys(s.count * self.elements[s.buffer].size for s in copies)
        if sizes:
            yield from self.dialect.copies([*sizes])
        if any(isinstance(s, AtPhase) for s in statements):
            boxes = [s for s in statements if isinstance(s, CopyBox)]
            dimensions = dict.fromkeys(len(box.origin) for box in boxes)
            shared = dict.fromkeys(len(box.origin) for box in boxes if box.parts > 1)
            yield from self.dialect.boxes([*dimensions], [*shared])

    def _apply(self, statement: Apply) -> None:
        out, dialect = statement.out, self.dialect
        if statement.op == "extract" and statement.args[0].type.lanes > 1:
            vector, place = statement.args
            assert isinstance(place, Constant)
            part = dialect.part(self._operand(vector), vector.type, int(place.values[0]))
            self._define(out, part)
            return
        if statement.op == "shuffle":
            self._define(out, dialect.joined(out.type, [*self._parts(*statement.args)]))
            return
        assert out.type.lanes == 1 or statement.op == "splat", f"{statement.op} of vectors in C"
        args = [self._operand(arg) for arg in statement.args]
        of = statement.args[-1].type.dtype
        self._define(out, operation(dialect, statement.op, args, of, out.type))

    def _parts(self, x: Operand, y: Operand, order: Operand) -> Iterator[str]:
        """The elements of two vectors, or scalars, by their numbers."""
        assert isinstance(order, Constant)
        for number in order.bits:
            operand = x if number < x.type.lanes else y
            name, place = self._operand(operand), number % x.type.lanes
            yield name if x.type.lanes == 1 else self.dialect.part(name, x.type, place)

    def _element(self, statement: Load | Store, type_: Type) -> str:
        if type_.lanes > 1:
            assert statement.is_aligned, "C accesses vectors as one"
            dialect = self.dialect
            space = dialect.in_shared if statement.buffer in self.shared else dialect.space
            constant = "const " if isinstance(statement, Load) else ""
            pointer = f"{space}{constant}{dialect.vector(type_)} *"
            return f"*({pointer})({self._start(statement, type_)} + {self._at(statement)})"
        return f"{self._start(statement, type_)}[{self._at(statement)}]"

    def _start(self, statement: Load | Store, type_: Type) -> str:
        """The buffer, as one of words where these are accessed: they lie at multiples of their
        size, since memory of lanes is aligned.
        """
        name, dialect = statement.buffer, self.dialect
        if type_.dtype.size == self.elements[name].size:
            return name
        space = dialect.in_shared if name in self.shared else dialect.space
        constant = "const " if isinstance(statement, Load) else ""
        return f"(({space}{constant}{dialect.types[type_.dtype.short]} *){name})"

    def _place(self, statement: Load | Store | LoadMatrix | Fetch | Copy | CopyBox | Left) -> str:
        return f"{statement.buffer}[{self._at(statement)}]"

    def _at(
        self,
        statement: (
            Load | Store | LoadMatrix | Fetch | Copy | CopyBox | Left | Accumulate | LoadSums
        ),
    ) -> str:
        distance = statement.distance
        further = f" {'-' if distance < 0 else '+'} {abs(distance)}" if distance else ""
        return f"{self._operand(statement.address)}{further}"

    def _load(self, statement: Load) -> None:
        type_ = statement.out.type
        text = self._element(statement, type_)
        if statement.mask is not None and statement.buffer in self.ranged:
            byte = f"(unsigned)({self._at(statement)}) * {type_.dtype.size}u"
            live, name = self._operand(statement.mask), range_of(statement.buffer)
            text = f"load_inside<{self._type(type_)}>({name}, {byte}, {live})"
        elif statement.mask is not None:
            # The conditional touches no memory where its condition is false, in C as in every
            # dialect.
            none = "0" if type_.lanes == 1 else self.dialect.joined(type_, ())
            text = f"{self._operand(statement.mask)} ? {text} : {none}"
        self._define(statement.out, text)

    def _store(self, statement: Store) -> None:
        place = self._element(statement, statement.value.type)
        where = "" if statement.mask is None else f"if ({self._operand(statement.mask)}) "
        self._put(f"{where}{place} = {self._operand(statement.value)};")

    def _loop(self, loop: Loop) -> None:
        for carry in loop.carries:
            self._define(carry.result, self._operand(carry.init), constant="")
        self._hold(*self._begun(loop))
        index, start, stop = (
            f"v{loop.index.id}",
            self._operand(loop.start),
            self._operand(loop.stop),
        )
        if self.dialect.not_unrolled and any(isinstance(inner, Barrier) for inner in loop.body):
            self._put(self.dialect.not_unrolled)
        head = f"{self._type(loop.index.type)} {index} = {start}; {index} < {stop}"
        self._put(f"for ({head}; {index} += {loop.step}) {{")
        self.depth += 1
        for carry in loop.carries:
            self._define(carry.inner, self._operand(carry.result))
        self.depth -= 1
        ends = ((self._operand(c.result), self._operand(c.next)) for c in loop.carries)
        self._inside(loop.body, *(f"{result} = {end};" for result, end in ends if result != end))

    # Compilers clear the first sums between products, and convert the last ones before what awaits
    # them: assemblers then await each product. Both are told where sums are registers.
    def _hold(self, *held: Operand) -> None:
        """Has what products by warp groups add up, or multiply, in registers where this stands."""
        if held:
            self._put(f"{warpgroups.HOLD}({', '.join(map(self._operand, held))});")

    def _awaited(self, younger: int) -> None:
        """Has the sums of all batches but the younger ones in registers."""
        ended = max(0, len(self.summed) - 1 - younger)
        held = {name: out for batch in self.summed[:ended] for name, out in batch.items()}
        self.summed = self.summed[ended:]
        self._hold(*held.values())

    def _begin(self, body: Sequence[Statement]) -> None:
        """Begins the products that follow: their words, and sums that are no other product's, are
        computed before.
        """
        until = next((n for n, s in enumerate(body) if isinstance(s, Commit)), 0)
        products = [s for s in body[:until] if isinstance(s, MultiplyLeft)]
        summed = {out for s in products for out in s.outs}
        held: list[Operand] = [x for s in products for x in s.held if isinstance(x, Value)]
        for product in products:
            if self.applied.isdisjoint(product.acc) or not summed.isdisjoint(product.acc):
                continue
            for out, acc in zip(product.outs, product.acc, strict=True):
                self._define(out, self._operand(acc), constant="")
                self.begun.add(out.id)
                held.append(out)
        self._hold(*held)
        self._put(f"{warpgroups.BEGIN}();")

    def _begun(self, loop: Loop) -> list[Value]:
        """The sums to which a loop adds products by warp groups."""
        has_products = any(isinstance(inner, Begin) for inner in loop.body)
        sums = (carry.result for carry in loop.carries if carry.result.id in self.variables)
        return [*sums] if has_products else []

    def _if(self, statement: If) -> None:
        for choice in statement.choices:
            self._define(choice.result, self._operand(choice.otherwise), constant="")
        self._put(f"if ({self._operand(statement.condition)}) {{")
        taken = (f"v{c.result.id} = {self._operand(c.then)};" for c in statement.choices)
        self._inside(statement.body, *taken)
