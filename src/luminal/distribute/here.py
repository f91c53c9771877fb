"""Parameters and States on a mesh whose ranks are all in this process.

Users see one array. Where a program of the mesh runs, each rank has its part, or a copy of what is
whole, for each holds its own memory; they stay there from run to run. Whoever else reads or sets
the value, a user or a program of one device, makes it one array again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable

from luminal.base.errors import DeviceError
from luminal.distribute.held import check_can_be_cut, is_packed
from luminal.distribute.layout import Layout, text
from luminal.distribute.mesh import Mesh
from luminal.distribute.parts import assembled, part, shape_of_part
from luminal.hlir.semantics import Array
from luminal.memory.parameter import Parameter
from luminal.memory.part import Part
from luminal.memory.state import Assignable, State

_spreads: weakref.WeakKeyDictionary[Assignable, dict[tuple[Mesh, Layout], Spread]] = (
    weakref.WeakKeyDictionary()
)
running = threading.RLock()
"""Held by runs on meshes of this process, one at a time, and by whoever moves what they hold."""


class Spread:
    """What the ranks of a mesh hold of one Parameter or State that lies so: `holders`, by rank."""

    def __init__(self, owner: Assignable, layout: Layout, mesh: Mesh) -> None:
        self._owner, self.mesh, self._layout = weakref.ref(owner), mesh, layout
        shape = shape_of_part(owner.shape, layout)
        self.holders: list[Assignable] = []
        for _ in range(mesh.size):
            holder: Assignable
            if isinstance(owner, Parameter):
                grad = owner.requires_grad
                holder = Parameter(shape, owner.dtype, owner.name, requires_grad=grad)
            else:
                holder = State(shape, owner.dtype, 0, owner.name)
            holder.spread = self
            self.holders.append(holder)
        self.is_lost = False
        words = f"{text(layout)} over {', '.join(mesh.devices)}"
        self._part = Part(
            self.holders[0], layout, lambda array: array, self._joined, words,
            (0,) * len(owner.shape), (), True, is_here=True,
        )  # fmt: skip

    @property
    def owner(self) -> Assignable:
        """The Parameter or State whose parts they are; programs that ask keep it."""
        owner = self._owner()
        assert owner is not None
        return owner

    def bring(self) -> None:
        """Has the ranks hold the value, wherever it is now; nothing, where it is with them."""
        owner = self.owner
        if owner.part is self._part:
            if self.is_lost:
                raise self._lost()
            return
        if isinstance(owner, Parameter) and not owner.has_value:
            return
        value = owner.numpy()
        for rank, holder in enumerate(self.holders):
            values = part(value, self._layout, self.mesh.coordinates(rank)).view()
            values.flags.writeable = False  # a Parameter's holder then has it without a copy
            holder.set(values)
        owner.release()
        owner.part, self.is_lost = self._part, False

    def _joined(self, _: Array) -> Array:
        with running:
            if self.is_lost:
                raise self._lost()
            values = [holder.numpy() for holder in self.holders]
            for holder in self.holders:
                holder.release()
            return assembled(values, self.owner.shape, self._layout, self.mesh)

    def _lost(self) -> DeviceError:
        return DeviceError(
            f"{self.owner.name}: a run on {', '.join(self.mesh.devices)} failed while it replaced "
            "this value; set it anew: .set(array), or a State's .reset()"
        )


class PartsHere:
    """Makes the parts of one rank of a mesh of this process."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self._mesh, self._rank = mesh, rank

    def __call__(self, owner: Assignable, layout: Layout) -> Assignable:
        """What holds the rank's part of `owner`, or its copy; the owner itself where it is packed.

        Raises InputError where it is packed and is to be cut.
        """
        if is_packed(owner) and not any(layout):
            return owner
        check_can_be_cut(owner)
        with running:
            spreads = _spreads.setdefault(owner, {})
            if (self._mesh, layout) not in spreads:
                spreads[self._mesh, layout] = Spread(owner, layout, self._mesh)
        return spreads[self._mesh, layout].holders[self._rank]


def spreads_of(owners: Iterable[Assignable]) -> list[Spread]:
    """What has the parts of all ranks, for what one rank holds."""
    return [owner.spread for owner in owners if owner.spread is not None]
