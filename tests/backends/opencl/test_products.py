"""Products in blocks on an OpenCL device: choices mean the same."""

from __future__ import annotations

import pytest

from luminal.compiler import compile
from luminal.compiler.compile import lower_by_stages
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.cpu.schedule.knob_choices import sample
from tests.backends.cpu.schedule.spaces import GRAPHS, case
from tests.backends.groups.product_graphs import products
from tests.backends.on_device import check_case
from tests.backends.opencl import devices
from tests.long_share import mostly_long

PRODUCTS = [
    "matmul", "matmul and epilogue", "linear", "skinny", "dynamic matmul", "batched", "gram",
    "conv 1x1", "conv 3x3", "stem",
]  # fmt: skip
assert set(PRODUCTS) <= set(GRAPHS)


def check(name: str, most: int) -> None:
    backend, run = devices.backend.current(), case(name)
    stages = lower_by_stages(run.graph, backend)
    choices = products(stages, backend)
    assert choices
    for key, knobs in sample(name, choices, most):
        program = compile.reschedule(stages, backend, {key: knobs}).program
        exe = Executable(run.graph, (Variant({}, backend.runner(program)),))
        try:
            check_case(exe, run, 1.0)
        except Exception as error:
            error.add_note(f"{name} with {knobs}")
            raise


@pytest.mark.parametrize("name", mostly_long(["matmul", "dynamic matmul", "conv 3x3"], 2))
def test_a_choice_of_blocks(name: str) -> None:
    check(name, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", PRODUCTS)
def test_more_choices_of_blocks(name: str) -> None:
    check(name, 8)
