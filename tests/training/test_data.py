"""Datasets, batches in the order of seed and epoch, values made ahead by a thread."""

from __future__ import annotations

import gzip
import os
import struct
import threading
from collections.abc import Generator, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luminal.base.errors import DTypeError, InputError, LoadError, ShapeError
from luminal.loaders.idx import read_idx
from luminal.training import MNIST, ArrayDataset, Batches, TextDataset
from luminal.training.prefetch import prefetched
from tests.close import close_each

# --- IDX files ------------------------------------------------------------------------------------


def idx(array: np.ndarray[Any, Any], code: int = 0x08) -> bytes:
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
def test_an_idx_file_is_read(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(idx(PIXELS)) if packed else idx(PIXELS))
    found = read_idx(path)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, PIXELS)


@pytest.mark.parametrize(
    ("code", "dtype"), [(0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
def test_every_dtype_of_idx_is_read(tmp_path: Path, code: int, dtype: str) -> None:
    array = np.array([1, -2, 100], dtype)
    (tmp_path / "x").write_bytes(idx(array, code))
    found = read_idx(tmp_path / "x")
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


HUGE = bytes([0, 0, 8, 3]) + b"\xff" * 12
DAMAGED = {
    "empty": (b"", "truncated: the header needs 4 bytes, the file has 0"),
    "no-idx": (b"PK\x03\x04" + bytes(20), "not an IDX file"),
    "no-dtype": (b"\0\0\x07\x01" + bytes(20), "not an IDX file"),
    "extents": (idx(PIXELS)[:9], "the header needs 12 bytes, the file has 5"),
    "elements": (idx(PIXELS)[:-1], r"shape \[2, 3, 4\] needs 24 bytes, the file has 23"),
    "left-over": (idx(PIXELS) + b"\0", "bytes after the 24 of its shape"),
    "huge": (HUGE, "no memory holds the shape"),
    "large": (b"\0\0\x08\x02" + b"\x7f\xff\xff\xff" * 2, "truncated"),
    "gzip-cut": (gzip.compress(idx(PIXELS))[:-9], "cannot be unpacked"),
    "gzip-flipped": (gzip.compress(idx(PIXELS))[:10] + b"\xff" * 40, "cannot be unpacked"),
    "gzip-digest": (gzip.compress(idx(PIXELS))[:-8] + bytes(8), "cannot be unpacked"),
    "rank": (b"\0\0\x08\xff" + struct.pack(">I", 1) * 255 + b"\0", "at most 64 are supported"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_idx_file_is_a_load_error_of_one_line(tmp_path: Path, name: str) -> None:
    data, message = DAMAGED[name]
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(LoadError, match=message) as caught:
        read_idx(tmp_path / "x")
    assert str(tmp_path / "x") in str(caught.value)
    assert "\n" not in str(caught.value)


def mnist_folder(folder: Path, images: Any, labels: Any) -> Path:
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return folder


def test_mnist_is_normalised(tmp_path: Path) -> None:
    images = np.zeros((2, 28, 28), np.uint8)
    images[1] = 255
    folder = mnist_folder(tmp_path, images, np.array([3, 9], np.uint8))
    dataset = MNIST(folder, train=False)
    x, y = dataset.take(np.array([1, 0]))
    assert (x.shape, x.dtype, y.dtype) == ((2, 1, 28, 28), np.float32, np.int64)
    close_each(x[:, 0, 0, 0], [(1 - 0.1307) / 0.3081, -0.1307 / 0.3081])
    assert y.tolist() == [9, 3]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        ((2, 28, 27), [1, 2], r"it must be uint8 \(count, 28, 28\)"),
        ((2, 28, 28), [1], "for each of 2 images"),
        ((1, 28, 28), [10], "a digit of 0..9"),
    ],
    ids=["width", "count", "digit"],
)
def test_files_that_are_no_mnist(tmp_path: Path, images: Any, labels: Any, message: str) -> None:
    mnist_folder(tmp_path, np.zeros(images, np.uint8), np.array(labels, np.uint8))
    with pytest.raises(LoadError, match=message):
        MNIST(tmp_path, train=False)
    with pytest.raises(LoadError, match=r"no train-images-idx3-ubyte and no .*\.gz in it"):
        MNIST(tmp_path)


def test_the_real_mnist(shared_data: Path) -> None:
    dataset = MNIST(shared_data / "mnist", train=False)
    x, y = dataset.take(np.arange(len(dataset)))
    assert len(dataset) == 10000
    assert np.bincount(y).min() > 800
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02


# --- datasets -------------------------------------------------------------------------------------


def test_rows_of_arrays_go_together() -> None:
    dataset = ArrayDataset(np.arange(10), np.arange(20).reshape(10, 2))
    x, y = dataset.take(np.array([7, 0]))
    assert (x.tolist(), y.tolist()) == ([7, 0], [[14, 15], [0, 1]])
    with pytest.raises(ShapeError, match="as many rows"):
        ArrayDataset(np.zeros(3), np.zeros(4))
    with pytest.raises(ShapeError, match="as many rows"):
        ArrayDataset(np.float32(3))


@pytest.mark.parametrize(("count", "stride", "windows"), [(9, None, 2), (8, None, 1), (9, 1, 5)])
def test_windows_of_a_text(count: int, stride: int | None, windows: int) -> None:
    dataset = TextDataset(np.arange(count), 4, stride)
    assert len(dataset) == windows
    ids, following = dataset.take(np.arange(windows))
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids + 1, following)
    assert ids[-1, 0] == (windows - 1) * (stride or 4)
    assert following.max() < count


def test_a_text_that_is_too_short() -> None:
    with pytest.raises(ShapeError, match="more than length = 4"):
        TextDataset(np.arange(4), 4)
    with pytest.raises(InputError, match="stride=0; it must be an int of at least 1"):
        TextDataset(np.arange(9), 4, 0)


@pytest.mark.parametrize("ids", [np.full(9, 2**40), np.zeros(9), [0.5] * 9], ids=str)
def test_ids_that_int32_does_not_hold(ids: Any) -> None:
    with pytest.raises(DTypeError, match="TextDataset: tokens: expected int32, got"):
        TextDataset(ids, 4)


# --- batches --------------------------------------------------------------------------------------


def rows(count: int = 10) -> ArrayDataset:
    return ArrayDataset(np.arange(count))


def taken(batches: Batches, count: int | None = None) -> list[list[int]]:
    found = []
    for (x,) in batches:
        found.append(x.tolist())
        if len(found) == count:
            break
    return found


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [*chain.from_iterable(batches)]


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_an_epoch_has_every_example_once(prefetch: int) -> None:
    batches = Batches(rows(), 3, seed=5, prefetch=prefetch)
    first, second = taken(batches), taken(batches)
    assert [len(batch) for batch in first] == [3, 3, 3, 1]
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(10))
    assert first != second
    assert taken(Batches(rows(), 3, seed=5)) == first
    assert taken(Batches(rows(), 3, seed=6)) != first
    assert taken(Batches(rows(), 3, shuffle=False)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert flat(taken(Batches(rows(), 4, drop_last=True, shuffle=False))) == list(range(8))


@pytest.mark.parametrize("stop", range(9))
def test_a_position_is_resumed_exactly(stop: int) -> None:
    whole, cut = Batches(rows(), 3, seed=1), Batches(rows(), 3, seed=1)
    expected = taken(whole) + taken(whole) + taken(whole)
    found: list[list[int]] = []
    while len(found) < stop:
        found += taken(cut, stop - len(found))
    state = cut.state_dict()
    assert (state["epoch"], state["taken"]) == divmod(stop, 4)
    again = Batches(rows(), 3, seed=1)
    again.load_state_dict(state)
    while len(found) < 12:
        found += taken(again)
    assert found == expected


def test_a_position_of_other_batches_is_refused() -> None:
    state = Batches(rows(), 3).state_dict()
    with pytest.raises(InputError, match="batches with size 3, these have 4"):
        Batches(rows(), 4).load_state_dict(state)
    with pytest.raises(InputError, match="batches with seed 0, these have 1"):
        Batches(rows(), 3, seed=1).load_state_dict(state)
    with pytest.raises(InputError, match="10 examples give no batch of 11"):
        Batches(rows(), 11, drop_last=True)


def test_once_does_not_move() -> None:
    batches = Batches(rows(), 3)
    taken(batches, 2)
    assert len([*batches.once()]) == 4
    assert (batches.epoch, batches.taken) == (0, 2)


# --- the thread -----------------------------------------------------------------------------------


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "luminal-prefetch"]


def test_the_queue_is_bounded_and_the_thread_ends_with_the_iterator() -> None:
    made: list[int] = []
    asked = threading.Event()

    def make(key: int) -> int:
        made.append(key)
        if key == 3:
            asked.set()
        return key * key

    values = prefetched(make, range(1000), 3)
    assert next(values) == 0
    assert asked.wait(10)
    assert len(made) <= 5  # one handed out, three waiting, one in the thread's hands
    assert isinstance(values, Generator)
    values.close()
    assert len(made) <= 6
    assert threads() == []


def test_what_making_raises_is_raised_in_its_place() -> None:
    def make(key: int) -> int:
        if key == 2:
            raise LookupError("no third")
        return key

    values = prefetched(make, range(5), 4)
    assert (next(values), next(values)) == (0, 1)
    with pytest.raises(LookupError, match="no third"):
        next(values)
    assert threads() == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_the_rest_by_itself() -> None:
    values = prefetched(lambda key: key, range(50), 2)
    assert next(values) == 0
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, bytes(values))
        os._exit(0)
    os.close(writing)
    found = b""
    while block := os.read(reading, 100):
        found += block
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0
    assert found == bytes(range(1, 50))
    assert [*values] == [*range(1, 50)]
