"""Partition: a Selection becomes steps, each one kernel or Loop, and the buffers they share.

Everything here is a function of the Selection: buffers, who writes them, the order of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from luminal.algebra.frames import shape_of
from luminal.algebra.lower import Root
from luminal.algebra.scatter import ordered_axes, positions
from luminal.algebra.terms import Frame, OpaqueAttrs, Term, below
from luminal.base.dtypes import int64
from luminal.hlir.attributes import AxisAttrs
from luminal.hlir.graph import Assign, Graph, Output
from luminal.kernel.fused import Fused, Store
from luminal.program import whole_buffers
from luminal.program.bound_loop import BoundLoop
from luminal.program.buffers import BufferKind
from luminal.program.in_place import calls_python
from luminal.program.launch_list import ProgramOutput
from luminal.program.memory import Memory
from luminal.program.order import ordered
from luminal.program.scope import Scope
from luminal.program.selection import Selection
from luminal.program.steps import (
    LoopStep,
    Partition,
    SortStep,
    Unit,
    leaves_of,
    state_of,
)


# Nothing is decided here: which values are stored, in which order their axes lie, and what shares a
# kernel is all in the Selection. So a search can change any of it, and a text can say all of it.
def partition(graph: Graph, selection: Selection) -> Partition:
    """The steps and buffers that a selection asks for."""
    memory = Memory()
    scope = Scope(memory, selection, graph.requirements, 0, calls_python(selection))
    # Sinks first: what a sink's buffer may hold is computed into it, and everyone reads it there.
    for root in selection.roots:
        _sink(scope, root)
    result = memory.partition
    for unit in _ordered(scope):
        (result.prologue if unit.early else result.steps).extend(unit.steps)
    return result


def _sink(scope: Scope, root: Root) -> None:
    """The buffer of an output or of a State's next value."""
    if root.sink is None:
        return
    memory = scope.memory
    shape = shape_of(root.frame)
    match root.sink:
        case Output(_, name, hidden):
            buffer = memory.buffer(BufferKind.OUTPUT, root.term.dtype, shape, name)
            memory.partition.outputs.append(ProgramOutput(name, buffer, hidden))
        case Assign(state):
            term = root.term
            if term.is_leaf and state_of(term) is state and term.attrs.frame == root.frame:
                return  # assigned to itself
            if scope.overwritten(root, lambda leaf: state_of(leaf) is state) is not None:
                buffer = memory.buffer(BufferKind.STATE, root.term.dtype, shape, state)
            else:
                # The old value may still be read in this run; the new one takes its place after it.
                buffer = memory.buffer(BufferKind.NEXT, root.term.dtype, shape, state)
                memory.partition.swaps.append(state)
    scope.settle(root.term, memory.place(buffer, root.frame), root)


def _ordered(scope: Scope) -> list[Unit]:
    """The units in an order that respects what each reads and overwrites."""
    units: list[Unit] = []
    for term in scope.selection.choices:
        if scope.selection.is_stored(term):
            units += _units(scope, term)
        units += scope.copies_of(term)
    for store in scope.copies:
        units.append(scope.unit((), (store,)))
    return ordered(units)


def _units(scope: Scope, term: Term) -> list[Unit]:
    """What makes a stored term; nothing where another term's units make it too."""
    if term.op == "Scatter":
        return _scatter(scope, term)
    if term.op in _SEVERAL:
        first = next(iter(scope.siblings(term).values()))
        return _SEVERAL[term.op](scope, term) if term is first else []
    scope.home(term)
    together = scope.merged.get(term, [term])
    if together[-1] is not term:
        return []  # made by the last of its merge
    places = {t: scope.home(t) for t in together}
    stores = tuple(Store(t, place, place.frame) for t, place in places.items())
    unit = scope.unit(tuple(together), stores)
    unit.overwrites = leaves_of(scope.rewritten[t] for t in together if t in scope.rewritten)
    return [unit]


def _scatter(scope: Scope, term: Term) -> list[Unit]:
    """Copy the destination (unless it is updated in place), then store the source into it."""
    attrs: OpaqueAttrs = term.attrs
    place = scope.home(term)
    dest, source = term.args[:2]
    entries, add = positions(term), attrs.hlir.mode == "add"
    region = Store(source, place, attrs.frames[1], entries, ordered_axes(term), add)
    write = scope.unit((term,), (region,))
    if term in scope.rewritten:
        write.overwrites = leaves_of((dest,))
        return [write]
    # Copy and write are one unit, two steps: no other unit ever finds the half-made value.
    copy = scope.unit((), (Store(dest, place, attrs.frames[0]),))
    reads, steps = copy.reads | write.reads, (*copy.steps, *write.steps)
    return [Unit((term,), reads, steps, leaves=leaves_of(reads))]


def _sort(scope: Scope, term: Term) -> list[Unit]:
    """The unit of a sort, with both results at once; one that nobody uses gets a buffer all the
    same.
    """
    used, attrs = scope.siblings(term), term.attrs
    frame: Frame = attrs.result
    before: list[Unit] = []
    edges = zip(term.args, attrs.frames, strict=True)
    sources = {arg: scope.exact(arg, arg_frame, before) for arg, arg_frame in edges}
    is_plain = isinstance(attrs.hlir, AxisAttrs)
    stores = []
    for k, dtype in enumerate((term.args[0].dtype, int64 if is_plain else attrs.hlir.order)):
        if k in used:
            place = replace(scope.home(used[k]), frame=used[k].attrs.result)
        else:
            buffer = scope.memory.buffer(BufferKind.ARENA, dtype, shape_of(frame))
            place = scope.memory.place(buffer, frame)
        stores.append(Store(term, place, place.frame))
    fused = Fused(tuple(stores), sources, frozenset(), scope.facts)
    reads = frozenset(term.args)
    steps = (SortStep(fused),)
    return whole_buffers.behind(
        before, Unit(tuple(used.values()), reads, steps, leaves=leaves_of(reads))
    )


def _loop(scope: Scope, term: Term) -> list[Unit]:
    bound = BoundLoop(scope, term)
    body = tuple(step for unit in _ordered(bound.body) for step in unit.steps)
    step = LoopStep(term.attrs.hlir.trips, body)
    reads = frozenset((*term.args, *bound.bases))
    makes = tuple(scope.siblings(term).values())
    overwrites, after = leaves_of(bound.overwritten), scope.before.get(term)
    unit = Unit(makes, reads, (step,), overwrites, leaves_of(reads), after=after)
    return whole_buffers.behind(bound.before, unit)


def _after(scope: Scope, term: Term) -> list[Unit]:
    """No kernel: what reads the value reads its operand where that lies, after the token."""
    before: list[Unit] = []
    operand, frame = term.args[0], term.attrs.frames[0]
    place = scope.row_major(operand, frame, before)
    scope.places[term] = replace(place, frame=term.attrs.result)
    is_end = scope.selection.is_stored
    ends_below = below(term.args, lambda t: t.is_leaf or is_end(t))
    reads = frozenset(t for t in ends_below if t.is_leaf or is_end(t))
    return whole_buffers.behind(before, Unit((term,), reads, (), leaves=leaves_of(reads)))


_SEVERAL: Mapping[str, Callable[[Scope, Term], list[Unit]]] = {
    "Sort": _sort,
    "Custom": whole_buffers.custom,
    "Collective": whole_buffers.collective,
    "Loop": _loop,
    "After": _after,
}
"""Operations that are no kernel of one value."""
