"""The driver: copies, launches in order, times, a cache of binaries, errors in words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from luminal import config, dtypes, tracing
from luminal.backends.opencl import platforms
from luminal.codegen.c_family.kernel import spell
from luminal.codegen.c_family.opencl import OPENCL
from luminal.errors import CompileError
from luminal.kernel.tile_ir import Role
from luminal.runtime import object_cache
from luminal.runtime.driver import Place
from tests.backends.c_family.dialects import run
from tests.backends.c_family.kernels import Row, Writer, constant, kernel_of, tile_kernel
from tests.backends.opencl.devices import driver

OpenClDriver = pytest.importorskip("luminal.backends.opencl.driver").OpenClDriver
DEVICE = driver()


def doubling(dtype: Any = dtypes.float32) -> Any:
    w = Writer()
    x = w.load("x", dtype, w.chunk)
    w.store("x", w.chunk, w.apply("add", x, x))
    return w.kernel(("x", dtype, Role.INOUT))


def test_bytes_come_back_from_where_they_were_put() -> None:
    first, second = DEVICE.allocate(1024), DEVICE.allocate(1024)
    data = np.arange(50, dtype=np.int16).reshape(5, 10)
    DEVICE.write(Place(first, 100), data)
    DEVICE.copy(Place(first, 110), Place(second, 7), 60)
    found = np.zeros(30, np.int16)
    DEVICE.read(Place(second, 7), found)
    assert found.tolist() == list(range(5, 35))
    DEVICE.fill(Place(second, 7), 10, b"\x01\x02\x03")
    found = np.zeros(10, np.uint8)
    DEVICE.read(Place(second, 7), found)
    assert found.tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
    DEVICE.free(first)
    DEVICE.free(second)


def test_nothing_is_copied_too() -> None:
    block, nothing = DEVICE.allocate(8), np.zeros((0, 3), np.float32)
    DEVICE.write(Place(block), nothing)
    DEVICE.copy(Place(block), Place(block), 0)
    DEVICE.read(Place(block), nothing)


def test_what_is_written_may_change_after_the_call() -> None:
    block, data = DEVICE.allocate(1 << 22), np.full(1 << 20, 7, np.int32)
    DEVICE.write(Place(block), data)
    data[:] = 0
    found = np.zeros_like(data)
    DEVICE.read(Place(block), found)
    assert (found == 7).all()


def test_launches_run_one_after_the_other() -> None:
    block = DEVICE.allocate(4 * 1000)
    DEVICE.write(Place(block), np.ones(1000, np.float32))
    code = DEVICE.compile(tile_kernel(doubling()), "")
    first = DEVICE.mark()
    for _ in range(100):
        DEVICE.enqueue(code, 1000, DEVICE.workers, [Place(block)], (1000,), None)
    last = DEVICE.mark()
    found = np.zeros(1000, np.float32)
    DEVICE.read(Place(block), found)
    assert (found == 2.0**100).all()
    assert 0 < DEVICE.seconds(first, last) < 60


def steps(kernel: Any, x: Any) -> list[str]:
    """What a new driver does to make code of a kernel, which then runs."""
    with tracing.record() as spans:
        run(driver(), kernel, [x], len(x))
    return [span.name for span in spans]


def test_a_second_process_finds_the_binary(tmp_path: Any) -> None:
    kernel, x = doubling(), np.ones(3, np.float32)
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        assert steps(kernel, x) == ["compile"]
        assert steps(kernel, x) == ["load"]
        assert x.tolist() == [4, 4, 4]
        (entry,) = tmp_path.glob("objects/*/*.o")
        entry.unlink()
        assert steps(kernel, x) == ["compile"]


def test_a_binary_that_the_driver_refuses_is_built_anew(tmp_path: Any) -> None:
    kernel, x = doubling(), np.ones(3, np.float32)
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        run(DEVICE, kernel, [x], 3)
        (entry,) = tmp_path.glob("objects/*/*.o")
        object_cache.default().put(entry.stem, b"no binary")
        run(DEVICE, kernel, [x], 3)
    assert x.tolist() == [4, 4, 4]


def test_f64_is_refused_by_name_where_there_is_none() -> None:
    device = driver()
    device.facts = dataclasses.replace(device.facts, has_double=False)
    with pytest.raises(CompileError, match=r"opencl:0: .* computes no f64; cast to f32"):
        device.compile(tile_kernel(doubling(dtypes.float64)), "")
    device.compile(tile_kernel(doubling()), "")


def test_a_text_that_is_no_c_is_shown_with_the_compilers_words() -> None:
    device = driver()
    kernel = doubling()
    broken = dataclasses.replace(spell(kernel, OPENCL), text="kernel void luminal_kernel() { x; }")
    device.spell = lambda _: broken
    with pytest.raises(CompileError, match=r"(?s)refuses a kernel.*undeclared.*luminal_kernel"):
        device.compile(tile_kernel(kernel), "")


def test_more_memory_than_there_is() -> None:
    with pytest.raises(MemoryError, match=r"opencl:0: cannot allocate \d+ bytes .* at most \d+"):
        DEVICE.allocate(1 << 60)


def test_a_number_without_a_device() -> None:
    with pytest.raises(CompileError, match=r"opencl:99: there are \d+"):
        OpenClDriver(lambda kernel: kernel, 99)


def test_products_and_sums_are_not_contracted() -> None:
    """a*b + c with one rounding would leave what a*b loses."""
    w = Writer()
    x = w.load("x", dtypes.float32, w.chunk)
    square = w.apply("mul", x, x)
    w.store("x", w.chunk, w.apply("add", square, constant(dtypes.float32, -1.0)))
    x_ = np.array([1 + 2.0**-12], np.float32)
    wanted = x_ * x_ - np.float32(1)
    run(DEVICE, w.kernel(("x", dtypes.float32, Role.INOUT)), [x_], 1)
    assert x_[0] == wanted[0] != np.float32((1 + 2.0**-12) ** 2 - 1)


def test_quotients_roots_and_denormals_are_exact() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32) for _ in range(2))
    f32 = dtypes.float32
    kernel, arrays, _ = kernel_of([Row("div", f32, f32), Row("sqrt", f32, f32)])
    arrays = [a, b, np.zeros_like(a), np.abs(a), np.zeros_like(a)]
    run(DEVICE, kernel, arrays, len(a))
    with np.errstate(all="ignore"):
        assert np.array_equal(arrays[2], a / b, equal_nan=True)
        assert np.array_equal(arrays[4], np.sqrt(np.abs(a)), equal_nan=True)


def test_devices_are_listed_or_the_reason_is_given() -> None:
    assert platforms.devices()[0].name.strip() == DEVICE.facts.name
    assert DEVICE.memory().total > 0
