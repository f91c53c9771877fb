"""Every schedule by groups computes the same, and by both meanings of its kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

import luminal as lm
from luminal.compiler import compile
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.schedule import Schedule
from luminal.program.steps import NestStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.schedule.groups.facts import Groups
from tests.backends.cpu.schedule.knob_choices import sample
from tests.backends.cpu.schedule.spaces import GRAPHS, case, choices
from tests.backends.groups.both_meanings import backend
from tests.backends.on_device import check_case
from tests.long_share import long_but

BUILDS = 1
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
        program = compile.reschedule(stages, backend(), {key: knobs}).program
        runner = backend().runner(program)
        try:
            check_case(Executable(run.graph, (Variant({}, runner),)), run, 1.0)
        except AssertionError as error:
            error.add_note(f"{name} with {knobs}")
            raise


@pytest.mark.parametrize("name", long_but(SMALL, ("row sum",)))
def test_some_schedules_of_each_kernel(name: str) -> None:
    check(name, BUILDS)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in LANE_BY_LANE])
def test_more_schedules_of_each_kernel(name: str) -> None:
    check(name, 3)


@pytest.mark.parametrize(("in_vectors", "columns", "streams"), [
    (True, 4096, 8), (True, 256, 2), (True, 16, 1), (False, 4096, 1),
])  # fmt: skip
def test_a_vector_sums_columns_by_several_lines_of_a_row(
    in_vectors: bool, columns: int, streams: int
) -> None:
    cx = lm.Graph()
    (cx.tensor((1, 64), name="x") @ cx.tensor((64, columns), name="w")).output("y")
    groups = Groups(16, 16, 20 << 10, is_rule=True, in_vectors=in_vectors)
    device = replace(backend(), groups=groups)  # of two units
    (step,) = lower_by_stages(cx.graph(), device).partition.steps
    assert isinstance(step, NestStep)
    made, _ = device.schedules.explored(step, device.schedules.facts(step), ())
    assert isinstance(made, Schedule)
    assert max(tile.unroll for tile in made.tiles.values()) == streams
