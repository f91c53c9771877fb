"""Partition: a Selection becomes steps, each one kernel or Loop, and the buffers they share.

A kernel is a group of stored values with all that is inlined or local below them. Everything here
is a function of the Selection: buffers, who writes them, the order of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.algebra.frames import shape_of
from luminal.algebra.lower import Root
from luminal.algebra.scatter import is_ordered, positions
from luminal.algebra.terms import Frame, OpaqueAttrs, Phase, Term
from luminal.dtypes import int64
from luminal.hlir.graph import Assign, Graph, Output
from luminal.hlir.state import State
from luminal.kernel.group import Group, Place, Store
from luminal.program.buffers import ROW_MAJOR, BufferKind, Layout
from luminal.program.in_place import calls_python, is_read_before, updates
from luminal.program.launch_list import Operand, ProgramOutput
from luminal.program.memory import Memory, owner_of
from luminal.program.selection import Residence, Selection
from luminal.program.steps import (
    CustomStep,
    KernelStep,
    LoopStep,
    Partition,
    Step,
    Unit,
    leaves_of,
    ordered,
    state_of,
)
from luminal.shape.expression import Expression, Symbol, axis, const


def partition(graph: Graph, selection: Selection) -> Partition:
    """The steps and buffers that a selection asks for."""
    memory = Memory()
    scope = _Scope(memory, selection, graph.requirements, 0)
    for root in selection.roots:
        scope.sink(root)
    result = memory.partition
    result.steps = scope.run()
    return result


class _Scope:
    """One list of steps: the program's or a Loop body's."""

    def __init__(
        self,
        memory: Memory,
        selection: Selection,
        facts: tuple[Expression, ...],
        depth: int,
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
        self.in_place: set[Term] = set()  # Scatters into the memory of a leaf
        self.may_fail = depth == 0 and calls_python(selection)
        self.done: set[int] = set()  # sites of operations with several results
        self.materialised: dict[tuple[Term, Frame, Layout], Place] = {}
        order = {term: k for k, term in enumerate(selection.choices)}
        self.merged = {t: max(m, key=order.__getitem__) for m in selection.merges for t in m}
        self.users: dict[Term, list[Term]] = {term: [] for term in selection.choices}
        for term in selection.choices:
            for arg in dict.fromkeys(term.args):
                self.users[arg].append(term)
            if term.is_leaf:
                self.places[term] = self.leaf(term)

    # --- where values live

    def leaf(self, term: Term) -> Place:
        value, frame = term.attrs
        if value in self.arguments:
            layout = self.selection.choices[term].layouts[0]
            return Place(self.arguments[value], term.dtype, frame, layout)
        kind, owner = owner_of(value)
        return self.memory.place(self.memory.buffer(kind, value.dtype, value.shape, owner), frame)

    def settle(self, term: Term, place: Place, root: Root) -> None:
        """A sink's buffer becomes the home of its value, or gets a copy of it."""
        elsewhere = term.phase is not Phase.RUN and self.depth == 0  # in the prologue
        if term.is_opaque:
            loop = term.attrs.hlir
            if term.op == "Loop" and term.attrs.index < loop.carried:
                elsewhere = _varies(loop.trips) or not _is_fixed(place.operand)
            elsewhere = elsewhere or root.frame != term.attrs.result
        spread = {a for dimension in root.frame for a in dimension} - term.axes
        if any(_may_be_empty(a) for a in spread):
            elsewhere = True  # other readers need the one element
        if term not in self.places and not elsewhere:
            self.places[term] = place
        else:
            self.copies.append(Store(term, place, root.frame))

    def sink(self, root: Root) -> None:
        """The buffer of an output or of a State's next value."""
        if root.sink is None:
            return
        memory = self.memory
        shape = shape_of(root.frame)
        match root.sink:
            case Output(_, name, hidden):
                buffer = memory.buffer(BufferKind.OUTPUT, root.term.dtype, shape, name)
                memory.partition.outputs.append(ProgramOutput(name, buffer, hidden))
            case Assign(state):
                if root.term.is_leaf and state_of(root.term) is state:
                    return  # assigned to itself
                if self.updates(root, state):
                    buffer = memory.buffer(BufferKind.STATE, root.term.dtype, shape, state)
                    self.in_place.add(root.term)
                else:
                    buffer = memory.buffer(BufferKind.NEXT, root.term.dtype, shape, state)
                    memory.partition.swaps.append(state)
        self.settle(root.term, memory.place(buffer, root.frame), root)

    def updates(self, root: Root, state: State) -> bool:
        """Is the root a Scatter that may overwrite this State where it lies?"""
        if self.may_fail or root.term in self.places or root.term.op != "Scatter":
            return False
        old = root.term.args[0]
        is_own = old.is_leaf and state_of(old) is state
        return is_own and updates(self.selection, self.users, root, old)

    def home(self, term: Term) -> Place:
        """Where a stored term lives."""
        if term not in self.places:
            frame = term.attrs.result if term.is_opaque else self.selection.frames[term]
            layout = self.selection.choices[term].layouts[0]
            shape = shape_of(frame)
            buffer = self.memory.buffer(self.kind(term), term.dtype, shape, layout=layout)
            self.places[term] = self.memory.place(buffer, frame)
        return self.places[term]

    def kind(self, term: Term) -> BufferKind:
        """Whether a value is made once per setting of the weights or once per run."""
        early = term.phase is not Phase.RUN and self.depth == 0
        return BufferKind.DERIVED if early else BufferKind.ARENA

    def copies_of(self, term: Term) -> list[Unit]:
        """Kernels of the prologue that store a weight in its other layouts."""
        found = []
        for number, layout in enumerate(self.selection.choices[term].layouts[1:], 1):
            frame = self.places[term].frame
            shape = shape_of(frame)
            buffer = self.memory.buffer(BufferKind.DERIVED, term.dtype, shape, layout=layout)
            place = self.others[term, number] = self.memory.place(buffer, frame)
            found.append(self.unit((), (Store(term, place, frame),)))
        return found

    def read_at(self, term: Term, numbers: set[int]) -> Place:
        """Where a kernel reads a value whose layouts `numbers` its edges ask for."""
        (number,) = numbers if len(numbers) == 1 else (0,)
        return self.others[term, number] if number else self.places[term]

    # --- steps

    def run(self) -> list[Step]:
        """All steps in an order that respects what each reads and overwrites."""
        units: list[Unit] = []
        for term in self.selection.choices:
            if self.selection.is_stored(term):
                units += self.units(term)
            units += self.copies_of(term)
        for store in self.copies:
            units.append(self.unit((), (store,)))
        return [step for unit in ordered(units) for step in unit.steps]

    def units(self, term: Term) -> list[Unit]:
        if term.op == "Loop":
            return self.loop_units(term)
        if term.op == "Scatter":
            return self.scatter_units(term)
        if term.op == "Sort":
            return self.sort_units(term)
        if term.op == "Custom":
            return self.custom_units(term)
        self.home(term)
        if self.merged.get(term, term) is not term:
            return []  # made by the last of its merge
        together = [term]
        if term in self.merged:
            together = [t for t in self.selection.choices if self.merged.get(t) is term]
        places = {t: self.home(t) for t in together}
        stores = tuple(Store(t, place, place.frame) for t, place in places.items())
        return [self.unit(tuple(together), stores)]

    def unit(self, makes: tuple[Term, ...], stores: tuple[Store, ...]) -> Unit:
        """One kernel."""
        group = self.group(stores)
        reads = frozenset(group.reads)
        early = all(
            root.phase is not Phase.RUN for store in stores for root in store.roots
        ) and self.in_derived(stores)
        return Unit(makes, reads, (KernelStep(group, early),), leaves=leaves_of(reads))

    def in_derived(self, stores: tuple[Store, ...]) -> bool:
        partition = self.memory.partition
        buffers = [partition.buffers[partition.table[s.place.operand.entry]] for s in stores]
        return all(b.kind is BufferKind.DERIVED for b in buffers)

    def group(self, stores: tuple[Store, ...]) -> Group:
        layouts: dict[Term, set[int]] = {}  # that the edges of each term read ask for
        local: set[Term] = set()
        seen: set[Term] = set()
        making = {s.term for s in stores if s.place.operand == self._operand(s.term)}
        stack = [(root, 0) for store in stores for root in reversed(store.roots)]
        while stack:
            term, number = stack.pop()
            if term in self.places and term not in making:
                layouts.setdefault(term, set()).add(number)
                continue
            if term in seen:
                continue
            seen.add(term)
            if self.selection.choices[term].residence is Residence.LOCAL:
                local.add(term)
            asked = [self.selection.reads.get((term, k), 0) for k in range(len(term.args))]
            stack.extend(reversed([*zip(term.args, asked, strict=True)]))
        reads = {term: self.read_at(term, numbers) for term, numbers in layouts.items()}
        return Group(stores, reads, frozenset(local), self.facts)

    def sort_units(self, term: Term) -> list[Unit]:
        """Both results at once; one that nobody uses gets a buffer all the same."""
        if term.attrs.site in self.done:
            return []
        self.done.add(term.attrs.site)
        used, frame = self.siblings(term), term.attrs.result
        before: list[Unit] = []
        source = self.exact(term.args[0], term.attrs.frames[0], before)
        stores = []
        for k, dtype in enumerate((term.args[0].dtype, int64)):
            if k in used:
                place = replace(self.home(used[k]), frame=used[k].attrs.result)
            else:
                buffer = self.memory.buffer(BufferKind.ARENA, dtype, shape_of(frame))
                place = self.memory.place(buffer, frame)
            stores.append(Store(term, place, place.frame))
        group = Group(tuple(stores), {term.args[0]: source}, frozenset(), self.facts)
        reads = frozenset(term.args)
        unit = Unit(tuple(used.values()), reads, (KernelStep(group),), leaves=leaves_of(reads))
        return [*before, unit]

    def custom_units(self, term: Term) -> list[Unit]:
        """A hand-written kernel, told by pointers to row-major tensors; all its results at once."""
        if term.attrs.site in self.done:
            return []
        self.done.add(term.attrs.site)
        attrs: OpaqueAttrs = term.attrs
        before: list[Unit] = []
        edges = zip(term.args, attrs.frames, strict=True)
        operands = tuple(self.row_major(arg, frame, before) for arg, frame in edges)
        used, results = self.siblings(term), []
        for k, (shape, dtype) in enumerate(attrs.hlir.types):
            if k in used:
                results.append(self.home(used[k]))
            else:
                frame = tuple((axis(f"i{d}", extent),) for d, extent in enumerate(shape))
                buffer = self.memory.buffer(BufferKind.ARENA, dtype, shape)
                results.append(self.memory.place(buffer, frame))
        step = CustomStep(attrs.hlir, operands, tuple(results))
        reads = frozenset(term.args)
        return [*before, Unit(tuple(used.values()), reads, (step,), leaves=leaves_of(reads))]

    def row_major(self, term: Term, frame: Frame, before: list[Unit]) -> Place:
        """As `exact`, but what moves with the Loop around is taken where it lies."""
        place = self.places.get(term)
        if place is not None and place.frame == frame and place.layout == ROW_MAJOR:
            return place
        return self.exact(term, frame, before)

    def _operand(self, term: Term) -> Operand | None:
        return self.places[term].operand if term in self.places else None

    def scatter_units(self, term: Term) -> list[Unit]:
        """Copy the destination (unless it is updated in place), then store the source into it."""
        attrs: OpaqueAttrs = term.attrs
        place = self.home(term)
        dest, source = term.args[:2]
        entries, add = positions(term), attrs.hlir.mode == "add"
        is_fixed = is_ordered(term)
        region = Store(source, place, attrs.frames[1], entries, is_fixed, add)
        write = self.unit((term,), (region,))
        if term in self.in_place:
            write.overwrites = leaves_of((dest,))
            return [write]
        copy = self.unit((), (Store(dest, place, attrs.frames[0]),))
        reads, steps = copy.reads | write.reads, (*copy.steps, *write.steps)
        return [Unit((term,), reads, steps, leaves=leaves_of(reads))]

    # --- Loops

    def loop_units(self, term: Term) -> list[Unit]:
        if term.attrs.site in self.done:
            return []
        self.done.add(term.attrs.site)
        attrs: OpaqueAttrs = term.attrs
        loop, body = attrs.hlir, attrs.body
        selection = self.selection.bodies[id(body)]
        choices = selection.choices.items()
        layouts = {t.attrs.value: c.layouts[0] for t, c in choices if t.is_leaf}
        before: list[Unit] = []
        operands: list[Operand] = []
        depth = self.depth + 1
        carried = [self.carry(term, k, depth, before) for k in range(loop.carried)]
        operands += [now for now, _ in carried]
        position = loop.carried
        for leaves in loop.streams:
            count = max(leaves, 1)
            args = range(position, position + count)
            layout = layouts.get(body.arguments[len(operands)], ROW_MAJOR)
            operands.append(self.stream(term, args, bool(leaves), depth, before, layout))
            position += count
        for k in range(position, len(term.args)):
            layout = layouts.get(body.arguments[len(operands)], ROW_MAJOR)
            place = self.exact(term.args[k], attrs.frames[k], before, layout)
            operands.append(place.operand)
        arguments = dict(zip(body.arguments, operands, strict=True))
        inner = _Scope(self.memory, selection, self.facts, depth, arguments)
        overwritten: list[Term] = []
        for k, root in enumerate(selection.roots):
            if k < loop.carried:
                targets = [carried[k][1]]
            else:
                targets = self.results(term, k, inner, overwritten)
            for target in targets:
                inner.settle(root.term, Place(target, root.term.dtype, root.frame), root)
        step = LoopStep(loop.trips, tuple(inner.run()))
        reads = frozenset(term.args)
        makes = tuple(self.siblings(term).values())
        leaves = leaves_of(reads)
        return [*before, Unit(makes, reads, (step,), leaves_of(overwritten), leaves)]

    def siblings(self, term: Term) -> dict[int, Term]:
        """The results of the same operation in use, by number."""
        same = (
            t for t in self.selection.choices if t.is_opaque and t.attrs.site == term.attrs.site
        )
        return {t.attrs.index: t for t in same}

    def carry(self, term: Term, k: int, depth: int, before: list[Unit]) -> tuple[Operand, Operand]:
        """Where an iteration reads a carried value, and where it writes the next one.

        The first is where the value starts, the last the result's home, between them two buffers
        take turns. Trips that vary know two buffers only; the start is copied into one.
        """
        frame, init, trips = term.attrs.frames[k], term.args[k], term.attrs.hlir.trips
        memory, table = self.memory, self.memory.partition.table
        final = self.siblings(term).get(k)

        def turns(count: int) -> list[int]:
            made = [memory.buffer(BufferKind.ARENA, init.dtype, shape_of(frame)) for _ in range(2)]
            return [made[t % 2] for t in range(count)]

        if _varies(trips):
            entry = memory.entry(*turns(2))
            first = Place(Operand(entry), init.dtype, frame)
            before.append(self.unit((), (Store(init, first, frame),)))
            if final is not None:
                after = Operand(entry, 0, trips, 2)
                self.places[final] = Place(after, init.dtype, final.attrs.result)
            return Operand(entry, depth, const(0), 2), Operand(entry, depth, const(1), 2)
        start, count = self.exact(init, frame, before), trips.value
        buffers = [table[start.operand.entry], *turns(count)]
        if final is not None and final in self.places:
            buffers[-1] = table[self.places[final].operand.entry]
        entry = memory.entry(*buffers)
        if final is not None and final not in self.places:
            self.places[final] = Place(Operand(entry + count), init.dtype, final.attrs.result)
        now, following = (Operand(entry + k, depth, const(0), count) for k in range(2))
        return now, following

    def stream(
        self,
        term: Term,
        args: range,
        listed: bool,
        depth: int,
        before: list[Unit],
        layout: Layout,
    ) -> Operand:
        """A tensor walked along its leading axis, or a list of tensors in one layout."""
        frames = term.attrs.frames
        if listed:
            copied = self.copied_list(term, args, depth, before, layout)
            if copied is not None:
                return copied
        places = [self.exact(term.args[k], frames[k], before, layout) for k in args]
        if listed:
            buffers = [self.memory.partition.table[p.operand.entry] for p in places]
            return Operand(self.memory.entry(*buffers), depth, const(0), len(buffers))
        (place,) = places
        size = const(place.dtype.size)
        for extent in place.shape[1:]:
            size = size * extent
        return Operand(place.operand.entry, depth, const(0), 1, size)

    def copied_list(
        self, term: Term, args: range, depth: int, before: list[Unit], layout: Layout
    ) -> Operand | None:
        """Copies in another layout of a list of weights that lie alike: one kernel in a Loop."""
        leaves, count = [term.args[k] for k in args], len(args)
        places = [self.places.get(leaf) for leaf in leaves]
        frames = [term.attrs.frames[k] for k in args]
        kinds = {(p.layout, p.frame == f) for p, f in zip(places, frames, strict=True) if p}
        is_given = all(t.is_leaf and t.phase is not Phase.RUN for t in leaves)
        if not is_given or self.depth or len(kinds) != 1 or not all(places):
            return None
        ((given, in_frame),) = kinds
        if given == layout or not in_frame:
            return None
        memory, first, frame = self.memory, leaves[0], frames[0]
        shape, table = shape_of(frame), memory.partition.table
        made = [
            memory.buffer(BufferKind.DERIVED, first.dtype, shape, layout=layout) for _ in leaves
        ]
        lists = [[table[p.operand.entry] for p in places if p], made]
        source, target = (Operand(memory.entry(*each), 1, const(0), count) for each in lists)
        store = Store(first, Place(target, first.dtype, frame, layout), frame)
        read = Place(source, first.dtype, frame, given)
        copy = KernelStep(Group((store,), {first: read}, frozenset(), self.facts), early=True)
        step = LoopStep(const(count), (copy,), early=True)
        before.append(Unit((), frozenset(leaves), (step,), leaves=leaves_of(leaves)))
        return Operand(target.entry, depth, const(0), count)

    def exact(
        self, term: Term, frame: Frame, before: list[Unit], layout: Layout = ROW_MAJOR
    ) -> Place:
        """A place that holds `term` in just this frame and layout, copied there if need be."""
        place = self.places.get(term)
        fixed = place is not None and _is_fixed(place.operand)
        if place is not None and fixed and (place.frame, place.layout) == (frame, layout):
            return place
        key = (term, frame, layout)
        if key not in self.materialised:
            shape = shape_of(frame)
            repeated = not all(extent.is_const for extent in shape)  # along an axis of a run
            kind = BufferKind.ARENA if repeated else self.kind(term)
            buffer = self.memory.buffer(kind, term.dtype, shape, layout=layout)
            self.materialised[key] = self.memory.place(buffer, frame)
            before.append(self.unit((), (Store(term, self.materialised[key], frame),)))
        return self.materialised[key]

    def results(self, term: Term, k: int, inner: _Scope, overwritten: list[Term]) -> list[Operand]:
        """Where the body's y goes: the slices of a tensor, the States that it is bound to."""
        memory, depth, root = self.memory, inner.depth, inner.selection.roots[k]
        dtype, shape = root.term.dtype, shape_of(root.frame)
        targets = []
        loop = term.attrs.hlir
        states = loop.assigned[k - loop.carried]
        if states is not None:
            old = self.updated(term, states, inner, root)
            if old:
                overwritten += old
                inner.in_place.add(root.term)
                kind = BufferKind.STATE
            else:
                memory.partition.swaps += states
                kind = BufferKind.NEXT
            own = [memory.buffer(kind, dtype, shape, state) for state in states]
            targets.append(Operand(memory.entry(*own), depth, const(0), len(own)))
        used = self.siblings(term).get(k)
        if used is not None or states is None:
            size = const(dtype.size)
            for extent in shape:
                size = size * extent
            if used is not None and used.attrs.result == self.home(used).frame:
                entry = self.home(used).operand.entry
            else:
                whole = (loop.trips, *shape)
                entry = memory.entry(memory.buffer(BufferKind.ARENA, dtype, whole))
            targets.append(Operand(entry, depth, const(0), 1, size))
        return targets

    def updated(
        self, term: Term, states: tuple[State, ...], inner: _Scope, root: Root
    ) -> list[Term]:
        """The leaves of a list of States that each iteration overwrites where they lie: it scatters
        into one of them, and whatever else reads it can run before.
        """
        if self.may_fail or root.term in inner.places or root.term.op != "Scatter":
            return []
        slice_ = root.term.args[0]
        if not slice_.is_leaf or not updates(inner.selection, inner.users, root, slice_):
            return []
        operand = inner.places[slice_].operand
        table, memory = self.memory.partition.table, self.memory
        entries = range(operand.entry, operand.entry + operand.modulus)
        lying = [memory.partition.buffers[table[entry]].owner for entry in entries]
        leaves = {t: state_of(t) for t in term.args if t.is_leaf and state_of(t) in states}
        if lying != list(states) or sum(t in leaves for t in term.args) != len(states):
            return []
        makers = frozenset(self.siblings(term).values())
        free = (is_read_before(self.selection, self.users, leaf, makers) for leaf in leaves)
        return [*leaves] if all(free) else []


def _is_fixed(operand: Operand) -> bool:
    """Is this one buffer, whatever the iteration?"""
    return operand.depth == 0 and operand.modulus == 1


def _varies(trips: Expression) -> bool:
    """Is the number of trips known at run time only, or none at all?"""
    return not trips.is_const or trips.value == 0


def _may_be_empty(axis: Symbol) -> bool:
    assert axis.extent is not None
    lo = axis.extent.interval.lo
    return lo is None or lo < 1
