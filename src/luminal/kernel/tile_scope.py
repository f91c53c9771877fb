"""What the rules of the tile IR's verifier have in common: scopes, and what may be read in them."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import field
from typing import NoReturn

from luminal.base import dtypes
from luminal.base.errors import VerifyError
from luminal.base.records import dataclass
from luminal.kernel.lanes import block_of
from luminal.kernel.tile_ir import Buffer, Kernel, Loop, Role, Space, Statement, Tile
from luminal.kernel.tile_text import headline
from luminal.shape.expression import Expression, Symbol

WORKING = (Space.SCRATCH, Space.SHARED, Space.TENSOR)
"""Where the working memory of a kernel lies."""


@dataclass(slots=True)
class Scope:
    """What a statement may name: tiles by id, bound symbols, and the enclosing tiled loops."""

    tiles: dict[int, Tile]
    symbols: frozenset[Symbol]
    tiled: dict[Symbol, Loop] = field(default_factory=dict)  # by axis

    def inside(self, loop: Loop) -> Scope:
        """The scope of the loop's body: values laid out along its own axis stay outside."""
        tiles = {i: tile for i, tile in self.tiles.items() if loop.axis not in tile.axes}
        tiled = dict(self.tiled)
        if loop.tile > 1:
            tiled[loop.axis] = loop
        return Scope(tiles, self.symbols | {loop.axis}, tiled)

    def copy(self) -> Scope:
        return Scope(dict(self.tiles), self.symbols, self.tiled)


class Checks:
    """The rules that many statements of a kernel share, and what has been defined so far."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.defined: set[int] = set()
        self.buffers: dict[str, Buffer] = {}
        self.stored: set[str] = set()
        self.tile_sizes = kernel.tile_shapes()
        loops = [statement for statement in kernel.statements() if isinstance(statement, Loop)]
        self.lanes = {x.axis: x.lanes for x in reversed(loops) if x.lanes.count > 1}
        self.near = {x.axis: x.neighbours for x in loops if x.neighbours > 1}
        self.parts = {x.axis: x.part for x in loops if x.part is not None}
        self.near |= {a: part.extent for a, part in self.parts.items() if part.side == "k"}
        self.line: Statement | str = "kernel"

    def fail(self, text: str) -> NoReturn:
        line = self.line if isinstance(self.line, str) else headline(self.line)
        raise VerifyError(f"tile IR: `{line}`: {text}")

    def known(self, expr: Expression, symbols: Iterable[Symbol]) -> None:
        missing = expr.symbols() - frozenset(symbols)
        if missing:
            names = ", ".join(sorted(symbol.name for symbol in missing))
            self.fail(f"{names} in {expr} is not bound here; bind it by a loop, param or index")

    def uniform(self, expr: Expression, scope: Scope) -> None:
        self.known(expr, scope.symbols)
        tiled = expr.symbols() & scope.tiled.keys()
        if tiled:
            names = ", ".join(sorted(axis.name for axis in tiled))
            self.fail(f"{expr} depends on the tile axis {names}; it takes one value per step")

    def read(self, tile: Tile, scope: Scope) -> Tile:
        if scope.tiles.get(tile.id) != tile:
            state = "defined elsewhere" if tile.id in self.defined else "not defined before"
            self.fail(f"{tile} is {state}; use it in the scope and with the type of its definition")
        return tile

    def define(self, out: Tile, axes: Iterable[Symbol], scope: Scope) -> None:
        if out.id in self.defined:
            self.fail(f"{out} is defined twice; give the second one a fresh id")
        expected = frozenset(axes)
        if len(set(out.axes)) != len(out.axes) or frozenset(out.axes) != expected:
            self.fail(
                f"{out} has axes [{names_of(out.axes)}]; its operands give [{names_of(expected)}]"
            )
        self.one_vector(str(out), out.axes)
        self.fragment(out)
        self.defined.add(out.id)
        scope.tiles[out.id] = out

    def same_dtype(self, what: str, actual: dtypes.DType, expected: dtypes.DType) -> None:
        if actual is not expected:
            self.fail(f"{what} is {actual}, expected {expected}; cast it first")

    def buffer(self, name: str, *, written: bool) -> Buffer:
        buffer = self.buffers.get(name)
        if buffer is None:
            self.fail(f"there is no buffer {name}; the kernel has {', '.join(self.buffers)}")
        if buffer.space in WORKING:
            return buffer
        if written and buffer.role is Role.IN:
            self.fail(f"{name} is an input; give it the role out or inout to store to it")
        if not written and buffer.role is Role.OUT and name not in self.stored:
            self.fail(f"{name} is an output that nothing was stored to; give it the role inout")
        return buffer

    def neighbours(self, tile: Tile) -> Set[Symbol]:
        """The axes along which a tile holds neighbours side by side."""
        return self.near.keys() & set(tile.axes)

    def apart(self, tiles: Iterable[Tile]) -> None:
        """No tile of neighbours may be computed with, but by a dot, or its bits alike."""
        for tile in tiles:
            near = self.neighbours(tile)
            if near:
                self.fail(
                    f"{tile} holds neighbours along {names_of(near)}; only a dot takes those, "
                    "and operations on the bits of unsigned ones by what they share"
                )

    def fragment(self, tile: Tile) -> str | None:
        """The block of a dot that lanes hold between them, if a tile is one."""
        parts = [self.parts[axis] for axis in tile.axes if axis in self.parts]
        block = block_of(parts)
        if parts and block is None:
            self.fail(f"{tile} has {', '.join(map(str, parts))}, which are no block of one dot")
        return block

    def no_factor(self, tile: Tile) -> None:
        """A factor that lanes hold between them is loaded and contracted, nothing else."""
        if self.fragment(tile) in ("a", "b"):
            self.fail(f"{tile} is the factor of a matrix; only a dot takes it")

    def one_vector(self, what: str, axes: Iterable[Symbol]) -> None:
        vectors = [axis for axis in axes if self.tile_sizes[axis][1] > 1]
        if len(vectors) > 1:
            self.fail(f"{what} has vector axes {names_of(vectors)}; a value has at most one")

    def only(self, axes: Iterable[Symbol], allowed: Iterable[Symbol], rule: str) -> None:
        extra = set(axes) - set(allowed)
        if extra:
            self.fail(f"the axis {names_of(extra)} does not belong here: {rule}")

    def alone(self) -> None:
        if self.kernel.lanes > 1:
            self.fail("one worker alone runs it; bind no loop of this kernel to lanes")


def names_of(axes: Iterable[Symbol]) -> str:
    return ", ".join(sorted(axis.name for axis in axes))
