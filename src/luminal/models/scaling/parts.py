"""The parts of a decoder, a layer of each kind and both its ends, each recorded and priced alone.

A part's forward and backward pass for one microbatch become the program of one rank, and that is
priced: its kernels, the collectives in it, what lies there between both passes and at the most. So
no number of layers and no size of a model takes longer, and nothing of it is in memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from luminal.autograd.checkpoint import checkpoint
from luminal.autograd.reverse import gradients
from luminal.base.costs import Link
from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.choose import Named, Shapes
from luminal.distribute.distribute import distribute
from luminal.distribute.held import owners, spec_of_held
from luminal.distribute.mesh import EXPERT, Mesh, Spec
from luminal.distribute.plans import follow, marks_of, restore
from luminal.distribute.price import Machine, Passes, flops, passes
from luminal.frontend.tensor import Tensor
from luminal.hlir.graph import Graph as FrozenGraph
from luminal.hlir.graph import Output, topological
from luminal.hlir.prune import pruned
from luminal.memory.parameter import Parameter
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig
from luminal.models.train import next_token_loss
from luminal.nn import MoE
from luminal.session.graph import Graph
from luminal.training.amp import AMPContext

GRADIENT = "gradient."
"""What the outputs are called that are gradients of Parameters, before their paths."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained: a decoder, a global batch of `batch` windows of `length` tokens, products in
    `precision` ("bfloat16", or "float32"). `capacity_factor`: the room of experts, in terms of an
    even share. `widest`: the most bytes of a number that is kept or sent between kernels: programs
    keep sums of products as they were added up, in 4.
    """

    config: DecoderConfig
    batch: int
    length: int
    precision: str = "bfloat16"
    capacity_factor: float = 1.25
    widest: int = 4


@dataclass(frozen=True, slots=True)
class Cut:
    """How the ranks of one stage have a part: numbers of ranks along "expert", "sequence" and
    "tensor", and sequences of a microbatch on each rank along "expert".
    """

    expert: int = 1
    sequence: int = 1
    tensor: int = 1
    rows: int = 1

    @property
    def mesh(self) -> Mesh:
        """The ranks of a stage that work on one part together, at least an axis of one."""
        axes = [
            (name, ranks)
            for name, ranks in (
                (EXPERT, self.expert), ("sequence", self.sequence), ("tensor", self.tensor),
            )
            if ranks > 1
        ] or [("tensor", 1)]  # fmt: skip
        return Mesh(tuple(ranks for _, ranks in axes), tuple(name for name, _ in axes))

    @property
    def plan(self) -> str:
        """The plan for Parameters."""
        return "+".join(
            name for name, ranks in (("tensor", self.tensor), (EXPERT, self.expert)) if ranks > 1
        )


@dataclass(frozen=True, slots=True)
class Held:
    """The elements of Parameters that a rank has of a part: `dense` ones, that all ranks along
    "expert" have alike, and those of its own `experts`.
    """

    dense: float
    experts: float

    @property
    def all(self) -> float:
        """Both kinds of elements."""
        return self.dense + self.experts


class Part(ABC):
    """A part of a model, recorded for microbatches of several sizes, as plain and with its
    operations computed again for gradients.
    """

    def __init__(self, setting: Setting, model: Decoder, named: Named) -> None:
        self.setting, self.model, self.named = setting, model, named
        self._graphs: dict[tuple[int, bool, bool], FrozenGraph] = {}

    @abstractmethod
    def record(self, graph: Graph, rows: int, again: bool) -> None:
        """Records the forward pass, its outputs, and the gradients by `self.pulled`."""

    @property
    def given(self) -> set[str]:
        """The outputs of the forward pass."""
        return {"y"}

    def graph(self, rows: int, again: bool, bounded: bool = True) -> FrozenGraph:
        """The passes for so many windows; `again`: what gradients need is computed again; experts
        have room for as much as the setting says where they are `bounded`, else for all.
        """
        key = rows, again, bounded
        if key not in self._graphs:
            for layer in self.model.modules():
                if isinstance(layer, MoE):
                    layer.capacity_factor = self.setting.capacity_factor if bounded else None
            graph = Graph("a part")
            with AMPContext(enabled=self.setting.precision != "float32"):
                self.record(graph, rows, again)
            self._graphs[key] = pruned(graph.graph())
        return self._graphs[key]

    def pulled(self, graph: Graph, y: Tensor, of_y: Tensor, x: Tensor | None) -> None:
        """Records the gradients of the Parameters, and of what the part is given."""
        held = [(name, graph.constant(p)) for name, p in self.named]
        wanted = ([] if x is None else [x.value]) + [weight.value for _, weight in held]
        out = gradients(graph, [y], [of_y], wanted)
        names = ([] if x is None else ["dx"]) + [GRADIENT + name for name, _ in held]
        for name, gradient in zip(names, out, strict=True):
            if gradient is not None:
                gradient.output(name)

    def passes(self, cut: Cut, again: bool, machine: Machine, links: Mapping[str, Link]) -> Passes:
        """What a microbatch takes. Raises ShapeError where the cut does not divide the part."""
        graph = self.graph(cut.expert * cut.rows, again)
        rows: tuple[str, ...] = (EXPERT,) if cut.expert > 1 else ()
        # Positions are dealt out, so that all ranks see as much of what a causal mask leaves.
        places: tuple[str, ...] = ("sequence/1",) if cut.sequence > 1 else ()
        inputs = {
            node.attrs.name: (rows, places, ())[: len(node.types[0].shape)]
            for node in graph.by_op().get("Input", ())
        }
        with self._cut(cut):
            specs = {owner: spec_of_held(owner) for owner in owners(graph)}
            states = {owner: spec for owner, spec in specs.items() if spec is not None}
            local = distribute(graph, cut.mesh, inputs, states, Shapes(), "engine")
        return passes(local, machine, links, self.given, GRADIENT, self.setting.widest)

    @contextmanager
    def _cut(self, cut: Cut) -> Iterator[None]:
        before = marks_of(parameter for _, parameter in self.named)
        restore([(parameter, None, None) for _, parameter in self.named])
        try:
            if cut.plan:
                follow(self.named, cut.plan, cut.mesh)
            yield
        finally:
            restore(before)

    def held(self, cut: Cut) -> Held:
        """What a rank has of the Parameters."""
        dense = experts = 0.0
        with self._cut(cut):
            for _, parameter in self.named:
                spec: Spec = parameter.spec or ()
                axes = [name for names in spec for name in names]
                count = parameter.numel() / math.prod(map(cut.mesh.ranks, axes))
                if EXPERT in axes:
                    experts += count
                else:
                    dense += count
        return Held(dense, experts)

    def flops(self) -> float:
        """The operations of the products of the forward pass of one window."""
        sinks = {
            sink.name: sink.value
            for sink in self.graph(1, False, bounded=False).sinks
            if isinstance(sink, Output)
        }
        return sum(map(flops, topological([sinks[name] for name in self.given])))


class Layer(Part):
    """One layer of a model."""

    def record(self, graph: Graph, rows: int, again: bool) -> None:
        """Records the passes of this part."""
        setting = self.setting
        shape = (rows, setting.length, setting.config.hidden_size)
        x, of_y = (graph.tensor(shape, float32, name) for name in ("x", "dy"))
        layer: Any = self.model.model.layers[0]
        rotary = next(iter(self.model.model.rotaries.values()), None)
        angles = None if rotary is None else rotary.angles(graph, x.extents[1], 0)

        def run(x: Tensor) -> Tensor:
            y: Tensor = layer(x, angles)
            return y

        y = checkpoint(run)(x) if again else run(x)
        y.output("y")
        self.pulled(graph, y, of_y, x)


class Embedding(Part):
    """What makes the first layer's input of ids."""

    def record(self, graph: Graph, rows: int, again: bool) -> None:
        """Records the passes of this part."""
        setting, model = self.setting, self.model.model
        ids = graph.tensor((rows, setting.length), "int32", "ids")
        shape = (rows, setting.length, setting.config.hidden_size)
        y = model.embed_tokens(ids).cast(float32)
        if model.embed_positions is not None:
            y = y + model.embed_positions(graph.arange(setting.length))
        y.output("y")
        self.pulled(graph, y, graph.tensor(shape, float32, "dy"), None)


