"""Kinds of reductions that rules tell apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from luminal.algebra.frames import upper
from luminal.algebra.terms import Phase, Term
from luminal.kernel.source import chooses_bits, source_of


def is_contraction(reduction: Term) -> bool:
    """Is it a sum of products of values with different axes?"""
    (x,) = reduction.args
    return reduction.op == "Sum" and x.op == "Mul" and len({factor.axes for factor in x.args}) > 1


def is_product(reduction: Term) -> bool:
    """Is it a contraction with results along axes of either factor alone: rows and columns?"""
    if not is_contraction(reduction):
        return False
    a, b = (factor.axes & reduction.axes for factor in reduction.args[0].args)
    return bool(a - b) and bool(b - a)


def sums_of_dots(order: Iterable[Term]) -> Mapping[Term, frozenset[Term]]:
    """Sums of floats each of whose steps adds a contraction of integers of its own, scaled (blocks
    of quantised values), and these: they are no more than steps of that sum.
    """
    order = [*order]
    users: defaultdict[Term, list[Term]] = defaultdict(list)
    found: dict[Term, frozenset[Term]] = {}
    dots: dict[Term, frozenset[Term]] = {}  # that a value is computed of, element by element
    none = frozenset[Term]()
    for term in order:
        for arg in term.args:
            users[arg].append(term)
    for term in order:
        if term.is_pointwise:
            dots[term] = none.union(*(dots.get(arg, none) for arg in term.args))
        elif term.is_reduction and not term.dtype.is_float:
            dots[term] = frozenset((term,) if is_contraction(term) else ())
        elif term.op == "Sum":
            steps = term.axes.union(term.attrs)
            near = (d for d in dots.get(term.args[0], none) if d.axes == steps)
            own = frozenset(d for d in near if _is_within(d, term, users))
            if own:
                found[term] = own
    return found


def _is_within(term: Term, total: Term, users: Mapping[Term, Sequence[Term]]) -> bool:
    """Does all that reads a value end in one sum?"""
    stack, seen = [term], {term, total}
    while stack:
        readers = users.get(stack.pop(), ())
        if not readers:
            return False
        new = [each for each in readers if each not in seen]
        if not all(each.is_pointwise for each in new):
            return False
        seen.update(new)
        stack += new
    return True


def step_operands(total: Term, dots: Set[Term]) -> Iterator[Term]:
    """What the steps of such a sum read, stored before: bytes, which dots take from memory, what
    is made of weights, which the prologue can lay out, and what is the same for rows or columns.

    Below Casts to wider numbers: memory holds the narrow ones. And below what chooses bits of fewer
    bytes: codes of four bits stay two in a byte.
    """
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
            while arg.op in ("Cast", "At") and arg.args[0].dtype.is_int is arg.dtype.is_int:
                arg = arg.args[0]
            arg = _below_bits(arg)
            if arg.is_pointwise and arg.phase is not Phase.LITERAL:
                yield arg


def _below_bits(term: Term) -> Term:
    """The bytes that it chooses bits of, if they are fewer."""
    found = term
    while chooses_bits(found):
        found = found.args[0]
        while found.op == "At" and source_of(found, lambda t: t.op != "At") is not None:
            found = found.args[0]
    return found if upper(found.axes) < upper(term.axes) else term
