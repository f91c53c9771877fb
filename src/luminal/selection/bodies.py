"""What Loops' bodies know of the program around them: which of their arguments are weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from luminal.algebra.terms import Phase, Term
from luminal.hlir.ops import Value


def weights_of(order: Iterable[Term], is_weight: Callable[[Term], bool]) -> dict[int, Set[Value]]:
    """The arguments of each Loop body, by its id, that are weights wherever the body is used."""
    by_body: dict[int, Set[Value]] = {}
    for term in order:
        if term.op == "Loop":
            loop, body = term.attrs.hlir, term.attrs.body
            _, streams, invariants = loop.split(term.args)
            lists = [leaves if n else () for n, leaves in zip(loop.streams, streams, strict=True)]
            outside = [*lists, *((arg,) for arg in invariants)]
            weights = {
                value
                for value, args in zip(body.arguments[loop.carried :], outside, strict=True)
                if args and all(map(is_weight, args))
            }
            by_body[id(body)] = by_body.get(id(body), weights) & weights
    return by_body


def is_weight(term: Term, arguments: Set[Value]) -> bool:
    """Is the term a leaf that is in memory before any run? In a body, only what is from outside can
    be.
    """
    return term.is_leaf and (term.phase is not Phase.RUN or term.attrs.value in arguments)
