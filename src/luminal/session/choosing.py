"""Plan "auto": how a model is cut is chosen when a program is compiled, the same on all ranks.

What a step takes by each plan is predicted from its graph, from what a rank's machine reaches and
from its links, which are measured. The first rank predicts, and all go by its choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from luminal.backends import registry
from luminal.backends.backend import Backend, Interpreter
from luminal.base import config
from luminal.base.byte_sizes import bytes_of
from luminal.base.costs import LINK, Link
from luminal.base.errors import CompileError, InputError, ShapeError
from luminal.base.records import dataclass
from luminal.distribute.choose import (
    Choice,
    InputsBy,
    Named,
    axes_of,
    choices,
    meshes_of,
    plans_of,
    priced,
)
from luminal.distribute.explain import amount, why_chosen
from luminal.distribute.held import owners
from luminal.distribute.links import measured
from luminal.distribute.mesh import EXPERT, Mesh, dealt
from luminal.distribute.plans import AUTO, follow, has_experts
from luminal.distribute.price import Machine
from luminal.frontend.graph import Recorder
from luminal.hlir.attributes import MarkAttrs
from luminal.hlir.graph import Graph
from luminal.hlir.prune import pruned
from luminal.memory.parameter import Parameter
from luminal.nn.module import Module
from luminal.runtime.collectives.leader import from_leader
from luminal.runtime.collectives.local import run_here
from luminal.runtime.collectives.process import init, local_size
from luminal.session.device_choice import chosen_device
from luminal.session.on_mesh import engine_for, engines_of, is_here, world_of
from luminal.shape.expression import MAX_DIM

if TYPE_CHECKING:
    from luminal.runtime.collectives.engine import Engine

MOST_TIMES = 64
"""So many times the ranks that there are, at most, an error says how many would do."""


@dataclass(frozen=True, slots=True)
class Auto:
    """The plan "auto", and what it goes by: `memory` of a rank, in bytes or as "16GB" (all that its
    machine has, divided by the ranks there); `links` by mesh axis (measured).
    """

    memory: int | str | None = None
    links: Mapping[str, Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.memory is not None:
            bytes_of(self.memory, "plan 'auto': memory")
        named: Any = self.links
        if not isinstance(named, Mapping) or not all(isinstance(k, Link) for k in named.values()):
            raise InputError(
                f"plan 'auto': links is {named!r}; give a Link for each mesh axis, as "
                '{"data": Link(20e-6, 3e9)}'
            )

    @staticmethod
    def of(plan: Any) -> Auto | None:
        """What a plan of a user's says of it; None for another plan."""
        if isinstance(plan, Auto):
            return plan
        return Auto() if isinstance(plan, str) and plan.strip() == AUTO else None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A mesh, a plan, and why they were chosen: a table of all that there is."""

    mesh: Mesh
    plan: str
    why: str

    def text(self) -> str:
        """The choice as text that can be edited and given back (`lm.distributed.read_plan`)."""
        return f"mesh {axes_of(self.mesh, '=')}\nplan {self.plan}"


def choose(
    graph: Recorder, model: Module, mesh: Mesh | None = None, auto: Auto | None = None
) -> Chosen:
    """The fastest plan for a model that fits into a rank's memory, by what is recorded so far,
    which should be a whole training step; nothing is cut by it yet. All ranks must call it.

    `mesh`: without one, that is chosen too, of the axes "data" and "tensor", "sequence" where
    something is marked so, "expert" where the model has some, and the ranks that were launched.
    Raises CompileError where no plan fits.
    """
    auto = Auto() if auto is None else auto
    for what, kind in ((graph, Recorder), (model, Module), (auto, Auto)):
        if not isinstance(what, kind):
            raise InputError(
                "choose: takes a Graph, which has a step, its Module, and an Auto; got a "
                f"{type(what).__name__}"
            )
    chosen = registry.find(chosen_device(graph.device))
    named = [*model.named_parameters(remove_duplicate=False)]
    return chosen_for(graph.graph(), named, lambda *_: None, mesh, auto, chosen)


def chosen_for(
    graph: Graph, named: Named, inputs: InputsBy, mesh: Mesh | None, auto: Auto,
    backend: Backend | Interpreter,
) -> Chosen:  # fmt: skip
    """The choice for a graph whose inputs lie as `inputs` says. All ranks must call it."""
    for dim in graph.dims:
        if (dim.hi or MAX_DIM) >= MAX_DIM:
            raise CompileError(
                f"plan 'auto': the dim {dim.name} has no upper end, so a step takes any time; give "
                f'dims={{"{dim.name}": (1, 512)}}, or name a plan'
            )
    engine = init() if mesh is None else engine_for(mesh, "plan 'auto'")
    if mesh is not None and is_here(mesh):
        backend = registry.find(mesh.devices[0])

        def on_rank(_: Engine) -> Chosen:
            return chosen_for(graph, named, inputs, mesh, auto, backend)

        return run_here(world_of(mesh), on_rank)[0]
    marks = {
        dealt(name)[0]
        for node in graph.by_op().get("Shard", ())
        for names in node.attrs.spec
        for name in names
    }
    if has_experts(named):
        marks.add(EXPERT)
    meshes = meshes_of(engine.size, marks) if mesh is None else [mesh]
    for name in auto.links:
        if all(name not in one.names for one in meshes):
            meshes[-1].ranks(name, "plan 'auto': links")
    links = {one: links_of(one, engine, auto) for one in meshes}
    machine = machine_of(backend, auto.memory)
    graph = pruned(graph, (MarkAttrs,))

    def best() -> Chosen:
        plans = choices(graph, named, inputs, meshes, machine, links.__getitem__)
        if not plans[0].fits:
            raise _does_not_fit(graph, named, inputs, plans[0], machine)
        return Chosen(plans[0].mesh, plans[0].plan, why_chosen(plans, machine.memory))

    return from_leader(engine, best, "plan 'auto'")


def machine_of(backend: Backend | Interpreter, memory: int | str | None) -> Machine:
    """What one rank's share of this machine reaches, and has."""
    if isinstance(backend, Interpreter):
        raise CompileError(
            f"plan 'auto': nothing is known of what backend {backend.name!r} takes; name a plan"
        )
    costs = backend.costs
    units = config.get("LUMINAL_THREADS") or costs.units
    if memory is not None:
        share = float(bytes_of(memory, "plan 'auto': memory"))
    else:  # a device that does not say has room for all
        total = backend.memory.memory().total
        share = math.inf if total is None else total / local_size()
    return Machine(units * costs.contraction_flops, units * costs.memory, share)


