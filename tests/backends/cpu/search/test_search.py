"""Searches with real processes: what they find is right, kept, and survives what goes wrong."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import backend
from luminal.base import config
from luminal.base.errors import CompileError, VerifyError
from luminal.compiler.compile import Stages
from luminal.program import launch_text
from luminal.search import database, interrupt, operands
from luminal.search import search as searches
from luminal.search.genome import Genome, library_of
from luminal.search.log import Log
from luminal.search.options import CompilationMode
from luminal.search.process import Process
from luminal.search.runner import Runner
from luminal.search.space import Space
from luminal.search.strategy import Strategy, Timed

OPTIONS = lm.SearchOptions(max_candidates=12, stop_below_us=0)
QUICK = lm.SearchOptions(max_candidates=3, stop_below_us=0, workers=1)  # for what goes wrong


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    interrupt.forget()
    with config.override(LUMINAL_CACHE_DIR=tmp_path / "cache"):
        yield


def mlp(width: int = 40) -> lm.Graph:
    cx = lm.Graph("mlp")
    s = cx.dim("s", 1, 64)
    x, w = cx.tensor((s, 48), name="x"), cx.weight((48, width), name="w")
    (x @ w).gelu().softmax(-1).output("y")
    return cx


def given(rows: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((rows, 48), np.float32),
        "w": rng.standard_normal((48, 40), np.float32),
    }


def same(first: Any, second: Any) -> None:
    # two searches may choose other orders of the sums
    np.testing.assert_allclose(first["y"], second["y"], rtol=1e-4, atol=1e-6)


def test_what_is_found_is_right_and_kept() -> None:
    cx = mlp()
    fast = lm.compile(cx)
    best = lm.compile(cx, mode="optimal", search=OPTIONS)
    for rows in (1, 5, 64):
        same(best(given(rows)), fast(given(rows)))
    found = best.report().search
    assert found is not None
    assert found.candidates >= 12
    # As many as are not predicted to be slow: where floats are emulated, all are.
    assert found.structure.candidates >= (platform.machine() == "x86_64")
    assert found.schedules.candidates >= 4
    assert found.kernels_built >= 4
    assert not found.from_database
    assert found.fast_seconds >= found.best_seconds > 0
    start = time.perf_counter()
    again = lm.compile(cx, mode="optimal", search=OPTIONS)
    assert time.perf_counter() - start < 2
    known = again.report().search
    assert known is not None
    assert known.from_database
    same(again(given()), fast(given()))


@pytest.mark.long
def test_a_winner_is_made_again_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a search that found another program than the fast one."""

    def run(self: Strategy) -> None:
        fast = self.fast.candidate
        knobs = next(k for k in self.space.knobs(fast, 0)[1:] if not library_of(k))
        other = self.space.decode(Genome().with_tuned({fast.stages.origins[0].name: knobs}))
        self.measurements.build([other])
        self.best = Timed(other, self.runner.add(other.program), 0.0)

    def ended(self: Process, *arguments: Any) -> None:
        raise AssertionError("a process was started")

    def text(stages: Stages) -> str:
        return launch_text.to_text(stages.program, kernels=True)

    monkeypatch.setattr(Strategy, "run", run)
    monkeypatch.setattr(Strategy, "duel", lambda self: (True, 1e-6, 2e-6))
    arguments = (mlp().graph(), backend.current(), CompilationMode.OPTIMAL, QUICK)
    found, first = searches.search(*arguments)
    monkeypatch.setattr(Process, "__init__", ended)
    again, second = searches.search(*arguments)
    assert text(again) == text(found)
    assert text(found) != text(Space(arguments[0], arguments[1]).decode(Genome()).stages)
    assert not first.from_database
    assert second.from_database
    assert second.changes == first.changes != ()
    assert (second.candidates, second.trials) == (first.candidates, first.trials)
    assert (second.fast_seconds, second.best_seconds) == (2e-6, 1e-6)


