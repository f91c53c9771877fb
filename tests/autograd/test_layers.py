"""Gradients of layers, in their parameters and inputs, against PyTorch's in float32.

The layers are those of `tests/numerics/test_nn_parity`; norms are in training mode.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.frontend.scan import flatten
from luminal.hlir.attributes import InputAttrs
from tests.close import close, close_each
from tests.numerics.layers import GROUPS, Row, our_layer, torch_layer

Array = np.ndarray[Any, Any]

# ulp of the largest gradient: some hundred terms are added in an order of our own.
TOLERANCE = 300
TRAINED = ("norms",)
UNTRACKED = {("SoftMarginLoss", 1)}  # PyTorch has no derivative in this input
ROWS = [pytest.param(group, row, id=row.name) for group, rows in GROUPS.items() for row in rows]
# PyTorch's hints on the speed of its own layers.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def weights(shape: Any) -> Array:
    """Cotangents that differ from place to place."""
    count = int(np.prod(shape))
    return np.cos(np.arange(count)).astype(np.float32).reshape(shape)


def tracked(row: Row, inputs: list[Any]) -> list[tuple[int, Any]]:
    """The inputs that are differentiated, with their numbers."""
    is_float = [array.dtype.kind == "f" for array in row.inputs]
    return [(k, x) for k, x in enumerate(inputs) if is_float[k] and (row.name, k) not in UNTRACKED]


@cache
def ours(group: str, backend: str) -> dict[str, Any]:
    """Of each layer the gradients by name, or the exception where it cannot be recorded."""
    cx, values, found = lm.Graph(), {}, dict[str, Any]()
    for row in GROUPS[group]:
        try:
            found[row.name] = recorded(cx, row, values, group in TRAINED)
        except Exception as error:
            found[row.name] = error
    used = {n.attrs.name for n in cx.graph().nodes() if isinstance(n.attrs, InputAttrs)}
    arrays = lm.compile(cx, backend)({name: x for name, x in values.items() if name in used})
    return {
        name: entry if isinstance(entry, Exception) else {k: arrays[out] for k, out in entry}
        for name, entry in found.items()
    }


def recorded(
    cx: lm.Graph, row: Row, values: dict[str, Array], is_training: bool
) -> list[tuple[str, str]]:
    """The gradients' names and those of their outputs."""
    layer = our_layer(row).train(is_training)
    named = {f"{row.name}.{k}": array for k, array in enumerate(row.inputs)}
    values |= named
    tensors = [cx.tensor(array.shape, array.dtype, name) for name, array in named.items()]
    loss = cx.constant(0.0, "float32")
    for y in flatten(row.call(layer, *tensors))[0]:
        if y.dtype.is_float:
            loss = loss + (y * cx.constant(weights(y.shape))).sum()
    variables: dict[str, Any] = dict(layer.named_parameters())
    variables |= {f"input {k}": x for k, x in tracked(row, tensors)}
    outputs = []
    for name, g in lm.grad(loss, variables).items():
        outputs.append((name, f"{row.name} {name}"))
        g.output(outputs[-1][1])
    return outputs


def theirs(row: Row, is_training: bool) -> dict[str, Array]:
    layer = deepcopy(torch_layer(row)).train(is_training)
    inputs = [torch.from_numpy(np.array(x)) for x in row.inputs]
    variables = dict(layer.named_parameters())
    for k, x in tracked(row, inputs):
        variables[f"input {k}"] = x.requires_grad_()
    loss = torch.zeros((), requires_grad=True)
    for y in flatten(row.call(layer, *inputs))[0]:
        if y.is_floating_point():
            loss = loss + (y * torch.from_numpy(weights(y.shape))).sum()
    found = torch.autograd.grad(
        loss, list(variables.values()), allow_unused=True, materialize_grads=True
    )
    return {name: g.numpy() for name, g in zip(variables, found, strict=True)}


def check(group: str, row: Row, backend: str) -> None:
    found = ours(group, backend)[row.name]
    if isinstance(found, Exception):
        raise found
    wanted = theirs(row, group in TRAINED)
    assert found.keys() == wanted.keys()
    for name, g in wanted.items():
        close(found[name], g, TOLERANCE)


@pytest.mark.parametrize(("group", "row"), ROWS)
def test_gradients_are_torchs(group: str, row: Row) -> None:
    check(group, row, "reference")


@pytest.mark.long
@pytest.mark.parametrize(("group", "row"), ROWS)
def test_gradients_are_torchs_on_the_cpu(group: str, row: Row) -> None:
    check(group, row, "cpu")


def test_rows_of_bounded_norm_have_the_gradient_of_what_was_read() -> None:
    weight, ids = np.linspace(-3, 3, 12).reshape(4, 3), np.array([0, 1, 3, 0])
    weight[1] = 0
    cx = lm.Graph()
    w = cx.tensor(weight.shape, "float64", "w")
    rows = lm.nn.functional.embedding(cx.constant(ids), w, max_norm=1.0).output("rows")
    lm.grad((rows**2).sum(), w).output("g")
    found = lm.compile(cx, "reference")({"w": weight})
    leaf = torch.tensor(weight)
    torch.nn.functional.embedding(torch.tensor(ids), leaf, max_norm=1.0)  # scales the rows in place
    leaf.requires_grad_()
    (torch.nn.functional.embedding(torch.tensor(ids), leaf) ** 2).sum().backward()
    close_each(found["rows"], leaf.detach()[ids])
    close_each(found["g"], leaf.grad)
