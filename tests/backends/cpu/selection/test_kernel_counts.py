"""What becomes one kernel, and States that swap, shift and grow: counts and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu.backend import current
from luminal.backends.reference import evaluate_with_bounds
from luminal.compiler.compile import lower_by_stages
from luminal.hlir.graph import Graph
from luminal.models.llama import Llama, LlamaConfig
from luminal.program.launch_list import barriers
from luminal.runtime.executable import Executable
from tests.long_share import mostly_long
from tests.numerics.tolerance import compare

Array = np.ndarray[Any, Any]
Fn = Callable[..., Any]


def built(fn: Fn, *shapes: tuple[int, ...]) -> tuple[Executable, Graph, dict[str, Array]]:
    cx = lm.Graph()
    tensors = [cx.tensor(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    fn(*tensors).output("y")
    rng = np.random.default_rng(0)
    given = {f"x{k}": rng.normal(size=s).astype(np.float32) for k, s in enumerate(shapes)}
    return lm.compile(cx, backend="cpu"), cx.graph(), given


def kernels(fn: Fn, *shapes: tuple[int, ...]) -> int:
    """How many kernels a run of `fn` launches; its result is compared with the reference."""
    exe, graph, given = built(fn, *shapes)
    compare(exe(given)["y"], *evaluate_with_bounds(graph, given).outputs["y"])
    return len(exe.report().kernels)


ROW_KERNELS: dict[str, Fn] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "layer_norm": lambda x: x.layer_norm(-1),
    "rms_norm": lambda x: x.rms_norm(-1),
    "var": lambda x: x.var(-1, correction=0),
    "softmax of columns": lambda x: x.softmax(0),
}


@pytest.mark.parametrize("name", ROW_KERNELS)
@pytest.mark.parametrize(
    "shape", mostly_long([(300, 1000), (4, 3, 50), (8, 64), (1, 7), (5, 1)], 2), ids=str
)
def test_row_functions_are_one_kernel(name: str, shape: tuple[int, ...]) -> None:
    assert kernels(ROW_KERNELS[name], shape) == 1


@pytest.mark.parametrize("sizes", [(33, 64, 48), (96, 200, 136)])
def test_matmul_bias_gelu_is_one_kernel(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    assert kernels(lambda x, w, b: (x @ w + b).gelu(), (m, k), (k, n), (n,)) == 1


def test_convolution_bias_relu_is_one_kernel() -> None:
    for padding in (0, 1):
        assert (
            kernels(
                lambda x, w, b: x.conv2d(w, b, padding=padding).relu(),  # noqa: B023
                (2, 3, 16, 16),
                (8, 3, 3, 3),
                (8,),
            )
            == 1
        )


def test_swiglu_is_at_most_two_kernels_where_registers_are_many() -> None:
    def swiglu(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return ((x @ gate).silu() * (x @ up)) @ down

    matrices = (64, 96), (64, 96), (96, 64)
    few = current().target.registers < 32  # for tiles of sums of two products
    assert kernels(swiglu, (33, 64), *matrices) <= 2 + few
    assert kernels(swiglu, (1, 64), *matrices) <= 2


def test_a_matrix_plus_its_transpose_is_one_kernel() -> None:
    assert kernels(lambda x: x + x.T, (33, 33)) == 1
    assert kernels(lambda x: x @ x.T, (33, 17)) == 1


# --- States ---------------------------------------------------------------------------------------


def test_two_states_swap_in_every_run() -> None:
    a = lm.State((3,), init=np.float32([1, 2, 3]), name="a")
    b = lm.State((3,), init=np.float32([4, 5, 6]), name="b")
    cx = lm.Graph()
    x, y = cx.read(a), cx.read(b)
    cx.assign(a, y)
    cx.assign(b, x)
    (x - y).output("d")
    exe = lm.compile(cx, backend="cpu")
    for run in range(4):
        sign = 3 if run % 2 else -3
        np.testing.assert_array_equal(exe({})["d"], np.float32([sign] * 3))
    np.testing.assert_array_equal(a.numpy(), np.float32([1, 2, 3]))
    exe({})
    np.testing.assert_array_equal(a.numpy(), np.float32([4, 5, 6]))


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_a_state_flips(n: int) -> None:
    start = np.arange(n, dtype=np.float32)
    state = lm.State((n,), init=start, name="s")
    cx = lm.Graph()
    old = cx.read(state)
    new = old.flip(0)
    cx.assign(state, new)
    old.output("old")
    new.output("new")
    exe = lm.compile(cx, backend="cpu")
    for _ in range(3):
        result = exe({})
        np.testing.assert_array_equal(result["new"], result["old"][::-1])
        np.testing.assert_array_equal(state.numpy(), result["new"])


def test_a_state_shifts_by_one() -> None:
    state = lm.State((5,), init=np.arange(5, dtype=np.int64), dtype=lm.int64, name="s")
    cx = lm.Graph()
    new = lm.concat([cx.read(state)[1:], cx.tensor((1,), lm.int64, name="next")], 0)
    cx.assign(state, new)
    exe = lm.compile(cx, backend="cpu")
    for k in range(5, 9):
        exe({"next": np.int64([k])})
        np.testing.assert_array_equal(state.numpy(), np.arange(k - 4, k + 1))


def test_a_row_is_written_where_the_old_rows_are_still_read() -> None:
    cache = lm.State((6, 2), init=np.arange(12, dtype=np.float32).reshape(6, 2), name="cache")
    cx = lm.Graph()
    at = cx.dim("at", 0, 5)
    old = cx.read(cache)
    new = old.slice_scatter(cx.tensor((1, 2), name="row"), 0, at)
    cx.assign(cache, new)
    (new - old.flip(0)).output("y")
    exe = lm.compile(cx, backend="cpu")
    expected = cache.numpy()
    for k in (0, 5, 3):
        before = expected.copy()
        expected[k] = [100 + k, 200]
        result = exe({"row": np.float32([[100 + k, 200]])}, dims={"at": k})
        np.testing.assert_array_equal(result["y"], expected - before[::-1])
        np.testing.assert_array_equal(cache.numpy(), expected)


def test_products_of_one_row_run_side_by_side() -> None:
    """q, k and v wait for one norm and nothing for k alone: 8 barriers a layer."""
    counts = []
    for layers in (1, 2):
        model = Llama(LlamaConfig(64, 128, layers, 4, 2, 16, 96, 64))
        caches, cx = model.make_caches(32), lm.Graph()
        past, ids = cx.dim("past", 0, 31), cx.tensor((1,), lm.int32, "ids")
        model(ids, caches, past).output("logits")
        program = lower_by_stages(cx.graph(), current()).program
        counts.append(sum(barriers(program, program.launches)))
    assert counts[1] - counts[0] == 8
