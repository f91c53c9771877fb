"""Products: of matrices that are both given per call, of few rows by a weight, in f32 and bf16."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.block import EFFORT, in_block
from bench.row import Row, Rows
from bench.targets import against_mkl
from bench.work import BFLOAT16, Work, compiled, normal, rows_of
from luminal.backends.cpu.peaks import measure
from luminal.backends.cpu.target import current
from luminal.backends.cpu.team import team_size_default

SHAPES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
          (1000, 777, 1333))  # fmt: skip
NEAR_PEAK = (1024, 2048, 4096)
ROWS = {1: 1.15, 8: 1.8, 32: 1.5, 128: 1.2}  # by a weight of WIDE x WIDE
WIDE = 4096
BF16 = {512: 0.95, 1024: 1.0, 2048: 1.0}
LONG = 8192
ROUNDED = 0.02  # results of bfloat16 differ by their last bit


def rows() -> Rows:
    """Against the best of PyTorch, NumPy and JAX; then the share of the machine's peak."""
    yield from rows_of(_square())
    if not EFFORT.quick:
        yield from (_share(extent) for extent in NEAR_PEAK)
    yield from rows_of([*_by_weight(), *_bfloat16()])


def _square() -> Iterator[Work]:
    for m, k, n in SHAPES:
        given = {"a": normal(m, k), "b": normal(k, n)}
        name = f"matmul {m}x{k}x{n}"
        yield _product(name, given, against_mkl(1.05), quick=m == 1024)


def _by_weight() -> Iterator[Work]:
    weight = normal(WIDE, WIDE)
    for count, target in ROWS.items():
        given = {"x": normal(count, WIDE), "w": weight}
        name = f"{count} rows by a weight of {WIDE}x{WIDE}"
        weights = frozenset("w")
        yield _product(name, given, against_mkl(target), weights=weights, quick=count == 1)


def _bfloat16() -> Iterator[Work]:
    for n, target in BF16.items():
        given = {"a": normal(n, n, dtype=BFLOAT16), "b": normal(n, n, dtype=BFLOAT16, seed=1)}
        name = f"bf16 matmul {n}"
        yield _product(name, given, target, tolerance=ROUNDED, quick=n == 1024)
    given = {"a": normal(512, 512, dtype=BFLOAT16), "w": normal(512, 512, dtype=BFLOAT16, seed=1)}
    weights = frozenset("w")
    yield _product("bf16 matmul 512, a weight", given, 0.95, weights=weights, tolerance=ROUNDED)
    given = {"x": normal(1, LONG, dtype=BFLOAT16), "w": normal(LONG, LONG, dtype=BFLOAT16)}
    name = f"bf16, one row by a weight of {LONG}x{LONG}"
    yield _product(name, given, 1.5, weights=weights, tolerance=ROUNDED)


def _product(name: str, given: dict[str, Any], target: float, **options: Any) -> Work:
    (m, k), (_, n) = (array.shape for array in given.values())
    is_f32 = all(array.dtype == np.float32 for array in given.values())
    return Work(
        name, target, given, lambda a, b: a @ b, numpy=np.matmul if is_f32 else None,
        jax=lambda jax, a, b: jax.numpy.matmul(a, b), flops=2.0 * m * k * n, **options,
    )  # fmt: skip


def _share(extent: int) -> Row:
    """Of the arithmetic that the machine's threads reach, measured right behind each block: clocks
    drift by more than is missing.
    """
    given = {"a": normal(extent, extent), "b": normal(extent, extent)}
    work = _product("", given, 1.0)
    call, target, reached = compiled(work), current(), []
    for _ in range(EFFORT.blocks):
        speed = work.flops / in_block(call)
        reached.append(speed / measure(target, team_size_default()).flops)
    name = f"matmul {extent}: of the measured peak"
    return Row(name, statistics.median(reached), 0.9, "x", (min(reached), max(reached)))
