"""Programs as one persistent kernel, over the stand-in of CUDA's driver or of HIP's: run by
test_together.py in processes of their own, for the device that DEVICE names. They give the bits
that launch lists give, whatever groups run ahead, and planted faults are found.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.cuda import nvrtc
from luminal.backends.hip import hiprtc
from luminal.base import config
from luminal.base.errors import CompileError, DeviceError
from luminal.runtime import together
from luminal.runtime.executable import Executable
from luminal.runtime.report import Report, TaskTime
from luminal.runtime.trace import read
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case, random_case
from tests.long_share import mostly_long
from tests.simt import stand_in

DEVICE = os.environ.get("DEVICE", "cuda")
DRIVER = ctypes.CDLL({"cuda": stand_in.CUDA, "hip": stand_in.HIP}[DEVICE])
COMPILER: Any = {"cuda": nvrtc, "hip": hiprtc}[DEVICE]
STANDS_IN = {"cuda": stand_in.nvrtc_stands_in, "hip": stand_in.hiprtc_stands_in}[DEVICE]
HOLDS = ((1, 0), (2, 1), (2, 2), (3, 0))
"""Groups that a unit holds, and the order in which those of both units take turns."""


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with STANDS_IN(monkeypatch, tmp_path, LUMINAL_POISON=None):
        yield


def calls(name: str) -> int:
    return int(DRIVER.stand_in_calls(name.encode()))


def blocks(layers: int = 2) -> tuple[lm.Graph, dict[str, Any]]:
    """Layers of norm, gated products and a residual sum, of rows of a dim."""
    cx, rng = lm.Graph(), np.random.default_rng(3)
    x = cx.tensor((cx.dim("s", 1, 16), 64), name="x")
    y, given = x, {"x": rng.standard_normal((5, 64), np.float32)}
    for layer in range(layers):
        names = f"up{layer}", f"down{layer}"
        up, down = (cx.tensor((64, 64), name=name) for name in names)
        given |= {name: rng.standard_normal((64, 64), np.float32) * 0.1 for name in names}
        normal = y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        y = y + (normal @ up).silu() @ down
    y.softmax(-1).output("y")
    return cx, given


def states() -> tuple[lm.Graph, dict[str, Any]]:
    """A State that is read, grown and read again, and what is scattered into another."""
    cx = lm.Graph()
    x = cx.tensor((8, 32), name="x")
    total, kept = lm.State((32,), name="total"), lm.State((8, 32), name="kept")
    read, old = cx.read(total), cx.read(kept)
    y = (x + read).cumsum(0) + old
    cx.assign(total, read + x.amax(0))
    cx.assign(kept, y.flip(0))
    y.softmax(-1).output("y")
    return cx, {"x": np.random.default_rng(4).standard_normal((8, 32), np.float32)}


def sums() -> tuple[lm.Graph, dict[str, Any]]:
    """A training step: gradients of a small network, and Parameters that change."""
    from luminal import nn, optim

    cx, rng = lm.Graph(), np.random.default_rng(5)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    for parameter in model.parameters():
        parameter.set(rng.standard_normal(parameter.shape).astype(np.float32) * 0.3)
    x = cx.tensor((12, 16), name="x")
    with lm.recording(cx):
        loss = (model(x) ** 2).mean().output("loss")
        optim.Adam(model.parameters(), lr=0.01).step(loss)
    return cx, {"x": rng.standard_normal((12, 16), np.float32)}


def products(rows: int = 48, inner: int = 64, outer: int = 96) -> tuple[lm.Graph, dict[str, Any]]:
    """Products of floats of 16 bits, one after the other, which matrix instructions compute."""
    cx, rng = lm.Graph(), np.random.default_rng(6)
    shapes = {"x": (rows, inner), "up": (inner, outer), "down": (outer, inner)}
    x, up, down = (cx.tensor(shape, lm.bfloat16, name) for name, shape in shapes.items())
    ((x @ up).silu() @ down).output("y")
    given = {
        name: rng.standard_normal(shape, np.float32).astype(lm.bfloat16.numpy)
        for name, shape in shapes.items()
    }
    return cx, given


PROGRAMS: dict[str, Callable[[], tuple[lm.Graph, dict[str, Any]]]] = {
    each.__name__: each for each in (blocks, states, sums, products)
}


def runs(name: str, dispatch: str, hold: tuple[int, int] = (2, 0), count: int = 3) -> list[Any]:
    """The outputs of some runs, which States change between."""
    DRIVER.stand_in_hold(*hold)
    with config.override(LUMINAL_DISPATCH=dispatch):
        graph, given = PROGRAMS[name]()
        exe = lm.compile(graph, DEVICE)
        return [
            {name: np.array(value).tobytes() for name, value in exe(given).items()}
            for _ in range(count)
        ]


@pytest.mark.parametrize("name", mostly_long(PROGRAMS, 1))
def test_one_kernel_gives_the_bits_of_the_list(name: str) -> None:
    expected = runs(name, "list")
    launches = calls("launch")
    for hold in HOLDS:
        before = calls("launch"), calls("cooperative")
        assert runs(name, "one", hold) == expected
        assert calls("cooperative") > before[1]
        assert calls("launch") - before[0] < launches


def test_a_trace_of_one_kernel_has_its_groups_and_its_bits(tmp_path: Path) -> None:
    with config.override(LUMINAL_TRACE=tmp_path / "one.trace"):
        assert runs("states", "one", count=4) == runs("states", "list", count=4)
    one, listed = read(tmp_path / "one.trace").programs
    assert (one.dispatch, listed.dispatch) == ("one", "list")
    for run in one.clocked:
        assert {bar.track for bar in run.bars} > {"group 0"}
        assert {bar.site for bar in run.bars} == {*range(len(one.kernels))}
        assert sum(run.seconds(len(one.kernels))) == pytest.approx(run.parts.launches)


WAYS = ("list", "graph", "one")


def told(dispatch: str | None) -> tuple[str | None, dict[str, int]]:
    """What a report says of a program that is compiled so, and what its timed runs call."""
    graph, given = blocks()
    exe = lm.compile(graph, DEVICE, dispatch=dispatch)
    exe(given)
    names = ("launch", "graph", "cooperative")
    before = [calls(name) for name in names]
    assert exe.device_seconds(given, runs=2) > 0
    counts = [calls(name) - old for name, old in zip(names, before, strict=True)]
    return exe.report().dispatch, dict(zip(names, counts, strict=True))


def test_a_compile_says_how_launches_are_given() -> None:
    by_way = {way: told(way) for way in WAYS}
    assert [way for way, _ in by_way.values()] == [*WAYS]
    assert told(None) == by_way["graph"]
    counts = {way: count for way, (_, count) in by_way.items()}
    assert counts["list"]["graph"] == counts["list"]["cooperative"] == 0
    assert counts["graph"]["graph"] == counts["one"]["graph"] == 2
    assert counts["graph"]["cooperative"] == 0 < counts["one"]["cooperative"]
    with config.override(LUMINAL_DISPATCH="list"):  # which all programs follow
        assert told("one") == by_way["list"]
    with pytest.raises(CompileError, match="dispatch 'one': cpu takes 'list'"):
        lm.compile(blocks()[0], "cpu", dispatch="one")


def traced(
    name: str, hold: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> tuple[Report, list[list[int]]]:
    """A profile, and what each task waits for."""
    DRIVER.stand_in_hold(*hold)
    whole, listed = together.waits, list[list[int]]()

    def noting(tasks: Any) -> list[list[int]]:
        listed[:] = whole(tasks)
        return listed

    monkeypatch.setattr(together, "waits", noting)
    graph, given = PROGRAMS[name]()
    report = lm.compile(graph, DEVICE, dispatch="one").profile(given, runs=1)
    monkeypatch.setattr(together, "waits", whole)
    return report, listed


def out_of_order(tasks: Sequence[TaskTime], awaited: list[list[int]]) -> list[tuple[int, int]]:
    """The tasks that some group began before another one had ended what they wait for."""
    began, ended = dict[int, float](), dict[int, float]()
    for row in tasks:
        began[row.task] = min(began.get(row.task, row.began), row.began)
        ended[row.task] = max(ended.get(row.task, row.ended), row.ended)
    return [
        (task, other)
        for task, others in enumerate(awaited)
        for other in others
        if began[task] <= ended[other]
    ]


@pytest.mark.parametrize("name", ["states", pytest.param("blocks", marks=pytest.mark.long)])
def test_times_of_tasks_keep_to_what_they_wait_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = runs(name, "list", count=1)
    for hold in HOLDS[1::2]:
        report, awaited = traced(name, hold, monkeypatch)
        tasks, groups = report.tasks, 2 * hold[0]
        places = [(row.task, row.group) for row in tasks]
        assert places == [*itertools.product(range(len(awaited)), range(groups))]
        assert {row.unit for row in tasks} == {0, 1}
        assert [row.label for row in tasks[::groups]] == [row.label for row in report.kernels]
        assert not out_of_order(tasks, awaited)
        for group in range(groups):
            moments = [
                t for row in tasks if row.group == group for t in (row.came, row.began, row.ended)
            ]
            assert moments == sorted(set(moments))
        assert f"{len(awaited)} tasks by {groups} groups on 2 units" in str(report)
    assert runs(name, "one", count=1) == expected


@pytest.mark.long
def test_a_time_that_is_told_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = COMPILER.compile
    begun = "    if (times && threadIdx.x == 0) times[2] = CLOCK();\n"

    def compiled(source: str, architecture: str) -> Any:
        if "struct Task" in source:
            head, tail = source.replace(begun, "").split("    for (long long i = task", 1)
            assert begun in source
            source = f"{head}{begun}    for (long long i = task{tail}"
        return made(source, architecture)

    monkeypatch.setattr(COMPILER, "compile", compiled)
    assert any(out_of_order(*found) for found in (
        (report.tasks, awaited)
        for report, awaited in (traced("blocks", hold, monkeypatch) for hold in HOLDS)
    ))  # fmt: skip


def fault() -> str:
    """What went wrong in a kernel, in a word."""
    library = DRIVER
    library.stand_in_fault.restype = ctypes.POINTER(ctypes.c_int)
    kinds = (
        "none", "out of bounds", "misaligned", "race", "uninitialised", "index", "divergent",
        "barrier after return", "deadlock", "divergent warp", "returned lane", "early", "starved",
    )  # fmt: skip
    return kinds[library.stand_in_fault()[0]]


def broken(name: str, hold: tuple[int, int] = (2, 0)) -> str:
    """What goes wrong where a program is run with something planted; "none" if nothing does."""
    DRIVER.stand_in_reset()  # a fault is the answer to all that comes after it
    try:
        runs(name, "one", hold, count=1)
    except DeviceError:
        return fault()
    return "none"


@pytest.mark.long
def test_each_wait_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = together.waits
    counted = []

    def counting(tasks: Any) -> list[list[int]]:
        found = whole(tasks)
        counted.append(sum(map(len, found)))
        return found

    monkeypatch.setattr(together, "waits", counting)
    runs("blocks", "one", count=1)
    for dropped in range(counted[0]):
        left = dropped

        def without(tasks: Any) -> list[list[int]]:
            nonlocal left
            out = []
            for before in whole(tasks):
                keep = (
                    before
                    if left < 0 or left >= len(before)
                    else before[:left] + before[left + 1 :]
                )
                left -= len(before)
                out.append(keep)
            return out

        monkeypatch.setattr(together, "waits", without)
        assert any(broken("blocks", hold) == "race" for hold in HOLDS), dropped


def test_a_cycle_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = together.waits
    monkeypatch.setattr(together, "waits", lambda tasks: [[len(tasks) - 1], *whole(tasks)[1:]])
    assert broken("blocks") == "starved"


ARRIVES = "        if (threadIdx.x == 0) {\n            if (times)"
WAITS = "AWAIT(&counters[waits[i]], gridDim.x{});"
PLANTED = {
    "a count off by one": (WAITS.format(""), WAITS.format(" - 1")),
    "no meeting before": (f"        __syncthreads();\n{ARRIVES}", ARRIVES),
    "no meeting behind": ("gridDim.x);\n    __syncthreads();", "gridDim.x);"),
    "a group that says nothing": (ARRIVES, ARRIVES.replace("x == 0", "x == 0 && blockIdx.x")),
}


@pytest.mark.parametrize("name", mostly_long(PLANTED, 1))
def test_parts_of_the_text_are_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, planted = PLANTED[name]
    made = COMPILER.compile

    def compiled(source: str, architecture: str) -> Any:
        if "struct Task" in source:
            assert text in source
            source = source.replace(text, planted)
        return made(source, architecture)

    monkeypatch.setattr(COMPILER, "compile", compiled)
    assert any(broken("blocks", hold) in ("race", "starved") for hold in HOLDS)


def left_by(exe: Executable, case: Case) -> dict[str, bytes]:
    """The bits of the outputs and States of a run."""
    case.reset()
    outputs = exe(case.inputs, dims=case.dims)
    arrays = {**outputs, **{state.name: state.numpy() for state in case.states}}
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}


def check_seeds(seeds: range) -> None:
    """Random graphs near the reference, with the bits of the list, in a second run too."""
    joined = 0
    for seed in seeds:
        case = random_case(seed)
        DRIVER.stand_in_hold(*HOLDS[seed % len(HOLDS)])
        before = calls("cooperative")
        try:
            with config.override(LUMINAL_DISPATCH="one"):
                exe = compiled_on(registry.compiling(DEVICE), case.graph)
                check_case(exe, case)
                found = left_by(exe, case)
            with config.override(LUMINAL_DISPATCH="list"):
                assert left_by(compiled_on(registry.compiling(DEVICE), case.graph), case) == found
        except BaseException as error:
            error.add_note(f"seed {seed}: {fault()}")
            raise
        joined += calls("cooperative") > before
    assert joined


def test_a_few_random_graphs() -> None:
    check_seeds(range(10, 12))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_products_by_matrix_instructions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    sizes = [8 * rng.randint(1, 12) for _ in range(3)]
    monkeypatch.setitem(PROGRAMS, "drawn", lambda: products(*sizes))
    expected = runs("drawn", "list", count=1)
    assert runs("drawn", "one", HOLDS[seed % len(HOLDS)], count=1) == expected, sizes


@pytest.mark.long
def test_random_graphs() -> None:
    check_seeds(range(50))


def outputs_of(run: Callable[[], object], dispatch: str) -> list[bytes]:
    """The bits of all that executables give while something runs."""
    given: list[bytes] = []
    called = Executable.__call__

    def noting(exe: Executable, *args: Any, **kwargs: Any) -> Any:
        results = called(exe, *args, **kwargs)
        given.extend(np.array(value).tobytes() for value in results.values())
        return results

    with pytest.MonkeyPatch.context() as patch, config.override(LUMINAL_DISPATCH=dispatch):
        patch.setattr(Executable, "__call__", noting)
        run()
    return given


def check_bits(run: Callable[[], object]) -> None:
    """One kernel gives the bits of the list."""
    expected = outputs_of(run, "list")
    before = calls("cooperative")
    DRIVER.stand_in_hold(1, 2)
    assert outputs_of(run, "one") == expected
    assert expected
    assert calls("cooperative") > before


@pytest.mark.long
def test_a_small_llama_has_the_bits_of_the_list(tmp_path: Path) -> None:
    """Within the reference's bounds, too."""
    from tests.backends.c_family.small_models import CHECKS  # transformers: seconds of a core

    check_bits(lambda: CHECKS["llama"](tmp_path, DEVICE))


@pytest.mark.long
def test_a_small_resnet(tmp_path: Path) -> None:
    """Within the reference's bounds: to run it by the list as well takes minutes."""
    from tests.backends.c_family.small_models import CHECKS

    DRIVER.stand_in_hold(1, 2)
    before = calls("cooperative")
    with config.override(LUMINAL_DISPATCH="one"):
        CHECKS["resnet"](tmp_path, DEVICE)
    assert calls("cooperative") > before
