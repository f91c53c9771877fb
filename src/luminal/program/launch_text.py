"""Programs as text: buffers, kernels by number, launches with their barriers."""

from __future__ import annotations

from dataclasses import replace

from luminal.kernel import tile_text
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Operand,
    Program,
    barriers,
)


def to_text(program: Program, *, kernels: bool = False, named: bool = True) -> str:
    """The program; with `kernels` the tile IR of each distinct kernel as well. `named`: with the
    names of Parameters and States, which are no part of what it computes.
    """
    lines = ["program {"]
    lines += [f"  dim {dim.name} in {dim.lo}..{dim.hi}" for dim in program.dims]
    lines += [f"  require {condition}" for condition in program.requirements]
    buffers = program.buffers
    if not named:
        is_held = (BufferKind.STATE, BufferKind.NEXT, BufferKind.WEIGHT)
        buffers = tuple(replace(b, owner=None) if b.kind in is_held else b for b in buffers)
    lines += [f"  {buffer}" for buffer in buffers]
    if program.prologue:
        lines += ["  prologue:", *_launches(program, program.prologue, "    ")]
    if program.dispatch is not None:
        lines.append(f"  dispatch {program.dispatch}")
    lines += ["  run:", *_launches(program, program.launches, "    ")]
    for output in program.outputs:
        hidden = " hidden" if output.hidden else ""
        lines.append(f"  output {output.name} = b{output.buffer}{hidden}")
    lines += [f"  swap {state.name if named else state.shape}" for state in program.swaps]
    lines.append("}")
    if kernels:
        for number, kernel in enumerate(program.kernels):
            lines += ["", f"k{number}:", tile_text.to_text(kernel)]
    return "\n".join(lines)


def _launches(program: Program, launches: tuple[Launch, ...], indent: str) -> list[str]:
    lines = []
    for launch, barrier in zip(launches, barriers(program, launches), strict=True):
        if barrier:
            lines.append(f"{indent}barrier")
        if isinstance(launch, LoopLaunch):
            lines.append(f"{indent}loop {launch.trips}:")
            lines += _launches(program, launch.body, indent + "  ")
        else:
            lines.append(indent + line(program, launch))
    return lines


def line(program: Program, launch: KernelLaunch | CollectiveLaunch) -> str:
    """The line of one launch: `k2[8](in b0, out b3; n=64)  # Sum.Exp`."""
    if isinstance(launch, CollectiveLaunch):
        return _collective_launch(program, launch)
    return _kernel_launch(program, launch)


def _kernel_launch(program: Program, launch: KernelLaunch) -> str:
    kernel = program.kernels[launch.kernel]
    operands = ", ".join(
        f"{buffer.role.value} {_operand(program, operand)}"
        for operand, buffer in zip(launch.operands, kernel.buffers, strict=True)
    )
    pairs = zip(kernel.params, launch.params, strict=True)
    params = ", ".join(f"{symbol.name}={value}" for symbol, value in pairs)
    arguments = operands + (f"; {params}" if params else "")
    return f"k{launch.kernel}[{launch.chunks}]({arguments})  # {launch.label}"


def _collective_launch(program: Program, launch: CollectiveLaunch) -> str:
    """`start all_gather(in b3, out b5; data 4, elements 128 512) ticket 1  # w`."""
    attrs = launch.attrs
    operands = ", ".join(
        f"{role.value} {_operand(program, operand)}"
        for operand, role in zip(launch.operands, launch.roles, strict=True)
    )
    told = [f"{attrs.axis} {attrs.ranks}", f"elements {' '.join(map(str, launch.sizes))}"]
    told += [attrs.reduction] * bool(attrs.reduction)
    told += [f"pairs {attrs.pairs}"] * bool(attrs.pairs)
    split = launch.phase != "both"
    phase, ticket = (f"{launch.phase} ", f" ticket {launch.ticket}") if split else ("", "")
    label = f"  # {launch.label}" if launch.label else ""
    return f"{phase}{attrs.kind}({operands}; {', '.join(told)}){ticket}{label}"


def _operand(program: Program, operand: Operand) -> str:
    """`b4`, `b4 + i1*256` for a stream, `(b4 b5)[i1 + 1]` for buffers that take turns."""
    names = " ".join(f"b{program.table[entry]}" for entry in program.entries(operand))
    iteration = f"i{operand.depth}"
    text = names
    if operand.modulus > 1:
        offset = "" if operand.offset == 0 else f" + {operand.offset}"
        text = f"({names})[{iteration}{offset}]"
    start = "" if operand.start == 0 else f" + {operand.start}"
    return f"{text}{start}" + ("" if operand.stride == 0 else f" + {iteration}*{operand.stride}")
