"""Random programs on devices of one process, beside the reference on one device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.reference import evaluate_with_bounds
from luminal.base.errors import CompileError
from luminal.distribute import move
from luminal.hlir.prune import pruned
from tests.distributed.programs import Setting, case_of
from tests.fuzz.programs.form import Program
from tests.numerics.tolerance import compare

RUNS = 2

opencl = pytest.param(
    "opencl:0",
    marks=[
        pytest.mark.long,
        pytest.mark.skipif(
            registry.BACKENDS["opencl"].unavailable() is not None,
            reason=f"needs OpenCL: {registry.BACKENDS['opencl'].unavailable()}",
        ),
    ],
)
"""The device of the first rank, where there is one."""


def devices(first: str, ranks: int) -> list[str]:
    """A device for each rank; only the CPU takes several."""
    return [first, *["cpu"] * (ranks - 1)]


def check(program: Program, setting: Setting, first: str) -> int:
    """Runs a program twice on the devices of its mesh, from the same States, and compares what
    comes of it with the reference's bounds; how many collectives it has, -1 where the device cannot
    run it.
    """
    mesh = setting.mesh
    here = lm.Mesh(mesh.shape, mesh.names, devices=devices(first, mesh.size))
    with patch.object(move, "SMALL", setting.small):
        case = case_of(program, replace(setting, mesh=here, by_marks=True))
        for owner, spec in case.states.items():
            owner.spec = spec
        # Kernels in Python run on the CPU alone, and not every device computes in 64 bits.
        try:
            exe = lm.compile(case.recorded, mesh=here, collectives=setting.order)
        except CompileError as error:
            if first != "cpu" and any(text in str(error) for text in ("Python", "f64")):
                return -1
            raise
    one = evaluate_with_bounds(pruned(case.graph), case.arrays, case.dims)
    before = {owner: np.array(owner.numpy()) for owner in one.states}
    dims = {name: n for name, n in case.dims.items() if name in {d.name for d in case.graph.dims}}
    for _ in range(RUNS):
        results = exe(case.arrays, dims=dims)
        for name, bounded in one.outputs.items():
            compare(results[name], *bounded, name=name, max_unstable=1.0)
        for owner, bounded in one.states.items():
            compare(owner.numpy(), *bounded, name=owner.name, max_unstable=1.0)
            owner.set(before[owner])
    return int(str(exe.report()).count(" over '"))


def trained(model: Any) -> dict[str, Any]:
    """All Parameters and buffers by path."""
    both = [*model.named_parameters(), *model.named_buffers()]
    return {path: owner.numpy() for path, owner in both}
