"""Sines of huge angles reduced in integers, against NumPy's of f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.base.dtypes import float32
from luminal.expand import elementary, interpreter
from luminal.expand.builder import Builder
from luminal.expand.ir import INDEX, Kernel, Type
from luminal.expand.polynomials import FLOAT32
from luminal.expand.verify import verify
from luminal.kernel.tile_ir import Buffer, Role
from luminal.shape.expression import const

Array = np.ndarray[Any, Any]
SINES = {"sin": (elementary.sin, np.sin), "cos": (elementary.cos, np.cos)}
LANES = 256
ULP = 1.7
NEAREST = 16367173 * 2.0**72
"""Of all f32 the one that is nearest to a multiple of pi/2."""


def computed(write: Any, x: Array) -> Array:
    """An elementary function of an array, by a kernel of so many lanes."""
    b = Builder()
    chunk = b.open(INDEX)
    address = b.op("mul", chunk, LANES)
    b.store("y", address, write(b, b.load(Type(float32, LANES), "x", address)))
    body = b.close()
    x_, y_ = (
        Buffer(n, float32, const(x.size), role=r) for n, r in (("x", Role.IN), ("y", Role.OUT))
    )
    kernel = Kernel((), (x_, y_), (), const(0), const(x.size // LANES), b.close(), chunk, body)
    verify(kernel)
    y = np.zeros_like(x)
    interpreter.run(kernel, {"x": x, "y": y}, {})
    return y


def check(name: str, x: Array) -> None:
    write, meaning = SINES[name]
    expected = meaning(x.astype(np.float64))
    error = np.abs(computed(write, x) - expected)
    far = error / np.spacing(np.abs(expected).astype(np.float32))
    worst = int(np.argmax(far))
    assert far[worst] <= ULP, f"{name}({x[worst]!r}): {far[worst]} ulp from {expected[worst]}"


@pytest.mark.parametrize("name", SINES)
def test_every_exponent_of_huge_angles(name: str) -> None:
    rng = np.random.default_rng(0)
    ends = FLOAT32.bits(FLOAT32.huge), FLOAT32.bits(np.inf)
    bits = np.arange(*ends, 1 << 23, dtype=np.uint32)[:, None]
    low = rng.integers(0, 1 << 23, (len(bits), LANES), dtype=np.uint32)
    low[:, :4] = 0, 1, (1 << 23) - 1, 1 << 22
    x = (bits + low).view(np.float32)
    x[:, 1::2] *= -1
    x[0, 4:8] = NEAREST, -NEAREST, np.finfo(np.float32).max, 1e5  # the last not huge
    check(name, x.ravel())


@pytest.mark.parametrize("name", SINES)
def test_what_is_no_angle_is_none(name: str) -> None:
    x = np.resize(np.array([np.inf, -np.inf, np.nan, 2.0**127], np.float32), LANES)
    assert np.isnan(computed(SINES[name][0], x).reshape(-1, 4)).tolist() == [
        [True, True, True, False]
    ] * (LANES // 4)
