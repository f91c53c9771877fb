"""A kernel by the interpreters of tile IR and of expanded IR, with the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from luminal.expand import interpreter
from luminal.expand.expand import expand
from luminal.expand.verify import verify
from luminal.kernel import tile_interpreter
from luminal.kernel.tile_ir import Kernel
from tests.backends.cpu.tile_builder import compare

Array = np.ndarray[Any, Any]
LANES = (1, 4, 16)


def run_expanded(
    kernel: Kernel, arrays: Mapping[str, Array], params: Mapping[str, int] | None = None,
    rtol: float = 0.0,
) -> dict[str, Array]:  # fmt: skip
    """In the place of `run_all`: the interpreters of both IRs, with the same bits."""
    params = params or {}
    expected = {name: x.copy() for name, x in arrays.items()}
    tile_interpreter.run(kernel, expected, params)
    for lanes in LANES:
        found = {name: x.copy() for name, x in arrays.items()}
        expanded = expand(kernel, lanes)
        verify(expanded)
        interpreter.run(expanded, found, params)
        for name, array in found.items():
            compare(f"{name} by {lanes}", array, expected[name], rtol)
    return expected
