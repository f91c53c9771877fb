"""Training by MPI on 2 and 4 ranks: the bits of ranks that are threads, whatever the plan."""

from __future__ import annotations

import json
import sys

import pytest

from luminal.distributed import run_local
from tests.distributed.mesh_models import MODELS, trained
from tests.distributed.running import Ranks, needs_mpi

ASKED = [
    *(f"{model}:{plan}" for model in MODELS for plan in ("data", "zero3")),
    "llama:zero1", "llama:tensor",
]  # fmt: skip


def by_mpi(ranks: int, asked: list[str]) -> dict[str, str]:
    """The digests that all ranks of MPI agree on."""
    command = [sys.executable, "-m", "luminal", "launch", "-n", str(ranks)]
    ended = Ranks(
        [*command, "-m", "tests.distributed.mesh_models", *asked], LUMINAL_THREADS="1"
    ).end(300)
    assert ended.status == 0, ended.err
    lines = [line.partition("digests ")[2] for line in ended.out.splitlines() if "digests " in line]
    rows = [json.loads(line) for line in lines]
    assert sorted(row.pop("rank") for row in rows) == list(range(ranks)), ended.out
    assert all(row == rows[0] for row in rows)
    return dict(rows[0])


def by_threads(ranks: int, asked: str) -> str:
    name, plan = asked.split(":")
    digests = run_local(ranks, lambda engine: trained(name, plan, ranks))
    assert len(set(digests)) == 1
    return digests[0]


@needs_mpi()
@pytest.mark.parametrize(
    ("ranks", "asked"),
    [
        (2, ["llama:data", "llama:zero1", "llama:zero3", "pictures:data", "experts:zero3"]),
        pytest.param(2, ASKED, marks=pytest.mark.long),
        pytest.param(4, [a for a in ASKED if "tensor" not in a], marks=pytest.mark.long),
    ],
)
def test_mpi_gives_the_bits_of_threads(ranks: int, asked: list[str]) -> None:
    digests = by_mpi(ranks, asked)
    for name in asked:
        assert by_threads(ranks, name) == digests[name], name


@pytest.mark.parametrize("model", ["llama", "pictures", "experts"])
def test_what_is_cut_changes_no_bit(model: str) -> None:
    # The same sums over the same ranks: only where Parameters and moments lie differs.
    assert by_threads(2, f"{model}:data") == by_threads(2, f"{model}:zero3")
