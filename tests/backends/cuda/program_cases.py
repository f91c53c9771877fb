"""Whole programs over the stand-in: run by test_driver.py in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import DeviceError
from luminal.nn import functional as F
from luminal.training.program import Recipe, Steps, inputs_at
from tests.simt import stand_in
from tests.training.small_run import moved

ROWS, WIDTH = 4, 8
MOST_SECONDS = 150e-6
NEAR = 1e-5  # exponentials of float32, and running sums of a few rows
"""Of the host for a run: 16 us where the machine is idle, with room for one that is not."""
X = np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with stand_in.nvrtc_stands_in(monkeypatch, tmp_path, LUMINAL_POISON=None):
        yield


def calls() -> dict[str, int]:
    """How often the driver was asked, by what for."""
    count = ctypes.CDLL(stand_in.CUDA).stand_in_calls
    return {name: count(name.encode()) for name in ("copy", "launch", "graph", "wait")}


def since(before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in calls().items()}


def growing(state: lm.State) -> lm.Graph:
    """y = softmax(x + state) of s rows; state += the first row, where it lies."""
    cx = lm.Graph()
    x = cx.tensor((cx.dim("s", 1, 100), WIDTH), name="x")
    held = cx.read(state)
    (x + held).softmax(-1).output("y")
    cx.assign(state, held + x[0])
    return cx


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def test_a_run_is_one_call_for_any_dims() -> None:
    state = lm.State((WIDTH,), name="sum")
    exe = lm.compile(growing(state), "cuda")
    value, lengths = np.zeros(WIDTH, np.float32), (4, 3, 4, 3, 4, 3, 4)
    for run, length in enumerate(lengths):
        before = calls()
        y = exe(x=X[:length])["y"]
        if run > 3:  # each of two layouts was listed and recorded
            assert since(before) == {"copy": 0, "launch": 0, "graph": 1, "wait": 1}
        np.testing.assert_allclose(y, softmax(X[:length] + value), rtol=NEAR)
        value = value + X[0]
    np.testing.assert_allclose(state.numpy(), value, rtol=NEAR)


def test_launches_may_begin_before_those_ahead_have_ended() -> None:
    """Each has the attribute, by which its kernel waits itself; recorded ones keep it."""
    count = ctypes.CDLL(stand_in.CUDA).stand_in_calls
    before, chained = calls()["launch"], count(b"chained")
    exe = lm.compile(growing(lm.State((WIDTH,), name="sum")), "cuda")
    for _ in range(3):
        exe(x=X)
    assert calls()["launch"] - before == count(b"chained") - chained > 0
    driver: Any = exe._variants[0].runner.device.driver  # type: ignore[attr-defined]
    assert driver.is_chained


def trained(backend: str) -> tuple[list[float], list[Any], list[dict[str, int]]]:
    """Steps in float16 with dropout and clipping: the losses, all that is trained and the scale in
    the end, and what each step asked of the driver. Step 5 overflows; the last three learn nothing.
    """
    lm.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1))
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    steps = Steps(Recipe(model, F.mse_loss, optimizer, 1.0, amp="float16", seed=3, backend=backend))
    assert steps.scaler is not None
    steps.scaler.load_state_dict({"scale": 256.0, "growth_tracker": 0, "skipped": 0})
    losses, asked = [], []
    for number, rate in ((0, 0.1), (1, 0.1), (2, 0.1), (3, 0.1), (4, 0.1), (5, 0.1), *RESTING):
        batch = X, X.sum(1, keepdims=True) * (1e6 if number == 5 else 1)
        program = steps.program(batch).executable
        before = calls()
        losses.append(float(program(inputs_at(batch, number, [rate]))["loss"]))
        asked.append(since(before))
    held = [p.numpy() for p in model.parameters()]
    return losses, [*held, *(s.numpy() for s in steps.scaler.states.values())], asked


RESTING = ((6, 0.0), (6, 0.0), (7, 0.0))


@pytest.mark.long
def test_a_step_of_training_is_one_call() -> None:
    """With dropout, clipping, scaling and the update, and also where the step is skipped."""
    expected, held, _ = trained("cpu")
    losses, found, asked = trained("cuda")
    np.testing.assert_allclose(losses, expected, rtol=NEAR)
    for mine, theirs in zip(found, held, strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)  # sums of float16
    assert found[-1] == 1  # a step was skipped, by the device itself:
    assert asked[3:] == [{"copy": 0, "launch": 0, "graph": 1, "wait": 1}] * 6
    assert losses[6] == losses[7] != losses[8]  # dropout is of the step, and no other


@pytest.mark.long
def test_started_steps_wait_for_nothing() -> None:
    """A loop that reads a step's loss while the next one runs: one call queues a step."""
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    recipe = Recipe(model, F.mse_loss, optimizer, 1.0, amp="float16", backend="cuda")
    batch = X, X.sum(1, keepdims=True)
    program = Steps(recipe).program(batch).executable
    asked, losses = [], []
    run = program.start(inputs_at(batch, 0, [0.1]))
    for number in range(1, 12):
        before = calls()
        following = program.start(inputs_at(batch, number, [0.1]))
        asked.append(since(before))
        losses.append(run.result()["loss"])
        run = following
    assert np.isfinite(losses).all()
    assert asked[-4:] == [{"copy": 0, "launch": 0, "graph": 1, "wait": 0}] * 4