class Head(Part):
    """The last norm, logits and loss."""

    def record(self, graph: Graph, rows: int, again: bool) -> None:
        """Records the passes of this part."""
        setting = self.setting
        shape = (rows, setting.length, setting.config.hidden_size)
        x = graph.tensor(shape, float32, "x")
        targets = graph.tensor((rows, setting.length), "int32", "targets")
        loss = next_token_loss(self.model.logits(self.model.model.norm(x)), targets)
        loss.output("y")
        self.pulled(graph, loss, graph.ones(()), x)


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a model in their order: its embedding, its layers, its head."""

    setting: Setting
    each: tuple[Part, ...]

    @staticmethod
    def of(setting: Setting) -> Parts:
        """The parts of a decoder; like layers are one part.

        Raises InputError for a decoder whose layers give more than x to one another.
        """
        config = setting.config
        if (
            config.passing
            or config.layer_inputs
            or any(k.keys_of is not None for k in config.layers)
        ):
            raise InputError(
                "simulate: layers of this model read more than the layer before gives; give a "
                "model whose layers do not"
            )
        kinds: dict[LayerConfig, Part] = {}
        for kind in config.layers:
            if kind not in kinds:
                model = Decoder(replace(config, layers=(kind,)))
                kinds[kind] = Layer(setting, model, _under(model, ".layers."))
        ends = Decoder(replace(config, layers=()))
        embedding = Embedding(setting, ends, _under(ends, ".embed"))
        head = [
            named
            for named in ends.named_parameters(remove_duplicate=False)
            if named not in embedding.named
        ]
        if ends.lm_head is None:  # tied: the last stage has a copy of the table
            head += [named for named in embedding.named if "embed_tokens" in named[0]]
        layers = [kinds[kind] for kind in config.layers]
        return Parts(setting, (embedding, *layers, Head(setting, ends, head)))

    @property
    def flops(self) -> float:
        """The operations of the products of a step, forward and twice that backward; none that is
        computed again.
        """
        once = {part: part.flops() for part in set(self.each)}
        return 3.0 * self.setting.batch * sum(once[part] for part in self.each)


def _under(model: Decoder, what: str) -> list[tuple[str, Parameter]]:
    return [
        (path, parameter)
        for path, parameter in model.named_parameters(remove_duplicate=False)
        if what in path
    ]
