"""The reference as a backend."""

from __future__ import annotations

from luminal.backends.reference.device import ReferenceRunner
from luminal.base.records import dataclass
from luminal.hlir.graph import Graph
from luminal.memory.arrays import HOST, Host


@dataclass(frozen=True, slots=True)
class Reference:
    """NumPy over HLIR."""

    name: str = "reference"

    @property
    def memory(self) -> Host:
        """The host's."""
        return HOST

    def interpret(self, graph: Graph) -> ReferenceRunner:
        """The graph, evaluated node by node."""
        return ReferenceRunner(graph)


def current(number: int = 0) -> Reference:
    """It is the same everywhere."""
    return Reference()


def count() -> int:
    """There is one."""
    return 1
