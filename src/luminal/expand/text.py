"""Expanded IR as text."""

from __future__ import annotations

from luminal.base.forks import kept
from luminal.expand.ir import (
    Accumulate,
    Apply,
    AtPhase,
    Await,
    Barrier,
    Begin,
    Commit,
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
    Value,
)


@kept
def to_text(kernel: Kernel) -> str:
    """The kernel as text, which names nothing by chance: equal kernels have equal texts."""
    params = (
        f"{_typed(p.value)} = {p.symbol} in {p.symbol.lo}..{p.symbol.hi}" for p in kernel.params
    )
    group = "" if kernel.lane is None else f" by groups of {kernel.lanes}, {_typed(kernel.lane)}"
    group += f", subgroups of {kernel.subgroup}" if kernel.subgroup > 1 else ""
    lines = [f"kernel({', '.join(params)}){group} {{"]
    for buffer in kernel.buffers:
        role = buffer.role.value + " non_temporal" * buffer.non_temporal
        role += " unaligned" * (not buffer.is_aligned) + " constant" * buffer.constant
        lines.append(f"  {role} {buffer.name}: {buffer.dtype}[{buffer.size}]")
    for buffer in kernel.shared:
        swizzled = f"swizzled {buffer.swizzle} " if buffer.swizzle else ""
        lines.append(f"  shared {swizzled}{buffer.name}: {buffer.dtype}[{buffer.size}]")
    lines += [f"  tensor {b.name}: {b.dtype}[{b.size}]" for b in kernel.tensor]
    _block(kernel.early, f"  early, first chunk {kernel.first}: ", lines)
    _block(kernel.setup, "  ", lines)
    for scratch in kernel.scratch:
        buffer = scratch.buffer
        where = f"{buffer.dtype}[{buffer.size}] from byte {scratch.offset}"
        lines.append(f"  scratch {buffer.name}: {where} of {kernel.scratch_bytes}")
    begin = "" if kernel.begin is None else f", from {_typed(kernel.begin)} on"
    lines.append(f"  chunk {_typed(kernel.chunk)} of {kernel.chunks}{begin}:")
    _block(kernel.body, "    ", lines)
    return "\n".join([*lines, "}"])


def place(
    statement: Load | Store | Fetch | LoadMatrix | Copy | CopyBox | Left | Accumulate | LoadSums,
) -> str:
    """The address and the distance from it, as text."""
    distance = statement.distance
    if not distance:
        return f"{statement.address}"
    return f"{statement.address} {'-' if distance < 0 else '+'} {abs(distance)}"


def headline(statement: Statement) -> str:
    """The statement's own printed line, without the body."""
    lines: list[str] = []
    _block((statement,), "", lines)
    return lines[0]


