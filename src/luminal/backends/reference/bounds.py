"""How far a right evaluation may lie from the reference: an error bound and a mask per element.

Beside each value y stand

- `error`: E(y) times the eps of the dtypes met, in y's own units. 0 at leaves and for integers;
  elsewhere the sum of what the operands' errors move y by and one rounding of y. Another order of
  evaluation may differ from the reference by a small multiple (MARGIN) of it.
- `unstable`: True where a difference within MARGIN bounds changes more than a rounding: the
  outcome of a comparison, Floor, Mod, Sort or float-to-int Cast, the sign of a divisor, an
  overflow, and all that depends on one. Nothing is promised there.

`bound_rules` has one rule per op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.backends.reference.bound_rules import RULES
from luminal.backends.reference.bounded import Bounded, Step
from luminal.backends.reference.interpreter import Results, interpret
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node
from luminal.hlir.semantics import Array, Dims


def evaluate_with_bounds(
    graph: Graph, inputs: Mapping[str, Array], dims: Dims | None = None
) -> Results[Bounded]:
    """The outputs and new State values of `graph`, each as (value, error, unstable).

    No State changes. Arguments as for `evaluate`.
    """
    return interpret(graph, inputs, dims or {}, BoundedArrays())


class BoundedArrays:
    """The domain of the interpreter whose values are Bounded."""

    def lift(self, array: Array) -> Bounded:
        return Bounded(array, np.zeros(array.shape), np.zeros(array.shape, np.bool_))

    def apply(self, node: Node, dims: Dims, args: Sequence[Bounded]) -> tuple[Bounded, ...]:
        assert node.op.evaluate is not None, node
        values = node.op.evaluate(node.attrs, dims, [arg.value for arg in args])
        step = Step(node.op, node.attrs, dims, tuple(args), values)
        with np.errstate(all="ignore"):
            pairs = RULES[node.op.name](step)
            return tuple(_settle(value, *pair) for value, pair in zip(values, pairs, strict=True))

    def slice(self, x: Bounded, position: int) -> Bounded:
        return Bounded(*(np.asarray(part[position]) for part in x))

    def stack(
        self, slices: Sequence[Bounded], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Bounded:
        if not slices:
            return self.lift(np.zeros(shape, dtype))
        value, error, unstable = (np.stack(parts) for parts in zip(*slices, strict=True))
        return Bounded(value, error, unstable)


def _settle(value: Array, error: Any, unstable: Any) -> Bounded:
    """Spreads a rule's result over the value; no error without a bound, and none where not finite.

    Inf and NaN are compared by position, so they carry no error; a finite value whose error is
    beyond float64 is unstable.
    """
    finite = np.isfinite(value.astype(np.float64))
    unknown = finite & ~np.isfinite(error)
    error = np.where(finite & ~unknown, error, 0.0)
    return Bounded(value, error, np.broadcast_to(unstable | unknown, value.shape))
