"""Terms: values over named axes, with neither strides nor expands.

Every value depends on a set of axes; an operand that lacks an axis is broadcast along it. A matrix
product is `Sum({k}, Mul(a[m, k], b[k, n]))`. Terms are immutable and interned per Terms table, so
one term is one e-class of the trivial e-graph.

    Leaf      an input, weight, state, tensor literal or argument of a Loop body, under its own axes
    Literal   an exact scalar
    Index     an Expression over axes and dims
    pointwise the HLIR ops Exp .. Shr, Select, over the union of their operands' axes
    Sum, Prod, Max  over a set of axes
    At        x with axes replaced, simultaneously, by Expressions or integer terms; where an index
              lies outside its axis the value is unspecified (a Select above chooses another)
    opaque    Scan, Sort, Scatter, Loop, Custom, Collective: always stored; operands and results
              carry frames; After, which lies where its operand does
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.lines import Recorded
from luminal.base.records import dataclass
from luminal.hlir.attributes import Slot
from luminal.hlir.monoid import REDUCTIONS, Monoid
from luminal.hlir.ops import Value
from luminal.shape.expression import Expression, Symbol

Axes = tuple[Symbol, ...]
Frame = tuple[Axes, ...]
"""The axes of each dimension of a tensor, outermost first; () for an extent of 1."""


class Phase(enum.IntEnum):
    """When a value can be known: now, when weights are set, or in a run."""

    LITERAL = 0
    WEIGHT = 1
    RUN = 2


class LeafAttrs(NamedTuple):
    """The HLIR value (a leaf) and the axes of its dimensions."""

    value: Value
    frame: Frame


class LiteralAttrs(NamedTuple):
    """Exact little-endian bytes of one element."""

    data: bytes

    def value(self, dtype: DType) -> Any:
        return np.frombuffer(self.data, dtype.numpy)[0]


@dataclass(frozen=True, slots=True)
class OpaqueAttrs:
    """An HLIR operation taken whole: operand k lies in frames[k], result `index` in `result`."""

    hlir: Any  # the HLIR node's attributes
    frames: tuple[Frame, ...]
    result: Frame
    index: int
    site: int  # one number for all results of one operation
    body: Any = None  # the lowered body of a Loop
    sequence: int = 0  # of a Collective, or a Loop with one in its body: its place in their order


AtAttrs = tuple[tuple[Symbol, "Expression | int"], ...]
"""(axis, index) by axis name; a Slot k stands for the integer term args[1 + k]."""

OPAQUE = ("Scan", "Sort", "Scatter", "Loop", "Custom", "Collective", "After")


class Term:
    """One value. Build terms with `Terms`, never directly; `id` numbers them by first use.

    Each form is a class, which says what its `attrs` are; `op` tells operations of a form apart.
    """

    __slots__ = ("args", "attrs", "axes", "dtype", "id", "op", "phase", "recorded")
    is_leaf: ClassVar[bool] = False
    is_pointwise: ClassVar[bool] = False
    is_reduction: ClassVar[bool] = False
    is_opaque: ClassVar[bool] = False

    def __init__(
        self,
        id: int,
        op: str,
        args: tuple[Term, ...],
        attrs: Any,
        axes: frozenset[Symbol],
        dtype: DType,
        phase: Phase,
        recorded: Recorded | None,
    ) -> None:
        self.id = id
        self.op = op
        self.args = args
        self.attrs = attrs
        self.axes = axes
        self.dtype = dtype
        self.phase = phase
        self.recorded = recorded  # where it comes from, which is no part of what it is

    @property
    def is_run(self) -> bool:
        """Is the value computed anew in every run, rather than at most once per setting of the
        weights?
        """
        return self.phase is Phase.RUN

    def __repr__(self) -> str:
        return f"<t{self.id} {self.op} {self.dtype}{sorted(a.name for a in self.axes)}>"


class Leaf(Term):
    __slots__ = ()
    attrs: LeafAttrs
    is_leaf = True


class Literal(Term):
    __slots__ = ()
    attrs: LiteralAttrs

    @property
    def value(self) -> Any:
        """The literal as a NumPy scalar."""
        return self.attrs.value(self.dtype)

    @property
    def is_zero(self) -> bool:
        """Are all bits of the literal 0? They are not for -0.0."""
        return not any(self.attrs.data)


class Index(Term):
    __slots__ = ()
    attrs: Expression


class Pointwise(Term):
    __slots__ = ()
    attrs: None
    is_pointwise = True


class Reduction(Term):
    __slots__ = ()
    attrs: Axes
    is_reduction = True

    @property
    def monoid(self) -> Monoid:
        return REDUCTIONS[self.op]

    @property
    def product(self) -> Pointwise | None:
        """What is summed, where that is a product."""
        (x,) = self.args
        return x if self.op == "Sum" and isinstance(x, Pointwise) and x.op == "Mul" else None


class At(Term):
    __slots__ = ()
    attrs: AtAttrs


class Opaque(Term):
    __slots__ = ()
    attrs: OpaqueAttrs
    is_opaque = True


def axis_order(axes: Iterable[Symbol]) -> Axes:
    """Axes in one deterministic order."""
    # Sets are ordered otherwise in each process, and compiles repeat.
    return tuple(sorted(axes, key=lambda axis: axis.sort_key))


def _is_static(axes: Iterable[Symbol]) -> bool:
    """Are all extents literals, so that the values can be computed before any run?"""
    return all(axis.extent is not None and axis.extent.is_const for axis in axes)


# Hash-consing makes equality identity, so passes compare with `is` and keep facts in dicts.
# Operands are made before users, so ids are a topological order; but a table lives for one compile,
# and ids depend on what came first: nothing that is kept on disk may hold one.
class Terms:
    """The table of one program's terms: same content, same term. `recorded`: of new ones."""

    recorded: Recorded | None = None

    def __init__(self) -> None:
        self._interned: dict[Any, Term] = {}

    def __len__(self) -> int:
        return len(self._interned)

    def _make(
        self,
        kind: type[Term],
        op: str,
        args: tuple[Term, ...],
        attrs: Any,
        axes: frozenset[Symbol],
        dtype: DType,
        phase: Phase | None = None,
    ) -> Term:
        # Operands are interned already, so equal content is found by their identity.
        key = (op, args, attrs, dtype)
        term = self._interned.get(key)
        if term is None:
            if phase is None:
                phase = max((arg.phase for arg in args), default=Phase.LITERAL)
            number = len(self._interned)
            term = kind(number, op, args, attrs, axes, dtype, phase, self.recorded)
            self._interned[key] = term
        return term

    def leaf(self, value: Value, frame: Frame, *, is_trained: bool = False) -> Term:
        """A leaf; `is_trained`: a Weight that the program assigns, so a State to it."""
        axes = frozenset(axis for dimension in frame for axis in dimension)
        kind = "State" if is_trained else value.node.op.name
        phase = {"Weight": Phase.WEIGHT, "Constant": Phase.LITERAL}.get(kind, Phase.RUN)
        return self._make(Leaf, "Leaf", (), LeafAttrs(value, frame), axes, value.dtype, phase)

    def literal(self, data: bytes, dtype: DType) -> Term:
        return self._make(Literal, "Literal", (), LiteralAttrs(data), frozenset(), dtype)

    def index(self, expr: Expression, dtype: DType) -> Term:
        """`expr` in int64, cast to `dtype`."""
        if expr.is_const:
            value = np.array(expr.value, np.int64).astype(dtype.numpy)
            return self.literal(value.tobytes(), dtype)
        axes = frozenset(s for s in expr.symbols() if s.extent is not None)
        is_static = len(axes) == len(expr.symbols()) and _is_static(axes)
        phase = Phase.LITERAL if is_static else Phase.RUN
        return self._make(Index, "Index", (), expr, axes, dtype, phase)

    def pointwise(self, op: str, args: Sequence[Term], dtype: DType) -> Term:
        axes = frozenset[Symbol]().union(*(arg.axes for arg in args))
        return self._make(Pointwise, op, tuple(args), None, axes, dtype)

    def with_args(self, term: Term, args: tuple[Term, ...]) -> Term:
        """The term of the same operation on other spellings of its operands."""
        # The phase may be later than the operands ask (a Scatter into a State, say); that must
        # survive another spelling, or a value of the run would move into the prologue.
        if args == term.args:
            return term
        phase = max((arg.phase for arg in args), default=Phase.LITERAL)
        if term.is_opaque or term.phase > max((arg.phase for arg in term.args), default=phase):
            phase = max(phase, term.phase)  # later than its operands for reasons of its own
        return self._make(type(term), term.op, args, term.attrs, term.axes, term.dtype, phase)

    def reduce(self, op: str, axes: Iterable[Symbol], x: Term, *, merge: bool = True) -> Term:
        """Sum, Prod or Max over a set of axes; nested ones merge, unless told not to."""
        bound = frozenset(axes)
        if not bound:
            return x
        # An axis of both was reduced inside, and the outer
        # Sum counts its positions: not one reduction.
        if merge and x.op == op and bound.isdisjoint(x.attrs):
            bound |= frozenset(x.attrs)
            x = x.args[0]
        phase = x.phase if _is_static(bound) else Phase.RUN
        return self._make(Reduction, op, (x,), axis_order(bound), x.axes - bound, x.dtype, phase)

    def at(
        self,
        x: Term,
        substitution: Mapping[Symbol, Expression | Term],
        inside: Collection[Term] = (),
    ) -> Term:
        """`x` with axes replaced; identities and axes that x lacks drop out, literals have none.

        `inside`: integer terms that are known to be positions along their axes.
        """
        kept = [(a, i) for a, i in substitution.items() if a in x.axes and i is not a]
        if not kept:
            return x
        # In one order, so that equal substitutions are one term.
        kept.sort(key=lambda pair: pair[0].sort_key)
        terms: list[Term] = []
        attrs: list[tuple[Symbol, Expression | int]] = []
        axes = set(x.axes) - {a for a, _ in kept}
        for a, i in kept:
            if isinstance(i, Term):
                # Never a bare int, which would equal the
                # Expression of that value (lessons: Zero is zero).
                attrs.append((a, Slot(len(terms), inside=i in inside)))
                terms.append(i)
                axes |= i.axes
            else:
                attrs.append((a, i))
                axes |= {s for s in i.symbols() if s.extent is not None}
        phase = max(x.phase, *(t.phase for t in terms)) if terms else x.phase
        used = {s for _, i in kept if isinstance(i, Expression) for s in i.symbols()}
        # With a dim in it, it is known in the run only, whatever it reads.
        if any(s.extent is None for s in used) or not _is_static(axes):
            phase = Phase.RUN
        return self._make(At, "At", (x, *terms), tuple(attrs), frozenset(axes), x.dtype, phase)

    def opaque(self, op: str, args: Sequence[Term], attrs: OpaqueAttrs, dtype: DType) -> Term:
        axes = frozenset(axis for dimension in attrs.result for axis in dimension)
        return self._make(Opaque, op, tuple(args), attrs, axes, dtype, Phase.RUN)

    def boolean(self, condition: Expression) -> Term:
        return self.index(condition, dtypes.bool_)


