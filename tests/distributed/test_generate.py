"""`luminal generate --tensor 2` as users start it: the text of one rank, written once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from luminal.base import config
from tests.distributed.running import ROOT, needs_mpi

pytestmark = [pytest.mark.long, needs_mpi()]


def generated(*options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "luminal",
        "generate",
        "--prompt",
        "First",
        "--max-tokens",
        "24",
    ]
    environment = {**config.child_environment(), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("options", [(), ("--temperature", "0.8", "--seed", "3")])
def test_the_text_of_one_rank(options: tuple[str, ...]) -> None:
    alone, together = (generated(*options, "--tensor", count) for count in "12")
    assert (together.returncode, together.stderr) == (0, "")
    assert together.stdout == alone.stdout
    assert len(alone.stdout) > 40


def test_ranks_that_do_not_divide_the_model() -> None:
    refused = generated("--tensor", "3")
    assert refused.returncode == 1
    assert "--tensor 3: model.layers.0.mlp.gate_proj.weight does not divide" in refused.stderr
    assert "give a number that divides" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""
