"""Hand-written kernels on the CPU: Python functions and LLVM IR, against the reference."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.backends import registry
from luminal.backends.cpu import device
from luminal.compiler.compile import lower_to_program
from luminal.compiler.dump import Dump
from luminal.kernel.tile_text import to_text
from luminal.program import selection_text
from luminal.selection.fast import select
from tests.backends.cpu.frontend.custom_samples import (
    SCALE,
    Array,
    agree,
    draw,
    same,
    scale,
    square,
    triple,
)
from tests.close import close_each
from tests.machines import COSTS


@pytest.fixture(autouse=True)
def _team_for_tiny_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)


@pytest.mark.parametrize("kernel", [scale, square], ids=["ir", "python"])
@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (3, 0), (1, 1), (1000, 257)])
def test_among_other_kernels(kernel: Any, shape: tuple[int, int]) -> None:
    cx = lm.Graph()
    n, m = cx.dim("n", 0, 5000), cx.dim("m", 0, 5000)
    x = cx.tensor((n, m), name="x")
    y = kernel((x * 2 + 1).relu())
    (y.exp2() * 0.5).sum(1).output("y")
    kernel(y).output("z")
    with np.errstate(over="ignore"):
        exe = agree(cx, {"x": draw(*shape) * 0.5})
    labels = [row.label for row in exe.report().kernels]
    assert labels.count(kernel.kernel.name) == 2
    assert len(labels) == 4  # the neighbours still fuse among themselves


@pytest.mark.parametrize("kernel", [scale, square], ids=["ir", "python"])
def test_special_values(kernel: Any) -> None:
    cx = lm.Graph()
    x = cx.tensor((2, 3), name="x")
    kernel(x).output("y")
    values = np.array([[np.nan, np.inf, -np.inf], [-0.0, 1e38, 1e-45]], np.float32)
    with np.errstate(over="ignore"):
        agree(cx, {"x": values}, exact=True)


def test_operands_of_every_kind() -> None:
    """Permuted, broadcast, sliced, constant, a Weight; the same tensor in two frames; 0-d."""
    cx = lm.Graph()
    x, w = cx.tensor((3, 3), name="x"), cx.weight((3,), name="w")

    def mix(*arrays: Array) -> None:
        *operands, out = arrays
        assert all(each.flags.c_contiguous for each in operands)
        out[...] = sum(each * (k + 1) for k, each in enumerate(operands))

    rule = lambda x, *others: x  # noqa: E731
    kernel = lm.custom_kernel("mix", mix, results=rule)
    views = [x, x.T, w.expand(3, 3), x[0:1].expand(3, 3), x.flip(0), cx.constant(2.5), w + 1]
    kernel(*views, cx.arange(3).float(), np.ones((3, 3), np.float32)).output("y")
    w.set(np.array([1, 2, 3], np.float32))
    agree(cx, {"x": draw(3, 3)})
    w.set(np.array([3, 5, 7], np.float32))
    agree(cx, {"x": draw(3, 3)})


def test_weights_repeated_along_a_dim() -> None:
    """A copy that depends on a dim is no matter of the prologue."""
    cx = lm.Graph()
    n, w = cx.dim("n", 0, 50), cx.weight((3,), name="w")
    rows = (cx.tensor((n,), name="x"), w.expand(n, 3))
    scale(rows[1]).output("y")
    last, _ = lm.scan(lambda c, _: (c + rows[0].reshape(n, 1), None), rows[1], length=n)
    last.output("z")
    w.set(np.array([1, 2, 3], np.float32))
    for k in (4, 0):
        agree(cx, {"x": draw(k)})


def test_several_results_of_which_one_is_used() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 1, 100)

    def parts(x: Array, low: Array, high: Array, count: Array) -> None:
        np.floor(x, out=high)
        low[...] = x - high
        count[...] = x.size

    kernel = lm.custom_kernel(
        "parts", parts, results=lambda x: [x, (x.shape, "float64"), ((), "int64")]
    )
    low, high, count = kernel(cx.tensor((n,), name="x"))
    (low * 2).output("low")
    count.output("count")
    agree(cx, {"x": draw(13)})
    (high.sum()).output("high")
    agree(cx, {"x": draw(13)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "uint8", "int64", "float64"])
def test_dtypes(dtype: str) -> None:
    cx = lm.Graph()
    seen = []

    def copy(x: Array, out: Array) -> None:
        seen.append((x.dtype, out.dtype))
        out[...] = x

    x = cx.tensor((4,), dtype, name="x")
    lm.custom_kernel("copy", copy, results=same)(x).output("y")
    array = np.array([0, 1, 1, 0]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    agree(cx, {"x": array}, exact=True)
    assert set(seen) == {(array.dtype, array.dtype)}


@pytest.mark.long
def test_python_runs_on_the_calling_thread_with_the_team_around_it() -> None:
    cx = lm.Graph()
    threads = []

    def note(x: Array, out: Array) -> None:
        threads.append(threading.get_ident())
        out[...] = x + 1

    x = cx.tensor((512, 512), name="x")
    y = lm.custom_kernel("note", note, results=same)(x @ x)
    (y @ x).output("y")
    exe = agree(cx, {"x": np.abs(draw(512, 512))})
    assert set(threads) == {threading.get_ident()}
    caller = threading.Thread(target=exe)
    caller.start()
    caller.join()
    assert threads[-1] == caller.ident != threading.get_ident()


def test_the_team_shares_the_chunks() -> None:
    """Chunks of uneven size, more of them than threads."""
    cx = lm.Graph()
    x = cx.tensor((1 << 12, 1 << 10), name="x")
    count = lm.custom_kernel("scale", triple, ir=SCALE, results=same, chunks=33, flops=1 << 30)
    (count(x) + 0).output("y")
    agree(cx, {"x": draw(1 << 12, 1 << 10)}, exact=True)


@pytest.mark.parametrize("kernel", [scale, square], ids=["ir", "python"])
def test_in_loops(kernel: Any) -> None:
    cx = lm.Graph()
    trips = cx.dim("trips", 0, 9)
    x, xs = cx.tensor((2, 3), name="x"), cx.tensor((trips, 2, 3), name="xs")

    def step(carry: Any, each: Any) -> Any:
        inner, _ = lm.scan(lambda c, _: (kernel(c) * 0.25, None), carry, length=2)
        return kernel(inner + each) * 0.125, (kernel(each), kernel(carry))

    last, (a, b) = lm.scan(step, x, xs)
    for name, value in (("last", last), ("a", a), ("b", b)):
        value.output(name)
    for n in (4, 1, 0):
        agree(cx, {"x": draw(2, 3), "xs": draw(n, 2, 3)})


def test_two_functions_of_one_name_stay_two() -> None:
    cx = lm.Graph()
    x = cx.tensor((2, 2), name="x")
    other = lm.custom_kernel("square", triple, results=same)
    square(x).output("a")
    other(x).output("b")
    agree(cx, {"x": draw(2, 2)})
    assert len(lm.compile(cx).report().kernels) == 2


@pytest.mark.parametrize("kernels", [(square,), (scale,), (square, scale), (square, square, scale)])
def test_layers_that_repeat(kernels: Any, tmp_path: Path) -> None:
    """Equal layers may be rolled into a Loop; kernels that differ only by identity stay apart."""
    cx = lm.Graph()
    h = cx.tensor((4, 4), name="x")
    for k in range(6):
        h = (kernels[k % len(kernels)](h) @ cx.constant(np.eye(4, dtype=np.float32))).tanh()
        if len(kernels) == 2:
            h = h.diff(str(tmp_path / f"h{k}"))
    h.output("y")
    exe = agree(cx, {"x": draw(4, 4)})
    labels = [row.label for row in exe.report().kernels for _ in range(row.trips)]
    assert sum(label in ("square", "scale") for label in labels) == 6
    if len(kernels) == 2:
        assert sum(label.startswith("diff ") for label in labels) == 6
        assert len(list(tmp_path.iterdir())) == 6


def test_texts_are_read_back() -> None:
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 1, 9), 2), name="x")
    (square(x) + scale(x) + square(x.flip(0))).output("y")
    lowered = lower(cx.graph())
    selection = select(lowered, COSTS)
    text = selection_text.to_text(selection)
    assert selection_text.parse(text, lowered) == selection


def test_buckets_and_jit() -> None:
    @lm.jit
    def f(x: Any) -> Any:
        return square(x + 1).sum(1), scale(x)

    for shape in ((3, 4), (5, 2)):
        a = draw(*shape)
        summed, scaled = f(a)
        close_each(summed, ((a + 1) ** 2).sum(1))
        np.testing.assert_array_equal(scaled, a * np.float32(3))
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 0, 100), 2), name="x")
    square(scale(x)).output("y")
    exe = lm.compile(cx, dims={"n": [(1, 1), (2, 8)]})
    for n in (1, 5, 50, 0):
        close_each(exe({"x": draw(n, 2)})["y"], (draw(n, 2) * 3) ** 2)


def test_dump_shows_the_kernels() -> None:
    cx = lm.Graph()
    square(scale(cx.tensor((2, 3), name="x"))).output("y")
    dump = Dump(cx.graph(), registry.find("cpu"))
    assert "k0[7](in b0, out b2; p0=2, p1=3, p2=2, p3=3, p4=7)  # scale" in dump.text("program")
    assert "call 'square' (python) (b0[p0, p1]) -> (b1[p2, p3])" in dump.text("tile")
    assert "; y = 3 * x, rows cut into chunks" in dump.text("llvm")
    assert "; square: a Python function" in dump.text("llvm")
    for stage in ("asm", "algebra", "selection", "program.dot", "hlir", "hlir.dot"):
        assert dump.text(stage)
    exe = lm.compile(cx)
    exe({"x": draw(2, 3)})
    assert exe.profile(runs=2) is not None


def test_kernels_are_built_ahead_and_sent_to_other_processes() -> None:
    """What a search does with the kernels of its candidates."""
    cx = lm.Graph()
    square(scale(cx.tensor((2, 3), name="x"))).output("y")
    backend = registry.compiling("cpu")
    program = lower_to_program(cx.graph(), backend)
    again = cloudpickle.loads(cloudpickle.dumps(program))
    for kernel in again.kernels:
        backend.compile(kernel, to_text(kernel))
    y = np.empty((2, 3), np.float32)
    backend.runner(again).bind({}, ["x"], ["y"]).run([draw(2, 3)], [y])
    close_each(y, (draw(2, 3) * 3) ** 2)


def test_two_threads_run_two_executables() -> None:
    def program() -> Any:
        cx = lm.Graph()
        x = cx.tensor((200, 200), name="x")
        (square(x @ x) @ x).output("y")
        return cx.compile()

    a = draw(200, 200) * np.float32(0.1)
    wanted = program()({"x": a})["y"].tobytes()
    wrong: list[int] = []

    def run(exe: Any) -> None:
        wrong.extend(k for k in range(20) if exe({"x": a})["y"].tobytes() != wanted)

    threads = [threading.Thread(target=run, args=(program(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_diff_writes_what_passes(tmp_path: Path) -> None:
    cx = lm.Graph()
    n = cx.dim("n", 0, 100)
    x = cx.tensor((n, 3), name="x")
    h = (x * 2).diff(str(tmp_path / "h"))
    (h + 1).output("y")
    x.cast(lm.bfloat16).diff(str(tmp_path / "unused"))
    last, _ = lm.scan(lambda c, _: ((c * 2).diff(str(tmp_path / "c")), None), x, length=3)
    last.output("last")
    exe = agree(cx, {"x": draw(5, 3)}, exact=True)
    for a in (draw(7, 3), draw(0, 3)):
        y = exe({"x": a})
        np.testing.assert_array_equal(y["y"], a * 2 + 1)
        assert set(y) == {"y", "last"}
        assert (tmp_path / "h.bin").read_bytes() == (a * 2).tobytes()
        unused = (tmp_path / "unused.bin").read_bytes()
        assert unused == a.astype(ml_dtypes.bfloat16).tobytes()
        assert (tmp_path / "c.bin").read_bytes() == y["last"].tobytes()
