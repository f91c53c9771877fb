"""Random modules of PyTorch, trained on a mesh of threads and by PyTorch in float64.

A seed is a module, a mesh, a plan or a spec for each Parameter (which may not divide it), an
optimizer, and a batch that the ranks may not divide either.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.distributed import run_local

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
MESHES = (
    *(((2,), ("data",)), ((4,), ("data",)), ((2, 2), ("data", "tensor"))),
    *(((2,), ("tensor",)), ((8,), ("data",))),
)
RATES = {"SGD": 0.1, "Adam": 0.01, "AdamW": 0.01}
CLASSES, WORDS, STEPS, CHUNK = 4, 12, 2, 3
LOSS = {"rtol": 2e-4, "atol": 1e-5}  # float32 after a step of descent, as measured on 60 seeds
# A step of Adam is as large for a small gradient as for a large one, and doubles its rounding.
VALUES = {"rtol": 3e-3, "atol": 3e-4}
_RECORDING = threading.Lock()


@dataclass(frozen=True)
class Drawn:
    """A module with what it is trained on, and how it lies on a mesh."""

    module: Any
    batches: list[tuple[Array, Array]]
    mesh: lm.Mesh
    plan: str | dict[str, tuple[str | None, ...]]
    optimizer: str
    clip: float | None
    order: str
    is_cut: bool

    @property
    def options(self) -> dict[str, float]:
        """What both optimizers are given."""
        adam = {} if self.optimizer == "SGD" else {"eps": 1e-4}
        return {"lr": RATES[self.optimizer], **adam}


def pictures(rng: random.Random) -> list[Any]:
    """Layers of a network of convolutions."""
    layers, channels = [], 3
    for _ in range(rng.randint(1, 3)):
        wide = rng.choice((4, 6, 8))
        size, padding, stride = rng.choice((1, 3)), rng.choice((0, 1)), rng.choice((1, 2))
        layers += [torch.nn.Conv2d(channels, wide, size, stride, padding, bias=rng.random() < 0.7)]
        layers += [activation(rng)]
        if rng.random() < 0.4:
            layers.append(torch.nn.GroupNorm(2, wide))
        if rng.random() < 0.3:
            layers.append(torch.nn.BatchNorm2d(wide))
        channels = wide
    return [*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
            torch.nn.Linear(channels, CLASSES)]  # fmt: skip


def words(rng: random.Random) -> list[Any]:
    """Layers of a network that begins with a table."""
    width = rng.choice((8, 10, 16))
    layers = [torch.nn.Embedding(WORDS, width), torch.nn.LayerNorm(width)]
    layers += [torch.nn.Linear(width, width), activation(rng), torch.nn.Flatten()]
    return [*layers, torch.nn.Linear(5 * width, CLASSES)]


def products(rng: random.Random) -> list[Any]:
    """Layers of a network of products."""
    layers, width = [], 8
    for _ in range(rng.randint(1, 4)):
        wide = rng.choice((8, 10, 12, 16))
        layers.append(torch.nn.Linear(width, wide, bias=rng.random() < 0.8))
        if rng.random() < 0.6:
            layers.append(activation(rng))
        if rng.random() < 0.4:
            layers.append(rng.choice((torch.nn.LayerNorm, torch.nn.BatchNorm1d))(wide))
        width = wide
    return [*layers, torch.nn.Linear(width, CLASSES)]


KINDS = ((pictures, (3, 9, 9)), (words, (5,)), (products, (8,)), (products, (8,)))


def activation(rng: random.Random) -> Any:
    """A drawn nonlinear layer."""
    kinds = (torch.nn.ReLU, torch.nn.GELU, torch.nn.Tanh, torch.nn.SiLU, torch.nn.Sigmoid)
    return rng.choice(kinds)()


def drawn(seed: int) -> Drawn:
    """The case of a seed."""
    rng, numbers = random.Random(f"modules {seed}"), np.random.default_rng(seed)
    torch.manual_seed(seed)
    kind, shape = rng.choice(KINDS)
    module = torch.nn.Sequential(*kind(rng))
    mesh, rows = lm.Mesh(*rng.choice(MESHES)), rng.choice((8, 8, 9, 10))
    batches = []
    for _ in range(STEPS):
        x = numbers.standard_normal((rows, *shape)).astype(np.float32)
        x = numbers.integers(0, WORDS, x.shape) if kind is words else x
        batches.append((x, numbers.integers(0, CLASSES, rows)))
    plan: Any = rng.choice(("data", "zero1", "zero3", "specs", "specs"))
    if plan == "specs" or "data" not in mesh.names:
        plan = specs(rng, module, mesh)
    is_cut = "data" in mesh.names and rng.random() < 0.9
    clip, order = rng.choice((None, 0.5)), rng.choice(("tree", "engine"))
    return Drawn(module, batches, mesh, plan, rng.choice([*RATES]), clip, order, is_cut)


def specs(rng: random.Random, module: Any, mesh: lm.Mesh) -> dict[str, tuple[str | None, ...]]:
    """For some Parameters the dimensions that mesh axes cut."""
    out = {}
    for name, parameter in module.named_parameters():
        spec: list[str | None] = [None] * parameter.ndim
        for axis in mesh.names:
            free = [k for k, taken in enumerate(spec) if taken is None]
            even = [k for k in free if parameter.shape[k] % mesh.ranks(axis) == 0]
            fits = free if rng.random() < 0.3 else even
            if fits and rng.random() < 0.6:
                spec[rng.choice(fits)] = axis
        if any(spec):
            out[name] = tuple(spec)
    return out


def by_torch(case: Drawn) -> tuple[list[float], dict[str, Array]]:
    """The losses and the values after the last step, in float64."""
    module = copy.deepcopy(case.module).double()
    optimizer = getattr(torch.optim, case.optimizer)(module.parameters(), **case.options)
    losses = []
    for x, y in case.batches:
        optimizer.zero_grad()
        inputs = torch.from_numpy(x)
        outputs = module(inputs.double() if inputs.is_floating_point() else inputs)
        loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(y))
        loss.backward()
        if case.clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), case.clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().numpy() for name, value in held_of(module)}


def held_of(module: Any) -> list[tuple[str, Any]]:
    """The Parameters and buffers of a module by path, but how many batches it saw."""
    both = [*module.named_parameters(), *module.named_buffers()]
    return [(name, value) for name, value in both if "num_batches" not in name]


def on_rank(case: Drawn, engine: Any) -> tuple[list[float], Mapping[str, Array]]:
    """What a rank of the mesh has of the same training."""
    with _RECORDING:  # copies of PyTorch's modules are not made by several threads at once
        model = nn.Module.from_torch(copy.deepcopy(case.module))
        model.train()
        if case.plan:
            lm.shard(model, case.plan, case.mesh)
    graph, (x, y) = lm.Graph("step"), case.batches[0]
    tensors = [
        graph.tensor(array.shape, str(array.dtype), name=name)
        for name, array in (("x", x), ("y", y))
    ]
    inputs, target = [t.shard("data") if case.is_cut else t for t in tensors]
    loss = nn.functional.cross_entropy(model(inputs), target)
    loss.output("loss")
    optimizer = getattr(optim, case.optimizer)(model.named_parameters(), **case.options)
    optimizer.step(loss, clip_norm=case.clip)
    exe = lm.compile(graph, mesh=case.mesh, collectives=case.order)
    losses = []
    for batch in case.batches:
        x, y = (own_rows(case, engine.rank, array) for array in batch)
        losses.append(float(exe({"x": x, "y": y})["loss"]))
    return losses, {name: np.array(value.whole()) for name, value in held_of(model)}


def own_rows(case: Drawn, rank: int, array: Array) -> Array:
    """The rows that a rank is given of a batch."""
    if not case.is_cut:
        return array
    ranks, place = case.mesh.ranks("data"), case.mesh.coordinates(rank)["data"]
    block = -(-len(array) // ranks)
    return array[place * block : (place + 1) * block]


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(20))
def test_ranks_train_as_pytorch_does(chunk: int) -> None:
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        case = drawn(seed)
        losses, values = by_torch(case)
        results = run_local(case.mesh.size, lambda engine, case=case: on_rank(case, engine))
        for own_losses, own_values in results:
            np.testing.assert_allclose(own_losses, losses, err_msg=f"seed {seed}", **LOSS)
            assert own_values.keys() == values.keys()
            for name, value in own_values.items():
                np.testing.assert_allclose(
                    value, values[name], err_msg=f"seed {seed}: {name}", **VALUES
                )
                first = results[0][1][name]
                assert value.tobytes() == first.tobytes(), f"seed {seed}: {name}: ranks differ"
