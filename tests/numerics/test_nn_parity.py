"""Layers of torch.nn and ours, made by one call: the same state_dict, the same forward.

Every row is a configuration. Groups of rows are one graph, compiled once for the CPU; layers with
few kernels also run on the reference.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from luminal.frontend.graph import Recorder
from luminal.frontend.scan import flatten
from tests.close import close
from tests.numerics.layers import GROUPS, Row, our_layer, torch_layer
from tests.numerics.recording import on, results

# PyTorch's hints on the speed of its own layers.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


ONE = {"kernel_size": 3, "stride": 2, "padding": 1}
ROWS = [pytest.param(group, row, id=row.name) for group, rows in GROUPS.items() for row in rows]
QUICK = [p for p in ROWS if p.values[0] in ("linear", "norms", "moves", "losses")]

# ulp of the largest result: sums of some ten terms, of which layers stack up to six.
TOLERANCE = 64


@cache
def computed(group: str, backend: str) -> dict[str, Any]:
    """What the layers of a group give, or the exception where one cannot be recorded."""
    cx, inputs, found, leaves = Recorder(), {}, {}, []
    for row in GROUPS[group]:
        try:
            named = {f"{row.name}.{k}": array for k, array in enumerate(row.inputs)}
            tensors = [cx.tensor(array.shape, array.dtype, n) for n, array in named.items()]
            outputs, tree = flatten(row.call(our_layer(row), *tensors))
        except Exception as error:
            found[row.name] = error
            continue
        inputs |= named
        found[row.name] = tree, len(outputs)
        leaves += [each.output(f"{row.name}.out{k}") for k, each in enumerate(outputs)]
    with on(backend):
        arrays = iter(results(cx, leaves, inputs))
    for name, entry in found.items():
        if not isinstance(entry, Exception):
            found[name] = entry[0].build([next(arrays) for _ in range(entry[1])])
    return found


def check(group: str, row: Row, backend: str) -> None:
    found = computed(group, backend)[row.name]
    if isinstance(found, Exception):
        raise found
    with torch.no_grad():
        wanted = row.call(torch_layer(row), *map(torch.from_numpy, row.inputs))
    ours, theirs = flatten(found)[0], flatten(wanted)[0]
    assert len(ours) == len(theirs)
    for actual, expected in zip(ours, theirs, strict=True):
        close(np.asarray(actual), expected.numpy(), TOLERANCE)


@pytest.mark.parametrize(("group", "row"), ROWS)
def test_like_torch(group: str, row: Row) -> None:
    check(group, row, "cpu")


@pytest.mark.parametrize(("group", "row"), QUICK)
def test_like_torch_on_the_reference(group: str, row: Row) -> None:
    check(group, row, "reference")


@pytest.mark.parametrize(("group", "row"), ROWS)
def test_state_dict_is_that_of_torch(group: str, row: Row) -> None:
    theirs = torch_layer(row).state_dict()
    ours = our_layer(row).state_dict()
    assert [(n, a.shape) for n, a in ours.items()] == [
        (n, tuple(t.shape)) for n, t in theirs.items()
    ]
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name].numpy())


def test_there_are_60_configurations() -> None:
    assert len({row.name for rows in GROUPS.values() for row in rows}) >= 60
