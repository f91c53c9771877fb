"""LUMINAL_TRACE: what a process writes, what is read of it, and that it changes no result."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import config, trace_file
from luminal.base.errors import InputError
from luminal.runtime import perfetto
from luminal.runtime import traced as traces
from luminal.runtime.report import KernelRow, Report, WorkMemory
from luminal.runtime.trace import ClockedRun, Trace, Track, read

PROGRAM = """
import sys, time
import numpy as np
import luminal as lm

cx = lm.Graph("small")
x = cx.tensor((16, 32), name="x")
(x @ cx.weight((32, 32), name="w")).softmax(-1).output("y")
exe = lm.compile(cx)
exe.set(w=np.ones((32, 32), np.float32))
for run in range(20):
    exe(x=np.full((16, 32), run, np.float32))
print("ran", flush=True)
time.sleep(float(sys.argv[1]))
"""


def graph() -> lm.Graph:
    """A small program with a product, a State, and a scan that runs as a Loop."""
    cx = lm.Graph("traced")
    s = cx.dim("s", 1, 64)
    x = cx.tensor((s, 256), name="x")
    w = cx.weight((256, 256), name="w")
    h = (x @ w).relu()
    last, _ = lm.scan(lambda c, row: ((c @ w + row).tanh(), c), cx.zeros(256), h)
    state = cx.state((256,), name="seen")
    cx.assign(state, state.flip(0) + last)  # read elsewhere than written: two buffers in turns
    (h + state).softmax(-1).output("y")
    return cx


def results(runs: int = 12) -> list[Any]:
    """The outputs of runs one after the other, which a State makes different."""
    exe = lm.compile(graph())
    rng = np.random.default_rng(1)
    exe.set(w=rng.standard_normal((256, 256), np.float32) * 0.1)
    given = rng.standard_normal((48, 256), np.float32)
    return [np.array(exe(x=given)["y"]) for _ in range(runs)]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, list[Any]]:
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    with config.override(LUMINAL_TRACE=path):
        outputs = results()
    return read(path), outputs


def test_a_traced_program_gives_the_same_bits(traced: tuple[Trace, list[Any]]) -> None:
    for mine, theirs in zip(traced[1], results(), strict=True):
        assert mine.tobytes() == theirs.tobytes()


def test_every_run_is_there(traced: tuple[Trace, list[Any]]) -> None:
    (program,) = traced[0].programs
    assert (program.count, len(program.clocked), program.dims) == (12, 4, {"s": 48})
    starts = [run.start for run in program.runs] + [run.start for run in program.clocked]
    assert len(set(starts)) == 12
    taken = sorted((r.start, r.start + r.seconds) for r in program.runs)
    taken = sorted([*taken, *((r.start, r.end) for r in program.clocked)])
    assert all(end <= later for (_, end), (later, _) in itertools.pairwise(taken))
    assert program.memory[-1].arena > 0
    assert traced[0].doubts == []


def test_rows_name_the_users_lines(traced: tuple[Trace, list[Any]]) -> None:
    (program,) = traced[0].programs
    lines = {number for row in program.kernels for file, number in row.lines if file == __file__}
    first = graph.__code__.co_firstlineno
    assert {first + 6, first + 7} <= lines
    assert any("test_trace.py" in row.origin for row in program.kernels)


def test_bars_lie_within_their_run_and_launches_follow_each_other(
    traced: tuple[Trace, list[Any]],
) -> None:
    (program,) = traced[0].programs
    for run in program.clocked:
        assert run.start <= run.called <= run.returned <= run.end
        assert run.whole
        by_launch = defaultdict(list)
        for bar in run.bars:
            assert run.called <= bar.start <= bar.end <= run.returned
            by_launch[bar.trip, bar.site].append(bar)
        for (_, site), bars in by_launch.items():
            assert sum(bar.chunks for bar in bars) == program.kernels[site].chunks
        trips = [
            len({trip for trip, at in by_launch if at == k}) for k in range(len(program.kernels))
        ]
        assert trips == [row.trips for row in program.kernels]
        assert max(trips) == 48  # of the scan


def test_parts_add_up_to_the_run(traced: tuple[Trace, list[Any]]) -> None:
    (program,) = traced[0].programs
    for run in program.clocked:
        parts = run.parts
        assert parts.whole == pytest.approx(run.end - run.start)
        assert sum(run.seconds(len(program.kernels))) == pytest.approx(parts.launches)
        assert min(parts) >= 0
    report = program.report()
    shares = [report.share(row) or 0 for row in report.kernels]
    assert sum(shares) == pytest.approx(1)


def test_seconds_of_launches_that_overlap_are_those_by_which_the_end_moved() -> None:
    bars = (
        Track("group 0", 0, 0, 1.0, 3.0, 0), Track("group 1", 0, 0, 1.0, 2.0, 0),
        Track("group 1", 1, 0, 2.0, 5.0, 0), Track("group 0", 2, 0, 3.0, 4.0, 0),
    )  # fmt: skip
    run = ClockedRun(0, 0.5, 6.0, 0.75, 5.5, True, bars)
    assert run.seconds(3) == [2.0, 2.0, 0.0]
    assert run.parts == (0.25, 0.25, 4.0, 1.0, 0.5)


def test_spans_of_the_compile_nest(traced: tuple[Trace, list[Any]]) -> None:
    spans = traced[0].spans
    whole = next(span for span in spans if span.name == "compile traced for cpu")
    inner = [span for span in spans if whole.start <= span.start and span.end <= whole.end]
    assert "build" in {span.name for span in inner}
    assert all(span.ended for span in spans)
    assert "prologue" in {span.name for span in spans}


def test_perfetto_has_complete_events_that_nest(traced: tuple[Trace, list[Any]]) -> None:
    trace = traced[0]
    told = json.loads(perfetto.events(trace))["traceEvents"]
    kinds = {"X": {"ts", "dur", "pid", "tid", "name", "cat", "args"}, "M": {"args"}, "C": {"ts"}}
    named = set()
    rows = defaultdict(list)
    for event in told:
        assert kinds[event["ph"]] <= event.keys()
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["name"] == "thread_name":
            named.add((event["pid"], event["tid"]))
    assert rows.keys() <= named
    for bars in rows.values():  # of one thread: apart, or one within the other
        around: list[float] = []
        for start, end in sorted(bars, key=lambda bar: (bar[0], -bar[1])):
            while around and around[-1] <= start + 1e-3:
                around.pop()
            assert not around or end <= around[-1] + 1e-3
            around.append(end)
    (program,) = trace.programs
    launches = [event for event in told if event.get("cat") == "launch"]
    assert len(launches) == sum(len(run.bars) for run in program.clocked)
    bar, event = program.clocked[0].bars[0], launches[0]
    assert event["ts"] == pytest.approx(bar.start * 1e6)
    assert event["dur"] == pytest.approx((bar.end - bar.start) * 1e6)


def test_a_process_that_is_killed_leaves_a_trace(tmp_path: Path) -> None:
    path, script = tmp_path / "killed.trace", tmp_path / "small.py"
    script.write_text(PROGRAM)
    environment = {**config.child_environment(), "LUMINAL_TRACE": str(path)}
    command = [sys.executable, str(script), "60"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ran\n"
        process.kill()
    trace = read(path)
    (program,) = trace.programs
    assert program.count == 20
    assert trace.doubts == []
    # Half a line, a line of something else, and a span that nobody ended.
    lines = path.read_bytes().splitlines(keepends=True)
    build = next(k for k, line in enumerate(lines) if b'"begin":"build"' in line)
    path.write_bytes(b"".join([*lines[:build], b"{}\n", lines[build], lines[build + 1][:9]]))
    trace = read(path)
    assert [span.name for span in trace.spans if not span.ended] == [
        "compile small for cpu", "build",
    ]  # fmt: skip
    assert trace.doubts == [
        "the last line is half of one: its process was killed",
        f"lines that no trace has were left out: {build + 1}",
        "a process was killed within: compile small for cpu, build",
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_child_writes_as_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "forked.trace"
    with config.override(LUMINAL_TRACE=path):
        file = trace_file.current()
        assert file is not None
        file.write(begin="around", at=time.perf_counter_ns())
        child = os.fork()
        if child == 0:
            file.write(begin="child", at=time.perf_counter_ns())
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        file.write(end="around", at=time.perf_counter_ns())
    trace = read(path)
    assert [process.pid for process in trace.processes] == [os.getpid(), child]
    assert trace.processes[1].parent == os.getpid()
    assert [(span.name, span.ended) for span in trace.spans] == [("around", True), ("child", False)]


def test_a_new_trace_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "old.trace"
    path.write_text('{"pid":1,"format":1}\n' * 3)
    with config.override(LUMINAL_TRACE=path):
        file = trace_file.current()
        assert file is not None
        file.write(begin="new", at=1)
    assert path.read_text().count('"format"') == 1
    assert path.read_text().count("\n") == 3


def test_another_file_is_kept(tmp_path: Path) -> None:
    """As is a folder; what a process left that was killed at once is overwritten."""
    mine, empty = tmp_path / "train.py", tmp_path / "empty"
    mine.write_text("print('mine')\n")
    empty.touch()
    for path, said in ((mine, "is no trace, and is kept as it is"), (tmp_path, "directory")):
        with config.override(LUMINAL_TRACE=path), pytest.raises(InputError, match=said):
            trace_file.current()
    assert mine.read_text() == "print('mine')\n"
    with config.override(LUMINAL_TRACE=empty):
        assert trace_file.current() is not None


def test_a_relative_path_counts_from_where_luminal_was_imported(tmp_path: Path) -> None:
    code = "import os, luminal; os.chdir('/'); from luminal.base import trace_file; "
    code += "trace_file.current().write(begin='x', at=1)"
    environment = {**config.child_environment(), "LUMINAL_TRACE": "run.trace"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert [span.name for span in read(tmp_path / "run.trace").spans] == ["x"]


class Fake:
    """A program that computes nothing."""

    def report(self) -> Report:
        return Report({}, (KernelRow("Add", 0, 1, 1, 8, 96, origin="add (a.py:3)"),))

    def memory(self) -> WorkMemory:
        return WorkMemory()


def test_a_long_process_notes_runs_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "LIMIT", 100_000)
    path, runs = tmp_path / "long.trace", 20_000
    with config.override(LUMINAL_TRACE=path):
        file = trace_file.current()
        assert file is not None
        program = traces.Program(file, "fake", Fake(), Fake())  # type: ignore[arg-type]
        for run in range(runs):
            program.ran(1000 * run, 1000 * run + 250)
    assert 50_000 < path.stat().st_size <= 100_000
    (told,) = read(path).programs
    assert runs - file.every < told.count <= runs  # those after the last line are not known
    assert 1 < file.every < 5000
    assert told.total_seconds == pytest.approx(told.count * 250e-9)
    assert told.run_seconds == pytest.approx(250e-9)


def test_a_full_trace_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "LIMIT", 2000)
    path = tmp_path / "full.trace"
    with config.override(LUMINAL_TRACE=path):
        file = trace_file.current()
        assert file is not None
        for k in range(100):
            file.write(begin=f"step {k}", at=k)
    assert path.stat().st_size < 2100
    assert f"process {os.getpid()} wrote 2,000 bytes, the limit, and no more" in read(path).doubts


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.trace: cannot be read: No such file"):
        read(tmp_path / "nothing.trace")
    (tmp_path / "other").write_text("hello\nworld\n")
    with pytest.raises(InputError, match="no trace: its first line is not that of a process"):
        read(tmp_path / "other")
    (tmp_path / "empty").write_text("")
    with pytest.raises(InputError, match="no trace: it has no line"):
        read(tmp_path / "empty")
    (tmp_path / "later").write_text('{"pid":1,"format":7,"luminal":"9"}\n')
    with pytest.raises(InputError, match=r"a trace of format 7, and this Luminal reads 1.*\(9\)"):
        read(tmp_path / "later")
    missing = tmp_path / "no" / "file"
    with (
        config.override(LUMINAL_TRACE=missing),
        pytest.raises(InputError, match=r"LUMINAL_TRACE=.*cannot be written: No such file.*folder"),
    ):
        lm.compile(graph())


def test_traces_of_several_machines_are_one(tmp_path: Path) -> None:
    """Ranks in containers may have one number; what is of each file stays its own."""
    paths = []
    for rank, wall in ((0, 2_000), (1, 1_000)):
        lines: list[dict[str, Any]] = [
            {"format": 1, "parent": 0, "command": ["a.py"], "host": f"m{rank}", "luminal": "0",
             "wall": 10**18 + wall, "clock": 5_000, "rank": f"rank {rank} of 2"},
            {"name": "main"}, {"begin": f"step {rank}", "at": 6_000},
            {"program": 1, "title": f"p{rank}", "dims": {}, "kernels": [], "prologue": [],
             "dispatch": None},
            {"run": 1, "at": 7_000, "ns": 500},
        ]  # fmt: skip
        paths.append(tmp_path / f"{rank}.trace")
        text = "".join(json.dumps({"pid": 1, "thread": 1, **line}) + "\n" for line in lines)
        paths[-1].write_text(text)
    trace = read(*paths)
    assert [(p.rank, round(p.start * 1e9)) for p in trace.processes] == [
        ("rank 1 of 2", 0), ("rank 0 of 2", 1_000),
    ]  # fmt: skip
    assert [(s.name, s.process.rank, round(s.start * 1e9)) for s in trace.spans] == [
        ("step 1", "rank 1 of 2", 1_000), ("step 0", "rank 0 of 2", 2_000),
    ]  # fmt: skip
    assert [(p.title, p.count, p.process.host) for p in trace.programs] == [
        ("p1", 1, "m1"), ("p0", 1, "m0"),
    ]  # fmt: skip
    assert trace.doubts == [f"{paths[k]}: a process was killed within: step {k}" for k in (1, 0)]
    told = json.loads(perfetto.events(trace))["traceEvents"]
    names = [event["args"]["name"] for event in told if event["name"] == "process_name"]
    assert names == ["rank 1 of 2, 1 on m1: a.py", "rank 0 of 2, 1 on m0: a.py"]
    assert len({event["pid"] for event in told}) == 2
