"""Links are measured: a latency and a bandwidth for each mesh axis."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from luminal.distribute.links import measured
from luminal.distribute.mesh import Mesh
from luminal.distributed import run_local
from luminal.session.on_mesh import engines_of
from tests.distributed.running import Ranks, needs_mpi


class Wire:
    """An engine of two ranks whose messages take a known time."""

    rank, size, axis = 0, 2, "data"

    def __init__(self, latency: float, bandwidth: float) -> None:
        self.latency, self.bandwidth = latency, bandwidth
        self.now = 0.0

    def run(self, kind: str, source: Any, target: Any, **how: Any) -> None:
        """Takes the time of one message; the other rank is as slow as this one."""
        if kind == "permute":
            self.now += self.latency + source.nbytes / self.bandwidth
        target[:] = source


@pytest.mark.parametrize(("latency", "bandwidth"), [(1e-3, 2e9), (5e-5, 5e8)])
def test_what_a_wire_is_made_of_is_found(latency: float, bandwidth: float) -> None:
    wire = Wire(latency, bandwidth)
    link = measured({"data": wire}, lambda: wire.now)["data"]
    # The small message has some bytes, too.
    assert link.latency == pytest.approx(latency, rel=1e-3)
    assert link.bandwidth == pytest.approx(bandwidth, rel=1e-3)  # as above


def test_each_axis_of_a_mesh_is_measured_by_all_ranks() -> None:
    mesh = Mesh((2, 2), ("data", "tensor"))
    found = run_local(4, lambda engine: measured(engines_of(mesh, engine)))
    assert all(links.keys() == {"data", "tensor"} for links in found)
    assert all(link.latency > 0 for links in found for link in links.values())


@pytest.mark.long
@needs_mpi()
def test_the_command_starts_its_ranks() -> None:
    command = [sys.executable, "-m", "luminal", "links", "-n", "2", "--mesh", "tensor=2", "--json"]
    ended = Ranks(command).end(60)
    assert ended.status == 0, ended.err
    links = json.loads(ended.out[ended.out.index("{") :])
    assert links["tensor"]["bandwidth"] > links["tensor"]["latency"] > 0
