"""A small run of `fit` on the ranks of a mesh, as threads or as processes of MPI.

    mpiexec -n 2 python -m tests.distributed.training_run '{"plan": "zero1", "steps": 4}'

prints the digest of all that was trained, on every rank.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.distributed import run_local
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, Record, fit

Array = np.ndarray[Any, Any]


def examples(count: int = 96) -> ArrayDataset:
    """Points and a smooth function of them."""
    draw = np.random.default_rng(7)
    x = draw.standard_normal((count, 6)).astype(np.float32)
    return ArrayDataset(x, np.sin(x).sum(1, keepdims=True))


def network(kind: str = "norm") -> nn.Module:
    """With dropout and a norm of each row, or "batch", whose norms are over the batch, or "mixture"
    of four experts instead; Parameters that divide by 8, and one that does not.
    """
    lm.manual_seed(3)
    # In front of a norm over the batch a bias has no gradient but noise, which Adam makes large.
    first = nn.Linear(6, 16, bias=kind != "batch")
    norm = nn.BatchNorm1d(16) if kind == "batch" else nn.LayerNorm(16)
    middle = [nn.MoE(16, 8, 4, 2)] if kind == "mixture" else [nn.Tanh(), nn.Dropout(0.2)]
    model = nn.Sequential(first, norm, *middle, nn.Linear(16, 1))
    # The names of a rank's Parameters are in the text that ranks compare. Threads share the counter
    # that names them.
    for path, held in [*model.named_parameters(), *model.named_buffers()]:
        held.name = path
    return model


def run(
    model: nn.Module, mesh: lm.Mesh | None, steps: int = 6, rate: float = 0.01, **options: Any
) -> Record:
    """Trains so many steps of batches of 16."""
    optimizer = optim.AdamW(model.named_parameters(), lr=rate)
    data = options.pop("data", None) or Batches(examples(), 16, seed=5, drop_last=True)
    defaults: dict[str, Any] = {"progress": False, "clip_norm": 1.0, "seed": 9}
    return fit(model, F.mse_loss, data, optimizer, steps=steps, mesh=mesh, **(defaults | options))


def trained(model: nn.Module) -> dict[str, Array]:
    """All Parameters and running statistics, whole; all ranks must ask."""
    held = [*model.named_parameters(), *model.named_buffers()]
    return {path: owner.whole() for path, owner in held}


def digest(arrays: dict[str, Array]) -> str:
    """Of every bit."""
    hashed = hashlib.blake2b(digest_size=16)
    for path, array in arrays.items():
        hashed.update(f"{path} {array.dtype} {array.shape}".encode() + array.tobytes())
    return hashed.hexdigest()


def on_threads(
    size: int, kind: str = "norm", mesh: lm.Mesh | None = None, **options: Any
) -> list[tuple[Record, dict[str, Array]]]:
    """The record and what was trained, of each rank of a mesh."""
    models = [network(kind) for _ in range(size)]
    mesh = mesh or lm.Mesh((size,), ("data",))

    def work(engine: Any) -> tuple[Record, dict[str, Array]]:
        model = models[engine.rank]
        record = run(model, mesh, **options)
        return record, trained(model)

    return run_local(size, work, timeout=20)


def main(settings: dict[str, Any]) -> None:
    """Trains on the ranks that were launched; `kill`: so many steps later one of them is killed."""
    kill, rank = settings.pop("kill", None), lm.distributed.rank()
    if kill is not None and rank == lm.distributed.size() - 1:
        settings["data"] = Killing(examples(), 16, kill)
    model = network()
    record = run(model, lm.Mesh((lm.distributed.size(),), ("data",)), **settings)
    print(f"digest {digest(trained(model))} resumed {record.resumed}", flush=True)


class Killing(Batches):
    """Batches whose process is killed at one of them."""

    def __init__(self, dataset: ArrayDataset, size: int, at: int) -> None:
        super().__init__(dataset, size, seed=5, drop_last=True, prefetch=0)
        self._left = at

    def part(self, place: int, parts: int) -> Any:
        """The batches up to the fatal one."""
        for batch in super().part(place, parts):
            self._left -= 1
            if not self._left and not Path(sys.argv[2]).exists():
                Path(sys.argv[2]).touch()  # once, not after a restart
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
