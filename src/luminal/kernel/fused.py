"""What is fused: the stored values of one kernel, and where everything that it touches lies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

from luminal.algebra.frames import linear, shape_of
from luminal.algebra.terms import (
    At,
    Axes,
    Frame,
    Index,
    OpaqueAttrs,
    Reduction,
    Term,
    axis_order,
    term_order,
)
from luminal.base.dots import Dot
from luminal.base.dtypes import DType
from luminal.base.forks import cached_property
from luminal.base.records import dataclass
from luminal.hlir.attributes import Slot
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.shape.expression import Expression, Symbol, axis, const


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
        """The element at the axes' values in `env`; axes that are not in it are at 0."""
        at = {a: env.get(a, const(0)) for dimension in self.frame for a in dimension}
        index = tuple(linear(dimension).substitute(at) for dimension in self.frame)
        return self.layout.offset(index, self.shape)


@dataclass(frozen=True, slots=True)
class Store:
    """`place[index] = term` for every point of `frame`.

    `index` None: the frame's own positions. Else, per dimension of the place, an Expression in the
    frame's axes or an integer term (Scatter); positions outside the place are dropped. Points that
    meet at one element differ along `ordered` axes only and are stored in row-major order of these.
    `add` adds to what is there.
    """

    term: Term
    place: Place
    frame: Frame
    index: tuple[Expression | Term, ...] | None = None
    ordered: Axes = ()
    add: bool = False

    @property
    def dtype(self) -> DType:
        return self.place.dtype

    @property
    def axes(self) -> Axes:
        """The axes of the frame, outermost first."""
        return tuple(axis for dimension in self.frame for axis in dimension)

    def offset(self, env: Mapping[Symbol, Expression]) -> Expression:
        """The element that takes the value at the axes' positions in `env`, if `index` is None."""
        index = [linear(dimension).substitute(env) for dimension in self.frame]
        return self.place.layout.offset(index, self.place.shape)

    @property
    def roots(self) -> tuple[Term, ...]:
        """All the terms evaluated for one element."""
        return (self.term, *(i for i in self.index or () if isinstance(i, Term)))


class Form(NamedTuple):
    """What a fused kernel depends on, but for names: those of one `key` make one kernel.

    `operands` are those of the fused kernel's places, in the order in which the key numbers them.
    """

    key: Hashable
    operands: tuple[Any, ...]


@dataclass(frozen=True)
class Fused:
    """One kernel to be: its stores, the terms it reads from memory, those it keeps local (the rest
    is inlined), conditions known to hold, and the dots that compute contractions.
    """

    stores: tuple[Store, ...]
    reads: Mapping[Term, Place]
    local: frozenset[Term]
    facts: tuple[Expression, ...] = ()
    dots: Mapping[Term, Dot] = field(default_factory=dict)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every term computed or read, operands first."""
        roots = (root for store in self.stores for root in store.roots)
        return tuple(term_order(roots, self.reads.__contains__))

    @cached_property
    def reductions(self) -> tuple[Reduction, ...]:
        """The reductions computed, operands first."""
        return tuple(t for t in self.terms if isinstance(t, Reduction) and t not in self.reads)

    @property
    def of_words(self) -> Fused:
        """The kernel without the dots by which lanes multiply matrices together."""
        dots = {term: dot for term, dot in self.dots.items() if not dot.is_matrix}
        return self if len(dots) == len(self.dots) else replace(self, dots=dots)

    def products_of(self, factor: Term) -> list[Reduction]:
        """The reductions that multiply a factor, as one of the two of their product."""
        return [r for r in self.reductions if factor in r.args[0].args]

    def is_nested(self, reduction: Term) -> bool:
        """Is it computed anew in every step of another one's loops?"""
        return not self._bound.isdisjoint(reduction.axes)

    @cached_property
    def _bound(self) -> frozenset[Symbol]:
        return frozenset(a for reduction in self.reductions for a in reduction.attrs)

    @cached_property
    def form(self) -> Form:
        """See `Form`. Axes and terms are named by their ranks: orders of loops follow these."""
        return _Namer(self).form()


