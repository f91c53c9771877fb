"""A scope: where the values of one list of steps live, and the kernels that make them.

A kernel is some stored values with all that is inlined or local below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from luminal.algebra.frames import shape_of
from luminal.algebra.lower import Root
from luminal.algebra.terms import Frame, Term, below
from luminal.base.errors import VerifyError
from luminal.base.forks import cached_property
from luminal.kernel.fused import Fused, Place, Store
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.program.buffers import BufferKind
from luminal.program.in_place import Readers, is_rewrite, is_update
from luminal.program.kernel_graph import collectives_before
from luminal.program.launch_list import Operand
from luminal.program.memory import Memory, owner_of
from luminal.program.selection import Residence, Selection, may_hold
from luminal.program.steps import (
    CallStep,
    CascadeStep,
    KernelStep,
    NestStep,
    ScanStep,
    Unit,
    leaves_of,
)
from luminal.shape.expression import Expression


class Scope:
    """The program, or the body of a Loop whose `arguments` lie where the Loop put them.

    `may_fail`: a kernel of the program may raise, so that no State is updated where it lies.
    """

    def __init__(
        self,
        memory: Memory,
        selection: Selection,
        facts: tuple[Expression, ...],
        depth: int,
        may_fail: bool,
        arguments: Mapping[Any, Operand] | None = None,
    ) -> None:
        self.memory = memory
        self.selection = selection
        self.facts = facts
        self.depth = depth
        self.arguments = arguments or {}
        self.places: dict[Term, Place] = {}  # in the canonical layout
        self.others: dict[tuple[Term, int], Place] = {}  # in other layouts, by number
        self.copies: list[Store] = []  # sinks of values that live elsewhere
        self.rewritten: dict[Term, Term] = {}  # what is stored in the memory of a leaf
        self.may_fail = may_fail
        self.results: dict[int, dict[int, Term]] = {}  # of opaque operations: by site, by number
        self.materialised: dict[tuple[Term, Frame, Layout], tuple[Place, Unit]] = {}
        order = {term: k for k, term in enumerate(selection.choices)}
        merges = [sorted(merge, key=order.__getitem__) for merge in selection.merges]
        self.merged = {term: merge for merge in merges for term in merge}  # in order
        self.cascades = {cascade.first: cascade for cascade in selection.cascades}
        for term in selection.choices:
            if term.is_leaf:
                self.places[term] = self.leaf(term)
            if term.is_opaque:
                self.results.setdefault(term.attrs.site, {})[term.attrs.index] = term

    # --- where values live

    def leaf(self, term: Term) -> Place:
        value, frame = term.attrs
        if value in self.arguments:
            layout = self.selection.choices[term].layouts[0]
            return Place(self.arguments[value], term.dtype, frame, layout)
        kind, owner = owner_of(term)
        return self.memory.place(self.memory.buffer(kind, value.dtype, value.shape, owner), frame)

    def settle(self, term: Term, place: Place, root: Root) -> None:
        """A sink's buffer becomes the home of its value, or gets a copy of it."""
        elsewhere = self.is_early(term) or term.op == "After"
        if term.is_opaque:
            loop = term.attrs.hlir
            if term.op == "Loop" and term.attrs.index < loop.carried:
                # The last trip writes an entry of a list with one for each trip (`BoundLoop`): the
                # sink's buffer can be that entry where the trips are counted and it is one buffer.
                elsewhere = is_varying(loop.trips) or not is_fixed(place.operand)
            elsewhere = elsewhere or root.frame != term.attrs.result
        if any(t in self.rewritten for t in self.merged.get(term, ())):
            elsewhere = elsewhere or not is_as_wide(term, root.frame)
        if term not in self.places and not elsewhere and may_hold(root):
            self.places[term] = place
        else:
            self.copies.append(Store(term, place, root.frame))

    @cached_property
    def before(self) -> dict[Term, Term]:
        """Each collective with the one that all ranks run before it."""
        return collectives_before(self.selection.choices)

    @cached_property
    def readers(self) -> Readers:
        return Readers(self.selection)

    # The old value is gone when the new one is written, so every other reader must run before.
    # Where one cannot, as it waits for the new value itself, the State's second buffer takes the
    # new value, and they change places after the run.
    def overwritten(self, root: Root, may: Callable[[Term], bool]) -> Term | None:
        """The leaf that a root may overwrite where it lies; None if there is none.

        All else that reads this leaf is then made to run before. `may`: can the leaf be one?
        """
        term, is_stored = root.term, self.selection.is_stored
        if self.may_fail or term in self.places:
            return None
        together = self.merged.get(term, [term])
        if not all(is_as_wide(t, self.places[t].frame) for t in together if t in self.places):
            return None
        if term.op == "Scatter":
            leaf = term.args[0]
            fits = is_update(root, leaf, is_stored) and may(leaf)
        else:
            read = below((term,), lambda t: t.is_leaf or (is_stored(t) and t is not term))
            read_leaves = [
                t for t in read if t.is_leaf and t.attrs.value.dtype is term.dtype and may(t)
            ]
            if len(read_leaves) != 1:
                return None
            (leaf,) = read_leaves
            fits = is_rewrite(root, leaf, together, is_stored)
        # Last: a yes is an order that stays.
        if not fits or not self.readers.run_before(term, (leaf,)):
            return None
        self.rewritten[term] = leaf
        return leaf

    def home(self, term: Term) -> Place:
        """The Place where a stored term lives."""
        if term not in self.places:
            frame = term.attrs.result if term.is_opaque else self.selection.frames[term]
            layout = self.selection.choices[term].layouts[0]
            shape = shape_of(frame)
            buffer = self.memory.buffer(self.kind(term), term.dtype, shape, layout=layout)
            self.places[term] = self.memory.place(buffer, frame)
        return self.places[term]

    def is_early(self, term: Term) -> bool:
        """Is the value made by the prologue, once per setting of the weights? Then it lives in a
        DERIVED buffer, wherever else a sink has it copied to; and who makes a DERIVED buffer
        belongs to the prologue. Phases decide nothing anywhere else.
        """
        return self.depth == 0 and not term.is_run

    def kind(self, term: Term) -> BufferKind:
        return BufferKind.DERIVED if self.is_early(term) else BufferKind.ARENA

    def exact(
        self, term: Term, frame: Frame, before: list[Unit], layout: Layout = ROW_MAJOR
    ) -> Place:
        """A place that holds `term` in just this frame and layout, copied there if need be."""
        place = self.places.get(term)
        # What moves with a Loop lies elsewhere in each trip: a copy of it does not.
        fixed = place is not None and is_fixed(place.operand)
        if place is not None and fixed and (place.frame, place.layout) == (frame, layout):
            return place
        key = (term, frame, layout)
        if key not in self.materialised:
            shape = shape_of(frame)
            repeated = not all(extent.is_const for extent in shape)  # along an axis of a run
            kind = BufferKind.ARENA if repeated else self.kind(term)
            buffer = self.memory.buffer(kind, term.dtype, shape, layout=layout)
            place = self.memory.place(buffer, frame)
            self.materialised[key] = place, self.unit((), (Store(term, place, frame),))
        place, copy = self.materialised[key]
        before.append(copy)
        return place

    def stored_place(self, term: Term) -> Place | None:
        """The Place where a value is stored that does not move with a Loop; None for any other."""
        if not (term.is_leaf or self.selection.is_stored(term)):
            return None
        place = self.home(term)
        return place if is_fixed(place.operand) else None

    def row_major(self, term: Term, frame: Frame, before: list[Unit]) -> Place:
        """A place that holds `term` in row-major order in this frame; what moves with the Loop
        around is taken where it lies, all else as `exact` gives it.
        """
        place = self.places.get(term)
        if place is not None and place.frame == frame and place.layout == ROW_MAJOR:
            return place
        return self.exact(term, frame, before)

    def copies_of(self, term: Term) -> list[Unit]:
        """Kernels of the prologue that store a weight in its other layouts."""
        copies = []
        for number, layout in enumerate(self.selection.choices[term].layouts[1:], 1):
            frame = self.places[term].frame
            shape = shape_of(frame)
            buffer = self.memory.buffer(BufferKind.DERIVED, term.dtype, shape, layout=layout)
            place = self.others[term, number] = self.memory.place(buffer, frame)
            copies.append(self.unit((), (Store(term, place, frame),)))
        return copies

    def read_at(self, term: Term, number: int) -> Place:
        """The Place of a value in its layout of that number."""
        return self.others[term, number] if number else self.places[term]

    def siblings(self, term: Term) -> dict[int, Term]:
        """The results of the same operation in use, by number."""
        return self.results[term.attrs.site]

    # --- kernels

    def unit(self, makes: tuple[Term, ...], stores: tuple[Store, ...]) -> Unit:
        """The unit of one kernel, which makes these terms and fills these stores."""
        # Prologue and run are two programs: a kernel that wrote buffers of both would run in one of
        # them and leave the other stale. See lessons: The value that both programs computed.
        fused = self.fused(stores)
        reads = frozenset(fused.reads)
        partition = self.memory.partition
        buffers = [partition.buffers[partition.table[s.place.operand.entry]] for s in stores]
        early = buffers[0].kind is BufferKind.DERIVED
        if any((buffer.kind is BufferKind.DERIVED) is not early for buffer in buffers):
            raise VerifyError(f"partition: {stores} are one kernel, half of it in the prologue")
        step = self.kernel(makes, fused)
        return Unit(makes, reads, (step,), leaves=leaves_of(reads), early=early)

    def kernel(self, makes: tuple[Term, ...], fused: Fused) -> KernelStep:
        """The kernel of what is fused, of the kind that was selected."""
        if any(term.op == "Scan" for term in makes):
            return ScanStep(fused)
        for term in makes:
            if term in self.selection.calls:
                return CallStep(fused, self.selection.calls[term])
        for reduction in fused.reductions if self.cascades else ():
            if reduction in self.cascades:
                cascade = self.cascades[reduction]
                # In the kernel's own order, whatever order a Selection names them in: steps of one
                # key are one kernel, and the key leaves members out.
                members = sorted(cascade.members, key=lambda m: fused.reductions.index(m.term))
                members.sort(key=lambda m: m.sweep)
                return CascadeStep(fused, replace(cascade, members=tuple(members)))
        return NestStep(fused)

    def fused(self, stores: tuple[Store, ...]) -> Fused:
        # A store to another place than a term's home is a copy, which reads the home.
        making = {s.term for s in stores if self.is_at(s.term, s.place)}
        roots = (root for store in stores for root in reversed(store.roots))
        asked, computed = self.selection.inside(
            roots, lambda term: term in self.places and term not in making
        )
        reads = {term: self.read_at(term, number) for term, number in asked.items()}
        choices, dots = self.selection.choices, self.selection.dots
        local = frozenset(t for t in computed if choices[t].residence is Residence.LOCAL)
        return Fused(stores, reads, local, self.facts, {t: dots[t] for t in computed if t in dots})

    def is_at(self, term: Term, place: Place) -> bool:
        """Is `place` the home of the term?"""
        return term in self.places and self.places[term].operand == place.operand


def is_as_wide(term: Term, frame: Frame) -> bool:
    """Has the frame the term's own axes? Along any other one, all that is made together with it
    would be made again, out of elements that were overwritten the first time.
    """
    return {a for dimension in frame for a in dimension} == term.axes


def is_fixed(operand: Operand) -> bool:
    """Does the operand point to one buffer, whatever the iteration?"""
    return operand.depth == 0 and operand.modulus == 1


def is_varying(trips: Expression) -> bool:
    """Is the number of trips known at run time only, or none at all?"""
    return not trips.is_const or trips.value == 0
