"""Products by what stands in for cuBLASLt and hipBLASLt, over the stand-ins of CUDA and HIP: run by
test_libraries.py of either in a process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from bench.gpu import command, worker
from luminal.backends import lt, registry
from luminal.backends.backend import Backend
from luminal.backends.library_calls import ALGORITHMS
from luminal.base import config
from luminal.base.dtypes import bfloat16, float16, float32, float64, int8, int32
from luminal.base.errors import DeviceError
from luminal.base.numerics import Numerics
from luminal.hlir.library_product import LibraryProduct
from luminal.program.launch_list import Program, kernel_launches
from luminal.runtime.driver import DevicePointer
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.search.genome import Genome, called_by
from luminal.search.space import Space
from tests.backends.c_family.library_products import (
    EIGHTHS,
    PRODUCTS,
    Product,
    check,
    count_of_calls,
    executable,
    random_product,
)
from tests.close import close
from tests.long_share import long_but
from tests.simt import stand_in
from tests.unit.search.invented_machine import Runner, make

IS_HIP = os.environ.get("LIBRARY_VENDOR") == registry.ROCM
DRIVER = stand_in.HIP if IS_HIP else stand_in.CUDA
NAME = "hipblaslt" if IS_HIP else "cublaslt"
LIBRARY = ctypes.CDLL(stand_in.LT[DRIVER])
INVALID, UNSUPPORTED = ("status 3", "status 7") if IS_HIP else ("INVALID_VALUE", "NOT_SUPPORTED")
STEP = 1 << 16
"""The bytes of workspace by which each algorithm asks for more than the one before it."""
cuda_alone = pytest.mark.skipif(IS_HIP, reason="hipBLASLt, or HIP, has nothing of the kind")


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    stands_in = stand_in.hiprtc_stands_in if IS_HIP else stand_in.nvrtc_stands_in
    with stands_in(monkeypatch, tmp_path, LUMINAL_POISON=True):
        monkeypatch.setattr(lt, "WORKSPACE", 1 << 20)
        LIBRARY.stand_in_lt_offers(8, ctypes.c_size_t(STEP))
        forget_plans()
        yield
        gc.collect()


def forget_plans() -> None:
    """Has the driver open the library anew."""
    backend().memory.driver._products = None


def asked(name: str) -> int:
    return int(LIBRARY.stand_in_lt_calls(name.encode()))


def backend() -> Any:
    return registry.find(registry.ROCM if IS_HIP else registry.CUDA)


def run(product: Product, s: int = 5, runs: int = 3, algorithm: int = 0) -> None:
    """Three runs of one program: its list, and a recording of it."""
    made: Backend = backend()
    space, candidate = product.called(made, NAME, algorithm)
    assert count_of_calls(candidate) == 1, product.name
    exe, rng = executable(space, candidate, made), np.random.default_rng(s)
    before = asked("done")
    for _ in range(runs):
        given = product.given(s, rng)
        check(np.asarray(exe(given)["y"]), product, given)
    assert asked("done") - before == runs


NAMED = {product.name: product for product in (*PRODUCTS, *(() if IS_HIP else EIGHTHS))}


@pytest.mark.parametrize("name", long_but(NAMED, ("linear", "parts of both", "bytes")))
def test_products(name: str) -> None:
    run(NAMED[name])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_random_products(seed: int) -> None:
    run(random_product(random.Random(seed)), runs=1)


@pytest.mark.long
def test_rows_that_there_are_none_of_are_no_call() -> None:
    cx = lm.Graph()
    x, w = cx.tensor((cx.dim("s", 0, 8), 12), name="x"), cx.tensor((12, 7), name="w")
    (x @ w).output("y")
    exe, _ = all_called(cx)
    w_value = np.ones((12, 7), np.float32)
    for rows in (0, 2, 0):
        before = asked("product")
        y = exe(x=np.ones((rows, 12), np.float32), w=w_value)["y"]
        assert np.asarray(y).tolist() == [[12.0] * 7] * rows
        assert (asked("product") > before) == (rows > 0)


def all_called(cx: lm.Graph, **settings: Any) -> tuple[Executable, int]:
    """The program of a graph with all kernels by the library that it can compute, and how many
    launches these are.
    """
    made: Backend = backend()
    space = Space(cx.graph(), made)
    wished = {
        origin.name: called_by(NAME)
        for origin in space.decode(Genome()).stages.origins
        if NAME in made.library_calls(origin.steps[0])
    }
    candidate = space.decode(Genome().with_tuned(wished))
    program = candidate.program
    calls = sum(
        program.kernels[launch.kernel].call is not None
        for launch in kernel_launches((*program.prologue, *program.launches))
    )
    assert calls
    with config.override(**settings):
        return executable(space, candidate, made), calls


def layers(count: int) -> tuple[lm.Graph, dict[str, Any]]:
    """Layers of a norm, products, a scan and a residual sum, of rows of a dim."""
    cx, rng = lm.Graph(), np.random.default_rng(3)
    y = cx.tensor((cx.dim("s", 1, 16), 16), name="x")
    given = {"x": rng.standard_normal((5, 16), np.float32)}
    for layer in range(count):
        names = f"up{layer}", f"down{layer}"
        up, down = (cx.tensor((16, 16), name=name) for name in names)
        given |= {name: rng.standard_normal((16, 16), np.float32) * 0.3 for name in names}
        hidden = (y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt()) @ up
        y = y + hidden.cumsum(-1).softmax(-1) @ down
    y.output("y")
    return cx, given


def expected(cx: lm.Graph, given: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(lm.compile(cx, "reference")(given)["y"])


@pytest.mark.long
def test_dims_change_and_each_extents_ask_for_an_algorithm_once() -> None:
    product = NAMED["dynamic rows"]
    made = backend()
    space, candidate = product.called(made, NAME)
    exe, rng = executable(space, candidate, made), np.random.default_rng(1)
    before = asked("heuristic")
    for s in (4, 9, 4, 9, 4, 9, 1):
        given = product.given(s, rng)
        check(np.asarray(exe(given)["y"]), product, given)
    assert asked("heuristic") - before == 3


def test_a_run_with_calls_is_one_graph() -> None:
    cx, given = layers(2)
    (exe, calls), wanted = all_called(cx), expected(cx, given)
    count = ctypes.CDLL(DRIVER).stand_in_calls
    for number in range(5):
        graphs, launches, done = count(b"graph"), count(b"launch"), asked("done")
        product = asked("product")
        close(exe(given)["y"], wanted, ulp=64)
        assert asked("done") - done == calls
        if number > 2:
            assert (count(b"graph") - graphs, count(b"launch") - launches) == (1, 0)
            assert asked("product") == product


@pytest.mark.long
@cuda_alone
def test_a_call_ends_a_persistent_kernel() -> None:
    """What is before it and what is behind it are kernels of their own, with the list's bits."""
    cx, given = layers(3)
    exe, calls = all_called(cx)
    listed = np.asarray(exe(given)["y"])
    count = ctypes.CDLL(DRIVER).stand_in_calls
    together, _ = all_called(cx, LUMINAL_DISPATCH="one")
    before = count(b"cooperative")
    for _ in range(3):
        done = asked("done")
        assert np.asarray(together(given)["y"]).tobytes() == listed.tobytes()
        assert asked("done") - done == calls
    assert count(b"cooperative") > before


