"""HLIR to the axis algebra: every value lowered once, under axes of its own.

First pass (`lower_frames.py`): each value gets a frame (the atoms of each dimension), and every
edge unites the atoms that it says are the same. Second pass, here, when no axis can split any more:
terms, with an At on each edge whose operand must be read at other indices than its own axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from luminal.algebra import axes
from luminal.algebra.axes import Atom, Dimension
from luminal.algebra.frames import linear, spread
from luminal.algebra.index_form import index_form
from luminal.algebra.lower_frames import Edge, Frames
from luminal.algebra.ranges import Ranges
from luminal.algebra.reductions import without_points
from luminal.algebra.sequence import sequence
from luminal.algebra.terms import Axes, Frame, Literal, OpaqueAttrs, Term, Terms, term_order
from luminal.base import dtypes
from luminal.base.records import dataclass
from luminal.hlir.attributes import Shape
from luminal.hlir.graph import Graph, Sink, topological
from luminal.hlir.monoid import REDUCTIONS
from luminal.hlir.ops import Node, Value
from luminal.hlir.semantics import convert
from luminal.memory.parameter import Parameter
from luminal.shape.arithmetic import CACHE
from luminal.shape.expression import Expression, Symbol, all_of, axis, const
from luminal.shape.view import index


@dataclass(frozen=True, slots=True)
class Root:
    """A value the program must store: its term and the axes of each of its dimensions."""

    sink: Sink | None  # None: a result of a Loop body, or of a Loop that must run for its States
    term: Term
    frame: Frame


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A graph in the algebra. `arguments` are the leaves of a Loop body, in order."""

    terms: Terms
    roots: tuple[Root, ...]
    shapes: dict[Term, Frame]  # the frame under which each term was first met
    arguments: tuple[Value, ...] = ()
    kept: frozenset[Term] = frozenset()  # terms that are worth storing whatever they cost


def lower(graph: Graph, by: Callable[[Collection[Parameter]], Lowering] | None = None) -> Lowered:
    """The graph's sinks as terms over named axes; `by` makes the Lowering, if another one is to."""
    sinks: list[tuple[Sink | None, Value]] = [(sink, sink.value) for sink in graph.sinks]
    read = {*graph.roots, *(arg for node in graph.nodes() for arg in node.args)}
    for node in graph.by_op().get("Loop", ()):
        if any(node.attrs.assigned):  # it runs, even if rules find that no value of it is needed
            results = (Value(node, k) for k in range(len(node.types)))
            sinks.append((None, min(filter(read.__contains__, results), key=_rank)))
    return (by or Lowering)(graph.trained).run(sinks, ())


def _rank(value: Value) -> int:
    return len(value.shape)


def lower_body(arguments: Sequence[Node], results: Sequence[Value]) -> Lowered:
    """A Loop body as terms over named axes; its arguments are leaves."""
    return Lowering().run([(None, value) for value in results], tuple(n.value for n in arguments))


@lru_cache(CACHE)  # each compile asks for the same ones
def _axis(number: int, extent: Expression) -> Symbol:
    return axis(f"a{number}", extent)


def bodies(lowered: Lowered) -> Iterator[Lowered]:
    """The program and the bodies of its Loops, each once."""
    waiting, seen = [lowered], {id(lowered)}
    while waiting:
        body = waiting.pop()
        yield body
        for term in term_order(root.term for root in body.roots):
            if term.op == "Loop" and id(term.attrs.body) not in seen:
                seen.add(id(term.attrs.body))
                waiting.append(term.attrs.body)


