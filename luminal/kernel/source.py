"""What a factor of a product is in memory, below Casts and other names for its axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from luminal.algebra.terms import Frame, Term
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class Source:
    """`term` as a product reads it: its axes go by other `names` there, after so many `casts`.

    `reader` is the lowest of these operations, if there is one.
    """

    term: Term
    names: Mapping[Symbol, Symbol] = field(default_factory=dict)
    casts: int = 0
    reader: Term | None = None

    def renamed(self, frame: Frame) -> Frame:
        """Dimensions of the term by the names that the product knows."""
        return tuple(tuple(self.names.get(a, a) for a in dimension) for dimension in frame)


def source_of(factor: Term, is_read: Callable[[Term], bool]) -> Source | None:
    """Down to what is read or computed; None where an At does more than rename."""
    names: dict[Symbol, Symbol] = {}
    reader, casts = None, 0
    while factor.op in ("Cast", "At") and not is_read(factor):
        if factor.op == "At":
            if not all(isinstance(index, Symbol) for _, index in factor.attrs):
                return None
            names |= {axis: names.get(index, index) for axis, index in factor.attrs}
        casts += factor.op == "Cast"
        reader, factor = factor, factor.args[0]
    return Source(factor, names, casts, reader)
