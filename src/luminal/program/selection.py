"""Selection: the chosen program, as terms with a residence, layouts and merges.

`selection.fast` makes one by rules, the search makes many from genomes; everything below is a
function of it. The kernels are stored values (`roots` of kernels) with everything inlined or
local below them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import field

from luminal.algebra.frames import is_never_empty
from luminal.algebra.lower import Root
from luminal.algebra.terms import Frame, Phase, Reduction, Term, dependents, term_order
from luminal.base.dots import Dot
from luminal.base.errors import VerifyError
from luminal.base.records import dataclass
from luminal.base.target import Target
from luminal.kernel import neighbours
from luminal.kernel.cascade import Cascade, Refusal, derive, starts
from luminal.kernel.fused import Place
from luminal.kernel.layout import ROW_MAJOR, Layout


class Residence(enum.Enum):
    """The place where a value lives between its computation and its uses."""

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


# One record of every decision, which can be printed, parsed back and verified: rules, searches and
# tests all make programs by it, and what stands below asks no question again.
@dataclass(frozen=True, slots=True)
class Selection:
    """`choices` has every term below the roots, operands first. `merges` are disjoint sets of
    stored terms computed in one kernel; `reads` gives the layout an operand edge (user, argument)
    reads, where it is not the canonical one. `frames` orders the axes of stored values. `cascades`
    are the reductions that run in one pass, at most one for a kernel; `dots` the contractions that
    an instruction of its own computes; `calls` the stored terms whose kernels are a library's.
    """

    roots: tuple[Root, ...]
    choices: Mapping[Term, Choice]
    frames: Mapping[Term, Frame]
    merges: tuple[frozenset[Term], ...]
    reads: Mapping[tuple[Term, int], int]
    bodies: Mapping[int, Selection]  # by id of the lowered body, which the Loop term holds
    cascades: tuple[Cascade, ...] = ()
    dots: Mapping[Term, Dot] = field(default_factory=dict)
    calls: Mapping[Term, str] = field(default_factory=dict)

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
        """What the kernel of these stored terms computes, operands first."""
        order = term_order(roots, lambda t: not self.computes(roots, t))
        return [term for term in order if self.computes(roots, term)]

    def computes(self, roots: Collection[Term], term: Term) -> bool:
        """Does the kernel of these stored terms compute the value, rather than read it?"""
        return term in roots or not (term.is_leaf or self.is_stored(term))

    def inside(
        self, roots: Iterable[Term], is_read: Callable[[Term], bool]
    ) -> tuple[dict[Term, int], list[Term]]:
        """What a kernel of these roots reads, each in which of its layouts (the canonical one where
        edges ask for several), and what it computes, users first.
        """
        asked: dict[Term, set[int]] = {}
        seen: dict[Term, None] = {}
        stack = [(root, 0) for root in roots]
        while stack:
            term, number = stack.pop()
            if is_read(term):
                asked.setdefault(term, set()).add(number)
            elif term not in seen:
                seen[term] = None
                numbers = [self.reads.get((term, k), 0) for k in range(len(term.args))]
                stack.extend(reversed([*zip(term.args, numbers, strict=True)]))
        one = {term: min(numbers) if len(numbers) == 1 else 0 for term, numbers in asked.items()}
        return one, [*seen]

    def places(self, roots: Collection[Term]) -> dict[Term, Place]:
        """The places of what the kernel of these stored terms reads, each as its own operand."""
        numbers, _ = self.inside(roots, lambda t: not self.computes(roots, t))
        return {
            term: Place(term, term.dtype, self.home(term), self.choices[term].layouts[number])
            for term, number in numbers.items()
        }

    def home(self, term: Term) -> Frame:
        """The dimensions of a value in memory: its sink's, where it lies in that one's buffer."""
        if term.is_leaf or term.is_opaque:
            frame: Frame = term.attrs.frame if term.is_leaf else term.attrs.result
            return frame
        for root in self.roots:
            in_prologue = root.sink is not None and not term.is_run  # never in a sink's buffer
            if root.term is term and may_hold(root) and not in_prologue:
                return root.frame
        return self.frames[term]


def may_hold(root: Root) -> bool:
    """May the buffer of a sink be the only place of its value? Not where it could be empty because
    of an axis that the value lacks: other readers need the one element.
    """
    # See lessons: The output that was nobody's home.
    spread = {a for dimension in root.frame for a in dimension} - root.term.axes
    return all(map(is_never_empty, spread))


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
    unread = {
        (term, number)
        for term in order
        for number in range(1, len(selection.choices[term].layouts))
    }
    for (user, argument), number in selection.reads.items():
        operand = user.args[argument]
        unread.discard((operand, number))
        if not operand.is_leaf and not selection.is_stored(operand):
            raise VerifyError(f"selection: {user!r} reads operand {argument}, which is inlined")
        layouts = selection.choices[operand].layouts
        if not 0 <= number < len(layouts):
            raise VerifyError(
                f"selection: {user!r} reads operand {argument} in layout {number} of {len(layouts)}"
            )
    for term, number in unread:
        raise VerifyError(f"selection: layout {number} of {term!r} is made and never read")
    seen: set[Term] = set()
    for merge in selection.merges:
        for term in merge:
            if not selection.is_stored(term) or term in seen:
                raise VerifyError(f"selection: {term!r} is merged twice or is not stored")
            seen.add(term)
        # A kernel is of one of them (lessons: The value that both programs computed).
        if len({term.is_run for term in merge}) > 1:
            names = ", ".join(repr(term) for term in merge)
            raise VerifyError(f"selection: {names}: a merge spans prologue and run")
    _verify_cascades(selection)
    _verify_dots(selection)
    _verify_calls(selection, seen)
    for body in selection.bodies.values():
        verify(body)


def verify_for(selection: Selection, target: Target) -> None:
    """Raises VerifyError unless the target has all that the selection asks of it."""
    for term, dot in selection.dots.items():
        if dot not in target.dots:
            has = ", ".join(map(str, target.dots)) or "no dots"
            raise VerifyError(
                f"selection: {term!r} is computed by the dot {dot}; {target.name} has {has}"
            )
    for term, library in selection.calls.items():
        if library not in target.libraries:
            raise VerifyError(f"selection: {term!r} is a call of {library}, which is not installed")
    for body in selection.bodies.values():
        verify_for(body, target)


def _verify_cascades(selection: Selection) -> None:
    """Checks that each cascade is one of its kernel, which has no other."""
    kernels = list(selection.kernels()) if selection.cascades else []
    computed = [set(selection.computed(kernel)) for kernel in kernels]
    taken: set[tuple[Term, ...]] = set()
    for cascade in selection.cascades:
        first = cascade.first
        homes = [k for k, terms in zip(kernels, computed, strict=True) if first in terms]
        if len(homes) != 1 or homes[0] in taken:
            raise VerifyError(f"selection: the cascade of {first!r} is no single one of one kernel")
        (kernel,) = homes
        taken.add(kernel)
        reason = _no_cascade(selection, cascade, kernel)
        if reason is not None:
            raise VerifyError(f"selection: what begins with {first!r} is no cascade: {reason}")


def _no_cascade(selection: Selection, cascade: Cascade, kernel: tuple[Term, ...]) -> str | None:
    """Why the reductions do not run in one pass in this kernel; None if they do."""
    terms = selection.computed(kernel)
    reductions = [t for t in terms if isinstance(t, Reduction)]

    def is_read(term: Term) -> bool:
        return not selection.computes(kernel, term)

    above = dependents(terms, starts(cascade.first, is_read))
    # Derived again rather than believed: a Selection may come from a text, a search, or a mistake.
    derived = derive(cascade.first, reductions, above, is_read)
    if isinstance(derived, Refusal):
        return derived.reason
    if {*derived.members} != {*cascade.members}:
        return f"its members are {[member.term for member in derived.members]}"
    if {*derived.inner} != {*cascade.inner}:
        return f"the contractions of a step are {[*derived.inner]}"
    return None


def _verify_dots(selection: Selection) -> None:
    """Checks that each dot computes a contraction of some kernel, whose factors lie as it reads
    them.
    """
    waiting = dict(selection.dots)
    for kernel in selection.kernels() if waiting else ():
        for term in selection.computed(kernel):
            if term in waiting:
                dot = waiting.pop(term)
                reason = neighbours.refusal(term, dot, selection.places(kernel))
                if reason is not None:
                    raise VerifyError(f"selection: {term!r} is none for the dot {dot}: {reason}")
    for term, dot in waiting.items():
        raise VerifyError(f"selection: {term!r} is for the dot {dot}, and no kernel computes it")


def _verify_calls(selection: Selection, merged: Set[Term]) -> None:
    """Checks that each call may be a product of matrices, in a kernel of its own."""
    for term, name in selection.calls.items():
        if not selection.is_stored(term) or term in merged:
            raise VerifyError(f"selection: {term!r} is a call of {name}, not a kernel of its own")
        if term.op not in ("Add", "Cast", "Sum"):  # of a bias, or rounded
            raise VerifyError(f"selection: {term!r} is a call of {name}, not a plain product")
