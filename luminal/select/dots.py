"""Which contractions are computed by a dot: those of which a weight lies as the dot reads it."""

from __future__ import annotations

from dataclasses import replace

from luminal.algebra.terms import Term
from luminal.dots import DOTS, Dot
from luminal.kernel.neighbours import refusal
from luminal.program.selection import Selection


def by_layout(selection: Selection) -> Selection:
    """The selection with the dots that its layouts ask for; bodies of Loops have theirs already."""
    held = (layout for choice in selection.choices.values() for layout in choice.layouts)
    if all(layout.neighbours == 1 for layout in held):
        return selection
    found: dict[Term, Dot] = {}
    for kernel in selection.kernels():
        reads = selection.places(kernel)
        for term in selection.computed(kernel):
            able = (dot for dot in DOTS.values() if refusal(term, dot, reads) is None)
            dot = next(able, None)
            if dot is not None:
                found[term] = dot
    return replace(selection, dots=found)
