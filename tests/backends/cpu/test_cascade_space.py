"""Every variant runs in one pass, and every choice of its placement computes the same."""

from __future__ import annotations

import random

import pytest

from luminal.assemble import assemble, knob_space, place_step, text_key
from luminal.backends import registry
from luminal.backends.cpu.device import CpuRunner
from luminal.backends.reference import evaluate_with_bounds
from luminal.compiler import Stages, lower_by_stages
from luminal.errors import CompileError
from luminal.kernel.knobs import Knobs
from luminal.kernel.place_cascade import cascade_of
from luminal.kernel.tile_ir import to_text
from luminal.kernel.tile_verify import verify
from luminal.program.steps import KernelStep
from luminal.runtime.executable import Executable, Variant
from luminal.target import Target
from tests.backends.cpu.cascade_cases import CASES, KERNELS, case
from tests.fuzz.cpu_run import check_run

MOST = 20  # choices of a kernel
BUILDS = 3  # of them built in one short test; all are placed and verified


def target() -> Target:
    facts = registry.find("cpu").target
    assert facts is not None
    return facts()


def spaces(stages: Stages) -> list[tuple[str, Knobs]]:
    """(kernel, knobs) for all choices of all cascades: placed, verified and different."""
    found = []
    for step in stages.partition.steps:
        assert isinstance(step, KernelStep)
        if cascade_of(step.group) is None:
            continue
        space = knob_space(step, target())
        assert space[0] == ()
        assert 4 < len(set(space)) == len(space) <= MOST
        texts = {to_text(place_step(step, target(), knobs).kernel) for knobs in space}
        assert len(texts) > len(space) // 2
        key = text_key(to_text(place_step(step, target()).kernel))
        for knobs in space:
            assert list(knobs) == sorted(knobs)
            verify(place_step(step, target(), knobs).kernel)
            found.append((key, knobs))
    return found


def check(name: str, dtype: str, most: int | None) -> None:
    run = case(name, dtype)
    stages = lower_by_stages(run.graph, target())
    assert len(stages.program.launches) == KERNELS.get(name, 1)
    found = spaces(stages)
    assert found
    if most is not None:
        found = found[:1] + random.Random(name).sample(found[1:], most)
    bounds = evaluate_with_bounds(run.graph, run.inputs, run.dims)
    for key, knobs in found:
        program, _ = assemble(run.graph, stages.partition, target(), {key: knobs}, {})
        runner = CpuRunner(program, target())
        exe = Executable(run.graph, (Variant({}, runner),))
        try:
            check_run(exe, runner, run, 1.0, bounds)
        except AssertionError as error:
            raise AssertionError(f"{name} with {knobs}: {error}") from error


@pytest.mark.parametrize("name", CASES)
def test_one_pass_and_some_choices(name: str) -> None:
    check(name, "float32", BUILDS)


@pytest.mark.parametrize("name", ["plain", "one query", "causal", "log-sum-exp beside"])
def test_in_float64(name: str) -> None:
    check(name, "float64", 1)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_choice(name: str) -> None:
    check(name, "float32", None)


def test_a_choice_that_is_not_legal_is_refused() -> None:
    (step,) = lower_by_stages(case("plain").graph, target()).partition.steps
    assert isinstance(step, KernelStep)
    with pytest.raises(CompileError, match=r"knob along=rows is not legal here; take one of lanes"):
        place_step(step, target(), (("along", "rows"),))
    with pytest.raises(CompileError, match=r"no knob lines here; its knobs are: along"):
        place_step(step, target(), (("lines", 8),))
