"""The text form of HLIR: one line per node, operands first; `hlir.parser` reads it back.

    graph {
      dim s in 1..512
      require past + s <= 512
      %0 = Input x : f32[s, 64]
      %1 = View %0 [i1, i0] where (i0 < 3) : f32[64, s]
      %2 = Sort %1 axis=0 : f32[64, s], i64[64, s]
      output y = %2.0
      assign k_cache = %2.0
    }

A Loop's line ends in the block of its body, which has its own numbers and ends in `yield`. Names
that are no plain words stand in double quotes; equal names of different States or Parameters get
suffixes.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from luminal.hlir.attributes import (
    AxisAttrs,
    CollectiveAttrs,
    ConstantAttrs,
    CustomAttrs,
    CustomKernel,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    ScanAttrs,
    ScatterAttrs,
    ShardAttrs,
    StateAttrs,
    ViewAttrs,
    WeightAttrs,
)
from luminal.hlir.graph import Assign, Graph, Sink, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.substitute import all_nodes
from luminal.memory.state import Assignable
from luminal.shape.expression import TRUE, Expression, Symbol
from luminal.shape.text import quoted as dim_name

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
HEX_BYTES = 64  # a literal up to this size is printed in hex with its values in a comment
INDENT = "  "

Owner: TypeAlias = Assignable | CustomKernel
"""What stands outside the graph and is named in its text."""


def to_text(graph: Graph) -> str:
    """The whole graph as text that `parse` reads back."""
    printer = Printer(graph)
    lines = ["graph {"]
    lines += [INDENT + _dim_text(dim) for dim in graph.dims]
    lines += [f"{INDENT}require {requirement}" for requirement in graph.requirements]
    lines += printer.block(graph.nodes(), INDENT)
    lines += [INDENT + printer.sink(sink) for sink in graph.sinks]
    return "\n".join([*lines, "}"]) + "\n"


def _dim_text(dim: Symbol) -> str:
    return f"dim {dim_name(dim.name)} in {dim.lo}..{dim.hi}"


def quote(name: str) -> str:
    """A name as it is printed: bare if it is a word, else a JSON string."""
    return name if WORD.fullmatch(name) else json.dumps(name)


class Printer:
    """Texts of the nodes of one graph, with the names they have in `to_text`."""

    def __init__(self, graph: Graph) -> None:
        self._numbers: dict[Node, int] = {}
        self._owners: dict[Owner, str] = {}
        self._taken: set[tuple[bool, str]] = set()
        self._number(graph.nodes())
        self._collect(graph)

    @classmethod
    def of_body(cls, graph: Graph, attrs: LoopAttrs) -> Printer:
        """The Printer of the nodes in the body of a Loop of `graph`."""
        printer = cls(graph)
        printer._numbers = {}
        printer._number([*attrs.body.arguments, *_inner(attrs)])
        return printer

    def _number(self, nodes: Iterable[Node]) -> None:
        for number, node in enumerate(nodes):
            self._numbers[node] = number

    def _collect(self, graph: Graph) -> None:
        """Names each State, Parameter and kernel, in the order of their first mention."""
        for node in graph.nodes():
            match node.attrs:
                case StateAttrs(state=state):
                    # In the order of the text, so that the suffixes of equal names are the same in
                    # each run and texts can be compared.
                    self._name(state)
                case WeightAttrs(parameter=parameter):
                    self._name(parameter)
                case LoopAttrs(assigned=assigned):
                    for held in itertools.chain.from_iterable(filter(None, assigned)):
                        self._name(held)
        for sink in graph.sinks:
            if isinstance(sink, Assign):
                self._name(sink.state)
        for node in all_nodes(graph):
            # Kernels in bodies as well: the text of a body mentions them, and `parse` asks for all
            # by name.
            if isinstance(node.attrs, CustomAttrs):
                self._name(node.attrs.kernel)

    def _name(self, owner: Owner) -> None:
        if owner in self._owners:
            return
        name, count, kind = owner.name, 0, isinstance(owner, CustomKernel)
        # States are told apart by identity, and may have one name; the text has only names.
        while (kind, name) in self._taken:
            count += 1
            name = f"{owner.name}.{count}"
        self._taken.add((kind, name))
        self._owners[owner] = name

    def owner(self, owner: Owner) -> str:
        """The name that the text has for a State, Parameter or custom kernel."""
        return self._owners.get(owner, owner.name)

    def block(self, nodes: Sequence[Node], indent: str) -> list[str]:
        """The lines of `nodes`, each after its operands."""
        return [line for node in nodes for line in self.node(node, indent)]

    def node(self, node: Node, indent: str = "") -> list[str]:
        """The line of one node; a Loop's is followed by its body."""
        types = ", ".join(map(str, node.types))
        words = " ".join(word for word in (node.op.name, *self._content(node)) if word)
        line = f"{indent}%{self._numbers.get(node, '?')} = {words} : {types}"
        if isinstance(node.attrs, LoopAttrs):
            return [line + " {", *self._body(node.attrs, indent + INDENT), indent + "}"]
        if isinstance(node.attrs, ConstantAttrs):
            line += _preview(node.attrs)
        return [line]

    def sink(self, sink: Sink) -> str:
        """The line of one sink."""
        if isinstance(sink, Assign):
            return f"assign {quote(self.owner(sink.state))} = {self.value(sink.value)}"
        word = "hidden" if sink.hidden else "output"
        return f"{word} {quote(sink.name)} = {self.value(sink.value)}"

    def value(self, value: Value) -> str:
        """`%3`, or `%3.1` for a result of a node that has several."""
        number = f"%{self._numbers.get(value.node, '?')}"
        return f"{number}.{value.index}" if len(value.node.types) > 1 else number

    def _values(self, values: Iterable[Value]) -> str:
        return ", ".join(map(self.value, values))

    def _content(self, node: Node) -> tuple[str, ...]:
        """The words between the op's name and its types."""
        args = node.args
        match attrs := node.attrs:
            case InputAttrs(name=name):
                return (quote(name),)
            case WeightAttrs(name=name, parameter=parameter):
                owner = quote(self.owner(parameter))
                return (quote(name), "" if owner == quote(name) else f"of {owner}")
            case StateAttrs(state=state):
                return (quote(self.owner(state)),)
            case ConstantAttrs(data=data):
                return (_literal(data),)
            case IotaAttrs(expr=expr):
                return (f"({expr})",)
            case AxisAttrs(axis=axis):
                return (self._values(args), f"axis={axis}")
            case ScanAttrs(kind=kind, axis=axis):
                return (kind, self._values(args), f"axis={axis}")
            case GatherAttrs(map=entries):
                return (self.value(args[0]), self._map(entries, args[1:]))
            case ScatterAttrs(map=entries, mode=mode):
                return (mode, self._values(args[:2]), self._map(entries, args[2:]))
            case ViewAttrs(view=view):
                domain = "" if view.domain == TRUE else f"where ({view.domain})"
                return (self._values(args), self._map(view.map, ()), domain)
            case LoopAttrs():
                return self._loop(node)
            case ShardAttrs(spec=spec):
                return (self._values(args), f"spec={json.dumps(spec)}")
            case CollectiveAttrs():
                over = f"axis={quote(attrs.axis)} ranks={attrs.ranks}"
                by = f"by={attrs.reduction}" if attrs.reduction else ""
                pairs = f"pairs={json.dumps(attrs.pairs)}" if attrs.pairs else ""
                turn = f"turn={attrs.turn}" if attrs.turn else ""
                return (attrs.kind, self._values(args), over, by, pairs, turn)
            case CustomAttrs(kernel=kernel, chunks=chunks, flops=flops):
                work = f"chunks=({chunks}) flops=({flops})"
                return (quote(self.owner(kernel)), work, self._values(args))
        return (self._values(args),)

    def _map(self, entries: Sequence[Expression | int], indices: Sequence[Value]) -> str:
        texts = (
            self.value(indices[entry]) if isinstance(entry, int) else str(entry)
            for entry in entries
        )
        return f"[{', '.join(texts)}]"

    def _loop(self, node: Node) -> tuple[str, ...]:
        attrs: LoopAttrs = node.attrs
        carried = node.args[: attrs.carried]
        position = attrs.carried
        streams = []
        for count in attrs.streams:
            leaves = node.args[position : position + max(count, 1)]
            position += max(count, 1)
            streams.append(f"[{self._values(leaves)}]" if count else self.value(leaves[0]))
        bound = [
            f"y{number}=[{', '.join(quote(self.owner(state)) for state in states)}]"
            for number, states in enumerate(attrs.assigned)
            if states is not None
        ]
        return (
            f"trips=({attrs.trips})",
            f"carried=[{self._values(carried)}]",
            f"streams=[{', '.join(streams)}]",
            f"invariants=[{self._values(node.args[position:])}]",
            *bound,
        )

    def _body(self, attrs: LoopAttrs, indent: str) -> list[str]:
        """The body's arguments in order, its other nodes, and what it yields."""
        arguments = attrs.body.arguments
        inner = _inner(attrs)
        # A body is a graph of its own: its numbers begin at 0, and it sees nothing from around it.
        outer = self._numbers
        self._numbers = {}
        self._number([*arguments, *inner])
        lines = self.block([*arguments, *inner], indent)
        lines.append(f"{indent}yield {self._values(attrs.body.results)}")
        self._numbers = outer
        return lines


def _inner(attrs: LoopAttrs) -> list[Node]:
    """The nodes of a Loop's body that are no arguments."""
    arguments = set(attrs.body.arguments)
    return [node for node in topological(attrs.body.results) if node not in arguments]


def _literal(data: bytes) -> str:
    # Bits, not decimals: what is parsed back must be the same constant, NaN's payload included.
    if len(data) <= HEX_BYTES:
        return f"0x{data.hex()}"
    return f"zlib={base64.b64encode(zlib.compress(data, 9)).decode()}"


def _preview(attrs: ConstantAttrs) -> str:
    """The values of a small literal as a comment."""
    size = attrs.dtype.size * math.prod(attrs.shape)
    return f"  # {attrs.array.tolist()}" if len(attrs.data) == size <= HEX_BYTES else ""
