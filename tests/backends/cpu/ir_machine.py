"""LLVM IR of the team as a machine that does one atomic access at a time.

It reads the text that is compiled: functions, blocks, and of each instruction the few forms that
the text has. A thread runs up to its next access that others can see; what happens there is told
by `Memory`. Registers that are not read any more are forgotten, so that states do not differ by
them.
"""

from __future__ import annotations

import functools
import marshal
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

_WORD = r"%[\w.]+|@[\w.]+|-?\d+|null|true|false|poison|zeroinitializer"
_BITS = {"i1": 1, "i8": 8, "i32": 32, "i64": 64, "ptr": 64}


@dataclass(frozen=True)
class Instruction:
    """`result`: the register written. `args` are operands, `words` all other that matters."""

    op: str
    result: str
    args: tuple[Any, ...]  # names of registers and functions, and constants
    words: tuple[str, ...] = ()
    site: str = ""  # of an atomic access: its name

    def reads(self) -> set[str]:
        return {arg for arg in self.args if isinstance(arg, str) and arg.startswith("%")}


@dataclass
class Function:
    """Blocks by name. `live`: the registers that are read from a place on."""

    name: str
    params: tuple[str, ...]
    blocks: dict[str, list[Instruction]] = field(default_factory=dict)
    phis: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    live: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """The functions of a text, its structs as bytes of their fields, and its atomic accesses."""

    functions: Mapping[str, Function]
    structs: Mapping[str, tuple[int, ...]]
    sites: Mapping[str, tuple[str, str]]  # by name: what it is, and its order


def parsed(text: str, names: set[str]) -> Module:
    """The functions of these names."""
    text = re.sub(r";.*", "", text)
    structs = {
        name: _offsets([field.strip() for field in fields.split(",")])
        for name, fields in re.findall(r"^(%\w+) = type \{(.*)\}", text, re.M)
    }
    functions = {}
    for name, params, body in re.findall(
        r"^define [^@]*@([\w.]+)\(([^)]*)\) \{\n(.*?)^\}", text, re.M | re.S
    ):
        if name in names:
            functions[name] = _function(name, params, body)
    sites = {
        instruction.site: (instruction.op, instruction.words[-1])
        for function in functions.values()
        for block in function.blocks.values()
        for instruction in block
        if instruction.site
    }
    return Module(functions, structs, sites)