@pytest.mark.long
def test_a_run_of_training_goes_on_elsewhere(tmp_path: Path) -> None:
    moved(tmp_path / "to", "cpu", "cuda")
    moved(tmp_path / "from", "cuda", "cpu")


def test_started_runs_overlap() -> None:
    state = lm.State((WIDTH,), name="sum")
    exe = lm.compile(growing(state), "cuda")
    runs, expected, value = [], [], np.zeros(WIDTH, np.float32)
    for _ in range(9):
        runs.append(exe.start(x=X))
        expected.append(softmax(X + value))
        value = value + X[0]
    for run, wanted in zip(runs, expected, strict=True):
        np.testing.assert_allclose(run.result()["y"], wanted, rtol=NEAR)


def test_arrays_that_stay_are_read_by_address() -> None:
    cx = lm.Graph()
    (cx.tensor((ROWS, WIDTH), name="x") * 2).output("y")
    exe = lm.compile(cx, "cuda")
    kept = exe(x=X, out="device")["y"]
    assert kept.__dlpack_device__() == (2, 0)
    interface = kept.__cuda_array_interface__
    address, is_read_only = interface.pop("data")
    assert interface == {"shape": (ROWS, WIDTH), "typestr": "<f4", "version": 3}
    assert not is_read_only
    # The stand-in's memory is the host's.
    found = np.ctypeslib.as_array((ctypes.c_float * X.size).from_address(address))
    np.testing.assert_array_equal(found.reshape(X.shape), X * 2)

    class Torch:
        """A tensor of PyTorch's, as far as one is asked."""

        streams: ClassVar[list[int]] = []
        requires_grad = True

        def detach(self) -> Torch:
            self.requires_grad = False
            return self

        def __dlpack_device__(self) -> tuple[int, int]:
            return kept.__dlpack_device__()

        def __dlpack__(self, *, stream: int) -> Any:
            assert not self.requires_grad
            self.streams.append(stream)
            return kept.__dlpack__()

    tensor = Torch()
    for run in range(5):
        before = calls()
        y = exe(x=tensor, out="device")["y"]
        if run > 2:  # a copy of the output within the device, and no other
            assert since(before) == {"copy": 1, "launch": 0, "graph": 1, "wait": 2}
        np.testing.assert_array_equal(y.numpy(), X * 4)
    driver: Any = exe._variants[0].runner.device.driver  # type: ignore[attr-defined]
    assert tensor.streams == [driver.stream_number] * 5


def test_a_run_costs_the_host_little_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_SKIP", "1")
    state = lm.State((WIDTH,), name="sum")
    exe = lm.compile(growing(state), "cuda")
    driver: Any = exe._variants[0].runner.device.driver  # type: ignore[attr-defined]
    given, taken = {"x": X}, []
    for _ in range(100):
        exe(given)
    gc.collect()
    objects, free = len(gc.get_objects()), driver.memory()
    for _ in range(100):
        start = time.process_time()
        for _ in range(100):
            exe(given)
        taken.append((time.process_time() - start) / 100)
    gc.collect()
    assert statistics.median(taken) < MOST_SECONDS
    assert abs(len(gc.get_objects()) - objects) < 200
    assert driver.memory() == free


def test_a_kernel_that_faults_ends_the_device_and_says_so() -> None:
    state = lm.State((WIDTH,), name="sum")
    exe = lm.compile(growing(state), "cuda")
    for _ in range(3):
        exe(x=X)
    buffer: Any = state.buffer
    buffer.block.close()  # kernels go on with its address
    with pytest.raises(DeviceError, match=r"cuda:0: .*LAUNCH_FAILED.*can use the device no longer"):
        exe(x=X)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"can use the device no longer|state\.reset"):
            exe(x=X)
    with pytest.raises(DeviceError):
        state.numpy()
