"""What a program does without Python, as LLVM IR: checks, numbers of its dims, addresses, one run.

A run of ours is data: rows of launches, a table of addresses and a record that points to them
(`launch_rows.py`, `frame.py`). Here both stand as globals, and a function of straight-line code
writes what depends on dims and arguments, since each of these places is known when a program is
exported. Memory is laid out for the greatest dims, so nothing is allocated and nothing can fail
once the checks are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from luminal.shape.expression import Expression, Symbol

_INFIX = {"add": "add", "mul": "mul", "and": "and", "or": "or"}
_CALLS = {"min": "smin", "max": "smax"}
_COMPARISONS = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne"}

INDEX_TEXT = 1024
"""The bytes of the text that names a wrong index: a name, four numbers and a path."""

HELPERS = """
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @luminal_team_init(ptr)
declare i64 @luminal_run(ptr)
declare i64 @sysconf(i32)
declare i32 @snprintf(ptr, i64, ptr, ...)

; What is wrong with an index: the last byte stays 0.
@wrong.index = internal global [$TEXT x i8] zeroinitializer

; The quotient rounded down; 0 where the divisor is 0.
define internal i64 @floordiv(i64 %a, i64 %b) {
  %none = icmp eq i64 %b, 0
  %divisor = select i1 %none, i64 1, i64 %b
  %quotient = sdiv i64 %a, %divisor
  %rest = srem i64 %a, %divisor
  %signs = xor i64 %rest, %divisor
  %unlike = icmp slt i64 %signs, 0
  %some = icmp ne i64 %rest, 0
  %down = and i1 %unlike, %some
  %one = zext i1 %down to i64
  %floor = sub i64 %quotient, %one
  %result = select i1 %none, i64 0, i64 %floor
  ret i64 %result
}

