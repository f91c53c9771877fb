"""Packed weights of mapped files: what a program has laid out is not held twice."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.loaders.ggml.packed import packed
from luminal.loaders.mapped import array_at, map_file
from luminal.memory.arrays import address
from luminal.memory.mapped_pages import is_mapped
from tests.close import close
from tests.numerics.byte_products import in_bytes, recorded, some
from tests.numerics.packed_blocks import blocks_of, values_of

Array = np.ndarray[Any, Any]
BEGIN = 4096


def resident(array: Array) -> int:
    """Bytes of the mapping around an array that this process holds."""
    place, inside = address(array), False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, stop = (int(end, 16) for end in first.split("-"))
            inside = start <= place < stop
        elif inside and first == "Rss:":
            return 1024 * int(line.split()[1])
    raise AssertionError("the array lies in no mapping")


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_pages_of_the_file_go_once_they_are_laid_out(kind: str, tmp_path: Path) -> None:
    own = blocks_of(kind, 512, 4096)
    path = tmp_path / "blocks"
    path.write_bytes(bytes(BEGIN) + own.tobytes())
    blocks = array_at(map_file(path), BEGIN, own.dtype, own.shape)
    weight, x = packed(blocks), some(1, 4096)
    want = in_bytes(x) @ values_of(kind, own).T.astype(np.float64)
    np.testing.assert_array_equal(weight.numpy(), values_of(kind, own))
    assert resident(blocks) >= own.nbytes
    exe = lm.compile(recorded(weight, x.shape))
    for _ in range(2):
        found = np.asarray(exe({"x": x})["y"])
        close(found, want, ulp=16)
    held = exe.memory_report().derived_bytes + resident(blocks)
    assert 0 < held <= 1.15 * own.nbytes
    np.testing.assert_array_equal(weight.numpy(), values_of(kind, own))  # they come back


def test_only_pages_that_nobody_can_write_are_let_go(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(BEGIN))
    assert is_mapped(np.frombuffer(map_file(path), np.uint8).reshape(-1, 64)[3:, :5])
    assert not is_mapped(np.zeros(8))
    assert not is_mapped(np.memmap(path, np.uint8, "c"))
    with path.open("rb") as file:
        private = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    assert not is_mapped(np.frombuffer(private.toreadonly(), np.uint8))
