"""The e-graph to plain classes: default spellings, costs, fingerprints, the best few of each."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from luminal.algebra.frames import is_never_empty, upper
from luminal.algebra.lower import Lowered
from luminal.algebra.terms import OPAQUE, Phase, Term, term_order
from luminal.base.costs import Weights
from luminal.base.records import dataclass
from luminal.egraph.classes import EClass, Spelling
from luminal.egraph.intern import leaf_text, literal_text, positions
from luminal.egraph.table import Node, Table
from luminal.hlir.attributes import Slot
from luminal.hlir.monoid import REDUCTIONS
from luminal.rules.notation import COMMUTATIVE
from luminal.shape.expression import Expression, Symbol

BEST = 8  # spellings of a class that are kept


@dataclass(slots=True)
class Decoder:
    """`known`: the classes of the program's terms and its default's; `weights`: of operations."""

    table: Table
    known: Mapping[Term, int]
    lowered: Lowered
    default: Lowered
    weights: Weights
    first: dict[int, Node] = field(default_factory=dict)
    cost: dict[int, int] = field(default_factory=dict)
    prints: dict[int, str] = field(default_factory=dict)
    given: set[Node] = field(default_factory=set)  # the program's own
    order: list[int] = field(default_factory=list)  # classes, operands of first spellings first
    leaves: dict[Any, int] = field(default_factory=dict)

    def classes(self) -> tuple[tuple[EClass, ...], dict[int, int]]:
        """The classes in use, and their numbers by those of the table."""
        for term in self.known:
            self.given.add(self.node_of(term))
            if term.is_leaf:
                self.leaves.setdefault(term.attrs, len(self.leaves))
        self.defaults()
        self.cheapest()
        best = {number: self.best(number) for number in self.order}
        used = self.reachable(best)
        numbers = {old: new for new, old in enumerate(o for o in self.order if o in used)}
        return tuple(self.decoded(old, best[old], numbers) for old in numbers), numbers

    # --- default spellings

    def node_of(self, term: Term) -> Node:
        """The node that a term of the program is."""
        args = tuple(self.known[arg] for arg in term.args)
        if term.op == "Literal":
            return Node("Literal", literal_text(term.attrs.data, term.dtype), args, term.dtype)
        if term.op in ("Leaf", "Index", "Cast", "Bitcast") or term.is_opaque:
            return Node(term.op, term.attrs, args, term.dtype)
        return Node(term.op, term.attrs, args)

    def defaults(self) -> None:
        """First spellings of classes in the default program: its own, the first in its order, so
        that none refers to itself.
        """
        for term in term_order(root.term for root in self.default.roots):
            number, node = self.known[term], self.node_of(term)
            ready = all(arg in self.first for arg in node.args)
            if number not in self.first and ready and self.is_selectable(number, node):
                self.choose(number, node)

    # Where a genome chooses nothing, a class keeps the spelling that `fast` gave it: a genome
    # without choices is the fast program, so a search never begins below it.
    def cheapest(self) -> None:
        """First spellings of the others: of least cost, each above its operands' (Knuth's
        generalisation of Dijkstra's algorithm).
        """
        # A class is closed with the cheapest node whose operands all are closed. So a first
        # spelling stands on classes closed before it, and following first spellings always ends.
        users: dict[int, list[tuple[int, Node]]] = {}
        missing: dict[tuple[int, Node], int] = {}
        heap: list[tuple[int, str, int, int, Node]] = []

        def offer(number: int, node: Node) -> None:
            cost, name = self.node_cost(number, node), self.fingerprint(number, node)
            heapq.heappush(heap, (cost, name, len(heap), number, node))

        for number, nodes in self.table.nodes.items():
            for node in nodes if number not in self.first else ():
                if not self.is_usable(number, node):
                    continue
                unknown = {arg for arg in node.args if arg not in self.first}
                missing[number, node] = len(unknown)
                for arg in unknown:
                    users.setdefault(arg, []).append((number, node))
                if not unknown:
                    offer(number, node)
        while heap:
            *_, number, node = heapq.heappop(heap)
            if number in self.first:
                continue
            self.choose(number, node)
            for user in users.get(number, ()):
                missing[user] -= 1
                if not missing[user] and user[0] not in self.first:
                    offer(*user)

    def choose(self, number: int, node: Node) -> None:
        self.first[number] = node
        self.cost[number] = self.node_cost(number, node)
        self.order.append(number)
        self.prints[number] = self.fingerprint(number, node)

    def is_usable(self, number: int, node: Node) -> bool:
        """Can the node be a spelling of the class?"""
        return (
            number not in node.args
            and node not in self.table.subsumed
            and not (node.op in REDUCTIONS and not node.attrs)
            and self.is_selectable(number, node)
        )

    def is_selectable(self, number: int, node: Node) -> bool:
        """Have all axes that the class lacks a position 0? They are fixed there."""
        return all(map(is_never_empty, self.axes_of(node) - self.table.axes[number]))

    def axes_of(self, node: Node) -> frozenset[Symbol]:
        """The axes of a node as its term will have them."""
        axes = self.table.axes
        if node.op == "Leaf":
            return frozenset(a for d in node.attrs.frame for a in d)
        if node.op == "Index":
            return positions(node.attrs)
        if node.op in OPAQUE:
            return frozenset(a for d in node.attrs.result for a in d)
        of_operands = frozenset[Symbol]().union(*(axes[arg] for arg in node.args))
        if node.op in REDUCTIONS:
            return of_operands - frozenset(node.attrs)
        if node.op == "At":
            gone = frozenset(a for a, _ in node.attrs)
            moved = [i for a, i in node.attrs if isinstance(i, Expression)]
            indices = frozenset[Symbol]().union(*(axes[arg] for arg in node.args[1:]))
            return (axes[node.args[0]] - gone).union(indices, *map(positions, moved))
        return of_operands

    # --- costs

    def node_cost(self, number: int, node: Node) -> int:
        """Operations times points, of the node and of what it needs, counted as a tree."""
        return self.own_cost(number, node) + sum(self.cost[arg] for arg in set(node.args))

    def own_cost(self, number: int, node: Node) -> int:
        if self.table.phase[number] is not Phase.RUN or node.op in ("Leaf", "Literal", "Index"):
            return 1  # known before the run, or read where it is needed
        axes = self.axes_of(node)
        if node.op in REDUCTIONS:
            axes |= frozenset(node.attrs)
        return 1 + self.weights.of(node.op) * upper(axes)

    # --- fingerprints

    def fingerprint(self, number: int, node: Node) -> str:
        """Names a spelling in any process: a hash of its operation and of its operands' names."""
        words = [node.op, str(self.table.dtype[number]), self.attrs_text(node)]
        words += [self.prints[arg] for arg in node.args]
        return hashlib.blake2b("\0".join(words).encode(), digest_size=8).hexdigest()

    def attrs_text(self, node: Node) -> str:
        attrs = node.attrs
        if node.op == "Leaf":
            return f"{leaf_text(attrs.value)} #{self.leaves[attrs]}"
        if node.op in OPAQUE:
            return f"#{attrs.site}.{attrs.index}"
        if node.op == "Literal":
            return str(attrs)
        if node.op in REDUCTIONS:
            return ",".join(a.name for a in attrs)
        if node.op == "At":
            return ",".join(f"{a.name}:{'@' * isinstance(i, Slot)}{i}" for a, i in attrs)
        return str(attrs)

    # --- the spellings kept

    def best(self, number: int) -> list[Node]:
        """The first spelling and the cheapest others; one of those that differ in the order of
        operands.
        """
        # A class of thousands of spellings would drown the search; the cheapest few are where a
        # better one is found, and two that differ by a swap of operands are one kernel.
        first = self.first[number]
        seen = {_unordered(first)}
        priced = []
        for node in self.table.nodes[number]:
            if all(arg in self.first for arg in node.args) and self.is_usable(number, node):
                priced.append((self.node_cost(number, node), self.fingerprint(number, node), node))
        kept = [first]
        for _, _, node in sorted(priced, key=lambda entry: entry[:2]):
            key = _unordered(node)
            if key not in seen and len(kept) < BEST:
                seen.add(key)
                kept.append(node)
        return kept

    def reachable(self, best: Mapping[int, Sequence[Node]]) -> set[int]:
        """The classes below the roots in some spelling."""
        stack = [self.known[root.term] for root in self.default.roots]
        seen: set[int] = set()
        while stack:
            number = stack.pop()
            if number not in seen:
                seen.add(number)
                stack.extend(arg for node in best[number] for arg in node.args)
        return seen

    def decoded(self, old: int, nodes: Iterable[Node], numbers: Mapping[int, int]) -> EClass:
        dtype = self.table.dtype[old]
        spellings = tuple(
            Spelling(
                node.op,
                tuple(numbers[arg] for arg in node.args),
                node.attrs,
                dtype,
                self.fingerprint(old, node),
                "" if node in self.given else self.table.made.get(node, ""),
            )
            for node in nodes
        )
        axes, phase = self.table.axes[old], self.table.phase[old]
        return EClass(numbers[old], dtype, axes, phase, self.prints[old], spellings)


def _unordered(node: Node) -> tuple[Any, ...]:
    """A key that is the same for nodes that differ only in the order of operands that commute."""
    args = tuple(sorted(node.args)) if node.op in COMMUTATIVE else node.args
    return node.op, node.attrs, args, node.dtype
