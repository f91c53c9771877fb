"""LUMINAL_TRACE of a program of ranks: one file, a process for each rank, with the user's lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from luminal.runtime import perfetto
from luminal.runtime.trace import read
from tests.distributed.running import Ranks, needs_mpi

pytestmark = [pytest.mark.long, needs_mpi()]
PROGRAM = """
import numpy as np
import luminal as lm

lm.distributed.init()
mesh = lm.Mesh((lm.distributed.size(),), ("data",))
cx = lm.Graph("step")
x = cx.tensor((8, 32), name="x").shard("data", None)
(x @ cx.weight((32, 32), name="w")).relu().sum().output("y")
exe = lm.compile(cx, mesh=mesh)
exe.set(w=np.ones((32, 32), np.float32))
for _ in range(10):
    exe(x=np.ones((4, 32), np.float32))
"""


def test_ranks_write_one_file(tmp_path: Path) -> None:
    script, path = tmp_path / "step.py", tmp_path / "run.trace"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "luminal", "launch", "-n", "2", str(script)]
    end = Ranks(command, LUMINAL_TRACE=str(path)).end(seconds=60)
    assert end.status == 0, end.err
    trace = read(path)
    assert trace.doubts == []
    ranks = {"rank 0 of 2", "rank 1 of 2"}
    assert {p.process.rank: p.count for p in trace.programs} == dict.fromkeys(ranks, 10)
    for program in trace.programs:
        assert len(program.clocked) == 4
        lines = {number for row in program.kernels for _, number in row.lines}
        assert lines == {9}
        assert any("all_gather" in row.name or "all_reduce" in row.name for row in program.kernels)
    told = json.loads(perfetto.events(trace))["traceEvents"]
    names = {e["pid"]: e["args"]["name"][:11] for e in told if e["name"] == "process_name"}
    assert ranks <= {*names.values()}
    launches = {names[e["pid"]] for e in told if e.get("cat") == "launch"}
    assert launches == ranks