class Lowering:
    """One lowering. The viewer's overrides methods, to know what comes from what."""

    def __init__(self, trained: Collection[Parameter] = ()) -> None:
        self.trained = trained
        self.terms = Terms()
        self.ranges = Ranges()
        self.first = Frames()
        self.built: dict[Value, Term] = {}
        self.shapes: dict[Term, Frame] = {}
        self.symbols: dict[Atom, Symbol] = {}
        self.names: dict[int, Frame] = {}  # by id of a frame, all of which edges keep
        self.sites = 0
        self.sequence: dict[Node, int] = {}

    def run(
        self, sinks: Sequence[tuple[Sink | None, Value]], arguments: tuple[Value, ...]
    ) -> Lowered:
        first = self.first
        nodes = topological([value for _, value in sinks])
        self.sequence = sequence(nodes)
        for node in nodes:
            first.add(node)
        edges = [first.see(value) for _, value in sinks]
        for node in nodes:
            if node.op.name not in ("View", "Iota"):
                self.build(node)
        self.terms.recorded = None
        roots = []
        for (sink, _), edge in zip(sinks, edges, strict=True):
            term, frame = self.term(edge), self.named(edge.frame)
            self.shapes.setdefault(term, frame)
            roots.append(Root(sink, term, frame))
        return Lowered(self.terms, tuple(roots), self.shapes, arguments)

    def symbol(self, atom: Atom) -> Symbol:
        if atom not in self.symbols:
            self.symbols[atom] = _axis(len(self.symbols), atom.extent)
        return self.symbols[atom]

    def named(self, frame: list[Dimension]) -> Frame:
        """The frame in axes; no axis is split any more when this is asked."""
        axes_of_frame = self.names.get(id(frame))
        if axes_of_frame is None:
            axes_of_frame = tuple(tuple(map(self.symbol, axes.resolve(d))) for d in frame)
            self.names[id(frame)] = axes_of_frame
        return axes_of_frame

    def positions(self, shape: Shape, frame: Frame) -> dict[Symbol, Expression]:
        """The position that each index symbol of `shape` stands for, in terms of the frame's
        axes.
        """
        return {index(k, n): linear(frame[k]) for k, n in enumerate(shape)}

    def substitution(
        self, source: Frame, entries: Sequence[Any], where: dict[Symbol, Expression]
    ) -> dict[Symbol, Any]:
        """The At that reads axes `source` at `entries`: Expressions in indices, integer terms."""
        out: dict[Symbol, Any] = {}
        for dimension, entry in zip(source, entries, strict=True):
            if isinstance(entry, Expression):
                out.update(spread(entry.substitute(where), dimension))
            else:
                out.update(self.spread_term(entry, dimension))
        return out

    def spread_term(self, x: Term, dimension: Axes) -> dict[Symbol, Term]:
        """The digits of an integer term in the mixed radix of `dimension`."""
        out: dict[Symbol, Term] = {}
        stride = const(1)
        for position, a in reversed([*enumerate(dimension)]):
            digit = x
            if stride != const(1):
                digit = self.i64("FloorDiv", digit, self.terms.index(stride, dtypes.int64))
            if position:
                assert a.extent is not None
                digit = self.i64("Mod", digit, self.terms.index(a.extent, dtypes.int64))
            out[a] = digit
            stride = stride * (a.extent if a.extent is not None else const(1))
        return out

    def i64(self, op: str, x: Term, y: Term) -> Term:
        return self.terms.pointwise(op, (x, y), dtypes.int64)

    def zero(self, dtype: dtypes.DType) -> Term:
        return self.terms.literal(bytes(dtype.size), dtype)

    def choose(self, condition: Term, x: Term) -> Term:
        """`x` where `condition` holds, else 0; decided conditions vanish."""
        if isinstance(condition, Literal):
            return x if condition.attrs.data != b"\0" else self.zero(x.dtype)
        return self.terms.pointwise("Select", (condition, x, self.zero(x.dtype)), x.dtype)

    # An edge reads its operand at the same axes (then the term itself is the operand), at other
    # axes of equal extent, or through a map. Only the last two are an At. So a chain of reshapes
    # that only rename axes leaves no trace, and fusion need not look through anything.
    def term(self, edge: Edge) -> Term:
        """The operand of an edge under its user's axes."""
        # The only place where a stride, a broadcast or a reshape could enter the algebra. An
        # operand that is read at its user's own axes needs nothing; any other reading is one At,
        # simultaneous in all axes, and zeros of padding are a choice around it.
        frame = self.named(edge.frame)
        node = edge.value.node
        if node.op.name == "Iota":
            return self.iota(edge, frame)
        x = self.built[edge.value]
        built_frame = self.named(self.first.frames[edge.value])
        if edge.map is None:
            if built_frame == frame:
                return x
            at = {}
            for mine, theirs in zip(built_frame, frame, strict=True):
                at.update(spread(linear(theirs), mine))
            return self.terms.at(x, at)
        where = self.positions(edge.shape, frame)
        x = self.terms.at(x, self.substitution(built_frame, edge.map, where))
        return self.choose(self.terms.boolean(edge.domain.substitute(where)), x)

    def iota(self, edge: Edge, frame: Frame) -> Term:
        attrs = edge.value.node.attrs
        where = self.positions(edge.shape, frame)
        expr = attrs.expr
        if edge.map is not None:
            expr = expr.substitute({index(k, n): edge.map[k] for k, n in enumerate(attrs.shape)})
        term = self.terms.index(expr.substitute(where), attrs.dtype)
        return self.choose(self.terms.boolean(edge.domain.substitute(where)), term)

    def build(self, node: Node) -> None:
        self.terms.recorded = node.recorded
        group = node.op.group
        if group == "leaf":
            self.built[node.value] = self.leaf(node)
        elif node.op.name == "Detach":
            self.built[node.value] = self.term(self.first.edges[node][0])
        elif node.op.is_pointwise:
            args = [self.term(edge) for edge in self.first.edges[node]]
            self.built[node.value] = self.pointwise(node.op.name, args, node.types[0].dtype)
        elif group == "reduce":
            self.built[node.value] = self.reduce(node)
        elif node.op.name == "Gather":
            self.built[node.value] = self.gather(node)
        else:
            self.build_opaque(node)
        for k in range(len(node.types)):
            value = Value(node, k)
            self.shapes.setdefault(self.built[value], self.named(self.first.frames[value]))
            self.ranges.note(self.built[value])

    def pointwise(self, op: str, args: Sequence[Term], dtype: dtypes.DType) -> Term:
        """An Expression where it is one; a Select that is decided is its choice; else what stays
        as it is, as the 1 that gradients begin with and narrow floats on their way through wide
        ones.
        """
        formed = index_form(op, args, dtype)
        if formed is not None:
            return self.terms.index(formed, dtype)
        decided = self.ranges.decided(op, args)
        if decided is not None:
            return self.terms.boolean(const(decided))
        if op == "Select" and isinstance(args[0], Literal):
            return args[1] if args[0].attrs.value(args[0].dtype) else args[2]
        if op == "Select" and args[1].op == "Select" and args[1].args[0] is args[0]:
            # Padding that counts otherwise than as 0.
            return self.terms.pointwise(op, (args[0], args[1].args[1], args[2]), dtype)
        if op == "Cast":
            return self.cast(args[0], dtype)
        if op == "Mul" and any(map(_is_one, args)):
            return args[1] if _is_one(args[0]) else args[0]
        return self.terms.pointwise(op, args, dtype)

    def cast(self, x: Term, dtype: dtypes.DType) -> Term:
        """The term in another dtype: a literal is converted here, and a cast there and back
        vanishes where nothing is lost.
        """
        if isinstance(x, Literal):
            value = np.asarray(x.attrs.value(x.dtype))
            return self.terms.literal(convert(value, dtype).tobytes(), dtype)
        if x.op == "Cast":
            (narrow,) = x.args
            if narrow.dtype is dtype and dtypes.holds(x.dtype, dtype):
                return narrow
        return self.terms.pointwise("Cast", (x,), dtype)

    def leaf(self, node: Node) -> Term:
        attrs = node.attrs
        # A scalar is a literal, whose value rules know.
        if node.op.name == "Constant" and attrs.shape == ():
            return self.terms.literal(attrs.data, attrs.dtype)
        is_trained = node.op.name == "Weight" and attrs.parameter in self.trained
        frame = self.named(self.first.frames[node.value])
        return self.terms.leaf(node.value, frame, is_trained=is_trained)

    def reduce(self, node: Node) -> Term:
        """A reduction; it stays one along an axis that the operand lacks (a broadcast)."""
        edge = self.first.edges[node][0]
        x = self.term(edge)
        monoid = REDUCTIONS[node.op.name]
        bound, x = without_points(self.terms, self.named(edge.frame)[node.attrs.axis], x, monoid)
        return self.terms.reduce(node.op.name, bound, x)

    def gather(self, node: Node) -> Term:
        source, read, *indices = self.first.edges[node]
        x = self.term(source)
        frame = self.named(read.frame)
        where = self.positions(read.shape, frame)
        # An At outside of its operand has no value: what HLIR wants there, 0, is chosen around it.
        tensors = [self.pointwise("Cast", (self.term(index),), dtypes.int64) for index in indices]
        for tensor in tensors:
            self.ranges.note(tensor)
        entries: list[Any] = []
        conditions: list[Expression] = []
        checks: list[Term] = []
        assert read.map is not None
        for entry, extent in zip(read.map, node.args[0].shape, strict=True):
            if isinstance(entry, Expression):
                entries.append(entry)
                inside = entry.substitute(where)
                conditions += [inside >= 0, inside < extent]
            else:
                entries.append(tensors[entry])
                checks += self.in_range(tensors[entry], extent)
        at = self.substitution(self.named(source.frame), entries, where)
        # Where no check is left a load needs no guard either.
        is_inside = all(isinstance(check, Literal) and any(check.attrs.data) for check in checks)
        x = self.terms.at(x, at, [i for i in at.values() if is_inside and isinstance(i, Term)])
        checks.append(self.terms.boolean(all_of(conditions)))
        for check in checks:
            x = self.choose(check, x)
        return x

    def in_range(self, x: Term, extent: Expression) -> list[Term]:
        below = self.terms.index(const(-1), dtypes.int64)
        above = self.terms.index(extent, dtypes.int64)
        pairs = ((below, x), (x, above))
        return [self.pointwise("LessThan", pair, dtypes.bool_) for pair in pairs]

    def body(self, loop: Node) -> Lowered:
        """The body of a Loop, lowered by itself."""
        return lower_body(loop.attrs.body.arguments, loop.attrs.body.results)

    def build_opaque(self, node: Node) -> None:
        edges = self.first.edges[node]
        args = [self.term(edge) for edge in edges]
        frames = tuple(self.named(edge.frame) for edge in edges)
        for arg, frame in zip(args, frames, strict=True):
            self.shapes.setdefault(arg, frame)
        self.sites += 1
        body, sequence = None, self.sequence.get(node, 0)
        if node.op.name == "Loop":
            body = self.body(node)
        for k, result in enumerate(node.types):
            frame = self.named(self.first.frames[Value(node, k)])
            attrs = OpaqueAttrs(node.attrs, frames, frame, k, self.sites, body, sequence)
            self.built[Value(node, k)] = self.terms.opaque(node.op.name, args, attrs, result.dtype)


def _is_one(x: Term) -> bool:
    return isinstance(x, Literal) and bool(x.attrs.value(x.dtype) == 1)
