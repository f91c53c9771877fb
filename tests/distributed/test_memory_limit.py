"""`memory_limit` on a mesh: the arena of each rank keeps it, and all compute the same again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.distributed import run_local
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, fit
from tests.close import close

MESH = lm.Mesh((2,), ("data",))
WIDTH, ROWS = 16, 256
X = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)


class Block(nn.Module):
    def __init__(self, inner: int) -> None:
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(x)))


def network(*inner: int) -> nn.Sequential:
    rng = np.random.default_rng(7)
    model = nn.Sequential(*map(Block, inner or (48, 64, 80, 96)))
    for parameter in model.parameters():
        parameter.set(rng.normal(size=parameter.shape).astype(np.float32) * 0.2)
    return model


def trained(rank: int, plan: str, limit: int | str | None, *inner: int) -> tuple[int, list[float]]:
    """The bytes of a rank's arena, and the losses of two steps."""
    model = lm.shard(network(*inner), plan, MESH)
    cx = lm.Graph()
    x = cx.tensor((ROWS, WIDTH), name="x").shard("data")
    loss = (model(x) ** 2).mean().output("loss")
    optim.SGD(model.parameters(), lr=0.1).step(loss)
    step = lm.compile(cx, mesh=MESH, memory_limit=limit)
    rows = np.split(X, 2)[rank]
    losses = [float(step({"x": rows})["loss"]) for _ in range(2)]
    return step.memory_report().arena_bytes, losses


def test_it_is_of_a_ranks_part_not_of_the_whole() -> None:
    def work(engine: Any) -> Any:
        own, first = trained(engine.rank, "data", None, 48, 64)
        held, losses = trained(engine.rank, "data", own, 48, 64)  # what one process could not keep
        return own == held, first == losses

    assert run_local(2, work, timeout=60) == [(True, True)] * 2


@pytest.mark.long
@pytest.mark.parametrize("plan", ["data", "zero3"])
def test_each_rank_keeps_it(plan: str) -> None:
    def work(engine: Any) -> Any:
        whole, first = trained(engine.rank, plan, None)
        limit = int(0.7 * whole)
        held, losses = trained(engine.rank, plan, limit)
        return first, losses, held <= limit < whole

    for first, losses, is_kept in run_local(2, work, timeout=60):
        assert is_kept
        close(np.float32(losses), np.float32(first), 8)


@pytest.mark.long
def test_fit_keeps_it() -> None:
    def losses(limit: str | None) -> list[float]:
        model = network()
        data = Batches(ArrayDataset(X, -X), ROWS, seed=1)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        options: dict[str, Any] = {"steps": 2, "progress": False, "memory_limit": limit}
        return fit(model, F.mse_loss, data, optimizer, mesh=MESH, plan="data", **options).losses

    first, second = (run_local(2, lambda _, n=n: losses(n), timeout=60) for n in ("1GB", "300KB"))
    close(np.float32(second), np.float32(first), 8)
    with pytest.raises(lm.CompileError, match="20,000 are allowed"):
        run_local(2, lambda engine: losses("20KB"), timeout=60)
