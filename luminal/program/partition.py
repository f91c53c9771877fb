"""Partition: a Selection becomes steps, each one kernel or Loop, and the buffers they share.

A kernel is a group of stored values with all that is inlined or local below them. Everything here
is a function of the Selection: buffers, who writes them, the order of the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from luminal.algebra.frames import shape_of
from luminal.algebra.lower import Lowered, Root
from luminal.algebra.scatter import is_ordered, positions
from luminal.algebra.terms import Frame, OpaqueAttrs, Phase, Term
from luminal.dtypes import int64
from luminal.errors import CompileError
from luminal.hlir.attributes import ConstantAttrs, InputAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Graph, Output
from luminal.hlir.ops import Value
from luminal.hlir.state import State
from luminal.kernel.group import Group, Place, Store
from luminal.program.buffers import Buffer, BufferKind, Owner
from luminal.program.launch_list import Operand, ProgramOutput
from luminal.program.selection import Residence, Selection
from luminal.shape.expression import Expression, Symbol, const


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One kernel to place. `early`: it depends on Weights and literals only (the prologue)."""

    group: Group
    early: bool = False


@dataclass(frozen=True, slots=True)
class LoopStep:
    """`trips` runs of the steps of a Loop body."""

    trips: Expression
    body: tuple[Step, ...]


Step = KernelStep | LoopStep


@dataclass(slots=True)
class Partition:
    """The steps of a program in order, with its buffers and table (see `launch_list.Program`)."""

    steps: list[Step] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    outputs: list[ProgramOutput] = field(default_factory=list)
    swaps: list[State] = field(default_factory=list)


def partition(graph: Graph, selection: Selection) -> Partition:
    """The steps and buffers that a selection asks for."""
    memory = _Memory()
    scope = _Scope(memory, selection, graph.requirements, 0)
    for root in selection.roots:
        scope.sink(root)
    result = memory.partition
    result.steps = scope.run()
    return result


class _Memory:
    """Buffers and table entries, shared by the program and its Loop bodies."""

    def __init__(self) -> None:
        self.partition = Partition()
        self.owned: dict[tuple[BufferKind, Owner], int] = {}
        self.entries: dict[tuple[int, ...], int] = {}

    def buffer(
        self, kind: BufferKind, dtype: Any, shape: Sequence[Expression], owner: Owner = None
    ) -> int:
        """A new buffer; the same one for the same owner."""
        if owner is not None and (kind, owner) in self.owned:
            return self.owned[kind, owner]
        number = len(self.partition.buffers)
        self.partition.buffers.append(Buffer(number, kind, dtype, tuple(shape), owner=owner))
        if owner is not None:
            self.owned[kind, owner] = number
        return number

    def entry(self, *buffers: int) -> int:
        """Consecutive table entries for buffers; the first one's number."""
        if buffers not in self.entries:
            self.entries[buffers] = len(self.partition.table)
            self.partition.table.extend(buffers)
        return self.entries[buffers]

    def place(self, buffer: int, frame: Frame) -> Place:
        return Place(Operand(self.entry(buffer)), self.partition.buffers[buffer].dtype, frame)


@dataclass(slots=True)
class _Unit:
    """Steps in the making: which stored values they read and make."""

    makes: tuple[Term, ...]
    reads: frozenset[Term]
    steps: tuple[Step, ...]
    in_place: State | None = None  # it overwrites this State's value
    old: frozenset[State] = frozenset()  # it reads the value these States start with


