"""A backend with matrix dots, and kernels of it that are changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from luminal.backends.c_backend import machine
from luminal.base.dots import (
    MADE_UP,
    MMA_BF16,
    MMA_F16,
    MMA_S8,
    MMA_TF32,
    Dot,
    Rounding,
)
from luminal.base.dtypes import bfloat16, float16, float32, int8, int32
from luminal.kernel.tile_ir import Accumulate, Contract, Kernel
from luminal.schedule.groups.facts import USUAL
from tests.backends.groups.both_meanings import SMALL, Both


@cache
def backend(dots: tuple[Dot, ...] = MADE_UP) -> Both:
    """A device of groups with these dots: of as few lanes as multiply together, and more."""
    together = max(dot.together for dot in dots)
    groups = replace(SMALL, lanes=2 * together, most=4 * together, subgroup=together, copies=16)
    return Both(machine("groups", 2, 32 << 10, 1 << 20, dots=dots), groups=groups)


MADE_UP_FROM_MEMORY = tuple(
    Dot(f"made.memory.{dtype.short}.n{n}", 32 // dtype.size, dtype, dtype, sums, rounding, 8, n, 4,
        ("", "", f"n0 m0 | n1 m1 m2 n2 {'n3' * (n > 8)}"))
    for dtype, sums, rounding in (
        (bfloat16, float32, Rounding.BLOCK), (float16, float32, Rounding.BLOCK),
        (float32, float32, Rounding.SHORT), (int8, int32, Rounding.NONE),
    )
    for n in (8, 16)
)  # fmt: skip


MADE_UP_IN_TENSOR = tuple(
    replace(
        dot, name=dot.name.replace("memory", "tensor"), together=8, in_tensor=True,
        fragments=("", "", "m0 m1 m2 | n0 n1 n2" + " n3" * (dot.n > 8)),
    )
    for dot in MADE_UP_FROM_MEMORY
)  # fmt: skip


@cache
def in_tensor() -> Both:
    """A device that prefers dots whose sums stand in tensor memory."""
    made = from_memory()
    return replace(made, groups=replace(made.groups, left=MADE_UP_IN_TENSOR))


@cache
def from_memory() -> Both:
    """A device that prefers dots whose factors stay in shared memory to NVIDIA's others."""
    groups = replace(
        SMALL, lanes=8, most=32, subgroup=1, copies=16, boxes=True, cluster=2,
        pipes=replace(USUAL, matrix=64, left=4096), left=MADE_UP_FROM_MEMORY,
    )  # fmt: skip
    others = (MMA_BF16, MMA_F16, MMA_S8, MMA_TF32)
    return Both(machine("groups", 2, 32 << 10, 1 << 20, dots=others), groups=groups)


def dots_of(kernel: Kernel) -> set[Dot]:
    contracts = (x for x in kernel.statements() if isinstance(x, Contract | Accumulate))
    return {each.dot for each in contracts if each.dot.is_matrix}


Change = Callable[[Any], Any]


def changed(body: tuple[Any, ...], change: Change) -> tuple[Any, ...]:
    """A body of either IR with its statements changed, outer ones after those inside."""
    return tuple(
        change(replace(each, body=changed(each.body, change)) if hasattr(each, "body") else each)
        for each in body
    )
