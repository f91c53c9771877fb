"""Products by warp groups, checked on the shims."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from luminal.backends.c_backend import CBackend
from luminal.base.dots import MMA, MMA_FLOAT8, WGMMA
from luminal.base.dtypes import dtype_of
from luminal.base.numerics import Numerics
from luminal.codegen.c_family.kernel import Walk
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.knobs import Knobs, as_knobs
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import Program
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.schedule.groups.facts import USUAL
from tests.backends.c_family.checked import checked
from tests.backends.c_family.matrix_products import product
from tests.backends.groups.matrix_backend import dots_of
from tests.simt.launching import DeviceFault


@cache
def device() -> CBackend:
    """A device on the shims that prefers wgmma."""
    made = checked(dots=(*MMA_FLOAT8, *MMA))
    groups = replace(
        made.groups,
        lanes=128,
        most=256,
        shared_bytes=96 << 10,
        left=WGMMA,
        pipes=replace(USUAL, left=8192),
        boxes=True,
    )
    return replace(made, groups=groups)


def program(
    made: CBackend, dtype: str, sizes: tuple[int, int, int], turned: tuple[bool, bool], knobs: Knobs
) -> Program:
    graph = product(dtype, *sizes, turned)
    stages = lower_by_stages(graph, made, Numerics.RELAXED)
    (step,) = stages.partition.steps
    key = text_key(to_text(made.schedules.place(step).kernel))
    return compile.reschedule(stages, made, {key: knobs}).program


def check(
    dtype: str,
    sizes: tuple[int, int, int],
    turned: tuple[bool, bool],
    knobs: Knobs,
    made: CBackend | None = None,
) -> None:
    """Small numbers, so that sums are exact whatever their order."""
    (m, k, n), made = sizes, made or device()
    lowered = program(made, dtype, sizes, turned, knobs)
    (multiplied,) = dots_of(lowered.kernels[0])
    assert multiplied.family == dict(knobs)["dot"]
    exe = Executable(product(dtype, m, k, n, turned), (Variant({}, made.runner(lowered)),))
    rng, storage = np.random.default_rng(0), dtype_of(dtype).numpy
    a, b = (
        rng.integers(-3, 4, shape[::-1] if t else shape).astype(storage)
        for shape, t in zip(((m, k), (k, n)), turned, strict=True)
    )
    wide = [x.astype(np.float64) for x in (a.T if turned[0] else a, b.T if turned[1] else b)]
    found = exe({"a": a, "b": b})["y"]
    np.testing.assert_array_equal(found, (wide[0] @ wide[1]).astype(found.dtype))


def ring(dtype: str, columns: int, deep: int, stages: int, copies: str = "boxes") -> Knobs:
    blocks = f"64x{columns} by 64x{columns}"
    return as_knobs(
        {
            "dot": f"wgmma.{dtype}", "blocks": blocks, "deep": deep, "stages": stages,
            "copies": copies,
        }
    )  # fmt: skip


def found(before: str, after: str, copies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sees that a kernel in whose text this stands in place of that does not pass for right."""
    own = Walk.text

    def wrong(self: Walk) -> str:
        head, name, rest = own(self).partition('extern "C"')
        where = r"\n" in before or "await" in before or "4096" in before
        if where:
            rest, count = re.subn(before, after, rest)
        else:
            head, count = re.subn(before, after, head)
        assert count, f"{before} is not there"
        return head + name + rest

    monkeypatch.setattr(Walk, "text", wrong)
    with pytest.raises((DeviceFault, AssertionError)):
        check("bfloat16", (64, 256, 128), (False, False), ring("bf16", 128, 32, 4, copies))
