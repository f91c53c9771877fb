"""Arrays that stay on a device, and those of other libraries that lie there."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import InputError, LuminalError
from luminal.memory import dlpack_device
from luminal.memory.alignment import ACCESS
from luminal.runtime import workspace
from luminal.runtime.device_array import DeviceArray
from tests.backends.interpreted.devices import CountingDriver, compiled_on, drawn, made, turning
from tests.backends.interpreted.recording_driver import compiled

X = drawn(6, 5)


def doubled(dtype: Any = lm.float32) -> lm.Graph:
    cx = lm.Graph()
    x = cx.tensor((cx.dim("s", 0, 100), 5), name="x", dtype=dtype)
    (x + x).output("y")
    return cx


class Other:
    """An array of another library in the same memory. It offers what it is given."""

    def __init__(self, array: DeviceArray, *, device: int | None = None) -> None:
        self.array, self.asked = array, [0]
        self.device = self.array.__dlpack_device__() if device is None else (device, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.asked[0] += 1
        return self.array.__dlpack__(max_version=max_version)


class Later(Other):
    """An array from another one's second element on, a row shorter."""

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        of, driver = self.array, self.array.space.driver
        address, shape = driver.address(of.place) + of.dtype.size, (of.shape[0] - 1, *of.shape[1:])
        return dlpack_device.exported(address, shape, of.dtype, self.device, of, max_version)


def counted(graph: lm.Graph) -> tuple[Any, CountingDriver]:
    device, driver = made()
    return compiled_on(device, graph), driver


def test_outputs_stay_and_are_inputs_without_a_copy() -> None:
    exe, driver = counted(doubled())
    y = exe(x=X, out="device")["y"]
    assert (y.shape, y.dtype, y.device) == ((6, 5), lm.float32, "counting")
    driver.read_bytes = driver.written_bytes = 0
    for _ in range(3):
        y = exe(x=y, out="device")["y"]
        assert isinstance(y, DeviceArray)
    integers = 8 * 3 * 3
    assert driver.read_bytes == 0
    assert driver.written_bytes <= integers
    np.testing.assert_array_equal(y.numpy(), X * 16)
    np.testing.assert_array_equal(np.asarray(y), X * 16)
    np.testing.assert_array_equal(exe(x=X)["y"], X * 2)


def test_arrays_that_lie_anywhere_are_copied_to_where_kernels_read_wide() -> None:
    exe, driver = counted(doubled())
    held = exe(x=X / 2, out="device")["y"]
    taken = DeviceArray.taken("x", Later(held), held.space)
    assert taken is not None
    assert driver.address(taken.place) % ACCESS == 0
    assert driver.address(held.place) % ACCESS == 0
    expected = np.ravel(X)[1:26].reshape(5, 5)
    np.testing.assert_array_equal(taken.numpy(), expected)
    np.testing.assert_array_equal(exe(x=Later(held))["y"], 2 * expected)
    same = DeviceArray.taken("x", Other(held), held.space)
    assert same is not None
    assert driver.address(same.place) == driver.address(held.place)


def test_started_runs_hand_arrays_on() -> None:
    exe, driver = counted(doubled())
    y, runs = exe(x=X, out="device")["y"], []
    for _ in range(3):
        runs.append(exe.start(x=y, out="device"))
        y = runs[-1]._results["y"]
    assert driver._queue
    np.testing.assert_array_equal(runs[-1].result()["y"].numpy(), X * 16)


def test_a_place_that_comes_again_is_recorded() -> None:
    exe, driver = compiled(doubled())
    held = exe(x=X, out="device")["y"]
    for _ in range(4):
        np.testing.assert_array_equal(exe(x=held, out="device")["y"].numpy(), X * 4)
        np.testing.assert_array_equal(exe(x=held)["y"], X * 4)
    assert driver.recorded == 2
    assert driver.again == 6


