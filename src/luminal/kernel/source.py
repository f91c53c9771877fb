"""What a factor of a product is in memory, below Casts and other names for its axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial

from luminal.algebra.terms import At, Frame, Literal, Phase, Term
from luminal.base.dots import OF_BITS, ON_BITS
from luminal.base.records import dataclass
from luminal.shape.expression import Expression, Symbol, opaque

SCALING = ("Add", "Cast", "Mul")  # what scales are made of by kernels that read them
DEEPEST = 8  # operations that numbers of memory are made by


@dataclass(frozen=True, slots=True)
class Source:
    """`term` as a product reads it: its axes go by other `names` there, after so many `casts`.

    `edge` is the lowest of these operations, if there is one, and which of its arguments the term
    is. `starts` are axes of the term of which it reads a part, and where that begins; `chosen` are
    those at which integers say where. `apart` are axes along which the bits that it reads change
    from one position to the next, or that not all of them have.
    """

    term: Term
    names: Mapping[Symbol, Symbol] = field(default_factory=dict)
    casts: int = 0
    edge: tuple[Term, int] | None = None
    starts: Mapping[Symbol, int] = field(default_factory=dict)
    chosen: frozenset[Symbol] = frozenset()
    apart: frozenset[Symbol] = frozenset()

    def renamed(self, frame: Frame) -> Frame:
        """Dimensions of the term by the names that the product knows."""
        return tuple(tuple(self.names.get(a, a) for a in dimension) for dimension in frame)

    def inside(self, outer: Source) -> Source:
        """The source as `outer` reads it, whose term is computed of it."""
        names = {a: self.names.get(a, a) for a in self.term.axes}
        starts = {
            a: self.starts.get(a, 0) + outer.starts.get(n, 0)
            for a, n in names.items()
            if a in self.starts or n in outer.starts
        }
        return replace(
            self,
            names={a: outer.names.get(n, n) for a, n in names.items()},
            casts=self.casts + outer.casts,
            starts=starts,
            chosen=self.chosen | {a for a, n in names.items() if n in outer.chosen},
            apart=outer.apart | {outer.names.get(n, n) for n in self.apart},
        )


def source_of(
    factor: Term, is_read: Callable[[Term], bool], *, parts: bool = False, bits: bool = False
) -> Source | None:
    """Down to what is read or computed; None where an At does more than rename, or with `parts`
    than to take a part of an axis or what integers choose. With `bits` below a choice of bits too.
    """
    names: dict[Symbol, Symbol] = {}
    edge, casts = None, 0
    starts: dict[Symbol, int] = {}
    chosen: set[Symbol] = set()
    apart: set[Symbol] = set()
    # A product does not care through how many renamings and casts it reads: what counts is what
    # lies in memory, and in which of its axes.
    while not is_read(factor):
        if bits and is_choice_of_bits(factor):
            apart |= {names.get(a, a) for a in factor.args[1].axes}
            edge, factor = (factor, 0), factor.args[0]
            continue
        if factor.op not in ("Cast", "At"):
            break
        if isinstance(factor, At):
            for axis, index in factor.attrs:
                if isinstance(index, int):
                    chosen.add(axis)
                    names[axis] = opaque(f"chosen_{axis.name}")
                    continue
                name, start = _part(index)
                if name is None or (start and not parts):
                    return None
                names[axis] = names.get(name, name)
                if start or name in starts or name.extent != axis.extent:
                    starts[axis] = start + starts.get(name, 0)
        if chosen and not parts:
            return None
        casts += factor.op == "Cast"
        edge, factor = (factor, 0), factor.args[0]
    return Source(factor, names, casts, edge, starts, frozenset(chosen), frozenset(apart))


def sources_of(
    factor: Term,
    is_read: Callable[[Term], bool],
    *,
    parts: bool = False,
    scales: bool = False,
    most: int = DEEPEST,
) -> tuple[Source, ...]:
    """All that the numbers of a factor are made of in memory, below choices of bits: those of which
    the lower bits lie apart from the upper ones are of two, and with `scales` those that casts,
    sums and products make of several. None of it where one cannot be named.
    """
    source = source_of(factor, is_read, parts=parts, bits=True)
    if source is None:
        return ()
    term = source.term
    is_made = is_joined_bits(term) or (scales and is_scaling(term))
    if is_read(term) or not is_made:
        return (source,)
    args = [(k, arg) for k, arg in enumerate(term.args) if most and arg.phase is not Phase.LITERAL]
    below = partial(sources_of, is_read=is_read, parts=parts, scales=scales, most=most - 1)
    branches = [(k, below(arg)) for k, arg in args]
    if not branches or not all(leaves for _, leaves in branches):
        return ()
    alone = term.args[0].axes ^ term.args[1].axes  # one number's bits are shared along these
    sources = (replace(x, edge=x.edge or (term, k)) for k, leaves in branches for x in leaves)
    return tuple(replace(x, apart=x.apart | alone).inside(source) for x in sources)


def is_scaling(term: Term) -> bool:
    """Is it an operation on floats that kernels make scales by of what they read?"""
    return term.op in SCALING and term.dtype.is_float


def is_joined_bits(term: Term) -> bool:
    """Are unsigned numbers made bit by bit of two others, each of which depends on data?"""
    if term.op not in OF_BITS or term.dtype.is_signed or not term.dtype.is_int:
        return False
    return all(arg.phase is not Phase.LITERAL for arg in term.args)


def is_choice_of_bits(term: Term) -> bool:
    """Is it a byte or word of which bits are moved or masked, by how many does not depend on data?

    Where numbers of few bits lie in one byte, memory holds the byte, and words of neighbours give
    words of numbers (`expand/casts.py`).
    """
    if term.op not in ON_BITS or term.dtype.is_signed or not term.dtype.is_int:
        return False
    x, count = term.args
    while count.op == "Cast":
        (count,) = count.args
    return x.phase is not Phase.LITERAL and count.op in ("Literal", "Index")


def _part(index: Expression) -> tuple[Symbol | None, int]:
    """The axis and the number that an index is the sum of, if it is."""
    for symbol in index.symbols():
        start = index - symbol
        if start.is_const:
            return symbol, start.value
    return None, 0


def unmasked(factor: Term, is_read: Callable[[Term], bool]) -> Term:
    """What a factor is where it is not a literal."""
    while factor.op == "Select" and isinstance(factor.args[2], Literal) and not is_read(factor):
        factor = factor.args[1]
    return factor
