"""Where a Loop's operands and results lie, iteration by iteration: the scope of its body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from luminal.algebra.frames import shape_of
from luminal.algebra.lower import Root
from luminal.algebra.terms import Frame, OpaqueAttrs, Phase, Term
from luminal.hlir.attributes import LoopAttrs
from luminal.kernel.fused import Fused, Place, Store
from luminal.kernel.layout import ROW_MAJOR, Layout
from luminal.memory.state import Assignable
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Operand
from luminal.program.scope import Scope, is_varying
from luminal.program.steps import LoopStep, NestStep, Unit, leaves_of, state_of
from luminal.shape.expression import Expression, const

Edge = tuple[Term, Frame]  # an operand, and its dimensions as the Loop has them


class BoundLoop:
    """A Loop with every operand and result in its place.

    `before`: what copies operands to where iterations read them; `bases`: values that are read in
    place of operands, which are their slices in another order; `overwritten`: the leaves, States
    all of them, that iterations update in place.
    """

    def __init__(self, outer: Scope, term: Term) -> None:
        self.outer = outer
        self.memory = outer.memory
        self.term = term
        self.depth = outer.depth + 1
        self.loop: LoopAttrs = term.attrs.hlir
        self.results = outer.siblings(term)
        self.held = [(state_of(leaf), leaf) for leaf in term.args if leaf.is_leaf]
        self.before: list[Unit] = []
        self.bases: list[Term] = []
        self.overwritten: list[Term] = []
        self.body = self._scope()

    def _scope(self) -> Scope:
        """The scope of the body, with all its roots settled."""
        attrs: OpaqueAttrs = self.term.attrs
        loop, outer, body = self.loop, self.outer, attrs.body
        selection = outer.selection.bodies[id(body)]
        choices = selection.choices.items()
        layouts = {t.attrs.value: choice.layouts[0] for t, choice in choices if t.is_leaf}
        wanted = [layouts.get(argument, ROW_MAJOR) for argument in body.arguments]
        edges = [*zip(self.term.args, attrs.frames, strict=True)]
        initial, streams, invariants = loop.split(edges)
        carried = [self._carry(k, *edge) for k, edge in enumerate(initial)]
        # In the order of the body's arguments, so that
        # the next one's layout is found by their count.
        operands = [now for now, _ in carried]
        for count, leaves in zip(loop.streams, streams, strict=True):
            layout = wanted[len(operands)]
            place = self._list(leaves, layout) if count else self._slices(leaves[0], layout)
            operands.append(place)
        for term, frame in invariants:
            place = outer.exact(term, frame, self.before, wanted[len(operands)]).operand
            operands.append(place)
        arguments = dict(zip(body.arguments, operands, strict=True))
        inner = Scope(self.memory, selection, outer.facts, self.depth, outer.may_fail, arguments)
        for k, root in enumerate(selection.roots):
            targets = [carried[k][1]] if k < loop.carried else self._targets(k, root, inner)
            for target in targets:
                inner.settle(root.term, Place(target, root.term.dtype, root.frame), root)
        return inner

    # --- operands

    # The trips of a carried value: where it starts, two buffers in turns, the result's own home at
    # the end. So nothing is copied into a Loop or out of it; with one buffer each trip would copy.
    def _carry(self, k: int, init: Term, frame: Frame) -> tuple[Operand, Operand]:
        """The place from which an iteration reads a carried value, and the one to which it writes
        the next.

        The first is where the value starts, the last the result's home, between them two buffers
        take turns. Trips that vary know two buffers only; the start is copied into one.
        """
        memory, trips, depth = self.memory, self.loop.trips, self.depth
        table, places, final = memory.partition.table, self.outer.places, self.results.get(k)

        def turns(count: int) -> list[int]:
            # Two: a body may still read the old value when it has begun to write the new one.
            buffers_in_turn = [
                memory.buffer(BufferKind.ARENA, init.dtype, shape_of(frame)) for _ in range(2)
            ]
            return [buffers_in_turn[t % 2] for t in range(count)]

        if is_varying(trips):
            entry = memory.entry(*turns(2))
            first = Place(Operand(entry), init.dtype, frame)
            self.before.append(self.outer.unit((), (Store(init, first, frame),)))
            if final is not None:
                after = Operand(entry, 0, trips, 2)
                places[final] = Place(after, init.dtype, final.attrs.result)
            return Operand(entry, depth, const(0), 2), Operand(entry, depth, const(1), 2)
        start, count = self.outer.exact(init, frame, self.before), trips.value
        buffers = [table[start.operand.entry], *turns(count)]
        # A value lives where it is first settled: the last trip writes there.
        if final is not None and final in places:
            buffers[-1] = table[places[final].operand.entry]
        entry = memory.entry(*buffers)
        if final is not None and final not in places:
            places[final] = Place(Operand(entry + count), init.dtype, final.attrs.result)
        # One list, read at trip t and written at t + 1: nothing is copied from trip to trip.
        now, following = (Operand(entry + n, depth, const(0), count) for n in (0, 1))
        return now, following

    def _slices(self, edge: Edge, layout: Layout) -> Operand:
        """A tensor walked along its leading axis, or along that of another one which it reads at
        every step-th slice, forwards or backwards.
        """
        stepped = self._steps_of(*edge, layout)
        if stepped is not None:
            return stepped
        place = self.outer.exact(*edge, self.before, layout)
        return self._walked(place.operand.entry, place.dtype.size, place.shape[1:])

    def _steps_of(self, term: Term, frame: Frame, layout: Layout) -> Operand | None:
        if term.op != "At" or len(term.attrs) != 1 or len(term.args) != 1 or len(frame[0]) != 1:
            return None
        ((old, position),), base, (lead,) = term.attrs, term.args[0], frame[0]
        place = self.outer.stored_place(base)
        if place is None or place.layout != layout or place.frame != ((old,), *frame[1:]):
            return None
        factor = position.coefficient(lead)
        start = None if factor is None else position - factor * lead
        # A launch knows the dims of a start, but no position that moves.
        if factor is None or start is None or any(s.extent is not None for s in start.symbols()):
            return None
        self.bases.append(base)
        operand = self._walked(place.operand.entry, place.dtype.size, place.shape[1:])
        return replace(operand, stride=operand.stride * factor, start=operand.stride * start)

    def _walked(self, entry: int, size: int, shape: Sequence[Expression]) -> Operand:
        """The operand that is one slice of this shape an iteration."""
        stride = const(size)
        for extent in shape:
            stride = stride * extent
        return Operand(entry, self.depth, const(0), 1, stride)

    def _list(self, edges: Sequence[Edge], layout: Layout) -> Operand:
        """A list of tensors in one layout, one an iteration."""
        copied = self._copied_list(edges, layout)
        if copied is not None:
            return copied
        places = [self.outer.exact(term, frame, self.before, layout) for term, frame in edges]
        buffers = [self.memory.partition.table[place.operand.entry] for place in places]
        return Operand(self.memory.entry(*buffers), self.depth, const(0), len(buffers))

    def _copied_list(self, edges: Sequence[Edge], layout: Layout) -> Operand | None:
        """Copies in another layout of a list of weights that lie alike: one kernel in a Loop."""
        # Twenty-two layers have twenty-two weights that want the same copy: as one kernel in a Loop
        # they compile once. That needs sources that lie alike, since one kernel reads all of them.
        outer, count = self.outer, len(edges)
        leaves = [term for term, _ in edges]
        places = [outer.places.get(leaf) for leaf in leaves]
        placed_edges = zip(places, edges, strict=True)
        kinds = {
            (place.layout, place.frame == frame) for place, (_, frame) in placed_edges if place
        }
        is_given = all(leaf.is_leaf and leaf.phase is not Phase.RUN for leaf in leaves)
        if not is_given or outer.depth or len(kinds) != 1 or not all(places):
            return None
        ((read_layout, in_frame),) = kinds
        if read_layout == layout or not in_frame:
            return None
        memory, (first, frame) = self.memory, edges[0]
        shape, table = shape_of(frame), memory.partition.table
        copies = [
            memory.buffer(BufferKind.DERIVED, first.dtype, shape, layout=layout) for _ in leaves
        ]
        lists = [[table[place.operand.entry] for place in places if place], copies]
        source, target = (Operand(memory.entry(*buffers), 1, const(0), count) for buffers in lists)
        store = Store(first, Place(target, first.dtype, frame, layout), frame)
        read = Place(source, first.dtype, frame, read_layout)
        copy = NestStep(Fused((store,), {first: read}, frozenset(), outer.facts))
        step = LoopStep(const(count), (copy,))
        read_leaves = leaves_of(leaves)
        self.before.append(Unit((), frozenset(leaves), (step,), leaves=read_leaves, early=True))
        return Operand(target.entry, self.depth, const(0), count)

    # --- results

    def _targets(self, k: int, root: Root, inner: Scope) -> list[Operand]:
        """The places where the body's y goes: the slices of a tensor, the States that it is bound
        to.
        """
        memory, dtype, shape = self.memory, root.term.dtype, shape_of(root.frame)
        targets = []
        states, used = self.loop.assigned[k - self.loop.carried], self.results.get(k)
        if states is not None:
            old = self._updated(states, inner, root)
            if old:
                self.overwritten += old
                kind = BufferKind.STATE
            else:
                memory.partition.swaps += states
                kind = BufferKind.NEXT
            state_buffers = [memory.buffer(kind, dtype, shape, state) for state in states]
            targets.append(
                Operand(memory.entry(*state_buffers), self.depth, const(0), len(state_buffers))
            )
        if used is not None or states is None:
            if used is not None and used.attrs.result == self.outer.home(used).frame:
                entry = self.outer.home(used).operand.entry
            else:
                whole = (self.loop.trips, *shape)
                entry = memory.entry(memory.buffer(BufferKind.ARENA, dtype, whole))
            targets.append(self._walked(entry, dtype.size, shape))
        return targets

    def _updated(self, states: tuple[Assignable, ...], inner: Scope, root: Root) -> list[Term]:
        """The leaves of a list of States that each iteration overwrites where they lie: it scatters
        into one of them, and whatever else reads it can run before.
        """
        asked = set(states)
        leaves = [leaf for state, leaf in self.held if state in asked]
        table, buffers = self.memory.partition.table, self.memory.partition.buffers

        def is_list(slice_: Term) -> bool:
            """Is it, trip by trip, one of these States, which the Loop has no other use for?"""
            operand = inner.places[slice_].operand
            entries = range(operand.entry, operand.entry + operand.modulus)
            # In this order too: trips that read one State and wrote another one would overwrite
            # what a later trip still reads.
            return (
                [buffers[table[n]].owner for n in entries]
                == list(states)
                == [state_of(leaf) for leaf in leaves]
            )

        if inner.overwritten(root, is_list) is None:
            return []
        return leaves if self.outer.readers.run_before(self.term, leaves) else []