def test_outputs_of_one_value_and_large_ones_stay_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cx = lm.Graph()
    x, z = cx.tensor((50,), name="x"), cx.tensor((5,), name="z")
    twice = x * 2
    twice.output("a")
    twice.output("b")
    (z + 1).output("c")
    for size in (100, 1 << 20):
        monkeypatch.setattr(workspace, "STAGED", size)
        exe, _ = counted(cx)
        for run in range(3):
            found = exe(x=drawn(50) + run, z=drawn(5), out="device")
            for name in ("a", "b"):
                np.testing.assert_array_equal(found[name].numpy(), (drawn(50) + run) * 2)
            np.testing.assert_array_equal(found["c"].numpy(), drawn(5) + 1)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_goes_both_ways(dtype: DType, version: tuple[int, int] | None) -> None:
    device, _ = made()
    values = np.arange(12).reshape(3, 4).astype(dtype.numpy)
    array = DeviceArray.empty(device, (3, 4), dtype)
    with device.entered() as driver:
        driver.write(array.place, values)
        driver.wait()
    before = sys.getrefcount(array)
    capsule = array.__dlpack__(max_version=version)
    found = dlpack_device.taken("x", capsule, array.__dlpack_device__())
    assert (found.shape, found.dtype) == ((3, 4), dtype)
    assert found.address == driver.address(array.place)
    with pytest.raises(InputError, match="read once"):
        dlpack_device.taken("x", capsule, array.__dlpack_device__())
    del capsule
    assert sys.getrefcount(array) == before + 1
    found.release()
    assert sys.getrefcount(array) == before
    for _ in range(3):
        unread = array.__dlpack__(max_version=version)
        assert sys.getrefcount(array) == before + 1
        del unread
    assert sys.getrefcount(array) == before


class OnTheHost:
    """The host's memory by the capsules that devices' has, so that PyTorch here takes it."""

    def __init__(self, owner: np.ndarray[Any, Any]) -> None:
        self.owner = owner

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, *, max_version: Any = None, **_: Any) -> Any:
        x = self.owner
        dtype = dtypes.dtype_of(x.dtype)
        return dlpack_device.exported(x.ctypes.data, x.shape, dtype, (1, 0), x, max_version)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", dtypes.bfloat16.numpy])