def links_of(mesh: Mesh, engine: Engine, auto: Auto) -> dict[str, Link]:
    """The link of each axis that has several ranks: as was said, else measured."""
    groups = engines_of(mesh, engine)
    links = measured({n: group for n, group in groups.items() if n not in auto.links})
    return links | {name: link for name, link in auto.links.items() if name in mesh.names}


def _does_not_fit(
    graph: Graph, named: Named, inputs: InputsBy, least: Choice, machine: Machine
) -> CompileError:
    """The error that says what is needed, what is there and what would fit."""
    would = "more ranks would not help: make the batch or the model smaller"
    mesh, times = least.mesh, 2
    grown = mesh.names.index("data") if "data" in mesh.names else 0
    while times <= MOST_TIMES:
        shape = [n * times if k == grown else n for k, n in enumerate(mesh.shape)]
        larger = Mesh(tuple(shape), mesh.names)
        plan = plans_of(larger)[-1]  # that which cuts most
        try:
            every = dict.fromkeys(larger.names, LINK)  # memory does not depend on them
            cost = priced(graph, named, inputs(larger, plan), larger, plan, machine, every)
        except ShapeError:
            break
        if cost.peak <= machine.memory:
            would = f"{plan} on {axes_of(larger)} would take {amount(cost.peak)}"
            break
        times *= 2
    return CompileError(
        f"plan 'auto': no plan fits into the {amount(machine.memory)} that a rank has: the least "
        f"is {amount(least.price.peak)}, by {least.plan} on {axes_of(mesh)}; {would}"
    )


# --- a model that waits for the choice --------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Undecided:
    """A model whose plan is chosen by the first program on the mesh that uses it."""

    named: Sequence[tuple[str, Parameter]]
    mesh: Mesh
    auto: Auto


def leave_undecided(named: Named, mesh: Mesh, auto: Auto) -> None:
    """Lets the first program on the mesh that uses one of these Parameters choose their plan."""
    undecided = Undecided(tuple(named), mesh, auto)
    for _, parameter in named:
        parameter.undecided = undecided


def decide(graph: Graph, mesh: Mesh, backend: Backend | Interpreter) -> str:
    """Chooses for the models of a graph that wait for it; what is to be said of that, "" where none
    does. All ranks must call it.
    """
    waiting: dict[Undecided, None] = {}
    for owner in owners(graph):
        if isinstance(owner, Parameter) and owner.undecided is not None:
            waiting[owner.undecided] = None
    why = ""
    for undecided in waiting:
        engine_for(mesh, "compile")
        if undecided.mesh != mesh:
            raise InputError(
                f"the model of {undecided.named[0][0]} waits for a plan on "
                f"{axes_of(undecided.mesh)}, and this program is for {axes_of(mesh)}; give both "
                "the same mesh"
            )
        # Others have been given a plan or a spec of their own since.
        named = [(path, p) for path, p in undecided.named if p.undecided is undecided]
        chosen = chosen_for(graph, named, lambda *_: None, mesh, undecided.auto, backend)
        follow(named, chosen.plan, mesh)
        for _, parameter in named:
            parameter.undecided = None
        why += chosen.why
    if waiting and mesh.devices:
        init().barrier("the plan is chosen")  # ranks that are threads have one model
    return why
