"""Compiles for a mesh: from what is recorded and how it is cut to the program of one rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import CompileError, InputError
from luminal.base.records import dataclass
from luminal.distribute.block import PartOf
from luminal.distribute.distribute import Distributed, as_recorded, distribute
from luminal.distribute.explain import explanation
from luminal.distribute.held import Parts, owners, spec_of_held
from luminal.distribute.here import PartsHere
from luminal.distribute.layout import has_pads
from luminal.distribute.mesh import Mesh
from luminal.hlir.attributes import CollectiveAttrs, LoopAttrs, MarkAttrs
from luminal.hlir.graph import Graph, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.prune import pruned
from luminal.hlir.substitute import all_nodes, used_dims
from luminal.runtime.collectives.engine import Deadlines
from luminal.runtime.collectives.local import World, thread_engine
from luminal.runtime.collectives.process import init
from luminal.runtime.ranks import OnRanks
from luminal.shape.expression import Symbol

if TYPE_CHECKING:
    from luminal.runtime.collectives.engine import Engine

Array = np.ndarray[Any, Any]
ORDERS = ("tree", "engine")
"""How sums over ranks are added: as a balanced binary tree, or as the engine likes to."""


@dataclass(frozen=True, slots=True)
class OnMesh:
    """A program of one rank of a mesh, the engine of all its ranks, and that of each mesh axis that
    has several.
    """

    mesh: Mesh
    engine: Engine
    recorded: Graph
    anew: Callable[[Graph], OnMesh]
    """Places another graph likewise."""
    distributed: Distributed
    engines: Mapping[str, Engine]
    why: str = ""
    """What is to be said of a plan that was chosen for it."""
    own_dims: frozenset[str] = frozenset()
    """The dims that each rank may have for itself."""

    @property
    def graph(self) -> Graph:
        """What this rank runs."""
        return self.distributed.graph

    @property
    def parts(self) -> Mapping[str, int]:
        """Into how many parts each dim is cut; what is not there is whole."""
        return self.distributed.dims

    @property
    def has_pads(self) -> bool:
        """Has an input or output of some rank pads?"""
        one = self.distributed
        both = (one.inputs, one.input_shapes), (one.outputs, one.output_shapes)
        return any(
            any(map(has_pads, shapes[name], layout))
            for layouts, shapes in both
            for name, layout in layouts.items()
        )

    def declared(self, leaves: Mapping[str, Value]) -> dict[str, Value]:
        """The inputs and weights by name, as this rank has them."""
        out = dict(leaves)
        for kind in ("Input", "Weight"):
            for node in self.graph.by_op().get(kind, ()):
                out[node.attrs.name] = node.value
        return out

    @property
    def on_ranks(self) -> OnRanks:
        """What the executable is told of the ranks."""
        has_collectives = any(
            isinstance(node.attrs, CollectiveAttrs) for node in all_nodes(self.graph)
        )
        return OnRanks(
            self.engines, self.explanation, self.parts, self.own_dims, has_collectives,
            self.distributed,
        )  # fmt: skip

    def explanation(self) -> str:
        """Every collective with its value, reason and bytes."""
        told = explanation(self.distributed, self.mesh)
        return f"{self.why}\n{told}" if self.why else told


def on_mesh(
    graph: Graph, mesh: Mesh, order: str, *, by_rank: bool = False, why: str = ""
) -> OnMesh:
    """The program of this rank: what is recorded, spread over the mesh. All ranks must call it.

    `by_rank`: what is recorded is the program of one rank already (`lm.spmd`). `why`: what its
    explanation says of a plan that was chosen.
    Raises InputError where the mesh has another number of ranks than were launched.
    """
    engine = engine_for(mesh, "compile")
    if order not in ORDERS:
        raise CompileError(f"compile: collectives={order!r}; it is one of {', '.join(ORDERS)}")
    engines = engines_of(mesh, engine)
    anew = partial(on_mesh, mesh=mesh, order=order, by_rank=by_rank, why=why)
    if by_rank:
        as_it_is = as_recorded(graph, mesh)
        free = frozenset(dim.name for dim in used_dims(graph) - _moved_dims(graph))
        return OnMesh(mesh, engine, graph, anew, as_it_is, engines, own_dims=free)
    parts = parts_on(mesh, engine)
    states = {owner: spec_of_held(owner) for owner in owners(graph)}
    specs = {owner: spec for owner, spec in states.items() if spec is not None}
    distributed = distribute(pruned(graph, (MarkAttrs,)), mesh, None, specs, parts, order)
    return OnMesh(mesh, engine, graph, anew, distributed, engines, why)


def _moved_dims(graph: Graph) -> frozenset[Symbol]:
    """The dims that say how large a graph's collectives are, or how often a Loop repeats them."""
    dims: set[Symbol] = set()
    for node in filter(_moves, all_nodes(graph)):
        is_loop = isinstance(node.attrs, LoopAttrs)
        sizes = (node.attrs.trips,) if is_loop else node.args[0].shape
        dims.update(*(size.symbols() for size in sizes))
    return frozenset(dims)


