"""HLIR as a Graphviz picture: a box a node, an edge a value."""

from __future__ import annotations

from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node
from luminal.hlir.printer import Printer

LABEL = 60  # characters of a node's line that are shown
_COLORS = {"leaf": "lightblue", "view": "lightgray", "reduce": "lightsalmon"}


def to_dot(graph: Graph) -> str:
    """The graph in the DOT language; Loop bodies are not entered."""
    printer = Printer(graph)
    names = {node: f"n{number}" for number, node in enumerate(graph.nodes())}
    lines = ["digraph hlir {", "  node [shape=box, style=filled, fillcolor=white];"]
    for node, name in names.items():
        color = _COLORS.get(node.op.group, "white")
        lines.append(f"  {name} [label={text(_label(printer, node))}, fillcolor={color}];")
        for arg in node.args:
            # Only nodes with several results need the number at the edge: at all others it would be
            # a 0 that says nothing.
            several = len(arg.node.types) > 1
            label = f" [label={text(str(arg.index))}]" if several else ""
            lines.append(f"  {names[arg.node]} -> {name}{label};")
    for number, sink in enumerate(graph.sinks):
        label = printer.sink(sink).partition(" = ")[0]
        lines.append(f"  s{number} [label={text(label)}, shape=ellipse, fillcolor=lightgreen];")
        lines.append(f"  {names[sink.value.node]} -> s{number};")
    return "\n".join([*lines, "}"]) + "\n"


def text(label: str) -> str:
    """A label as a DOT string."""
    escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _label(printer: Printer, node: Node) -> str:
    """`Sum %1 axis=1` over `f32[64]`."""
    line = printer.node(node)[0].partition(" = ")[2]
    words, _, types = line.removesuffix(" {").partition("  #")[0].rpartition(" : ")
    return f"{words if len(words) <= LABEL else words[:LABEL] + ' ...'}\n{types}"
