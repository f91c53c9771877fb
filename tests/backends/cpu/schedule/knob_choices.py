"""Every choice of a kernel's space is placed and verified; some are built, run and compared."""

from __future__ import annotations

import random

from luminal.backends.backend import Backend
from luminal.backends.reference import evaluate_with_bounds
from luminal.compiler import compile
from luminal.compiler.compile import Stages
from luminal.kernel.knobs import Knobs
from luminal.kernel.tile_text import to_text
from luminal.program.steps import KernelStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.fuzz.cpu_run import check_run
from tests.fuzz.graphs import Case

Choice = tuple[str, Knobs]  # the kernel's name in `Tuned`, and its knobs


def placed_choices(step: KernelStep, backend: Backend) -> dict[Knobs, str]:
    """The text of the kernel under all its knobs; tests verify what is placed."""
    space = backend.schedules.space(step)
    assert space[0] == ()
    assert len(set(space)) == len(space)
    assert all(list(knobs) == sorted(knobs) for knobs in space)
    return {knobs: to_text(backend.schedules.place(step, knobs).kernel) for knobs in space}


def sample(name: str, choices: list[Choice], most: int | None) -> list[Choice]:
    """At most so many of the choices, always the same."""
    if most is None or most >= len(choices):
        return choices
    return random.Random(name).sample(choices, most)


def check_choices(
    name: str, case: Case, stages: Stages, backend: Backend, choices: list[Choice]
) -> None:
    """The program computes what the graph means with each of the choices."""
    bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
    for key, knobs in choices:
        program = compile.reschedule(stages, backend, {key: knobs}).program
        runner = backend.runner(program)
        exe = Executable(case.graph, (Variant({}, runner),))
        try:
            check_run(exe, runner, case, 1.0, bounds)
        except AssertionError as error:
            raise AssertionError(f"{name} with {knobs}: {error}") from error
