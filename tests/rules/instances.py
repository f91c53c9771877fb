"""Concrete terms for the notation of rules, and their values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from luminal import dtypes
from luminal.algebra.evaluate import Evaluator
from luminal.algebra.lower import Lowered, Root
from luminal.algebra.terms import Term, Terms, axis_order
from luminal.dtypes import DType
from luminal.egraph.base import holds
from luminal.egraph.intern import literal_data
from luminal.egraph.session import never_empty
from luminal.hlir.graph import Builder, Output
from luminal.hlir.ops import OPS, Value
from luminal.hlir.state import Parameter
from luminal.rules import notation
from luminal.rules.notation import Apply, Compare, Leaf, Move, Number, Pattern, Position, Property
from luminal.rules.rule import Class, Rule
from luminal.shape.expression import Symbol, axis, symbol
from luminal.shape.parse import parse

Array = np.ndarray[Any, Any]

DIMS = {"n": 0, "s": 3}
AXES = {
    "i": axis("i", 4),
    "j": axis("j", 3),
    "k": axis("k", 4),
    "l": axis("l", 2),
    "s": axis("s", symbol("s", 1, 8)),
    "z": axis("z", 1 << 17),
    "empty": axis("empty", symbol("n", 0, 8)),
}
DRAWN = ("i", "j", "k", "s")
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 1e-40, 3e38)
LITERALS = ("2", "-3", "0.5", "1.5")
DTYPES = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.bool_)


@dataclass
class Instance:
    """Terms over random leaves, under one table."""

    rng: random.Random
    special: bool = False  # NaN, infinities and zeros among the values
    terms: Terms = field(default_factory=Terms)
    builder: Builder = field(default_factory=Builder)
    leaves: dict[Value, Array] = field(default_factory=dict)
    names: dict[str, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrays = np.random.default_rng(self.rng.getrandbits(32))

    # --- leaves

    def leaf(self, name: str, axes: tuple[Symbol, ...], dtype: DType, *, weight: bool) -> Term:
        if name not in self.names:
            shape = tuple(a.extent for a in axes)
            if weight:
                sizes = tuple(int(n.evaluate(DIMS)) for n in shape)
                parameter = Parameter(sizes, dtype, name)
                parameter.set(self.array(sizes, dtype))
                value = self.builder.weight(name, parameter)
            else:
                value = self.builder.input(name, shape, dtype)
                sizes = tuple(int(n.evaluate(DIMS)) for n in shape)
                self.leaves[value] = self.array(sizes, dtype)
            self.names[name] = self.terms.leaf(value, tuple((a,) for a in axes))
        return self.names[name]

    def array(self, sizes: tuple[int, ...], dtype: DType) -> Array:
        if dtype.kind == "bool":
            return np.asarray(self.arrays.random(sizes) < 0.5)
        if dtype.is_int:
            return self.arrays.integers(-9, 9, sizes).astype(dtype.numpy)
        values = self.arrays.uniform(0.3, 2, sizes) * self.arrays.choice((1, 1, -1), sizes)
        if self.special:
            values = np.where(
                self.arrays.random(sizes) < 0.4, self.arrays.choice(SPECIAL, sizes), values
            )
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(dtype.numpy)

    def number(self, text: str, dtype: DType) -> Term:
        return self.terms.literal(literal_data(text, dtype), dtype)

    # --- concrete terms

    def concrete(self, term: Pattern, dtype: DType = dtypes.float32) -> Term:
        """A pattern without variables; numbers take the dtype of what they are computed with."""
        match term:
            case Number(text=text):
                return self.number(text, dtype)
            case Leaf(name=name, axes=axes, dtype=short, weight=weight):
                own = tuple(AXES[a] for a in axes)
                return self.leaf(name, own, dtypes.dtype_of(short), weight=weight)
            case Position(text=text):
                return self.terms.index(parse(text, AXES), dtypes.int64)
            case Move(arg=arg, indices=indices):
                where = {AXES[a]: parse(index, AXES) for a, index in indices}
                return self.terms.at(self.concrete(arg), where)
            case Apply(op=op, args=args, attrs=attrs):
                base = dtype
                for part in args[1:] if op == "Select" else args:
                    if not isinstance(part, Number):
                        base = self.concrete(part).dtype
                kinds = [base] * len(args)
                if op == "Select":
                    kinds[0] = dtypes.bool_
                built = [self.concrete(a, kind) for a, kind in zip(args, kinds, strict=True)]
                return self.apply(op, built, attrs)
        raise AssertionError(term)

    def apply(self, op: str, args: list[Term], attrs: Any) -> Term:
        if op in ("Sum", "Max"):
            bound = attrs.names if isinstance(attrs, notation.SetOf) else attrs
            axes = [AXES[a] if isinstance(a, str) else a for a in bound]
            return self.terms.reduce(op, axes, args[0], merge=False)
        dtype = args[-1].dtype
        if op in ("LessThan", "Equal"):
            dtype = dtypes.bool_
        if op in ("Cast", "Bitcast"):
            dtype = dtypes.dtype_of(attrs)
        return self.terms.pointwise(op, args, dtype)

    # --- meaning

    def lowered(self, term: Term) -> Lowered:
        frame = tuple((a,) for a in axis_order(term.axes))
        value = next(iter(self.builder)).value
        return Lowered(self.terms, (Root(Output(value, "y"), term, frame),), {})

    def value(self, term: Term, axes: frozenset[Symbol], *, wide: bool) -> Array:
        """Over the grid of these axes."""
        frame = tuple((a,) for a in axis_order(axes))
        for extra in term.axes - axes:
            term = self.terms.at(term, {extra: parse("0", {})})
        return Evaluator(self.leaves, DIMS, wide=wide).tensor(term, frame)


@dataclass
class Binding:
    """What the variables of a rule stand for."""

    terms: dict[str, Term]
    sets: dict[str, frozenset[Symbol]]
    dtypes: dict[str, DType]


def draw(rule: Rule, instance: Instance) -> Binding | None:
    """Random terms for a rule's variables; None if its guards do not hold for them."""
    rng = instance.rng
    lhs = notation.pattern(rule.lhs)
    guards = [notation.guard(text) for text in rule.guards]
    asked = {(g.name, g.args[-1]) for g in guards if isinstance(g, Property)}
    dtype = rng.choice([d for d in DTYPES if all(_takes(part, d) for part in notation.parts(lhs))])
    binding = Binding({}, {}, {})
    conditions = {
        part.args[0].name
        for part in notation.parts(lhs)
        if isinstance(part, Apply) and part.op == "Select"
        if isinstance(part.args[0], notation.Variable)
    }
    for part in notation.parts(lhs):
        if isinstance(part, notation.Variable) and part.name not in binding.terms:
            kind = dtypes.bool_ if part.name in conditions else dtype
            name = part.name
            if ("literal", name) in asked or ("positive", name) in asked:
                number = rng.choice(LITERALS if kind.is_float else ("2", "-3"))
                binding.terms[name] = instance.number(number, kind)
            else:
                axes = tuple(AXES[a] for a in DRAWN if rng.random() < 0.5)
                if ("weight", name) in asked:
                    axes = tuple(a for a in axes if a.name != "s")
                binding.terms[name] = instance.leaf(
                    name, axes, kind, weight=("weight", name) in asked
                )
        if isinstance(part, Apply) and isinstance(part.attrs, notation.SetVariable):
            drawn = frozenset(AXES[a] for a in DRAWN if rng.random() < 0.4)
            binding.sets.setdefault(part.attrs.name, drawn)
        if isinstance(part, Apply) and isinstance(part.attrs, str):
            binding.dtypes.setdefault(part.attrs, rng.choice(dtypes.ALL))
    return binding if all(holds_here(g, binding) for g in guards) else None


