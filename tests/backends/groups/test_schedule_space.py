"""Every schedule by groups computes the same, and by both meanings of its kernel."""

from __future__ import annotations

import pytest

from luminal import compiler
from luminal.compiler import lower_by_stages
from luminal.runtime.executable import Executable, Variant
from tests.backends.cpu.knob_choices import sample
from tests.backends.cpu.test_schedule_space import GRAPHS, case, choices
from tests.backends.groups.both_meanings import backend
from tests.backends.on_device import check_case

BUILDS = 2
LANE_BY_LANE = (
    "matmul", "matmul and epilogue", "linear", "skinny", "dynamic matmul", "batched", "gram",
    "conv 1x1", "conv 3x3", "stem",
)  # fmt: skip
"""Products in blocks take minutes so: test_products.py has smaller ones."""
SMALL = ("row sum", "column sums", "softmax", "layer norm", "transposed", "several roots")


def check(name: str, most: int | None) -> None:
    run = case(name)
    stages = lower_by_stages(run.graph, backend())
    for key, knobs in sample(name, choices(stages, backend()), most):
        program = compiler.reschedule(stages, backend(), {key: knobs}).program
        runner = backend().runner(program)
        try:
            check_case(Executable(run.graph, (Variant({}, runner),)), run, 1.0)
        except AssertionError as error:
            error.add_note(f"{name} with {knobs}")
            raise


@pytest.mark.parametrize("name", SMALL)
def test_some_schedules_of_each_kernel(name: str) -> None:
    check(name, BUILDS)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in LANE_BY_LANE])
def test_more_schedules_of_each_kernel(name: str) -> None:
    check(name, 3)
