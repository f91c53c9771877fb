"""States that a kernel may overwrite where they lie: a Scatter into them, or an update by element.

A kernel that computes a State's next value at each position from the old one at that position only
(an optimizer's moments, a parameter) reads the element before it writes it. Whatever else reads the
old value must run before: kernels wait for kernels here as they do for operands, so one graph tells
for all of it whether some would wait in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from luminal.algebra.lower import Root
from luminal.algebra.terms import Term, below, term_order
from luminal.program.kernel_graph import kernel_reads, kernels
from luminal.program.selection import Selection


class Readers:
    """Who reads each leaf of a selection, and what was told to wait for them so far."""

    def __init__(self, selection: Selection) -> None:
        reads = kernel_reads([*selection.choices], selection.is_stored)
        self._kernels = kernels(reads, selection.merges)
        self._of: dict[Term, list[Term]] = {}
        for term, read in reads.items():
            for leaf in read:
                if leaf.is_leaf:
                    self._of.setdefault(leaf, []).append(term)

    def run_before(self, maker: Term, leaves: Collection[Term]) -> bool:
        """Lets all that reads these leaves run before the kernel of `maker`, if that can be."""
        others = (t for leaf in leaves for t in self._of.get(leaf, ()))
        return self._kernels.wait(maker, others)


def is_update(root: Root, old: Term, is_stored: Callable[[Term], bool]) -> bool:
    """Is `old`, which the Scatter `root` writes into, a leaf that its kernel reads nothing else of?

    Both must lie alike.
    """
    term = root.term
    if (
        not old.is_leaf
        or root.frame != term.attrs.result
        or old.attrs.frame != term.attrs.frames[0]
    ):
        return False
    # What is scattered, or where to, could read elements that were written over a moment ago.
    return old not in below(term.args[1:], is_stored)


# Every placement has the stores over the same axes in one loop nest, so each element is read before
# it is written, if it is read at its own position only. Any other position might be written
# already.
def is_rewrite(
    root: Root, old: Term, together: Iterable[Term], is_stored: Callable[[Term], bool]
) -> bool:
    """Does the kernel that makes `root`, with the values `together`, read the leaf `old` only where
    it writes? All that depends on `old` in it is by element, over the axes of the leaf.
    """
    term = root.term
    axes = {a for dimension in root.frame for a in dimension}
    if term.is_opaque or old.dtype is not term.dtype or root.frame != old.attrs.frame:
        return False
    if term.axes != axes or old.axes != axes:
        return False
    ends = set(together)
    # What is stored elsewhere is another kernel's: that one is made to run before (`Readers`).
    inside = term_order(ends, lambda t: t.is_leaf or (is_stored(t) and t not in ends))
    late = {old}
    for inner in inside:
        if not late.isdisjoint(inner.args) and (not is_stored(inner) or inner in ends):
            # A reduction or an At would read other positions, which another worker may have written
            # by then; with an axis more the old element would be read again after it was
            # overwritten.
            if not inner.is_pointwise or inner.axes != axes:
                return False
            late.add(inner)
    return term in late


def calls_python(selection: Selection) -> bool:
    """Does the program run a Python function, so that a run may end half-way with an error?

    No State is overwritten then: it keeps its value until the whole run has succeeded.
    """
    # A kernel of ours cannot fail half-way; a Python function can, and a State that is overwritten
    # where it lies would then be neither the old value nor the new one.
    return any(t.op == "Custom" and t.attrs.hlir.kernel.ir is None for t in selection.choices) or (
        any(map(calls_python, selection.bodies.values()))
    )
