"""Tile IR as text."""

from __future__ import annotations

import hashlib

from luminal.base.forks import kept
from luminal.kernel.boxes import AwaitPhase, Begin, Free, Phases, Send, text_of
from luminal.kernel.tile_ir import (
    Accumulate,
    Await,
    Barrier,
    Call,
    Carry,
    Commit,
    Contract,
    Copy,
    If,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Map,
    Once,
    Prefix,
    Reduce,
    Retile,
    Runs,
    Section,
    SortRow,
    Space,
    Statement,
    Store,
    Tile,
)
from luminal.shape.expression import TRUE, ZERO


@kept
def to_text(kernel: Kernel) -> str:
    """The kernel as text: canonical names make it the key under which it is compiled and priced."""
    group = f" by groups of {kernel.lanes}" if kernel.lanes > 1 else ""
    group += f", subgroups of {kernel.subgroup}" if kernel.subgroup > 1 else ""
    params = ", ".join(f"{p.name} in {p.lo}..{p.hi}" for p in kernel.params)
    lines = [f"kernel({params}){group} {{"]
    for buffer in (*kernel.buffers, *kernel.scratch):
        kind = buffer.role.value if buffer.space is Space.GLOBAL else buffer.space.value
        kind += " non_temporal" * buffer.non_temporal + " unaligned" * (not buffer.is_aligned)
        kind += " constant" * buffer.constant
        kind += f" swizzled {buffer.swizzle}" if buffer.swizzle else ""
        lines.append(f"  {kind} {buffer.name}: {buffer.dtype}[{buffer.size}]")
    for grid in kernel.grid:
        lines.append(f"  grid {grid.axis.name} in 0..<{grid.count}")
    _block(kernel.body, "  ", lines)
    return "\n".join([*lines, "}"])


def headline(statement: Statement) -> str:
    """The statement's own printed line: of one with a body, its head without carries and body."""
    lines: list[str] = []
    _block((statement,), "", lines)
    return lines[0].split("\n")[0]


def _block(body: tuple[Statement, ...], indent: str, lines: list[str]) -> None:
    for statement in body:
        if isinstance(statement, Loop):
            carries = "".join(f"\n{indent}  {_carry(c)}" for c in statement.carries)
            bound = "".join(f" {kind.value}({n})" for kind, n in statement.bindings[1:])
            head = f"for {statement.axis.name} in {statement.start}..<{statement.stop}{bound}:"
            lines.append(f"{indent}{head}{carries}")
            _block(statement.body, indent + "  ", lines)
        elif isinstance(statement, Runs):
            keys = ", ".join(f"{buffer}[{offset}]" for buffer, offset in statement.keys)
            ends = f"{statement.axis.name}..<{statement.end.name}"
            span = f"{statement.start}..<{statement.stop}"
            lines.append(f"{indent}for runs {ends} in {span} of {keys}:")
            _block(statement.body, indent + "  ", lines)
        elif isinstance(statement, If):
            lines.append(f"{indent}if {statement.condition}:")
            _block(statement.body, indent + "  ", lines)
        elif isinstance(statement, Section):
            axes = "".join(f", {grid.axis.name} in 0..<{grid.count}" for grid in statement.grid)
            lines.append(f"{indent}section from {statement.first} on{axes}:")
            _block(statement.body, indent + "  ", lines)
        elif isinstance(statement, Once):
            lines.append(f"{indent}once for {statement.outer} axes of the grid:")
            _block(statement.body, indent + "  ", lines)
        else:
            lines.append(indent + _line(statement))


def _typed(tile: Tile) -> str:
    return f"{tile}: {tile.dtype}[{', '.join(axis.name for axis in tile.axes)}]"


def _carry(carry: Carry) -> str:
    after = _typed(carry.result)
    return f"carry {_typed(carry.inner)} = {carry.init} -> {carry.next}, after {after}"


def _access(statement: Load | Store) -> str:
    bound = "".join(f", {symbol.name}={tile}" for symbol, tile in statement.indices)
    guard = "" if statement.guard is TRUE else f" if {statement.guard}"
    return f"{statement.buffer}[{statement.offset}{bound}]{guard}"


def _scaled(scales: tuple[Tile, ...]) -> str:
    return f" scaled by {' and '.join(map(str, scales))}" if scales else ""


def _line(statement: Statement) -> str:
    match statement:
        case Literal(out):
            return f"{_typed(out)} = literal {statement.value} (0x{statement.data[::-1].hex()})"
        case Index(out, expr):
            return f"{_typed(out)} = index {expr}"
        case Map(out, op, args):
            return f"{_typed(out)} = {op} {' '.join(map(str, args))}"
        case Load(out):
            prefetch = f", prefetch {statement.prefetch}" if statement.prefetch is not ZERO else ""
            return f"{_typed(out)} = load {_access(statement)}{prefetch}"
        case Store():
            return (
                f"{'add' if statement.add else 'store'} {_access(statement)} <- {statement.value}"
            )
        case Contract(out, acc, a, b, dot):
            by = f" by {dot}" if dot.k > 1 else ""
            return f"{_typed(out)} = contract {acc} + {a} * {b}{by}{_scaled(statement.scales)}"
        case Accumulate(buffer, offset, a, b, dot, adds):
            scaled = _scaled(statement.scales)
            return f"{buffer}[{offset}] = {a} * {b} by {dot}{scaled}, added if {adds}"
        case Retile(out, value, columns, first):
            names = ", ".join(axis.name for axis in columns)
            return f"{_typed(out)} = retile {value} over {names} from {first}"
        case Prefix(out, total, op, value, axis):
            return f"{_typed(out)}, {_typed(total)} = prefix {op} {value} over {axis.name}"
        case Reduce(out, op, value, axis):
            return f"{_typed(out)} = reduce {op} {value} over {axis.name}"
        case SortRow():
            where = f"{statement.offset} + k*{statement.stride}, k < {statement.extent}"
            target = f"{statement.values}, {statement.order}"
            return f"sort {statement.source} -> {target} at {where}"
        case Call():
            return _call(statement)
        case Copy(buffer, offset, source, source_offset, count, guard):
            where = "" if guard is TRUE else f" if {guard}"
            return f"copy {count} to {buffer}[{offset}] from {source}[{source_offset}]{where}"
        case Begin(lifts):
            lifted = ", ".join(f"{x.squares} of {x.buffer}[{x.offset}]" for x in lifts)
            return f"begin products{f', lift {lifted}' if lifts else ''}"
        case Commit(of):
            return f"commit {of.value}"
        case Await(younger, of):
            return f"await all {of.value} but {younger}"
        case Phases() | Free() | Send() | AwaitPhase():
            return text_of(statement)
        case Barrier(scope):
            return f"barrier {scope.value}"
        case _:
            raise AssertionError(statement)


def _call(call: Call) -> str:
    """The text of a call, with a hash of its IR: equal code has equal text."""
    ir = call.kernel.ir
    code = "python" if ir is None else f"ir {hashlib.sha256(ir.encode()).hexdigest()[:32]}"
    operands, results = (
        ", ".join(f"{name}[{', '.join(map(str, shape))}]" for name, shape in buffers)
        for buffers in (call.operands, call.results)
    )
    part = f"{call.chunk.name} of {call.chunks}"
    if call.numbers:
        part = f"{part}, told {', '.join(str(symbol) for symbol in call.numbers)}"
    return f"call {call.kernel.name!r} ({code}) ({operands}) -> ({results}), {part}"
