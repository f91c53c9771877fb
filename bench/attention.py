"""Attention from plain graphs: of 8 heads of width 64 time, memory and error; other widths, groups
of heads, windows, one query over a cache, bfloat16, forward and backward.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as f

import luminal as lm
from bench.block import EFFORT
from bench.limits import Counted
from bench.pair import TOLERANCE, compare, in_pairs
from bench.row import Row, Rows
from bench.targets import against_mkl
from bench.work import BFLOAT16, Work, normal, rows_of
from luminal.nn import functional

Array = np.ndarray[Any, Any]
HEADS, WIDTH = 8, 64
NAMES = (*"qkv", "up")
LENGTHS = (512, 1024, 2048, 4096, 8192)
QUICK = (1024,)
BF16_ROUNDED = 0.03
LONG, WINDOW = 8192, 512
SAMPLES = 256  # rows of the result that are computed again in float64


def rows() -> Rows:
    """For each length: against PyTorch's fused kernel, causal against not, memory, error."""
    for length in QUICK if EFFORT.quick else LENGTHS:
        if EFFORT.asks_for(f"attention {length}"):
            yield from _rows(length)
    yield from rows_of(_others())
    if not EFFORT.quick:
        for dtype in (np.dtype(np.float32), BFLOAT16):
            for causal in (False, True):
                if EFFORT.asks_for(_backward_name(causal, dtype)):
                    yield from _backward(causal, dtype)


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
        yield compare(name, ours, theirs, against_mkl(1.8), Counted(flops))
        memory = exe.memory_report()
        used, most = memory.arena_bytes + memory.scratch_bytes, 64 * length * HEADS + (8 << 20)
        yield Row(f"{name}: arena, scratch", used / 2**20, most / 2**20, "MiB", (0, used / 2**20))
        off = error(ours(), inputs, causal, random)
        yield Row(f"{name}: error", off, 1e-5, "of the norm", (off, off))
    found = in_pairs(calls[True], calls[False])
    ratios = [ours / other for ours, other in found]
    spread = (min(ratios), max(ratios))
    yield Row(f"attention {length}: causal", statistics.median(ratios), 0.6, "of whole", spread)


def _others() -> Iterator[Work]:
    own, peer = functional.scaled_dot_product_attention, f.scaled_dot_product_attention

    def work(
        name: str, target: float, shapes: Sequence[tuple[int, ...]], dtype: Any, **options: Any
    ) -> Work:
        drawn = [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
        given = dict(zip("qkv", drawn, strict=True))
        tolerance = 1e-3 if dtype == np.float32 else BF16_ROUNDED
        return Work(
            name,
            against_mkl(target) if dtype == np.float32 else target,
            given,
            partial(own, **options),
            partial(peer, **options),
            tolerance=tolerance,
        )

    for width in (80, 128):
        for causal in (False, True):
            name = f"attention 2048, width {width}{' causal' if causal else ''}"
            yield work(name, 1.8, [(1, HEADS, 2048, width)] * 3, np.float32, is_causal=causal)
    shapes = [(1, heads, 1024, WIDTH) for heads in (32, 8, 8)]
    yield work(
        "attention 1024 causal, 32 heads by 8",
        1.5,
        shapes,
        np.float32,
        is_causal=True,
        enable_gqa=True,
    )
    shapes = [(1, HEADS, rows, WIDTH) for rows in (1, 4096, 4096)]
    yield work("attention of one query over 4096", 2.0, shapes, np.float32)
    for length, causal in ((512, False), (2048, False), (2048, True)):
        name = f"bf16 attention {length}{' causal' if causal else ''}"
        yield work(name, 1.3, [(1, HEADS, length, WIDTH)] * 3, BFLOAT16, is_causal=causal)
    yield _window()


def _window() -> Work:
    """Each query sees the WINDOW positions up to its own; PyTorch is given the mask."""
    at = np.arange(LONG)
    seen = torch.from_numpy((at <= at[:, None]) & (at > at[:, None] - WINDOW))

    def ours(q: lm.Tensor, k: lm.Tensor, v: lm.Tensor) -> Any:
        cx = q.graph
        i, j = cx.arange(LONG).reshape(LONG, 1), cx.arange(LONG).reshape(1, LONG)
        scores = (q @ k.transpose(-1, -2)) * WIDTH**-0.5
        weights = lm.where((j <= i) & (j > i - WINDOW), scores, -np.inf).softmax(-1)
        return weights @ v

    given = {name: normal(1, HEADS, LONG, WIDTH, seed=seed) for seed, name in enumerate("qkv")}
    theirs = partial(f.scaled_dot_product_attention, attn_mask=seen)
    return Work(f"attention {LONG}, window {WINDOW}", against_mkl(4.0), given, ours, theirs)


def _backward(causal: bool, dtype: np.dtype[Any]) -> Rows:
    """All three gradients of 8 heads of 2048, against PyTorch's: time, memory, error."""
    shape = (1, HEADS, 2048, WIDTH)
    narrow = dtype is BFLOAT16
    given = {name: normal(*shape, dtype=dtype, seed=seed) for seed, name in enumerate(NAMES)}
    executable = lm.compile(gradients(shape, causal, dtype))
    with torch.inference_mode(False):
        floats = [torch.from_numpy(x.astype(np.float32)) for x in given.values()]
        *leaves, seed = (x.bfloat16() if narrow else x for x in floats)
        doubles = [x.double().requires_grad_() for x in leaves]
        leaves = [x.requires_grad_() for x in leaves]

    attend: Any = f.scaled_dot_product_attention

    def pulled(leaves: list[torch.Tensor], seed: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            found = attend(*leaves, is_causal=causal)
            return torch.stack(torch.autograd.grad(found, leaves, seed))

    def ours() -> Array:
        found = executable(given)
        return np.stack([found[name] for name in "qkv"])

    name = _backward_name(causal, dtype)
    tolerance, most = (BF16_ROUNDED, BF16_ROUNDED) if narrow else (TOLERANCE, 1e-5)
    theirs = partial(pulled, leaves, seed)
    target = 1.3 if narrow else against_mkl(1.3)
    yield compare(name, ours, theirs, target, tolerance=tolerance)
    memory = executable.memory_report()
    used = (memory.arena_bytes + memory.scratch_bytes) / 2**20
    yield Row(f"{name}: arena, scratch", used, 8.0, "MiB", (used, used))
    with torch.inference_mode(False):
        wanted = pulled(doubles, seed.double()).numpy()
    off = float(np.linalg.norm(ours().astype(np.float64) - wanted) / np.linalg.norm(wanted))
    yield Row(f"{name}: error", off, most, "of the norm", (off, off))


def _backward_name(causal: bool, dtype: np.dtype[Any]) -> str:
    narrow = dtype is BFLOAT16
    return f"{'bf16 ' * narrow}attention forward and backward 2048{' causal' * causal}"


def gradients(shape: tuple[int, ...], causal: bool, dtype: Any = np.float32) -> lm.Graph:
    """Those of all three operands."""
    cx = lm.Graph()
    q, k, v, up = (cx.tensor(shape, dtype, name=name) for name in NAMES)
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    for name, gradient in zip("qkv", lm.grad((y * up).sum(), [q, k, v]), strict=True):
        gradient.output(name)
    return cx


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
