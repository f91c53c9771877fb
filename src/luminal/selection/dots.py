"""Which contractions are computed by a dot: all that the machine has one for.

A dot does the work of several multiplications, whoever owns the factors: those that do not lie as
it takes them are packed by the kernel, as it packs others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from luminal.algebra.terms import Term
from luminal.base.dots import Dot
from luminal.base.numerics import Numerics
from luminal.kernel.neighbours import refusal
from luminal.program.selection import Selection


# Products of bytes are exact, whatever the order; pairs of bfloat16 have the instruction's own
# roundings, which `exact` does not allow.
def usable(dots: Sequence[Dot], numerics: Numerics) -> tuple[Dot, ...]:
    """The dots whose roundings the numerics allow."""
    return tuple(dot for dot in dots if numerics.allows(dot.rounding.kind))


# A dot of words takes neighbours along the sum from memory. Values that a kernel computes on the
# way, and sums of odd length, are widened and multiplied one by one: joining computed values to
# words costs more than the dot saves. Where lanes multiply matrices together all factors are copied
# first, and whether that pays is a choice of the kernel's schedule.
def by_rule(selection: Selection, dots: Sequence[Dot]) -> Selection:
    """The selection with the contractions that these dots can compute, in bodies of Loops too. What
    a cascade streams is folded by no dot.
    """
    if not dots:
        return selection
    bodies = {number: by_rule(body, dots) for number, body in selection.bodies.items()}
    chosen: dict[Term, Dot] = {}
    streamed = {member.term for cascade in selection.cascades for member in cascade.members}
    for kernel in selection.kernels():
        reads = selection.places(kernel)
        for term in selection.computed(kernel):
            if term in streamed:
                continue
            able = (dot for dot in dots if refusal(term, dot, reads) is None)
            dot = next(able, None)
            if dot is not None:
                chosen[term] = dot
    return replace(selection, dots=chosen, bodies=bodies)
