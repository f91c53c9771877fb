"""A program from chosen spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.algebra.lower import Lowered, Root
from luminal.algebra.terms import OPAQUE, Frame, Term, Terms
from luminal.egraph.intern import literal_data
from luminal.hlir.monoid import REDUCTIONS
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.egraph.classes import Classes, EClass, Spelling


def spell(classes: Classes, chosen: dict[int, Spelling]) -> Lowered:
    """The program where classes are spelled as `chosen`, else by default."""
    terms = classes.default.terms
    built = _build(classes, chosen, terms)
    shapes = dict(classes.lowered.shapes) | dict(classes.default.shapes)
    # However a value is spelled, it lies as it was first met.
    frames: dict[int, Frame] = {}
    for term, number in classes.known.items():
        if term in shapes:
            frames.setdefault(number, shapes[term])
    for number, term in built.items():
        if number in frames:
            shapes.setdefault(term, frames[number])
    roots = tuple(
        Root(root.sink, built[number], root.frame)
        for root, number in zip(classes.default.roots, classes.roots, strict=True)
    )
    numbers = {classes.known.get(term) for term in classes.default.kept}
    kept = frozenset(term for number, term in built.items() if number in numbers)
    return Lowered(terms, roots, shapes, classes.default.arguments, kept)


def _build(classes: Classes, chosen: dict[int, Spelling], terms: Terms) -> dict[int, Term]:
    """A term for each class below the roots. Iterative.

    Where a class is met again on the way down to it, the nearest choice on that way is taken back.
    """
    # Choices are made class by class, so together they may stand on each other in a circle. Default
    # spellings never do, and taking choices back one by one always ends there.
    built: dict[int, Term] = {}
    origins = {n: term.recorded for term, n in classes.known.items() if term.recorded}
    for root in classes.roots:
        path = [root]
        on_path = {root}
        while path:
            number = path[-1]
            spelling = chosen.get(number) or classes.classes[number].spellings[0]
            waiting = [arg for arg in spelling.args if arg not in built]
            if not waiting or number in built:
                if number not in built:
                    args = [built[arg] for arg in spelling.args]
                    terms.recorded = origins.get(number)
                    built[number] = _term(terms, classes.classes[number], spelling, args)
                on_path.discard(path.pop())
            elif waiting[0] not in on_path:
                path.append(waiting[0])
                on_path.add(waiting[0])
            else:
                # A circle has a choice in it: default spellings
                # alone stand on classes closed before them.
                place = path.index(waiting[0])
                place = max(k for k in range(place, len(path)) if path[k] in chosen)
                del chosen[path[place]]
                on_path.difference_update(path[place + 1 :])
                del path[place + 1 :]
    terms.recorded = None
    return built


def _term(terms: Terms, of: EClass, spelling: Spelling, args: list[Term]) -> Term:
    """The spelling on these operands; an axis that the class does not depend on is fixed at 0."""
    term = _operation(terms, spelling, args)
    extra = term.axes - of.axes
    return terms.at(term, dict.fromkeys(extra, const(0))) if extra else term


def _operation(terms: Terms, spelling: Spelling, args: list[Term]) -> Term:
    op, attrs, dtype = spelling.op, spelling.attrs, spelling.dtype
    if op == "Leaf":
        return terms.leaf(attrs.value, attrs.frame)
    if op == "Literal":
        return terms.literal(literal_data(attrs, dtype), dtype)
    if op == "Index":
        return terms.index(attrs, dtype)
    if op in REDUCTIONS:
        return terms.reduce(op, attrs, args[0], merge=False)
    if op == "At":
        where = {a: args[1 + i] if isinstance(i, int) else i for a, i in attrs}
        return terms.at(args[0], where)
    if op in OPAQUE:
        return terms.opaque(op, args, attrs, dtype)
    return terms.pointwise(op, args, dtype)
