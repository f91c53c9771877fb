"""The plan "auto" of `fit`: what a step would take is asked of its first batch's graph."""

from __future__ import annotations

from luminal.backends import registry
from luminal.base.errors import InputError
from luminal.distribute.mesh import Mesh, Spec
from luminal.session.choosing import Auto, chosen_for
from luminal.session.device_choice import chosen_device
from luminal.session.parallel import Plan, name_by_path
from luminal.training.data import Batches
from luminal.training.program import Recipe, Steps, named
from luminal.training.ranks import batch_axes
from luminal.training.stream import Stream


def decided(
    plan: Plan | None, recipe: Recipe, data: Batches | Stream, mesh: Mesh | None, leaves: int | None
) -> tuple[Mesh | None, Plan | None, str]:
    """The mesh and the plan of a run, and why they were chosen, where that is by "auto". All ranks
    must call it.
    """
    auto = Auto.of(plan)
    if auto is None:
        return mesh, plan, ""
    if leaves is not None:
        raise InputError(
            "fit: plan='auto' predicts a step of whole batches, and leaves= cuts them; name a plan"
        )
    name_by_path(recipe.model)  # before slots take their names from them
    batch = data.first()
    graph = Steps(recipe).recorded(batch)

    def inputs(mesh: Mesh, plan: str) -> dict[str, Spec]:
        axes = batch_axes(mesh, plan, is_cut=False)
        return {name: (axes, *((),) * (x.ndim - 1)) for name, x in named(batch).items()}

    backend = registry.find(chosen_device(recipe.backend))
    parameters = [*recipe.model.named_parameters(remove_duplicate=False)]
    chosen = chosen_for(graph.graph(), parameters, inputs, mesh, auto, backend)
    return chosen.mesh, chosen.plan, chosen.why
