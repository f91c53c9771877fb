"""A group: the stored values that one kernel computes, and where everything it touches lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from luminal.algebra.frames import linear, shape_of
from luminal.algebra.terms import Axes, Frame, Term, term_order
from luminal.dtypes import DType
from luminal.program.buffers import ROW_MAJOR, Layout
from luminal.shape.expression import Expression, Symbol, const


@dataclass(frozen=True, slots=True)
class Place:
    """A value in memory: the axes of each dimension of its tensor, and the tensor's layout.

    `operand` says which buffer; kernels only compare it.
    """

    operand: Any
    dtype: DType
    frame: Frame
    layout: Layout = ROW_MAJOR

    @property
    def shape(self) -> tuple[Expression, ...]:
        return shape_of(self.frame)

    @property
    def size(self) -> Expression:
        return self.layout.size(self.shape)

    def offset(self, env: Mapping[Symbol, Expression]) -> Expression:
        """Where the element at the axes' values in `env` lies; axes not in it are at 0."""
        at = {a: env.get(a, const(0)) for dimension in self.frame for a in dimension}
        index = tuple(linear(dimension).substitute(at) for dimension in self.frame)
        return self.layout.offset(index, self.shape)


@dataclass(frozen=True, slots=True)
class Store:
    """`place[index] = term` for every point of `frame`.

    `index` None: the frame's own positions. Else, per dimension of the place, an Expression in the
    frame's axes or an integer term (Scatter); positions outside the place are dropped. `ordered`
    stores run in row-major order of the frame; `add` adds to what is there.
    """

    term: Term
    place: Place
    frame: Frame
    index: tuple[Expression | Term, ...] | None = None
    ordered: bool = False
    add: bool = False

    @property
    def dtype(self) -> DType:
        return self.place.dtype

    @property
    def axes(self) -> Axes:
        """Outermost first."""
        return tuple(axis for dimension in self.frame for axis in dimension)

    def offset(self, env: Mapping[Symbol, Expression]) -> Expression:
        """Where the value at the axes' positions in `env` goes, if `index` is None."""
        index = [linear(dimension).substitute(env) for dimension in self.frame]
        return self.place.layout.offset(index, self.place.shape)

    @property
    def roots(self) -> tuple[Term, ...]:
        """All the terms evaluated for one element."""
        return (self.term, *(i for i in self.index or () if isinstance(i, Term)))


@dataclass(frozen=True)
class Group:
    """One kernel to be: its stores, the terms it reads from memory, those it keeps local (the rest
    is inlined), and conditions known to hold.
    """

    stores: tuple[Store, ...]
    reads: Mapping[Term, Place]
    local: frozenset[Term]
    facts: tuple[Expression, ...] = ()

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every term computed or read, operands first."""
        roots = (root for store in self.stores for root in store.roots)
        return tuple(term_order(roots, self.reads.__contains__))

    @cached_property
    def reductions(self) -> tuple[Term, ...]:
        """The reductions computed, operands first."""
        return tuple(t for t in self.terms if t.is_reduction and t not in self.reads)
