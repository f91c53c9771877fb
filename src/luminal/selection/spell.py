"""Spellings that `fast` prefers: quotients leave sums that then run in one pass.

`Sum(K, (a / l) * v) -> Sum(K, a * v) / l` where l is free of K. In real arithmetic it is the same
value: class *rounding*. It pays where the new sum cascades (see `kernel.cascade`): then neither `a`
nor the quotient is ever stored.
"""

from __future__ import annotations

from luminal.algebra.frames import is_never_empty
from luminal.algebra.reductions import may_leave
from luminal.algebra.terms import Reduction, Term, Terms, below
from luminal.base.costs import Costs
from luminal.selection import cascades
from luminal.selection.limits import KERNEL_TERMS
from luminal.selection.rewrite import Respelled
from luminal.selection.split_cascades import in_chunks
from luminal.selection.stored import stored_anyway


def spell(program: Respelled, costs: Costs) -> Respelled:
    """The program with quotients pulled out of sums that then cascade."""
    wanted = {term for term in program.order() if _quotient(term) is not None}
    if not wanted:
        return program
    # The quotient of a softmax would otherwise be stored or computed for every product: outside of
    # the sum it is one division a result, and the sum can run in the same pass as its statistics.
    # Whether it pays is known of the new spelling only: spell all, keep those whose sum cascades.
    spelled, new = _pulled_out(program, wanted)
    after = spelled.order()
    # A new pass begins with a reduction that these sums or what divides them use, or with one of
    # these: others need not be looked at again.
    sums, divisors = ([new[term].args[k] for term in wanted] for k in (0, 1))
    near = below([*(r.args[0] for r in sums), *divisors], lambda t: t.is_reduction)
    forced = stored_anyway(spelled.lowered.roots, after)
    passes = cascades.find(after, forced, costs, near.keys() | {*sums})
    in_pass = {t for found_pass in passes for t in found_pass.cascade.results}
    in_pass |= in_chunks(spelled, costs)[1]
    useful = {term for term in wanted if new[term].args[0] in in_pass}
    return spelled if useful == wanted else _pulled_out(program, useful)[0]


def _quotient(term: Term) -> tuple[int, ...] | None:
    """The operand numbers that lead to a quotient in a sum of products which can be pulled out;
    None if there is none.
    """
    product = term.product if isinstance(term, Reduction) else None
    if product is None or not all(map(is_never_empty, term.attrs)):
        return None  # an empty sum is 0, its quotient may be NaN
    seen: set[Term] = set()
    stack: list[tuple[Term, tuple[int, ...]]] = [(product, ())]
    while stack:
        factor, path = stack.pop()
        if factor.op == "Div" and may_leave(factor.args[1].axes, term.attrs):
            return path
        if factor.op == "Mul" and factor not in seen and len(path) < KERNEL_TERMS:
            seen.add(factor)
            stack += reversed([(arg, (*path, k)) for k, arg in enumerate(factor.args)])
    return None


def _pulled_out(program: Respelled, wanted: set[Term]) -> tuple[Respelled, dict[Term, Term]]:
    """The program with the quotients of these sums pulled out, and what became of the sums."""
    terms = program.lowered.terms
    new: dict[Term, Term] = {}

    def replace(old: Term, same: Term) -> Term:
        if old not in wanted:
            return same
        new[old] = _pull_out(terms, same)
        return new[old]

    return program.rewrite(replace), new


# A quotient under a sum that does not depend on its steps may be divided by once, at the end. It is
# pulled out only where a cascade follows from that: else the quotient needs its own kernel anyway.
def _pull_out(terms: Terms, term: Term) -> Term:
    path = _quotient(term)
    assert path is not None
    product, denominator = _without(terms, term.args[0], path)
    total = terms.reduce("Sum", term.attrs, product)
    return terms.pointwise("Div", (total, denominator), term.dtype)


def _without(terms: Terms, factor: Term, path: tuple[int, ...]) -> tuple[Term, Term]:
    """The product with the numerator in place of the quotient, and the denominator."""
    products: list[Term] = []
    for k in path:
        products.append(factor)
        factor = factor.args[k]
    now, denominator = factor.args
    for product, k in zip(reversed(products), reversed(path), strict=True):
        args = (*product.args[:k], now, *product.args[k + 1 :])
        now = terms.pointwise("Mul", args, product.dtype)
    return now, denominator
