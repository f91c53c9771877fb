"""Selection: the chosen program, as terms with a residence, layouts and merges.

`select.fast` makes one by rules, the search makes many from genomes; everything below is a function
of it. The kernels are the groups of stored values (`roots` of kernels) with everything inlined or
local below them.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from luminal.algebra.lower import Root
from luminal.algebra.terms import Frame, Phase, Term, dependents, term_order
from luminal.errors import VerifyError
from luminal.kernel.cascade import Cascade, Refusal, derive
from luminal.kernel.layout import ROW_MAJOR, Layout


class Residence(enum.Enum):
    """Where a value lives between its computation and its uses."""

    INLINE = "inline"  # nowhere: recomputed in each consumer
    LOCAL = "local"  # kept for the current tile inside one kernel
    STORED = "stored"  # written to a buffer
    LOCAL_STORED = "local+stored"

    @property
    def is_stored(self) -> bool:
        return self in (Residence.STORED, Residence.LOCAL_STORED)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for one value. `layouts[0]` is canonical; a stored value may have several."""

    residence: Residence
    layouts: tuple[Layout, ...] = (ROW_MAJOR,)


@dataclass(frozen=True, slots=True)
class Selection:
    """`choices` has every term below the roots, operands first. `merges` are disjoint sets of
    stored terms computed in one kernel; `reads` gives the layout an operand edge (user, argument)
    reads, where it is not the canonical one. `frames` orders the axes of stored values. `cascades`
    are the reductions that run in one pass, at most one for a kernel.
    """

    roots: tuple[Root, ...]
    choices: Mapping[Term, Choice]
    frames: Mapping[Term, Frame]
    merges: tuple[frozenset[Term], ...]
    reads: Mapping[tuple[Term, int], int]
    bodies: Mapping[int, Selection]  # by id of the lowered body, which the Loop term holds
    cascades: tuple[Cascade, ...] = ()

    def is_stored(self, term: Term) -> bool:
        return self.choices[term].residence.is_stored

    def stored(self) -> Iterator[Term]:
        return (term for term in self.choices if self.is_stored(term))

    def kernels(self) -> Iterator[tuple[Term, ...]]:
        """The stored terms of each kernel."""
        merged = set[Term]().union(*self.merges)
        yield from ((term,) for term in self.stored() if term not in merged)
        yield from (tuple(t for t in self.choices if t in merge) for merge in self.merges)

    def computed(self, roots: Collection[Term]) -> list[Term]:
        """What the kernel of these stored terms reads and computes, operands first."""
        return term_order(roots, lambda t: not self.computes(roots, t))

    def computes(self, roots: Collection[Term], term: Term) -> bool:
        """Does the kernel of these stored terms compute the value, rather than read it?"""
        return term in roots or not (term.is_leaf or self.is_stored(term))


def verify(selection: Selection) -> None:
    """Raises VerifyError unless every term has a choice and what must be stored is."""
    order = term_order(root.term for root in selection.roots)
    for term in order:
        if term not in selection.choices:
            raise VerifyError(f"selection: {term!r} is in use and has no choice")
        if term.is_opaque and not selection.is_stored(term):
            raise VerifyError(f"selection: {term!r} is opaque and must be stored")
        if term.is_leaf and selection.is_stored(term):
            raise VerifyError(f"selection: {term!r} is a leaf and is never stored")
        if len(selection.choices[term].layouts) > 1 and term.phase is Phase.RUN:
            raise VerifyError(f"selection: {term!r} is no weight and has more than one layout")
    for (user, argument), number in selection.reads.items():
        layouts = selection.choices[user.args[argument]].layouts
        if not 0 <= number < len(layouts):
            raise VerifyError(
                f"selection: {user!r} reads operand {argument} in layout {number} of {len(layouts)}"
            )
    seen: set[Term] = set()
    for merge in selection.merges:
        for term in merge:
            if not selection.is_stored(term) or term in seen:
                raise VerifyError(f"selection: {term!r} is merged twice or is not stored")
            seen.add(term)
        if len({term.is_run for term in merge}) > 1:
            names = ", ".join(repr(term) for term in merge)
            raise VerifyError(f"selection: {names}: a merge spans prologue and run")
    _verify_cascades(selection)


def _verify_cascades(selection: Selection) -> None:
    """Each is one of its kernel, which has no other."""
    kernels = list(selection.kernels()) if selection.cascades else []
    computed = [{t for t in selection.computed(k) if selection.computes(k, t)} for k in kernels]
    taken: set[tuple[Term, ...]] = set()
    for cascade in selection.cascades:
        maximum = cascade.maximum
        homes = [k for k, terms in zip(kernels, computed, strict=True) if maximum in terms]
        if len(homes) != 1 or homes[0] in taken:
            raise VerifyError(f"selection: {maximum!r} and its sums are not one pass of one kernel")
        (kernel,) = homes
        taken.add(kernel)
        reason = _no_cascade(selection, cascade, kernel)
        if reason is not None:
            raise VerifyError(f"selection: {maximum!r} and its sums are no cascade: {reason}")


def _no_cascade(selection: Selection, cascade: Cascade, kernel: tuple[Term, ...]) -> str | None:
    """Why the reductions do not run in one pass in this kernel; None if they do."""
    terms = selection.computed(kernel)
    reductions = [t for t in terms if t.is_reduction and selection.computes(kernel, t)]
    above = dependents(terms, (cascade.maximum,))
    found = derive(cascade.maximum, reductions, above, lambda t: not selection.computes(kernel, t))
    if isinstance(found, Refusal):
        return found.reason
    if {*found.members} != {*cascade.members}:
        return f"the sums that use it are {[member.term for member in found.members]}"
    if {*found.inner} != {*cascade.inner}:
        return f"the contractions of a step are {[*found.inner]}"
    return None
