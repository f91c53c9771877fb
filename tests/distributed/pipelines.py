"""Small networks in stages on the ranks of a pipeline, and the same steps on one rank.

    mpiexec -n 2 python -m tests.distributed.pipelines '{"net": "mlp", "stages": 2}'

prints the digest of all that was trained, on every rank.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.distributed import MpiBackend, PipelineParallel, Schedule, run_local
from luminal.models.train import ModelSettings, new_llama
from luminal.nn import functional as F
from luminal.optim.clip import clip_grad_norm
from luminal.training import GradientAccumulator, PipelineStep

Array = np.ndarray[Any, Any]
RATE, CLIP = 1e-2, 1.0


class UNet(nn.Module):
    """Two levels, whose values go to the last layers past all between."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        c = channels
        self.down = nn.Conv2d(1, c, 3, padding=1)
        self.deeper = nn.Conv2d(c, 2 * c, 3, padding=1)
        self.norm = nn.GroupNorm(2, 2 * c)
        self.middle = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.up = nn.Conv2d(4 * c, c, 3, padding=1)
        self.last = nn.Conv2d(2 * c, 1, 3, padding=1)

    def forward(self, x: Any) -> Any:
        """Pictures of the size of `x`."""
        first = F.relu(self.down(x))
        second = F.relu(self.norm(self.deeper(F.max_pool2d(first, 2))))
        x = F.relu(self.middle(F.max_pool2d(second, 2)))
        x = F.relu(self.up(lm.cat([_twice(x), second], 1)))
        return self.last(lm.cat([_twice(x), first], 1))


def _twice(x: lm.Tensor) -> lm.Tensor:
    return x.repeat_interleave(2, -1).repeat_interleave(2, -2)


