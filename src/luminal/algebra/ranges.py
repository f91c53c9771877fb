"""What integer terms can be, where they are positions that a sort gives: then what a gather would
check of them is known, and negative ones need not be counted from the end.

The range of a term is an Expression in positions of sorted rows, each a symbol bounded by the row's
extent; a term is somewhere in that range, but equal ranges are not equal terms. So they are only
compared with literals and dims.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.algebra.frames import extent_of
from luminal.algebra.index_form import combined, exact, is_held_by
from luminal.algebra.terms import Literal, Term
from luminal.base.dtypes import DType
from luminal.shape.expression import Expression, Symbol, axis
from luminal.shape.prove import prove


# Positions that a sort gives need no check and no wrapping. With checks an expert's product took
# 1.5 times as long, since LLVM moves a loop's invariant comparisons back into it when registers are
# scarce. Equal ranges are no equal values, so ranges are compared with literals and dims only.
class Ranges:
    """The ranges of one program's terms."""

    def __init__(self) -> None:
        self.known: dict[Term, Expression] = {}

    def note(self, term: Term) -> None:
        """Remembers the range of a term that computes integers; operands come before their
        users.
        """
        if term.dtype.is_int:
            range_ = self._range(term)
            if range_ is not None:
                self.known.setdefault(term, range_)

    def decided(self, op: str, args: Sequence[Term]) -> bool | None:
        """What a comparison gives everywhere, if that is known."""
        if op not in ("LessThan", "Equal"):
            return None
        compared = self._combined(op, args, args[0].dtype)
        return None if compared is None else prove(compared)

    def _range(self, term: Term) -> Expression | None:
        if term.op == "Sort" and term.attrs.index == 1:
            # A symbol for each sort: what two of them give is not compared as if it were one.
            row = term.attrs.result[term.attrs.hlir.axis]
            return axis(f"sorted{len(self.known)}", extent_of(row))
        if term.op == "Scatter" and term.attrs.hlir.mode == "set":
            return self._union(*term.args[:2])
        range_ = self._combined(term.op, term.args, term.dtype) if term.is_pointwise else None
        return range_ if range_ is not None and is_held_by(range_, term.dtype) else None

    def _of(self, term: Term) -> Expression | None:
        """The range of a term, read anywhere, or 0 where it is not read."""
        while term not in self.known and term.op in ("At", "Select"):
            if term.op == "Select" and not _is_zero(term.args[2]):
                return None
            masked = term.op == "Select"
            term = term.args[1 if masked else 0]
            # Where the mask does not hold the value is 0, so the range must have that.
            if masked and not self._holds_zero(term):
                return None
        return self.known.get(term)

    def _holds_zero(self, term: Term) -> bool:
        range_ = self._of(term)
        return range_ is not None and range_.interval.lo == 0

    def _combined(self, op: str, args: Sequence[Term], dtype: DType) -> Expression | None:
        """The range of `op` where one operand has a range and all others are the same
        everywhere.
        """
        ranges = [self._of(arg) for arg in args]
        # Two terms of one range differ: x - y is not 0, as the difference of their ranges would be.
        if sum(range_ is not None for range_ in ranges) != 1:
            return None
        values: list[Expression] = []
        for arg, range_ in zip(args, ranges, strict=True):
            value = exact(arg) if range_ is None else range_
            if value is None or (range_ is None and arg.axes):
                return None
            values.append(value)
        return combined(op, args[0].dtype, values, dtype)

    def _union(self, dest: Term, source: Term) -> Expression | None:
        kept, other = self._of(dest), self._of(source)
        other = exact(source) if other is None else other
        if other is None or not isinstance(kept, Symbol) or kept.extent is None:
            return None
        inside = prove(other >= 0) and prove(other < kept.extent)
        return kept if inside else None


def _is_zero(term: Term) -> bool:
    return isinstance(term, Literal) and term.is_zero
