"""Which contractions are computed by a dot: all that the machine has one for.

A dot does the work of several multiplications, whoever owns the factors: those that do not lie as
it takes them are packed by the kernel, as it packs others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from luminal.algebra.frames import upper
from luminal.algebra.terms import Term, below
from luminal.base.dots import Dot
from luminal.base.numerics import DOMAIN, Numerics
from luminal.kernel.fused import Place
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
def by_rule(selection: Selection, rows: Sequence[Dot], numerics: Numerics) -> Selection:
    """The selection with the contractions that those of the dots can compute whose roundings
    the numerics allow, in bodies of Loops too. What a cascade streams is folded by no dot.
    """
    dots = usable(rows, numerics)
    if not dots:
        return selection
    bodies = {number: by_rule(body, dots, numerics) for number, body in selection.bodies.items()}
    rough = numerics.allows(DOMAIN)
    cascades = tuple(replace(cascade, is_rough=rough) for cascade in selection.cascades)
    chosen: dict[Term, Dot] = {}
    streamed = {member.term for cascade in selection.cascades for member in cascade.members}
    for kernel in selection.kernels():
        reads = selection.places(kernel)
        for term in selection.computed(kernel):
            if term in streamed:
                continue
            able = (dot for dot in dots if refusal(term, dot, reads) is None)
            dot = next((dot for dot in able if _suits(term, dot, reads)), None)
            if dot is not None:
                chosen[term] = dot
    return replace(selection, dots=chosen, bodies=bodies, cascades=cascades)


def _suits(contraction: Term, dot: Dot, reads: Mapping[Term, Place]) -> bool:
    """Do panels keep as many neighbours together as the dot takes, and are there rows and columns
    for one that multiplies several?
    """
    read = below((contraction,), reads.__contains__)
    if any(reads[x].layout.neighbours not in (1, dot.k) for x in read if x in reads):
        return False
    return not dot.is_pair or has_rows(contraction, dot)


def has_rows(contraction: Term, dot: Dot) -> bool:
    """Has either factor of a product as many positions of its own as a dot multiplies?"""
    a, b = (factor.axes for factor in contraction.args[0].args)
    return upper(a - b) >= dot.m and upper(b - a) >= dot.n
