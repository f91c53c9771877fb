"""A decode step as one persistent kernel, compiled for chips that are not here: what it takes."""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.backends.cuda import nvrtc
from luminal.backends.hip.backend import Hip
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.persistent import spell_tiles_together
from luminal.compiler.compile import lower_to_program
from luminal.kernel.tile_ir import Kernel
from tests.backends.c_family import offline
from tests.backends.groups.decode_graphs import decode
from tests.long_share import mostly_long
from tests.simt import offline as compilers

MOST_REGISTERS = {
    "sm_80": 168, "sm_90a": 168, "sm_100a": 200, "gfx90a": 192, "gfx942": 192, "gfx1100": 160
}  # fmt: skip
"""160, 160, 190, 179, 183 and 142 as measured: three groups of 128 lanes stay on a unit of
NVIDIA's.
"""


def kernels(name: str) -> tuple[Kernel, ...]:
    return lower_to_program(decode(2), offline.backend(name)).kernels


@pytest.mark.long
@pytest.mark.parametrize("architecture", mostly_long(("sm_90a", "sm_80", "sm_100a"), 1))
def test_nothing_is_spilled_on_nvidia(architecture: str) -> None:
    offline.skip_without("cuda")
    text = spell_tiles_together(kernels("cuda"), offline.backend("cuda").dialect).text
    code = nvrtc.compile(text, architecture)
    assert (code.spilled, code.stack) == (0, 0)
    assert code.registers <= MOST_REGISTERS[architecture]


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942", "gfx1100"])
def test_nothing_is_spilled_on_amd(architecture: str) -> None:
    offline.skip_without("hip")
    text = spell_tiles_together(kernels("hip"), offline.backend("hip").dialect).text
    taken = compilers.hip_resources(text, architecture)
    assert (taken.spilled, taken.stack) == (0, 0)
    assert taken.registers <= MOST_REGISTERS[architecture]


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["gfx90a", "gfx942", "gfx1100"])
def test_waves_that_are_idle_leave_others_their_barrier(architecture: str) -> None:
    offline.skip_without("hip")
    cx = lm.Graph()
    x, weights = cx.tensor((8, 64), name="x"), [cx.tensor((64, 64), name=n) for n in ("v", "w")]
    normal = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    (x + (normal @ weights[0]).silu() @ weights[1]).softmax(-1).output("y")
    backend = Hip.named("gfx942")
    text = spell_tiles_together(lower_to_program(cx.graph(), backend).kernels, HIP).text
    assert "PART_BARRIER(64)" in text
    taken = compilers.hip_resources(text, architecture)
    assert (taken.spilled, taken.stack) == (0, 0)
