"""The plan of the least predicted time among those that fit into a rank's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from luminal.base.costs import Link
from luminal.base.errors import CompileError, ShapeError
from luminal.base.records import dataclass
from luminal.distribute.distribute import distribute
from luminal.distribute.held import owners, spec_of_held
from luminal.distribute.layout import Layout
from luminal.distribute.mesh import EXPERT, Mesh, Spec
from luminal.distribute.parts import shape_of_part
from luminal.distribute.plans import axis_of, follow, kinds_of, marks_of, restore
from luminal.distribute.price import Machine, Price, price
from luminal.hlir.graph import Graph
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State

Named = Sequence[tuple[str, Parameter]]


InputsBy = Callable[[Mesh, str], Mapping[str, Spec] | None]
"""How a graph's inputs lie by a plan on a mesh; None: as the graph's marks say."""
MOST_TENSOR = 16
"""The most ranks that products, or experts, are cut over."""
MOST_SEQUENCE = 16
"""The most ranks that texts are cut over: a ring's steps are written one by one."""
_CUT = {
    "tensor": "products are cut (q_proj, fc1, ...)",
    EXPERT: "first dimension is cut (experts) by a number of ranks that divides it",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A mesh and a plan, and what a step takes by them; `fits`: within a rank's memory?"""

    mesh: Mesh
    plan: str
    price: Price
    fits: bool

    def text(self) -> str:
        """The choice as text that can be edited and given back (`lm.distributed.read_plan`)."""
        return f"mesh {axes_of(self.mesh, '=')}\nplan {self.plan}"


def axes_of(mesh: Mesh, between: str = " ") -> str:
    """The axes of a mesh in words: `data 4 tensor 2`."""
    axes = zip(mesh.names, mesh.shape, strict=True)
    return " ".join(f"{name}{between}{ranks}" for name, ranks in axes)


def priced(
    graph: Graph, named: Named, inputs: Mapping[str, Spec] | None, mesh: Mesh, plan: str,
    machine: Machine, links: Mapping[str, Link],
) -> Price:  # fmt: skip
    """The predicted step of a graph by a plan for its Parameters, whose own specs are put back.

    `inputs` as in `distribute`. Raises ShapeError where the plan does not divide the graph.
    """
    before = marks_of(parameter for _, parameter in named)
    restore([(parameter, None, None) for _, parameter in named])
    try:
        follow(named, plan, mesh)
        for axis in ("tensor", EXPERT):
            if axis in kinds_of(plan, mesh) and mesh.ranks(axis) > 1 and not _any_cut(named, axis):
                raise ShapeError(f"no layer has a name whose {_CUT[axis]}")
        specs = {owner: spec_of_held(owner) for owner in owners(graph)}
        states = {owner: spec for owner, spec in specs.items() if spec is not None}
        return price(distribute(graph, mesh, inputs, states, Shapes(), "engine"), machine, links)
    finally:
        restore(before)


def plans_of(mesh: Mesh) -> list[str]:
    """The plans that a mesh has axes for."""
    data = axis_of("data", mesh)
    kinds = [] if data is None else ["data"]
    if data is not None and mesh.ranks(data) > 1:
        kinds += ["zero1", "zero3"]
    first = "+".join(name for name in ("tensor", EXPERT, "sequence") if name in mesh.names)
    return [first, *(f"{first}+{kind}" for kind in kinds[1:])] if first else kinds


def meshes_of(ranks: int, marked: Set[str] = frozenset()) -> list[Mesh]:
    """The meshes of so many ranks: all along "data", and each number of them along "tensor"; where
    inputs are `marked` so, each number along "sequence" as well; where "expert" is one of these,
    each number along that and the rest along "data".
    """
    out = []
    for sequence in range(1, min(ranks, MOST_SEQUENCE) + 1 if "sequence" in marked else 2):
        for tensor in range(1, min(ranks, MOST_TENSOR) + 1):
            if ranks % (sequence * tensor) == 0:
                shape, names = [ranks // (sequence * tensor)], ["data"]
                for name, count in (("sequence", sequence), ("tensor", tensor)):
                    if count > 1 or (name == "sequence" and name in marked):
                        shape.append(count)
                        names.append(name)
                out.append(Mesh(tuple(shape), tuple(names)))
    if EXPERT in marked:
        counts = [n for n in range(2, min(ranks, MOST_TENSOR) + 1) if ranks % n == 0]
        out += [Mesh((ranks // n, n), ("data", EXPERT)) for n in counts]
    return out


def choices(
    graph: Graph, named: Named, inputs: InputsBy, meshes: Sequence[Mesh], machine: Machine,
    links: Callable[[Mesh], Mapping[str, Link]],
) -> list[Choice]:  # fmt: skip
    """The plans for a graph, the fastest that fits into memory first, then by their memory.

    `inputs` as in `distribute`, for a mesh and a plan. Raises CompileError where no plan divides
    the graph.
    """
    out, refused = [], []
    for mesh in meshes:
        for plan in plans_of(mesh):
            try:
                cost = priced(graph, named, inputs(mesh, plan), mesh, plan, machine, links(mesh))
            except ShapeError as error:
                refused.append(f"{plan} on {axes_of(mesh)}: {error}")
            else:
                out.append(Choice(mesh, plan, cost, cost.peak <= machine.memory))
    if not out:
        shapes = ", ".join(axes_of(mesh) for mesh in meshes)
        why = "; ".join(refused) or "a mesh of several axes has one named 'data' or 'tensor'"
        raise CompileError(f"plan 'auto': no plan is for {shapes}: {why}")
    return sorted(out, key=lambda choice: rank_of(choice.price, machine))


def rank_of(cost: Price, machine: Machine) -> tuple[bool, float, float]:
    """What plans are ordered by: those that fit by their time, the others by their memory; of equal
    ones that which holds less.
    """
    is_over = cost.peak > machine.memory
    return is_over, cost.peak if is_over else cost.seconds, cost.held


def _any_cut(named: Named, axis: str) -> bool:
    return any(axis in names for _, parameter in named for names in parameter.spec or ())


class Shapes:
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
