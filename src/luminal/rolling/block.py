"""A block of HLIR (a graph or a Loop body) in numbers, for the search of repeated layers."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import field, fields
from types import FunctionType
from typing import Any

from luminal.base.costs import Costs
from luminal.base.records import dataclass
from luminal.hlir.attributes import Body, ConstantAttrs, CustomAttrs, LoopAttrs, ViewAttrs
from luminal.hlir.graph import topological
from luminal.hlir.ops import Node, Value
from luminal.memory.parameter import Parameter


@dataclass(slots=True)
class NodeTable:
    """`nodes`, operands first. Nodes of equal kind do the same, those of equal content to operands
    of the same types. Leaves given from outside, and float literals, are told apart by type only.
    """

    roots: tuple[Value, ...]
    nodes: Sequence[Node]
    number: dict[Node, int]
    args: list[list[int]]  # numbers of the operands' nodes
    is_leaf: list[bool]  # Constants and Iotas are leaves, too, and slices that `roll` handed out
    costs: Costs  # on the machine that Loops are for
    kind: list[int] = field(default_factory=list)
    content: list[int] = field(default_factory=list)
    types: list[int] = field(default_factory=list)  # equal numbers: equal result types
    trained: Set[Parameter] = frozenset()  # Parameters that the program assigns

    @classmethod
    def of(
        cls,
        roots: Sequence[Value],
        costs: Costs,
        nodes: Sequence[Node] | None = None,
        trained: Set[Parameter] = frozenset(),
    ) -> NodeTable:
        """The nodes below `roots`, if need be looked for."""
        nodes = topological(roots) if nodes is None else nodes
        number = dict(zip(nodes, range(len(nodes)), strict=True))
        args = [[number[arg.node] for arg in node.args] for node in nodes]
        is_leaf = [node.op.group == "leaf" or is_slice(node) for node in nodes]
        block = cls(tuple(roots), nodes, number, args, is_leaf, costs, trained=trained)
        block._compare()
        return block

    def _compare(self) -> None:
        """Finds `kind`, `content` and `types`."""
        kinds: dict[Any, int] = {}
        contents: dict[tuple[int, ...], int] = {}
        type_of, view_of = _Numbers().of, _Numbers().of
        several = False  # has any node so far more than one result?
        seen: list[int] = []  # what a user sees of a node: a literal or iota, or just a type
        for node, operands in zip(self.nodes, self.args, strict=True):
            if len(node.types) == 1:
                type_ = type_of(node.types[0])
            else:
                type_, several = type_of(node.types), True
            attrs = node.attrs
            if attrs is not None:
                if attrs.__class__ is not ViewAttrs:
                    attrs = _attributes(node)
                elif is_slice(node):  # those of all iterations are alike
                    attrs = (attrs.view.shape, attrs.view.map[1:], attrs.view.domain)
                else:
                    attrs = view_of(attrs.view)
            kind = kinds.setdefault((node.op.name, type_, attrs), len(kinds))
            read = [seen[a] for a in operands]
            if several:
                read += [arg.index for arg in node.args]
            self.types.append(type_)
            self.kind.append(kind)
            self.content.append(contents.setdefault((kind, *read), len(contents)))
            seen.append(type_ if operands or not is_recorded_anew(node) else ~kind)


class _Numbers:
    """Numbers of distinct contents, by identity first: most are shared, and hashing is slow."""

    __slots__ = ("_by_content", "_by_identity")

    def __init__(self) -> None:
        self._by_identity: dict[int, int] = {}  # of what the nodes keep alive
        self._by_content: dict[Any, int] = {}

    def of(self, content: Any) -> int:
        """The number of a content, the same for equal contents."""
        number = self._by_identity.get(id(content))
        if number is None:
            number = self._by_content.setdefault(content, len(self._by_content))
            self._by_identity[id(content)] = number
        return number


def is_recorded_anew(node: Node) -> bool:
    """A literal or an iota: a body holds its own, if it is the same in every iteration."""
    return node.op.name in ("Constant", "Iota")


def is_slice(node: Node) -> bool:
    """Is the node a view of one iteration's slice of what a Loop of layers handed out?"""
    if node.op.name != "View" or not node.attrs.view.map or not node.attrs.view.map[0].is_const:
        return False
    whole = node.args[0]
    source = whole.node.attrs
    is_rolled = isinstance(source, LoopAttrs) and any(source.streams)
    return is_rolled and whole.index >= source.carried


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
        held = [_hashable(getattr(kernel, field.name)) for field in fields(kernel)]
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
