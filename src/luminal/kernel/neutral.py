"""Conditions on positions outside of which a reduction has nothing to reduce: its operand is what
it starts from.

`relu(Select(j <= i, s, -inf)) * v` is 0 where `j <= i` does not hold: what the mask puts there is
followed through the operations above it. A number times 0 counts as 0, and so does 0 over one; a
number beside -inf counts as -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.algebra.terms import Index, Literal, Reduction, Term, term_order
from luminal.hlir.attributes import CastAttrs
from luminal.hlir.ops import OPS
from luminal.shape.condition import negation
from luminal.shape.expression import Expression


# This is how masks rule out work without any notion of attention: if the operand, with the mask's
# value put in, comes out as what the reduction starts from, the position need not be visited. A
# number times 0 counts as 0 here, which is the one place where a pass differs from the reference in
# NaN (`numerics="exact"` does not use it).
def neutral_outside(reduction: Reduction) -> list[Expression]:
    """Each such condition that a mask in the operand has."""
    order = term_order(reduction.args, lambda term: not term.is_pointwise)
    (x,) = reduction.args
    nothing = reduction.monoid.identity(x.dtype)
    conditions = []
    for mask in order:
        if mask.op == "Select" and isinstance(mask.args[0], Index):
            condition = mask.args[0].attrs
            for outside, holds in ((mask.args[2], condition), (mask.args[1], negation(condition))):
                if isinstance(outside, Literal) and _with(order, mask, outside).get(x) == nothing:
                    conditions.append(holds)
    return conditions


def _with(order: Sequence[Term], mask: Term, outside: Literal) -> dict[Term, Any]:
    """The values of terms that are numbers if a mask has the value that it has outside."""
    values: dict[Term, Any] = {}
    for term in order:
        if term is mask:
            values[term] = outside.value
        elif isinstance(term, Literal):
            values[term] = term.value
        elif term.is_pointwise:
            value = _value(term, [values.get(arg) for arg in term.args])
            if value is not None:
                values[term] = value
    return values


def _value(term: Term, args: Sequence[Any]) -> Any:
    if term.op == "Mul" and any(arg is not None and arg == 0 for arg in args):
        return term.dtype.numpy.type(0)
    if term.op == "Div" and term.dtype.is_float and args[0] is not None and args[0] == 0:
        return term.dtype.numpy.type(0)
    if term.op == "Add" and any(arg is not None and arg == -np.inf for arg in args):
        return term.dtype.numpy.type(-np.inf)
    meaning = OPS[term.op].evaluate
    if meaning is None or any(arg is None for arg in args):
        return None
    attrs = CastAttrs(term.dtype) if term.op in ("Cast", "Bitcast") else None
    with np.errstate(all="ignore"):
        return meaning(attrs, {}, [np.asarray(arg) for arg in args])[0]