@pytest.mark.long
def test_calls_in_the_body_of_a_loop() -> None:
    cx, rng = lm.Graph(), np.random.default_rng(5)
    x, w = cx.tensor((4, 8), name="x"), cx.tensor((6, 8, 8), name="w")
    y, _ = lm.scan(lambda carried, each: (carried @ each, carried), x, w)
    y.output("y")
    given = {"x": rng.standard_normal((4, 8), np.float32),
             "w": rng.standard_normal((6, 8, 8), np.float32) * 0.5}  # fmt: skip
    (exe, calls), wanted, before = all_called(cx), expected(cx, given), asked("done")
    assert calls == 1
    for _ in range(3):
        close(exe(given)["y"], wanted, ulp=64)
    assert asked("done") - before == 18


@pytest.mark.long
def test_what_is_derived_of_weights_by_a_call() -> None:
    cx, rng = lm.Graph(), np.random.default_rng(6)
    x = cx.tensor((3, 8), name="x")
    a, b = (cx.weight((8, 8), name=name) for name in "ab")
    arrays = {name: rng.standard_normal((8, 8), np.float32) for name in "ab"}
    (x.exp() * (a @ b)[:3]).output("y")
    for weight, name in ((a, "a"), (b, "b")):
        weight.set(arrays[name])
    before = asked("done")
    exe, _ = all_called(cx)
    given = {"x": rng.standard_normal((3, 8), np.float32)}
    y = np.asarray(exe(given)["y"])
    close(y, np.exp(given["x"]) * (arrays["a"] @ arrays["b"])[:3], ulp=16)
    assert asked("done") - before == 1


