"""Random terms for rules with handlers: such as their left sides tell readers."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence

from luminal.algebra.terms import Term
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.ops import OPS
from luminal.shape.expression import Expression, Symbol, const
from tests.rules.instances import AXES, DRAWN, EMPTY, Instance

Terms = Callable[["Drawer"], Term]
LONG = ("z", "long", "z.in", "p")


class Drawer:
    """Random parts of terms over one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.rng: random.Random = instance.rng
        self.void = AXES[self.rng.choice(EMPTY)] if self.rng.random() < 0.3 else None
        self.weights = self.rng.choice((0.1, 0.1, 1.0))  # how many leaves are weights
        self.dtype = self.rng.choice((dtypes.float32, dtypes.float32, dtypes.int32))

    def axes(self, share: float = 0.5, of_void: float = 0.3) -> tuple[Symbol, ...]:
        found = [AXES[a] for a in DRAWN if self.rng.random() < share]
        if self.void is not None and self.rng.random() < of_void:
            found.append(self.void)
        return tuple(found)

    def bound(self) -> tuple[Symbol, ...]:
        return self.axes(0.4, 0.8) or (AXES["k"],)

    def leaf(self, dtype: DType | None = None, axes: Iterable[Symbol] | None = None) -> Term:
        """A new input or weight."""
        axes = self.axes() if axes is None else tuple(axes)
        fixed = all(a.extent is not None and a.extent.is_const for a in axes)
        weight = fixed and self.rng.random() < self.weights
        name = f"x{len(self.instance.names)}"
        return self.instance.leaf(name, axes, dtype or self.dtype, weight=weight)

    def weight(self, axes: Sequence[Symbol]) -> Term:
        axes = tuple(a for a in dict.fromkeys(axes) if a.extent is not None and a.extent.is_const)
        name = f"x{len(self.instance.names)}"
        return self.instance.leaf(name, axes, self.dtype, weight=True)

    def apply(self, op: str, *args: Term, attrs: object = None) -> Term:
        return self.instance.apply(op, list(args), attrs)

    def reduce(self, op: str, bound: Sequence[Symbol], x: Term) -> Term:
        return self.instance.terms.reduce(op, bound, x, merge=False)

    def both(self, one: Term, other: Term) -> Term:
        return self.apply("Add", one, other)

    def index(self, size: int) -> Expression:
        """A position below a literal size."""
        (a,) = [AXES[self.rng.choice(("i", "j", "k", "l"))]]
        assert a.extent is not None
        n = a.extent.value
        some: list[Expression] = [const(self.rng.randrange(size)), (a * 2 + 1) % size]
        if n <= size:
            some += [a, a, size - 1 - a, size - 1 - a, a + (size - n)]
        return self.rng.choice(some)

    def where(self, x: Term) -> dict[Symbol, Expression | Term]:
        """Where to read: some axes of `x` at other positions, some by a tensor of indices."""
        found: dict[Symbol, Expression | Term] = {}
        for a in sorted(x.axes, key=lambda a: a.sort_key):
            fixed = a.extent is not None and a.extent.is_const and a.extent.value > 0
            if fixed and a.extent is not None and self.rng.random() < 0.7:
                found[a] = self.index(a.extent.value)
                if self.rng.random() < 0.15:
                    found[a] = self.instance.terms.index(found[a], dtypes.int64)
        return found

    def at(self, x: Term) -> Term:
        return self.instance.terms.at(x, self.where(x))


def _literals(d: Drawer) -> Term:
    """Any operation on literals."""
    op = d.rng.choice([op for op in OPS.values() if op.is_pointwise and op.name != "Bitcast"])
    kind = d.rng.choice(list(op.takes))
    d.leaf()  # a root needs a value of HLIR
    texts = (
        ("0", "1") if not kind.is_float else ("2", "-3", "0.5", "0", "-0", "inf", "nan", "1e-40")
    )
    args = [d.instance.number(d.rng.choice(texts), kind) for _ in range(op.arity or 0)]
    if op.name == "Select":
        args[0] = d.instance.number(d.rng.choice(("0", "1")), dtypes.bool_)
    attrs = d.rng.choice(dtypes.ALL).short if op.name == "Cast" else None
    return d.apply(op.name, *args, attrs=attrs)


