"""What is read in parts: segments of a step's tokens, each by an attention of its own.

Where all parts are times one number, as queries are times the scale of scores, the whole is
multiplied where it is made: else each part were stored by a kernel before the pass that reads it
in each of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.algebra.terms import At, Literal, Term
from luminal.base.costs import Costs
from luminal.selection.rewrite import Respelled
from luminal.selection.users import users_of
from luminal.shape.expression import Expression


def scaled_whole(program: Respelled, costs: Costs) -> Respelled:
    """The program with what is read in parts, each times the same number, multiplied before, on
    devices where a launch costs more than a multiplication. Bits stay.
    """
    if not costs.shares.passes:
        return program
    users, terms = users_of(program.order()), program.lowered.terms
    scaled = {product for term in users for product in _scaled_parts(term, users)}
    if not scaled:
        return program

    def replace(old: Term, same: Term) -> Term:
        if old not in scaled:
            return same
        part, number = _factors(same)
        whole = terms.pointwise("Mul", (part.args[0], number), same.dtype)
        return terms.at(whole, dict(part.attrs))

    return program.rewrite(replace)


def _scaled_parts(term: Term, users: Mapping[Term, Sequence[Term]]) -> list[Term]:
    """The products of all parts of a term with one number; empty where it is read otherwise."""
    parts = users[term]
    if len(parts) < 2 or not term.is_pointwise or not all(map(_is_part, parts)):
        return []
    products = [product for part in parts for product in users[part]]
    if any(product.op != "Mul" or product.dtype is not term.dtype for product in products):
        return []
    numbers = {arg for product in products for arg in product.args if isinstance(arg, Literal)}
    return products if len(numbers) == 1 and len(products) == len(parts) else []


def _is_part(term: Term) -> bool:
    return isinstance(term, At) and all(isinstance(place, Expression) for _, place in term.attrs)


def _factors(product: Term) -> tuple[Term, Term]:
    """The part, and the number that it is times."""
    part, number = sorted(product.args, key=lambda arg: isinstance(arg, Literal))
    return part, number
