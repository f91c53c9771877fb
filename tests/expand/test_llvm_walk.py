"""The walk over expanded IR: native code with the bits that tile IR's interpreter gives."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from luminal.backends.cpu import compiler, machine_code
from luminal.backends.cpu.target import detect
from luminal.codegen.llvm_walk import render
from luminal.expand.expand import expand
from luminal.kernel import tile_interpreter
from luminal.kernel.tile_ir import Kernel
from tests.backends.cpu import test_render_fuzz
from tests.backends.cpu.tile_builder import compare
from tests.expand.launches import ABI
from tests.expand.test_kernels import CALLS, SAMPLE

Array = np.ndarray[Any, Any]
LANES = (1, 64)


def run_native(
    kernel: Kernel, arrays: Mapping[str, Array], params: Mapping[str, int] | None = None,
    rtol: float = 0.0,
) -> dict[str, Array]:  # fmt: skip
    """In the place of `run_all`: the same bits from the code of single lanes and of vectors."""
    params = params or {}
    expected = {name: x.copy() for name, x in arrays.items()}
    tile_interpreter.run(kernel, expected, params)
    for lanes in LANES:
        found = {name: x.copy() for name, x in arrays.items()}
        call(kernel, lanes, found, params)
        for name, array in found.items():
            compare(f"{name} by {lanes}", array, expected[name], rtol)
    return expected


def call(
    kernel: Kernel, lanes: int, arrays: Mapping[str, Array], params: Mapping[str, int]
) -> None:
    """Run the kernel's code over all chunks."""
    expanded, target = expand(kernel, lanes), detect()
    code = compiler.load(machine_code.compile_object(render(expanded, target), target))
    slots = np.array([arrays[b.name].ctypes.data for b in kernel.buffers] or [0], np.int64)
    dims = np.array([params[p.name] for p in kernel.params] or [0], np.int64)
    scratch = np.full(int(expanded.scratch_bytes.evaluate(params)) + 128, 0xA5, np.uint8)
    at = -(-scratch.ctypes.data // 64) * 64
    chunks = int(expanded.chunks.evaluate(params))
    ABI(code.address)(slots.ctypes.data, dims.ctypes.data, 0, chunks, ctypes.c_void_p(at))


@pytest.mark.parametrize(
    ("module", "name", "case"),
    [
        pytest.param(*each, id=each[1], marks=() if each[1] in SAMPLE else pytest.mark.long)
        for each in CALLS
    ],
)
def test_kernels_by_hand(
    module: ModuleType, name: str, case: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_all", run_native)
    case()


@pytest.mark.parametrize(
    "seed",
    [pytest.param(s, marks=() if s % 100 == 12 else pytest.mark.long) for s in range(250)],
)
def test_random_kernels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_render_fuzz, "run_all", run_native)
    test_render_fuzz.check(seed)
