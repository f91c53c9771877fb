"""Kinds of reductions that rules tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from luminal.algebra.frames import upper
from luminal.algebra.terms import Phase, Term, below
from luminal.kernel.source import DEEPEST, is_choice_of_bits, is_joined_bits, is_scaling
from luminal.selection.users import users_of


def is_contraction(reduction: Term) -> bool:
    """Is the reduction a sum of products of values with different axes?"""
    (x,) = reduction.args
    return reduction.op == "Sum" and x.op == "Mul" and len({factor.axes for factor in x.args}) > 1


def is_product(reduction: Term) -> bool:
    """Is the reduction a contraction with results along axes of either factor alone: rows and
    columns?
    """
    if not is_contraction(reduction):
        return False
    a, b = (factor.axes & reduction.axes for factor in reduction.args[0].args)
    return bool(a - b) and bool(b - a)


def sums_of_dots(order: Iterable[Term]) -> Mapping[Term, frozenset[Term]]:
    """Sums of floats each of whose steps adds a contraction of integers of its own, scaled (blocks
    of quantised values), and these: they are no more than steps of that sum.
    """
    # Blocks of quantised weights: each block's dot is in integers and is scaled once. Stored by
    # itself it would be many times the size of the result, so it is only ever a step of the sum
    # around it.
    order = [*order]
    users = users_of(order)
    sums: dict[Term, frozenset[Term]] = {}
    dots: dict[Term, frozenset[Term]] = {}  # that a value is computed of, element by element
    none = frozenset[Term]()
    for term in order:
        if term.is_pointwise:
            dots[term] = none.union(*(dots.get(arg, none) for arg in term.args))
        elif term.is_reduction and not term.dtype.is_float:
            dots[term] = frozenset((term,) if is_contraction(term) else ())
        elif term.op == "Sum":
            steps = term.axes.union(term.attrs)
            near = (d for d in dots.get(term.args[0], none) if d.axes == steps)
            steps_alone = frozenset(d for d in near if _is_within(d, term, users))
            if steps_alone:
                sums[term] = steps_alone
    return sums


def _is_within(term: Term, total: Term, users: Mapping[Term, Sequence[Term]]) -> bool:
    """Does all that reads a value end in one sum?"""
    stack, seen = [term], {term, total}
    while stack:
        readers = users.get(stack.pop(), ())
        if not readers:
            return False
        new = [reader for reader in readers if reader not in seen]
        if not all(reader.is_pointwise for reader in new):
            return False
        seen.update(new)
        stack += new
    return True


def step_operands(total: Term, dots: Set[Term]) -> tuple[Set[Term], Set[Term]]:
    """Two sets. The first is what the steps of such a sum read, stored before: bytes, which dots
    take from memory, what is made of weights, which the prologue can lay out, and what is the same
    for rows or columns. The second is what the steps make of it.


    From what is made of weights, the least that it is made of is stored: codes of four bits stay
    two in a byte, and a scale that is a product of two stays these two.
    """
    stored: set[Term] = set()
    computed: set[Term] = set()
    stack = [(dot.args[0], dot.args[0].axes) for dot in dots]
    stack.append((total.args[0], total.args[0].axes))
    while stack:
        term, axes = stack.pop()
        for arg in term.args:
            if arg in dots:
                continue
            if arg.axes == axes and arg.phase is Phase.RUN:
                stack.append((arg, axes))
                continue
            least = _least(arg)
            stored |= least
            if least:
                computed.update(below((arg,), least.__contains__))
    return stored, computed - stored


# What a step reads may be kept at any point between the file's bytes and decoded values. The fewest
# bytes win, as a step is bound by what it reads; shifts and masks that are left are done for whole
# words in registers.
def _least(term: Term, most: int = DEEPEST) -> frozenset[Term]:
    """What to keep of a value in memory: itself, or what casts to wider numbers, choices of bits
    and products of scales make it of, if that is fewer bytes.
    """
    while term.op in ("Cast", "At") and term.args[0].dtype.is_int is term.dtype.is_int:
        term = term.args[0]
    if term.phase is Phase.LITERAL or not (term.is_pointwise or term.is_leaf):
        return frozenset()
    itself = frozenset((term,))
    is_bits = is_choice_of_bits(term) or is_joined_bits(term)
    if not most or not (is_bits or is_scaling(term)):
        return itself
    parts = [_least(arg, most - 1) for arg in term.args if arg.phase is not Phase.LITERAL]
    least = frozenset[Term]().union(*parts)
    if is_bits and any(part.dtype is not term.dtype for part in least):
        return itself  # words are of numbers of one size
    return least if all(parts) and _bytes(least) < _bytes(itself) else itself


def _bytes(terms: Iterable[Term]) -> int:
    return sum(upper(term.axes) * term.dtype.size for term in terms)
