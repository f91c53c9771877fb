"""Every kind of kernel as machine code for RTX Blackwell, the chip with the fewest of the
instructions that kernels are made of: registers are enough, and none asks for what it has not.
"""

from __future__ import annotations

import pytest

from luminal.backends.cuda import nvrtc
from luminal.backends.cuda.backend import Cuda
from luminal.compiler.compile import lower_to_program
from luminal.frontend.graph import Recorder
from tests.backends.cuda.kinds import KINDS
from tests.backends.cuda.present import needs_nvrtc


def test_what_the_chip_has() -> None:
    """99 KB of shared memory for a group, no clusters, and no products that read it."""
    groups = Cuda.named("sm_120a").groups
    assert (groups.shared_bytes, groups.cluster, groups.left) == (99 << 10, 1, ())


@pytest.mark.long
@needs_nvrtc
@pytest.mark.parametrize("kind", KINDS)
def test_machine_code(kind: str) -> None:
    made, graph = Cuda.named("sm_120a"), KINDS[kind]()
    recorded = graph.graph() if isinstance(graph, Recorder) else graph
    for kernel in lower_to_program(recorded, made).kernels:
        code = nvrtc.compile(made.text(kernel), "sm_120a")
        assert code.spilled == code.stack == 0
