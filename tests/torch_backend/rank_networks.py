"""Ten small networks trained on two ranks of gloo, in eager mode and compiled: one rank's program.

`python -m tests.torch_backend.rank_networks RANK RANKS FILE HOW NAMES...` prints for each name the
losses of both as JSON; ranks meet at FILE.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

BATCH, WIDTH, LENGTH, WORDS = 4, 16, 6, 40
Tensor = torch.Tensor


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Attention(nn.Module):
    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.inner, self.outer = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.inner(x).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.outer(y.transpose(1, 2).flatten(2))


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(block(causal=True) for _ in range(2)))

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.blocks(self.table(ids)), self.table.weight)


class Mixture(nn.Module):
    """Experts by weights of all of them, so that every Parameter has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        return sum(shares[..., k : k + 1] * each(x).tanh() for k, each in enumerate(self.experts))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32)
        self.down = nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x) * F.silu(self.gate(x)))


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        state = x[:, 0] * 0
        for k in range(x.shape[1]):
            state = self.step(torch.cat((x[:, k], state), -1)).tanh()
        return state


def block(*, causal: bool = False) -> nn.Module:
    return nn.Sequential(
        Residual(nn.Sequential(nn.LayerNorm(WIDTH), Attention(causal=causal))),
        Residual(nn.Sequential(nn.LayerNorm(WIDTH), Gated())),
    )


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        Residual(nn.Conv2d(8, 8, 3, padding=1)), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, stride=2),
        nn.Flatten(), nn.LazyLinear(WIDTH),
    )  # fmt: skip


def vectors() -> Tensor:
    return torch.randn(BATCH, WIDTH)


def sequences() -> Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH)


def pictures() -> Tensor:
    return torch.randn(BATCH, 3, 8, 8)


def words() -> Tensor:
    return torch.randint(0, WORDS, (BATCH, LENGTH))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH)), vectors,
    ),
    "normalized": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 32), nn.LayerNorm(32), nn.Linear(32, 4)), vectors,
    ),
    "gated": (lambda: nn.Sequential(Residual(Gated()), nn.RMSNorm(WIDTH), Gated()), vectors),
    "mixture": (lambda: nn.Sequential(Mixture(), nn.LayerNorm(WIDTH), Mixture()), vectors),
    "autoencoder": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 4), nn.ELU(), nn.Linear(4, WIDTH)), vectors,
    ),
    "recurrence": (Recurrence, sequences),
    "encoder": (lambda: nn.Sequential(block(), block()), sequences),
    "causal": (lambda: nn.Sequential(block(causal=True), nn.Linear(WIDTH, 4)), sequences),
    "tied": (Tied, words),
    "convolutions": (convolutions, pictures),
}  # fmt: skip


def data(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def sharded(model: nn.Module) -> nn.Module:
    """FSDP2: each child by itself, then what is left."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for child in model.children():
        if any(True for _ in child.parameters()) and not isinstance(child, nn.Embedding):
            fully_shard(child, mesh=mesh)  # type: ignore[call-overload]
    fully_shard(model, mesh=mesh)  # type: ignore[call-overload]
    return model


def tensors(model: nn.Module) -> nn.Module:
    """DTensor: the feed-forward parts by columns, then rows."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in model.modules():
        if isinstance(part, Gated):
            plan = {"up": ColwiseParallel(), "gate": ColwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(part, mesh, plan)  # type: ignore[arg-type]
    return model


HOW: dict[str, Callable[[nn.Module], nn.Module]] = {
    "data": data, "reduced": data, "sharded": sharded, "tensors": tensors,
}  # fmt: skip


def losses(name: str, how: str, *, compiled: bool, steps: int = 20) -> list[float]:
    """The losses of a training, this rank's own."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, drawn = NETWORKS[name]
    model = make()
    model(drawn())  # lazy layers
    model = HOW[how](model)
    options: Any = {"options": {"fallback": "error"}} if how == "tensors" else {}
    run = torch.compile(model, backend="luminal", **options) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    torch.manual_seed(1 if how == "tensors" else 1 + dist.get_rank())  # each rank's own rows
    found = []
    for _ in range(steps):
        x = drawn()
        loss = (run(x) - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main() -> None:
    rank, ranks, file, how, *names = sys.argv[1:]
    torch.set_num_threads(1)
    if how == "reduced":  # DDP's gradients by functional collectives, in the backward graph
        torch._dynamo.config.optimize_ddp = "python_reducer"
        torch._dynamo.config.compiled_autograd = True
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=int(rank), world_size=int(ranks)
    )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for name in names:
            both = [losses(name, how, compiled=compiled) for compiled in (False, True)]
            print(json.dumps([name, *both]), flush=True)
    left = sorted({str(w.message) for w in heard if "PyTorch runs" in str(w.message)})
    print(json.dumps(["left to PyTorch", left]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
