"""Every op of HLIR's table on each device that is here: see op_table.py."""

from __future__ import annotations

import pytest

from luminal.backends import registry
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable
from tests.backends import op_table
from tests.backends.c_family.dialects import among
from tests.backends.c_family.present import present
from tests.backends.on_device import compiled_on

SAMPLE = (op_table.leaves, op_table.loops)


def check(name: str, dtype: DType, groups: tuple[op_table.Group, ...] = op_table.GROUPS) -> None:
    if dtype not in among(name):
        pytest.skip(f"{name} computes no {dtype}")

    def compiled(graph: Graph) -> Executable:
        return compiled_on(registry.compiling(name), graph)

    op_table.check(compiled, dtype, groups, among(name))


@pytest.mark.parametrize("name", present())
@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int8, dtypes.bool_], ids=str
)
def test_a_sample_agrees_with_the_reference(name: str, dtype: DType) -> None:
    check(name, dtype, SAMPLE)


@pytest.mark.long
@pytest.mark.parametrize("name", present())
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_op_agrees_with_the_reference(name: str, dtype: DType) -> None:
    check(name, dtype)
