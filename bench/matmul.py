"""Products: of matrices that are both given per call, of few rows by a weight, in f32 and bf16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.block import EFFORT
from bench.limits import Counted, beyond_cache, has_own_arithmetic
from bench.row import OURS, Row, Rows
from bench.targets import against_mkl
from bench.work import BFLOAT16, Work, normal, rows_of

SHAPES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
          (1000, 777, 1333))  # fmt: skip
MATMUL = "matmul "
NEAR_PEAK = tuple(f"{MATMUL}{n}x{n}x{n}" for n in (1024, 2048, 4096))
ROWS = {1: 1.15, 8: 1.8, 32: 1.5, 128: 1.2}  # by a weight of WIDE x WIDE
WIDE = 4096
BF16 = {512: 0.95, 1024: 1.0, 2048: 1.0}
LONG = 8192
ROUNDED = 0.02  # results of bfloat16 differ by their last bit


def rows() -> Rows:
    """Against the best of PyTorch, NumPy and JAX; of large ones the share of the machine's peak."""
    for row in rows_of(_square()):
        yield row
        if isinstance(row, Row) and row.name in NEAR_PEAK and not EFFORT.quick:
            yield _share(row)
    yield from rows_of([*_by_weight(), *_bfloat16()])


def _square() -> Iterator[Work]:
    for m, k, n in SHAPES:
        given = {"a": normal(m, k), "b": normal(k, n)}
        name = f"{MATMUL}{m}x{k}x{n}"
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
    (dtype,) = {array.dtype for array in given.values()}
    counted = Counted(
        2.0 * m * k * n,
        beyond_cache(sum(array.nbytes for array in given.values())),
        narrow=has_own_arithmetic(dtype),
    )
    return Work(
        name, target, given, lambda a, b: a @ b, numpy=np.matmul if dtype == np.float32 else None,
        jax=lambda jax, a, b: jax.numpy.matmul(a, b), counted=counted, **options,
    )  # fmt: skip


def _share(row: Row) -> Row:
    """Our part of the arithmetic that the machine's threads reach, measured between the blocks."""
    (own,) = (rate for rate in row.rates if rate.side == OURS)
    assert own.share is not None
    (m, _, _) = row.name.removeprefix(MATMUL).split("x")
    name = f"{MATMUL}{m}: of the measured peak"
    return Row(name, own.share, 0.9, "x", (own.share, own.share), str(own))
