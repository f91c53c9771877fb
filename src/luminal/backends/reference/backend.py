"""The reference as a backend."""

from __future__ import annotations

from luminal.backends.reference.device import ReferenceRunner
from luminal.base.records import dataclass
from luminal.hlir.graph import Graph
from luminal.memory.arrays import HOST, Host


@dataclass(frozen=True, slots=True)
class Reference:
    """The backend of NumPy over HLIR."""

    name: str = "reference"

    @property
    def memory(self) -> Host:
        """The memory of the host, where the reference computes."""
        return HOST

    def interpret(self, graph: Graph) -> ReferenceRunner:
        """The graph, evaluated node by node."""
        return ReferenceRunner(graph)


def current(number: int = 0) -> Reference:
    """The one reference backend: it is the same everywhere."""
    return Reference()


def count() -> int:
    """The number of devices, which is one."""
    return 1