def _takes(part: Pattern, dtype: DType) -> bool:
    if isinstance(part, Number) and "inf" in part.text:
        return dtype.is_float
    if not isinstance(part, Apply) or part.op in ("Cast", "Bitcast", "Select"):
        return True
    return dtype in OPS[part.op].takes


def axes_here(axes: notation.SetPattern, binding: Binding) -> frozenset[Symbol]:
    match axes:
        case notation.SetVariable(name=name):
            return binding.sets[name]
        case notation.AxesOf(name=name):
            return binding.terms[name].axes
        case notation.SetOf(names=names):
            return frozenset(AXES[n] for n in names)
        case notation.SetOperation(op=op, left=left, right=right):
            a, b = axes_here(left, binding), axes_here(right, binding)
            return {"-": a - b, "|": a | b, "&": a & b}[op]
    raise AssertionError(axes)


def holds_here(guard: notation.Guard, binding: Binding) -> bool:
    """Does a guard hold? Written apart from the compiler of rules, which it checks."""
    if isinstance(guard, Compare):
        left, right = axes_here(guard.left, binding), axes_here(guard.right, binding)
        return {"==": left == right, "!=": left != right, "<=": left <= right}[guard.op]
    name, args = guard.name, guard.args
    if name == "nonempty":
        bound = notation.guard(f"{args[0]} == {{}}")
        assert isinstance(bound, Compare)
        return all(map(never_empty, axes_here(bound.left, binding)))
    if name == "floating":
        return binding.dtypes[args[0]].is_float
    x = binding.terms[args[-1]]
    match name:
        case "literal":
            return x.op == "Literal"
        case "positive":
            return x.op == "Literal" and x.attrs.value(x.dtype) > 0
        case "weight":
            return x.phase < 2
        case "varies":
            return x.phase > 0
        case "run":
            return x.phase == 2
        case "float":
            return x.dtype.is_float
        case "integer":
            return x.dtype.is_int
        case "boolean":
            return x.dtype is dtypes.bool_
        case "dtype":
            return binding.dtypes[args[0]] is x.dtype
        case "holds":
            return holds(binding.dtypes[args[0]], x.dtype)
        case "widens":
            wide = binding.dtypes[args[0]]
            alike = x.dtype.is_float == wide.is_float
            return holds(wide, x.dtype) and (x.dtype is dtypes.bool_ or alike)
        case "alike":
            return binding.terms[args[0]].dtype is x.dtype
    raise AssertionError(guard)


