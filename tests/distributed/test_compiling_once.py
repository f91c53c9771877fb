"""Ranks on one machine compile a program once, and a later start not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.running import needs_mpi, under_mpiexec

PROGRAM = """
import pathlib, sys
import luminal as lm, numpy as np
lm.distributed.init()
mesh = lm.Mesh((2,), ("data",))
cx = lm.Graph()
x = cx.tensor((8, 4), name="x").shard("data")
(x * 2 + 1).sum().output("total")
lm.distributed.engine().exchange(b"", "all begin")
exe = lm.compile(cx, mesh=mesh)
total = float(exe({"x": np.ones((4, 4), np.float32)})["total"])
steps = exe.report().compiled.seconds
took = " ".join(step for step in ("compiler", "render", "build") if step in steps)
pathlib.Path(sys.argv[1], str(lm.distributed.rank())).write_text(f"{took}: {total}")
"""


@pytest.mark.long
@needs_mpi()
def test_one_rank_compiles_for_all(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    for expected in (
        ["build: 96.0", "compiler render build: 96.0"],
        ["build: 96.0", "build: 96.0"],  # the program was kept
    ):
        cache = str(tmp_path / "cache")
        ended = under_mpiexec(2, str(script), str(tmp_path), LUMINAL_CACHE_DIR=cache).end()
        assert ended.status == 0, ended.err
        assert sorted((tmp_path / str(rank)).read_text() for rank in range(2)) == expected
