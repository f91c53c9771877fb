"""No rank holds more than its part and a block of 64 MiB, of checkpoints and of models' files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.reading_memory import COLUMNS, MIB, ROWS
from tests.distributed.running import ROOT

PART = ROWS * COLUMNS * 4 // 8 // MIB
BLOCK = 64
SLACK = 8  # MiB of the interpreter's own


def ran(task: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.distributed.reading_memory", task, str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


@pytest.mark.long
def test_a_rank_takes_its_part_and_a_block(tmp_path: Path) -> None:
    ran("write", tmp_path)
    for task in ("read", "load"):
        assert PART - SLACK <= int(ran(task, tmp_path)) <= PART + BLOCK + SLACK
