"""Sums of columns that lie side by side, few or long enough to be cut: against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.cpu import target
from luminal.base.dtypes import dtype_of
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.kernel.tile_ir import Kernel, Load, Loop, Store
from luminal.program.steps import KernelStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.shape.expression import TRUE
from tests.backends.cpu.schedule.knob_choices import placed_choices
from tests.close import close_each
from tests.fuzz.cpu_run import compiled
from tests.long_share import long_but, mostly_long

SHAPES = (
    (9001, 17), (4096, 64), (3000, 200), (2049, 256), (1100, 257), (37, 600, 33), (5000, 3, 20),
    (9000, 1024), (65, 70_001),
)  # fmt: skip
FORMS: dict[str, Callable[[lm.Tensor], lm.Tensor]] = {
    "sum": lambda x: x.sum(0),
    "greatest": lambda x: x.amax(0),
    "of squares": lambda x: (x * x).sum(0),
    "variance": lambda x: x.var(0, correction=0),
    "of what is computed": lambda x: ((x - 1).relu() * 2 + x.abs()).sum(0),
}


@pytest.mark.parametrize("shape", long_but(SHAPES, SHAPES[::2]), ids=str)
def test_against_float64(shape: tuple[int, ...]) -> None:
    cx = lm.Graph()
    x = cx.tensor(shape, name="x")
    scale = cx.weight(shape[-1:], name="w")
    for name, form in FORMS.items():
        form(x).output(name)
    (x * scale).sum(tuple(range(len(shape) - 1))).output("scaled")
    rng = np.random.default_rng(shape)
    given, w = (rng.standard_normal(s).astype(np.float32) for s in (shape, shape[-1]))
    found, wide = lm.compile(cx)({"x": given, "w": w}), given.astype(np.float64)
    computed = np.maximum(wide - 1, 0) * 2 + abs(wide)
    wanted = {
        "sum": wide.sum(0),
        "greatest": wide.max(0),
        "of squares": (wide * wide).sum(0),
        "variance": wide.var(0),
        "of what is computed": computed.sum(0),
        "scaled": (wide * w).sum(tuple(range(len(shape) - 1))),
    }
    for name, values in wanted.items():
        steps = np.sqrt(wide.size / values.size)  # a column may be one chain of additions
        near = {"rtol": max(2e-6, 1.2e-7 * steps), "atol": 2e-5 * steps}
        np.testing.assert_allclose(found[name], values, err_msg=name, **near)


@pytest.mark.parametrize(("rows", "columns", "chunks"), [(100_000, 64, 64), (2000, 64, 1)])
def test_few_columns_are_cut_where_it_pays(rows: int, columns: int, chunks: int) -> None:
    cx = lm.Graph()
    cx.tensor((rows, columns), name="x").sum(0).output("y")
    assert lm.compile(cx, backend="cpu").report().kernels[0].chunks == chunks


def test_integers_are_exact_however_they_are_cut() -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (7001, 48)).astype(np.int32)
    cx = lm.Graph()
    given = cx.tensor(x.shape, "int32", "x")
    given.sum(0).output("sum")
    given.amin(0).output("least")
    found = lm.compile(cx)(x=x)
    np.testing.assert_array_equal(found["sum"], x.sum(0))
    np.testing.assert_array_equal(found["least"], x.min(0))


def kernels(form: Callable[[lm.Tensor], lm.Tensor], *shape: int) -> tuple[Kernel, ...]:
    cx = lm.Graph()
    form(cx.tensor(shape, name="x")).output("y")
    return tuple(compiled(cx.graph())[1].program.kernels)


@pytest.mark.parametrize("form", ["sum", "greatest", "variance"])
def test_rows_from_memory_are_walked_whole(form: str) -> None:
    """With their sums in scratch."""
    first, *_ = kernels(FORMS[form], 65_536, 1024)
    assert first.scratch
    assert all(not kernel.scratch for kernel in kernels(FORMS[form], 100, 64))


def test_parts_of_sums_lie_side_by_side() -> None:
    """Else units that have parts of one sum each write to the same lines."""
    parts, _ = kernels(FORMS["sum"], 65_536, 1024)
    loop = [each for each in parts.statements() if isinstance(each, Loop)][-1]
    (store,) = (each for each in loop.body if isinstance(each, Store))
    assert store.offset.coefficient(loop.axis) == 1


def walked(cx: lm.Graph, given: dict[str, np.ndarray], most: int) -> dict[int, np.ndarray]:
    """What one kernel gives, by how many rows are added up at once to sums in scratch."""
    backend = registry.compiling("cpu")
    stages = compile.lower_by_stages(cx.graph(), backend)
    (step,) = stages.partition.steps
    assert isinstance(step, KernelStep)
    texts = placed_choices(step, backend)
    found = {}
    for at_once in (0, 2, most // 2, most):
        knobs = (("by_rows", at_once),) if at_once else ()
        if knobs in texts:
            tuned = {text_key(texts[()]): knobs}
            runner = backend.runner(compile.reschedule(stages, backend, tuned).program)
            found[at_once] = Executable(cx.graph(), (Variant({}, runner),))(given)["y"]
    return found


@pytest.mark.parametrize("rows", mostly_long([45, 7, 40], 2))
@pytest.mark.parametrize("form", FORMS)
def test_walking_rows_changes_no_bit(form: str, rows: int) -> None:
    cx = lm.Graph()
    FORMS[form](cx.tensor((rows, 77), name="x")).output("y")
    x = np.random.default_rng(rows).standard_normal((rows, 77), np.float32)
    found = walked(cx, {"x": x}, most=8)
    assert len({y.tobytes() for y in found.values()}) == 1
    assert len(found) == (2 if rows < 8 else 4), "at least twice as many as are added up at once"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@pytest.mark.parametrize("rows", mostly_long([8, 2, 5], 1))
def test_few_rows_by_a_matrix_are_kept_beside_each_other(rows: int, dtype: str) -> None:
    """In scratch, while the matrix passes once: the same bits."""
    rng = np.random.default_rng(rows)
    shapes = {"a": (rows, 45), "x": (45, 77), "bias": (77,)}
    given = {name: np.round(rng.standard_normal(s) * 8) / 8 for name, s in shapes.items()}
    cx = lm.Graph()
    a, x, bias = (cx.tensor(array.shape, dtype, name) for name, array in given.items())
    ((a @ x) + bias).abs().output("y")
    found = walked(cx, {k: v.astype(dtype_of(dtype).numpy) for k, v in given.items()}, most=16)
    assert len(found) == 4
    assert len({y.tobytes() for y in found.values()}) == 1
    if dtype != "int32":
        wanted = abs(given["a"] @ given["x"] + given["bias"])
        close = 0.02 if dtype == "bfloat16" else 1e-5
        np.testing.assert_allclose(found[16].astype(np.float64), wanted, close, close)


@pytest.mark.parametrize("rows", mostly_long([4, 1, 8], 1))
@pytest.mark.parametrize(
    "dtype", mostly_long(["int8", "bfloat16", "float32", "uint8", "float16", "int32"], 3)
)
def test_few_rows_by_a_matrix_from_memory(dtype: str, rows: int) -> None:
    """As the rule has them, be they multiplied by dots or not."""
    rng = np.random.default_rng(rows)
    shapes, narrow = ((rows, 2048), (2048, 4096)), dtype_of(dtype)
    x, y = (rng.integers(0, 128, s).astype(narrow.numpy) for s in shapes)
    wide = "float32" if narrow.is_float else "int32"
    cx = lm.Graph()
    a, b = (cx.tensor(array.shape, dtype, name) for name, array in (("a", x), ("b", y)))
    (a.cast(wide) @ b.cast(wide)).output("y")
    found = lm.compile(cx, backend="cpu")(a=x, b=y)["y"]
    wanted = x.astype(np.float64) @ y.astype(np.float64)
    close_each(found, wanted if narrow.is_float else wanted.astype(np.int32))


@pytest.mark.parametrize(("rows", "columns", "whole"), [(8, 4096, True), (8, 64, False)])
def test_few_rows_by_a_large_matrix_walk_it_whole(rows: int, columns: int, whole: bool) -> None:
    cx = lm.Graph()
    (cx.tensor((rows, 4096), name="a") @ cx.tensor((4096, columns), name="x")).output("y")
    (kernel,) = compiled(cx.graph())[1].program.kernels
    assert bool(kernel.scratch) == whole


def test_short_rows_from_memory_are_walked_two_at_once() -> None:
    """Whole ones: only what is left of them has a guard."""
    long = 4 * target.current().l3_bytes // 512
    product = lm.Graph()
    a, x = product.tensor((4, 4, long), name="a"), product.tensor((4, long, 128), name="x")
    (a @ x).output("y")
    sums = lm.Graph()
    sums.tensor((4 * long, 128), name="x").sum(0).output("y")
    for cx in (product, sums):
        first, *_ = compiled(cx.graph())[1].program.kernels
        assert first.scratch
        loads = [s for s in first.statements() if isinstance(s, Load) and s.buffer != "s0"]
        matrix = [s for s in loads if s.offset.symbols() and s.guard is TRUE and s.buffer[0] == "b"]
        assert len(matrix) >= 2


@pytest.mark.parametrize(("queries", "one"), [(1, True), (4, True), (512, True), (4, False)])
def test_few_queries_are_products_of_their_own_where_cores_would_idle(
    queries: int, one: bool
) -> None:
    groups = 2 * target.current().cores if one else 1
    if target.current().cores == 1 and not one:
        pytest.skip("one core has work wherever there is any")
    long = target.current().l3_bytes // (groups * 128 * 4)
    cx = lm.Graph()
    q = cx.tensor((groups, queries, 128), name="q")
    k, v = (cx.tensor((groups, long, 128), name=name) for name in "kv")
    ((q @ k.mT).softmax(-1) @ v).output("y")
    assert (len(compiled(cx.graph())[1].program.kernels) == 1) == one


def test_sums_of_columns_beside_each_other_keep_no_more_than_a_cache_holds() -> None:
    """However many rows three loops may have together."""
    cx = lm.Graph()
    x = cx.tensor((cx.dim("m", 1, 1 << 21), cx.dim("n", 1, 1 << 21)), lm.int32, name="x")
    for k, form in enumerate((lm.Tensor.amax, lm.Tensor.sum, lm.Tensor.amin)):
        form(x[k::4], 0).output(form.__name__)
    (kernel,) = compiled(cx.graph())[1].program.kernels
    assert kernel.scratch
    assert all(buffer.size.interval.at_most(1 << 14) for buffer in kernel.scratch)


@pytest.mark.parametrize("queries", [8, 16, 40])
def test_long_softmaxes_are_summed_by_parts(queries: int) -> None:
    """20,001 shares one after the other are off by 3e-5 of the norm."""
    rng = np.random.default_rng(0)
    shapes = {"q": (2, queries, 8), "k": (2, 20_001, 8), "v": (2, 20_001, 8)}
    given = {n: rng.standard_normal(shape, np.float32) for n, shape in shapes.items()}
    cx = lm.Graph()
    q, k, v = (cx.tensor(shape, name=name) for name, shape in shapes.items())
    ((q @ k.mT).softmax(-1) @ v).output("y")
    found = lm.compile(cx)(given)["y"]
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    scores = wide["q"] @ wide["k"].swapaxes(1, 2)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    want = shares / shares.sum(-1, keepdims=True) @ wide["v"]
    assert np.linalg.norm(found - want) <= 6e-6 * np.linalg.norm(want)
