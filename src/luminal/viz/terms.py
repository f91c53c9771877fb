"""Which values the terms of an algebra compute: a lowering that notes what it makes of what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy

from luminal.algebra.lower import Lowered, Lowering, lower
from luminal.algebra.lower_frames import Edge
from luminal.algebra.terms import Term, term_order
from luminal.hlir.graph import Graph, Sink
from luminal.hlir.ops import Node, Value
from luminal.memory.parameter import Parameter
from luminal.viz.values import ByOrigin, Ids, Values

Nodes = dict[Node, None]
VIEWS = ("View", "Iota")  # what has no term of its own


class Noting(Lowering):
    """A lowering that knows, for each of its terms, the nodes that it computes a part of."""

    def __init__(
        self, trained: Collection[Parameter] = (), noted: dict[Term, Nodes] | None = None
    ) -> None:
        super().__init__(trained)
        self.noted: dict[Term, Nodes] = {} if noted is None else noted
        self._seen: dict[int, Term] = {}

    def run(
        self, sinks: Sequence[tuple[Sink | None, Value]], arguments: tuple[Value, ...]
    ) -> Lowered:
        """See Lowering.run; a view that is asked for is the term that is stored for it."""
        lowered = super().run(sinks, arguments)
        for (_, value), root in zip(sinks, lowered.roots, strict=True):
            if value.node.op.name in VIEWS:
                self.note_view(value.node, root.term, [root.term])
        return lowered

    def term(self, edge: Edge) -> Term:
        """See Lowering.term; the term is remembered for its edge."""
        term = self._seen[id(edge)] = super().term(edge)
        return term

    def build(self, node: Node) -> None:
        """See Lowering.build: what is new in the table of terms then is of this node."""
        before = len(self.terms)
        super().build(node)
        results = [self.built[value] for value in _results(node) if value in self.built]
        edges = self.first.edges.get(node, [])
        if node.op.name == "Gather":  # its source has two
            edges = [edges[0], *edges[2:]]
        views: dict[Term, Node] = {}
        for arg, edge in zip(node.args, edges, strict=True):
            if arg.node.op.name in VIEWS:
                self.note_view(arg.node, self._seen[id(edge)], results)
                views[self._seen[id(edge)]] = arg.node
        for term in term_order((*results, *views), lambda term: term.id < before):
            if term.id >= before and term not in views:
                self.note(term, node)
        for term in results:
            self.note(term, node)

    def note_view(self, view: Node, term: Term, users: Sequence[Term]) -> None:
        """A view is the term that reads by it; one that only renames axes belongs to its users."""
        source = view.args[0] if view.args else None
        plain = source is not None and self.built.get(source) is term
        for place in users if plain else (term,):
            self.note(place, view)
            if source is not None and source.node.op.name == "Iota":
                self.note(place, source.node)

    def note(self, term: Term, node: Node) -> None:
        """A term computes a part of a node."""
        self.noted.setdefault(term, {})[node] = None

    def body(self, loop: Node) -> Lowered:
        """See `Lowering.body`: the terms of a body are noted, too."""
        attrs = loop.attrs
        arguments = tuple(argument.value for argument in attrs.body.arguments)
        sinks = [(None, result) for result in attrs.body.results]
        return Noting((), self.noted).run(sinks, arguments)


class TermValues:
    """The values of a graph that terms compute: known for those of the lowered graph, and for
    others told by where they were recorded.
    """

    def __init__(
        self, graph: Graph, lowered: Lowered, of_nodes: Mapping[Node, Ids], by_origin: ByOrigin
    ) -> None:
        self._by_origin = by_origin
        self._known: dict[Term, Ids] = {}
        noted: dict[Term, Nodes] = {}
        again = lower(graph, lambda trained: Noting(trained, noted))
        for mine, theirs in _pairs(again, lowered):
            ids = {n for node in noted.get(mine, ()) for n in of_nodes.get(node, ())}
            self._known[theirs] = tuple(sorted(ids))

    def __call__(self, term: Term) -> Ids:
        """The values that a term computes or is a part of."""
        ids = self._known.get(term)
        if ids is None:
            ids = self._known[term] = self._by_origin(term.recorded, term.op)
        return ids

    def completed(self, terms: Iterable[Term], values: Values) -> TermValues:
        """These relations for a stage of these terms: a value of which no term is left there (the
        inner one of two sums, what is its operand by a rule) counts to the values that read it.
        """
        left = {n for term in terms for n in self(term)}
        homes: dict[int, Ids] = {}
        for number in range(len(values.nodes) - 1, -1, -1):  # readers first
            readers = values.readers[number]
            homes[number] = (
                (number,)
                if number in left
                else _joined(homes.get(r, (r,) if r in left else ()) for r in readers)
            )
        also: dict[int, list[int]] = {}
        for number, there in homes.items():
            for home in there:
                also.setdefault(home, []).append(number)
        whole = copy(self)
        whole._known = {
            term: _joined(also.get(n, (n,)) for n in self(term)) for term in [*self._known]
        }
        return whole

    def of_all(self, order: Sequence[Term]) -> list[Ids]:
        """The values of terms in order, operands first; what nobody knows is its users', or else
        its operands'.
        """
        ids_of = {term: self(term) for term in order}
        for term in reversed(order):
            for arg in term.args:
                if not self(arg) and arg in ids_of:
                    ids_of[arg] = _joined((ids_of[arg], ids_of[term]))
        for term in order:
            if not ids_of[term]:
                ids_of[term] = _joined(ids_of.get(arg, ()) for arg in term.args)
        return [ids_of[term] for term in order]


def _joined(ids: Iterable[Iterable[int]]) -> Ids:
    return tuple(sorted({n for some in ids for n in some}))


def _pairs(one: Lowered, other: Lowered) -> Iterator[tuple[Term, Term]]:
    """The terms of two lowerings of one graph, with those of Loops' bodies."""
    waiting, seen = [(one, other)], set[int]()
    while waiting:
        mine, theirs = waiting.pop()
        orders = (term_order(root.term for root in lowered.roots) for lowered in (mine, theirs))
        for a, b in zip(*orders, strict=True):
            yield a, b
            if a.op == "Loop" and id(a.attrs.body) not in seen:
                seen.add(id(a.attrs.body))
                waiting.append((a.attrs.body, b.attrs.body))


def _results(node: Node) -> Iterator[Value]:
    return (Value(node, k) for k in range(len(node.types)))
