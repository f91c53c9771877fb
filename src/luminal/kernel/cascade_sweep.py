"""What one sweep of a cascade holds, moves and folds for each block of steps."""

from __future__ import annotations

from luminal.algebra.terms import Reduction, Term, below
from luminal.hlir.monoid import SUM
from luminal.kernel.cascade import Cascade, IsRead, Rate, masked
from luminal.kernel.neutral import neutral_outside
from luminal.shape.expression import Expression, all_of


class Sweep:
    """The members of one sweep, by what they ask for.

    `maxima`: those that others follow at `rates`; `narrow` ones are a number a row, `wide` ones
    have further axes. No member changes where `mask` does not hold.
    """

    def __init__(self, cascade: Cascade, number: int, is_read: IsRead) -> None:
        self.cascade = cascade
        self.number = number
        self.is_read = is_read
        self.members = [m for m in cascade.members if m.sweep == number]
        self.rates: list[Rate] = list(dict.fromkeys(m.rate for m in self.members if m.rate))
        self.maxima: list[Reduction] = list(dict.fromkeys(rate.maximum for rate in self.rates))
        others = [m for m in self.members if m.term not in self.maxima]
        self.wide = [m for m in others if not m.term.axes <= cascade.rows]
        self.narrow = [m for m in others if m.term.axes <= cascade.rows]
        self.mask = self._mask()

    def _mask(self) -> Expression:
        """What no member is changed outside of."""
        # Sums have nothing where the maximum that they follow has nothing: their exponents grow
        # with what is maximised, which is -inf.
        first = [m.term for m in self.members if m.rate is None]
        conditions = [masked(r)[0] if r in self.maxima else neutral_outside(r) for r in first]
        common = [c for c in conditions[0] if all(c in parts for parts in conditions)]
        # A block is visited or not for all positions along the further axes of wide members.
        further = first[0].axes - self.cascade.rows
        return all_of(c for c in common if further.isdisjoint(c.symbols()))

    def unmasked(self, maximum: Reduction) -> Term | None:
        """What is maximised, without the mask, if that is the sweep's."""
        conditions, x = masked(maximum)
        return x if conditions and all_of(conditions) == self.mask else None

    def needed(self) -> list[Reduction]:
        """The contractions of a step."""
        seen = self.seen()
        return [r for r in self.cascade.inner if r in seen]

    def seen(self) -> dict[Term, None]:
        """All that members ask for."""
        return self._below([m.term.args[0] for m in self.members], set())

    def factors(self) -> dict[Term, Term]:
        """The factor of the block that is all a wide member needs of the block, for each that
        follows no maximum.
        """
        by_member: dict[Term, Term] = {}
        block = self.cascade.rows | self.cascade.steps
        for term in (m.term for m in self.wide if m.rate is None):
            (x,) = term.args
            if term.monoid is SUM and x.op == "Mul" and x.dtype.is_float:
                anew = [arg for arg in x.args if self._is_anew(arg)]
                if len(anew) == 1 and anew[0].axes <= block:
                    by_member[term] = anew[0]
        return by_member

    def _is_anew(self, term: Term) -> bool:
        return not self._below([term], set()).keys().isdisjoint(self.cascade.inner)

    def kept(self) -> list[Reduction]:
        """The contractions that members need beside what is maximised and those factors."""
        factors = self.factors()
        held = {*factors.values(), *(r.args[0] for r in self.maxima)}
        rest = [m.term for m in (*self.narrow, *self.wide) if m.term not in factors]
        seen = self._below([r.args[0] for r in rest], held)
        return [r for r in self.cascade.inner if r in seen and r not in held]

    def exponentials(self) -> dict[Term, Reduction]:
        """The exponentials of the sums that follow a maximum, and which."""
        by_exponential: dict[Term, Reduction] = {}
        steps = self.cascade.steps
        for member in self.members:
            for term in self._below(member.term.args, set()) if member.rate else ():
                assert member.rate is not None
                maximum = member.rate.maximum
                mine = term.op == member.rate.base and maximum in self._below([term], set())
                if mine and not term.axes.isdisjoint(steps):
                    by_exponential[term] = maximum
        return by_exponential

    def is_needed_later(self, x: Term) -> bool:
        """Do wide members read what is maximised once there are exponentials?"""
        exponentials = self.exponentials()
        return x in self._below([m.term.args[0] for m in self.wide], {*exponentials})

    def _below(self, roots: list[Term] | tuple[Term, ...], held: set[Term]) -> dict[Term, None]:
        """Down to what is read, held, or a result."""
        results = self.cascade.results

        def is_end(term: Term) -> bool:
            return self.is_read(term) or term in held or term in results

        return below(roots, is_end)