@pytest.mark.long
def test_two_processes_choose_the_same_program(tmp_path: Path) -> None:
    code = """
import sys
import luminal as lm
from luminal.backends.cpu import backend
from luminal.program import launch_text
from luminal.search.options import mode_of
from luminal.search.search import search
cx = lm.Graph()
x = cx.tensor((64, 96), name="x")
(x.exp().sum(-1) * 2).output("y")
options = lm.SearchOptions(max_candidates=5, stop_below_us=0)
stages, _ = search(cx.graph(), backend.current(), mode_of("optimal"), options)
print(launch_text.to_text(stages.program, kernels=True))
"""
    environment = config.child_environment()
    commands = [[sys.executable, "-c", code]] * 2
    running = [
        subprocess.Popen(c, stdout=subprocess.PIPE, env=environment | {"PYTHONHASHSEED": seed})
        for c, seed in zip(commands, ("1", "2"), strict=True)
    ]
    texts = [process.communicate(timeout=120)[0] for process in running]
    assert texts[0] == texts[1] != b""


@pytest.mark.long
def test_an_interrupt_keeps_the_best_and_the_measurements(monkeypatch: Any) -> None:
    tried = Log.tried

    def interrupted(self: Log, side: str, count: int = 1) -> None:
        tried(self, side, count)
        if self.candidates >= 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Log, "tried", interrupted)
    exe = lm.compile(mlp(), mode="optimal", search=OPTIONS)
    found = exe.report().search
    assert found is not None
    assert "interrupted" in found.decision
    same(exe(given()), lm.compile(mlp())(given()))
    assert database.default().prices()
    monkeypatch.setattr(Log, "tried", tried)
    after = lm.compile(mlp(), mode="optimal", search=QUICK).report().search
    assert after is not None
    assert not after.from_database  # the search goes on; nothing was decided


@pytest.mark.long
def test_a_killed_process_is_replaced(monkeypatch: Any) -> None:
    profile = Runner.profile
    kills: list[int] = []

    def killing(self: Runner, number: int, slow: float) -> list[float]:
        process = self._process
        if len(kills) < 2 and process is not None:
            kills.append(number)
            pid = process._process.pid
            threading.Timer(0.0, os.kill, (pid, signal.SIGKILL)).start()
            time.sleep(0.2)
        return profile(self, number, slow)

    monkeypatch.setattr(Runner, "profile", killing)
    exe = lm.compile(mlp(), mode="optimal", search=QUICK)
    found = exe.report().search
    assert found is not None
    assert len(kills) == 2
    same(exe(given()), lm.compile(mlp())(given()))


@pytest.mark.long
def test_a_request_is_made_again_when_its_process_was_killed(monkeypatch: Any) -> None:
    start = Process.start
    kills: list[Process] = []

    def killing(self: Process, data: bytes) -> None:
        start(self, data)
        if not kills:
            kills.append(self)
            self._process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(Process, "start", killing)
    found = lm.compile(mlp(), mode="optimal", search=QUICK).report().search
    assert found is not None
    assert not [row for row in found.rejected if "signal" in row.reason + row.example]
    assert not found.decision.startswith("the fast program runs")


@pytest.mark.long
def test_the_second_interrupt_ends_a_loop_of_searches(monkeypatch: Any) -> None:
    def interrupted(self: Log, side: str, count: int = 1) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Log, "tried", interrupted)
    compiled = []

    def loop() -> None:
        for width in (96, 128, 160):
            compiled.append(lm.compile(mlp(width), mode="optimal", search=OPTIONS))

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert len(compiled) == 1
    assert "interrupted" in str(compiled[0].report())


def test_which_interrupt_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(interrupt.time, "monotonic", lambda: clock[0])
    assert interrupt.first()
    clock[0] += 3600
    assert not interrupt.first()  # in the next search
    interrupt.finished()
    clock[0] += 59
    assert not interrupt.first()  # within a minute
    clock[0] += 61
    interrupt.finished()
    assert interrupt.first()


