"""Models trained for some steps on a mesh: a program of ranks that prints what came out.

`python -m tests.distributed.mesh_models [--cuda | --hip] llama:zero1 ...` under mpiexec, or
`trained` on a thread.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig, Rotary
from luminal.models.train import ModelSettings, new_llama, next_token_loss

STEPS = 3
_DRAWING = threading.Lock()
BATCH = 8


class Pictures(nn.Module):
    """A small convolutional network with a norm over the batch, whose statistics are States."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        """(batch, 3, 8, 8) pictures to (batch, 4) logits."""
        x = self.second(self.norm(self.first(x)).relu()).relu()
        return self.head(x.mean((2, 3)))


class Experts(nn.Module):
    """A mixture of four experts of which each row takes the two that its gate likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4, bias=False)
        self.inner = lm.Parameter(
            np.random.default_rng(1).normal(size=(4, 16, 24)) * 0.2, "float32"
        )
        self.outer = lm.Parameter(
            np.random.default_rng(2).normal(size=(4, 24, 16)) * 0.2, "float32"
        )

    def forward(self, x: Any) -> Any:
        """(batch, 16) rows to rows of the same shape."""
        weights = self.gate(x).softmax(-1)
        best = weights.topk(2, -1)[0][:, 1:]
        kept = lm.where(weights < best, 0, weights)
        hidden = lm.einsum("bi,eio->beo", x, self.inner).relu()
        return lm.einsum("beo,eoi,be->bi", hidden, self.outer, kept)


def _llama() -> tuple[nn.Module, Callable[..., Any], list[tuple[Any, ...]]]:
    model = new_llama(ModelSettings(32, 48, 2, 4, 16, num_key_value_heads=2), 64)
    return model, next_token_loss, [((BATCH, 16), "int32", 64), ((BATCH, 16), "int32", 64)]


def _pictures() -> tuple[nn.Module, Callable[..., Any], list[tuple[Any, ...]]]:
    loss = nn.functional.cross_entropy
    return Pictures(), loss, [((BATCH, 3, 8, 8), "float32", 0), ((BATCH,), "int32", 4)]


def _experts() -> tuple[nn.Module, Callable[..., Any], list[tuple[Any, ...]]]:
    def loss(y: Any, target: Any) -> Any:
        return ((y - target) ** 2).mean()

    return Experts(), loss, [((BATCH, 16), "float32", 0), ((BATCH, 16), "float32", 0)]


def _mixture() -> tuple[nn.Module, Callable[..., Any], list[tuple[Any, ...]]]:
    layers = (LayerConfig(None, Rotary(), experts=True),) * 2
    sizes = ExpertsConfig(count=4, top_k=2, intermediate_size=24)
    model = Decoder(DecoderConfig(64, 32, 48, layers, 4, 2, 8, 16, experts=sizes))
    return model, next_token_loss, [((BATCH, 16), "int32", 64), ((BATCH, 16), "int32", 64)]


MODELS = {"llama": _llama, "pictures": _pictures, "experts": _experts, "mixture": _mixture}


def trained(name: str, plan: str, ranks: int) -> str:
    """A digest of all Parameters and States, and of the losses, after some steps."""
    return _digest(steps(name, plan, ranks))


def _digest(results: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for array in results.values():
        digest.update(array.tobytes())
    return digest.hexdigest()


def steps(
    name: str, plan: str, ranks: int, collectives: Literal["tree", "engine"] | None = None
) -> dict[str, Any]:
    """The losses of some steps, and all Parameters and States after them, whole, by name."""
    with _DRAWING:  # ranks that are threads share one stream of seeds
        lm.manual_seed(0)
        model, loss_of, kinds = MODELS[name]()
    axis = plan if plan in ("tensor", "sequence", "expert") else "data"
    mesh = lm.Mesh((ranks,), (axis,))
    lm.shard(model, plan, mesh)
    graph = lm.Graph(name)
    inputs = [graph.tensor(shape, dtype, name=f"x{k}") for k, (shape, dtype, _) in enumerate(kinds)]
    specs = {"tensor": (), "sequence": (None, "sequence/1"), "expert": ("expert",)}
    cut = [x.shard(*specs.get(plan, ("data",))) for x in inputs]
    loss = loss_of(model(*cut[:-1]), cut[-1])
    loss.output("loss")
    optim.AdamW(model.named_parameters(), lr=1e-2).step(loss, clip_norm=1.0)
    step = lm.compile(graph, mesh=mesh, collectives=collectives)
    rng, results = np.random.default_rng(3), {}
    rank = lm.distributed.rank()
    for number in range(STEPS):
        batch = {}
        for k, (shape, dtype, most) in enumerate(kinds):
            whole = rng.integers(0, most, shape) if most else rng.normal(size=shape)
            rows = whole.astype(dtype)
            if plan == "sequence":
                rows = rows[:, rank::ranks]
            elif plan != "tensor":
                rows = np.split(rows, ranks)[rank]
            batch[f"x{k}"] = np.ascontiguousarray(rows)
        results[f"loss {number}"] = np.array(step(batch)["loss"])
    for path, held in [*model.named_parameters(), *model.named_buffers()]:
        results[path] = np.ascontiguousarray(held.whole())
    return results


_BACKENDS = {
    "": lm.distributed.MpiBackend,
    "--cuda": lm.distributed.NcclBackend,
    "--hip": lm.distributed.RcclBackend,
}


def main() -> None:
    """Prints the digests of what the command line asks for, and the losses, by rank."""
    arguments = sys.argv[1:]
    _BACKENDS[arguments.pop(0) if arguments[0] in _BACKENDS else ""]()
    told: dict[str, Any] = {"rank": lm.distributed.rank()}
    for asked in arguments:
        name, plan = asked.split(":")
        results = steps(name, plan, lm.distributed.size(), "tree")
        told[asked] = _digest(results)
        told[f"losses of {asked}"] = losses(results)
    print("digests " + json.dumps(told), flush=True)


def losses(results: Mapping[str, Any]) -> list[float]:
    """Those of what `steps` gives."""
    return [float(results[f"loss {number}"]) for number in range(STEPS)]


if __name__ == "__main__":
    main()
