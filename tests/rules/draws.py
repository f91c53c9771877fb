"""Random terms for the variables of a rule, under its guards or against one of them."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from luminal.algebra.frames import is_never_empty
from luminal.algebra.terms import Phase, Term
from luminal.base import dtypes
from luminal.base.dtypes import DType, holds
from luminal.egraph.intern import literal_data, literal_text
from luminal.hlir.ops import OPS
from luminal.rules import notation
from luminal.rules.notation import Apply, Compare, Number, Pattern, Property, Variable
from luminal.rules.rule import Rule
from luminal.shape.expression import Symbol
from tests.rules.instances import AXES, DRAWN, EMPTY, IllTyped, Instance

TRIES = 50_000
LITERALS = ("2", "-3", "0.5", "1.5", "0", "-0", "inf", "-inf", "nan")
INTEGERS = ("2", "-3", "0", "1", "2147483647")


@dataclass
class Binding:
    """What the variables of a rule stand for, and its left side."""

    terms: dict[str, Term]
    sets: dict[str, frozenset[Symbol]]
    dtypes: dict[str, DType]
    lhs: Term | None = None

    @property
    def dtype(self) -> DType:
        return next(iter(self.terms.values())).dtype


def drawn(
    rule: Rule, rng: random.Random, special: tuple[float, ...] = (), against: str | None = None
) -> tuple[Instance, Binding, Term]:
    """Leaves and a left side of the rule that all its guards allow but `against`, which forbids it.

    AssertionError if none is found.
    """
    for _ in range(TRIES):
        instance = Instance(rng, special)
        found = _try(rule, instance, against)
        if found is not None:
            return instance, found, side(rule.lhs, found, instance, found.dtype)
    raise AssertionError(f"{rule.name}: nothing drawn that {against or 'its guards'} ...")


def _try(rule: Rule, instance: Instance, against: str | None) -> Binding | None:
    binding = _Draw(rule, instance, against).binding()
    for text in rule.guards:
        if holds_here(notation.guard(text), binding) is (text == against):
            return None
    try:
        side(rule.lhs, binding, instance, binding.dtype)
    except IllTyped:
        return None
    return binding


class _Draw:
    """One try. Guards on single variables guide it, all others are left to chance."""

    def __init__(self, rule: Rule, instance: Instance, against: str | None) -> None:
        self.lhs = notation.pattern(rule.lhs)
        self.instance = instance
        self.rng = instance.rng
        guards = [notation.guard(text) for text in rule.guards if text != against]
        self.asked = {(g.name, g.args[-1]) for g in guards if isinstance(g, Property)}
        self.cast = {
            part.args[0].name
            for part in notation.parts(self.lhs)
            if isinstance(part, Apply) and part.op == "Cast" and isinstance(part.args[0], Variable)
        }
        taken = _dtypes(rule.lhs, rule.rhs)
        floats = [d for d in taken if d.is_float]
        self.dtype = self.rng.choice(floats if floats and self.rng.random() < 0.6 else taken)
        self.void = AXES[self.rng.choice(EMPTY)] if self.rng.random() < 0.4 else None

    def binding(self) -> Binding:
        binding = Binding({}, {}, {})
        for part in notation.parts(self.lhs):
            if isinstance(part, Variable) and part.name not in binding.terms:
                binding.terms[part.name] = self.term(part.name)
            if isinstance(part, Apply) and isinstance(part.attrs, notation.SetVariable):
                binding.sets.setdefault(part.attrs.name, frozenset(self.axes(0.4, 0.8)))
            if isinstance(part, Apply) and isinstance(part.attrs, str):
                binding.dtypes.setdefault(part.attrs, self.rng.choice(dtypes.ALL))
        if self.rng.random() < 0.5 and binding.dtypes:
            name = next(iter(binding.dtypes))  # a Cast back is too rare by chance
            binding.dtypes[name] = next(iter(binding.terms.values())).dtype
        return binding

    def term(self, name: str) -> Term:
        rng, kind = self.rng, self.dtype
        if name in self.cast and rng.random() < 0.5:
            kind = rng.choice(dtypes.ALL)
        if name in _conditions(self.lhs):
            kind = dtypes.bool_
        literal = any((ask, name) in self.asked for ask in ("literal", "positive", "number"))
        if literal or (("varies", name) not in self.asked and rng.random() < 0.15):
            return self.instance.number(_number(kind, rng), kind)
        weight = ("weight", name) in self.asked or (
            ("run", name) not in self.asked and rng.random() < 0.2
        )
        axes = self.axes(0.5, 0.25)
        if weight:
            axes = tuple(a for a in axes if a.extent is not None and a.extent.is_const)
        return self.instance.leaf(name, axes, kind, weight=weight)

    def axes(self, share: float, of_void: float) -> tuple[Symbol, ...]:
        found = [AXES[a] for a in DRAWN if self.rng.random() < share]
        if self.void is not None and self.rng.random() < of_void:
            found.append(self.void)
        return tuple(found)


def _number(kind: DType, rng: random.Random) -> str:
    if kind.is_float:
        return rng.choice(LITERALS)
    return rng.choice(("0", "1") if kind is dtypes.bool_ else INTEGERS)


def _conditions(lhs: Pattern) -> set[str]:
    """Variables that stand for conditions."""
    return {
        part.args[0].name
        for part in notation.parts(lhs)
        if isinstance(part, Apply) and part.op == "Select" and isinstance(part.args[0], Variable)
    }


@functools.cache
def _dtypes(lhs: str, rhs: str) -> tuple[DType, ...]:
    """What operands of a rule may be."""
    parts = [p for text in (lhs, rhs) for p in notation.parts(notation.pattern(text))]
    return tuple(d for d in dtypes.ALL if all(_takes(part, d) for part in parts))


def _takes(part: Pattern, dtype: DType) -> bool:
    """May the rule meet this dtype? Numbers are matched by their text."""
    if isinstance(part, Number):
        if dtype.is_float:
            return True
        if not part.text.removeprefix("-").isdigit() or part.text == "-0":
            return False
        return literal_text(literal_data(part.text, dtype), dtype) == part.text
    if not isinstance(part, Apply) or part.op in ("Cast", "Bitcast", "Select"):
        return True
    return dtype in OPS[part.op].takes


# --- guards, written apart from the compiler of rules, which they check


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
    """Does a guard hold?"""
    if isinstance(guard, Compare):
        left, right = axes_here(guard.left, binding), axes_here(guard.right, binding)
        return {"==": left == right, "!=": left != right, "<=": left <= right}[guard.op]
    name, args = guard.name, guard.args
    if name == "nonempty":
        return all(map(is_never_empty, axes_here(notation.axes(args[0]), binding)))
    if name == "floating":
        return binding.dtypes[args[0]].is_float
    x = binding.terms[args[-1]]
    value = x.attrs.value(x.dtype) if x.op == "Literal" else None
    match name:
        case "literal":
            return x.op == "Literal"
        case "number":
            return value is not None and bool(abs(value) < float("inf"))
        case "positive":
            return value is not None and bool(0 < value < float("inf"))
        case "weight":
            return x.phase < Phase.RUN
        case "varies":
            return x.phase > Phase.LITERAL
        case "run":
            return x.phase is Phase.RUN
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


# --- sides


def side(text: str, binding: Binding, instance: Instance, dtype: DType) -> Term:
    """One side of a rule; numbers take the dtype of what they are computed with, else `dtype`."""
    return _built(notation.pattern(text), binding, instance, dtype)


def _built(term: Pattern, binding: Binding, instance: Instance, dtype: DType) -> Term:
    match term:
        case Variable(name=name):
            return binding.terms[name]
        case Number(text=text):
            return instance.number(text, dtype)
        case Apply(op=op, args=args, attrs=attrs):
            own = [a for a in _operands(op, args) if not isinstance(a, Number)]
            base = _built(own[-1], binding, instance, dtype).dtype if own else dtype
            kinds = [base] * len(args)
            if op == "Select":
                kinds[0] = dtypes.bool_
            built = [
                _built(a, binding, instance, kind) for a, kind in zip(args, kinds, strict=True)
            ]
            if isinstance(attrs, str):
                return instance.apply(op, built, binding.dtypes.get(attrs, attrs))
            return instance.apply(op, built, axes_here(attrs, binding) if attrs else None)
    raise AssertionError(term)


def _operands(op: str, args: Sequence[Pattern]) -> Sequence[Pattern]:
    return args[1:] if op == "Select" else args
