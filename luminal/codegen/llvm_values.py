"""The state of rendering one kernel: tile values as grids of IR values, tile shapes, pointers.

A value with tile axes is one IR value per combination of unroll positions of its axes; each is a
vector where one of the axes is bound to lanes, else a scalar.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from luminal.codegen import llvm_cast
from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_index import Indexer
from luminal.dtypes import DType
from luminal.kernel.tile_ir import Buffer, Tile
from luminal.shape.expression import Expression, Symbol, const, sum_of_terms

ZERO_BYTES = 1024  # 64 lanes of 16 bytes
Position = dict[Symbol, int]
Key = tuple[int, ...]
Elements = dict[Key, IRValue]


def zeros(b: FunctionBuilder) -> IRValue:
    """The address of as many zeros as the widest load reads."""
    return b.module.add_global("zeros", f"[{ZERO_BYTES} x i8]", "zeroinitializer")


def memory_type(dtype: DType, lanes: int = 1) -> IRType:
    """How values lie in memory; 16-bit floats as integers, which every target can move."""
    return IRType("i16", lanes) if dtype.is_storage else llvm_cast.memory_type(dtype, lanes)


def held_type(dtype: DType, lanes: int = 1) -> IRType:
    """How tile values are held in registers; 16-bit floats as in memory."""
    return memory_type(dtype, lanes) if dtype.is_storage else llvm_cast.register_type(dtype, lanes)


class Digits(NamedTuple):
    """A vector axis as `first + lane`, with first a multiple of the lanes, so that `//` and `%`
    by multiples of the lanes simplify."""

    first: Expression
    lane: Symbol


@lru_cache(4096)
def is_divided(expr: Expression, axis: Symbol) -> bool:
    """Does the axis occur under `//` or `%`?"""
    if axis not in expr.symbols():
        return False
    return expr.op in ("floordiv", "mod") or any(is_divided(arg, axis) for arg in expr.args)


@dataclass(slots=True)
class Context:
    """What the code written so far has bound."""

    b: FunctionBuilder
    index: Indexer
    buffers: dict[str, Buffer]
    pointers: dict[str, IRValue]
    shapes: dict[Symbol, tuple[int, int]]  # unroll and vector
    values: dict[int, Elements] = field(default_factory=dict)
    active: list[Symbol] = field(default_factory=list)  # tiled axes of the enclosing loops
    live: dict[Symbol, IRValue] = field(default_factory=dict)  # lane masks of masked tails
    digits: dict[Symbol, Digits] = field(default_factory=dict)  # of vector axes that are divided
    ends: set[Symbol] = field(default_factory=set)  # of runs

    def positions(self, axes: Iterable[Symbol]) -> Iterator[tuple[Key, Position]]:
        """Every combination of unroll positions, in row-major order."""
        axes = tuple(axes)
        for key in itertools.product(*(range(self.shapes[axis][0]) for axis in axes)):
            yield key, dict(zip(axes, key, strict=True))

    def vector_axis(self, axes: Iterable[Symbol]) -> Symbol | None:
        """The axis bound to lanes, if there is one."""
        return next((axis for axis in axes if self.shapes[axis][1] > 1), None)

    def lanes(self, axes: Iterable[Symbol]) -> int:
        """How many lanes a value with these axes has."""
        axis = self.vector_axis(axes)
        return 1 if axis is None else self.shapes[axis][1]

    def element(self, tile: Tile, position: Position, lanes: int = 1) -> IRValue:
        """The tile's value at a position of its axes, or more axes, in as many lanes as asked."""
        value = self.values[tile.id][tuple(position[axis] for axis in tile.axes)]
        return self.index.spread(value, lanes) if lanes > 1 else value

    def moved(self, expr: Expression, position: Position) -> Expression:
        """The Expression at an unroll position: each axis's symbol stands for its first lane."""
        steps = {
            axis: axis + unroll * self.shapes[axis][1]
            for axis, unroll in position.items()
            if unroll
        }
        return expr.substitute(steps) if steps else expr

    def by_lane(
        self, exprs: tuple[Expression, ...], vector: Symbol, position: Position
    ) -> tuple[tuple[Expression, ...], Symbol]:
        """The Expressions at an unroll position, and the symbol that steps from lane to lane."""
        lane = vector
        digits = self.digits.get(vector)
        if digits is not None and any(is_divided(expr, vector) for expr in exprs):
            position, lane = dict(position), digits.lane
            there = digits.first + position.pop(vector) * self.shapes[vector][1] + lane
            exprs = tuple(expr.substitute({vector: there}) for expr in exprs)
        return tuple(self.moved(expr, position) for expr in exprs), lane

    @contextmanager
    def branch(self, condition: IRValue) -> Iterator[None]:
        """What is emitted inside runs where the scalar condition holds."""
        then, after = self.b.label("then"), self.b.label("after")
        self.b.cond_br(condition, then, after)
        self.b.block(then)
        self.index.push()
        yield
        self.index.pop()
        self.b.block(after)

    def pointer(self, name: str, offset: Expression) -> IRValue:
        """The address of `buffer[offset]`, built from the outermost terms inwards.

        The constant comes last, where an addressing mode takes it for nothing.
        """
        key = (name, offset)
        found = self.index.find(key)
        if found is not None:
            return found
        if offset.is_const and not offset.constant:
            return self.pointers[name]
        if offset.constant:
            outer, inner = sum_of_terms(offset.terms, 0), const(offset.constant)
        else:
            outer, inner = self.index.split(offset)
        base = self.pointer(name, outer)
        element = memory_type(self.buffers[name].dtype)
        return self.index.keep(key, self.b.gep(base, self.index.scalar(inner), element))
