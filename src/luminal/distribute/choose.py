"""The plan of the least predicted time among those that fit into a rank's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.base.costs import Link
from luminal.base.errors import CompileError, ShapeError
from luminal.base.records import dataclass
from luminal.distribute.distribute import distribute
from luminal.distribute.held import owners, spec_of_held
from luminal.distribute.layout import Layout
from luminal.distribute.mesh import Mesh, Spec
from luminal.distribute.parts import shape_of_part
from luminal.distribute.plans import follow
from luminal.distribute.price import Machine, Price, price
from luminal.hlir.graph import Graph
from luminal.memory.state import Assignable, Parameter, State

Named = Sequence[tuple[str, Parameter]]


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan, and what a step takes by it."""

    plan: str
    price: Price


def priced(
    graph: Graph, named: Named, inputs: Mapping[str, Spec] | None, mesh: Mesh, plan: str,
    machine: Machine, links: Mapping[str, Link],
) -> Price:  # fmt: skip
    """The predicted step of a graph by a plan for its Parameters, whose own specs are put back.

    `inputs` as in `distribute`. Raises ShapeError where the plan does not divide the graph.
    """
    before = [(parameter, parameter.spec, parameter.slots_spec) for _, parameter in named]
    for _, parameter in named:
        parameter.spec = parameter.slots_spec = None
    try:
        for name in plan.split("+"):
            follow(named, name, mesh)
        specs = {owner: spec_of_held(owner) for owner in owners(graph)}
        states = {owner: spec for owner, spec in specs.items() if spec is not None}
        return price(distribute(graph, mesh, inputs, states, _Shapes(), "engine"), machine, links)
    finally:
        for parameter, spec, slots in before:
            parameter.spec, parameter.slots_spec = spec, slots


def plans_of(mesh: Mesh) -> list[str]:
    """The plans that a mesh has axes for."""
    alone = len(mesh.names) == 1
    data = mesh.names[0] if alone and "tensor" not in mesh.names else "data"
    kinds = ["data", "zero1", "zero3"] if data in mesh.names else []
    if "tensor" not in mesh.names:
        return kinds
    return ["tensor", *(f"tensor+{kind}" for kind in kinds[1:])]


def cheapest(
    graph: Graph, named: Named, inputs: Mapping[str, Spec] | None, mesh: Mesh,
    machine: Machine, links: Mapping[str, Link],
) -> list[Priced]:  # fmt: skip
    """The plans for a graph on a mesh, the fastest that fits into memory first.

    Raises CompileError where no plan divides the graph.
    """
    out, refused = [], []
    for plan in plans_of(mesh):
        try:
            cost = priced(graph, named, inputs, mesh, plan, machine, links)
        except ShapeError as error:
            refused.append(str(error))
        else:
            out.append(Priced(plan, cost))
    if not out:
        raise CompileError(f"shard: no plan fits the mesh {mesh.shape}: {'; '.join(refused)}")
    return sorted(out, key=lambda p: rank_of(p.price, machine))


def rank_of(cost: Price, machine: Machine) -> tuple[bool, float]:
    """What plans are ordered by: those that fit by their time, the others by their memory."""
    is_over = cost.peak > machine.memory
    return is_over, cost.peak if is_over else cost.seconds


class _Shapes:
    """What stands for parts whose shapes alone are asked for: nothing is in memory."""

    def __init__(self) -> None:
        self._parts: dict[Assignable, Assignable] = {}

    def __call__(self, owner: Assignable, layout: Layout) -> Assignable:
        if not any(layout):
            return owner
        if owner not in self._parts:
            shape = shape_of_part(owner.shape, layout)
            if isinstance(owner, Parameter):
                self._parts[owner] = Parameter(shape, owner.dtype, owner.name)
            else:
                state = State((0,), owner.dtype, 0, owner.name)
                state.shape = shape
                self._parts[owner] = state
        return self._parts[owner]
