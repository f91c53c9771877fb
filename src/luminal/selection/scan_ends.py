"""Scans of which only the last position is read: reductions, which store no position.

`Scan(x)[a := extent(a) - 1] -> Sum(a, x)`, and so with Prod and Max. The product over an axis is
recorded as the end of a running product. A reduction merges with those over other axes, runs in
vectors with several results at once, and is shared out in chunks.
"""

from __future__ import annotations

from luminal.algebra.frames import linear, spread
from luminal.algebra.terms import At, Axes, OpaqueAttrs, Term, Terms
from luminal.base.numerics import ROUNDING, Numerics
from luminal.hlir.attributes import Slot
from luminal.hlir.monoid import SCANS
from luminal.selection.rewrite import Respelled
from luminal.selection.users import users_of
from luminal.shape.expression import Expression, Symbol

Where = dict[Symbol, Expression | Term]


def scan_ends(program: Respelled, numerics: Numerics) -> Respelled:
    """The program with Scans whose end alone is read as reductions; those of floats, which round in
    the order of the row, where `numerics` allows another.
    """
    order = program.order()
    scans = [term for term in order if term.op == "Scan"]
    if not scans:
        return program
    users = users_of(order)
    roots = {root.term for root in program.lowered.roots}
    rounds = numerics.allows(ROUNDING)
    wanted = {
        scan
        for scan in scans
        if scan not in roots
        and (rounds or SCANS[scan.attrs.hlir.kind].is_exact(scan.dtype))
        and all(_reads_end(user, scan) for user in users[scan])
    }
    if not wanted:
        return program
    terms = program.lowered.terms

    def replace(old: Term, same: Term) -> Term:
        is_end = isinstance(same, At) and old.args[0] in wanted
        return _end(terms, same, same.args[0]) if is_end else same

    return program.rewrite(replace)


def _reads_end(user: Term, scan: Term) -> bool:
    """Is the user an At that reads nothing but the last position of each row?"""
    if not isinstance(user, At) or user.args.count(scan) != 1 or user.args[0] is not scan:
        return False
    attrs: OpaqueAttrs = scan.attrs
    row, where = attrs.result[attrs.hlir.axis], dict(user.attrs)
    return bool(row) and all(_is_last(where.get(axis), axis) for axis in row)


def _is_last(index: Expression | int | None, axis: Symbol) -> bool:
    assert axis.extent is not None
    return isinstance(index, Expression) and index is axis.extent - 1


def _end(terms: Terms, at: Term, scan: Term) -> Term:
    """What all values of a row come to, where `at` reads."""
    attrs: OpaqueAttrs = scan.attrs
    (x,), (frame,) = scan.args, attrs.frames
    along = attrs.hlir.axis
    names: Where = {}
    for k, (dimension, result) in enumerate(zip(frame, attrs.result, strict=True)):
        if k != along:
            names.update(spread(linear(result), dimension))
    total = terms.reduce(SCANS[attrs.hlir.kind].reduction, frame[along], terms.at(x, names))
    return terms.at(total, *_elsewhere(at, attrs.result[along]))


def _elsewhere(at: Term, row: Axes) -> tuple[Where, set[Term]]:
    """What `at` reads along other axes than the row's, and those of it that are inside."""
    where: Where = {}
    inside: set[Term] = set()
    for axis, index in at.attrs:
        if axis not in row:
            where[axis] = at.args[1 + index] if isinstance(index, Slot) else index
            if isinstance(index, Slot) and index.inside:
                inside.add(at.args[1 + index])
    return where, inside
