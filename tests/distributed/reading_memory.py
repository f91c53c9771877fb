"""How much memory a rank takes to read its part of a checkpoint or model: run in a process of its
own.

    python -m tests.distributed.reading_memory write FOLDER    # as 4 ranks would
    python -m tests.distributed.reading_memory read FOLDER     # the part of rank 3 of 8; prints MiB
    python -m tests.distributed.reading_memory load FOLDER     # likewise of a safetensors file
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

import luminal as lm
from luminal.distribute.held import Parts
from luminal.distribute.layout import of_spec
from luminal.distributed import run_local
from luminal.memory.part import Piece
from luminal.shape.expression import const
from luminal.training import CheckpointManager

ROWS, COLUMNS = 16384, 4096  # 256 MiB of float32
MIB = 1 << 20


def write(folder: Path) -> None:
    """A checkpoint of one array in 4 parts, and the array as a file."""
    rows = ROWS // 4

    def work(engine: lm.distributed.Engine) -> None:
        values = np.full((rows, COLUMNS), engine.rank, np.float32)
        piece = Piece(values, (ROWS, COLUMNS), (engine.rank * rows, 0), True)
        CheckpointManager(folder).save(1, {"w": piece}, engine=engine)

    run_local(4, work)
    whole = np.arange(4, dtype=np.float32).repeat(rows)[:, None] * np.ones(COLUMNS, np.float32)
    lm.save(folder / "model.safetensors", {"w": whole})


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    match = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def read(folder: Path, kind: str) -> None:
    """Reads the part of rank 3 of 8, which is of the second file, and prints what that took."""
    parameter, mesh = lm.Parameter((ROWS, COLUMNS), name="w"), lm.Mesh((8,), ("data",))
    layout = of_spec((("data",), ()), tuple(map(const, parameter.shape)), mesh, "w")
    parts = Parts(mesh, 3, lambda array, name: [array])
    before = peak()
    if kind == "read":
        parts(parameter, layout)
        run_local(1, lambda engine: _restore(folder, parameter, engine))
    else:  # as `lm.shard` and a load before the first program
        parameter.set(lm.load(folder / "model.safetensors")["w"])
        parts(parameter, layout)
    assert parameter.local().shape == (ROWS // 8, COLUMNS)
    assert (parameter.local()[::100, ::100] == 1).all()
    print(round(peak() - before))


def _restore(folder: Path, parameter: lm.Parameter, engine: lm.distributed.Engine) -> None:
    checkpoint = CheckpointManager(folder).restore(engine=engine)
    assert checkpoint is not None
    parameter.set(checkpoint.state["w"])


if __name__ == "__main__":
    task, place = sys.argv[1], Path(sys.argv[2])
    if task == "write":
        write(place)
    else:
        read(place, task)
