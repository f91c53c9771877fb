"""Packed types of GGUF: every bit as the gguf package decodes it, or as written out by hand."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import luminal as lm
from luminal.loaders.ggml.blocks import VALUES_AT_ONCE
from luminal.loaders.ggml.grids import points
from luminal.loaders.ggml.types import BLOCKS, NUMBERS, PLAIN
from tests.unit.loaders.gguf_bytes import gguf as gguf_bytes

HERE_ALONE = ("Q8_1", "Q8_K", "Q1_0")
"""The package does not decode these (and gives Q8_1, which no file has, 4 bytes too many)."""


def test_types_are_those_of_the_package() -> None:
    assert {kind.name: kind.value for kind in gguf.GGMLQuantizationType} == NUMBERS
    assert sorted(NUMBERS) == sorted([*PLAIN, *BLOCKS])
    for name, block in BLOCKS.items():
        sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        assert (block.size, block.record.itemsize) == sizes or name == "Q8_1"


@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in HERE_ALONE])
def test_every_bit_is_that_of_the_package(name: str) -> None:
    """Random bytes: scales are infinite and no numbers too."""
    block = BLOCKS[name]
    raw = np.random.default_rng(0).integers(0, 256, (300, block.record.itemsize), np.uint8)
    found = block.decoded(raw.reshape(-1).view(block.record))
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(found.view(np.uint32), expected.reshape(-1).view(np.uint32))


def test_types_that_the_package_does_not_decode() -> None:
    def decoded(name: str, *fields: object) -> list[float]:
        block = BLOCKS[name]
        return block.decoded(np.array([fields], block.record)).tolist()  # type: ignore[no-any-return]

    assert decoded("Q8_1", 0.5, 9.0, [*range(-16, 16)]) == [n / 2 for n in range(-16, 16)]
    assert decoded("Q8_K", 0.25, [-128] * 256, [7] * 16) == [-32.0] * 256
    assert decoded("Q1_0", 2.0, [0b101, *[0] * 14, 0x80]) == [2, -2, 2, *[-2] * 124, 2]


def test_pieces_join(tmp_path: Path) -> None:
    """More blocks than are decoded at once, in a file, as rows of a matrix."""
    block = BLOCKS["Q8_0"]
    count = VALUES_AT_ONCE // block.size + 3
    blocks = np.zeros(count, block.record)
    blocks["scale"] = 1
    blocks["codes"] = np.arange(count)[:, None] % 100
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({}, {"w": (8, blocks, (count, 32))}))
    found = lm.load(path)["w"]
    np.testing.assert_array_equal(found, blocks["codes"])
    assert found.shape == (count, 32)
    assert found.dtype == np.float32
    assert not found.flags.writeable


def test_grids_are_sets_of_points() -> None:
    for name, count in (("IQ1_S", 2048), ("IQ2_XXS", 256), ("IQ3_S", 512)):
        found = points(name)
        assert len(np.unique(found, axis=0)) == len(found) == count
