"""The greater and lesser of two f32 on CUDA: one instruction from sm_80 on, by which NaN wins."""

from __future__ import annotations

import re

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc, sass
from luminal.base.dtypes import float32
from luminal.codegen.c_family.cuda import CUDA, SAME_BYTES
from luminal.codegen.c_family.spelling import float_extremes
from luminal.compiler.compile import lower_to_program
from luminal.schedule.groups.pipes import F32, I32
from tests.backends.cuda.present import needs_nvrtc

PAIRS = ("x[1], x[2]", "y, 1.f", "1.f, y")
"""Of what only a run knows, and of NaN and one, which the assembler computes."""


def machine_code(architecture: str) -> str:
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    calls = [f"{name}_f32({pair})" for name in ("max", "min") for pair in PAIRS]
    body = "".join(f"    x[{n + 3}] = {call};\n" for n, call in enumerate(calls))
    text = (
        f"{SAME_BYTES}\n{float_extremes(CUDA, float32, CUDA.inline)}\n"
        'extern "C" __global__ void kernel(float *x)\n{\n'
        f"    const float y = same_bytes<float>(0x7fc00001u);\n{body}}}\n"
    )
    return sass.of(nvrtc.compile(text, architecture).code)


@needs_nvrtc
def test_they_are_one_instruction_and_a_nan_wins() -> None:
    text = machine_code("sm_90a")
    counts = sass.counts(text)
    assert counts["FMNMX.NAN"] == 2
    assert {*re.findall(r"FMNMX.NAN .* (!?PT) ;", text)} == {"!PT", "PT"}  # the greater, the lesser
    assert not counts["FSEL"] + counts["FADD"]
    assert "0x7fffffff" in text
    assert "0x3f800000" not in text


@needs_nvrtc
def test_older_chips_compare() -> None:
    counts = sass.counts(machine_code("sm_75"))
    assert counts["FSEL"]
    assert not any(name.startswith("FMNMX") for name in counts)


@pytest.mark.parametrize(("name", "f32", "i32"), [("cuda:sm_90a", 0, 1), ("hip:gfx942", 4, 0)])
def test_the_model_counts_what_there_is(name: str, f32: float, i32: float) -> None:
    """By result, as many more than a sum takes, which is one of f32."""
    made = registry.compiling(name)
    assert isinstance(made, CBackend)
    issued = []
    for op in (lm.maximum, lm.Tensor.__add__):
        cx = lm.Graph()
        op(*(cx.tensor((1 << 20,), name=name) for name in "xz")).output("y")
        (kernel,) = lower_to_program(cx.graph(), made).kernels
        issued.append(made.counted(kernel, {})[0].issued)
    greater, added = ([pipes.get(pipe, 0) for pipe in (F32, I32)] for pipes in issued)
    assert greater == [f32 * added[0], added[1] + i32 * added[0]]
