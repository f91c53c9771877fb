"""The point oracle: elements of a graph's results in float64, computed from its terms alone.

A few positions along each axis of a result, corners and the element where two programs are furthest
apart among them, are evaluated with nothing in common with kernels (see `algebra.evaluate`):
attention over thousands of keys costs a few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import product
from typing import NamedTuple

import numpy as np

from luminal.algebra.evaluate import Evaluator, Limit, TooMuchWork
from luminal.algebra.lower import Lowered, Root, bodies
from luminal.algebra.terms import Term, term_order
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.hlir.attributes import InputAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Output
from luminal.hlir.ops import Value
from luminal.runtime.arrays import Array
from luminal.search.distance import Distance, errors
from luminal.search.operands import Arrays
from luminal.shape.expression import Symbol

MOST_OPERATIONS = 2e10  # in float64 on one core: more take too long
POINTS = 64  # elements compared of each output, about
TOLERANCE = {
    "float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2,
    "float8_e4m3fn": 0.15, "float8_e5m2": 0.3,
}  # fmt: skip
WORSE = 4.0  # times the largest error of the fast program that a candidate may have
WORSE_THERE = 32.0  # times the fast program's error at the same element: ill-conditioned ones
TIES = 0.02  # share of elements that may differ where rounding decides comparisons
FALLING = frozenset(("Floor", "FloorDiv", "Mod", "LessThan", "Equal", "Sort", "Bitcast"))


class Sample(NamedTuple):
    """Positions along each dimension of an output, and its values on their grid."""

    positions: list[Array]
    values: Array
    dtype: DType
    falls: bool  # rounding decides comparisons on the way


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement on whether results are right; the text says what is wrong."""

    right: bool
    text: str = ""


def samples(
    lowered: Lowered, arrays: Arrays, seed: int, worst: Mapping[str, tuple[int, ...]]
) -> dict[str, Sample]:
    """Elements of each output and assigned State, by `name_of`: those at `worst` among them, except
    where one that fell the other way would be found there. Results are left out that would take
    more than MOST_OPERATIONS, as where a few elements depend on all of a large model.
    """
    # Two programs of one compiler can be wrong alike; this computes from terms in float64 with no
    # loops, layouts or kernels in common. Corners and the worst element are where loops go wrong.
    rng = np.random.default_rng(seed)
    evaluator = Evaluator(_leaves(lowered, arrays), arrays.dims, wide=True)
    left = MOST_OPERATIONS
    samples_of = {}
    for root in lowered.roots:
        name = name_of(root)
        if name is not None:
            budget = left / 2  # so that a large one leaves something for others
            evaluator.limit = Limit(budget)
            with suppress(TooMuchWork):
                samples_of[name] = _sample(evaluator, root, arrays.dims, rng, worst.get(name, ()))
            left -= budget - evaluator.limit.left
    return samples_of


def name_of(root: Root) -> str | None:
    """The name of a result in `Worker.results`; None for one that nobody sees."""
    match root.sink:
        case Output(name=name, hidden=False):
            return name
        case Assign(state=state):
            return f"state {state.id}"
    return None


def _sample(
    evaluator: Evaluator,
    root: Root,
    dims: dict[str, int],
    rng: np.random.Generator,
    worst: tuple[int, ...],
) -> Sample:
    axes = [axis for dimension in root.frame for axis in dimension]
    count = max(2, int(POINTS ** (1 / max(1, len(axes)))))
    ranges = {axis: _some(_extent(axis, dims), count, rng) for axis in axes}
    falls = may_fall([root.term])
    for dimension, position in zip(root.frame, () if falls else worst, strict=False):
        for axis in reversed(dimension):
            position, digit = divmod(position, _extent(axis, dims))
            ranges[axis] = np.union1d(ranges[axis], [digit])
    positions = [_along(dimension, ranges, dims) for dimension in root.frame]
    values = evaluator.tensor(root.term, root.frame, ranges)
    return Sample(positions, values, root.term.dtype, falls)


