"""Spellings that `fast` prefers: quotients leave sums that then run in one pass.

`Sum(K, (a / l) * v) -> Sum(K, a * v) / l` where l is free of K. In real arithmetic it is the same
value: class *rounding*. It pays where the new sum cascades (see `kernel.cascade`): then neither `a`
nor the quotient is ever stored.

`Exp(x - m) -> Exp2((x - m) * log2(e))` where m is a maximum, as in a softmax, on devices where that
takes less: the rounding of the product moves the result by as much as that of the difference does.
"""

from __future__ import annotations

import numpy as np

from luminal.algebra.frames import is_never_empty
from luminal.algebra.reductions import may_leave
from luminal.algebra.terms import Literal, Reduction, Term, Terms, below
from luminal.base.costs import Costs
from luminal.base.dtypes import float32, float64
from luminal.selection import cascades
from luminal.selection.limits import KERNEL_TERMS
from luminal.selection.rewrite import Respelled
from luminal.selection.split_cascades import in_chunks
from luminal.selection.stored import stored_anyway

LOG2E = {dtype: dtype.numpy.type(np.log2(np.e)).tobytes() for dtype in (float32, float64)}


def spell(program: Respelled, costs: Costs) -> Respelled:
    """The program with quotients pulled out of sums that then cascade, and powers of 2."""
    program = powers_of_two(program, costs)
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


def powers_of_two(program: Respelled, costs: Costs) -> Respelled:
    """The program with exponentials of what is below a maximum as powers of 2."""
    if costs.weights.of("Exp2") >= costs.weights.of("Exp"):
        return program
    terms = program.lowered.terms

    def replace(old: Term, same: Term) -> Term:
        if same.op != "Exp" or same.dtype not in LOG2E or not _is_below_a_maximum(same.args[0]):
            return same
        log2e = terms.literal(LOG2E[same.dtype], same.dtype)
        exponent = terms.pointwise("Mul", (same.args[0], log2e), same.dtype)
        return terms.pointwise("Exp2", (exponent,), same.dtype)

    return program.rewrite(replace)


# Other exponentials stay as they are: of a large number the product's rounding is many ulp.
def _is_below_a_maximum(term: Term) -> bool:
    """Is it `x + -1 * m`, m a maximum?"""
    if term.op != "Add":
        return False
    negatives = (x.args for x in term.args if x.op == "Mul")
    for args in negatives:
        factors = [x for x in args if not (isinstance(x, Literal) and x.value == -1)]
        while len(factors) == 1 and factors[0].op in ("At", "Detach"):
            factors = [factors[0].args[0]]
        if len(factors) == 1 and factors[0].op == "Max":
            return True
    return False


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
