"""Ranks on one card that is here, by NCCL or RCCL: each test skips, and says why, where none is."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base.errors import CompileError
from luminal.distributed import run_local
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.library import SHARES_CARDS, SWITCH, shown
from tests.distributed.mesh_models import losses, steps
from tests.distributed.running import launched_models, needs_mpi

ASKED = ["llama:data", "llama:zero3", "experts:zero1"]
NEAR = 2e-4  # three steps of float32, whose sums are added in other orders


def absence(vendor: str) -> str | None:
    """Why ranks cannot share a card of this vendor here; None where they can."""
    row = registry.BACKENDS[vendor]
    if (reason := row.unavailable()) is not None:
        return reason
    library = import_module(row.library)
    try:
        version = library.version()
    except CompileError as error:
        return str(error)
    if tuple(map(int, version.split(".")))[:2] < SHARES_CARDS:
        return f"{library.NAME} {version} takes one rank of each card: {shown(SHARES_CARDS)} more"
    return None


@needs_mpi()
@pytest.mark.parametrize("vendor", [registry.CUDA, registry.ROCM])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_share_a_card(vendor: str, ranks: int) -> None:
    if (reason := absence(vendor)) is not None:
        pytest.skip(reason)
    told = launched_models(ranks, [f"--{vendor}", *ASKED], **{SWITCH: "1"})
    # The same sums over the same ranks: only where Parameters and moments lie differs.
    assert told["llama:data"] == told["llama:zero3"]
    for asked in ASKED:
        name, plan = asked.split(":")

        def work(engine: Engine, name: str = name, plan: str = plan) -> list[float]:
            with lm.device("reference"):
                return losses(steps(name, plan, engine.size))

        wanted = run_local(ranks, work)[0]
        np.testing.assert_allclose(told[f"losses of {asked}"], wanted, rtol=NEAR)
