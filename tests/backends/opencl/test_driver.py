"""The driver: copies, launches in order, times, a cache of binaries, errors in words."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from luminal.backends.opencl import platforms
from luminal.base import config, dtypes, tracing
from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import spell
from luminal.codegen.c_family.opencl import OPENCL
from luminal.kernel.tile_ir import Role
from luminal.runtime import object_cache
from luminal.runtime.driver import DevicePointer
from tests.backends.c_family.dialects import run
from tests.backends.c_family.kernels import Writer, tile_kernel
from tests.backends.c_family.launches import enqueue
from tests.backends.opencl.devices import driver

OpenClDriver = pytest.importorskip("luminal.backends.opencl.driver").OpenClDriver
builder = pytest.importorskip("luminal.backends.opencl.builder")
programs = pytest.importorskip("luminal.backends.opencl.programs")
DEVICE = driver()


def doubling(dtype: Any = dtypes.float32) -> Any:
    w = Writer()
    x = w.load("x", dtype, w.chunk)
    w.store("x", w.chunk, w.apply("add", x, x))
    return w.kernel(("x", dtype, Role.INOUT))


def test_launches_run_one_after_the_other() -> None:
    block = DEVICE.allocate(4 * 1000)
    DEVICE.write(DevicePointer(block), np.ones(1000, np.float32))
    code = DEVICE.compile(tile_kernel(doubling()), "")
    first = DEVICE.mark()
    for _ in range(100):
        enqueue(DEVICE, code, 1000, DEVICE.workers, [DevicePointer(block)], (1000,))
    last = DEVICE.mark()
    found = np.zeros(1000, np.float32)
    DEVICE.read(DevicePointer(block), found)
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


@pytest.mark.skipif(DEVICE.builder is None, reason="of Intel's compiler for CPUs")
def test_no_text_is_built_in_this_process(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a builder that was killed is started again."""
    monkeypatch.setattr(programs, "binary", None)
    kernel, x = doubling(), np.ones(3, np.float32)
    with config.override(LUMINAL_CACHE_DIR=tmp_path / "a"):
        assert steps(kernel, x) == ["compile"]
    process = DEVICE.builder._process
    process.kill()
    process.wait()
    with config.override(LUMINAL_CACHE_DIR=tmp_path / "b"):
        assert steps(kernel, x) == ["compile"]
    assert x.tolist() == [4, 4, 4]


@pytest.mark.parametrize("doing", ["os.abort()", "time.sleep(600)"])
def test_a_compiler_that_dies_or_stands_still_is_an_error(
    doing: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "SECONDS", 0.5)
    device = driver()
    device.builder = builder.Builder([sys.executable, "-c", f"import os, time; {doing}"])
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        with pytest.raises(CompileError, match="OpenCL: the device's compiler died, or"):
            device.compile(tile_kernel(doubling()), "")
        assert not [*tmp_path.glob("objects/*/*.o")]


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


def test_devices_are_listed_or_the_reason_is_given() -> None:
    assert platforms.devices()[0].name.strip() == DEVICE.facts.name
    assert DEVICE.memory().total > 0


@pytest.mark.skipif(os.name != "posix", reason="no nohup")
def test_processes_ignore_what_this_one_ignores() -> None:
    """Those of `nohup luminal serve` outlive its terminal; Intel's library makes handlers."""
    program = """
import signal, subprocess, sys
from luminal.backends.opencl.driver import OpenClDriver
OpenClDriver(None)
shown = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
subprocess.run([sys.executable, "-c", shown])
"""
    command = ["nohup", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=config.child_environment())
    assert (done.returncode, done.stdout) == (0, "True\n")
