"""Every variant runs in one pass, and every choice of its placement computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.backend import Backend
from luminal.base.errors import CompileError
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import Stages, lower_by_stages
from luminal.program.steps import CascadeStep, KernelStep
from tests.backends.cpu.schedule.cascade_cases import CASES, KERNELS, case
from tests.backends.cpu.schedule.knob_choices import Choice, check_choices, placed_choices, sample
from tests.long_share import mostly_long

MOST = 20  # choices of a kernel
NAMES = [*[*CASES][::2], *[*CASES][1::2]]  # neighbours are like each other
BUILDS = 1  # of them built in one short test; all are placed and verified


def backend() -> Backend:
    return registry.compiling("cpu")


def spaces(stages: Stages) -> list[Choice]:
    """All choices of all cascades."""
    found = []
    for step in stages.partition.steps:
        assert isinstance(step, KernelStep)
        if isinstance(step, CascadeStep):
            texts = placed_choices(step, backend())
            assert 4 < len(texts) <= MOST
            assert len(set(texts.values())) > len(texts) // 2
            found += [(text_key(texts[()]), knobs) for knobs in texts]
    return found


def check(name: str, dtype: str, most: int | None) -> None:
    run = case(name, dtype)
    stages = lower_by_stages(run.graph, backend())
    assert len(stages.program.launches) == KERNELS.get(name, 1)
    rule, *others = spaces(stages)
    check_choices(name, run, stages, backend(), [rule, *sample(name, others, most)])


@pytest.mark.parametrize("name", mostly_long(NAMES, 3))
def test_one_pass_and_some_choices(name: str) -> None:
    check(name, "float32", BUILDS)


def test_masks_along_what_only_results_have_bound_no_steps() -> None:
    check("relu, values of a triangle", "float32", 0)


@pytest.mark.parametrize(
    "name", mostly_long(["plain", "one query", "log-sum-exp beside", "causal"], 1)
)
def test_in_float64(name: str) -> None:
    check(name, "float64", 1)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_choice(name: str) -> None:
    check(name, "float32", None)


def test_a_choice_that_is_not_legal_is_refused() -> None:
    (step,) = lower_by_stages(case("plain").graph, backend()).partition.steps
    assert isinstance(step, KernelStep)
    with pytest.raises(CompileError, match=r"knob along=rows is not legal here; take one of lanes"):
        backend().schedules.place(step, (("along", "rows"),))
    with pytest.raises(CompileError, match=r"no knob lines here; its knobs are: along"):
        backend().schedules.place(step, (("lines", 8),))


def test_sums_of_what_the_maximum_leaves_out_take_two_sweeps() -> None:
    """Scores that only the maximum leaves out may exceed it: exp(s - m) could overflow."""
    cx = lm.Graph()
    q, k, v = (cx.tensor((2, n, 16), name=name) for name, n in (("q", 70), ("k", 70), ("v", 70)))
    scores = q @ k.mT * 0.2
    kept = cx.arange(70) <= cx.arange(70).unsqueeze(-1)
    top = lm.where(kept, scores, -np.inf).amax(-1, keepdim=True)
    ((scores - top).exp() @ v).output("y")
    (step,) = lower_by_stages(cx.graph(), backend()).partition.steps
    assert isinstance(step, CascadeStep)
    assert [(m.sweep, m.rate) for m in step.cascade.members] == [(0, None), (1, None)]
