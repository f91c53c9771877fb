"""Drawn attention by matrix rows, for both meanings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import luminal as lm
from luminal.backends.c_backend import machine
from luminal.base.dots import MADE_UP_CHAIN
from luminal.kernel.tile_ir import Kernel
from tests.backends.groups.both_meanings import SMALL, Both
from tests.fuzz.graphs import Case

MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda i, j: None,
    "causal": lambda i, j: j <= i,
    "window": lambda i, j: (j <= i + 3) & (j > i - 9),
    "some see nothing": lambda i, j: j < i - 4,
}


DRAWS = range(24)


NEAR = 1e-2  # results of bfloat16, which rounds to 2**-9


@cache
def backend() -> Both:
    """A device of groups of two teams that multiply together."""
    groups = replace(SMALL, lanes=8, most=16, subgroup=4, copies=16)
    return Both(machine("groups", 2, 32 << 10, 1 << 20, dots=(MADE_UP_CHAIN,)), groups=groups)


def drawn(seed: int) -> tuple[Case, str]:
    """A random attention: lengths, widths, heads that share keys, mask, biases, what is stored."""
    rng = np.random.default_rng(seed)
    heads, shared = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    queries, keys = int(rng.integers(6, 12)), int(rng.integers(6, 27))
    width, further = int(rng.integers(3, 10)), int(rng.integers(2, 10))
    if seed % 3:  # lanes copy whole words
        width, further = 8, 8 * int(rng.integers(1, 3))
    if seed % 2:  # and whole words of what is a number a key
        keys = -(-keys // 4) * 4
    mask = [*MASKS][seed % len(MASKS)]
    cx = lm.Graph()
    shapes = {
        "q": (heads, shared, queries, width),
        "k": (heads, 1, keys, width),
        "v": (heads, 1, keys, further),
    }
    named = {n: cx.tensor(s, name=n, dtype="bfloat16") for n, s in shapes.items()}
    q, k, v = (x.cast("float32") for x in named.values())
    scores = q @ k.mT * 0.4
    if rng.integers(2):
        shapes["b"] = (queries, keys)
        scores = scores + cx.tensor(shapes["b"], name="b")
    if seed % 3 != 2:
        shapes["c"] = (keys,)
        scores = scores + cx.tensor((keys,), name="c")
    at = cx.arange(queries).reshape(queries, 1), cx.arange(keys).reshape(1, keys)
    seen = MASKS[mask](*at)
    if seen is not None:
        scores = lm.where(seen, scores, -np.inf)
    (scores.softmax(-1) @ v).cast("bfloat16" if rng.integers(2) else "float32").output("y")
    if rng.integers(2):
        scores.logsumexp(-1).output("z")
    inputs = {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    inputs |= {n: inputs[n].astype(ml_dtypes.bfloat16) for n in "qkv"}
    return Case(cx.graph(), inputs, {}, {}), f"{shapes} {mask}"


def given(kernel: Kernel) -> dict[str, Any]:
    """Arrays for the buffers of a kernel: small random numbers."""
    rng = np.random.default_rng(1)
    return {
        b.name: rng.standard_normal(int(b.size.constant)).astype(b.dtype.numpy)
        for b in kernel.buffers
    }
