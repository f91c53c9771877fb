"""The e-graph in Python, as handlers and decoding see it: classes, their nodes and analyses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import field
from typing import Any, NamedTuple

from luminal.algebra.terms import Phase
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.hlir.ops import OPS
from luminal.shape.expression import Symbol


class Node(NamedTuple):
    """An operation on classes. `attrs` by op:

    Leaf LeafAttrs, Literal its text, Index Expression, Sum, Prod and Max the bound axes, Cast and
    Bitcast and Literal and Index also have their dtype in `dtype`; At entries as a Term has them,
    Opaque ops OpaqueAttrs.
    """

    op: str
    attrs: Any
    args: tuple[int, ...]
    dtype: DType | None = None  # where operands and attrs do not say it

    @property
    def is_pointwise(self) -> bool:
        return self.op in OPS and OPS[self.op].is_pointwise


class New(NamedTuple):
    """A node that a handler makes, on classes and other new nodes."""

    op: str
    attrs: Any
    args: tuple[New | int, ...]
    dtype: DType | None = None


@dataclass(slots=True)
class Table:
    """`nodes` by class, in order of their making; `refs`: the class of each loaded node;
    `program`: class and operation of the program's own terms.
    """

    nodes: dict[int, list[Node]] = field(default_factory=lambda: defaultdict(list))
    axes: dict[int, frozenset[Symbol]] = field(default_factory=dict)
    dtype: dict[int, DType] = field(default_factory=dict)
    phase: dict[int, Phase] = field(default_factory=dict)
    refs: dict[int, int] = field(default_factory=dict)
    program: set[tuple[int, str]] = field(default_factory=set)
    made: dict[Node, str] = field(default_factory=dict)
    home: dict[Node, int] = field(default_factory=dict)
    subsumed: set[Node] = field(default_factory=set)

    def add(self, number: int, node: Node) -> None:
        """A node of a class."""
        self.home[node] = number
        self.nodes[number].append(node)

    def literal(self, number: int) -> Node | None:
        """The literal in a class, if any."""
        return next((node for node in self.nodes[number] if node.op == "Literal"), None)

    def of(self, number: int, op: str) -> Iterable[Node]:
        """The nodes of one operation in a class, but those that hold the class itself."""
        return (node for node in self.nodes[number] if node.op == op and number not in node.args)

    def find(self, new: New | int) -> int | None:
        """The class of a new node, if it is there already."""
        if isinstance(new, int):
            return new
        args = [self.find(arg) for arg in new.args]
        if None in args:
            return None
        return self.home.get(Node(new.op, new.attrs, tuple(args), new.dtype))  # type: ignore[arg-type]
