"""What an H100 should take for default programs by the static model: what is bound by memory within
a quarter of a copy of the same bytes, and a token of a small Llama few launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.compiler.compile import lower_to_program
from luminal.loaders.fields import Fields
from luminal.models.architectures import architecture_of
from luminal.models.decoder import Decoder
from luminal.models.shapes import shape
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Program
from luminal.schedule.groups.bounds import COPIED
from luminal.session.graph import narrowed
from tests.backends.c_family.accesses import LARGE

OF_MEMORY = (
    "softmax", "gelu", "layer norm", "cumulative sum", "sum of all", "sum of columns",
    "sum of rows", "one row", "one row of bf16",
)  # fmt: skip
FACTOR = 1.25  # of the time of a copy
CONTEXT = 128


def backend() -> CBackend:
    made = registry.compiling("cuda:sm_90a")
    assert isinstance(made, CBackend)
    return made


def seconds(program: Program, dims: dict[str, int]) -> float:
    """What all launches should take, without what lies between them."""
    made = backend()
    total = 0.0
    for launch, times in launched(program.launches, dims):
        kernel = program.kernels[launch.kernel]
        values = (int(value.evaluate(dims)) for value in launch.params)
        params = {p.name: value for p, value in zip(kernel.params, values, strict=True)}
        size = float(launch.bytes.evaluate(dims))
        total += (
            times * made.predict(kernel, params, float(launch.flops.evaluate(dims)), size).seconds
        )
    return total


def launched(
    launches: tuple[Launch, ...], dims: dict[str, int], times: int = 1
) -> Iterator[tuple[KernelLaunch, int]]:
    """Each launch, and how often it runs."""
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            yield from launched(launch.body, dims, times * int(launch.trips.evaluate(dims)))
        else:
            yield launch, times


@pytest.mark.parametrize("name", OF_MEMORY)
def test_what_is_bound_by_memory(name: str) -> None:
    program = lower_to_program(LARGE[name](), backend())
    size = sum(float(launch.bytes.evaluate({})) for launch, _ in launched(program.launches, {}))
    chip = backend().chip
    assert chip is not None
    assert seconds(program, {}) < FACTOR * size / (COPIED * chip.memory)


def test_a_token_of_a_llama() -> None:
    """Of 1.2 billion parameters in bf16, behind 128 others: 1.5 ms, and 6 launches a layer."""
    keys, place = shape("llama", "1b"), Path("the shape")
    model = Decoder(architecture_of(keys, place).config(Fields(keys, place)), "bf16")
    cx = lm.Graph()
    past = cx.dim("past", 0, 2 * CONTEXT - 1)
    ids = cx.tensor((1,), lm.int32, "ids")
    model(ids, model.make_caches(2 * CONTEXT), past).output("logits")
    program = lower_to_program(narrowed(cx), backend())
    (layers,) = (launch for launch in program.launches if isinstance(launch, LoopLaunch))
    assert len(layers.body) <= 6
    assert 0.7e-3 < seconds(program, {"past": CONTEXT}) < 1.5e-3
