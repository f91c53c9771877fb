"""Models trained by ranks on devices over stand-ins for a driver and its collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.backends import registry
from tests.distributed.cards import VENDOR, libraries
from tests.simt import stand_in

CASES = Path(__file__).with_name("device_model_cases.py")
PLANS = {
    "llama": ("data", "tensor", "zero1", "zero3"),
    "pictures": ("data", "zero3"),
    "experts": ("data", "zero1", "zero3"),
}


def check(vendor: str, ranks: int, *options: str, asked: str) -> None:
    """Runs the cases in a process that finds the stand-ins."""
    environment = {VENDOR: vendor, "ASKED": f"{ranks} {asked}", "STAND_IN_DEVICES": str(ranks)}
    stand_in.run(CASES, libraries(vendor), *options, **environment)


@pytest.mark.long
def test_a_mixture_of_experts_in_parts() -> None:
    check(registry.CUDA, 2, "-k", "oracles or host", asked="experts:zero3")


@pytest.mark.long
@pytest.mark.parametrize("vendor", [registry.CUDA, registry.ROCM])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("asked", [f"{name}:{plan}" for name in PLANS for plan in PLANS[name]])
def test_models(vendor: str, ranks: int, asked: str) -> None:
    check(vendor, ranks, asked=asked)