def term_order(
    roots: Iterable[Term], is_end: Callable[[Term], bool] = lambda term: False
) -> list[Term]:
    """Every term down to the ends, operands first, in a deterministic order. Iterative."""
    # A stack of one's own: graphs are deeper than Python's.
    order: list[Term] = []
    done: set[Term] = set()
    for root in roots:
        stack = [root]
        while stack:
            term = stack[-1]
            if term in done:
                stack.pop()
                continue
            args = () if is_end(term) else term.args
            waiting = [arg for arg in reversed(args) if arg not in done]
            if waiting:
                stack.extend(waiting)
            else:
                done.add(term)
                order.append(term)
                stack.pop()
    return order


def below(
    roots: Iterable[Term],
    is_end: Callable[[Term], bool] = lambda term: False,
    most: float = math.inf,
) -> dict[Term, None]:
    """The terms at and below `roots` down to the ends, these included: a set in a fixed order.

    Where there are more than `most`, only some of them, and these too many.
    """
    seen: dict[Term, None] = {}
    stack = list(roots)
    while stack and len(seen) <= most:
        term = stack.pop()
        if term not in seen:
            seen[term] = None
            if not is_end(term):
                stack.extend(term.args)
    return seen


def dependents(
    order: Iterable[Term],
    starts: Iterable[Term],
    is_end: Callable[[Term], bool] = lambda term: False,
) -> set[Term]:
    """The starts, and the terms of an order (operands first) that depend on them but for ends."""
    reached = set(starts)
    for term in order:
        if not reached.isdisjoint(term.args) and not is_end(term):
            reached.add(term)
    return reached


def factors(term: Term) -> list[Term]:
    """A product, flattened, from left to right; a product met again is a factor as a whole, since
    squares of squares have more factors than there is room for.
    """
    flat: list[Term] = []
    # See lessons: A running product took five minutes to compile. What is read through several
    # operands is several values, so paths must be counted, not nodes.
    opened: set[Term] = set()
    stack = [term]
    while stack:
        top = stack.pop()
        if top.op == "Mul" and top.dtype is term.dtype and top not in opened:
            opened.add(top)
            stack.extend(reversed(top.args))
        else:
            flat.append(top)
    return flat
