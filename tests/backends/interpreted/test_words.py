"""Programs for a machine that multiplies words of four bytes, on one that may not: their kernels
are expanded for it, and interpreted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.interpreted import device
from luminal.base.dots import UINT8_BY_INT8
from luminal.base.dtypes import int32
from luminal.expand import interpreter
from luminal.expand.expand import expand
from luminal.expand.ir import Type
from luminal.kernel import tile_interpreter, tile_ir
from luminal.kernel.tile_ir import Contract
from luminal.loaders.ggml.packed import RECORDED, packed
from tests.backends.interpreted.words import LANES, OfWords
from tests.long_share import long_but, mostly_long
from tests.numerics.byte_products import in_bytes, recorded, some
from tests.numerics.packed_blocks import blocks_of, values_of

WORDS = frozenset((UINT8_BY_INT8.name, Type(int32, n)) for n in (1, LANES))


MACHINE = OfWords(
    replace(device.TARGET, vector_bits=32 * LANES, registers=32, dots=(UINT8_BY_INT8,))
)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[tile_ir.Kernel]:
    """The kernels that run on that machine."""
    kernels: list[tile_ir.Kernel] = []

    def run(kernel: tile_ir.Kernel, arrays: Any, params: Any, chunks: int) -> None:
        kernels.append(kernel)
        interpreter.run(expand(kernel, LANES, WORDS), arrays, params)

    monkeypatch.setattr(tile_interpreter, "run", run)
    monkeypatch.setattr("luminal.backends.interpreted.backend.current", lambda number=0: MACHINE)
    return kernels


@pytest.mark.parametrize("rows", mostly_long([1, 3], 1))
@pytest.mark.parametrize("kind", long_but(RECORDED, ("Q4_K", "Q6_K")))
def test_codes_in_their_bytes(kind: str, rows: int, found: list[tile_ir.Kernel]) -> None:
    blocks = blocks_of(kind, 35, 512)
    x = some(rows, 512)
    y = lm.compile(recorded(packed(blocks), x.shape), backend="interpreted")({"x": x})["y"]
    values = values_of(kind, blocks).T.astype(np.float64)
    size = in_bytes(np.abs(x)) @ np.abs(values)
    assert (np.abs(y - in_bytes(x) @ values) <= 1e-5 * size + 1e-30).all()
    dots = [s.dot for k in found for s in k.statements() if isinstance(s, Contract)]
    assert UINT8_BY_INT8 in dots
