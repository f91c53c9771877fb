"""The names that nodes of one graph read: their values, and those of the graphs around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto

from luminal.base.records import dataclass

Attributes = Mapping[str, AttributeProto]


@dataclass
class Scope:
    """The names of one graph or function body, and what lies around it.

    `last` counts for each name the node that reads it last: what nobody reads any more is dropped.
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    attributes: Attributes = field(default_factory=dict)  # of the function that is being inlined
    values: dict[str, Any] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)

    def find(self, name: str) -> Scope | None:
        """The scope that holds `name`, from inside out."""
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.parent
        return scope


def last_reads(graph: GraphProto) -> dict[str, int]:
    """For each name the number of the node that reads it last, in bodies inside too.

    Outputs are read at the end; what is written but never read is not kept.
    """
    last: dict[str, int] = {}
    for number, node in enumerate(graph.node):
        last.update(dict.fromkeys(_reads(node), number))
    last.update({output.name: len(graph.node) for output in graph.output})
    for number, node in enumerate(graph.node):
        for name in node.output:
            last.setdefault(name, number)
    return last


def _reads(node: NodeProto) -> set[str]:
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names |= _reads(inner)
            names |= {output.name for output in graph.output}
    return names


def resolved(attribute: AttributeProto, scope: Scope) -> AttributeProto:
    """An attribute, or what it refers to of the function around it (an empty one if nothing)."""
    if not attribute.ref_attr_name:
        return attribute
    return scope.attributes.get(attribute.ref_attr_name, AttributeProto(name=attribute.name))
