"""Networks under DDP, FSDP2 and DTensor on two ranks of gloo: the losses of eager mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives

from luminal.base import config
from luminal.torch_backend import explain
from tests.torch_backend.rank_networks import NETWORKS

ROOT = Path(__file__).resolve().parents[2]
OF_GATED = ["gated", "encoder", "causal", "tied"]
needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
)
LOSS = 1e-5  # relative: 20 steps of float32, sums in another order


def on_ranks(module: str, *arguments: object, tmp_path: Path) -> list[list[Any]]:
    """What two ranks of a program print, each line read as JSON."""
    environment = {**config.child_environment(), "LUMINAL_THREADS": "1", "OMP_NUM_THREADS": "1"}
    file = str(tmp_path / "meeting")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(rank), "2", file, *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    ends = [rank.communicate(timeout=280) for rank in ranks]
    for rank, (_, err) in zip(ranks, ends, strict=True):
        assert rank.returncode == 0, err
    return [[*map(json.loads, out.splitlines())] for out, _ in ends]


@needs_gloo
@pytest.mark.long  # even one network: two processes that load PyTorch and its compiler
@pytest.mark.parametrize(
    ("how", "names"),
    [("tensors", OF_GATED), *((how, [*NETWORKS]) for how in ("data", "reduced", "sharded"))],
)
def test_losses_are_those_of_eager_mode(how: str, names: list[str], tmp_path: Path) -> None:
    module = "tests.torch_backend.rank_networks"
    for *trained, (_, left) in on_ranks(module, how, *names, tmp_path=tmp_path):
        assert left == []
        assert [name for name, *_ in trained] == names
        for name, eager, compiled in trained:
            np.testing.assert_allclose(compiled, eager, rtol=LOSS, err_msg=name)


@needs_gloo
@pytest.mark.long
def test_any_collectives_give_what_they_do_in_eager_mode(tmp_path: Path) -> None:
    for *differing, compared in on_ranks(
        "tests.torch_backend.rank_calls", 0, 60, tmp_path=tmp_path
    ):
        assert differing == []
        assert compared > 40


@needs_gloo
def test_what_pytorch_starts_it_waits_for() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:

        def left(op: str) -> list[str]:
            def f(x: torch.Tensor) -> torch.Tensor:
                return collectives.all_reduce(x, op, dist.group.WORLD) * 2

            return explain(f, torch.ones(4))

        assert left("sum") == []
        started, waited = left("product")
        assert started.startswith("_c10d_functional.all_reduce.default")
        assert waited.endswith("wait_tensor.default: of a collective that PyTorch starts")
    finally:
        dist.destroy_process_group()
