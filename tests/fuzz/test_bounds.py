"""Error bounds against evaluations that round otherwise: they stay within the bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from luminal.backends.reference import evaluate_with_bounds, interpret
from luminal.backends.reference.interpreter import Arrays
from luminal.hlir.ops import Node
from luminal.hlir.semantics import Array, Dims
from tests.fuzz.graphs import Case, random_case
from tests.long_share import mostly_long
from tests.numerics.tolerance import compare

ROUNDED = ("Exp", "Log", "Exp2", "Log2", "Sin", "Cos", "Sqrt", "Recip", "Add", "Mul", "Div", "Mod")


class NoisyArrays(Arrays):
    """Each op is off by up to half an eps more, and float sums run in float32 in a random order."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def apply(self, node: Node, dims: Dims, args: Sequence[Array]) -> tuple[Array, ...]:
        name = node.op.name
        if name == "Sum" and args[0].dtype.kind == "f":
            return (self.sum(args[0], node.attrs.axis),)
        results = super().apply(node, dims, args)
        if name in ROUNDED:
            return (self.off(results[0]),)
        if name == "Scan" and node.attrs.kind != "max":  # its first element is exact
            return (np.where(results[0] == args[0], args[0], self.off(results[0])),)
        return results

    def sum(self, x: Array, axis: int) -> Array:
        with np.errstate(all="ignore"):
            total = np.zeros_like(np.take(x, [], axis).sum(axis))
            for k in self.rng.permutation(x.shape[axis]):
                total = total + np.take(x, k, axis)
            return np.asarray(total, x.dtype)

    def off(self, y: Array) -> Array:
        if y.dtype.kind != "f":
            return y
        noise = self.rng.uniform(-0.5, 0.5, y.shape) * np.finfo(y.dtype).eps
        with np.errstate(all="ignore"):
            return np.asarray(y * (1 + noise), y.dtype)


def check(case: Case, seed: int) -> None:
    bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
    noisy = interpret(case.graph, case.inputs, case.dims, NoisyArrays(seed))
    for name, array in noisy.outputs.items():
        compare(array, *bounds.outputs[name], name=name, max_unstable=1.0)
    for state, array in noisy.states.items():
        compare(array, *bounds.states[state], name=state.name, max_unstable=1.0)


@pytest.mark.parametrize("chunk", mostly_long(range(8), 1))
def test_noise_stays_within_the_bounds(chunk: int) -> None:
    for seed in range(50 * chunk, 50 * (chunk + 1)):
        try:
            check(random_case(seed), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
