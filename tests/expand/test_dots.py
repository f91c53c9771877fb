"""Dots of bytes once expanded: by their instruction, by one for unsigned bytes, or by none."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.dots import INT8_BLOCKS, INT8_FOURS, UINT8_BY_INT8, Dot
from luminal.expand.expand import expand
from luminal.expand.interpreter import run
from luminal.expand.ir import Type
from luminal.expand.text import to_text as expanded_text
from luminal.expand.verify import verify as verify_expanded
from luminal.kernel import tile_interpreter
from luminal.kernel.tile_ir import (
    Buffer,
    Carry,
    Contract,
    Kernel,
    Literal,
    Load,
    Loop,
    Role,
    Store,
    Tile,
)
from luminal.kernel.tile_verify import verify
from luminal.shape.expression import as_expression, axis, const

I8, I32 = dtypes.int8, dtypes.int32
NEAR = axis("near", 4)


def sum_of_four() -> Kernel:
    """y[0] = 7 + the sum of x * w."""
    seven, inner, after, result = (Tile(n, (), I32) for n in range(4))
    a, b = Tile(4, (NEAR,), I8), Tile(5, (NEAR,), I8)
    body = (
        Load(a, "x", as_expression(NEAR)),
        Load(b, "w", as_expression(NEAR)),
        Contract(after, inner, a, b, INT8_FOURS),
    )
    carry = Carry(result, seven, inner, after)
    buffers = (
        Buffer("x", I8, const(4)),
        Buffer("w", I8, const(4)),
        Buffer("y", I32, const(1), role=Role.OUT),
    )
    loop = Loop(NEAR, const(0), const(4), body, (carry,), neighbours=4)
    first = Literal(seven, np.int32(7).tobytes())
    return Kernel((), buffers, (), (), (first, loop, Store("y", const(0), result)))


@pytest.mark.parametrize("dot", [INT8_FOURS, UINT8_BY_INT8, None])
@pytest.mark.parametrize("x", [(-128, -128, 127, 1), (3, -5, 0, -128)])
@pytest.mark.parametrize("w", [(-128, 127, -128, -1), (-128, -128, -128, -128)])
def test_all_give_the_same_sum(dot: Dot | None, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    kernel = sum_of_four()
    verify(kernel)
    instructions = frozenset() if dot is None else frozenset({(dot.name, Type(I32))})
    expanded = expand(kernel, 1, instructions)
    verify_expanded(expanded)
    used = {each for each in (INT8_FOURS, UINT8_BY_INT8) if f"= {each} " in expanded_text(expanded)}
    assert used == ({dot} if dot else set())
    for runs in (tile_interpreter.run, run):
        given = {"x": np.array(x, np.int8), "w": np.array(w, np.int8), "y": np.zeros(1, np.int32)}
        runs(kernel if runs is tile_interpreter.run else expanded, given, {})  # type: ignore[arg-type]
        assert given["y"][0] == 7 + sum(a * b for a, b in zip(x, w, strict=True))


# --- dots of two rows by two columns

ROWS, STEPS, COLUMNS = 3, 2, 4
M, STEP, N, EIGHT = axis("m", ROWS), axis("step", STEPS), axis("n", COLUMNS), axis("eight", 8)


def product() -> Kernel:
    """z = y + x @ w of three rows, whose sums two loops carry; w lies in words of columns."""
    first, outer, inner, after, result, total = (Tile(n, (M, N), I32) for n in range(6))
    a, b = Tile(6, (M, EIGHT), I8), Tile(7, (N, EIGHT), I8)
    near = (
        Load(a, "x", M * 8 * STEPS + STEP * 8 + EIGHT),
        Load(b, "w", STEP * 8 * COLUMNS + N * 8 + EIGHT),
        Contract(after, inner, a, b, INT8_BLOCKS),
    )
    words = Loop(
        EIGHT, const(0), const(8), near, (Carry(result, outer, inner, after),), neighbours=8
    )
    steps = Loop(STEP, const(0), const(STEPS), (words,), (Carry(total, first, outer, result),))
    tile = (Load(first, "y", M * COLUMNS + N), steps, Store("z", M * COLUMNS + N, total))
    columns = Loop(N, const(0), const(COLUMNS), tile, vector=COLUMNS)
    buffers = (
        Buffer("x", I8, const(ROWS * 8 * STEPS)),
        Buffer("w", I8, const(COLUMNS * 8 * STEPS)),
        Buffer("y", I32, const(ROWS * COLUMNS)),
        Buffer("z", I32, const(ROWS * COLUMNS), role=Role.OUT),
    )
    rows = Loop(M, const(0), const(ROWS), (columns,), unroll=ROWS)
    return Kernel((), buffers, (), (), (rows,))


@pytest.mark.parametrize("has_it", [True, False])
def test_sums_of_two_rows_go_on_from_what_there_is(has_it: bool) -> None:
    kernel = product()
    verify(kernel)
    dot = (INT8_BLOCKS.name, Type(I32, 2 * COLUMNS))
    expanded = expand(kernel, COLUMNS, frozenset({dot} if has_it else ()))
    verify_expanded(expanded)
    # Of three rows two pairs, one of them the last row alone; both are carried through the loop.
    assert expanded_text(expanded).count(f"= {INT8_BLOCKS} ") == (2 if has_it else 0)
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (ROWS, STEPS * 8)).astype(np.int8)
    w = rng.integers(-128, 128, (STEPS, COLUMNS, 8)).astype(np.int8)
    y = rng.integers(-99, 99, (ROWS, COLUMNS)).astype(np.int32)
    exact = y + x.astype(np.int32) @ w.transpose(0, 2, 1).reshape(-1, COLUMNS).astype(np.int32)
    for runs in (tile_interpreter.run, run):
        given = {"x": x.ravel(), "w": w.ravel(), "y": y.ravel(), "z": np.zeros_like(y).ravel()}
        runs(kernel if runs is tile_interpreter.run else expanded, given, {})  # type: ignore[arg-type]
        np.testing.assert_array_equal(given["z"], exact.ravel())