def _nested(op: str) -> Terms:
    def draw(d: Drawer) -> Term:
        x = d.leaf()
        bound = d.bound()
        inner = [a for a in bound if d.rng.random() < 0.5] or bound[:1]
        return d.both(d.reduce(op, bound, x), d.reduce(op, inner, x))

    return draw


def _product(d: Drawer) -> Term:
    """A sum of a tree of products and quotients."""
    parts = [d.leaf() for _ in range(d.rng.choice((2, 3, 3, 4)))]
    while len(parts) > 1:
        k = d.rng.randrange(len(parts) - 1)
        op = d.rng.choice(("Mul", "Mul", "Div")) if d.dtype.is_float else "Mul"
        parts[k : k + 2] = [d.apply(op, *parts[k : k + 2])]
    return d.reduce("Sum", d.bound(), parts[0])


def _contractions(d: Drawer) -> Term:
    """Sums of one value with several weights; some multiplied by another weight."""
    bound = d.bound()
    x = d.leaf(axes=dict.fromkeys((*d.axes(0.2), *bound[:1])))
    weights = d.rng.random() < 0.8
    scaled = d.rng.random() < 0.3
    sums: list[Term] = []
    for _ in range(d.rng.choice((2, 2, 3))):
        own = [a for a in d.axes(0.5, 0.8) if a not in bound]
        w = d.weight((*bound, *own)) if weights else d.leaf(axes=dict.fromkeys((*bound, *own)))
        each = d.reduce("Sum", bound, d.apply("Mul", x, w))
        each = d.apply("Mul", each, d.weight(own)) if scaled else each
        sums.append(d.reduce("Sum", [a for a in own if a is d.void], each))
    return functools.reduce(d.both, sums)


def _long(op: str) -> Terms:
    def draw(d: Drawer) -> Term:
        along = AXES[d.rng.choice(LONG)]
        idle = d.rng.random() < 0.2
        x = d.leaf(axes=() if idle else (along,) if d.rng.random() < 0.7 else (AXES["l"], along))
        return d.reduce(op, (along,), x)

    return draw


def _moved_pointwise(d: Drawer) -> Term:
    op = d.rng.choice(("Add", "Mul", "Maximum", "Select"))
    x, y = d.leaf(), d.leaf()
    if op == "Select":
        return d.at(d.apply(op, d.leaf(dtypes.bool_), x, y))
    return d.at(d.apply(op, x, y))


def _moved_reduction(d: Drawer) -> Term:
    op = d.rng.choice(("Sum", "Sum", "Max"))
    return d.at(d.reduce(op, d.bound(), d.apply("Mul", d.leaf(), d.leaf())))


def _moved_index(d: Drawer) -> Term:
    a, b = (AXES[d.rng.choice(("i", "j", "k", "l"))] for _ in range(2))
    index = d.instance.terms.index(a * d.rng.choice((1, 2, -3)) + b % 3, dtypes.int64)
    return d.both(d.at(index), d.leaf(dtypes.int64))


def _dropped(d: Drawer) -> Term:
    """A class without the axes of one of its spellings: a Select of a literal condition."""
    true = d.instance.number(d.rng.choice(("0", "1")), dtypes.bool_)
    return d.at(d.apply("Select", true, d.leaf(), d.leaf()))


DRAWS: dict[str, Terms] = {
    "fold": _literals,
    "sum-nests": _nested("Sum"),
    "max-nests": _nested("Max"),
    "sum-factors": _product,
    "sum-of-broadcast": lambda d: d.reduce("Sum", d.bound(), d.leaf()),
    "split-sum": _long("Sum"),
    "split-max": _long("Max"),
    "merge-contractions": _contractions,
    "at-of-at": lambda d: d.at(d.at(d.leaf())),
    "at-of-index": _moved_index,
    "at-of-broadcast": _dropped,
    "at-of-pointwise": _moved_pointwise,
    "at-of-reduction": _moved_reduction,
}
"""By rule: a term that it may take, or just not."""