@pytest.mark.parametrize("shape", [(2, 3), (0, 4), ()])
def test_pytorch_reads_the_capsules(dtype: Any, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    values = np.ones(shape, dtype)
    found = torch.from_dlpack(OnTheHost(values))
    assert (tuple(found.shape), found.element_size()) == (shape, values.itemsize)
    np.testing.assert_array_equal(found.float().numpy(), values.astype(np.float32))


# Arguments are freed when the error is set already.
@pytest.mark.parametrize("refusal", [int, ord, operator.index, lambda x: x.item()])
def test_arrays_that_are_freed_amid_an_exception_leave_it(refusal: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    x = np.ones(6, np.float32)
    before = sys.getrefcount(x)
    with pytest.raises((TypeError, ValueError, RuntimeError), match=r"[Tt]ensor|integer"):
        refusal(torch.from_dlpack(OnTheHost(x)))
    assert sys.getrefcount(x) == before


def test_consumers_that_refuse_a_device_say_so() -> None:
    exe, _ = counted(doubled())
    for _ in range(3):
        with pytest.raises(RuntimeError, match="Unsupported device"):
            np.from_dlpack(exe(x=X, out="device")["y"])


def test_arrays_of_other_libraries_are_read_where_they_lie_and_let_go() -> None:
    exe, driver = counted(doubled())
    held = exe(x=X, out="device")["y"]
    before = sys.getrefcount(held)
    other = Other(held)
    driver.written_bytes = 0
    for _ in range(3):
        np.testing.assert_array_equal(exe(x=other)["y"], X * 4)
    assert driver.written_bytes <= 3 * 24 + 600  # integers, and staging of the recorded run
    assert other.asked == [3]
    exe.release()
    exe(x=X)
    gc.collect()
    assert sys.getrefcount(held) == before + 1  # for `other`


def test_what_is_not_as_it_must_be_is_refused() -> None:
    exe, _ = counted(doubled())
    held = exe(x=X, out="device")["y"]
    of_integers = compiled_on(exe._device, doubled(lm.int32))
    with pytest.raises(InputError, match=r"x: DeviceArray.*the input is i32.*numpy\(\)"):
        of_integers(x=held)
    with pytest.raises(InputError, match=r"out: 'gpu'; takes arrays .*'device'"):
        exe(x=X, out="gpu")
    with pytest.raises(LuminalError, match="device"):
        exe(x=Other(held, device=dlpack_device.CUDA))
    with pytest.raises(BufferError, match=r"x\.numpy\(\)"):
        held.__dlpack__(copy=True)
    assert not hasattr(held, "__cuda_array_interface__")


def test_another_device_and_the_host_take_copies_alone() -> None:
    exe, _ = counted(doubled())
    other, _ = counted(doubled())
    held = exe(x=X, out="device")["y"]
    elsewhere = (
        r"x: DeviceArray\(f32\[6, 5\] on counting\), the program runs on counting; pass x\.n"
    )
    with pytest.raises(InputError, match=elsewhere):
        other(x=held)
    host = lm.compile(doubled())
    with pytest.raises(InputError, match=r"x: the array is on device counting.* as x\.numpy\(\)"):
        host(x=held)
    for program in (other, host):
        np.testing.assert_array_equal(program(x=held.numpy())["y"], X * 4)


def test_a_failed_run_is_told_by_its_arrays() -> None:
    exe, driver = counted(doubled())
    exe(x=X)
    driver.breaks_at = driver.launches + 1
    run = exe.start(x=X, out="device")
    kept = run._results["y"]
    behind = exe.start(x=kept)  # allocates nothing, for which this device would do what is queued
    for _ in range(2):
        for call in (kept.numpy, run.result, behind.result, lambda: exe(x=kept), kept.__dlpack__):
            with pytest.raises(LuminalError, match="this launch breaks"):
                call()


def test_indices_on_a_device_are_checked() -> None:
    cx = lm.Graph()
    at = cx.tensor((3,), lm.int32, name="at")
    x = cx.tensor((9, 2), name="x")
    x[at].output("y")
    device, _ = made()
    exe = compiled_on(device, cx)
    indices = lm.Graph()
    (indices.tensor((3,), lm.int32, name="i") * 2).output("at")
    there = compiled_on(device, indices)
    good = there(i=np.array([0, 4, 1], np.int32), out="device")["at"]
    np.testing.assert_array_equal(exe(x=drawn(9, 2), at=good)["y"], drawn(9, 2)[[0, 8, 2]])
    bad = there(i=np.array([0, 5, 1], np.int32), out="device")["at"]
    with pytest.raises(LuminalError, match="index 10 is out of range"):
        exe(x=drawn(9, 2), at=bad)


def test_states_and_arrays_share_a_queue() -> None:
    state = lm.State((8,), init=1, name="t")
    exe, _ = counted(turning(state))
    value = np.ones(8, np.float32)
    for _ in range(4):
        y = exe.start(x=drawn(8), out="device")
        np.testing.assert_array_equal(y.result()["y"].numpy(), value)
        value = value[::-1] + drawn(8)
    np.testing.assert_array_equal(state.numpy(), value)


def test_what_only_this_process_has_says_what_to_take_elsewhere() -> None:
    exe, _ = counted(doubled())
    run = exe.start(x=X, out="device")
    array = run.result()["y"]
    for held, words in ((run, r"Run\(y\).*result\(\) can"), (array, r"DeviceArray.*numpy\(\) can")):
        for taken in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=words):
                taken(held)
    with pytest.raises(InputError, match=r"on device counting, .* first, as x\.numpy\(\)"):
        lm.compile(doubled())(x=array)
