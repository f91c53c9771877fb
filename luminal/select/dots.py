"""Which contractions are computed by a dot: those of which a weight lies as the dot reads it."""

from __future__ import annotations

from dataclasses import replace

from luminal.algebra.terms import Term
from luminal.dots import BF16_PAIRS, Dot
from luminal.kernel import pairs
from luminal.program.selection import Selection


def by_layout(selection: Selection) -> Selection:
    """The selection with the dots that its layouts ask for; bodies of Loops have theirs already."""
    held = (layout for choice in selection.choices.values() for layout in choice.layouts)
    if not any(map(pairs.is_paired, held)):
        return selection
    dots: dict[Term, Dot] = {}
    for kernel in selection.kernels():
        reads = selection.places(kernel)
        for term in selection.computed(kernel):
            if term.is_reduction and pairs.refusal(term, reads) is None:
                dots[term] = BF16_PAIRS
    return replace(selection, dots=dots)
