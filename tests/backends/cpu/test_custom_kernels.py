"""Hand-written kernels on the CPU: Python functions and LLVM IR, against the reference."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import cloudpickle
import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal import config
from luminal.algebra.lower import lower
from luminal.backends import registry
from luminal.compiler import lower_to_program
from luminal.dump import Dump
from luminal.kernel.tile_ir import to_text
from luminal.program import selection_text
from luminal.select.fast import select

Array = np.ndarray[Any, Any]

SCALE = """
; y = 3 * x, rows cut into chunks of even size
define void @scale(ptr %x, ptr %y, i64 %n, i64 %m, i64 %n.y, i64 %m.y, i64 %chunk, i64 %chunks) {
entry:
  %after = add i64 %chunk, 1
  %low.n = mul i64 %chunk, %n
  %high.n = mul i64 %after, %n
  %low = udiv i64 %low.n, %chunks
  %high = udiv i64 %high.n, %chunks
  %start = mul i64 %low, %m
  %stop = mul i64 %high, %m
  br label %head
head:
  %i = phi i64 [ %start, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %body, label %exit
body:
  %x.at = getelementptr float, ptr %x, i64 %i
  %y.at = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %x.at
  %tripled = fmul float %value, 3.0
  store float %tripled, ptr %y.at
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
}
"""


def same(x: Any) -> Any:
    return x


def triple(x: Array, out: Array) -> None:
    np.multiply(x, np.float32(3), out=out)


def square_of(x: Array, out: Array) -> None:
    out[...] = x * x


scale = lm.custom_kernel("scale", triple, ir=SCALE, results=same, chunks=7)
square = lm.custom_kernel("square", square_of, results=same)


def agree(cx: lm.Graph, inputs: dict[str, Array], exact: bool = False) -> lm.Executable:
    """The CPU with one and two threads gives what the reference does; gives the executable."""
    exe = lm.compile(cx)
    expected = lm.compile(cx, "reference")(inputs)
    found = []
    for threads in (1, 2):
        with config.override(LUMINAL_THREADS=threads):
            found.append(exe(inputs))
    for name, wanted in expected.items():
        assert found[0][name].tobytes() == found[1][name].tobytes()
        if exact:
            np.testing.assert_array_equal(found[0][name], wanted)
        else:
            np.testing.assert_allclose(found[0][name], wanted, rtol=2e-6)
    return exe


def draw(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


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
    """Each chunk runs once, whatever the team: counts are added to what a chunk finds."""
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


# --- errors ---------------------------------------------------------------------------------------


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


# --- the rest of the house ------------------------------------------------------------------------


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
    selection = select(lowered)
    text = selection_text.to_text(selection)
    assert selection_text.parse(text, lowered) == selection


def test_buckets_and_jit() -> None:
    @lm.jit
    def f(x: Any) -> Any:
        return square(x + 1).sum(1), scale(x)

    for shape in ((3, 4), (5, 2)):
        a = draw(*shape)
        summed, scaled = f(a)
        np.testing.assert_allclose(summed, ((a + 1) ** 2).sum(1), rtol=1e-5)
        np.testing.assert_array_equal(scaled, a * np.float32(3))
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 0, 100), 2), name="x")
    square(scale(x)).output("y")
    exe = lm.compile(cx, dims={"n": [(1, 1), (2, 8)]})
    for n in (1, 5, 50, 0):
        np.testing.assert_allclose(exe({"x": draw(n, 2)})["y"], (draw(n, 2) * 3) ** 2, rtol=1e-6)


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
    backend = registry.find("cpu")
    assert backend.build is not None
    assert backend.target is not None
    program = lower_to_program(cx.graph(), backend.target())
    again = cloudpickle.loads(cloudpickle.dumps(program))
    for kernel in again.kernels:
        backend.build(kernel, to_text(kernel), backend.target())
    y = np.empty((2, 3), np.float32)
    backend.make_runner(again).bind({}, ["x"], ["y"]).run([draw(2, 3)], [y])
    np.testing.assert_allclose(y, (draw(2, 3) * 3) ** 2, rtol=1e-6)


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


def test_diff_that_cannot_write_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cx = lm.Graph()
    state = lm.State((2,), name="s")
    cx.assign(state, (cx.read(state) + 1).diff(str(tmp_path / "file/x")))
    exe = cx.compile()
    with pytest.raises(OSError, match="file"):
        exe()
    assert not state.numpy().any()
