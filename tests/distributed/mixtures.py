"""Drawn mixtures of experts: a training step as one rank computes it, and as a mesh does."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.base.records import dataclass
from luminal.distribute.held import owners, spec_of_held
from luminal.distribute.mesh import Mesh, Spec
from luminal.distribute.plans import by_patterns
from luminal.hlir.graph import Graph
from luminal.memory.state import Assignable
from luminal.nn.moe import MoE

Array = np.ndarray[Any, Any]
MESHES = (
    *(((2,), ("expert",)), ((4,), ("expert",)), ((2, 2), ("data", "expert"))),
    *(((2, 2), ("expert", "tensor")), ((2,), ("data",))),
)
HIDDEN = 4


class Block(nn.Module):
    """A product, and a mixture beside it."""

    def __init__(self, mixture: MoE) -> None:
        super().__init__()
        self.into = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.mixture = mixture

    def forward(self, x: Any) -> Any:
        """(tokens, hidden) to the same shape."""
        x = self.into(x)
        return x + self.mixture(x)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A step of a mixture, how its inputs, Parameters and moments lie, and its inputs."""

    graph: Graph
    mesh: Mesh
    inputs: dict[str, Spec]
    held: dict[Assignable, Spec]
    arrays: dict[str, Array]

    @property
    def is_even(self) -> bool:
        """Do the ranks divide what Parameters are cut along, and groups of tokens?"""
        shapes = [(owner.shape, spec) for owner, spec in self.held.items()]
        shapes += [(self.arrays[x].shape, spec) for x, spec in self.inputs.items() if len(spec) > 2]
        return all(
            extent % math.prod(map(self.mesh.ranks, names)) == 0
            for shape, spec in shapes
            for extent, names in zip(shape, spec, strict=True)
        )


def drawn(seed: int) -> Drawn:
    """The case of a seed: 2 to 16 experts, 1 to 4 of them for each token, extents that ranks need
    not divide, and a router with ties, without any choice, or that leaves experts without a token.
    """
    rng, numbers = random.Random(f"mixtures {seed}"), np.random.default_rng(seed)
    mesh = Mesh(*rng.choice(MESHES))
    ranks = mesh.ranks("expert") if "expert" in mesh.names else 1
    experts = rng.choice([n for n in range(2, 17) if n % ranks == 0 or n > ranks])
    top_k = rng.randint(1, min(4, experts))
    tokens = rng.randint(experts // top_k + 1, experts // top_k + 24)
    lm.manual_seed(seed)
    mixture = MoE(
        HIDDEN, 3, experts, top_k, shared=rng.choice((0, 0, 3)), bias=rng.random() < 0.3,
        weighted_inputs=rng.random() < 0.2, scoring=rng.choice(("softmax", "sigmoid")),
    )  # fmt: skip
    gate = numbers.normal(size=(experts, HIDDEN)).astype(np.float32)
    half = -(-experts // 2)
    match rng.choice(("any", "ties", "alike", "none")):
        case "ties":
            gate = np.round(gate)
        case "alike":  # all tokens go to the first experts
            gate[:] = 0
        case "none":  # the last ones are never better than the first, which win ties
            gate[half:] = gate[: experts - half]
    mixture.gate.weight.set(gate)
    return step(Block(mixture), mesh, (tokens,), numbers)


def bounded(seed: int) -> Drawn:
    """The case of a seed where experts have a capacity: groups of 1 to 9 tokens, whose number ranks
    need not divide, and rooms for some or all of them.
    """
    rng, numbers = random.Random(f"rooms {seed}"), np.random.default_rng(seed)
    mesh = Mesh(*rng.choice(MESHES))
    ranks = mesh.ranks("expert") if "expert" in mesh.names else 1
    experts = ranks * rng.randint(1, 3) if rng.random() < 0.8 else rng.randint(2, 9)
    top_k = rng.randint(1, min(3, experts))
    groups = mesh.size * rng.randint(1, 3) if rng.random() < 0.7 else rng.randint(2, 9)
    rooms = {"capacity": rng.randint(1, 6)}
    lm.manual_seed(seed)
    mixture = MoE(
        HIDDEN, 3, experts, top_k, shared=rng.choice((0, 0, 3)), bias=rng.random() < 0.3,
        weighted_inputs=rng.random() < 0.2,
        **(rooms if rng.random() < 0.5 else {"capacity_factor": rng.uniform(0.2, 2.0)}),
    )  # fmt: skip
    gate = numbers.normal(size=(experts, HIDDEN)).astype(np.float32)
    mixture.gate.weight.set(gate * rng.choice((0, 1, 1, 1)))  # 0: all go to the first experts
    return step(Block(mixture), mesh, (groups, rng.randint(1, 9)), numbers)


def step(
    model: nn.Module, mesh: Mesh, rows: tuple[int, ...], numbers: np.random.Generator
) -> Drawn:
    """A step of gradient descent at rate 1, so that new values are old ones less gradients. x is
    (*rows, hidden), and the first of these is cut.
    """
    for path, parameter in model.named_parameters():
        parameter.name = path
    graph = lm.Graph("step")
    x, upon = (graph.tensor((*rows, HIDDEN), name=name) for name in ("x", "upon"))
    y = model(x)
    loss = (y * upon).sum()
    y.output("y")
    loss.output("loss")
    optim.SGD(model.named_parameters(), lr=1.0).step(loss)
    if "expert" in mesh.names:
        by_patterns([*model.named_parameters()], {"*.experts.*": ("expert",)}, mesh)
    specs = {owner: spec_of_held(owner) for owner in owners(graph.graph())}
    held = {owner: spec for owner, spec in specs.items() if spec is not None}
    first = tuple(axis for axis in ("data", "expert") if axis in mesh.names)
    spec: Spec = (first, *((),) * len(rows))
    shape = *rows, HIDDEN
    arrays = {name: numbers.normal(size=shape).astype(np.float32) for name in ("x", "upon")}
    return Drawn(graph.graph(), mesh, dict.fromkeys(arrays, spec), held, arrays)
