"""Training by MPI on 2 and 4 ranks: the bits of ranks that are threads, whatever the plan."""

from __future__ import annotations

import pytest

from luminal.distributed import run_local
from tests.distributed.mesh_models import MODELS, trained
from tests.distributed.running import launched_models, needs_mpi
from tests.long_share import long_but

ASKED = [
    *(f"{model}:{plan}" for model in MODELS for plan in ("data", "zero3")),
    "llama:zero1", "llama:tensor", "llama:sequence", "mixture:expert",
]  # fmt: skip


def by_threads(ranks: int, asked: str) -> str:
    name, plan = asked.split(":")
    digests = run_local(ranks, lambda engine: trained(name, plan, ranks))
    assert len(set(digests)) == 1
    return digests[0]


@pytest.mark.long
@needs_mpi()
@pytest.mark.parametrize(
    ("ranks", "asked"),
    [(2, ASKED), (4, [name for name in ASKED if "tensor" not in name])],
)
def test_mpi_gives_the_bits_of_threads(ranks: int, asked: list[str]) -> None:
    digests = launched_models(ranks, asked, LUMINAL_THREADS="1")
    for name in asked:
        assert by_threads(ranks, name) == digests[name], name


@pytest.mark.parametrize("model", long_but(["llama", "pictures", "experts"], ["experts"]))
def test_what_is_cut_changes_no_bit(model: str) -> None:
    # The same sums over the same ranks: only where Parameters and moments lie differs.
    assert by_threads(2, f"{model}:data") == by_threads(2, f"{model}:zero3")
