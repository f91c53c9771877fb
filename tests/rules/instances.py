"""Concrete terms for the notation of rules, and their values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from luminal.algebra.lower import Lowered, Root
from luminal.algebra.terms import Term, Terms, axis_order
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.egraph.intern import literal_data
from luminal.hlir.graph import Builder, Output
from luminal.hlir.ops import OPS, Value
from luminal.memory.parameter import Parameter
from luminal.rules import notation
from luminal.rules.notation import Apply, Leaf, Move, Number, Pattern, Position
from luminal.shape.expression import Symbol, axis, symbol
from luminal.shape.parse import parse

Array = np.ndarray[Any, Any]

DIMS = {"n": 0, "m": 2, "s": 3}
AXES = {
    "i": axis("i", 4),
    "j": axis("j", 3),
    "k": axis("k", 4),
    "l": axis("l", 2),
    "s": axis("s", symbol("s", 1, 8)),
    "p": axis("p", 16),
    "z": axis("z", 1 << 17),
    "long": axis("long", (1 << 17) + 8),  # in 8 parts, but not in 64
    "z.in": axis("z.in", 1 << 17),
    "none": axis("none", 0),
    "empty": axis("empty", symbol("n", 0, 8)),
    "maybe": axis("maybe", symbol("m", 0, 8)),
}
DRAWN = ("i", "j", "k", "s")
EMPTY = ("none", "none", "empty", "empty", "maybe")  # axes that are empty, or may be
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0)
EXTREME = (*SPECIAL, 1e-40, 3e38)  # whose products leave the range of float32


class IllTyped(AssertionError):
    """An operation on operands that it does not take."""


@dataclass
class Instance:
    """Terms over random leaves, under one table."""

    rng: random.Random
    special: tuple[float, ...] = ()  # among the values of floats
    terms: Terms = field(default_factory=Terms)
    builder: Builder = field(default_factory=Builder)
    names: dict[str, Term] = field(default_factory=dict)
    given: dict[Value, Array] = field(default_factory=dict)
    waiting: list[tuple[Value | Parameter, DType, tuple[int, ...]]] = field(default_factory=list)

    # --- leaves

    @property
    def leaves(self) -> dict[Value, Array]:
        """Arrays of the inputs; weights have theirs. Drawn when first read: most draws are in vain,
        because a guard does not hold.
        """
        if self.waiting:
            self.arrays = np.random.default_rng(self.rng.getrandbits(32))
        for leaf, dtype, sizes in self.waiting:
            if isinstance(leaf, Parameter):
                leaf.set(self.array(sizes, dtype))
            else:
                self.given[leaf] = self.array(sizes, dtype)
        self.waiting.clear()
        return self.given

    def leaf(self, name: str, axes: tuple[Symbol, ...], dtype: DType, *, weight: bool) -> Term:
        if name not in self.names:
            shape = tuple(a.extent for a in axes)
            sizes = tuple(int(n.evaluate(DIMS)) for n in shape)
            if weight:
                parameter = Parameter(sizes, dtype, name)
                value = self.builder.weight(name, parameter)
            else:
                value = self.builder.input(name, shape, dtype)
            self.waiting.append((parameter if weight else value, dtype, sizes))
            self.names[name] = self.terms.leaf(value, tuple((a,) for a in axes))
        return self.names[name]

    def array(self, sizes: tuple[int, ...], dtype: DType) -> Array:
        if dtype.kind == "bool":
            return np.asarray(self.arrays.random(sizes) < 0.5)
        if dtype.is_int:
            limits = np.iinfo(dtype.numpy)
            small = self.arrays.integers(max(limits.min, -9), 9, sizes).astype(dtype.numpy)
            ends = np.asarray([limits.min, limits.max, 0, 1], dtype.numpy)
            return np.where(self.arrays.random(sizes) < 0.3, self.arrays.choice(ends, sizes), small)
        values = self.arrays.uniform(0.3, 2, sizes) * self.arrays.choice((1, 1, -1), sizes)
        if self.special:
            few = self.arrays.choice(self.special, 3)
            some = self.arrays.random(sizes) < self.arrays.choice((0.05, 0.4, 1, 1))
            values = np.where(some, self.arrays.choice(few, sizes), values)
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
                    if any(not isinstance(p, Number | Apply) for p in notation.parts(part)):
                        base = self.concrete(part).dtype
                kinds = [base] * len(args)
                if op == "Select":
                    kinds[0] = dtypes.bool_
                built = [self.concrete(a, kind) for a, kind in zip(args, kinds, strict=True)]
                return self.apply(op, built, attrs)
        raise AssertionError(term)

    def apply(self, op: str, args: list[Term], attrs: Any) -> Term:
        """One operation; IllTyped where it does not take such operands."""
        taken = args[1:] if op == "Select" else args
        if op not in ("Cast", "Bitcast") and (
            len({arg.dtype for arg in taken}) > 1 or args[-1].dtype not in OPS[op].takes
        ):
            raise IllTyped(f"{op} of {', '.join(str(arg.dtype) for arg in args)}")
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
