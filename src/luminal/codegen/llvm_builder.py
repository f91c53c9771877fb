"""A small text emitter for LLVM IR (LLVM 22, opaque pointers).

`ModuleBuilder` holds what a module has once: declarations, globals, functions, target features.
`FunctionBuilder` hands out SSA names and collects instruction lines per basic block. Every value
knows its type, so most methods need no type argument. No fast-math flag is ever written: what an
instruction means is what IEEE says.

    module = ModuleBuilder(features=frozenset({"avx512f"}))
    b = FunctionBuilder(module, "kernel", VOID, [("x", PTR), ("n", I64)])
    v = b.load(IRType("float", 16), b.gep(b.params[0], b.params[1], IRType("float")), align=4)
    ...
    text = b.module_text()
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
# LLVM's scheduler of machine instructions moves all loads of a long body to its start once they
# have more pointers than one, and spills what they load (1.05 to 1.15 of the time of convolutions).
# Without it depthwise layers spill (1.1 to 1.45). So a module says which it is.
IN_ORDER = "; in order"
"""A line of a module whose instructions LLVM is to leave in their order."""
_UNLIKELY = '!0 = !{!"branch_weights", i32 1, i32 2000}'
_STREAMED = "!1 = !{i32 1}"
_MANGLED = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


class IRType:
    """A first-class LLVM type: a scalar (`lanes` 1), a fixed vector, or a `scalable` one, which has
    so many lanes for each block of a register.

    `text` is its spelling, `mangled` that inside the name of an overloaded intrinsic (`v16f32`),
    `bits` the width of one lane. There is one object of each type, which equals itself.
    """

    __slots__ = ("bits", "is_float", "lanes", "mangled", "scalar", "text")
    scalar: str
    lanes: int
    text: str
    mangled: str
    bits: int
    is_float: bool
    _all: ClassVar[dict[tuple[str, int, bool], "IRType"]] = {}

    def __new__(cls, scalar: str, lanes: int = 1, scalable: bool = False) -> "IRType":
        key = scalar, lanes, scalable
        known_type = cls._all.get(key)
        if known_type is None:
            known_type = cls._all.setdefault(key, cls._made(*key))
        return known_type

    @classmethod
    def _made(cls, scalar: str, lanes: int, scalable: bool) -> "IRType":
        type_, element = object.__new__(cls), _MANGLED.get(scalar, scalar)
        type_.scalar, type_.lanes, type_.is_float = scalar, lanes, scalar in FLOAT_BITS
        type_.text = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
        type_.mangled = element if lanes == 1 else f"v{lanes}{element}"
        if scalable:
            type_.text, type_.mangled = f"<vscale x {lanes} x {scalar}>", f"nx{type_.mangled}"
        of_integers = int(scalar[1:]) if scalar[1:].isdecimal() else 64 if scalar == "ptr" else 0
        type_.bits = FLOAT_BITS.get(scalar, of_integers)
        return type_

    def __str__(self) -> str:
        return self.text

    def with_lanes(self, lanes: int) -> "IRType":
        return IRType(self.scalar, lanes)

    def with_scalar(self, scalar: str) -> "IRType":
        return IRType(scalar, self.lanes)


VOID = IRType("void")
I8 = IRType("i8")
I32 = IRType("i32")
I64 = IRType("i64")
F32 = IRType("float")
F64 = IRType("double")
PTR = IRType("ptr")


class IRValue(NamedTuple):
    """An operand: an SSA name (`%t3`), a global (`@g`) or a literal, and its type."""

    name: str
    type: IRType

    def __str__(self) -> str:
        return self.name

    @property
    def typed(self) -> str:
        """`<type> <name>`, as operands are written in calls and stores."""
        return f"{self.type.text} {self.name}"


def literal(type_: IRType, value: bool | int | float) -> str:
    """Text of one scalar constant; ints wrap to the width, floats round to nearest even."""
    scalar = type_.scalar
    if scalar == "i1":
        return "true" if value else "false"
    if not type_.is_float:
        return str(_wrap(int(value), type_.bits))
    return literal_bits(type_, _float_bits(scalar, float(value)))


def literal_bits(type_: IRType, bits: int) -> str:
    """Text of the scalar constant with these exact bits (NaN payloads are kept)."""
    if not type_.is_float:
        return literal(type_, bits)
    if type_.scalar in ("half", "bfloat"):
        return f"0x{'H' if type_.scalar == 'half' else 'R'}{bits:04X}"
    if type_.scalar == "float":
        bits = _widened_bits(bits)
    return f"0x{bits:016X}"


def _wrap(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _float_bits(scalar: str, value: float) -> int:
    if scalar == "double":
        return int.from_bytes(struct.pack("<d", value), "little")
    if scalar == "bfloat":
        raise ValueError(f"constant {value!r} of bfloat: give its exact bits to const_bits")
    code = "<f" if scalar == "float" else "<e"
    try:
        packed = struct.pack(code, value)
    except OverflowError:  # beyond the largest finite value: IEEE rounds to infinity
        packed = struct.pack(code, float("inf") if value > 0 else float("-inf"))
    return int.from_bytes(packed, "little")


def _widened_bits(bits: int) -> int:
    """Bits of the double equal to these float bits: LLVM writes float literals as doubles."""
    if bits & 0x7F800000 == 0x7F800000:  # inf and NaN by hand: hardware would quieten a NaN
        return (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
    (value,) = struct.unpack("<f", bits.to_bytes(4, "little"))
    return int.from_bytes(struct.pack("<d", value), "little")


class ModuleBuilder:
    """Declarations, globals and functions of one LLVM module, each written once."""

    def __init__(self, features: Iterable[str] = ()) -> None:
        self.features = frozenset(features)
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._functions: dict[str, FunctionBuilder | None] = {}
        self.is_in_order = False

    def declare(self, name: str, return_type: IRType, arg_types: Sequence[IRType]) -> None:
        """Declare the external function or intrinsic `@name`, unless this module defines it."""
        if name not in self._declarations and name not in self._functions:
            args = ", ".join([str(t) for t in arg_types])
            self._declarations[name] = f"declare {return_type} @{name}({args})"

    def add_global(self, name: str, type_text: str, initializer: str, align: int = 64) -> IRValue:
        """Pointer to a private constant, e.g. `add_global("t", "[2 x i8]", "[i8 1, i8 2]")`."""
        line = f"@{name} = private unnamed_addr constant {type_text} {initializer}, align {align}"
        self._globals.setdefault(name, line)
        return IRValue(f"@{name}", PTR)

    def add_alias(self, address: IRValue, of: IRValue, distance: int) -> None:
        """`address` is so many bytes behind a global."""
        there = f"getelementptr (i8, ptr {of.name}, i64 {distance})"
        self._globals.setdefault(
            address.name, f"{address.name} = private unnamed_addr alias i8, ptr {there}"
        )

    def add_function(self, function: "FunctionBuilder") -> None:
        self._functions[function.name] = function

    def helper(self, name: str, build: Callable[["ModuleBuilder", str], object]) -> str:
        """Name of an internal function; the first use lets `build(module, name)` write it."""
        if name not in self._functions:
            self._functions[name] = None  # reserved: `build` may mention itself
            build(self, name)
        return name

    def text(self) -> str:
        functions = [f.text() for f in self._functions.values() if f is not None]
        order = [IN_ORDER] * self.is_in_order
        parts = [*order, *self._globals.values(), *self._declarations.values(), *functions]
        return "\n".join([*parts, _UNLIKELY, _STREAMED]) + "\n"


class _BasicBlock:
    """One basic block: its phis (incoming lists still open) and its instruction lines."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.phis: dict[str, tuple[IRType, list[str]]] = {}
        self.lines: list[str] = []
        self.closed = False

    def text(self) -> str:
        phis = (f"  {n} = phi {t} {', '.join(inc)}" for n, (t, inc) in self.phis.items())
        return "\n".join([f"{self.label}:", *phis, *self.lines])