@pytest.mark.long
@cuda_alone
def test_narrowed_factors() -> None:
    product = Product("f32", lambda a, b: a @ b, ((16, 32), (32, 16)), numerics=Numerics.RELAXED)
    made, given = backend(), product.given(1, np.random.default_rng(2))
    space, candidate = product.called(made, "cublaslt-tf32")
    assert count_of_calls(candidate) == 1
    got = np.asarray(executable(space, candidate, made)(given)["y"])
    wanted = given["x0"].astype(np.float64) @ given["x1"].astype(np.float64)
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    assert 1e-5 < error < 2**-9


@pytest.mark.long
def test_fewer_algorithms_than_are_asked_for() -> None:
    LIBRARY.stand_in_lt_offers(3, ctypes.c_size_t(STEP))
    before = asked("algorithm 2")
    run(PRODUCTS[0], runs=1, algorithm=7)
    assert asked("algorithm 2") > before


@pytest.mark.long
def test_every_algorithm() -> None:
    for algorithm in range(ALGORITHMS):
        before = asked(f"algorithm {algorithm}")
        run(PRODUCTS[0], runs=1, algorithm=algorithm)
        assert asked(f"algorithm {algorithm}") > before


@pytest.mark.long
def test_no_algorithm_is_an_error_that_names_the_product() -> None:
    LIBRARY.stand_in_lt_offers(0, ctypes.c_size_t(1))
    with pytest.raises(DeviceError, match=rf"f32 \* f32 in f32 -> f32, Geometry.*{UNSUPPORTED}"):
        run(PRODUCTS[0], runs=1)


@pytest.mark.long
def test_records_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lt, "PLANS", 2)
    library, memory = Memory(), 0
    before = asked("records"), asked("destroyed")
    for m in range(4, 12):
        library.multiply(m=m)
        memory = asked("records") - before[0] - (asked("destroyed") - before[1])
    assert memory == 2 * 4  # the operation and three layouts of either
    del library


class Memory:
    """The library itself, with matrices of f32 in the device's memory."""

    def __init__(self) -> None:
        self.driver = backend().memory.driver
        self.library = self.driver.opened()
        self.block = self.driver.allocate(1 << 16)
        self.workspace = self.driver.allocate(2 * lt.WORKSPACE)

    def address(self, block: Any) -> int:
        return int(self.driver.address(DevicePointer(block)))

    def multiply(
        self,
        product: LibraryProduct | None = None,
        m: int = 4,
        n: int = 8,
        k: int = 16,
        offset: int = 0,
        workspace: int = 0,
        stream: int | None = None,
    ) -> None:
        """A product of whole matrices by rows and, of b, by columns."""
        product = product or LibraryProduct(NAME, 0, *[float32] * 4, False)
        numbers = (1, m, n, k, 0, 0, k, 1, 0, 0, 1, k, 0, 0, n, 1, 0)
        start = self.address(self.block) + offset
        places = (start, start + (1 << 14), start + (1 << 15))
        queue = self.driver.stream_number if stream is None else stream
        at = self.address(self.workspace) + workspace
        self.library.queue(product, numbers, places, at, queue)


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtypes", "is_listed"),
    [
        ((float32, float32, float32, float32), True),
        ((bfloat16, bfloat16, float32, float32), True),
        ((int8, int8, int32, int32), True),
        ((float64, float64, float64, float64), True),
        ((float32, float32, float32, bfloat16), False),
        ((bfloat16, float16, float32, float32), False),
        ((float64, float64, float64, float32), False),
        ((int8, int8, float32, float32), False),
    ],
    ids=str,
)
def test_the_vendors_table_of_dtypes(dtypes: Any, is_listed: bool) -> None:
    product = LibraryProduct(NAME, 0, *dtypes, False)
    if is_listed:
        Memory().multiply(product)
        return
    with pytest.raises(DeviceError, match=UNSUPPORTED):
        Memory().multiply(product)


