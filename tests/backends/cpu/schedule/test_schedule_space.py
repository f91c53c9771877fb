"""Every schedule of a kernel's space computes the same: knobs change speed, never values."""

from __future__ import annotations

import pytest

from luminal.backends import registry
from luminal.base.errors import CompileError
from luminal.compiler.compile import lower_by_stages
from luminal.program.steps import KernelStep
from tests.backends.cpu.schedule.knob_choices import check_choices, sample
from tests.backends.cpu.schedule.spaces import GRAPHS, case, choices
from tests.long_share import long_but

BUILDS = 2  # choices of a graph that are built in one test; all are placed and verified
SHORT = (
    "transposed", "concat", "softmax", "column sums of a triangle", "matmul and epilogue",
    "vector matrix", "dynamic matmul", "max pool", "several roots", "bf16 turned", "i8 two",
)  # fmt: skip


def check(name: str, most: int | None) -> None:
    backend, run = registry.compiling("cpu"), case(name)
    stages = lower_by_stages(run.graph, backend)
    check_choices(name, run, stages, backend, sample(name, choices(stages, backend), most))


@pytest.mark.parametrize("name", long_but(GRAPHS, SHORT))
def test_some_schedules_of_each_kernel(name: str) -> None:
    check(name, BUILDS)


@pytest.mark.long
@pytest.mark.parametrize("name", GRAPHS)
def test_every_schedule_of_each_kernel(name: str) -> None:
    check(name, None)


def test_a_knob_that_a_kernel_lacks_is_refused() -> None:
    backend = registry.compiling("cpu")
    (step,) = lower_by_stages(case("matmul").graph, backend).partition.steps
    assert isinstance(step, KernelStep)
    with pytest.raises(CompileError, match=r"Contract: no knob lines here; its knobs are: vector"):
        backend.schedules.place(step, (("lines", 8),))
    with pytest.raises(CompileError, match=r"knob tile=99x9 is not legal here; take one of \d+x\d"):
        backend.schedules.place(step, (("tile", "99x9"),))