@pytest.mark.long
def test_processes_end_when_the_end_is_interrupted(monkeypatch: Any) -> None:
    started: list[Process] = []
    new, close = Process.__init__, Runner.close

    def starting(self: Process, *arguments: Any) -> None:
        new(self, *arguments)
        started.append(self)

    def interrupted(self: Runner) -> None:
        close(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Process, "__init__", starting)
    monkeypatch.setattr(Runner, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lm.compile(mlp(), mode="optimal", search=OPTIONS)
    assert len(started) >= 2
    assert all(process.is_dead for process in started)


@pytest.mark.parametrize("call", ["tempfile.TemporaryFile", "subprocess.Popen"])
def test_a_machine_without_room_runs_the_fast_program(monkeypatch: Any, call: str) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(call, full)
    exe = lm.compile(mlp(), mode="optimal", search=QUICK)
    found = exe.report().search
    assert found is not None
    assert found.decision.startswith("the fast program runs: no ")
    assert "No space left on device" in found.decision
    monkeypatch.undo()
    same(exe(given()), lm.compile(mlp())(given()))


@pytest.mark.long
def test_arrays_lie_on_disk_where_memory_has_no_room(monkeypatch: Any) -> None:
    made, places = tempfile.TemporaryFile, []

    def small(dir: Path | None = None) -> Any:
        places.append(dir)
        if dir is not None:
            raise OSError(28, "No space left on device")
        return made()

    monkeypatch.setattr(tempfile, "TemporaryFile", small)
    found = lm.compile(mlp(), mode="optimal", search=QUICK).report().search
    assert found is not None
    assert found.fast_seconds > 0
    assert places[:2] == [operands.MEMORY, None] or not operands.MEMORY.is_dir()


@pytest.mark.long
def test_a_fast_program_is_enough_where_the_options_say_so() -> None:
    for from_database in (False, True):
        enough = lm.SearchOptions(stop_below_us=1e9)
        found = lm.compile(mlp(), mode="optimal", search=enough).report().search
        assert found is not None
        assert found.from_database == from_database
        assert "is within stop_below_us=1e+09: nothing else was tried" in found.decision


@pytest.mark.long
def test_a_budget_without_time_for_a_candidate_decides_nothing() -> None:
    brief = CompilationMode.TimeBudget(1e-3)
    for _ in range(2):
        found = lm.compile(mlp(), mode=brief, search=lm.SearchOptions(stop_below_us=0)).report()
        assert found.search is not None
        assert not found.search.from_database
        assert "TimeBudget(0.001) was over before another program was timed" in str(found)


@pytest.mark.long
def test_a_damaged_decision_is_made_again() -> None:
    lm.compile(mlp(), mode="optimal", search=QUICK)
    stored = database.default()
    stored._write("update programs set genome = ?", [("no genome",)])
    for from_database in (False, True):
        found = lm.compile(mlp(), mode="optimal", search=QUICK).report().search
        assert found is not None
        assert found.from_database == from_database


OLD = database.Decision(Genome(apart=("of an older search",)).to_json(), 2.0, 1.0)
"""The search's code is no part of a decision's key: what it once wrote may be illegal by now."""


def raising(error: type[Exception]) -> Callable[[Space, Genome], Any]:
    """`decode` that knows nothing of the old genome."""
    decode = Space.decode

    def illegal(space: Space, genome: Genome) -> Any:
        if genome.to_json() == OLD.genome:
            raise error("knob streams=2 is not legal here")
        return decode(space, genome)

    return illegal


@pytest.mark.parametrize("error", [CompileError, VerifyError, ValueError, KeyError, TypeError])
def test_a_decision_of_other_code_makes_no_program(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    space = Space(mlp().graph(), backend.current())
    assert searches._replay(space, replace(OLD, genome=Genome().to_json())) is not None
    monkeypatch.setattr(Space, "decode", raising(error))
    assert searches._replay(space, OLD) is None


@pytest.mark.long
def test_a_decision_of_other_code_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = lm.SearchOptions(stop_below_us=1e9)  # fast is stored, nothing else is tried
    lm.compile(mlp(), mode="optimal", search=enough)
    stored = database.default()
    key = stored._connection.execute("select key from programs").fetchone()[0]
    stored.forget(key)
    stored.decide(key, OLD)
    monkeypatch.setattr(Space, "decode", raising(VerifyError))
    for from_database in (False, True):
        found = lm.compile(mlp(), mode="optimal", search=enough).report().search
        assert found is not None
        assert found.from_database == from_database


@pytest.mark.long
def test_a_kernel_that_raises_is_named_with_its_error() -> None:
    def fails(x: Any, y: Any) -> None:
        raise ValueError("no luck")

    cx = lm.Graph()
    lm.custom_kernel("unlucky", fails, results=lambda x: x)(cx.tensor((8,), name="x")).output("y")
    found = lm.compile(cx, mode="optimal", search=QUICK).report().search
    assert found is not None
    assert "ValueError: no luck; in the custom kernel unlucky" in found.decision


def scaled(factor: float) -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((8, 16), name="x") * factor).sum(-1).output("y")
    return cx


def test_a_wrong_candidate_stops_the_build(monkeypatch: Any, tmp_path: Path) -> None:
    def wrong(self: Strategy) -> None:
        other = Space(scaled(3).graph(), self.space.backend).decode(Genome())
        self.measurements.build([other])
        number = self.runner.add(other.program)
        self.best = Timed(self.fast.candidate, number, 0.0)

    monkeypatch.setattr(Strategy, "run", wrong)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # leaves nothing behind
    with pytest.raises(lm.CompileError, match=r"computes something else: y: .* are off") as e:
        lm.compile(scaled(2), mode="optimal", search=QUICK)
    folder = Path(str(e.value).split("the folder ")[1].split(",")[0])
    names = {path.name for path in folder.iterdir()}
    assert names == {"graph.hlir", "genome.json", "seed.txt", "inputs.npz"}


@pytest.mark.long
def test_states_are_as_before_a_search() -> None:
    cache = lm.State((8, 16), init=0.5, name="cache")
    cx = lm.Graph()
    x = cx.tensor((8, 16), name="x")
    total = cx.read(cache) + x
    cx.assign(cache, total)
    total.sum(-1).output("y")
    exe = lm.compile(cx, mode="optimal", search=QUICK)
    np.testing.assert_array_equal(cache.numpy(), np.full((8, 16), 0.5, np.float32))
    exe({"x": np.ones((8, 16), np.float32)})
    np.testing.assert_array_equal(cache.numpy(), np.full((8, 16), 1.5, np.float32))


@pytest.mark.long
def test_python_kernels_travel_with_the_program() -> None:
    def doubled(values: Any, out: Any) -> None:
        out[...] = 2 * values

    twice = lm.custom_kernel("twice", doubled, results=lambda x: (x.shape, x.dtype))
    cx = lm.Graph()
    x = cx.tensor((16, 32), name="x")
    (twice(x.exp()) + 1).sum(-1).output("y")
    array = np.random.default_rng(0).standard_normal((16, 32), np.float32)
    exe = lm.compile(cx, mode="optimal", search=QUICK)
    found = exe.report().search
    assert found is not None
    assert found.candidates > 0
    # two searches may choose other orders of the sums
    np.testing.assert_allclose(exe({"x": array})["y"], (2 * np.exp(array) + 1).sum(-1), rtol=1e-5)


def test_what_cannot_travel_is_not_timed() -> None:
    lock = threading.Lock()

    def guarded(values: Any, out: Any) -> None:
        with lock:
            out[...] = values

    copied = lm.custom_kernel("guarded", guarded, results=lambda x: (x.shape, x.dtype))
    cx = lm.Graph()
    x = cx.tensor((16, 32), name="x")
    copied(x).sum(-1).output("y")
    exe = lm.compile(cx, mode="optimal", search=QUICK)
    found = exe.report().search
    assert found is not None
    assert found.decision.startswith("the fast program runs: cannot pickle")
    array = np.ones((16, 32), np.float32)
    np.testing.assert_array_equal(exe({"x": array})["y"], array.sum(-1))


def test_dims_for_timing_are_checked() -> None:
    with pytest.raises(lm.DimError, match="SearchOptions: dims: t: no such dim; the dims are s"):
        lm.compile(mlp(), mode="optimal", search=lm.SearchOptions(dims={"t": 3}))
    with pytest.raises(lm.DimError, match=r"SearchOptions: dims: s: 0 is not within its 1\.\."):
        lm.compile(mlp(), mode="optimal", search=lm.SearchOptions(dims={"s": 0}))
    with pytest.raises(lm.CompileError, match=r"search: takes lm\.SearchOptions.*got a dict"):
        lm.compile(mlp(), mode="optimal", search={"seed": 1})  # type: ignore[arg-type]


@pytest.mark.long
def test_a_search_writes_no_file_of_diff(tmp_path: Path) -> None:
    cx = lm.Graph()
    x = cx.tensor((16, 32), name="x")
    x.exp().diff(str(tmp_path / "exp")).sum(-1).output("y")
    exe = lm.compile(cx, mode="optimal", search=QUICK)
    found = exe.report().search
    assert found is not None
    assert found.candidates > 0
    assert not (tmp_path / "exp.bin").exists()
    exe({"x": np.zeros((16, 32), np.float32)})
    assert (tmp_path / "exp.bin").stat().st_size == 16 * 32 * 4
