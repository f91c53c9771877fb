"""What a search keeps: attention in one kernel, no scores in memory, the same bits for any team."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import backend, device
from luminal.base import config
from luminal.models.llama import Llama, LlamaConfig
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program
from luminal.search.options import mode_of
from luminal.search.search import search
from tests.fuzz.cpu_run import run
from tests.fuzz.graphs import Case

Array = np.ndarray[Any, Any]
OPTIONS = lm.SearchOptions(max_candidates=25, stop_below_us=0)
STRUCTURES, SCHEDULES = 8, 8  # timed of each by these limits, at least
HEADS, LENGTH, WIDTH = 4, 256, 32


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with config.override(LUMINAL_CACHE_DIR=tmp_path / "cache"):
        yield


def attention(causal: bool = False, cap: float = 0.0, length: int = LENGTH) -> lm.Graph:
    cx = lm.Graph()
    q, k, v = (cx.tensor((HEADS, length, WIDTH), name=name) for name in "qkv")
    scores = q @ k.mT * WIDTH**-0.5
    if cap:
        scores = (scores / cap).tanh() * cap
    if causal:
        row, column = cx.arange(length).reshape(length, 1), cx.arange(length).reshape(1, length)
        seen = (column <= row).reshape(1, length, length).expand(HEADS, length, length)
        scores = lm.where(seen, scores, -np.inf)
    (scores.softmax(-1) @ v).output("y")
    return cx


def inputs(length: int = LENGTH) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((HEADS, length, WIDTH), np.float32) for name in "qkv"}


def assert_searched(exe: lm.Executable, structures: int = STRUCTURES) -> None:
    """Candidates of structure and schedules were built and timed, and none failed."""
    found = exe.report().search
    assert found is not None
    assert found.decision.startswith(("found", "nothing beat"))
    assert found.structure.candidates >= structures
    assert found.schedules.candidates >= SCHEDULES
    assert found.kernels_built > len(exe.report().kernels) + structures
    assert found.rules  # the e-graph was saturated
    assert any(rule.matches for rule in found.rules)
    quick = {"not faster than the best", "not faster when timed again", "slow"}
    also = {"predicted to be slow", "more than 4 times the work", "a kernel is too long"}
    assert {row.reason for row in found.rejected} <= quick | also


ATTENTION: dict[str, Callable[[], lm.Graph]] = {
    "plain": attention,
    "causal": lambda: attention(causal=True),
    "soft cap": lambda: attention(cap=20.0),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_stays_one_kernel(name: str) -> None:
    exe = lm.compile(ATTENTION[name](), mode="optimal", search=OPTIONS)
    assert_searched(exe)
    assert len(exe.report().kernels) == 1
    expected = lm.compile(ATTENTION[name](), "reference")(inputs())["y"]
    # softmax's exponents hold the products' error; values are averages, down to 0.01
    np.testing.assert_allclose(exe(inputs())["y"], expected, rtol=2e-4, atol=2e-6)


@pytest.mark.long
def test_masked_tiles_are_skipped() -> None:
    """Half of the scores are masked, nearly all of them in whole tiles."""
    length = 2048
    given = inputs(length)
    seconds = []
    for causal in (False, True):
        exe = lm.compile(attention(causal, length=length))
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            exe(given)
            taken.append(time.perf_counter() - start)
        seconds.append(min(taken))
    assert seconds[1] < 0.75 * seconds[0]  # 0.6 on a quiet machine


@pytest.mark.long
@pytest.mark.parametrize("new", [None, 1])
def test_a_block_keeps_no_scores(new: int | None) -> None:
    sizes = LlamaConfig(64, 96, 1, 4, 2, 16, 50, 256)
    cx = lm.Graph()
    length = cx.dim("s", 1, 256) if new is None else new
    past = cx.dim("past", 0, 255)
    cx.require(past + length <= 256)
    model = Llama(sizes).eval()
    model(cx.tensor((length,), name="ids", dtype="int32"), model.make_caches(256), past).output("y")
    made = searched(cx)
    arena = [b for b in made.buffers if b.kind is BufferKind.ARENA]
    assert arena
    for buffer in arena:
        assert not any("past" in str(extent) for extent in buffer.shape), buffer


def searched(cx: lm.Graph) -> Program:
    stages, _ = search(cx.graph(), backend.current(), mode_of("optimal"), OPTIONS)
    return stages.program


def network() -> lm.Graph:
    cx = lm.Graph()
    x, w = cx.tensor((300, 200), name="x"), cx.tensor((200, 120), name="w")
    y = (x @ w).gelu().softmax(-1)
    y.output("y")
    y.sum(0).output("sums")
    return cx


@pytest.mark.long
def test_a_searched_program_gives_the_same_bits_for_any_team(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)  # the team even for tiny programs
    cx = network()
    options = lm.SearchOptions(max_candidates=8, stop_below_us=0)
    exe = lm.compile(cx, mode="optimal", search=options)
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((300, 200), np.float32)}
    given["w"] = rng.standard_normal((200, 120), np.float32)
    case = Case(cx.graph(), given, {}, {})
    first = run(exe, case, 1, None)
    for threads in (1, 2, 2):
        again = run(exe, case, threads, None)
        for name, array in first.items():
            assert again[name].tobytes() == array.tobytes()


def weight(cx: lm.Graph, *shape: int) -> Any:
    made = cx.weight(shape)
    made.set(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32))
    return made


def convolved(x: Any, cx: lm.Graph, *shape: int, **options: Any) -> Any:
    """A convolution with weights of its own, and a ReLU."""
    return x.conv2d(weight(cx, *shape), **options).relu()


CNNS: dict[str, Callable[[lm.Graph, Any], Any]] = {
    "plain": lambda cx, x: convolved(convolved(x, cx, 4, 1, 3, 3, stride=2), cx, 6, 4, 3, 3),
    "pools": lambda cx, x: convolved(
        convolved(x, cx, 4, 1, 3, 3).max_pool2d(2), cx, 6, 4, 3, 3
    ).max_pool2d(2),
    "dilated": lambda cx, x: convolved(convolved(x, cx, 4, 1, 3, 3), cx, 4, 4, 3, 3, dilation=2),
    "maxima and means": lambda cx, x: x.max_pool2d(2) + x.avg_pool2d(2),
    "overlapping": lambda cx, x: convolved(x, cx, 4, 1, 3, 3).max_pool2d(3, stride=2, padding=1),
    "transposed": lambda cx, x: convolved(x, cx, 4, 1, 3, 3, stride=2).conv_transpose2d(
        weight(cx, 4, 2, 2, 2), stride=2
    ),
    "by channel": lambda cx, x: convolved(
        convolved(x, cx, 4, 1, 3, 3), cx, 4, 1, 3, 3, groups=4, padding=1
    ),
    "global": lambda cx, x: convolved(x, cx, 4, 1, 5, 5).mean((2, 3)),
}

FEWER = {"maxima and means": 4}  # its space has six structures


@pytest.mark.long
@pytest.mark.parametrize("name", CNNS)
def test_networks_are_searched_without_fallback(name: str) -> None:
    cx = lm.Graph()
    y = CNNS[name](cx, cx.tensor((2, 1, 20, 20), name="x"))
    y = y.reshape(2, -1)
    (y @ weight(cx, y.shape[1], 10)).output("y")
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((2, 1, 20, 20), np.float32)}
    exe = lm.compile(cx, mode="optimal", search=OPTIONS)
    assert_searched(exe, FEWER.get(name, STRUCTURES))
    expected = lm.compile(cx, "reference")(given)["y"]
    # whatever order of the sums is chosen, Winograd's transforms too, which lose two digits
    np.testing.assert_allclose(exe(given)["y"], expected, rtol=1e-4, atol=1e-4)
