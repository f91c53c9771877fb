"""What every driver must do, and one over a stand-in for a vendor's library: bases of tests.

`KERNEL` and the others are expanded already: the driver's `spell` takes `kernel.expanded`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.base.dtypes import float32, int64
from luminal.expand.expand import expand
from luminal.expand.ir import Carry, Loop
from luminal.kernel.tile_ir import Role
from luminal.kernel.tile_text import to_text
from luminal.runtime.driver import Array, Call, DeviceError, DevicePointer, Driver
from tests.backends.c_family.kernels import Writer, constant, index, tile_kernel
from tests.backends.c_family.launches import enqueue, scratch_bytes
from tests.expand.group_kernels import row_sums as group_sums


def row_sums(*, scratch: bool) -> Any:
    """Chunk r sums row r of n columns; by way of the scratch memory, if that is asked for."""
    w = Writer()
    k, before, sum_ = (w.new(dtype) for dtype in (int64, float32, float32))
    x = w.load("x", float32, w.apply("add", w.apply("mul", w.chunk, w.n), k))
    carry = Carry(sum_, constant(float32, 0.0), before, w.apply("add", before, x))
    w.body = [Loop(k, index(0), w.n, 1, (carry,), w.taken())]
    value = sum_
    if scratch:
        w.store("work", index(0), sum_)
        value = w.load("work", float32, index(0))
    w.store("sums", w.chunk, value)
    kernel = w.kernel(
        ("x", float32, Role.IN), ("sums", float32, Role.OUT),
        scratch=float32 if scratch else None, scratch_bytes=68 if scratch else 0,
    )  # fmt: skip
    return tile_kernel(kernel)


KERNEL = row_sums(scratch=False)


def placed(driver: Driver, array: Array) -> DevicePointer:
    place = DevicePointer(driver.allocate(array.nbytes))
    driver.write(place, array)
    return place


def read(driver: Driver, place: DevicePointer, like: Array) -> Array:
    array = np.zeros_like(like)
    driver.read(place, array)
    return array


def launched(driver: Driver, *, rows: int, workers: int, scratch: bool) -> None:
    values = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    source, target = placed(driver, values), DevicePointer(driver.allocate(rows * 4))
    code = driver.compile(row_sums(scratch=scratch), "text")
    size = workers * scratch_bytes(code, [4])
    memory = DevicePointer(driver.allocate(size)) if scratch else None
    enqueue(driver, code, rows, workers, [source, target], [4], memory)
    sums = read(driver, target, values[:, 0].copy())
    np.testing.assert_array_equal(sums, values.sum(1))


class DriverCases:
    """A subclass has the fixture `driver`."""

    def test_copies_start_at_offsets_and_keep_their_order(self, driver: Driver) -> None:
        values = np.arange(64, dtype=np.int32)
        first, second = placed(driver, values), placed(driver, values[::-1].copy())
        driver.copy(DevicePointer(first.block, 16), DevicePointer(second.block, 32), 64)
        driver.write(DevicePointer(second.block, 36), np.array([-1], np.int32))
        expected = values[::-1].copy()
        expected[8:24], expected[9] = values[4:20], -1
        np.testing.assert_array_equal(read(driver, second, values), expected)

    def test_what_was_written_may_change_after_the_call(self, driver: Driver) -> None:
        values = np.arange(8, dtype=np.int32)
        place = placed(driver, values)
        values[:] = 0
        np.testing.assert_array_equal(read(driver, place, values), np.arange(8))

    def test_empty_copies_are_nothing(self, driver: Driver) -> None:
        place, empty = placed(driver, np.zeros(4)), np.zeros((0, 3))
        driver.write(place, empty)
        driver.read(place, empty)
        driver.copy(place, place, 0)

    def test_a_filling_repeats_its_pattern(self, driver: Driver) -> None:
        place = placed(driver, np.zeros(10, np.uint8))
        driver.fill(place, 10, b"\1\2\3")
        assert read(driver, place, np.zeros(10, np.uint8)).tobytes() == b"\1\2\3\1\2\3\1\2\3\1"

    @pytest.mark.parametrize("scratch", [False, True], ids=["registers", "scratch"])
    @pytest.mark.parametrize("workers", [1, 7, 128, 300])
    def test_a_launch_walks_all_chunks(self, driver: Driver, workers: int, scratch: bool) -> None:
        launched(driver, rows=301, workers=workers, scratch=scratch)

    @pytest.mark.parametrize("groups", [1, 2])
    def test_groups_walk_all_chunks(self, driver: Driver, groups: int) -> None:
        if driver.most_lanes == 1:
            pytest.skip("the device has no groups")
        kernel = group_sums(5, 37, lanes=8, shared_rows=2, unroll=1)
        values = np.arange(5 * 37, dtype=np.float32).reshape(5, 37)
        source, target = placed(driver, values), DevicePointer(driver.allocate(20))
        code = driver.compile(tile_kernel(expand(kernel)), to_text(kernel))
        assert code.lanes == 16 <= driver.most_lanes
        assert driver.workers_of(code) >= driver.groups  # small ones: more may fit
        enqueue(driver, code, 3, groups, [source, target], [])
        np.testing.assert_array_equal(read(driver, target, values[:, 0].copy()), values.sum(1))

    def test_what_is_fetched_is_there_after_a_wait(self, driver: Driver) -> None:
        values = np.arange(8, dtype=np.int32)
        place, found = placed(driver, values), np.zeros(8, np.int32)
        driver.fetch(place, found)
        mark = driver.mark()
        driver.write(place, -values)
        driver.wait(mark)
        np.testing.assert_array_equal(found, values)

    def test_a_recording_copies_what_is_there_when_it_runs(self, driver: Driver) -> None:
        rows = 5
        values = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        code = driver.compile(KERNEL, "text")
        given, taken = driver.staging(values.nbytes + 24), driver.staging(4 * rows)
        block, target = driver.allocate(len(given)), DevicePointer(driver.allocate(4 * rows))
        source, numbers = DevicePointer(block), DevicePointer(block, values.nbytes)
        call = Call(code, 2, [source, target], numbers, None)
        recording = driver.record((given, source), [call], (target, taken))
        if recording is None:
            pytest.skip("the device records nothing")
        expected = np.zeros(rows, np.float32)
        for factor in (1, 2, 3):
            chunks = rows + 1 - factor
            given[: values.nbytes] = (values * factor).reshape(-1).view(np.uint8)
            given[values.nbytes :] = np.array([4, 0, chunks], np.int64).view(np.uint8)
            recording.run()
            driver.wait()
            expected[:chunks] = (values * factor).sum(1)[:chunks]
            np.testing.assert_array_equal(taken.view(np.float32), expected)

    def test_marks_tell_the_devices_time(self, driver: Driver) -> None:
        first = driver.mark()
        launched(driver, rows=64, workers=64, scratch=False)
        last = driver.mark()
        assert 0 < driver.seconds(first, last) < 60
        assert driver.seconds(first, first) == 0

    def test_more_memory_than_there_is_is_refused(self, driver: Driver) -> None:
        with pytest.raises(MemoryError, match=rf"{driver.name}: cannot allocate {1 << 50} bytes"):
            driver.allocate(1 << 50)
        driver.free(driver.allocate(64))

    def test_a_block_is_free_once_what_is_queued_has_run(self, driver: Driver) -> None:
        source, target = placed(driver, np.ones(4, np.float32)), DevicePointer(driver.allocate(4))
        enqueue(driver, driver.compile(KERNEL, "text"), 1, 1, [source, target], [4])
        driver.free(source.block)
        np.testing.assert_array_equal(read(driver, target, np.zeros(1, np.float32)), [4])


class StandInCases(DriverCases):
    """Of what a stand-in sees. A subclass has the fixture `made` too (the architectures that the
    driver compiled for), and the words that its library has for what goes wrong.
    """

    architecture: str
    invalid: str
    failed: str

    def again(self, place: DevicePointer) -> DevicePointer:
        """The same place for one who does not know that it was freed."""
        return place

    def test_memory_that_was_allocated_is_not_free(self, driver: Driver) -> None:
        before = driver.memory()
        block = driver.allocate(1 << 20)
        assert driver.memory() == (before.total, before.free - (1 << 20))
        driver.free(block)
        driver.wait()
        assert driver.memory() == before

    def test_streams_wait_for_each_other(self, driver: Any) -> None:
        """Another driver of the device has a stream of its own, as another library has."""
        other, ones = type(driver)(driver.spell), np.ones(4, np.float32)
        place, two, three = (placed(driver, ones * n) for n in (1, 2, 3))
        driver.wait()
        other.copy(two, place, ones.nbytes)
        driver.follow(other.stream_number)
        np.testing.assert_array_equal(read(driver, place, ones), ones * 2)
        driver.copy(three, place, ones.nbytes)
        driver.precede(other.stream_number)
        np.testing.assert_array_equal(read(other, place, ones), ones * 3)

    def test_code_is_compiled_once_for_the_devices_own_architecture(
        self, driver: Driver, made: list[str]
    ) -> None:
        driver.compile(KERNEL, "text")
        driver.compile(KERNEL, "text")
        assert made == [self.architecture]

    def test_a_copy_beyond_a_block_is_reported(self, driver: Driver) -> None:
        place = placed(driver, np.zeros(4))
        with pytest.raises(DeviceError, match=rf"{driver.name}: .*{self.invalid}"):
            driver.read(DevicePointer(place.block, 8), np.zeros(4))

    def test_a_freed_operand_is_reported(self, driver: Driver) -> None:
        source, target = placed(driver, np.zeros(4, np.float32)), DevicePointer(driver.allocate(4))
        freed = self.again(source)
        driver.free(source.block)
        enqueue(driver, driver.compile(KERNEL, "text"), 1, 1, [freed, target], [4])
        with pytest.raises(DeviceError, match=rf"{driver.name}: .*: .*{self.failed}"):
            driver.wait()
        with pytest.raises(DeviceError, match=self.failed):  # as does all that follows
            driver.allocate(4)
