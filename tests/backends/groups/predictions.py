"""What the static model predicts of programs for an H100."""

from __future__ import annotations

from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import walk
from luminal.schedule.groups.bounds import COPIED


def beside_a_copy(graph: Graph) -> tuple[float, float, int]:
    """The seconds of a program's kernels, those of a copy of what it reads and gives, and the
    number of launches.
    """
    backend = registry.compiling("cuda:sm_90a")
    assert isinstance(backend, CBackend)
    assert backend.chip is not None
    program = lower_to_program(graph, backend)
    launches = list(walk(program.launches))
    seconds = sum(
        backend.predict(program.kernels[launch.kernel], {}, 0.0, launch.bytes.value).seconds
        for launch in launches
    )
    kinds = (BufferKind.INPUT, BufferKind.OUTPUT)
    moved = sum(buffer.bytes.value for buffer in program.buffers if buffer.kind in kinds)
    return seconds, moved / (COPIED * backend.chip.memory), len(launches)
