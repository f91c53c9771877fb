"""Which plan trains a decoder fastest on so many ranks: every mesh and plan, priced.

A step is recorded with few layers and once with one more, and each plan is priced on both: what the
one layer adds counts for all others. So a model of 70 billion parameters takes as long as a small
one, and none of it is ever in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from luminal.base.costs import Link
from luminal.base.records import dataclass
from luminal.distribute.choose import Choice, meshes_of, plans_of, priced, rank_of
from luminal.distribute.mesh import Mesh, Spec
from luminal.distribute.price import Machine, Price
from luminal.hlir.graph import Graph as FrozenGraph
from luminal.hlir.prune import pruned
from luminal.models.train import ModelSettings, next_token_loss, unfilled_llama
from luminal.optim import AdamW
from luminal.session.graph import Graph

FEW = 1
"""Layers of the smaller of the two steps that are recorded."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained: a decoder and its vocabulary, and a global batch of `batch` windows of
    `length` tokens.
    """

    model: ModelSettings
    vocabulary: int
    batch: int
    length: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks of one kind, `per_node` of them joined by the link `near`, nodes by `far`."""

    machine: Machine
    per_node: int
    near: Link
    far: Link

    def links(self, mesh: Mesh) -> dict[str, Link]:
        """The link of each mesh axis: a group that crosses nodes goes by `far`."""
        links, stride = {}, 1
        for name, ranks in zip(reversed(mesh.names), reversed(mesh.shape), strict=True):
            links[name] = self.near if stride * ranks <= self.per_node else self.far
            stride *= ranks
        return links


class Planner:
    """Prices plans of one setting; steps are recorded once."""

    def __init__(self, setting: Setting) -> None:
        self._layers = setting.model.num_hidden_layers
        few, more = (
            _Step(replace(setting.model, num_hidden_layers=n), setting) for n in (FEW, FEW + 1)
        )
        self._few, self._more = few, more

    def price(self, mesh: Mesh, plan: str, cluster: Cluster) -> Price:
        """The predicted step by a plan. Raises ShapeError where it does not divide the model."""
        links = cluster.links(mesh)
        few = self._few.price(mesh, plan, cluster.machine, links)
        more = self._more.price(mesh, plan, cluster.machine, links)
        return few.plus(more.minus(few), self._layers - FEW)

    def choices(self, ranks: int, cluster: Cluster) -> list[Choice]:
        """All plans on so many ranks, the fastest that fits first, then those that do not fit."""
        out = []
        for mesh, plan in candidates(ranks, self._few.setting):
            cost = self.price(mesh, plan, cluster)
            out.append(Choice(mesh, plan, cost, cost.peak <= cluster.machine.memory))
        return sorted(out, key=lambda choice: rank_of(choice.price, cluster.machine))


def candidates(ranks: int, setting: Setting) -> Iterator[tuple[Mesh, str]]:
    """The meshes and plans that divide the batch, the heads and the inner layers."""
    model = setting.model
    heads = model.num_key_value_heads or model.num_attention_heads
    for mesh in meshes_of(ranks):
        tensor = mesh.ranks("tensor") if "tensor" in mesh.names else 1
        fits = heads % tensor == 0 and setting.batch % mesh.ranks("data") == 0
        if not fits or model.intermediate_size % tensor or setting.vocabulary % tensor:
            continue
        yield from ((mesh, plan) for plan in plans_of(mesh))


class _Step:
    """A training step of the decoder with some layers, recorded once."""

    def __init__(self, model: ModelSettings, setting: Setting) -> None:
        self.setting = replace(setting, model=model)
        self._module = unfilled_llama(model, setting.vocabulary)
        graph = Graph("step")
        shape = (setting.batch, setting.length)
        ids = graph.tensor(shape, "int32", name="ids")
        targets = graph.tensor(shape, "int32", name="targets")
        loss = next_token_loss(self._module(ids), targets)
        loss.output("loss")
        AdamW(self._module.named_parameters(), lr=1e-3).step(loss, clip_norm=1.0)
        self._graph: FrozenGraph = pruned(graph.graph())

    def price(self, mesh: Mesh, plan: str, machine: Machine, links: Mapping[str, Link]) -> Price:
        named = [*self._module.named_parameters()]
        batch: Spec = (("data",), ())
        inputs = {"ids": batch, "targets": batch}
        return priced(self._graph, named, inputs, mesh, plan, machine, links)