@pytest.mark.long
def test_the_stand_in_refuses_what_the_library_refuses() -> None:
    memory = Memory()
    in_bytes = LibraryProduct(NAME, 0, int8, int8, int32, int32, False)
    memory.multiply(in_bytes, k=16)
    with pytest.raises(DeviceError, match=f"GetHeuristic of .*{UNSUPPORTED}"):
        memory.multiply(in_bytes, k=18)
    with pytest.raises(DeviceError, match=f"Matmul: .*{INVALID}"):
        memory.multiply(in_bytes, offset=2)
    with pytest.raises(DeviceError, match=f"Matmul: .*{INVALID}"):
        memory.multiply(workspace=8)
    layout, short = ctypes.c_void_p(), ctypes.c_int16(1)
    extents = ctypes.c_uint64(4), ctypes.c_uint64(4), ctypes.c_int64(4)
    prefix = memory.library._interface.prefix
    getattr(LIBRARY, f"{prefix}MatrixLayoutCreate")(ctypes.byref(layout), 0, *extents)
    put = getattr(LIBRARY, f"{prefix}MatrixLayoutSetAttribute")
    assert put(layout, 1, ctypes.byref(short), ctypes.c_size_t(2))


@pytest.mark.long
def test_a_workspace_is_no_others_while_a_call_is_under_way() -> None:
    memory = Memory()
    other = memory.driver.queues().queue()
    seventh = LibraryProduct(NAME, 7, *[float32] * 4, False)
    before = asked("shared workspace")
    memory.multiply(seventh)
    memory.multiply(seventh, stream=other, workspace=lt.WORKSPACE)
    assert asked("shared workspace") == before
    memory.driver.wait()
    memory.multiply(seventh)
    memory.multiply(seventh, stream=other)
    assert asked("shared workspace") == before + 1


