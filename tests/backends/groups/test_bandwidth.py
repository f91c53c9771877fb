"""Kernels that memory bounds are predicted to take little more than a copy does on an H100."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import luminal as lm
from tests.backends.groups.predictions import beside_a_copy

N = 4096
MOST = 1.25


def rms_norm(x: lm.Tensor) -> lm.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def layer_norm(x: lm.Tensor) -> lm.Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return apart * (apart.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


PROGRAMS: dict[str, Callable[[lm.Tensor], lm.Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "softmax of bf16": lambda x: x.softmax(-1),
    "gelu": lambda x: x.gelu(),
    "sum of all": lambda x: x.sum(),
    "sums of rows": lambda x: x.sum(1),
    "sums of columns": lambda x: x.sum(0),
    "a middle axis": lambda x: x.reshape(64, 1024, 256).sum(1),
    "root mean square norm": rms_norm,
    "layer norm": layer_norm,
    "a transposed copy": lambda x: x.transpose(0, 1) + 1,
    "a row by a matrix": lambda x: x.graph.tensor((1, N), name="row") @ x,
}


def predicted(name: str) -> float:
    """Times what a copy of the operands and results takes."""
    cx = lm.Graph()
    dtype = "bf16" if "bf16" in name else "f32"
    PROGRAMS[name](cx.tensor((N, N), name="x", dtype=dtype)).output("y")
    seconds, copied, _ = beside_a_copy(cx.graph())
    return seconds / copied


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_memory_bounds_is_predicted_near_a_copy(name: str) -> None:
    assert predicted(name) <= MOST
