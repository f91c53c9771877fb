"""Networks under DDP, FSDP2 and DTensor on two ranks of gloo: the losses of eager mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from luminal.base import config
from tests.torch_backend.rank_networks import NETWORKS

ROOT = Path(__file__).resolve().parents[2]
OF_GATED = ["gated", "encoder", "causal", "tied"]
LOSS = 1e-5  # relative: 20 steps of float32, sums in another order


@pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
)
@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("tensors", ["gated"]),
        *(pytest.param(how, names, marks=pytest.mark.long) for how, names in (
            ("tensors", OF_GATED), *((how, [*NETWORKS]) for how in ("data", "reduced", "sharded"))
        )),
    ],
)  # fmt: skip
def test_losses_are_those_of_eager_mode(how: str, names: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.torch_backend.rank_networks"]
    environment = {**config.child_environment(), "LUMINAL_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), "2", str(tmp_path / "meeting"), how, *names],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    ends = [rank.communicate(timeout=280) for rank in ranks]
    for rank, (out, err) in zip(ranks, ends, strict=True):
        assert rank.returncode == 0, err
        *trained, (_, left) = map(json.loads, out.splitlines())
        assert left == []
        assert [name for name, *_ in trained] == names
        for name, eager, compiled in trained:
            np.testing.assert_allclose(compiled, eager, rtol=LOSS, err_msg=name)
