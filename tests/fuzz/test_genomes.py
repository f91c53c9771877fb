"""Every candidate is right, not just the winner: random genomes through the CPU backend."""

from __future__ import annotations

import pytest

from luminal.base import config
from luminal.hlir.substitute import all_nodes
from tests.fuzz.genome_checks import check_genomes
from tests.fuzz.genome_graphs import GRAPHS
from tests.fuzz.genome_networks import NETWORKS
from tests.fuzz.graphs import random_case
from tests.long_share import long_but, mostly_long
from tests.machines import NARROWER

FEW, MANY, PARTS = 3, 40, 5  # genomes: of a short test; of a long one, and how many of those
DECISIVE = ("moe", "moe_blocks")  # their choices are far from ties, which bounds do not see


LEFT = {
    "llama", "cnn", "attention", "attention_bias", "attention_shared", "softmax", "layer_norm",
}  # fmt: skip
"""Long alone: others are like them, or small."""


@pytest.mark.parametrize("name", long_but(NETWORKS, NETWORKS.keys() - LEFT))
def test_genomes(name: str) -> None:
    check_genomes(NETWORKS[name](), FEW, seed=1, decisive=name in DECISIVE)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", NETWORKS)
def test_many_genomes(name: str, part: int) -> None:
    check_genomes(NETWORKS[name](), MANY, seed=100 + part, decisive=name in DECISIVE)


@pytest.mark.parametrize("seed", mostly_long(range(10), 2))
def test_genomes_of_random_graphs(seed: int) -> None:
    check_genomes([random_case(seed)], 4, seed, telling=False)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 60))
def test_many_genomes_of_random_graphs(seed: int) -> None:
    check_genomes([random_case(seed)], 20, seed, telling=False)


@pytest.mark.parametrize("name", ["local_rows", "memory", "empty"])
def test_genomes_at_several_sizes(name: str) -> None:
    check_genomes(GRAPHS[name](), 3, seed=3)


@pytest.mark.long
@pytest.mark.parametrize("numerics", ["exact", "standard"])
@pytest.mark.parametrize("name", GRAPHS)
def test_many_genomes_at_several_sizes(name: str, numerics: str) -> None:
    check_genomes(GRAPHS[name](), 40, 4, name in DECISIVE, numerics)


@pytest.mark.long
@pytest.mark.parametrize("machine", [NARROWER, "baseline"])
@pytest.mark.parametrize("name", GRAPHS)
def test_many_genomes_on_other_machines(name: str, machine: str) -> None:
    with config.override(LUMINAL_TARGET=machine):
        check_genomes(GRAPHS[name](), 10, 5, name in DECISIVE)


@pytest.mark.parametrize("name", mostly_long(["integers", "random_numbers"], 1))
def test_programs_without_rounding_give_the_same_bits(name: str) -> None:
    check_genomes(GRAPHS[name](), 4, seed=6, same_bits=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60, 120))
def test_exact_programs_without_sums_give_the_same_bits(seed: int) -> None:
    case = random_case(seed)
    sums = {node.op.name for node in all_nodes(case.graph)} & {"Sum", "Scan", "Scatter"}
    check_genomes([case], 8, seed, numerics="exact", same_bits=not sums, telling=False)
