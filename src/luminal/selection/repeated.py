"""Norms of few rows, in the kernels of the products that read them.

A norm before the products of a decode step is a kernel of few groups, between two that keep all
units of a device busy: its launch costs more than what it computes. What a norm multiplies a row by
is the same along the row, so it leaves the products (class rounding):

    Sum{k} (x[k] * r * g[k]) * w[n, k]  ->  r * Sum{k} (x[k] * g[k]) * w[n, k]

A Cast to bfloat16 on the way rounds by the same share of what is now larger or smaller, as that
dtype has the range of float32. Then r's own sum over k runs beside the others, in each group again:
it reads nothing that they do not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from luminal.algebra.frames import upper
from luminal.algebra.terms import Reduction, Term, Terms, below
from luminal.base.costs import Costs
from luminal.base.dtypes import bfloat16, float32
from luminal.base.numerics import ROUNDING, Numerics
from luminal.selection.kinds import is_contraction
from luminal.selection.rewrite import Respelled
from luminal.selection.stored import stored_anyway
from luminal.selection.users import users_of

RESULTS = 8  # of products that lanes compute side by side, and so repeat the sum for, at least
STEP = 4  # operations of it for each element: a weight, and what is added
MOST_TERMS = 32  # that are made of a sum

Users = Mapping[Term, Sequence[Term]]


def scales_after_products(program: Respelled, costs: Costs, numerics: Numerics) -> Respelled:
    """The program with what is the same along one of few rows out of the products that read the
    row, where that is made of a sum along it.
    """
    if not costs.shares.passes or not numerics.allows(ROUNDING):
        return program
    order, terms = program.order(), program.lowered.terms
    users, stored = users_of(order), stored_anyway(program.lowered.roots, order)
    scales: set[Term] = set()
    products: set[Term] = set()
    for term in order:
        if isinstance(term, Reduction) and _is_of_few_rows(term, costs) and term not in stored:
            scaled = _scale(term, users, stored)
            if scaled is not None and _is_worth(scaled[1], costs):
                scales.add(scaled[0])
                products |= scaled[1]
    if not scales:
        return program
    new: dict[Term, Term] = {}

    def replace(old: Term, same: Term) -> Term:
        new[old] = same
        if old in products:
            new[old] = _pulled_out(terms, same, {new[scale] for scale in scales if scale in new})
        return new[old]

    return program.rewrite(replace)


def repeated(order: Sequence[Term], stored: Set[Term], costs: Costs) -> set[Term]:
    """The sums along a row that are computed in the kernels of products along it, with what is made
    of them, and what the products read of that row.
    """
    again: set[Term] = set()
    if not costs.shares.passes:
        return again
    users = users_of(order)
    for term in order:
        if isinstance(term, Reduction) and _is_of_few_rows(term, costs) and term not in stored:
            members = _made_of(term, users, stored)
            if members is None:
                continue
            ends = {user for value in (term, *members) for user in users[value]}.difference(members)
            products = [_scaled_product(end, term) for end in ends]
            if products and all(products):
                again |= {term, *members}
                for product in filter(None, products):
                    again |= _of_row(product, term, stored)
    return again


def _is_of_few_rows(reduction: Reduction, costs: Costs) -> bool:
    size = upper(reduction.attrs) * reduction.dtype.size
    few = upper(reduction.axes) <= max(1, costs.shares.rows) and reduction.is_run
    return few and not is_contraction(reduction) and size <= costs.row_bytes


def _made_of(reduction: Reduction, users: Users, stored: Set[Term]) -> list[Term] | None:
    """The pointwise values of the sum alone, operands first; None where one is stored."""
    members: list[Term] = []
    waiting: list[Term] = [reduction]
    for value in waiting:
        for user in users[value]:
            if user.is_pointwise and user.axes <= reduction.axes and user not in members:
                members.append(user)
                waiting.append(user)
    if len(members) > MOST_TERMS or not stored.isdisjoint(members):
        return None
    return members


def _scaled_product(term: Term, reduction: Reduction) -> Reduction | None:
    """The sums of products along the row that the term multiplies by what is made of the reduction,
    if it does.
    """
    for x in term.args if term.op == "Mul" else ():
        if isinstance(x, Reduction) and _is_along(x, x.args[0], reduction):
            return x
    return None


# Each group reads a row of few bytes from a cache: a value of it that is stored for several kernels
# would be read in place of what it is computed of, after another launch. What both the sum and a
# product read is the row itself.
def _of_row(product: Reduction, reduction: Reduction, stored: Set[Term]) -> set[Term]:
    """The pointwise values of the row that only the products multiply, or only the sum adds up."""
    row = reduction.axes.union(reduction.attrs)

    def values(roots: Sequence[Term]) -> Set[Term]:
        return below(roots, lambda t: t.is_reduction or t in stored, MOST_TERMS).keys()

    apart = values(product.args[0].args) ^ values(reduction.args)
    return {t for t in apart if t.is_pointwise and t.axes <= row and t not in stored}


def _scale(reduction: Reduction, users: Users, stored: Set[Term]) -> tuple[Term, set[Term]] | None:
    """The one value that is made of a sum and read along its row, with the products that read that;
    None where anything else reads it.
    """
    members = _made_of(reduction, users, stored)
    if not members:
        return None
    inside = {reduction, *members}
    ends = [value for value in (reduction, *members) if not inside.issuperset(users[value])]
    if ends != members[-1:] or members[-1].dtype is not float32:
        return None
    products: set[Term] = set()
    stack, seen = [*users[members[-1]]], set[Term]()
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        summed = [user for user in users[term] if _is_along(user, term, reduction)]
        if summed and len(summed) == len(users[term]):
            products.update(summed)
        elif users[term] and term not in stored and _keeps_a_scale(term, reduction):
            stack += users[term]
        else:
            return None
    return members[-1], products


def _is_along(user: Term, product: Term, reduction: Reduction) -> bool:
    """Does a user sum a product along the row, with results beside the row's?"""
    return (
        isinstance(user, Reduction)
        and user.args[0] is product
        and user.dtype is float32
        and is_contraction(user)
        and user.attrs == reduction.attrs
        and reduction.axes < user.axes
    )


