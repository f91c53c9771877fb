"""Attention of 8 heads of width 64 from the plain graph, causal and not: time, memory, error."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch
import torch.nn.functional as f

import luminal as lm
from bench.pair import compare, in_turns
from bench.row import Row, Rows

Array = np.ndarray[Any, Any]
HEADS, WIDTH = 8, 64
LENGTHS = (512, 1024, 2048, 4096, 8192)
SAMPLES = 256  # rows of the result that are computed again in float64


def rows() -> Rows:
    """For each length: against PyTorch's fused kernel, causal against not, memory, error."""
    for length in LENGTHS:
        yield from _rows(length)


def _rows(length: int) -> Rows:
    random = np.random.default_rng(length)
    shape = (HEADS, length, WIDTH)
    inputs = {name: random.standard_normal(shape, np.float32) for name in "qkv"}
    q, k, v = (torch.from_numpy(array)[None] for array in inputs.values())
    calls = {}
    for causal in (False, True):
        name = f"attention {length}{' causal' if causal else ''}"
        exe = lm.compile(graph(length, causal))
        if len(exe.report().kernels) != 1:
            raise AssertionError(f"{name}: {len(exe.report().kernels)} kernels; it should be one")

        def ours(exe: lm.Executable = exe) -> Array:
            return exe(inputs)["y"]

        def theirs(causal: bool = causal) -> torch.Tensor:
            return f.scaled_dot_product_attention(q, k, v, is_causal=causal)[0]

        calls[causal] = ours
        flops = 4 * HEADS * WIDTH * length * (length + 1 if causal else 2 * length) // 2
        yield compare(name, ours, theirs, 1.0, flops=flops)
        memory = exe.memory_report()
        used, most = memory.arena_bytes + memory.scratch_bytes, 64 * length * HEADS + (8 << 20)
        yield Row(f"{name}: arena, scratch", used / 2**20, most / 2**20, "MiB", (0, used / 2**20))
        off = error(ours(), inputs, causal, random)
        yield Row(f"{name}: error", off, 1e-5, "of the norm", (off, off))
    pairs = in_turns(calls[True], calls[False])
    ratios = [ours / other for ours, other in pairs]
    spread = (min(ratios), max(ratios))
    yield Row(f"attention {length}: causal", statistics.median(ratios), 0.6, "of whole", spread)


def graph(length: int, causal: bool) -> lm.Graph:
    """Attention as anyone writes it."""
    cx = lm.Graph()
    q, k, v = (cx.tensor((HEADS, length, WIDTH), name=name) for name in "qkv")
    scores = q @ k.transpose(-1, -2) * WIDTH**-0.5
    if causal:
        i, j = cx.arange(length).reshape(length, 1), cx.arange(length).reshape(1, length)
        scores = lm.where(j <= i, scores, -np.inf)
    (scores.softmax(-1) @ v).output("y")
    return cx


def error(
    found: Array, inputs: dict[str, Array], causal: bool, random: np.random.Generator
) -> float:
    """The norm of the error relative to float64, over some rows."""
    q, k, v = (array.astype(np.float64) for array in inputs.values())
    difference, norm = 0.0, 0.0
    for _ in range(SAMPLES):
        head, row = random.integers(HEADS), random.integers(len(q[0]))
        seen = row + 1 if causal else len(k[0])
        scores = k[head, :seen] @ q[head, row] * WIDTH**-0.5
        weights = np.exp(scores - scores.max())
        expected = weights @ v[head, :seen] / weights.sum()
        difference += float(np.square(found[head, row] - expected).sum())
        norm += float(np.square(expected).sum())
    return float(np.sqrt(difference / norm))
