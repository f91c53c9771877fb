"""Kernels in every dialect: operations to the bit, loops, choices, masks, scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.expand.ir import Carry, Choice, If, Loop, Operand, Value
from luminal.kernel.tile_ir import Role
from luminal.runtime.driver import Driver
from tests.backends.c_family.dialects import DIALECTS, driver, run
from tests.backends.c_family.kernels import (
    OF_THE_LIBRARY,
    Row,
    Writer,
    constant,
    edges,
    index,
    kernel_of,
    rows_of,
)
from tests.backends.c_family.present import PRESENT

Array = np.ndarray[Any, Any]
ULPS = 4  # what OpenCL allows for functions of f64, at most
SAMPLE = ("f32", "i8", "i64")
"""Of dtypes, on what is slow: C++ compilers."""


@pytest.fixture(params=list(DIALECTS))
def device(request: pytest.FixtureRequest) -> Driver:
    return driver(request.param)


def computed() -> Iterator[object]:
    """Each dialect with each dtype that it computes in."""
    for name, dialect in DIALECTS.items():
        for short in dialect.types:
            is_slow = name not in PRESENT and short not in SAMPLE
            marks = [pytest.mark.long] if is_slow else []
            yield pytest.param(name, dtypes.dtype_of(short), id=f"{name}-{short}", marks=marks)


def signs(x: Array) -> Array:
    return np.signbit(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def wrong(row: Row, found: Array, wanted: Array) -> Array:
    """The positions at which a result is another one: all NaNs are one."""
    if row.op in OF_THE_LIBRARY:
        with np.errstate(all="ignore"):
            near = np.abs(found - wanted) <= ULPS * np.spacing(np.abs(wanted))
        good = near | (found == wanted)
    else:
        good = (found == wanted) & (signs(found) == signs(wanted))
    if wanted.dtype.kind == "f":
        good |= np.isnan(found) & np.isnan(wanted)
    return np.flatnonzero(~good)


@pytest.mark.parametrize(("name", "dtype"), list(computed()))
def test_every_operation_has_the_bits_of_its_meaning(name: str, dtype: DType) -> None:
    rows = [row for row in rows_of(dtype) if row.to.short in DIALECTS[name].types]
    kernel, arrays, results = kernel_of(rows)
    run(driver(name), kernel, arrays, len(arrays[0]))
    left = iter(arrays)
    for row, wanted in zip(rows, results, strict=True):
        given = [next(left) for _ in row.operands()]
        found = next(left)
        bad = wrong(row, found, wanted)[:5]
        assert not len(bad), (row, [x[bad] for x in given], found[bad], wanted[bad])


@pytest.mark.parametrize(("name", "dtype"), list(computed()))
def test_literals_keep_their_bits(name: str, dtype: DType) -> None:
    w, values = Writer(), edges(dtype)
    for k, value in enumerate(values):
        w.store("out", index(k), constant(dtype, value))
    out = np.zeros_like(values)
    run(driver(name), w.kernel(("out", dtype, Role.OUT)), [out], len(out), chunks=1)
    assert out.tobytes() == values.tobytes()


def swapped_sums(w: Writer, stop: Operand) -> tuple[Value, Value]:
    """(a, b) = (b, a + k) for k from 0 in steps of 2: both read what the step before left."""
    k, a, b, end_a, end_b = (w.new(dtypes.int64) for _ in range(5))
    following = w.apply("add", a, k)
    carries = (Carry(end_a, index(1), a, b), Carry(end_b, index(10), b, following))
    w.body = [Loop(k, index(0), stop, 2, carries, w.taken())]
    return end_a, end_b


def test_carried_values_of_a_loop_change_at_once(device: Driver) -> None:
    w = Writer()
    for name, value in zip("ab", swapped_sums(w, w.chunk), strict=True):
        w.store(name, w.chunk, value)
    found = [np.zeros(9, np.int64) for _ in range(2)]
    run(device, w.kernel(*((name, dtypes.int64, Role.OUT) for name in "ab")), found, 9)
    for chunk, both in enumerate(zip(*found, strict=True)):
        a, b = 1, 10
        for k in range(0, chunk, 2):
            a, b = b, a + k
        assert both == (a, b), chunk


def test_an_if_leaves_its_choices(device: Driver) -> None:
    w = Writer()
    odd = w.apply("ne", w.apply("and", w.chunk, index(1)), index(0))
    head, chosen = w.taken(), w.new(dtypes.int64)
    inside = w.apply("mul", w.chunk, index(100))
    w.body = [*head, If(odd, (Choice(chosen, inside, w.chunk),), w.taken())]
    w.store("out", w.chunk, chosen)
    out = np.zeros(8, np.int64)
    run(device, w.kernel(("out", dtypes.int64, Role.OUT)), [out], 8)
    assert out.tolist() == [0, 100, 2, 300, 4, 500, 6, 700]


def test_masked_accesses_touch_no_memory(device: Driver) -> None:
    w = Writer()
    below = w.apply("lt", w.chunk, index(3))
    wild = w.apply("select", below, w.chunk, index(1 << 60))
    w.store("out", wild, w.load("x", dtypes.float32, wild, below), below)
    w.store("zero", w.chunk, w.load("x", dtypes.float32, wild, below))
    x, out, zero = np.arange(1, 7, dtype=np.float32), np.full(6, 9, "f4"), np.full(6, 9, "f4")
    buffers = (("x", Role.IN), ("out", Role.OUT), ("zero", Role.OUT))
    run(device, w.kernel(*((n, dtypes.float32, role) for n, role in buffers)), [x, out, zero], 6)
    assert out.tolist() == [1, 2, 3, 9, 9, 9]
    assert zero.tolist() == [1, 2, 3, 0, 0, 0]


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_each_worker_has_scratch_memory_of_its_own(device: Driver, workers: int) -> None:
    """Every chunk fills it with multiples of its number: in the end those of its last one."""
    w, count, chunks = Writer(), 20, 50
    k = w.new(dtypes.int64)
    w.store("work", k, w.apply("mul", k, w.chunk))
    w.body = [Loop(k, index(0), w.n, 1, (), w.taken())]
    kernel = w.kernel(scratch=dtypes.int64, scratch_bytes=64 + 8 * w.symbol)
    scratch = run(device, kernel, [], count, chunks=chunks, workers=workers)
    assert scratch.shape == (workers, 64 + 8 * count)
    found = scratch.view(np.int64)
    for worker, row in enumerate(found[:, 8:]):
        last = max(range(worker, chunks, workers))
        assert row.tolist() == [last * k for k in range(count)]


def test_bool_and_half_lie_in_memory_as_bytes_and_words(device: Driver) -> None:
    w = Writer()
    w.store("y", w.chunk, w.load("x", dtypes.uint16, w.chunk))
    w.store(
        "b", w.chunk, w.apply("ne", w.load("a", dtypes.uint8, w.chunk), constant(dtypes.uint8, 0))
    )
    half = np.array([1.5, -2, np.inf], np.float16)
    x, a = half.copy(), np.array([True, False, True])
    y, b = np.zeros_like(x), np.zeros_like(a)
    f16, bools = dtypes.float16, dtypes.bool_
    kernel = w.kernel(
        ("x", f16, Role.IN), ("y", f16, Role.OUT), ("a", bools, Role.IN), ("b", bools, Role.OUT)
    )
    run(device, kernel, [x, y, a, b], 3)
    assert y.tobytes() == half.tobytes()
    assert b.tolist() == a.tolist()


def test_the_complement_of_a_maximum_of_integers(device: Driver) -> None:
    """Which Intel's compiler breaks where it sees both."""
    w = Writer()
    a, b = (w.load(name, dtypes.int32, w.chunk) for name in "ab")
    greater = w.apply("max", a, b)
    w.store("c", w.chunk, w.apply("xor", greater, constant(dtypes.int32, -1)))
    roles = (("a", Role.IN), ("b", Role.IN), ("c", Role.OUT))
    kernel = w.kernel(*((name, dtypes.int32, role) for name, role in roles))
    x, y = np.arange(100, dtype=np.int32), np.arange(100, dtype=np.int32)[::-1].copy()
    z = np.zeros_like(x)
    run(device, kernel, [x, y, z], 100, workers=4)
    assert (z == ~np.maximum(x, y)).all()


def test_products_and_sums_are_not_contracted(device: Driver) -> None:
    """a*b + c with one rounding would leave what a*b loses."""
    w = Writer()
    x = w.load("x", dtypes.float32, w.chunk)
    square = w.apply("mul", x, x)
    w.store("x", w.chunk, w.apply("add", square, constant(dtypes.float32, -1.0)))
    x_ = np.array([1 + 2.0**-12], np.float32)
    wanted = x_ * x_ - np.float32(1)
    run(device, w.kernel(("x", dtypes.float32, Role.INOUT)), [x_], 1)
    assert x_[0] == wanted[0] != np.float32((1 + 2.0**-12) ** 2 - 1)


def test_quotients_roots_and_denormals_are_exact(device: Driver) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32) for _ in range(2))
    f32 = dtypes.float32
    kernel, arrays, _ = kernel_of([Row("div", f32, f32), Row("sqrt", f32, f32)])
    arrays = [a, b, np.zeros_like(a), np.abs(a), np.zeros_like(a)]
    run(device, kernel, arrays, len(a))
    with np.errstate(all="ignore"):
        assert np.array_equal(arrays[2], a / b, equal_nan=True)
        assert np.array_equal(arrays[4], np.sqrt(np.abs(a)), equal_nan=True)