# Faults are planted into what is told to the library, one at a time: each is found by what the
# program computes, or by what the library refuses.
def plant(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has calls made with a fault from now on."""
    turn, layout, queue = lt._turn, lt.Lt._layout, lt.Lt.queue

    def turned(along_k: bool, k: int, others: int, step: int, step_k: int) -> lt.Turn:
        made = turn(along_k, k, others, step, step_k)
        if fault == "leading dimension":
            return made._replace(leading=max(made.columns, made.rows))
        return made._replace(is_turned=not made.is_turned)

    def laid(self: Any, dtype: Any, one: Any, batch: int, step: int) -> Any:
        return layout(self, dtype, one, batch, step + 1 if batch > 1 else step)

    def queued(self: Any, product: Any, numbers: Any, at: Any, workspace: int, stream: int) -> None:
        if fault == "stream":
            stream = 0
        if fault == "workspace":
            workspace += 64
        queue(self, product, numbers, at, workspace, stream)

    match fault:
        case "leading dimension" | "transposition":
            monkeypatch.setattr(lt, "_turn", turned)
        case "batch stride":
            monkeypatch.setattr(lt.Lt, "_layout", laid)
        case "alpha":
            monkeypatch.setattr(lt, "SCALES", dict.fromkeys(lt.SCALES, ctypes.c_double))
        case "alignment":
            monkeypatch.setattr(lt, "_alignment", lambda address: lt.MOST_ALIGNED)
        case "stream" | "workspace":
            monkeypatch.setattr(lt.Lt, "queue", queued)


FAULTS = {
    "leading dimension": "part of the sum",
    "transposition": "nn",
    "batch stride": "batched",
    "alpha": "nn",
    "alignment": "part of the columns",
    "stream": "nn",
    "workspace": "nn",
}
"""What is planted, and the product that shows it."""


@pytest.mark.long
@pytest.mark.parametrize("fault", [f for f in FAULTS if not (IS_HIP and f == "alignment")])
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    product = NAMED[FAULTS[fault]]
    run(product)
    plant(fault, monkeypatch)
    forget_plans()  # they were made without the fault
    with pytest.raises((AssertionError, DeviceError)):
        run(product)


@pytest.mark.long
def test_a_workspace_below_what_the_algorithm_needs_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, product = Memory(), LibraryProduct(NAME, 7, *[float32] * 4, False)
    memory.multiply(product)
    monkeypatch.setattr(lt, "WORKSPACE", STEP)
    with pytest.raises(DeviceError, match=INVALID):
        memory.multiply(product)


class Clock(Runner):
    """Times programs on the stand-in, each launch by the device's own marks."""

    def __init__(self, graph: lm.Graph) -> None:
        super().__init__(self.of_run)
        self.graph, self.made = graph.graph(), backend()
        rng = np.random.default_rng(7)
        self.given = {name: rng.standard_normal((16, 16), np.float32) for name in "xw"}
        self.known: dict[int, list[float]] = {}

    def of_run(self, program: Program) -> float:
        return sum(self.of_launches(program))

    def of_launches(self, program: Program) -> list[float]:
        if id(program) not in self.known:
            exe = Executable(self.graph, (Variant({}, self.made.runner(program)),))
            rows = exe.profile(self.given, runs=2).kernels
            self.known[id(program)] = [row.seconds or 0.0 for row in rows]
        return self.known[id(program)]

    def profile(self, number: int, slow: float) -> list[float]:
        return self.of_launches(self.programs[number])


@pytest.mark.long
@pytest.mark.parametrize("is_slow", [False, True])
def test_a_search_takes_the_library_where_it_is_faster(is_slow: bool, tmp_path: Path) -> None:
    """The third algorithm alone is fast, or none is; what either took is in the report's rows."""
    cx = lm.Graph()
    x, w = cx.tensor((16, 16), name="x"), cx.tensor((16, 16), name="w")
    (x @ w).output("y")
    for number in range(ALGORITHMS):
        LIBRARY.stand_in_lt_slow(number, 150 if is_slow or number != 2 else 0)
    try:
        strategy = make(cx, tmp_path, Clock(cx), backend=backend(), max_candidates=24)
        strategy.run()
    finally:
        for number in range(ALGORITHMS):
            LIBRARY.stand_in_lt_slow(number, 0)
    best = strategy.best.candidate
    assert count_of_calls(best) == (not is_slow)
    if not is_slow:
        ((_, knobs),) = best.genome.knobs.items()
        assert knobs == (("algorithm", 2), ("call", NAME))
    (row,) = strategy.measurements.timed.rows(best)
    assert (row.label, row.library) == ("Contract", NAME)
    assert (row.seconds > row.own_seconds) == is_slow


@pytest.mark.long
@cuda_alone
def test_the_command_for_a_card_has_the_library_beside_us() -> None:
    before = asked("done")
    found = worker.row("cuda", "product 1024 f32", 0.0, True, False)
    assert {*found["us"]} == {"ours", "library"}
    assert asked("done") > before
    shown = [*command.table({"facts": {"small": True}, "product": found})]
    assert shown[0][3:5] == ("library", "of it")
    assert [len(line) for line in shown] == [len(shown[0])] * 2
    assert shown[1][3]