def build(term: Pattern, binding: Binding, instance: Instance, dtype: DType) -> Term:
    """One side of a rule; numbers take the dtype of what they are computed with, else `dtype`."""
    match term:
        case notation.Variable(name=name):
            return binding.terms[name]
        case Number(text=text):
            return instance.number(text, dtype)
        case Apply(op=op, args=args, attrs=attrs):
            base = dtype
            for part in args[1:] if op == "Select" else args:
                if not isinstance(part, Number):
                    base = build(part, binding, instance, dtype).dtype
            kinds = [base] * len(args)
            if op == "Select":
                kinds[0] = dtypes.bool_
            built = [build(a, binding, instance, kind) for a, kind in zip(args, kinds, strict=True)]
            if isinstance(attrs, str):
                return instance.apply(op, built, binding.dtypes.get(attrs, attrs))
            return instance.apply(op, built, axes_here(attrs, binding) if attrs else None)
    raise AssertionError(term)


def agree(instance: Instance, one: Term, other: Term, kind: Class) -> int:
    """Raises unless both terms are equal by the class; how many points could be compared."""
    axes = one.axes & other.axes
    if kind is Class.EXACT:
        x, y = (instance.value(t, axes, wide=False) for t in (one, other))
        assert x.dtype == y.dtype
        same = (x == y) | ((x != x) & (y != y))
        if x.dtype.kind == "f":
            same &= (np.signbit(x) == np.signbit(y)) | (x != x)
        assert np.all(same), (x, y)
        return int(x.size)
    x, y = (np.asarray(instance.value(t, axes, wide=True), np.float64) for t in (one, other))
    fine = np.isfinite(x) & (np.isfinite(y) if kind is Class.ROUNDING else True)
    np.testing.assert_allclose(y[fine], x[fine], rtol=3e-7, atol=1e-7)
    return int(fine.sum())
