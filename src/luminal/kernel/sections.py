"""Kernels that need nothing of each other, as the sections of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from luminal.base.records import dataclass
from luminal.kernel.tile_ir import Grid, Kernel, Loop, Section, Tile
from luminal.shape.expression import ZERO, Expression, Symbol, axis, opaque

BUFFERS = ("buffer", "source")
"""Fields of statements that name a buffer."""


def joined(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel whose chunks are those of all: the operands and parameters of the first, then
    those of the others.

    All are run by groups of as many lanes. None may read what another writes.
    """
    renamed = [*_apart(kernels)]
    first: Expression = ZERO
    sections = []
    for kernel in renamed:
        section = Section(first, kernel.grid, kernel.body)
        sections.append(section)
        first = first + section.chunks
    return Kernel(
        tuple(param for kernel in renamed for param in kernel.params),
        tuple(buffer for kernel in renamed for buffer in kernel.buffers),
        tuple(buffer for kernel in renamed for buffer in kernel.scratch),
        (Grid(axis("g", first), first),),
        tuple(sections),
        max(kernel.subgroup for kernel in renamed),
    )


def _apart(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """The kernels with names that no two of them share."""
    tile, param, operand, scratch = 0, 0, 0, 0
    for number, kernel in enumerate(kernels):
        buffers = {b.name: f"b{operand + k}" for k, b in enumerate(kernel.buffers)}
        buffers |= {b.name: f"s{scratch + k}" for k, b in enumerate(kernel.scratch)}
        names = _Names({}, buffers, tile, f"{number}.")
        for k, symbol in enumerate(kernel.params):
            names.symbols[symbol] = opaque(f"p{param + k}", symbol.lo, symbol.hi)
        yield names.kernel(kernel)
        tile += 1 + max((tile.id for tile in _tiles(kernel)), default=0)
        param, operand = param + len(kernel.params), operand + len(kernel.buffers)
        scratch += len(kernel.scratch)


def _tiles(kernel: Kernel) -> Iterator[Tile]:
    for statement in kernel.statements():
        for field in fields(statement):
            value = getattr(statement, field.name)
            if isinstance(value, Tile):
                yield value
        if isinstance(statement, Loop):
            for carry in statement.carries:
                yield from (carry.result, carry.inner)


@dataclass(slots=True)
class _Names:
    """What a kernel's names become: symbols as they are met, tiles by adding to their numbers."""

    symbols: dict[Symbol, Symbol]
    buffers: Mapping[str, str]
    tile: int
    prefix: str

    def kernel(self, kernel: Kernel) -> Kernel:
        """The kernel with other names."""
        return replace(
            kernel,
            params=tuple(self.symbols[param] for param in kernel.params),
            buffers=self.of(kernel.buffers),
            scratch=self.of(kernel.scratch),
            grid=self.of(kernel.grid),
            body=self.of(kernel.body),
        )

    def of(self, value: Any, field: str = "") -> Any:
        """A part of a kernel with other names."""
        match value:
            case Symbol():
                return self.symbol(value)
            case Expression():
                free = {s: self.symbol(s) for s in value.symbols()}
                return value.substitute(free) if free else value
            case Tile():
                axes = tuple(map(self.symbol, value.axes))
                return replace(value, id=self.tile + value.id, axes=axes)
            case tuple():
                return tuple(self.of(part) for part in value)
            case str() if field in BUFFERS or (field == "name" and value in self.buffers):
                return self.buffers[value]
            case _ if is_dataclass(value) and not isinstance(value, type):
                parts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
                now = {name: self.of(part, name) for name, part in parts.items()}
                changed = {name: x for name, x in now.items() if x is not parts[name]}
                return replace(value, **changed) if changed else value
        return value

    def symbol(self, symbol: Symbol) -> Symbol:
        """The name of a symbol: that of a parameter, or a new one."""
        if symbol not in self.symbols:
            name = self.prefix + symbol.name
            if symbol.extent is None:
                self.symbols[symbol] = opaque(name, symbol.lo, symbol.hi)
            else:
                self.symbols[symbol] = axis(name, self.of(symbol.extent))
        return self.symbols[symbol]