def _keeps_a_scale(term: Term, reduction: Reduction) -> bool:
    """Does a scale of one of its operands scale it?"""
    # Several rows of factors rounded alike are multiplied by a dot.
    dtypes = (float32, bfloat16) if upper(reduction.axes) == 1 else (float32,)
    along = term.axes <= reduction.axes.union(reduction.attrs)
    return along and term.op in ("Mul", "Cast") and term.dtype in dtypes


def _is_worth(products: Set[Term], costs: Costs) -> bool:
    """Does the sum take less time in each group again than its launch does?"""
    results = sum(upper(product.axes) for product in products)
    (length,) = {upper(product.attrs) for product in products if isinstance(product, Reduction)}
    return results // RESULTS * STEP * length <= costs.launch_work * costs.units


def _pulled_out(terms: Terms, product: Term, scales: Set[Term]) -> Term:
    """A sum of products times the scale that was in them."""
    assert isinstance(product, Reduction)
    pulled: list[Term] = []
    inside = _without(terms, product.args[0], scales, pulled)
    total = terms.reduce(product.op, product.attrs, inside, merge=False)
    # Scale first: `fast` then knows of the product's kernel when it decides about the scale's sum.
    for scale in pulled:
        total = terms.pointwise("Mul", (scale, total), product.dtype)
    return total


def _without(terms: Terms, term: Term, scales: Set[Term], pulled: list[Term]) -> Term:
    """A value without its scales, which are added to those `pulled` out."""
    if term.op not in ("Mul", "Cast"):
        return term
    factors = [arg for arg in term.args if arg in scales]
    if term.op == "Mul" and len(factors) == 1:
        pulled += factors
        (rest,) = [arg for arg in term.args if arg not in scales]
        return _without(terms, rest, scales, pulled)
    args = [_without(terms, arg, scales, pulled) for arg in term.args]
    return terms.with_args(term, tuple(args))
