"""The example that trains on several ranks, as its docstring starts it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.distributed.running import ROOT, Ranks, needs_mpi


@needs_mpi()
@pytest.mark.long
def test_the_shipped_model_is_trained_to_the_same_bits_on_one_and_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question\n" * 40)
    digests = []
    for count in ("1", "2"):
        program = str(ROOT / "examples/train_on_ranks.py")
        command = [sys.executable, "-m", "luminal", "launch", "-n", count, program]
        options = ["--steps", "2", "--leaves", "2", "--plan", "zero1"]
        ended = Ranks([*command, str(tmp_path / "text.txt"), *options]).end(100)
        assert ended.status == 0, ended.err
        digests.append(ended.out.rpartition("parameters ")[2].split()[0])
    assert digests[0] == digests[1]
