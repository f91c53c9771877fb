"""Pages of mapped arrays are there before they are read."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from luminal.loaders.mapped import array_at, map_file
from luminal.memory import mapped_pages as subject
from luminal.memory.arrays import address
from luminal.memory.mapped_pages import let_go, read_ahead, runs
from luminal.models.gguf import tensors

PAGES = 3000


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * (PAGES * mmap.PAGESIZE // 256))
    return array_at(map_file(path), 0, np.uint8, (PAGES * mmap.PAGESIZE,))


def present(array: np.ndarray) -> int:
    """How many of its pages this process has mapped."""
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(address(array) // mmap.PAGESIZE * 8)
        entries = np.frombuffer(file.read(array.nbytes // mmap.PAGESIZE * 8), np.uint64)
    return int((entries >> np.uint64(63)).sum())


def test_pages_are_mapped_before_they_are_read(mapped: np.ndarray) -> None:
    assert present(mapped) == 0
    thread = read_ahead([mapped])
    assert thread is not None
    thread.join()
    assert present(mapped) == PAGES


def test_neighbours_are_one_run_and_gaps_are_left_out(mapped: np.ndarray) -> None:
    page = mmap.PAGESIZE
    start = address(mapped)
    parts = [mapped[7 * page + 5 : 8 * page], mapped[: page - 1], mapped[page : 3 * page + 1]]
    assert [*runs(parts)] == [(start, start + 4 * page), (start + 7 * page, start + 8 * page)]
    assert [*runs([])] == []


def test_arrays_of_the_process_and_more_than_memory_are_left_alone(
    mapped: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_ahead([np.zeros(10), mapped[:0]]) is None
    monkeypatch.setattr(subject, "SHARE", 0.0)
    assert read_ahead([mapped]) is None


def test_pages_of_what_is_rearranged_are_let_go(mapped: np.ndarray) -> None:
    def turned(array: np.ndarray) -> np.ndarray:
        return array.reshape(2, -1).T.copy()

    def halved(array: np.ndarray) -> np.ndarray:
        return array[: len(array) // 2]

    assert np.array_equal(tensors._read("w", turned, mapped), turned(mapped))
    assert present(mapped) == PAGES  # read again by the line above
    made = tensors._read("w", turned, mapped)
    assert present(mapped) == 0
    assert not made.flags.writeable
    assert tensors._read("w", halved, mapped).sum() == halved(mapped).sum()
    assert present(mapped) > 0, "a view is read where it lies"


def test_what_was_mapped_beside_is_let_go_too(mapped: np.ndarray) -> None:
    """Of the file alone: its first and last rows have other memory before and behind them."""
    page, beside = mmap.PAGESIZE, (2 << 20) // mmap.PAGESIZE
    mapped.max()
    let_go([mapped[1500 * page : 1501 * page]])
    assert present(mapped[: (1500 - beside) * page]) > 0
    assert present(mapped[(1500 - beside) * page : (1501 + beside) * page]) == 0
    assert present(mapped[(1501 + beside) * page :]) > 0
    own = np.ones(4 * page, np.uint8)
    let_go([own, mapped[:page], mapped[-page:]])
    assert own.all()
    assert present(mapped[: beside * page]) == present(mapped[-beside * page :]) == 0
    assert mapped[: 256 * 3000].sum() == 3000 * 255 * 128
