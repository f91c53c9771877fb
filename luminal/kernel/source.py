"""What a factor of a product is in memory, below Casts and other names for its axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from luminal.algebra.terms import At, Frame, Literal, Phase, Term
from luminal.dots import ON_BITS
from luminal.records import dataclass
from luminal.shape.expression import Expression, Symbol, opaque


@dataclass(frozen=True, slots=True)
class Source:
    """`term` as a product reads it: its axes go by other `names` there, after so many `casts`.

    `reader` is the lowest of these operations, if there is one. `starts` are axes of the term of
    which it reads a part, and where that begins; `chosen` are those at which integers say where.
    `apart` are axes along which the bits that it reads change from one position to the next.
    """

    term: Term
    names: Mapping[Symbol, Symbol] = field(default_factory=dict)
    casts: int = 0
    reader: Term | None = None
    starts: Mapping[Symbol, int] = field(default_factory=dict)
    chosen: frozenset[Symbol] = frozenset()
    apart: frozenset[Symbol] = frozenset()

    def renamed(self, frame: Frame) -> Frame:
        """Dimensions of the term by the names that the product knows."""
        return tuple(tuple(self.names.get(a, a) for a in dimension) for dimension in frame)


def source_of(
    factor: Term, is_read: Callable[[Term], bool], *, parts: bool = False, bits: bool = False
) -> Source | None:
    """Down to what is read or computed; None where an At does more than rename, or with `parts`
    than to take a part of an axis or what integers choose. With `bits` below a choice of bits too.
    """
    names: dict[Symbol, Symbol] = {}
    reader, casts = None, 0
    starts: dict[Symbol, int] = {}
    chosen: set[Symbol] = set()
    apart: set[Symbol] = set()
    while not is_read(factor):
        if bits and chooses_bits(factor):
            apart |= {names.get(a, a) for a in factor.args[1].axes}
            reader, factor = factor, factor.args[0]
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
        reader, factor = factor, factor.args[0]
    return Source(factor, names, casts, reader, starts, frozenset(chosen), frozenset(apart))


def chooses_bits(term: Term) -> bool:
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
