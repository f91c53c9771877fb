"""What goes wrong with hand-written kernels: functions that raise, IR that does not fit."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device
from luminal.base import config
from tests.backends.cpu.frontend.custom_samples import (
    SCALE,
    Array,
    agree,
    draw,
    same,
    scale,
    square,
)


@pytest.fixture(autouse=True)
def _team_for_tiny_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)


def failing(at: int) -> tuple[Any, list[int]]:
    """A kernel that fails at its call number `at`, and the calls so far."""
    calls: list[int] = []

    def run(x: Array, out: Array) -> None:
        calls.append(len(calls))
        if calls[-1] == at:
            raise KeyError("on purpose")
        out[...] = x + 1

    return lm.custom_kernel("fragile", run, results=same), calls


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_that_fails_changes_no_state(threads: int) -> None:
    kernel, calls = failing(at=1)
    cx = lm.Graph()
    cache, total = lm.State((8, 2), name="cache"), lm.State((2,), name="total")
    x, at = cx.tensor((2,), name="x"), cx.tensor((1,), "int64", name="at")
    written = cx.read(cache).index_put((at,), (x * 2).reshape(1, 2))
    cx.assign(cache, written)
    cx.assign(total, kernel(cx.read(total) + x))
    (kernel(written.sum(0)) + 1).output("y")
    exe = cx.compile()

    def run(k: int) -> Any:
        with config.override(LUMINAL_THREADS=threads):
            return exe({"x": np.full(2, k, np.float32), "at": np.array([k])})

    with pytest.raises(KeyError, match="on purpose") as caught:
        run(1)
    assert caught.value.__notes__ == ["in the custom kernel fragile; no State has changed"]
    assert not cache.numpy().any()
    assert not total.numpy().any()
    for k in (2, 3):
        run(k)
    np.testing.assert_array_equal(cache.numpy()[:, 0], [0, 0, 4, 6, 0, 0, 0, 0])
    np.testing.assert_array_equal(total.numpy(), [7, 7])
    assert len(calls) == 6


def test_a_state_is_updated_in_place_only_where_no_run_can_fail() -> None:
    def swaps(kernel: Any) -> int:
        cx = lm.Graph()
        cache = lm.State((8, 2), name="cache")
        row = cx.tensor((1, 2), name="x")
        cx.assign(cache, cx.read(cache).index_put((cx.constant([3]),), row))
        kernel(row).output("y")
        cx.compile()({"x": np.ones((1, 2), np.float32)})
        assert cache.numpy()[3].all()
        return int(cache.spare is not None)

    assert swaps(square) == 1
    assert swaps(scale) == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_loop_ends_it(threads: int) -> None:
    kernel, calls = failing(at=2)
    cx = lm.Graph()
    big = cx.tensor((256, 256), name="big")
    state = lm.State((2,), name="s")
    last, _ = lm.scan(lambda c, _: (kernel(c) + (big @ big)[0, 0], None), cx.read(state), length=50)
    cx.assign(state, last)
    exe = cx.compile()
    with config.override(LUMINAL_THREADS=threads):
        with pytest.raises(KeyError):
            exe({"big": np.zeros((256, 256), np.float32)})
        assert len(calls) == 3  # no call after the one that failed
        assert not state.numpy().any()
        exe({"big": np.zeros((256, 256), np.float32)})
    np.testing.assert_array_equal(state.numpy(), [50, 50])


def test_interrupts_come_out() -> None:
    cx = lm.Graph()

    def stop(x: Array, out: Array) -> None:
        raise KeyboardInterrupt

    lm.custom_kernel("stop", stop, results=same)(cx.tensor((2,), name="x")).output("y")
    with pytest.raises(KeyboardInterrupt):
        cx.compile()({"x": np.zeros(2, np.float32)})


def test_a_kernel_may_run_other_programs_but_not_its_own() -> None:
    inner = lm.Graph()
    (inner.tensor((64, 64), name="a") @ inner.constant(np.eye(64, dtype=np.float32))).output("b")
    other = inner.compile()
    own: list[Any] = []

    def run(x: Array, out: Array) -> None:
        out[...] = other({"a": x})["b"]
        if own:
            own[0]()

    cx = lm.Graph()
    x = cx.tensor((64, 64), name="x")
    (lm.custom_kernel("outer", run, results=same)(x) * 2).output("y")
    exe = cx.compile()
    a = draw(64, 64)
    np.testing.assert_array_equal(exe({"x": a})["y"], a * 2)
    own.append(exe)
    with pytest.raises(lm.GraphError, match="runs the executable that it is part of; compile anot"):
        exe({"x": a})
    own.clear()
    np.testing.assert_array_equal(exe({"x": a})["y"], a * 2)


@pytest.mark.parametrize(
    ("ir", "message"),
    [
        (
            SCALE.replace("fmul float", "fmul double"),
            r"scale: LLVM refuses the IR: (?s:.*)line 21: ",
        ),
        (SCALE.replace("@scale", "@other"), "scale: the IR defines no function @scale; add void "),
        (
            SCALE.replace("i64 %m.y, ", ""),
            r"scale: @scale is void \(ptr, ptr, i64, i64, i64, i64, i64\) and must be void \(ptr, "
            r"ptr, i64, i64, i64, i64, i64, i64\): it takes a pointer for each of 1 operands",
        ),
        (SCALE + "define void @kernel() { ret void }", "scale: the IR defines @kernel, a name of "),
        ("hello", "scale: LLVM refuses the IR"),
    ],
)
def test_ir_that_does_not_fit(ir: str, message: str) -> None:
    cx = lm.Graph()
    kernel = lm.custom_kernel("scale", ir=ir, results=same)
    kernel(cx.tensor((2, 2), name="x")).output("y")
    with pytest.raises(lm.CompileError, match=message):
        cx.compile()


def test_ir_may_call_the_c_library() -> None:
    text = """declare float @atan2f(float, float)
    define void @k(ptr %x, ptr %y, i64 %n, i64 %n.y, i64 %chunk, i64 %chunks) {
      %x.at = getelementptr float, ptr %x, i64 %chunk
      %y.at = getelementptr float, ptr %y, i64 %chunk
      %a = load float, ptr %x.at
      %b = call float @atan2f(float %a, float 2.0)
      store float %b, ptr %y.at
      ret void
    }"""
    cx = lm.Graph()
    kernel = lm.custom_kernel(
        "k",
        lambda x, out: np.arctan2(x, np.float32(2), out=out),
        ir=text,
        results=same,
        chunks=lambda x: x.shape[0],
    )
    kernel(cx.tensor((cx.dim("n", 0, 64),), name="x")).output("y")
    agree(cx, {"x": draw(33)})
    agree(cx, {"x": draw(0)})


def test_ir_of_which_a_symbol_is_missing() -> None:
    text = """declare void @nowhere_to_be_found()
    define void @k(ptr %x, ptr %y, i64 %n, i64 %n.y, i64 %chunk, i64 %chunks) {
      call void @nowhere_to_be_found()
      ret void
    }"""
    cx = lm.Graph()
    lm.custom_kernel("k", ir=text, results=same)(cx.tensor((2,), name="x")).output("y")
    with pytest.raises(lm.CompileError, match="k: the IR calls @nowhere_to_be_found, which"):
        cx.compile()


def test_diff_that_cannot_write_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cx = lm.Graph()
    state = lm.State((2,), name="s")
    cx.assign(state, (cx.read(state) + 1).diff(str(tmp_path / "file/x")))
    exe = cx.compile()
    with pytest.raises(OSError, match="file"):
        exe()
    assert not state.numpy().any()


RAISES = """
declare i32 @raise(i32)
define void @signals(ptr %x, ptr %y, i64 %n, i64 %n.y, i64 %chunk, i64 %chunks) {
  %value = load float, ptr %x
  store float %value, ptr %y
  %sent = call i32 @raise(i32 2)
  ret void
}
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_before_a_kernels_first_line_is_one_of_the_run() -> None:
    """It is pending when the callback begins, and ctypes drops what a callback raises."""

    def one(x: Any) -> Any:
        return (1,), x.dtype

    def copied(x: Array, out: Array) -> None:
        np.copyto(out, x)

    signals = lm.custom_kernel("signals", copied, ir=RAISES, results=one)
    after = lm.custom_kernel("after", copied, results=one)
    cx = lm.Graph()
    (after(signals(cx.tensor((1,), name="x"))) + 1).output("y")
    exe = lm.compile(cx)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
    try:
        for value in range(5):
            # On one thread: workers, whose signals are blocked, would keep what they raise.
            with config.override(LUMINAL_THREADS=1), pytest.raises(KeyboardInterrupt):
                exe({"x": np.float32([value])})
    finally:
        signal.signal(signal.SIGINT, before)