def _offsets(fields: list[str]) -> tuple[int, ...]:
    """Where the fields of a struct begin, and its size."""
    at, starts = 0, []
    for kind in fields:
        size = _BITS[kind] // 8
        at = -(-at // size) * size
        starts.append(at)
        at += size
    return (*starts, -(-at // 8) * 8)


def _function(name: str, params: str, body: str) -> Function:
    function = Function(name, tuple(re.findall(r"%[\w.]+", params)))
    block = ""
    for line in _lines(body):
        label = re.fullmatch(r"([\w.]+):", line)
        if label:
            block = label[1]
            function.blocks[block], function.phis[block] = [], []
            continue
        target = re.match(r"(%[\w.]+) = ", line)
        result, rest = (target[1], line[target.end() :]) if target else ("", line)
        if rest.startswith("phi"):
            pairs = re.findall(rf"\[({_WORD}), %([\w.]+)\]", rest)
            function.phis[block].append(
                (result, {source: _operand(value) for value, source in pairs})
            )
        else:
            function.blocks[block].append(_instruction(name, result, rest))
    _find_live(function)
    return function


def _lines(body: str) -> list[str]:
    lines: list[str] = []
    whole = ""
    for line in body.splitlines():
        whole = f"{whole} {line.strip()}".strip()
        is_open = sum(whole.count(sign) for sign in "([{") > sum(whole.count(s) for s in ")]}")
        if whole and not is_open and not whole.endswith(","):
            lines.append(whole)
            whole = ""
    return lines


_CONSTANTS: dict[str, Any] = {
    "null": 0,
    "true": 1,
    "false": 0,
    "poison": (),
    "zeroinitializer": (0, 0),
}


def _operand(text: str) -> Any:
    if text[0] in "%@":
        return text
    return _CONSTANTS[text] if text in _CONSTANTS else int(text) % 2**64


def _instruction(function: str, result: str, text: str) -> Instruction:
    """An instruction of one line, its operands as names or constants."""
    read = _read(function, result, text)
    return replace(read, args=tuple(_operand(arg) for arg in read.args))


def _read(function: str, result: str, text: str) -> Instruction:
    text = re.sub(r", align \d+$", "", text.removeprefix("tail "))
    op = text.split()[0]
    atomic = " atomic " in text or op in ("atomicrmw", "cmpxchg")
    site = ""
    if op == "call":
        called, args = re.findall(r"([@%][\w.]+)\((.*)\)$", text)[0]
        operands = [re.findall(_WORD, arg)[-1] for arg in args.split(",") if arg]
        return Instruction("call", result, (called, *operands))
    if op in ("br", "switch"):
        labels = tuple(re.findall(r"label %([\w.]+)", text))
        values = tuple(re.findall(r"i32 (-?\d+), label", text))
        plain = re.sub(r"label %[\w.]+", "", text).split("[")[0]
        return Instruction(op, "", tuple(re.findall(r"%[\w.]+", plain)), (*labels, *values))
    if op == "getelementptr":
        parts = [part.split() for part in text.removeprefix(op).split(",")]
        args = tuple(part[-1] for part in parts[1:])
        return Instruction(op, result, args, (parts[0][0], *(part[0] for part in parts[2:])))
    operands_text = re.sub(r"\{[^}]*\}", "", text)
    args = tuple(re.findall(rf"(?<![\w.])(?:{_WORD})(?![\w.])", operands_text))
    words = tuple(word for word in re.findall(r"(?<![%@\w.])[a-z]\w*", operands_text))
    if atomic:
        name = (result or args[-1]).removeprefix("%").removesuffix(".at")
        site = f"{function}.{'' if result else 'store '}{name}"
        words = tuple(word for word in words if word != "atomic")
        if op == "cmpxchg":  # its last word is the order where it succeeds
            words = (*words[:-2], words[-1], words[-2])
    return Instruction(op, result, args, words, site)


def _find_live(function: Function) -> None:
    """Which registers are still read from each place on: backwards until nothing changes."""
    entering: dict[str, frozenset[str]] = dict.fromkeys(function.blocks, frozenset())
    changes = True
    while changes:
        changes = False
        for block, instructions in reversed(function.blocks.items()):
            live = _leaving(function, block, instructions[-1], entering)
            for index in range(len(instructions) - 1, -1, -1):
                instruction = instructions[index]
                function.live[block, index + 1] = frozenset(live)
                live = (live - {instruction.result}) | instruction.reads()
            function.live[block, 0] = frozenset(live)
            start = frozenset(live - {result for result, _ in function.phis[block]})
            changes |= start != entering[block]
            entering[block] = start


def _leaving(
    function: Function, block: str, last: Instruction, entering: Mapping[str, frozenset[str]]
) -> set[str]:
    live: set[str] = set()
    for target in last.words if last.op in ("br", "switch") else ():
        if target in function.blocks:
            live |= entering[target]
            values = (sources[block] for _, sources in function.phis[target])
            live |= {value for value in values if isinstance(value, str)}
    return live


class Frame(NamedTuple):
    """A function that runs: where, and its registers that are still read."""

    function: str
    block: str
    at: int  # the number of its instruction in the block
    registers: dict[str, Any]


@dataclass
class Thread:
    """The innermost function is the last. `left`: runs that a caller has still to make."""

    frames: list[Frame]
    caller: int = -1
    left: int = 0
    stack: dict[int, int] = field(default_factory=dict)

    def copy(self) -> Thread:
        frames = [Frame(*frame[:3], dict(frame.registers)) for frame in self.frames]
        return Thread(frames, self.caller, self.left, dict(self.stack))

    @functools.cached_property
    def key(self) -> bytes:
        frames = [(*frame[:3], sorted(frame.registers.items())) for frame in self.frames]
        return marshal.dumps((frames, self.left, sorted(self.stack.items())), 2)


def bits_of(words: tuple[str, ...]) -> int:
    """The width of what an instruction computes."""
    return next(_BITS[word] for word in words if word in _BITS)


def computed(op: str, words: tuple[str, ...], values: list[Any]) -> Any:
    """The result of an instruction that needs no memory."""
    if op == "extractvalue":
        return values[0][values[1]]
    if op == "insertvalue":
        whole = list(values[0]) if values[0] else [0, 0]
        whole[values[2]] = values[1]
        return tuple(whole)
    if op == "select":
        return values[1] if values[0] else values[2]
    bits = bits_of(words)
    if op == "icmp":
        if words[1].startswith("s"):
            values = [signed(value, bits) for value in values]
        return int(_COMPARES[words[1][-2:]](*values))
    if op in ("trunc", "zext", "ptrtoint"):
        return values[0] & ((1 << _BITS[words[-1]]) - 1)
    return _ARITHMETIC[op](*values) & ((1 << bits) - 1)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


_COMPARES = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
}
_ARITHMETIC = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "udiv": lambda x, y: x // y,
    "urem": lambda x, y: x % y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "shl": lambda x, y: x << y,
    "lshr": lambda x, y: x >> y,
}
