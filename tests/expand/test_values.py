"""Conversions of 16-bit floats and divisions of positions, where random values seldom fall."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.shape.expression import Expression, Symbol, const
from tests.backends.cpu.tile_builder import TileBuilder
from tests.expand.both_meanings import run_expanded

TIES = np.array([0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0xBF818000, 1, 0x7F7FFFFF])


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_floats_are_narrowed_to_the_even_neighbour(to: str) -> None:
    """Halfway between two bfloat16, and (shifted by the three bits more) two float16."""
    whole = np.concatenate([TIES, (TIES & 0xFFFF0000) | (TIES & 0xFFFF) >> 3])
    values = whole.astype(np.uint32).view(np.float32)
    n = len(values)
    k = TileBuilder()
    k.buffer("x", n)
    k.buffer("y", n, "out", to)
    with k.loop("i", n, vector=4) as i:
        k.store("y", i.axis, k.map("Cast", k.load("x", i.axis), dtype=to))
    numpy = dtypes.dtype_of(to).numpy
    with np.errstate(over="ignore"):
        expected = values.astype(numpy)
    found = run_expanded(k.kernel(), {"x": values, "y": np.zeros(n, numpy)})["y"]
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


DIVIDED: dict[str, Callable[[Symbol, Symbol], Expression]] = {
    "signed": lambda i, n: (i - 20) // 7 * 100 + (i - 20) % 7,
    "by-a-dim": lambda i, n: (i - 20) // n * 100 + (i - 20) % n,
    "by-any": lambda i, n: (i - 20) // (n - 5) * 100 + (i - 20) % (n - 5),
    "by-a-power": lambda i, n: (i - 20) // 8 * 100 + (i - 20) % 8,
    "unsigned": lambda i, n: (i + 3) // n * 100 + i % (n + 1),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_positions_are_divided_downwards(name: str) -> None:
    for bound in (1, 4, 5, 6, 12):
        k = TileBuilder()
        n = k.param("n", 1, 100)
        for out in ("y", "z"):
            k.buffer(out, const(40), "out", "i64")
        with k.loop("i", 40, vector=4) as i:
            k.store("y", i.axis, k.index(DIVIDED[name](i.axis, n)))
        with k.loop("j", 40) as j:
            k.store("z", j.axis, k.index(DIVIDED[name](j.axis, n)))
        run_expanded(k.kernel(), {name: np.zeros(40, np.int64) for name in "yz"}, {"n": bound})