# A network has thousands of steps and hundreds of forms, so placing and compiling are done once for
# each form. Ranks of axes and terms are part of the key because loops follow their order: what is
# placed must depend on the key alone, never on which of the equal kernels came first.
class _Namer:
    """Gives the axes, terms and operands of a kernel the names that all alike have in common."""

    def __init__(self, fused: Fused) -> None:
        self.fused = fused
        frames = [store.frame for store in fused.stores]
        frames += [place.frame for place in self.places()]
        used = set[Symbol]()
        for term in fused.terms:
            used |= term.axes
            if term.is_reduction:
                used.update(term.attrs)
            elif isinstance(term.attrs, OpaqueAttrs):
                frames += [*term.attrs.frames, term.attrs.result]
        used |= {a for frame in frames for dimension in frame for a in dimension}
        self.ranks = {a: rank for rank, a in enumerate(axis_order(used))}
        self.axes = {a: axis(f"a{rank}", _extent(a)) for a, rank in self.ranks.items()}
        self.numbers = {term: number for number, term in enumerate(fused.terms)}
        self.operands: dict[Any, int] = {}
        self.sites: dict[int, int] = {}

    def places(self) -> list[Place]:
        """The places, in the order in which operands are numbered."""
        reads = self.fused.reads
        read = [reads[term] for term in self.fused.terms if term in reads]
        return [*read, *(store.place for store in self.fused.stores)]

    def form(self) -> Form:
        fused = self.fused
        # Ids order what is placed wherever terms are sorted by them. Their ranks do the same and
        # are alike in kernels of other ids.
        age = {term: rank for rank, term in enumerate(sorted(fused.terms, key=lambda t: t.id))}
        local, dots = fused.local, fused.dots
        terms = tuple((age[t], t in local, dots.get(t), self.term(t)) for t in fused.terms)
        stores = tuple(map(self.store, fused.stores))
        key = tuple(self.axes.values()), terms, stores, fused.facts
        return Form(key, tuple(self.operands))

    def term(self, term: Term) -> Hashable:
        # What is read is a place and no more: how another
        # kernel computes it does not tell them apart.
        if term in self.fused.reads:
            return self.place(self.fused.reads[term]), term.dtype
        args = tuple(self.numbers[arg] for arg in term.args)
        return term.op, term.dtype, args, self.attrs(term)

    def attrs(self, term: Term) -> Any:
        """The attributes of a term as a value that can be hashed."""
        attrs = term.attrs
        if isinstance(term, Index):
            return self.expression(attrs)
        if isinstance(term, At):
            return tuple((self.ranks[a], self.index(position)) for a, position in attrs)
        if term.is_reduction:
            return self.dimension(attrs)
        if isinstance(attrs, OpaqueAttrs):
            site = self.sites.setdefault(attrs.site, len(self.sites))
            frames = tuple(map(self.frame, attrs.frames))
            return attrs.hlir, frames, self.frame(attrs.result), attrs.index, site
        return attrs

    def store(self, store: Store) -> Hashable:
        index = None
        if store.index is not None:
            index = tuple(
                Slot(self.numbers[entry]) if isinstance(entry, Term) else self.expression(entry)
                for entry in store.index
            )
        frame = self.frame(store.frame)
        place = self.place(store.place)
        ordered = self.dimension(store.ordered)
        return self.numbers[store.term], place, frame, index, ordered, store.add

    def place(self, place: Place) -> Hashable:
        # Numbered as they are met, so that equal kernels of other buffers have one key.
        operand = self.operands.setdefault(place.operand, len(self.operands))
        return operand, place.dtype, self.frame(place.frame), place.layout

    def frame(self, frame: Frame) -> Hashable:
        return tuple(map(self.dimension, frame))

    def dimension(self, axes: Axes) -> tuple[int, ...]:
        return tuple(self.ranks[a] for a in axes)

    def index(self, position: Expression | int) -> Hashable:
        if isinstance(position, Expression):
            return self.expression(position)
        # A pair, never a bare number: the Expression 0 equals the int 0, and means something else.
        return int(position), isinstance(position, Slot) and position.inside

    def expression(self, expression: Expression) -> Expression:
        return expression.substitute(self.axes)


def _extent(axis: Symbol) -> Expression:
    assert axis.extent is not None
    return axis.extent
