"""The values of a graph, numbered: the key by which everything in the viewer is related."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from luminal.base.forks import cached_property
from luminal.base.lines import Recorded
from luminal.base.origins import paths
from luminal.hlir.attributes import LoopAttrs
from luminal.hlir.graph import Assign, Graph, topological
from luminal.hlir.ops import Node
from luminal.viz.sources import Sources

Ids = tuple[int, ...]
"""Numbers of values, ascending."""


class Values:
    """Every node of a graph and of its Loops' bodies, each after its operands; `loops` has the
    number of the Loop around each, -1 for none.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.loops: list[int] = []
        self.numbers: dict[Node, int] = {}
        self._arguments: dict[Node, str] = {}
        self._add(graph.nodes(), -1)
        for number, node in enumerate(self.nodes):  # grows while it is walked
            if isinstance(node.attrs, LoopAttrs):
                body = node.attrs.body
                names = ((a, f"argument {k}") for k, a in enumerate(body.arguments))
                self._arguments.update(names)
                self._add([*body.arguments, *topological(body.results)], number)

    def _add(self, nodes: Iterable[Node], loop: int) -> None:
        for node in nodes:
            if node not in self.numbers:
                self.numbers[node] = len(self.nodes)
                self.nodes.append(node)
                self.loops.append(loop)

    @cached_property
    def readers(self) -> list[list[int]]:
        """The numbers of the values that read each."""
        readers: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for arg in self._inputs(node):
                readers[arg].append(number)
        return readers

    def columns(self, sources: Sources) -> dict[str, Any]:
        """The values as columns of the document."""
        ops: dict[str, int] = {}
        names = self._names()
        return {
            "op": [ops.setdefault(node.op.name, len(ops)) for node in self.nodes],
            "shape": ["; ".join(_shape(node)) for node in self.nodes],
            "dtype": ["; ".join(dict.fromkeys(_dtypes(node))) for node in self.nodes],
            "inputs": [self._inputs(node) for node in self.nodes],
            "name": [names.get(number, "") for number in range(len(self.nodes))],
            "loop": self.loops,
            **sources.columns([node.recorded for node in self.nodes]),
            "ops": [*ops],
        }

    def _inputs(self, node: Node) -> list[int]:
        """The numbers of the operands; of a Loop also those of what its body gives."""
        read = [arg.node for arg in node.args]
        if isinstance(node.attrs, LoopAttrs):
            read += [result.node for result in node.attrs.body.results]
        return list(dict.fromkeys(self.numbers[arg] for arg in read))

    def _names(self) -> dict[int, str]:
        """The names of leaves, and of what is asked for."""
        named = {self.numbers[node]: name for node, name in self._arguments.items()}
        for number, node in enumerate(self.nodes):
            leaf = getattr(node.attrs, "state", node.attrs)
            name = getattr(leaf, "name", None)
            if isinstance(name, str):
                named.setdefault(number, name)
        for sink in self.graph.sinks:
            number = self.numbers[sink.value.node]
            name = sink.state.name if isinstance(sink, Assign) else sink.name
            named[number] = ", ".join(dict.fromkeys(filter(None, (named.get(number), name))))
        return named

    def recorded(self, ids: Iterable[int]) -> Iterator[Recorded]:
        """Where these values come from."""
        return (r for n in ids if (r := self.nodes[n].recorded) is not None)


class ByOrigin:
    """The values of a graph by where they were recorded: for what no one related otherwise."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._by_place: dict[tuple[Any, ...], list[int]] = {}
        self._found: dict[tuple[int, str], Ids] = {}
        self._held: list[Recorded] = []
        for number, node in enumerate(values.nodes):
            if node.recorded is not None:
                self._by_place.setdefault(_place(node.recorded), []).append(number)

    def __call__(self, recorded: Recorded | None, op: str = "") -> Ids:
        """The values of one origin, those of the operation where there are any."""
        if recorded is None:
            return ()
        key = (id(recorded), op)
        if key not in self._found:
            self._held.append(recorded)  # so that its id is no other's
            self._found[key] = self._search(recorded, op)
        return self._found[key]

    def _search(self, recorded: Recorded, op: str) -> Ids:
        nodes = self._values.nodes
        wanted = paths(recorded)
        there = [
            number
            for number in self._by_place.get(_place(recorded), ())
            if wanted.matches(nodes[number].recorded)
        ]
        return tuple([n for n in there if nodes[n].op.name == op] or there)


def _place(recorded: Recorded) -> tuple[Any, ...]:
    return recorded.line, recorded.call, recorded.is_gradient


def _shape(node: Node) -> Sequence[str]:
    return [", ".join(map(str, t.shape)) for t in node.types]


def _dtypes(node: Node) -> Sequence[str]:
    return [t.dtype.short for t in node.types]
