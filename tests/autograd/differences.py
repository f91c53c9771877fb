"""Gradients of a row of the conformance table against central differences, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.backends.reference import evaluate
from luminal.frontend.scan import flatten
from luminal.hlir.attributes import InputAttrs
from tests.conformance.cells import DIM_NAMES, operands_of
from tests.conformance.rows import FLOATS, Row

STEP = 1e-5
# Differences are good to STEP**2 and to the rounding of the loss by STEP, both about 1e-10 of it.
RELATIVE = 1e-6

Array = np.ndarray[Any, Any]


def is_differentiable(row: Row) -> bool:
    """Whether the row takes floats as float64 operands."""
    takes = "float64" in row.dtypes or "float32" in row.dtypes
    return takes and any(draw.dtype in (None, *FLOATS) for draw in row.draws)


def difference(row: Row, kind: str) -> str | None:
    """What is wrong with the gradients of a cell; None if nothing is, or it has no float result."""
    graph = lm.Graph()
    operands = operands_of(row, "float64", kind)
    if kind == "dynamic":
        for name in {n for operand in operands for n in operand.shape if isinstance(n, str)}:
            graph.dim(name, 0, 64)
    inputs = [graph.tensor(x.shape, x.passed.dtype, f"x{k}") for k, x in enumerate(operands)]
    values = {f"x{k}": x.passed for k, x in enumerate(operands)}
    results = flatten(row.call(*(x.prepare(t) for x, t in zip(operands, inputs, strict=True))))[0]
    floats = [y for y in results if isinstance(y, lm.Tensor) and y.dtype.is_float]
    if not floats:
        return None
    loss = graph.constant(0.0, "float64")
    for y in floats:
        loss = loss + (y.cast("float64") * _weights(y)).sum()
    loss.output("loss")
    variables = [k for k, x in enumerate(inputs) if x.dtype.is_float]
    for k, g in zip(variables, lm.grad(loss, [inputs[k] for k in variables]), strict=True):
        g.output(f"g{k}")
    return _compared(graph, values, [f"x{k}" for k in variables])


def _weights(y: lm.Tensor) -> lm.Tensor:
    """Cotangents that differ from place to place, whatever the dims are bound to."""
    total = y.graph.zeros(y.extents, dtype="float64") + 1.0
    for k in range(y.ndim):
        total = total + y.graph.iota(y.extents, k).cast("float64") * (0.7 + k)
    return total.cos() + 1.5


def _compared(graph: lm.Graph, values: dict[str, Array], variables: list[str]) -> str | None:
    frozen = graph.graph()
    used = {node.attrs.name for node in frozen.nodes() if isinstance(node.attrs, InputAttrs)}
    dims = {name: extent for extent, name in DIM_NAMES.items() if name in graph.dims}

    def run(given: dict[str, Array]) -> Any:
        with np.errstate(all="ignore"):
            return evaluate(frozen, {k: x for k, x in given.items() if k in used}, dims)

    rng = np.random.default_rng(0)
    moved = {name: rng.standard_normal(values[name].shape) for name in variables}
    ends = []
    for sign in (1, -1):
        shifted = {k: x + sign * STEP * moved[k] if k in moved else x for k, x in values.items()}
        ends.append(float(run(shifted)["loss"]))
    here = run(values)
    terms = [here["g" + name[1:]] * moved[name] for name in variables]
    found = float(sum(np.sum(each) for each in terms))
    wanted = (ends[0] - ends[1]) / (2 * STEP)
    size = abs(float(here["loss"])) + float(sum(np.sum(np.abs(each)) for each in terms))
    if abs(found - wanted) <= RELATIVE * (1 + size):
        return None
    return f"the derivative is {found}, differences give {wanted}"
