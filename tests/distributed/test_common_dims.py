"""Ranks that bind other dims than the rest are refused, all of them, at any run; nothing changes.

A seed is a mesh, a way to cut rows over it, what is computed of them, and some runs in which each
rank draws how many rows it gives and how long they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DimError, InputError, LuminalError
from luminal.distributed import run_local
from luminal.optim import SGD
from tests.distributed.running import needs_mpi, under_mpiexec
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
CHUNK, RUNS = 8, 4
MESHES = (((2,), ("a",)), ((3,), ("a",)), ((2, 2), ("a", "b")))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # float32 sums of some dozens of elements

OF_ALL: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x.mean(0),
    "sum": lambda x: x.sum(0),
    "maximum": lambda x: x.amax(0),
    "centred": lambda x: x - x.mean(0, keepdim=True),
    "mean square": lambda x: (x * x).mean(),
    "softmax": lambda x: x.softmax(0).sum(1),
    "positions": lambda x: x + lm.arange(x.shape[0], dtype="float32").unflatten(0, (-1, 1)),
    "number": lambda x: x * lm.full((1,), 1.0).expand(x.shape).sum(0),
}


class Case(NamedTuple):
    """What a seed says."""

    mesh: lm.Mesh
    cut: str | tuple[str, ...]
    of_all: str
    is_trained: bool
    rows: list[list[int]]
    """Of each run by rank; ranks that only `b` tells apart give the same."""
    widths: list[list[int]]


def drawn(seed: int) -> Case:
    rng = random.Random(f"dims {seed}")
    mesh = lm.Mesh(*rng.choice(MESHES))
    cut: Any = rng.choice([mesh.names[0], mesh.names])

    def numbers(odds: float) -> list[int]:
        same = [rng.randint(2, 3)] * mesh.size
        return [rng.randint(2, 3) for _ in same] if rng.random() < odds else same

    rows, widths = zip(*((numbers(0.5), numbers(0.1)) for _ in range(RUNS)), strict=True)
    return Case(mesh, cut, rng.choice([*OF_ALL]), rng.random() < 0.5, list(rows), list(widths))


def on_one(case: Case, x: Array) -> tuple[Array, Array]:
    """What of all rows is computed, and a Parameter after a step, by a program of one rank."""
    graph = lm.Graph()
    with lm.recording(graph):
        of_all = OF_ALL[case.of_all](graph.tensor(x.shape, name="x"))
        of_all.output("y")
        return graph.compile()({"x": x})["y"], x.mean(dtype=np.float64) * 2 * 0.1


def rank_runs(case: Case, engine: Any) -> list[Any]:
    """Of each run what this rank gave, what it got, and the Parameter after it."""
    scale = lm.Parameter(np.zeros(1, np.float32), name="scale")
    graph = lm.Graph()
    with lm.recording(graph):
        rows, width = lm.dim("rows", 2, 64), lm.dim("width", 1, 8)
        x = graph.tensor((rows, width), name="x").shard(case.cut, None)
        OF_ALL[case.of_all](x).output("y")
        if case.is_trained:  # calls that look like the last are run by another way where not
            loss = ((x - graph.read(scale)) ** 2).mean()
            SGD([scale], lr=0.1).step(loss)
        step = lm.compile(graph, mesh=case.mesh)
    parts = case.mesh.size if case.cut == case.mesh.names else case.mesh.shape[0]
    place = engine.rank // (case.mesh.size // parts)
    out = []
    for run, (counts, widths) in enumerate(zip(case.rows, case.widths, strict=True)):
        whole = np.random.default_rng(run).standard_normal((64, 8)).astype(np.float32)
        n, width = counts[engine.rank], widths[engine.rank]
        if case.is_trained:
            scale.set(np.zeros(1, np.float32))
        try:
            own = np.ascontiguousarray(whole[place * n : (place + 1) * n, :width])
            got: Any = np.array(step({"x": own})["y"])
        except DimError as error:
            got = str(error)
        out.append((whole[: parts * n, :width], got, float(scale.numpy()[0]), place, parts))
    return out


def check(case: Case) -> int:
    """Runs a case, and counts the runs that were refused."""
    refused = 0
    by_rank = run_local(case.mesh.size, lambda engine: rank_runs(case, engine), timeout=5)
    for runs, rows, widths in zip(zip(*by_rank, strict=True), case.rows, case.widths, strict=True):
        is_refused = len(set(rows)) > 1 or len(set(widths)) > 1
        refused += is_refused
        for whole, got, scale, place, parts in runs:
            if is_refused:
                name, values = ("rows", rows) if len(set(rows)) > 1 else ("width", widths)
                assert isinstance(got, str), got
                assert got.startswith(f"{name}: rank 0 ")
                assert f" {values[0]} and rank " in got
                assert scale == 0
                continue
            y, step = on_one(case, whole)
            if got.shape != y.shape:  # it is cut as the rows are
                y = np.split(y, parts)[place]
            np.testing.assert_allclose(got, y, **CLOSE)
            np.testing.assert_allclose(scale, step * case.is_trained, **CLOSE)
    return refused


@pytest.mark.parametrize("chunk", mostly_long(range(20), 1))
def test_ranks_that_differ_are_refused(chunk: int) -> None:
    refused = sum(check(drawn(seed)) for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)))
    assert 0 < refused < CHUNK * RUNS


BAD: tuple[Callable[[Array], Any], ...] = (
    lambda x: x.astype(np.int64),
    lambda x: x[0],
    lambda x: x[:0],
    lambda x: x[:, :1],
    lambda _: "hello",
    lambda _: None,
)
"""What a rank gives instead of its rows, and has refused."""


def refusing(seed: int) -> int:
    """Ranks that are given what they refuse in some runs, and go on: those runs are nobody's, and
    all others are right. How many were refused.
    """
    rng = random.Random(f"refused {seed}")
    mesh, is_static, is_padded = (
        lm.Mesh(*rng.choice(MESHES)),
        rng.random() < 0.5,
        rng.random() < 0.3,
    )
    bad = [
        {rank: rng.choice(BAD) for rank in range(mesh.size) if rng.random() < 0.4}
        if rng.random() < 0.5
        else {}
        for _ in range(6)
    ]
    parts = mesh.size
    rows = 2 * parts - (1 if is_padded and is_static else 0)

    def work(engine: Any) -> None:
        total = lm.Parameter(np.zeros(3, np.float32), name="total")
        graph = lm.Graph()
        with lm.recording(graph):
            height = rows if is_static else lm.dim("rows", parts, 64)
            x = graph.tensor((height, 3), name="x").shard(mesh.names, None)
            y = x.sum(0)
            y.output("y")
            graph.assign(total, graph.read(total) + y)
            step = lm.compile(graph, mesh=mesh)
        wanted = np.zeros(3)
        for run, by_rank in enumerate(bad):
            whole = np.full((rows, 3), 10.0**run, np.float32)
            own = whole[2 * engine.rank : 2 * engine.rank + 2]
            if not by_rank:
                wanted += whole.sum(0, dtype=np.float64)
                np.testing.assert_allclose(step({"x": own})["y"], whole.sum(0), **CLOSE)
            elif engine.rank in by_rank:
                with pytest.raises(LuminalError) as caught:
                    step({"x": by_rank[engine.rank](own)})
                assert "refuses what it was given" not in str(caught.value)
            else:
                with pytest.raises(InputError, match=f"rank {min(by_rank)} refuses what it was"):
                    step({"x": own})
            np.testing.assert_allclose(total.numpy(), wanted, **CLOSE)

    run_local(mesh.size, work, timeout=5)
    return sum(map(bool, bad))


@pytest.mark.parametrize("chunk", mostly_long(range(20), 1))
def test_a_run_that_a_rank_refuses_is_nobodys(chunk: int) -> None:
    assert sum(refusing(seed) for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)))


def test_a_dim_of_what_is_moved_is_compared_where_each_rank_has_its_own_program() -> None:
    mesh = lm.Mesh((2,), ("a",))

    def work(engine: Any) -> Any:
        graph = lm.Graph()
        with lm.recording(graph), lm.spmd(mesh):
            rows, width = lm.dim("rows", 1, 9), lm.dim("width", 1, 9)
            x = graph.tensor((rows, width), name="x")
            lm.all_reduce(x.sum(0), "a").output("y")
            step = lm.compile(graph)
        own = step({"x": np.ones((2 + engine.rank, 4), np.float32)})["y"].tolist()
        with pytest.raises(DimError, match="width: rank 0 runs at 4 and rank 1 runs at 5; give"):
            step({"x": np.ones((2, 4 + engine.rank), np.float32)})
        return own

    assert run_local(2, work, timeout=5) == [[5.0] * 4] * 2


PROGRAM = """
import numpy as np, luminal as lm
engine = lm.distributed.init()
graph = lm.Graph()
with lm.recording(graph):
    x = graph.tensor((lm.dim("rows", 1, 64), 3), name="x").shard("a")
    x.softmax(0).output("y")
step = lm.compile(graph, mesh=lm.Mesh((2,), ("a",)))
step({"x": np.ones((3 - engine.rank, 3), np.float32)})
"""


@needs_mpi()
def test_processes_that_differ_end_at_once() -> None:
    ended = under_mpiexec(2, "-c", PROGRAM).end(60)
    assert ended.status
    assert "DimError: rows: rank 0 gives 3 and rank 1 gives 2; it is cut into 2" in ended.err
    assert not ended.left
