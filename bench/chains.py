"""What is computed of a product of matrices row by row, as one kernel that never holds the product:
against `torch.compile`, with memory and error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import luminal as lm
from bench.block import EFFORT
from bench.limits import Counted
from bench.pair import array, compare
from bench.row import Row, Rows

Array = np.ndarray[Any, Any]
Fn = Callable[..., Any]
HEADS, LENGTH, WIDTH = 8, 1024, 64
SCALE = WIDTH**-0.5
QUICK = ("relu", "argmax")
ERROR = 1e-5  # of the norm, to PyTorch in float64


def scores(q: Any, k: Any) -> Any:
    return q @ k.mT * SCALE


def quotient(q: Any, k: Any, v: Any) -> Any:
    e = scores(q, k).exp()
    total = e.sum(-1, keepdim=True)
    return (e / total) @ v


def sink(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    top = s.amax(-1, keepdim=True).clip(0)
    e = (s - top).exp()
    return (e @ v) / (e.sum(-1, keepdim=True) + (-top).exp())


def entropy(q: Any, k: Any) -> Any:
    s = scores(q, k)
    return -(s.softmax(-1) * s.log_softmax(-1)).sum(-1)


def two(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    return s.softmax(-1) @ v + (s * 2).softmax(-1) @ v


CHAINS: dict[str, Fn] = {  # of tensors of either library
    "relu": lambda q, k, v: scores(q, k).relu() @ v,
    "squared relu": lambda q, k, v: scores(q, k).relu().square() @ v,
    "sigmoid": lambda q, k, v: scores(q, k).sigmoid() @ v,
    "silu": lambda q, k, v: (scores(q, k) * scores(q, k).sigmoid()) @ v,
    "exp over its sum": quotient,
    "softmax with a sink": sink,
    "two softmaxes": two,
    "log-softmax": lambda q, k, v: scores(q, k).log_softmax(-1) @ v,
    "amax": lambda q, k: scores(q, k).amax(-1),
    "argmax": lambda q, k: scores(q, k).argmax(-1),
    "variance": lambda q, k: scores(q, k).var(-1),
    "entropy": entropy,
}


def rows() -> Rows:
    """Each chain: time beside PyTorch's, then memory and error."""
    random = np.random.default_rng(0)
    inputs = {n: random.standard_normal((HEADS, LENGTH, WIDTH), np.float32) for n in "qkv"}
    for name in QUICK if EFFORT.quick else CHAINS:
        fn = CHAINS[name]
        yield from _rows(name, fn, {n: inputs[n] for n in "qkv"[: fn.__code__.co_argcount]})


def _rows(name: str, fn: Fn, inputs: dict[str, Array]) -> Rows:
    name = f"chain {name}"
    cx = lm.Graph()
    fn(*(cx.tensor(x.shape, name=n) for n, x in inputs.items())).output("y")
    exe = lm.compile(cx)
    if len(exe.report().kernels) != 1:
        raise AssertionError(f"{name}: {len(exe.report().kernels)} kernels; it should be one")
    tensors = [torch.from_numpy(x) for x in inputs.values()]
    compiled = torch.compile(fn, fullgraph=True)

    def theirs() -> Tensor:
        found = compiled(*tensors)
        assert isinstance(found, Tensor)
        return found

    def ours() -> Array:
        return exe(inputs)["y"]

    flops = 2 * (len(inputs) - 1) * HEADS * LENGTH * LENGTH * WIDTH
    yield compare(name, ours, {"torch.compile": theirs}, 1.5, counted=Counted(flops))
    memory = exe.memory_report()
    used = (memory.arena_bytes + memory.scratch_bytes) / 2**20
    yield Row(f"{name}: arena, scratch", used, 1.0, "MiB", (used, used))
    wanted = array(fn(*(x.double() for x in tensors))).astype(np.float64)
    off = float(np.linalg.norm(ours() - wanted) / np.linalg.norm(wanted))
    yield Row(f"{name}: error", off, ERROR, "of the norm", (off, off))
