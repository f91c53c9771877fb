"""Whole programs: what every kernel leaves in memory, native and as interpreted expanded IR."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base import config, dtypes
from luminal.base.dtypes import DType, float32
from luminal.compiler.dump import Dump
from luminal.expand.expand import expand
from luminal.expand.ir import Store, Type
from luminal.hlir.graph import Graph
from luminal.hlir.ops import OPS
from luminal.nn import functional
from tests.backends import op_table
from tests.close import close
from tests.expand.launches import compared
from tests.fuzz.cpu_run import compiled, cut_small, run
from tests.fuzz.graphs import random_case
from tests.long_share import long_rows, mostly_long
from tests.machines import NARROWER, needs_wide

GROUPS = {group.__name__: group for group in op_table.GROUPS}
FEW = ("pointwise", "loops")


def check_table(dtype: DType, group: str, lanes: int = 1) -> None:
    if group == "reductions" and dtype not in OPS["Sum"].takes:
        pytest.skip(f"nothing is reduced in {dtype}")
    table = op_table.Table()
    GROUPS[group](table, dtype)
    with compared(lanes) as launches:
        compiled(Graph(tuple(table.outputs)))[0](table.inputs)
    assert launches.count


def check_seeds(seeds: range, lanes: int = 1) -> None:
    for seed in seeds:
        case = random_case(seed)
        try:
            with compared(lanes):
                run(compiled(case.graph)[0], case, 1, None)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("group", FEW)
def test_a_sample_of_the_op_table(group: str) -> None:
    check_table(dtypes.float32, group)


def test_bfloat16_is_converted_with_the_same_bits() -> None:
    check_table(dtypes.bfloat16, "casts")


def test_counts_are_added_inside_one_branch() -> None:
    graph = lm.Graph()
    graph.tensor((100_000,), "int64", "i").bincount(size=1000).output("counts")
    text = Dump(graph.graph(), registry.find("cpu")).text("expanded")
    assert re.search(r"if %\d+:\n +%(\d+): i64 = load .*\n +%(\d+): i64 = add %\1 1\n +store", text)
    assert not re.search(r": i64 = load .* if ", text)


def softmax() -> lm.Graph:
    graph = lm.Graph()
    graph.tensor((64, 1000), name="x").softmax(-1).output("y")
    return graph


@pytest.mark.parametrize("make", [softmax, lambda: convolution()])
def test_nothing_is_computed_that_nothing_uses(make: Callable[[], lm.Graph]) -> None:
    """Such as the greatest of floats where integers tell of it, or a place but for its parts."""
    dump = Dump(make().graph(), registry.find("cpu"))
    for ir, made in (
        ("expanded", r"(%\d+): \w+ = (?!lane)"),
        ("llvm", r"(%t\d+) = (?!call (?!.*@llvm))"),
    ):
        for kernel in re.split(r"\n(?=kernel|define)", dump.text(ir)):
            names = re.findall(r"%t?\d+", kernel)
            counted = Counter(names)
            assert not [name for name in re.findall(made, kernel) if counted[name] == 1]


def convolution(padding: int = 1, stride: int = 1) -> lm.Graph:
    graph = lm.Graph()
    x, w = graph.tensor((1, 3, 18, 21), name="x"), graph.weight((16, 3, 3, 3), name="w")
    functional.conv2d(x, w, padding=padding, stride=stride).output("y")
    return graph


@needs_wide
def test_masks_of_a_convolution_are_asked_outside_of_the_loop_that_multiplies() -> None:
    dump = Dump(convolution().graph(), registry.find("cpu"))
    text = dump.text("expanded")
    kernel = text[text.rindex("kernel()") :]
    assert re.search(r"= load b\d.* if ", kernel)
    llvm = dump.text("llvm")
    blocks = re.split(r"\n(?=\S+:)", llvm[llvm.rindex("@kernel") :])
    (loop,) = [block for block in blocks if "llvm.fma" in block]  # in one version
    assert " select " not in loop


@pytest.mark.parametrize(("padding", "stride"), long_rows([(1, 1), (2, 1), (1, 2)], [(1, 2)]))
def test_convolutions_with_edges(padding: int, stride: int) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, 3, 18, 21), (16, 3, 3, 3)))
    with compared() as launches:
        found = lm.compile(convolution(padding, stride))({"x": x, "w": w})["y"]
    assert launches.count
    wide = np.pad(x[0].astype(np.float64), [(0, 0), (padding,) * 2, (padding,) * 2])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))
    expected = np.einsum("cyxij,ocij->oyx", windows[:, ::stride, ::stride], w)
    # 27 terms in float32 against float64; what cancels keeps 1e-5
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_a_depthwise_convolution_whose_rows_are_whole_tiles() -> None:
    graph, width = lm.Graph(), 64
    x, w = graph.tensor((1, 2, 9, width), name="x"), graph.weight((2, 1, 3, 3), name="w")
    functional.conv2d(x, w, padding=1, groups=2).output("y")
    rng = np.random.default_rng(0)
    given, weight = (rng.standard_normal(s, np.float32) for s in ((1, 2, 9, width), (2, 1, 3, 3)))
    with compared() as launches:
        found = lm.compile(graph)({"x": given, "w": weight})["y"]
    assert launches.count
    wide = np.pad(given[0].astype(np.float64), [(0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))
    expected = np.einsum("cyxij,cij->cyx", windows, weight[:, 0])
    close(found[0], expected)


RAGGED = 20_011  # no chunk size divides it


def test_a_ragged_sum_has_masks_in_its_tail_alone() -> None:
    graph = lm.Graph()
    graph.tensor((RAGGED,), name="x").sum().output("y")
    text = Dump(graph.graph(), registry.find("cpu")).text("expanded")
    kernel = next(k for k in text.split("kernel()") if f"[{RAGGED}]" in k)
    loops = [part for part in re.split(r"\n +for ", kernel)[1:] if "= load b0" in part]
    masks = [len(re.findall(r"= load b0.* if ", part)) for part in loops]
    assert len(masks) == 2
    assert (masks[0], masks[1]) == (0, 1)


def test_a_ragged_strip_is_one_step_of_which_one_vector_is_masked() -> None:
    graph = lm.Graph()
    a = graph.tensor((33, 12), dtypes.bfloat16, "a")
    b = graph.tensor((12, 85), dtypes.bfloat16, "b")
    (a @ b).output("y")
    text = Dump(graph.graph(), registry.find("cpu")).text("expanded")
    strips = re.findall(r"= load s0.*", text)
    masked = [line for line in strips if " if " in line]
    assert len(strips) > len(masked) > 0
    assert len(strips) % len(masked) == 0
    rng = np.random.default_rng(0)
    given = {"a": rng.standard_normal((33, 12)), "b": rng.standard_normal((12, 85))}
    given["b"][3, -1] = np.nan
    narrow = {name: array.astype(dtypes.bfloat16.numpy) for name, array in given.items()}
    with compared() as launches:
        found = lm.compile(graph)(narrow)["y"].astype(np.float64)
    assert launches.count
    expected = narrow["a"].astype(np.float64) @ narrow["b"].astype(np.float64)
    # bfloat16's last digit, 2**-8, of sums of 12 terms
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=0.05)


@pytest.mark.parametrize("columns", [1333, 1345, 97])
def test_ragged_columns_of_packed_strips(columns: int) -> None:
    graph = lm.Graph()
    a, b = graph.tensor((300, 210), name="a"), graph.tensor((210, columns), name="b")
    (a @ b).output("y")
    rng = np.random.default_rng(0)
    given = {"a": rng.standard_normal((300, 210)), "b": rng.standard_normal((210, columns))}
    given["b"][5, -1], given["b"][7, columns - 16] = np.nan, np.inf
    found = lm.compile(graph)({k: v.astype(np.float32) for k, v in given.items()})["y"]
    close(found, given["a"] @ given["b"], ulp=8)


@pytest.mark.parametrize("is_dynamic", mostly_long([True, False], 1))
def test_ragged_reductions(is_dynamic: bool) -> None:
    graph = lm.Graph()
    x = graph.tensor((graph.dim("n", 1, 1 << 18) if is_dynamic else RAGGED,), name="x")
    x.sum().output("sum")
    x.amax().output("max")
    given = np.random.default_rng(0).standard_normal(RAGGED, np.float32)
    given[-1] = 9  # the last position of the last chunk counts
    with compared() as launches:
        executable = lm.compile(graph)
        found = executable({"x": given})
    assert launches.count
    close(found["sum"], given.astype(np.float64).sum())
    assert found["max"] == 9
    given[RAGGED // 2] = np.nan
    assert np.isnan(executable({"x": given})["max"])


@pytest.mark.long
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_the_op_table(dtype: DType, group: str) -> None:
    check_table(dtype, group)


def test_random_graphs() -> None:
    check_seeds(range(4))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(10))
def test_many_random_graphs(chunk: int) -> None:
    check_seeds(range(20 * chunk, 20 * chunk + 20))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(5))
def test_random_graphs_in_small_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    check_seeds(range(2000 + 20 * chunk, 2020 + 20 * chunk))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(5))
def test_random_graphs_of_a_narrow_machine(chunk: int) -> None:
    with config.override(LUMINAL_TARGET=NARROWER):
        check_seeds(range(1000 + 20 * chunk, 1020 + 20 * chunk))


@pytest.mark.parametrize("apart", [False, True])
def test_elements_a_step_apart_have_one_address(apart: bool) -> None:
    """On a machine that stores them one by one, as most do."""
    cx = lm.Graph()
    x, g = (cx.tensor(shape, name=name) for shape, name in (((4, 32, 32), "x"), ((4, 16, 16), "g")))
    (lm.grad((x.max_pool2d(2) * g).sum(), x)).output("dx")
    kernels = compiled(cx.graph())[1].program.kernels
    has = frozenset((("scatter", Type(float32, 8)),)) if apart else frozenset()
    stores = [
        each
        for kernel in kernels
        for each in expand(kernel, 8, has).statements()
        if isinstance(each, Store) and each.mask is None
    ]
    assert any(each.address.type.lanes > 1 for each in stores) == apart
    rising = np.arange(4096, dtype=np.float32).reshape(4, 32, 32)
    found = lm.compile(cx)(x=rising, g=np.ones((4, 16, 16), np.float32))["dx"]
    row, column = np.indices((32, 32)) % 2  # the last of each window is the greatest
    np.testing.assert_array_equal(found, np.broadcast_to(row * column, found.shape))
