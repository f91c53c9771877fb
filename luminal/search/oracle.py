"""The point oracle: elements of a graph's results in float64, computed from its terms alone.

A few positions along each axis of an output, corners among them, are evaluated with nothing in
common with kernels (see `algebra.evaluate`): attention over thousands of keys costs a few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from luminal.algebra.evaluate import Evaluator
from luminal.algebra.lower import Lowered, Root
from luminal.algebra.terms import Term, term_order
from luminal.dtypes import DType
from luminal.hlir.attributes import InputAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Output
from luminal.hlir.ops import Value
from luminal.runtime.arrays import Array
from luminal.search.operands import Arrays
from luminal.shape.expression import Symbol

POINTS = 64  # elements compared of each output, about
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}
WORSE = 4.0  # times the error of the fast program that a candidate may have
TIES = 0.02  # share of elements that may differ: comparisons and roundings that fall either way


class Sample(NamedTuple):
    """Positions along each dimension of an output, and its values on their grid."""

    positions: list[Array]
    values: Array
    dtype: DType


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether results are right; the text says what is wrong."""

    right: bool
    text: str = ""


def samples(lowered: Lowered, arrays: Arrays, seed: int) -> dict[str, Sample]:
    """Elements of each output by name."""
    rng = np.random.default_rng(seed)
    evaluator = Evaluator(_leaves(lowered, arrays), arrays.dims, wide=True)
    found = {}
    for root in lowered.roots:
        if isinstance(root.sink, Output) and not root.sink.hidden:
            found[root.sink.name] = _sample(evaluator, root, arrays.dims, rng)
    return found


def _sample(
    evaluator: Evaluator, root: Root, dims: dict[str, int], rng: np.random.Generator
) -> Sample:
    axes = [axis for dimension in root.frame for axis in dimension]
    each = max(2, int(POINTS ** (1 / max(1, len(axes)))))
    ranges = {axis: _some(_extent(axis, dims), each, rng) for axis in axes}
    positions = [_along(dimension, ranges, dims) for dimension in root.frame]
    values = evaluator.tensor(root.term, root.frame, ranges)
    return Sample(positions, values, root.term.dtype)


def _extent(axis: Symbol, dims: dict[str, int]) -> int:
    assert axis.extent is not None
    return int(axis.extent.evaluate(dims))


def _some(extent: int, count: int, rng: np.random.Generator) -> Array:
    """The ends and some positions between them."""
    if extent <= count:
        return np.arange(extent)
    inner = rng.choice(np.arange(1, extent - 1), count - 2, replace=False)
    return np.sort(np.concatenate(([0, extent - 1], inner))).astype(np.int64)


def _along(
    dimension: tuple[Symbol, ...], ranges: dict[Symbol, Array], dims: dict[str, int]
) -> Array:
    """Positions along a dimension of several axes: every combination, in row-major order."""
    found = []
    for digits in product(*(ranges[axis] for axis in dimension)):
        position = 0
        for axis, digit in zip(dimension, digits, strict=True):
            position = position * _extent(axis, dims) + int(digit)
        found.append(position)
    return np.array(found, np.int64)


def _leaves(lowered: Lowered, arrays: Arrays) -> dict[Value, Array]:
    found: dict[Value, Array] = {}
    waiting, seen = [lowered], {id(lowered)}
    while waiting:
        for term in term_order(root.term for root in waiting.pop().roots):
            if term.is_leaf and (array := _leaf(term, arrays)) is not None:
                found[term.attrs.value] = array
            elif term.op == "Loop" and id(term.attrs.body) not in seen:
                seen.add(id(term.attrs.body))
                waiting.append(term.attrs.body)
    return found


def _leaf(term: Term, arrays: Arrays) -> Array | None:
    match term.attrs.value.node.attrs:
        case InputAttrs(name=name):
            return arrays.inputs.get(name)
        case WeightAttrs(parameter=parameter):
            return arrays.parameters[parameter]
        case StateAttrs(state=state):
            return arrays.states[state]
    return None


def judge(expected: Sample, fast: Array, found: Array) -> Verdict:
    """Compares a candidate's elements with the oracle's, allowing what the fast program's err."""
    if not expected.dtype.is_float:
        differ = float(np.mean(found != fast)) if found.size else 0.0
        return Verdict(differ <= TIES, f"{differ:.1%} of the elements differ from fast")
    exact = np.asarray(expected.values, np.float64)
    fast_error, error = _errors(exact, fast), _errors(exact, found)
    scale = float(np.sqrt(np.mean(np.square(np.where(np.isfinite(exact), exact, 0.0))))) or 1.0
    stable = fast_error <= 0.1 * scale  # elsewhere a comparison fell the other way for fast too
    if not stable.any():
        return Verdict(True)
    allowed = max(WORSE * float(fast_error[stable].max()), TOLERANCE[expected.dtype.name] * scale)
    wrong = float(np.mean(error[stable] > allowed))
    worst = float(error[stable].max()) / scale
    return Verdict(
        wrong <= TIES, f"{wrong:.1%} of the sampled elements are off, by up to {worst:.2g}"
    )


def _errors(exact: Array, found: Array) -> Array:
    """Distances; NaN and infinity are at no distance from themselves, else at infinite distance."""
    values = found.astype(np.float64)
    same = (values == exact) | (np.isnan(values) & np.isnan(exact))
    finite = np.isfinite(values) & np.isfinite(exact)
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.where(finite, np.abs(values - exact), np.inf))
