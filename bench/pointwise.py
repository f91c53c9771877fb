"""A chain of elementwise operations, norms and softmax of 4096 x 4096: as called, and into a buffer
that the caller has, as PyTorch's `out=`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import luminal as lm
from bench.block import EFFORT
from bench.pair import caller, compare
from bench.row import Rows

SHAPE = (4096, 4096)
CALLED, INTO = 4.0, 1.3
F = torch.nn.functional


def _chain(x: Any) -> Any:
    return ((x.sin() * 2 + 1).exp()).sqrt() / (1 + x * x)


def _chain_into(x: torch.Tensor, y: torch.Tensor, other: torch.Tensor) -> None:
    torch.sin(x, out=y)
    y.mul_(2).add_(1).exp_().sqrt_()
    torch.mul(x, x, out=other)
    y.div_(other.add_(1))


@dataclass(frozen=True, slots=True)
class _Kind:
    """A function in Luminal and in PyTorch; `into` of (x, y, a spare) writes y where it can."""

    ours: Callable[[lm.Tensor], lm.Tensor]
    theirs: Callable[[torch.Tensor], torch.Tensor]
    into: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any] | None = None


KINDS = {
    "sqrt(exp(sin(x)*2+1))/(1+x*x)": _Kind(_chain, _chain, _chain_into),
    "softmax": _Kind(
        lambda x: x.softmax(-1),
        lambda x: x.softmax(-1),
        lambda x, y, _: torch.softmax(x, -1, out=y),
    ),
    "layer_norm": _Kind(
        lambda x: x.layer_norm(-1),
        lambda x: F.layer_norm(x, SHAPE[-1:]),
        lambda x, y, other: torch.ops.aten.native_layer_norm.out(
            x, SHAPE[-1:], None, None, 1e-5,
            out0=y, out1=other[0, :, None], out2=other[1, :, None],
        ),
    ),
    "rms_norm": _Kind(lambda x: x.rms_norm(-1), lambda x: F.rms_norm(x, SHAPE[-1:])),
    "gelu": _Kind(
        lambda x: x.gelu(), F.gelu, lambda x, y, _: torch.ops.aten.gelu.out(x, out=y)
    ),
}  # fmt: skip


def rows() -> Rows:
    """Each against PyTorch eager."""
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    given, y, spare = torch.from_numpy(x), torch.empty(SHAPE), torch.empty(SHAPE)
    for name, kind in KINDS.items():
        if not EFFORT.asks_for(f"{name} 4096x4096"):
            continue
        graph = lm.Graph()
        kind.ours(graph.tensor(SHAPE, name="x")).output("y")

        def theirs(kind: _Kind = kind) -> torch.Tensor:
            return kind.theirs(given)

        yield compare(f"{name} 4096x4096", caller(graph, x=x), theirs, CALLED)
        if kind.into is None or EFFORT.quick:
            continue
        executable, own = lm.compile(graph), np.empty(SHAPE, np.float32)

        def ours_into(executable: lm.Executable = executable, own: Any = own) -> Any:
            executable({"x": x}, out=own)
            return own

        def theirs_into(into: Any = kind.into) -> torch.Tensor:
            into(given, y, spare)
            return y

        yield compare(f"{name} 4096x4096, into a buffer", ours_into, theirs_into, INTO)
