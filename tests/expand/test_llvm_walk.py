"""The walk over expanded IR: native code with the bits that tile IR's interpreter gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from luminal import config, dtypes
from luminal.backends.cpu.target import detect
from luminal.codegen.llvm_operations import instructions
from luminal.dtypes import DType
from luminal.expand.expand import expand
from luminal.kernel import tile_interpreter
from luminal.kernel.tile_ir import Kernel
from tests.backends.cpu import test_render_fuzz
from tests.backends.cpu.tile_builder import compare
from tests.expand.launches import call, walked
from tests.expand.test_kernels import CALLS, SAMPLE
from tests.expand.test_programs import GROUPS, check_seeds, check_table

Array = np.ndarray[Any, Any]


def run_native(
    kernel: Kernel, arrays: Mapping[str, Array], params: Mapping[str, int] | None = None,
    rtol: float = 0.0,
) -> dict[str, Array]:  # fmt: skip
    """In the place of `run_all`: the same bits from the code of single lanes and of vectors."""
    params = params or {}
    expected = {name: x.copy() for name, x in arrays.items()}
    tile_interpreter.run(kernel, expected, params)
    target = detect()
    for lanes, known in ((1, frozenset()), (64, instructions(target.features))):
        found = {name: x.copy() for name, x in arrays.items()}
        expanded = expand(kernel, lanes, known)
        chunks = range(int(expanded.chunks.evaluate(params)))
        call(walked(expanded, target), expanded, found, params, chunks)
        for name, array in found.items():
            compare(f"{name} by {lanes}", array, expected[name], rtol)
    return expected


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


@pytest.mark.parametrize(
    "group", [pytest.param(g, marks=() if g == "pointwise" else pytest.mark.long) for g in GROUPS]
)
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=() if d is dtypes.float32 else pytest.mark.long) for d in dtypes.ALL],
    ids=str,
)
def test_the_op_table(dtype: DType, group: str) -> None:
    check_table(dtype, group, 64, native=True)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(15))
def test_random_graphs(chunk: int) -> None:
    check_seeds(range(20 * chunk, 20 * chunk + 20), 64, native=True)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(5))
def test_random_graphs_of_a_narrow_machine(chunk: int) -> None:
    with config.override(LUMINAL_TARGET="avx2"):
        check_seeds(range(1000 + 20 * chunk, 1020 + 20 * chunk), 64, native=True)