class Again(nn.Module):
    """Layers whose values are computed again for the gradients, whichever stage they are of."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.Tanh())
        self.second = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 1))

    def forward(self, x: Any) -> Any:
        """A number for each row."""
        return lm.checkpoint(self.second)(lm.checkpoint(self.first)(x))


class Recurrent(nn.Module):
    """Loops that are recorded as such: each is of one stage as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRU(6, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        """A number for each row, which is read three times."""
        x = x.reshape(x.shape[0], 1, 6).expand(x.shape[0], 3, 6)
        return self.last(self.second(self.first(x)[0])[0][:, -1])


class Repeated(nn.Module):
    """One layer in every stage."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        """A number for each row."""
        x = self.first(x)
        for _ in range(3):
            x = F.gelu(self.middle(x)) + x
        return self.last(x)


def mlp() -> nn.Module:
    """Layers of several kinds, one after the other."""
    return nn.Sequential(
        nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(),
        nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1),
    )  # fmt: skip


def llama(tied: bool = True) -> nn.Module:
    """A Transformer of two layers, whose table of embeddings is its last layer as well if tied."""
    settings = ModelSettings(16, 32, 2, 2, 32, num_key_value_heads=1, tie_word_embeddings=tied)
    return new_llama(settings, 32)


def next_token(logits: lm.Tensor, ids: lm.Tensor) -> lm.Tensor:
    """The mean cross-entropy of each next token."""
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


class Net(NamedTuple):
    """A network, its loss, and a batch for it."""

    make: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Any]
    batch: tuple[Array, ...]


def _nets() -> dict[str, Net]:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((16, 6)).astype(np.float32)
    pictures = draw.standard_normal((8, 1, 8, 8)).astype(np.float32)
    ids = draw.integers(0, 32, (8, 9)).astype(np.int32)
    text = ids[:, :-1].copy(), ids[:, 1:].copy()
    return {
        "mlp": Net(mlp, F.mse_loss, (x, np.sin(x).sum(1, keepdims=True))),
        "unet": Net(UNet, F.mse_loss, (pictures, np.tanh(pictures))),
        "llama": Net(llama, next_token, text),
        "again": Net(Again, F.mse_loss, (x, np.sin(x).sum(1, keepdims=True))),
        "recurrent": Net(Recurrent, F.mse_loss, (x, np.sin(x).sum(1, keepdims=True))),
        "repeated": Net(Repeated, F.mse_loss, (x, np.sin(x).sum(1, keepdims=True))),
    }


NETS = _nets()


def made(name: str, make: Callable[[], nn.Module] | None = None) -> nn.Module:
    """The network with its first values."""
    lm.manual_seed(3)
    return (make or NETS[name].make)()


class Trained(NamedTuple):
    """The loss and the norm of the gradient of each step, and all Parameters at the end."""

    steps: list[tuple[float, float]]
    values: dict[str, Array]

    def same_as(self, other: Trained) -> bool:
        """Is every bit the same?"""
        return self.steps == other.steps and all(
            np.array_equal(self.values[path].view(np.uint8), other.values[path].view(np.uint8))
            for path in other.values
        )

    def farthest(self, other: Trained) -> float:
        """The largest difference of any element."""
        return max(
            float(np.abs(value - other.values[path]).max()) for path, value in self.values.items()
        )


def in_stages(
    name: str, ranks: int, stages: int, schedule: str | Schedule, *, microbatches: int = 4,
    backend: str | None = "reference", steps: int = 2, mesh: lm.Mesh | None = None,
    plan: str | None = None, look: Callable[[PipelineStep], Any] = lambda step: None,
) -> list[Trained]:  # fmt: skip
    """What each rank has after some steps; `look` is called at the end on each."""
    net, mesh = NETS[name], mesh or lm.Mesh((ranks,), ("pipe",))
    models = [made(name) for _ in range(mesh.size)]

    def work(engine: Any) -> Trained:
        model = models[engine.rank]
        step = PipelineStep(
            PipelineParallel(model, MpiBackend(), stages, microbatches, schedule, mesh, plan),
            net.loss, optim.AdamW(model.named_parameters(), lr=RATE), CLIP, backend=backend,
        )  # fmt: skip
        rows = _rows(net.batch, microbatches, mesh, engine.rank)
        told = [(step(*rows), float(step.grad_norm or 0)) for _ in range(steps)]
        step.synchronize()
        look(step)
        return Trained(told, {path: p.whole() for path, p in model.named_parameters()})

    return run_local(mesh.size, work, timeout=20)


def _rows(batch: Sequence[Array], count: int, mesh: lm.Mesh, rank: int) -> list[Array]:
    """A rank's rows of each microbatch."""
    if "data" not in mesh.names:
        return [*batch]
    place, parts = mesh.coordinates(rank)["data"], mesh.ranks("data")
    return [
        np.concatenate([np.split(one, parts)[place] for one in np.split(array, count)])
        for array in batch
    ]


def accumulated(
    name: str, *, microbatches: int = 4, backend: str | None = "reference", steps: int = 2
) -> Trained:
    """One rank: one program of the whole network, microbatches added by GradientAccumulator."""
    net, model = NETS[name], made(name)
    sums = GradientAccumulator(optim.AdamW(model.named_parameters(), lr=RATE), microbatches)
    graph = lm.Graph()
    inputs = _inputs(graph, net.batch, microbatches)
    loss = net.loss(model(*inputs[:-1]), inputs[-1])
    norm = sums.step(loss, CLIP)
    assert norm is not None
    loss.output("loss")
    norm.output("norm")
    exe = lm.compile(graph, backend)
    told = []
    for _ in range(steps):
        runs = [exe(given) for given in _given(net.batch, microbatches)]
        told.append((_mean([run["loss"] for run in runs]), float(runs[-1]["norm"])))
    return Trained(told, {path: p.numpy() for path, p in model.named_parameters()})


def accumulated_tied(*, microbatches: int = 4, steps: int = 2) -> Trained:
    """The tied network on one rank by NumPy's sums: its head and its table have each a sum of all
    microbatches, and these are added at the end. A twin that is not tied tells them apart.
    """
    net, tied, twin = NETS["llama"], made("llama"), made("llama", lambda: llama(False))
    apart = dict(twin.named_parameters())
    optimizer = optim.AdamW(tied.named_parameters(), lr=RATE)
    leaf = lm.Graph()
    inputs = _inputs(leaf, net.batch, microbatches)
    loss = net.loss(twin(*inputs[:-1]), inputs[-1])
    loss.output("loss")
    pulled = optim.SGD(twin.parameters(), lr=1.0).gradients(loss)
    for path, p in apart.items():
        pulled[p].output(path)
    gradients = lm.compile(leaf, "reference")
    update = lm.Graph()
    means = {p: update.tensor(p.shape, name=path) for path, p in tied.named_parameters()}
    clipped, norm = clip_grad_norm(means, CLIP)
    norm.output("norm")
    optimizer.apply(clipped)
    apply = lm.compile(update, "reference")
    table, head = "model.embed_tokens.weight", "lm_head.weight"
    factor, told = np.float32(1) / np.float32(microbatches), []
    for _ in range(steps):
        for path, p in tied.named_parameters():
            apart[path].set(p.numpy())
        apart[head].set(apart[table].numpy())
        runs = [gradients(given) for given in _given(net.batch, microbatches)]
        sums = {path: reduce(np.add, [run[path] for run in runs]) for path in apart}
        sums[table] = sums.pop(head) + sums[table]
        norms = apply({path: total * factor for path, total in sums.items()})
        told.append((_mean([run["loss"] for run in runs]), float(norms["norm"])))
    return Trained(told, {path: p.numpy() for path, p in tied.named_parameters()})


def _inputs(graph: lm.Graph, batch: Sequence[Array], count: int) -> list[lm.Tensor]:
    return [
        graph.tensor((len(array) // count, *array.shape[1:]), array.dtype.name, name=f"x{k}")
        for k, array in enumerate(batch)
    ]


def _given(batch: Sequence[Array], count: int) -> list[dict[str, Array]]:
    parts = zip(*(np.split(array, count) for array in batch), strict=True)
    return [{f"x{k}": array for k, array in enumerate(part)} for part in parts]


def _mean(losses: Sequence[Array]) -> float:
    total = reduce(np.add, [np.float32(loss) for loss in losses])
    return float(total * (np.float32(1) / np.float32(len(losses))))


def digest(values: Mapping[str, Array]) -> str:
    """Of every bit."""
    hashed = hashlib.blake2b(digest_size=8)
    for path, array in values.items():
        hashed.update(path.encode() + array.tobytes())
    return hashed.hexdigest()


def main(settings: dict[str, Any]) -> None:
    """Takes steps on the ranks that were launched; `kill`: the last rank is killed behind two."""
    name = settings["net"]
    net, model = NETS[name], made(name)
    step = PipelineStep(
        PipelineParallel(
            model, MpiBackend(), settings["stages"], 4, settings.get("schedule", "1f1b")
        ),
        net.loss, optim.AdamW(model.named_parameters(), lr=RATE), CLIP,
    )  # fmt: skip
    for _ in range(2):
        loss = step(*net.batch)
    if settings.get("kill"):
        if lm.distributed.rank() == lm.distributed.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        step(*net.batch)
    step.synchronize()
    values = {path: p.numpy() for path, p in model.named_parameters()}
    print(f"digest {digest(values)} loss {loss!r}", flush=True)


def measured(schedule: str, width: int = 768, rows: int = 384) -> None:
    """Prints the idle share of steps of wide layers, and the simulated one: medians of steps."""
    # As many microbatches as make shares of about a fifth: of a small one less can be measured.
    microbatches = 4 if schedule in ("gpipe", "1f1b") else 2
    lm.manual_seed(0)
    layers = [nn.Linear(width, width) for _ in range(8)]
    model = nn.Sequential(*(nn.Sequential(layer, nn.ReLU()) for layer in layers))
    ranks = lm.distributed.size()
    stages = 2 * ranks if schedule == "interleaved" else ranks
    step = PipelineStep(
        PipelineParallel(model, MpiBackend(), stages, microbatches, schedule),
        F.mse_loss, optim.SGD(model.named_parameters(), lr=1e-3),
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((microbatches * rows, width)).astype(np.float32)
    shares = []
    for number in range(7):
        step(x, x)
        timeline = step.timeline()
        if number > 1:  # the first ones compile, and meet memory for the first time
            shares.append((timeline.idle, step.simulated(timeline).idle))
    medians = [sorted(column)[len(shares) // 2] for column in zip(*shares, strict=True)]
    if lm.distributed.rank() == 0:
        print(f"idle {schedule} {medians[0]:.4f} {medians[1]:.4f}", flush=True)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    measured(asked["measure"]) if "measure" in asked else main(asked)
