"""What a handler is, and how most are made: from a function of one node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps

from luminal.egraph.guards import Guards
from luminal.egraph.table import New, Node, Table

Found = Iterator[tuple[int, "New | int"]]
Handler = Callable[[Table, Iterable[tuple[int, Node]], Guards], Found]
"""Gets the e-graph, (class, node) of the operations that the rule looks at, and the rule's guards,
which it asks about everything that it makes.
"""

OfNode = Callable[[Table, int, Node, Guards], "New | int | None"]


def each(*ops: str) -> Callable[[OfNode], Handler]:
    """A handler from a function that gives the equal of one node, or None for no match."""

    def lift(function: OfNode) -> Handler:
        @wraps(function)
        def handler(table: Table, nodes: Iterable[tuple[int, Node]], guards: Guards) -> Found:
            for number, node in nodes:
                if (not ops or node.op in ops) and number not in node.args:
                    new = function(table, number, node, guards)
                    if new is not None:
                        yield number, new

        return handler

    return lift