def _moves(node: Node) -> bool:
    """Is the node a collective, or a Loop that has one?"""
    if isinstance(node.attrs, LoopAttrs):
        return any(map(_moves, topological(node.attrs.body.results)))
    return isinstance(node.attrs, CollectiveAttrs)


def engine_for(mesh: Mesh, what: str) -> Engine:
    """What carries values between the ranks of a mesh; InputError, which begins with `what`, where
    it has other ranks than were launched.
    """
    if not isinstance(mesh, Mesh):
        raise InputError(f"{what}: mesh is a {type(mesh).__name__}; give lm.Mesh((4,), ('data',))")
    engine = init()
    if is_here(mesh):
        if engine.size > 1:
            raise InputError(
                f"{what}: the mesh has all ranks in one process, {', '.join(mesh.devices)}, and "
                f"{engine.size} were launched; start one process, or give a mesh without devices"
            )
        return engine
    if mesh.size != engine.size:
        raise InputError(
            f"{what}: the mesh {mesh.shape} has {mesh.size} ranks, and {engine.size} were "
            f"launched; run luminal launch -n {mesh.size}, or give a mesh of {engine.size}"
        )
    return engine


def is_here(mesh: Mesh) -> bool:
    """Are all ranks of the mesh in this process, and this is none of their threads?"""
    return isinstance(mesh, Mesh) and bool(mesh.devices) and thread_engine.get() is None


def world_of(mesh: Mesh) -> World:
    """What the ranks of a mesh of this process share in one program."""
    kinds = {device.partition(":")[0] for device in mesh.devices}
    return World(mesh.size, Deadlines.of(None), unlike=len(kinds) > 1)


def parts_on(mesh: Mesh, engine: Engine) -> PartOf:
    """What makes this rank's parts of Parameters and States."""
    if mesh.devices:
        return PartsHere(mesh, engine.rank)
    return Parts(mesh, engine.rank, lambda array, name: gathered(engine, array, name))


def engines_of(mesh: Mesh, engine: Engine) -> dict[str, Engine]:
    """This rank's group along each mesh axis that has several ranks."""
    return {
        name: engine.split(mesh.groups(name), name)
        for name, ranks in zip(mesh.names, mesh.shape, strict=True)
        if ranks > 1
    }


def gathered(engine: Engine, array: Array, name: str) -> list[Array]:
    """The arrays of all ranks, for the array of this one."""
    if engine.size == 1:
        return [array]
    source = np.ascontiguousarray(array).reshape(-1)
    target = np.empty((engine.size, source.size), source.dtype)
    engine.run("all_gather", source, target.reshape(-1), label=f"the whole of {name}")
    return [row.reshape(array.shape) for row in target]