; What is left of it; 0 where the divisor is 0.
define internal i64 @floormod(i64 %a, i64 %b) {
  %none = icmp eq i64 %b, 0
  %quotient = call i64 @floordiv(i64 %a, i64 %b)
  %product = mul i64 %quotient, %b
  %rest = sub i64 %a, %product
  %result = select i1 %none, i64 0, i64 %rest
  ret i64 %result
}
""".replace("$TEXT", str(INDEX_TEXT))

# NumPy's rule: an index counts from the end where it is negative.
WITHIN = """
; Whether `n` integers at `x` are indices of an extent; of the first that is none a format of
; printf makes the text.
define internal i1 @within.$NAME(ptr %x, i64 %n, i64 %extent, ptr %format) {
entry:
  %last = sub i64 %extent, 1
  %lowest = sub i64 0, %extent
  br label %next
next:
  %k = phi i64 [0, %entry], [%k.next, %ok]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %look, label %yes
look:
  %at = getelementptr $TYPE, ptr %x, i64 %k
  %narrow = load $TYPE, ptr %at
  %index = $WIDE
  %high = icmp slt i64 %index, %extent
  %low = icmp sge i64 %index, %lowest
  %both = and i1 %high, %low
  br i1 %both, label %ok, label %no
ok:
  %k.next = add i64 %k, 1
  br label %next
yes:
  ret i1 true
no:
  call i32 (ptr, i64, ptr, ...) @snprintf(ptr @wrong.index, i64 $TEXT, ptr %format,
    i64 %index, i64 %extent, i64 %extent, i64 %last)
  ret i1 false
}
""".replace("$TEXT", str(INDEX_TEXT))


def within(bits: int, is_signed: bool) -> tuple[str, str]:
    """The function that compares indices of such integers, and its name, `within.i32`."""
    type_, name = f"i{bits}", f"{'i' if is_signed else 'u'}{bits}"
    extend = "sext" if is_signed else "zext"
    wide = "add i64 %narrow, 0" if bits == 64 else f"{extend} {type_} %narrow to i64"
    text = WITHIN.replace("$TYPE", type_).replace("$WIDE", wide).replace("$NAME", name)
    return text, f"within.{name}"


def index_format(name: str, where: str) -> str:
    """The format of the text that names an index which is out of range, as a run of ours does."""
    name, where = (text.replace("%", "%%") for text in (name, where))
    return (
        f"{name}: index %lld is out of range for an extent of %lld; "
        f"indices lie in -%lld..%lld{where}"
    )


class Body:
    """The lines of a function: values of Expressions, stores, and checks that leave it."""

    def __init__(self, symbols: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self.left: list[tuple[int, str]] = []  # with which number, from which block
        self.block = "entry"
        self._symbols = symbols
        self._count = 0
        self._values: dict[Expression, str] = {}

    def name(self) -> str:
        """A name that nothing else has."""
        self._count += 1
        return f"v{self._count}"

    def set(self, text: str) -> str:
        """Writes an instruction; the value that it gives."""
        value = f"%{self.name()}"
        self.lines.append(f"  {value} = {text}")
        return value

    def do(self, text: str) -> None:
        """Writes an instruction that gives nothing."""
        self.lines.append(f"  {text}")

    def enter(self, block: str) -> None:
        """Begins a block, where values of others are computed again."""
        self.lines.append(f"{block}:")
        self.block = block
        self._values = {}

    def goto(self, block: str) -> None:
        """Ends a block with a jump to another one."""
        self.do(f"br label %{block}")

    def check(self, condition: str, number: int) -> None:
        """Leaves the function with this number unless the condition (an i1) holds."""
        kept, after = self._values, self.name()
        self.left.append((number, self.block))
        self.do(f"br i1 {condition}, label %{after}, label %out")
        self.enter(after)
        self._values = kept  # this block comes after that one, always

    def all_of(self, conditions: Iterable[str]) -> str:
        """The conjunction of i1 values."""
        result = "true"
        for condition in conditions:
            result = condition if result == "true" else self.set(f"and i1 {result}, {condition}")
        return result

    def at(self, place: str, offset: int | str, type_: str = "i8") -> str:
        """An address `offset` elements behind another one."""
        return self.set(f"getelementptr {type_}, ptr {place}, i64 {offset}")

    def store(self, value: str, place: str, offset: int = 0, type_: str = "i64") -> None:
        """Writes a value, `offset` words of 8 bytes behind a place."""
        self.do(f"store {type_} {value}, ptr {self.at(place, offset, 'i64')}")

    def load(self, place: str, offset: int = 0, type_: str = "i64") -> str:
        """Reads a value, `offset` words of 8 bytes behind a place."""
        return self.set(f"load {type_}, ptr {self.at(place, offset, 'i64')}")

    def value(self, expression: Expression) -> str:
        """The value of an Expression, an i64."""
        if isinstance(expression, Symbol):
            return self._symbols[expression.name]
        if expression.is_const:
            return str(expression.constant)
        value = self._values.get(expression)
        if value is None:
            value = self._values[expression] = self._computed(expression)
        return value

    def _computed(self, expression: Expression) -> str:
        op, values = expression.op, [self.value(part) for part in expression.args]
        if op in _COMPARISONS:
            truth = self.set(f"icmp {_COMPARISONS[op]} i64 {values[0]}, {values[1]}")
            return self.set(f"zext i1 {truth} to i64")
        if op in ("floordiv", "mod"):
            function = "floordiv" if op == "floordiv" else "floormod"
            return self.set(f"call i64 @{function}(i64 {values[0]}, i64 {values[1]})")
        result, *others = values
        for other in others:
            if op in _CALLS:
                text = f"call i64 @llvm.{_CALLS[op]}.i64(i64 {result}, i64 {other})"
            else:
                text = f"{_INFIX[op]} i64 {result}, {other}"
            result = self.set(text)
        return result

    def holds(self, expression: Expression) -> str:
        """Whether a condition holds, an i1."""
        return self.set(f"icmp ne i64 {self.value(expression)}, 0")

    def product(self, extents: Sequence[Expression]) -> str:
        """The number of elements of a shape."""
        result = "1"
        for extent in extents:
            result = self.set(f"mul i64 {result}, {self.value(extent)}")
        return result


def text_global(name: str, text: str) -> str:
    """A global that holds a text as C does."""
    data = text.encode() + b"\0"
    shown = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data
    )
    return f'@{name} = internal constant [{len(data)} x i8] c"{shown}"'


def table_global(name: str, words: Sequence[int | str], constant: bool = True) -> str:
    """A global of words of 8 bytes: numbers, or addresses as constant expressions of `ptr`."""
    kind = "constant" if constant else "global"
    parts = [f"i64 {word}" if isinstance(word, int) else f"ptr {word}" for word in words]
    types = ", ".join("i64" if isinstance(word, int) else "ptr" for word in words)
    return f"@{name} = internal {kind} {{ {types} }} {{ {', '.join(parts)} }}, align 64"
