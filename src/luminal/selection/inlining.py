"""What it costs to compute a value where it is read, and where a stretch of such values ends."""

from __future__ import annotations

from collections.abc import Sequence, Set

from luminal.algebra.frames import upper
from luminal.algebra.scatter import read_back
from luminal.algebra.terms import Term, axis_order
from luminal.base.costs import Weights
from luminal.selection.limits import KERNEL_TERMS
from luminal.selection.stored import below_widening
from luminal.shape.expression import Symbol

LONG_KEY = 32  # terms of what is smaller than a stretch that it begins


# Costs are counted by paths, not by nodes: what is read at two places is computed twice once it is
# inlined, and a chain of such values doubles with every link. The count stops at a bound, or it
# would be exponential itself.
class Inlining:
    """`of`: by term (weight of the operations, distinct loads) of a point, if all below but what is
    `stored`, leaves and reductions is inlined.
    """

    def __init__(self, order: Sequence[Term], stored: Set[Term], weights: Weights) -> None:
        self._stored, self._weights = stored, weights
        self.of: dict[Term, tuple[int, frozenset[Term]]] = {}
        for term in order:
            self.of[term] = self._cost(term)

    def is_cheap(self, term: Term, expansion: int | None = None) -> bool:
        """Does recomputing the term cost less than one load more than loading the result does? Of
        what is so many times smaller, if that is given, no load counts: as of a row's statistics.
        """
        (weight, loads), load = self.of[term], self._weights.load
        if expansion is not None:
            points = upper(term.axes)
            loads = frozenset(t for t in loads if expansion * upper(t.axes) > points)
        return weight + load * max(0, len(loads) - 1) < load

    # Storing such a term costs its size twice over memory; storing what it is made of costs little,
    # and each reader then computes its own elements from it.
    def instead(self, term: Term, expansion: int) -> set[Term]:
        """What to store instead of a term that is so many times as large as its dear operands: a
        product of a gradient with a window's weights, of which each kernel then computes its own;
        and instead of one that is widened, what it is cast from.
        """
        narrow = below_widening(term)
        if narrow is not term:
            return {narrow}
        dear = set[Term]()
        for arg in map(unmoved, term.args):
            if arg.is_pointwise and arg.op not in ("Literal", "Index") and not self.is_cheap(arg):
                dear.add(arg)
        points = upper(term.axes)
        small = all(expansion * upper(arg.axes) <= points for arg in dear)
        return dear if small and self._weights.of(term.op) < self._weights.load else set()

    def _cost(self, term: Term) -> tuple[int, frozenset[Term]]:
        if term.op == "Literal" or term.op == "Index":
            return 0, frozenset()
        if term.is_leaf or term.is_reduction or term.is_opaque or term in self._stored:
            return 0, frozenset((term,))
        if term.op == "At" and not self.is_cheap(term.args[0]) and not is_injective(term):
            return 0, frozenset((term.args[0],))  # read several times, so it will be stored
        if _reads_rows(term):
            return 0, self.of[term.args[1]][1]
        if term.op == "At" and len(term.args) > 1 and _is_row(term, set()):
            return 0, frozenset((unmoved(term),))  # where it lies is looked up once for a row
        load = self._weights.load
        weight = 0 if term.op == "At" else self._weights.of(term.op)
        loads: frozenset[Term] = frozenset()
        for arg in set(term.args):
            below, read = self.of[arg]
            weight, loads = weight + below, loads | read
            if weight > 4 * load or len(loads) > load:  # dear whatever else comes
                return 4 * load, frozenset((term,))
        return weight, loads


# The numbers of a dropout are a hundred operations of each element, after as many of a key: cut
# where the count is full, values of all elements were stored half-way, several times.
def cuts(order: Sequence[Term], forced: Set[Term]) -> set[Term]:
    """The terms at which long stretches without a reduction are stored: at their ends, not all
    over; for a term larger than its operands, those; and before that where much was computed of
    something smaller.
    """
    keys: set[Term] = set()
    while True:
        stored, more = _cuts(order, forced | keys)
        if more <= keys:
            return stored | keys
        keys |= more


def _cuts(order: Sequence[Term], forced: Set[Term]) -> tuple[set[Term], set[Term]]:
    """The ends of long stretches, and long beginnings of these that are smaller."""
    stored, keys = set[Term](), set[Term]()
    below: dict[Term, frozenset[Term]] = {}
    for term in order:
        ends = term.is_leaf or term.is_reduction or term.is_opaque or term in forced
        inner = () if ends else (below[arg] for arg in term.args)
        below[term] = frozenset((term,)).union(*inner)
        if len(below[term]) > KERNEL_TERMS // 2 and term.is_pointwise:
            cut = [term]
            if all(upper(arg.axes) < upper(term.axes) for arg in term.args):
                operands = [unmoved(arg) for arg in term.args]
                long = [x for x in operands if x.is_pointwise and len(below[x]) > 1]
                cut = long or cut
            else:
                pairs = ((x, user) for user in below[term] for x in map(unmoved, user.args))
                smaller = {x for x, user in pairs if upper(x.axes) < upper(user.axes)}
                keys |= {x for x in smaller if x.is_pointwise and len(below[x]) > LONG_KEY}
            cut = [*map(below_widening, cut)]
            stored.update(cut)
            below |= {end: frozenset((end,)) for end in cut}
            below[term] = frozenset((term,))
    return stored, keys


def unmoved(term: Term) -> Term:
    """What a term reads at other positions, or itself."""
    while term.op == "At":
        term = term.args[0]
    return term


def _reads_rows(term: Term) -> bool:
    """Is the term read from memory, whole rows at a time, where integers say, or 0 for some of the
    rows? Then what decides on that is computed once for a row.
    """
    # An embedding's rows: padding decides a whole row at once, so the test belongs to the row's
    # loop and loads below it stay whole vectors.
    conditions: set[Symbol] = set()
    while term.op == "Select" and term.args[2].op == "Literal":
        conditions |= term.args[0].axes
        term = term.args[1]
    return bool(conditions) and term.op == "At" and _is_row(term, conditions)


def _is_row(term: Term, conditions: Set[Symbol]) -> bool:
    """Is it read from memory at positions that change along no row of what it reads, as the
    conditions do not?
    """
    source = unmoved(term)
    if not (source.is_leaf or source.is_opaque):
        return False
    frame = source.attrs.frame if source.is_leaf else source.attrs.result
    within = set(frame[-1]) if frame else set()
    return within.isdisjoint({*conditions, *(a for a, _ in term.attrs)})


def is_injective(at: Term) -> bool:
    """Does the At read each element of its operand at most once, so that every index tells its own
    axes?
    """
    seen: set[Symbol] = set()
    for _, position in at.attrs:
        if isinstance(position, int):
            return False
        axes = axis_order(s for s in position.symbols() if s.extent is not None)
        if not seen.isdisjoint(axes) or read_back(position, (), axes) != set(axes):
            return False
        seen.update(axes)
    return at.axes <= at.args[0].axes | seen