class FunctionBuilder:
    """Writes one function; registered with its module at construction.

    `params` are (name, type) or (name, type, attributes). The block `entry` is open at the start;
    `current` is the label of the open block (the one to name in a phi after nested emission, since
    an emitter may have opened blocks of its own).
    """

    def __init__(
        self,
        module: ModuleBuilder,
        name: str,
        return_type: IRType,
        params: Sequence[tuple[str, IRType] | tuple[str, IRType, str]],
        linkage: str = "",
        attributes: str = "nounwind",
    ) -> None:
        self.module = module
        self.name = name
        self.return_type = return_type
        self.params = [IRValue(f"%{p[0]}", p[1]) for p in params]
        written = (" ".join([str(p[1]), *p[2:], f"%{p[0]}"]) for p in params)
        prefix = f"define {linkage} " if linkage else "define "
        self._head = f"{prefix}{return_type} @{name}({', '.join(written)}) {attributes} {{"
        self._start = _BasicBlock("")
        self._blocks: list[_BasicBlock] = []
        self._by_label: dict[str, _BasicBlock] = {}
        self._count = 0
        self._labels: set[str] = set()
        self.block(self.label("entry"))
        module.add_function(self)

    @property
    def features(self) -> frozenset[str]:
        """Target features the code may use (`avx512f`, `fma` ...)."""
        return self.module.features

    @property
    def current(self) -> str:
        return self._blocks[-1].label

    # ---- text ----------------------------------------------------------------------------

    def text(self) -> str:
        open_blocks = [block.label for block in self._blocks if not block.closed]
        if open_blocks:
            raise ValueError(f"{self.name}: blocks without terminator: {open_blocks}; end each one")
        entry, *others = self._blocks
        lines = [f"{entry.label}:", *self._start.lines, *entry.lines]
        return "\n".join([self._head, *lines, *(block.text() for block in others), "}"])

    def emit(self, line: str) -> None:
        """Append a raw instruction that has no result."""
        block = self._blocks[-1]
        if block.closed:
            raise ValueError(f"{self.name}: `{line}` after the terminator of {block.label}")
        block.lines.append("  " + line)

    def assign(self, type_: IRType, right_side: str) -> IRValue:
        """Append a raw instruction with a result of `type_`."""
        self._count += 1
        name = f"%t{self._count}"
        self.emit(f"{name} = {right_side}")
        return IRValue(name, type_)

    def _fresh(self, type_: IRType) -> IRValue:
        self._count += 1
        return IRValue(f"%t{self._count}", type_)

    # ---- constants -----------------------------------------------------------------------

    def const(self, type_: IRType, value: bool | int | float) -> IRValue:
        """A constant; of a vector type, every lane is `value`."""
        return _splat_constant(type_, literal(type_.with_lanes(1), value))

    def const_bits(self, type_: IRType, bits: int) -> IRValue:
        """A constant by the exact bits of one lane."""
        return _splat_constant(type_, literal_bits(type_.with_lanes(1), bits))

    def vector_const(self, type_: IRType, values: Sequence[bool | int | float]) -> IRValue:
        if len(values) != type_.lanes:
            raise ValueError(f"vector_const: {type_} takes {type_.lanes} values, got {len(values)}")
        lane = type_.with_lanes(1)
        return IRValue("<" + ", ".join(f"{lane} {literal(lane, v)}" for v in values) + ">", type_)

    def zero(self, type_: IRType) -> IRValue:
        return IRValue("null", type_) if type_ == PTR else IRValue("zeroinitializer", type_)

    def poison(self, type_: IRType) -> IRValue:
        return IRValue("poison", type_)

    # ---- arithmetic ----------------------------------------------------------------------

    def unary(self, op: str, a: IRValue) -> IRValue:
        """Writes a unary instruction, such as `fneg` or `freeze`."""
        return self.assign(a.type, f"{op} {a.typed}")

    def binary(self, op: str, a: IRValue, b: IRValue) -> IRValue:
        """`add sub mul sdiv udiv shl lshr ashr and or xor fadd fsub fmul fdiv frem` (flags too)."""
        self._same_type(op, a, b)
        return self.assign(a.type, f"{op} {a.typed}, {b.name}")

    def icmp(self, predicate: str, a: IRValue, b: IRValue) -> IRValue:
        self._same_type(f"icmp {predicate}", a, b)
        return self.assign(a.type.with_scalar("i1"), f"icmp {predicate} {a.typed}, {b.name}")

    def select(self, cond: IRValue, a: IRValue, b: IRValue) -> IRValue:
        """Writes a select by lane, or with one scalar condition for whole vectors."""
        self._same_type("select", a, b)
        return self.assign(a.type, f"select {cond.typed}, {a.typed}, {b.typed}")

    def cast(self, op: str, value: IRValue, type_: IRType) -> IRValue:
        """`zext sext trunc fpext fptrunc sitofp uitofp bitcast ptrtoint ...`; no-op when equal."""
        if value.type == type_:
            return value
        return self.assign(type_, f"{op} {value.typed} to {type_}")

    def _same_type(self, op: str, a: IRValue, b: IRValue) -> None:
        if a.type != b.type:
            raise ValueError(f"{self.name}: {op}: operand types differ: {a.typed}, {b.typed}")

    # ---- calls ---------------------------------------------------------------------------

    @contextmanager
    def at_start(self) -> Iterator[None]:
        """What is emitted inside stands at the start of the function."""
        blocks, self._blocks = self._blocks, [self._start]
        yield
        self._blocks = blocks

    @contextmanager
    def at_end(self, label: str) -> Iterator[None]:
        """What is emitted inside stands at the end of a block that is closed."""
        block = self._by_label[label]
        # A terminator has to stay last.
        last = block.lines.pop()
        blocks, self._blocks, block.closed = self._blocks, [block], False
        yield
        self._blocks, block.closed = blocks, True
        block.lines.append(last)

    def unknown(self, value: IRValue) -> IRValue:
        """Integers that are constants, but whose value LLVM cannot know.

        What it makes of masks that it knows is not always right (LLVM 22): of a compare of 16 known
        i64 two masks of 8 bits, where the first leaves garbage in place of the second; of narrowed
        values stored under a mask of one lane, a store of the whole register.
        """
        with self.at_start():
            zero = self.assign(I64, 'call i64 asm "", "=r,0"(i64 0)')
            zeros = self.splat(self.cast("trunc", zero, value.type.with_lanes(1)), value.type.lanes)
            return self.binary("add", value, zeros)

    def call(self, name: str, return_type: IRType, args: Sequence[IRValue]) -> IRValue:
        """Call `@name`, declaring it when the module does not define it."""
        self.module.declare(name, return_type, [a.type for a in args])
        return self._call(name, return_type, ", ".join([a.typed for a in args]))

    def intrinsic(
        self,
        name: str,
        type_: IRType,
        args: Sequence[IRValue],
        overloads: Sequence[IRType] | None = None,
    ) -> IRValue:
        """Call an intrinsic with result `type_`; its name is mangled by `overloads`.

        The default overload is the result type (`llvm.fma` -> `llvm.fma.v16f32`); give `()` for
        an intrinsic with a fixed name, the argument's type for `llvm.vector.reduce.*`.
        """
        types = (type_,) if overloads is None else tuple(overloads)
        return self.call(".".join([name, *(t.mangled for t in types)]), type_, args)

    def _call(self, name: str, type_: IRType, args: str) -> IRValue:
        line = f"call {type_} @{name}({args})"
        if type_ == VOID:
            self.emit(line)
            return IRValue("", VOID)
        return self.assign(type_, line)

    # ---- vectors -------------------------------------------------------------------------

    def splat(self, value: IRValue, lanes: int) -> IRValue:
        """Every lane = the scalar `value` (which is returned as it is for one lane).

        A literal stays one: LLVM 22 takes `0.0 / select(c, 1.0, 0.0)` for NaN everywhere if the
        0.0 was spread by a shuffle.
        """
        if lanes == 1:
            return value
        type_ = value.type.with_lanes(lanes)
        if not value.name.startswith(("%", "@")):
            return _splat_constant(type_, value.name)
        first = self.insert(self.poison(type_), value, 0)
        return self.shuffle(first, first, [0] * lanes)

    def extract(self, vector: IRValue, index: int | IRValue) -> IRValue:
        at = index.typed if isinstance(index, IRValue) else f"i64 {index}"
        return self.assign(vector.type.with_lanes(1), f"extractelement {vector.typed}, {at}")

    def insert(self, vector: IRValue, value: IRValue, index: int | IRValue) -> IRValue:
        at = index.typed if isinstance(index, IRValue) else f"i64 {index}"
        return self.assign(vector.type, f"insertelement {vector.typed}, {value.typed}, {at}")

    def shuffle(self, a: IRValue, b: IRValue, lanes: Sequence[int]) -> IRValue:
        """Lanes of `a` then `b` by number; a negative number is poison. One lane: a scalar."""
        if len(lanes) == 1:
            width = a.type.lanes
            source, lane = (a, lanes[0]) if lanes[0] < width else (b, lanes[0] - width)
            return self.extract(source, lane)
        zero = all(lane == 0 for lane in lanes)
        items = ", ".join(f"i32 {lane}" if lane >= 0 else "i32 poison" for lane in lanes)
        mask = f"<{len(lanes)} x i32> " + ("zeroinitializer" if zero else f"<{items}>")
        return self.assign(
            a.type.with_lanes(len(lanes)), f"shufflevector {a.typed}, {b.typed}, {mask}"
        )

    # ---- memory --------------------------------------------------------------------------

    def alloca(self, type_: IRType, count: int = 1, align: int = 64) -> IRValue:
        return self.assign(PTR, f"alloca {type_}, i64 {count}, align {align}")

    def gep(self, pointer: IRValue, index: IRValue, element: IRType) -> IRValue:
        """Address of `pointer[index]`; a vector of indices gives a vector of pointers."""
        type_ = PTR.with_lanes(max(pointer.type.lanes, index.type.lanes))
        return self.assign(type_, f"getelementptr {element}, {pointer.typed}, {index.typed}")

    def load(self, type_: IRType, pointer: IRValue, align: int) -> IRValue:
        return self.assign(type_, f"load {type_}, {pointer.typed}, align {align}")

    def store(
        self, value: IRValue, pointer: IRValue, align: int, *, non_temporal: bool = False
    ) -> None:
        """`non_temporal`: past the caches, in an order of its own."""
        past = ", !nontemporal !1" if non_temporal else ""
        self.emit(f"store {value.typed}, {pointer.typed}, align {align}{past}")

    def prefetch(self, pointer: IRValue) -> None:
        """The line there comes into all caches, if there is memory at all."""
        name = "llvm.prefetch.p0"
        self.module.declare(name, VOID, [PTR, I32, I32, I32])
        self._call(name, VOID, f"{pointer.typed}, i32 0, i32 3, i32 1")

    def masked_load(
        self, type_: IRType, pointer: IRValue, mask: IRValue, align: int, other: IRValue
    ) -> IRValue:
        """Lanes where `mask`; the others read `other` and touch no memory."""
        name = f"llvm.masked.load.{type_.mangled}.p0"
        self.module.declare(name, type_, [PTR, mask.type, type_])
        args = f"ptr align {align} {pointer.name}, {mask.typed}, {other.typed}"
        return self._fenced(self._call(name, type_, args))

    def _fenced(self, value: IRValue) -> IRValue:
        """The value, which no pass puts into what uses it. LLVM 22 puts a masked load into a masked
        operation, and takes it out again without its mask, beyond the end of an array.
        """
        bits = value.type.lanes * value.type.bits
        floats = IRType("float", bits // 32)
        if bits % 32 or floats.lanes < 2:
            return value
        name = f"llvm.arithmetic.fence.{floats.mangled}"
        self.module.declare(name, floats, [floats])
        fenced = self._call(name, floats, self.cast("bitcast", value, floats).typed)
        return self.cast("bitcast", fenced, value.type)

    def masked_store(self, value: IRValue, pointer: IRValue, mask: IRValue, align: int) -> None:
        name = f"llvm.masked.store.{value.type.mangled}.p0"
        self.module.declare(name, VOID, [value.type, PTR, mask.type])
        self._call(name, VOID, f"{value.typed}, ptr align {align} {pointer.name}, {mask.typed}")

    def masked_gather(
        self, type_: IRType, pointers: IRValue, mask: IRValue, align: int, other: IRValue
    ) -> IRValue:
        name = f"llvm.masked.gather.{type_.mangled}.{pointers.type.mangled}"
        self.module.declare(name, type_, [pointers.type, mask.type, type_])
        args = f"{pointers.type} align {align} {pointers.name}, {mask.typed}, {other.typed}"
        return self._call(name, type_, args)

    def masked_scatter(self, value: IRValue, pointers: IRValue, mask: IRValue, align: int) -> None:
        """Lanes are written in order: the last one wins where addresses are equal."""
        name = f"llvm.masked.scatter.{value.type.mangled}.{pointers.type.mangled}"
        self.module.declare(name, VOID, [value.type, pointers.type, mask.type])
        args = f"{value.typed}, {pointers.type} align {align} {pointers.name}, {mask.typed}"
        self._call(name, VOID, args)

    # ---- control -------------------------------------------------------------------------

    def label(self, hint: str) -> str:
        """A fresh block label that starts with `hint`."""
        name = hint
        while name in self._labels:
            name = f"{hint}{len(self._labels)}"
        self._labels.add(name)
        return name

    def block(self, label: str) -> None:
        """Open the block `label` (made by `label`); what follows goes there."""
        if self._blocks and not self._blocks[-1].closed:
            self.br(label)
        self._by_label[label] = _BasicBlock(label)
        self._blocks.append(self._by_label[label])

    def br(self, label: str) -> None:
        self._terminate(f"br label %{label}")

    def cond_br(self, cond: IRValue, then: str, other: str, unlikely: bool = False) -> None:
        """Branch; `unlikely` tells the code generator that `then` is rarely taken."""
        weights = ", !prof !0" if unlikely else ""
        self._terminate(f"br {cond.typed}, label %{then}, label %{other}{weights}")

    def ret(self, value: IRValue | None = None) -> None:
        self._terminate("ret void" if value is None else f"ret {value.typed}")

    def _terminate(self, line: str) -> None:
        self.emit(line)
        self._blocks[-1].closed = True

    def phi(self, type_: IRType, incoming: Iterable[tuple[IRValue, str]] = ()) -> IRValue:
        """A phi of the open block; later edges are added with `add_incoming`."""
        value = self._fresh(type_)
        self._blocks[-1].phis[value.name] = (type_, [])
        for source, label in incoming:
            self.add_incoming(value, source, label)
        return value

    def add_incoming(self, phi: IRValue, value: IRValue, label: str) -> None:
        for block in reversed(self._blocks):
            if phi.name in block.phis:
                block.phis[phi.name][1].append(f"[ {value.name}, %{label} ]")
                return
        raise ValueError(f"{self.name}: {phi.name} is not a phi of this function")


def _splat_constant(type_: IRType, text: str) -> IRValue:
    if type_.lanes == 1:
        return IRValue(text, type_)
    return IRValue(f"splat ({type_.with_lanes(1)} {text})", type_)