def may_fall(terms: Iterable[Term]) -> bool:
    """Does rounding of computed floats decide something: a comparison, an integer, an order?"""
    for term in term_order(terms):
        if term.op == "Loop":
            if may_fall(root.term for root in term.attrs.body.roots):
                return True
        elif any(arg.dtype.is_float and not _is_given(arg) for arg in term.args) and (
            term.op in FALLING or (term.op == "Cast" and not term.dtype.is_float)
        ):
            return True
    return False


def _is_given(term: Term) -> bool:
    """Is the term read as it is stored, without arithmetic?"""
    while term.op in ("At", "Cast"):
        term = term.args[0]
    return term.is_leaf or term.op in ("Literal", "Index")


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
    positions = []
    for digits in product(*(ranges[axis] for axis in dimension)):
        position = 0
        for axis, digit in zip(dimension, digits, strict=True):
            position = position * _extent(axis, dims) + int(digit)
        positions.append(position)
    return np.array(positions, np.int64)


def _leaves(lowered: Lowered, arrays: Arrays) -> dict[Value, Array]:
    arrays_of: dict[Value, Array] = {}
    for body in bodies(lowered):
        for term in term_order(root.term for root in body.roots):
            if term.is_leaf and (array := _leaf(term, arrays)) is not None:
                arrays_of[term.attrs.value] = array
    return arrays_of


def _leaf(term: Term, arrays: Arrays) -> Array | None:
    match term.attrs.value.node.attrs:
        case InputAttrs(name=name):
            return arrays.inputs.get(name)
        case WeightAttrs(parameter=parameter):
            return arrays.parameters[parameter]
        case StateAttrs(state=state):
            return arrays.states[state]
    return None


def verdict(
    apart: Distance, sample: Sample | None, fast: Array | None, elements: Array | None, falls: bool
) -> Verdict:
    """Judges a candidate's result by the oracle's sample, where there is one, and by `fast`'s."""
    if sample is not None and fast is not None and elements is not None:
        judged = judge(sample, fast, elements)
        if not judged.right or not sample.falls:
            return judged
    return near(apart, falls)


def near(apart: Distance, falls: bool) -> Verdict:
    """Judges a whole result by the fast program's."""
    allowed = max(1, int(TIES * apart.size)) if falls else 0
    return Verdict(
        apart.far <= allowed,
        f"{apart.far / max(1, apart.size):.2%} of the elements are not those of the fast program",
    )


# Two fast programs that agree may both be wrong, since they share rules and kernels. Elements
# computed from the algebra in float64 share nothing with either. One wrong element is enough, but
# where rounding decides a comparison a few may fall the other way.
def judge(expected: Sample, fast: Array, elements: Array) -> Verdict:
    """Compares a candidate's elements with the oracle's, allowing what the fast program's err."""
    if not elements.size:
        return Verdict(True)
    if not expected.dtype.is_float:
        wrong = float(np.mean((elements != fast) & (elements != expected.values)))
        return Verdict(
            wrong <= (TIES if expected.falls else 0.0),
            f"{wrong:.1%} of the sampled elements are neither right nor those of the fast program",
        )
    # The fast program's own error is the yardstick: what a search chooses may err as much as that,
    # some times over, since no fixed tolerance fits both a sum of ten and one of ten million.
    exact = np.asarray(expected.values, np.float64)
    fast_error, error = errors(exact, fast), errors(exact, elements)
    scale = float(np.sqrt(np.mean(np.square(np.where(np.isfinite(exact), exact, 0.0))))) or 1.0
    stable = fast_error <= 0.1 * scale  # elsewhere a comparison fell the other way for fast too
    if not stable.any():
        return Verdict(True)
    sizes = scale + np.where(np.isfinite(exact), np.abs(exact), 0.0)
    allowed = np.maximum(WORSE_THERE * fast_error, TOLERANCE[expected.dtype.name] * sizes)
    allowed = np.maximum(allowed, WORSE * float(fast_error[stable].max()))
    wrong = float(np.mean((error > allowed)[stable]))
    worst = float(error[stable].max()) / scale
    return Verdict(
        wrong <= (TIES if expected.falls else 0.0),
        f"{wrong:.1%} of the sampled elements are off, by up to {worst:.2g}",
    )
