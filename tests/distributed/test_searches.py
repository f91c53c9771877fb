"""A search on a mesh: one rank searches, and all run its choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu.backend import Cpu
from luminal.backends.cpu.device import CpuRunner
from luminal.base import config
from luminal.distributed import run_local
from luminal.program import launch_text
from luminal.program.launch_list import Program
from luminal.search import search as searches
from luminal.search.genome import Genome
from luminal.search.strategy import Strategy, Timed
from tests.close import close
from tests.distributed.running import needs_mpi, under_mpiexec

MESH = lm.Mesh((2,), ("data",))
Array = np.ndarray[Any, Any]
QUICK = lm.SearchOptions(max_candidates=8, stop_below_us=0, workers=1)
X = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((48, 32)).astype(np.float32)


def compiled(**options: Any) -> lm.Executable:
    graph = lm.Graph()
    x, w = graph.tensor((64, 48), name="x").shard("data"), graph.tensor((48, 32), name="w")
    y = (x @ w).relu()
    y.output("y")
    (y * y).sum(0).output("total")
    return lm.compile(graph, mesh=MESH, **options)


def results(exe: lm.Executable, rank: int) -> list[Array]:
    out = exe({"x": np.split(X, 2)[rank], "w": W})
    return [np.array(out[name]) for name in ("y", "total")]


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path) -> Any:
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        yield


@pytest.mark.long
def test_all_ranks_run_what_the_first_one_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    searchers: list[Any] = []

    def run(self: Strategy) -> None:
        """Chooses other knobs, whatever they are good for: in `fast` alone ranks agree anyway."""
        searchers.append(self)
        fast = self.fast.candidate
        for number in range(len(fast.program.kernels)):
            knobs = [k for k in self.space.knobs(fast, number)[1:] if k and k[0][0] != "call"]
            if knobs:
                name = fast.stages.origins[number].name
                other = self.space.decode(Genome().with_tuned({name: knobs[0]}))
                self.measurements.build([other])
                self.best = Timed(other, self.runner.add(other.program), 0.0)
                return
        raise AssertionError("no kernel has knobs")

    built: dict[int, list[str]] = {0: [], 1: []}
    runner = Cpu.runner

    def noting(self: Cpu, program: Program) -> CpuRunner:
        built[lm.distributed.rank()].append(launch_text.to_text(program, kernels=True))
        return runner(self, program)

    monkeypatch.setattr(Strategy, "run", run)
    monkeypatch.setattr(Strategy, "duel", lambda self: (True, 1e-6, 2e-6))
    monkeypatch.setattr(Cpu, "runner", noting)

    def work(engine: Any) -> Any:
        fast, chosen = compiled(), compiled(mode="optimal", search=QUICK)
        summary = chosen.report().search
        return results(fast, engine.rank), results(chosen, engine.rank), summary

    both = run_local(2, work, timeout=60)
    assert len(searchers) == 1
    of_fast, of_chosen = built[0]
    assert built[1] == [of_fast, of_chosen]
    assert of_fast != of_chosen
    for fast, chosen, summary in both:
        assert summary.best_seconds == 1e-6
        for one, other in zip(fast, chosen, strict=True):
            close(other, one)


def test_an_error_of_the_search_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> None:
        raise lm.CompileError("no such candidate")

    monkeypatch.setattr(searches, "_found", broken)

    def work(engine: Any) -> str:
        with pytest.raises(lm.CompileError, match="no such candidate") as caught:
            compiled(mode="optimal", search=QUICK)
        return str(caught.value)

    assert run_local(2, work, timeout=60) == ["no such candidate"] * 2


PROGRAM = """
import pathlib, sys
import luminal as lm, numpy as np
lm.distributed.init()
rank, mesh = lm.distributed.rank(), lm.Mesh((2,), ("data",))
def compiled(**options):
    cx = lm.Graph()
    x, w = cx.tensor((64, 48), name="x").shard("data"), cx.tensor((48, 32), name="w")
    (x @ w).relu().sum(0).output("total")
    return lm.compile(cx, mesh=mesh, **options)
rng = np.random.default_rng(0)
x, w = rng.random((64, 48), np.float32), rng.random((48, 32), np.float32)
inputs = {"x": np.split(x, 2)[rank], "w": w}
options = lm.SearchOptions(max_candidates=4, stop_below_us=0, workers=1)
fast, chosen = compiled(), compiled(mode="optimal", search=options)
first, second = fast(inputs)["total"], chosen(inputs)["total"]
np.testing.assert_allclose(second, first, rtol=1e-5)
tried = chosen.report().search.candidates
pathlib.Path(sys.argv[1], str(rank)).write_text(f"{tried > 0} {chosen.report().search.decision}")
"""


@pytest.mark.long
@needs_mpi()
def test_processes_search_once(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ended = under_mpiexec(2, str(script), str(tmp_path), LUMINAL_CACHE_DIR=str(tmp_path)).end()
    assert ended.status == 0, ended.err
    first, second = ((tmp_path / str(rank)).read_text() for rank in range(2))
    assert first == second
    assert first.startswith("True ")
