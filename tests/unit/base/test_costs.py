"""One record of costs for each machine: rules, cost model and device go by the same numbers."""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.backends import device_costs
from luminal.backends.cuda.backend import Cuda
from luminal.base.costs import Costs
from luminal.compiler import compile
from luminal.program.selection import Residence
from luminal.schedule.vectors import costs as cpu_costs
from luminal.search.cost_model import cost
from luminal.selection.fast import select
from tests.machines import COSTS, vectors

CHIP = Cuda.named("sm_90a")
GPU = CHIP.costs
ALL = {"cpu": COSTS, "gpu": GPU, "cores": device_costs.cores(CHIP.target)}


def residences(costs: Costs) -> dict[str, Residence]:
    """Of an exponential that two kernels read."""
    cx = lm.Graph()
    y = cx.tensor((64, 64), name="x").exp()
    y.sum(0).output("columns")
    y.sum(1).output("rows")
    choices = select(lower(cx.graph()), costs).choices
    return {term.op: choice.residence for term, choice in choices.items()}


def test_what_is_stored_follows_from_costs() -> None:
    assert residences(COSTS)["Exp"] is Residence.STORED
    assert residences(GPU)["Exp"] is Residence.INLINE


@pytest.mark.parametrize("bits", [128, 512])
def test_a_launch_is_as_long_for_rules_as_for_the_cost_model(bits: int) -> None:
    costs = vectors(bits, 16).costs
    assert costs.launch_work == cpu_costs.LAUNCH_WORK
    assert costs.launch == costs.launch_work / costs.pointwise_flops


@pytest.mark.parametrize("name", ALL)
def test_records_are_in_order(name: str) -> None:
    costs = ALL[name]
    assert 0 < costs.pointwise_flops <= costs.contraction_flops
    assert 0 < costs.memory <= costs.cache
    assert 1e-7 < costs.launch < 1e-4
    assert 1 < costs.shares.points <= costs.shares.chunks
    assert costs.weights.of("Add") == 1 < costs.weights.of("Exp")


def test_devices_of_c_have_no_panels_and_call_no_library() -> None:
    assert CHIP.layouts is None
    cx = lm.Graph()
    x = cx.tensor((64, 256), name="x")
    (x @ cx.weight((256, 256), name="w")).output("y")
    stages = compile.lower_by_stages(cx.graph(), CHIP)
    assert not any(choice.layouts[1:] for choice in stages.selection.choices.values())
    (origin,) = stages.origins
    assert all(CHIP.library_calls(step) == () for step in origin.steps)
    assert cost(stages.program, {}, CHIP).seconds > GPU.launch
