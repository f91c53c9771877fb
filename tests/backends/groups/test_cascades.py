"""Attention by groups: every variant on OpenCL, small ones by both meanings of their kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.backends.backend import Backend
from tests.backends.cpu.schedule.cascade_cases import CASES, case
from tests.backends.groups.both_meanings import DRIVER, compiled, groups_since
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case
from tests.long_share import long_but, mostly_long

SAMPLE = (
    "no heads", "one query", "causal, added", "window and first", "grouped", "parts",
    "relu", "relu, causal", "greatest", "variance", "logarithms", "two softmaxes",
    "entropy, few rows",
)  # fmt: skip

POSITIONS = "where greatest"


def opencl(lanes: int) -> Backend:
    """The device by groups of so many lanes; skips the test where there is none."""
    from tests.backends.opencl import devices

    found = devices.backend.current()
    return replace(found, groups=replace(found.groups, lanes=lanes, is_rule=True))


def check(name: str, lanes: int) -> None:
    backend, run = opencl(lanes), case(name)
    check_case(compiled_on(backend, run.graph), run)


@pytest.mark.parametrize(
    "name", long_but(SAMPLE, ("one query", "causal, added", "grouped", "greatest", "variance"))
)
def test_a_sample(name: str) -> None:
    check(name, 128)


@pytest.mark.long
@pytest.mark.parametrize("lanes", [16, 256])
@pytest.mark.parametrize("name", [name for name in CASES if name != POSITIONS])
def test_every_variant(name: str, lanes: int) -> None:
    check(name, lanes)


@pytest.mark.parametrize("lanes", mostly_long([16, 256], 1))
def test_positions_are_numpys(lanes: int) -> None:
    """Error bounds of scores tell nothing of positions: to them every one is unstable."""
    run = case(POSITIONS)
    q, k = (run.inputs[name].astype(np.float64) for name in "qk")
    found = compiled_on(opencl(lanes), run.graph)(run.inputs)["y0"]
    np.testing.assert_array_equal(found, (q @ k.swapaxes(-1, -2)).argmax(-1))


@pytest.mark.parametrize("shapes", mostly_long([(5, 7, 4), (1, 40, 8), (13, 33, 6)], 2))
def test_small_ones_by_both_meanings(shapes: tuple[int, int, int]) -> None:
    queries, keys, width = shapes
    cx = lm.Graph()
    named = {"q": (queries, width), "k": (keys, width), "v": (keys, width)}
    q, k, v = (cx.tensor(shape, name=name) for name, shape in named.items())
    ((q @ k.mT * 0.3).softmax(-1) @ v).output("y")
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in named.items()}
    before = len(DRIVER.lanes)
    run = Case(cx.graph(), inputs, {}, {})
    check_case(compiled(run.graph), run)
    assert groups_since(before) == [8, 8]  # one kernel, run twice