class _Scope:
    """One list of steps: the program's or a Loop body's."""

    def __init__(
        self,
        memory: _Memory,
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
        self.places: dict[Term, Place] = {}
        self.copies: list[Store] = []  # sinks of values that live elsewhere
        self.in_place: dict[Term, State] = {}
        self.done: set[int] = set()  # sites of Sorts and Loops with several results
        self.materialised: dict[tuple[Term, Frame], Place] = {}
        order = {term: k for k, term in enumerate(selection.choices)}
        self.merged = {t: max(m, key=order.__getitem__) for m in selection.merges for t in m}
        for term in selection.choices:
            if term.is_leaf:
                self.places[term] = self.leaf(term)

    # --- where values live

    def leaf(self, term: Term) -> Place:
        value, frame = term.attrs
        if value in self.arguments:
            return Place(self.arguments[value], term.dtype, frame)
        kind, owner = _owner(value)
        return self.memory.place(self.memory.buffer(kind, value.dtype, value.shape, owner), frame)

    def settle(self, term: Term, place: Place, root: Root) -> None:
        """A sink's buffer becomes the home of its value, or gets a copy of it."""
        elsewhere = term.phase is not Phase.RUN and self.depth == 0  # in the prologue
        if term.is_opaque:
            turns = term.op == "Loop" and term.attrs.index < term.attrs.hlir.carried
            elsewhere = turns or root.frame != term.attrs.result
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
                if root.term.is_leaf and _state_of(root.term) is state:
                    return  # assigned to itself
                if self.updates(root, state):
                    buffer = memory.buffer(BufferKind.STATE, root.term.dtype, shape, state)
                    self.in_place[root.term] = state
                else:
                    buffer = memory.buffer(BufferKind.NEXT, root.term.dtype, shape, state)
                    memory.partition.swaps.append(state)
        self.settle(root.term, memory.place(buffer, root.frame), root)

    def updates(self, root: Root, state: State) -> bool:
        """Can the State be overwritten in place: a Scatter into its own old value, which nobody who
        depends on the new value still reads?
        """
        term = root.term
        if term.op != "Scatter" or not term.args[0].is_leaf or term in self.places:
            return False
        if _state_of(term.args[0]) is not state or root.frame != term.attrs.result:
            return False
        if term.args[0].attrs.frame != term.attrs.frames[0]:
            return False
        after: set[Term] = {term}
        for user in self.selection.choices:
            if not after.isdisjoint(user.args):
                after.add(user)
        for user in after:
            stored = user is not term and self.selection.is_stored(user)
            if stored and term.args[0] in self.inlined(user.args):
                return False
        return term.args[0] not in self.inlined(term.args[1:])

    def inlined(self, roots: Iterable[Term]) -> set[Term]:
        """The terms that a kernel computing `roots` reads or computes."""
        seen: set[Term] = set()
        stack = list(roots)
        while stack:
            term = stack.pop()
            if term not in seen:
                seen.add(term)
                stack.extend(() if self.selection.is_stored(term) else term.args)
        return seen

    def home(self, term: Term) -> Place:
        """Where a stored term lives."""
        if term not in self.places:
            frame = term.attrs.result if term.is_opaque else self.selection.frames[term]
            early = term.phase is not Phase.RUN and self.depth == 0
            kind = BufferKind.DERIVED if early else BufferKind.ARENA
            shape = shape_of(frame)
            self.places[term] = self.memory.place(
                self.memory.buffer(kind, term.dtype, shape), frame
            )
        return self.places[term]

    # --- steps

    def run(self) -> list[Step]:
        """All steps in an order that respects what each reads and overwrites."""
        units: list[_Unit] = []
        for term in self.selection.choices:
            if self.selection.is_stored(term):
                units += self.units(term)
        for store in self.copies:
            units.append(self.unit((), (store,)))
        return [step for unit in _ordered(units) for step in unit.steps]

    def units(self, term: Term) -> list[_Unit]:
        if term.op == "Loop":
            return self.loop_units(term)
        if term.op == "Scatter":
            return self.scatter_units(term)
        if term.op == "Sort":
            return self.sort_units(term)
        if term.op == "Custom":
            raise CompileError(f"Custom kernel {term.attrs.hlir.kernel.name}: not on this backend")
        self.home(term)
        if self.merged.get(term, term) is not term:
            return []  # made by the last of its merge
        together = [term]
        if term in self.merged:
            together = [t for t in self.selection.choices if self.merged.get(t) is term]
        places = {t: self.home(t) for t in together}
        stores = tuple(Store(t, place, place.frame) for t, place in places.items())
        return [self.unit(tuple(together), stores)]

    def unit(self, makes: tuple[Term, ...], stores: tuple[Store, ...]) -> _Unit:
        """One kernel."""
        group = self.group(stores)
        reads = frozenset(group.reads)
        early = all(
            root.phase is not Phase.RUN for store in stores for root in store.roots
        ) and self.in_derived(stores)
        return _Unit(makes, reads, (KernelStep(group, early),), None, _states(reads))

    def in_derived(self, stores: tuple[Store, ...]) -> bool:
        partition = self.memory.partition
        buffers = [partition.buffers[partition.table[s.place.operand.entry]] for s in stores]
        return all(b.kind is BufferKind.DERIVED for b in buffers)

    def group(self, stores: tuple[Store, ...]) -> Group:
        reads: dict[Term, Place] = {}
        local: set[Term] = set()
        seen: set[Term] = set()
        making = {s.term for s in stores if s.place.operand == self._operand(s.term)}
        stack = [root for store in stores for root in reversed(store.roots)]
        while stack:
            term = stack.pop()
            if term in seen:
                continue
            seen.add(term)
            if term in self.places and term not in making:
                reads[term] = self.places[term]
                continue
            if self.selection.choices[term].residence is Residence.LOCAL:
                local.add(term)
            stack.extend(reversed(term.args))
        return Group(stores, reads, frozenset(local), self.facts)

    def sort_units(self, term: Term) -> list[_Unit]:
        """Both results at once; one that nobody uses gets a buffer all the same."""
        if term.attrs.site in self.done:
            return []
        self.done.add(term.attrs.site)
        used, frame = self.siblings(term), term.attrs.result
        before: list[_Unit] = []
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
        unit = _Unit(tuple(used.values()), reads, (KernelStep(group),), None, _states(reads))
        return [*before, unit]

    def _operand(self, term: Term) -> Operand | None:
        return self.places[term].operand if term in self.places else None

    def scatter_units(self, term: Term) -> list[_Unit]:
        """Copy the destination (unless it is updated in place), then store the source into it."""
        attrs: OpaqueAttrs = term.attrs
        place = self.home(term)
        dest, source = term.args[:2]
        entries, add = positions(term), attrs.hlir.mode == "add"
        ordered = is_ordered(term)
        region = Store(source, place, attrs.frames[1], entries, ordered, add)
        write = self.unit((term,), (region,))
        state = self.in_place.get(term)
        if state is not None:
            write.in_place = state
            return [write]
        copy = self.unit((), (Store(dest, place, attrs.frames[0]),))
        reads, steps = copy.reads | write.reads, (*copy.steps, *write.steps)
        return [_Unit((term,), reads, steps, None, copy.old | write.old)]

    # --- Loops

    def loop_units(self, term: Term) -> list[_Unit]:
        if term.attrs.site in self.done:
            return []
        self.done.add(term.attrs.site)
        attrs: OpaqueAttrs = term.attrs
        loop = attrs.hlir
        before: list[_Unit] = []
        operands: list[Operand] = []
        depth = self.depth + 1
        carried = [self.carry(term, k, before) for k in range(loop.carried)]
        operands += [Operand(pair, depth, const(0), 2) for pair in carried]
        position = loop.carried
        for leaves in loop.streams:
            count = max(leaves, 1)
            args = range(position, position + count)
            operands.append(self.stream(term, args, bool(leaves), depth, before))
            position += count
        for k in range(position, len(term.args)):
            operands.append(self.exact(term.args[k], attrs.frames[k], before).operand)
        body: Lowered = attrs.body
        arguments = dict(zip(body.arguments, operands, strict=True))
        selection = self.selection.bodies[id(body)]
        inner = _Scope(self.memory, selection, self.facts, depth, arguments)
        for k, root in enumerate(selection.roots):
            for target in self.results(term, k, carried, root, depth):
                inner.settle(root.term, Place(target, root.term.dtype, root.frame), root)
        step = LoopStep(loop.trips, tuple(inner.run()))
        reads = frozenset(a for a in term.args)
        makes = tuple(self.siblings(term).values())
        return [*before, _Unit(makes, reads, (step,), None, _states(reads))]

    def siblings(self, term: Term) -> dict[int, Term]:
        """The results of the same Loop or Sort in use, by number."""
        same = (
            t for t in self.selection.choices if t.is_opaque and t.attrs.site == term.attrs.site
        )
        return {t.attrs.index: t for t in same}

    def carry(self, term: Term, k: int, before: list[_Unit]) -> int:
        """The two buffers of a carried value that take turns; the initial value is copied in."""
        frame = term.attrs.frames[k]
        init = term.args[k]
        shape = shape_of(frame)
        pair = [self.memory.buffer(BufferKind.ARENA, init.dtype, shape) for _ in range(2)]
        entry = self.memory.entry(*pair)
        first = Place(Operand(entry), init.dtype, frame)
        before.append(self.unit((), (Store(init, first, frame),)))
        final = self.siblings(term).get(k)
        if final is not None:
            after = Operand(entry, 0, term.attrs.hlir.trips, 2)
            self.places[final] = Place(after, init.dtype, final.attrs.result)
        return entry

    def stream(
        self, term: Term, args: range, listed: bool, depth: int, before: list[_Unit]
    ) -> Operand:
        """A tensor walked along its leading axis, or a list of tensors."""
        places = [self.exact(term.args[k], term.attrs.frames[k], before) for k in args]
        if listed:
            buffers = [self.memory.partition.table[p.operand.entry] for p in places]
            return Operand(self.memory.entry(*buffers), depth, const(0), len(buffers))
        (place,) = places
        size = const(place.dtype.size)
        for extent in place.shape[1:]:
            size = size * extent
        return Operand(place.operand.entry, depth, const(0), 1, size)

    def exact(self, term: Term, frame: Frame, before: list[_Unit]) -> Place:
        """A place that holds `term` row-major in just this frame, copied there if need be."""
        place = self.places.get(term)
        fixed = place is not None and place.operand.depth == 0 and place.operand.modulus == 1
        if place is not None and place.frame == frame and fixed:
            return place
        key = (term, frame)
        if key not in self.materialised:
            shape = shape_of(frame)
            buffer = self.memory.buffer(BufferKind.ARENA, term.dtype, shape)
            self.materialised[key] = self.memory.place(buffer, frame)
            before.append(self.unit((), (Store(term, self.materialised[key], frame),)))
        return self.materialised[key]

    def results(
        self, term: Term, k: int, carried: list[int], root: Root, depth: int
    ) -> list[Operand]:
        """Where the body's result k goes: the carried value's other buffer, or the slices of a y
        and the States that it is bound to.
        """
        if k < len(carried):
            return [Operand(carried[k], depth, const(1), 2)]
        memory, dtype, shape = self.memory, root.term.dtype, shape_of(root.frame)
        targets = []
        states = term.attrs.hlir.assigned[k - len(carried)]
        if states is not None:
            own = [memory.buffer(BufferKind.NEXT, dtype, shape, state) for state in states]
            memory.partition.swaps += states
            targets.append(Operand(memory.entry(*own), depth, const(0), len(own)))
        used = self.siblings(term).get(k)
        if used is not None or states is None:
            size = const(dtype.size)
            for extent in shape:
                size = size * extent
            if used is not None and used.attrs.result == self.home(used).frame:
                entry = self.home(used).operand.entry
            else:
                whole = (term.attrs.hlir.trips, *shape)
                entry = memory.entry(memory.buffer(BufferKind.ARENA, dtype, whole))
            targets.append(Operand(entry, depth, const(0), 1, size))
        return targets


def _owner(leaf: Value) -> tuple[BufferKind, Owner]:
    """Whose memory holds a leaf."""
    match leaf.node.attrs:
        case InputAttrs(name=name):
            return BufferKind.INPUT, name
        case WeightAttrs() as weight:
            return BufferKind.WEIGHT, weight
        case StateAttrs(state=state):
            return BufferKind.STATE, state
        case ConstantAttrs() as literal:
            return BufferKind.CONSTANT, literal
    raise AssertionError(leaf)


def _may_be_empty(axis: Symbol) -> bool:
    assert axis.extent is not None
    lo = axis.extent.interval.lo
    return lo is None or lo < 1


def _state_of(term: Term) -> State | None:
    attrs = term.attrs.value.node.attrs
    return attrs.state if term.attrs.value.node.op.name == "State" else None


def _states(reads: Iterable[Term]) -> frozenset[State]:
    return frozenset(s for t in reads if t.is_leaf and (s := _state_of(t)) is not None)


def _ordered(units: list[_Unit]) -> list[_Unit]:
    """Stable topological order: makers before readers, readers of old values before overwriters."""
    makers = {term: unit for unit in units for term in unit.makes}
    number = {id(unit): k for k, unit in enumerate(units)}
    needs: dict[int, list[_Unit]] = {}
    for unit in units:
        waits = [makers[t] for t in unit.reads if t in makers and makers[t] is not unit]
        if unit.in_place is not None:
            waits += [u for u in units if unit.in_place in u.old and u is not unit]
        needs[id(unit)] = sorted(waits, key=lambda u: number[id(u)])
    order: list[_Unit] = []
    done: set[int] = set()
    for first in units:
        stack = [first]
        while stack:
            unit = stack[-1]
            waiting = [u for u in needs[id(unit)] if id(u) not in done]
            if id(unit) in done or not waiting:
                if id(unit) not in done:
                    done.add(id(unit))
                    order.append(unit)
                stack.pop()
            else:
                stack.extend(reversed(waiting))
    return order