def _block(body: tuple[Statement, ...], indent: str, lines: list[str]) -> None:
    for statement in body:
        match statement:
            case Apply(out, op, args):
                lines.append(f"{indent}{_typed(out)} = {op} {' '.join(map(str, args))}")
            case Load(out, buffer, _, mask):
                where = "" if mask is None else f" if {mask}"
                load = "load" + " aligned" * statement.is_aligned
                lines.append(f"{indent}{_typed(out)} = {load} {buffer}[{place(statement)}]{where}")
            case Fetch(buffer):
                lines.append(f"{indent}fetch {buffer}[{place(statement)}]")
            case Store(buffer, _, value, mask):
                where = "" if mask is None else f" if {mask}"
                store = "store" + " aligned" * statement.is_aligned
                lines.append(f"{indent}{store} {buffer}[{place(statement)}] <- {value}{where}")
            case Loop(index, start, stop, step):
                lines.append(f"{indent}for {_typed(index)} = {start}, < {stop}, + {step}:")
                for carry in statement.carries:
                    after = f"-> {carry.next}, after {_typed(carry.result)}"
                    lines.append(f"{indent}  carry {_typed(carry.inner)} = {carry.init} {after}")
                _block(statement.body, indent + "  ", lines)
            case If(condition):
                lines.append(f"{indent}if {condition}{', seldom' if statement.seldom else ''}:")
                for choice in statement.choices:
                    arms = f"{choice.then} else {choice.otherwise}"
                    lines.append(f"{indent}  after {_typed(choice.result)} = {arms}")
                _block(statement.body, indent + "  ", lines)
            case Barrier(of_cluster):
                lines.append(f"{indent}barrier{' of the cluster' * of_cluster}")
            case Exchange(out, value, distance):
                lines.append(f"{indent}{_typed(out)} = {value} of the lane {distance} away")
            case Multiply(outs, dot, acc, a, b):
                scaled = f" scaled {_held(statement.scales)}" if statement.scales else ""
                held = f"{dot} {_held(acc, a, b)}{scaled}"
                lines.append(f"{indent}{', '.join(map(_typed, outs))} = {held}")
            case Copy(buffer, _, _, source, address, distance, count, live):
                where = "" if live is None else f" if {live}"
                there = f"{source}[{place(Fetch(source, address, distance))}]"
                there = f"{buffer}[{place(statement)}] from {there}"
                lines.append(f"{indent}copy {count} to {there}{where}")
            case MultiplyLeft(outs, dot, acc):
                factors = f"{_held(acc, statement.held)} {_left(*statement.left)}"
                lines.append(f"{indent}{', '.join(map(_typed, outs))} = {dot} {factors}")
            case Accumulate(buffer, _, _, dot, a, b, adds):
                scaled = f" scaled {_left(*statement.scales)}" if statement.scales else ""
                held = f"{dot} {_left(a, b)}{scaled}, added if {adds}"
                lines.append(f"{indent}{buffer}[{place(statement)}] = {held}")
            case LoadSums(outs, buffer):
                held = ", ".join(map(_typed, outs))
                lines.append(f"{indent}{held} = load sums {buffer}[{place(statement)}]")
            case AtPhase() | CopyBox():
                lines.append(indent + _of_boxes(statement))
            case Publish() | Begin() | Commit() | Await():
                lines.append(indent + _of_batches(statement))
            case LoadMatrix(outs, buffer):
                turned = ", turned" * statement.turned
                where = f"load matrix {buffer}[{place(statement)}]{turned}"
                lines.append(f"{indent}{', '.join(map(_typed, outs))} = {where}")


def _of_batches(statement: Publish | Begin | Commit | Await) -> str:
    match statement:
        case Publish():
            return "publish"
        case Begin(lifts):
            return f"begin products{f', lift {_left(*lifts)}' if lifts else ''}"
        case Commit(of):
            return f"commit {of.value}"
        case Await(younger, of):
            return f"await all {of.value} but {younger}"


def _of_boxes(statement: AtPhase | CopyBox) -> str:
    if isinstance(statement, CopyBox):
        source = f"{statement.tensor} at ({', '.join(map(str, statement.origin))})"
        parts = f"{statement.parts} parts of " * (statement.parts > 1)
        target = f"{parts}{statement.buffer}[{place(statement)}]"
        return f"copy {target} from {source} by {statement.phases}[{statement.turn}]"
    step, number = statement.step, statement.number
    parity = f" of parity {number}"
    told = {Phase.EXPECT: f", {number} bytes", Phase.AWAIT: parity, Phase.ENTER: parity}
    return f"{step.value} phase {statement.buffer}[{statement.address}]{told.get(step, '')}"


def _held(*blocks: tuple[Operand, ...]) -> str:
    return " ".join(f"({' '.join(map(str, block))})" for block in blocks if block)


def _left(*factors: Left) -> str:
    return " ".join(
        f"{x.buffer}[{place(x)}{', turned' * x.turned}, apart {x.apart}]" for x in factors
    )


def _typed(value: Value) -> str:
    return f"{value}: {value.type}"
