"""Parameters and States on a mesh: what of them a rank holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.layout import Layout, text
from luminal.distribute.mesh import Mesh, Spec
from luminal.distribute.parts import NONE, assembled, count, held, part, shape_of_part
from luminal.hlir.attributes import LoopAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Graph
from luminal.hlir.substitute import all_nodes
from luminal.memory.mapped_pages import is_mapped, let_go
from luminal.memory.parameter import Parameter
from luminal.memory.part import Part
from luminal.memory.read_anew import ReadAnew
from luminal.memory.state import Assignable, State

Array = np.ndarray[Any, Any]
Gather = Callable[[Array, str], list[Array]]
"""The arrays of all ranks, for the array of this one and the name of what it is."""


def spec_of_held(owner: Assignable) -> Spec | None:
    """How a Parameter or State is to be cut: as was said, or as the Parameter that it is of."""
    if owner.spec is None and isinstance(owner, State) and owner.follows is not None:
        leader = owner.follows
        return leader.slots_spec or leader.spec
    return owner.spec


def owners(graph: Graph) -> Iterator[Assignable]:
    """The Parameters and States that a graph reads or assigns, each once."""
    seen: dict[Assignable, None] = {}
    for node in all_nodes(graph):
        match node.attrs:
            case WeightAttrs(parameter=owner) | StateAttrs(state=owner):
                seen[owner] = None
            case LoopAttrs(assigned=assigned):
                seen.update((owner, None) for states in assigned for owner in states or ())
    seen.update((sink.state, None) for sink in graph.sinks if isinstance(sink, Assign))
    yield from seen


@contextmanager
def whole_values(owners: Iterable[Assignable]) -> Iterator[None]:
    """Inside the block every rank has the whole values of what is cut, for programs of one rank,
    which do not change them; all ranks must enter.
    """
    parts = {owner: owner.part for owner in owners if owner.part is not None}
    try:
        for owner, its_part in parts.items():
            value = its_part.join(its_part.holder.numpy())
            owner.part = None
            owner.set(value)
        yield
    finally:
        for owner, its_part in parts.items():
            owner.release()
            owner.part = its_part


@dataclass(frozen=True, slots=True)
class Parts:
    """Makes the parts of one rank: `at` are its coordinates, `gather` brings those of all here."""

    mesh: Mesh
    rank: int
    gather: Gather

    def __call__(self, owner: Assignable, layout: Layout) -> Assignable:
        """What holds the rank's part of `owner`; the owner itself where it is whole.

        The whole value is let go. Raises InputError for one that lies otherwise already or whose
        bytes cannot be cut.
        """
        if owner.part is not None:
            if owner.part.layout != layout:
                raise InputError(
                    f"{owner.name} is cut {owner.part.words}, and this program wants it cut "
                    f"{text(layout)}: it lies in one way; give both programs the same plan"
                )
            return owner.part.holder
        if not any(layout):
            return owner
        check_can_be_cut(owner)
        return self._cut(owner, layout)

    def _cut(self, owner: Assignable, layout: Layout) -> Assignable:
        at = self.mesh.coordinates(self.rank)
        shape = shape_of_part(owner.shape, layout)

        def cut(array: Array) -> Array:
            return part(array, layout, at)

        def join(local_part: Array) -> Array:
            return assembled(self.gather(local_part, owner.name), owner.shape, layout, self.mesh)

        holder: Assignable
        if isinstance(owner, Parameter):
            holder = Parameter(shape, owner.dtype, owner.name, requires_grad=owner.requires_grad)
            if owner.has_value:
                _take(holder, owner.numpy(), any(layout[1:]), cut)
        else:
            holder = State(shape, owner.dtype, 0, owner.name)
            holder.persistent = owner.persistent
            with owner.lock:
                owner.buffer.settle()
                # Zeros are there already: pages of a cache have no memory until they are written.
                if np.atleast_1d(owner.buffer.array).view(np.uint8).any():
                    holder.set(cut(owner.buffer.array))
        words = f"{text(layout)}, rank {self.rank} of {self.mesh.size}"
        # What lies between runs is cut by a spec: into equal parts, one after the other.
        slices = [held(n, cuts, at, NONE) for n, cuts in zip(owner.shape, layout, strict=True)]
        start = tuple(places.start or 0 for places in slices)
        extents = [
            count(n, cuts, at) if cuts else n for n, cuts in zip(owner.shape, layout, strict=True)
        ]
        axes = {one.axis for cuts in layout for one in cuts}
        is_first = all(at[name] == 0 for name in at if name not in axes) and all(extents)
        owner.part = Part(
            holder, layout, cut, join, words, start, tuple(map(slice, extents)), is_first
        )
        owner.release()
        return holder


def _take(holder: Parameter, whole: Array, scattered: bool, cut: Callable[[Array], Array]) -> None:
    """Gives a part of a whole value to what holds it. What lies in a mapped file stays there;
    where a part lies there `scattered`, it is read when it is used.
    """
    if not (scattered and is_mapped(whole)):
        holder.set(cut(whole))
        return

    def read(into: Array) -> None:
        into[...] = cut(whole)
        let_go([whole])

    holder.buffer = ReadAnew(read, holder.shape, holder.dtype)
    holder.changed()


def is_packed(owner: Assignable) -> bool:
    """Do its rows not lie as its value does?"""
    return owner.order is not None or (isinstance(owner, Parameter) and hasattr(owner, "parts"))


def check_can_be_cut(owner: Assignable) -> None:
    """Raises InputError for what is packed."""
    if is_packed(owner):
        raise InputError(
            f"{owner.name} is packed, and its rows do not lie as its value does: it cannot be "
            "cut over a mesh; leave it out of the plan, or load it unpacked"
        )


def check_whole(graph: Graph) -> None:
    """Raises GraphError where a graph for one rank uses what is cut over a mesh."""
    for owner in owners(graph):
        if owner.part is not None and not owner.part.is_here:
            raise owner.part.refuse(owner.name)
