"""A block of HLIR (a graph or a Loop body) in numbers, for the search of repeated layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from types import FunctionType
from typing import Any

from luminal.hlir.attributes import Body, ConstantAttrs, CustomAttrs, LoopAttrs
from luminal.hlir.graph import topological
from luminal.hlir.ops import Node, Value

Content = dict[Any, int]
"""Numbers of distinct contents."""


@dataclass(slots=True)
class Block:
    """`nodes`, operands first. Nodes of equal content do the same to operands of the same types;
    leaves given from outside, and float literals, are told apart by their type only.
    """

    roots: tuple[Value, ...]
    nodes: Sequence[Node]
    number: dict[Node, int]
    args: list[tuple[int, ...]] = field(default_factory=list)  # numbers of the operands' nodes
    content: list[int] = field(default_factory=list)
    types: list[int] = field(default_factory=list)  # equal numbers: equal result types
    is_leaf: list[bool] = field(default_factory=list)  # Constants and Iotas are leaves, too

    @classmethod
    def of(cls, roots: Sequence[Value], nodes: Sequence[Node] | None = None) -> Block:
        """The nodes below `roots`, if need be looked for."""
        nodes = topological(roots) if nodes is None else nodes
        block = cls(tuple(roots), nodes, {node: k for k, node in enumerate(nodes)})
        contents: Content = {}
        types: Content = {}
        number = block.number
        met: dict[tuple[int, ...], int] = {}  # types by identity: most are shared, hashing is slow
        for node in block.nodes:
            block.args.append(tuple([number[arg.node] for arg in node.args]))
            identity = tuple(map(id, node.types))
            type_ = met.get(identity)
            if type_ is None:
                type_ = met[identity] = types.setdefault(node.types, len(types))
            block.types.append(type_)
            block.is_leaf.append(node.op.group == "leaf")
            attrs = None if node.attrs is None else _attributes(node)
            key = (node.op.name, type_, attrs)
            block.content.append(contents.setdefault(key, len(contents)))
        return block


def is_recorded_anew(node: Node) -> bool:
    """A literal or an iota: a body holds its own, if it is the same in every iteration."""
    return node.op.name in ("Constant", "Iota")


def _attributes(node: Node) -> Any:
    """What of a node's attributes makes it another operation."""
    attrs = node.attrs
    if isinstance(attrs, ConstantAttrs) and attrs.dtype.is_float:
        return None
    return None if node.op.name in ("Input", "Weight", "State") else _content(attrs)


def _content(attrs: Any) -> Any:
    """Attributes with what is known by identity replaced by what it holds."""
    if isinstance(attrs, LoopAttrs):
        return (attrs.trips, _body(attrs.body), *attrs[2:])
    if isinstance(attrs, CustomAttrs):
        kernel = attrs.kernel
        held = [_hashable(getattr(kernel, each.name)) for each in fields(kernel)]
        return (*held, *attrs[1:])
    return attrs


def _body(body: Body) -> tuple[Any, ...]:
    """Equal for bodies that compute the same, whatever their nodes are."""
    number = {node: k for k, node in enumerate(body.arguments)}
    lines: list[Any] = [node.types for node in body.arguments]
    for node in topological(body.results):
        if node not in number:
            number[node] = len(number)
            args = tuple([(number[arg.node], arg.index) for arg in node.args])
            lines.append((node.op.name, _content(node.attrs), node.types, args))
    return (*lines, tuple([(number[result.node], result.index) for result in body.results]))


def _hashable(value: Any) -> Any:
    """Equal for equal values and for functions made anew by the same definition."""
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        held += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return (value.__code__, id(value.__globals__), *map(_identity, held))
    return _identity(value)


def _identity(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
