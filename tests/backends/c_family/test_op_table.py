"""Every op of HLIR's table in the texts of each dialect that the shims run: see op_table.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from luminal import dtypes
from luminal.dtypes import DType
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable
from tests.backends import op_table
from tests.backends.c_family.dialects import CHECKED, among, checked
from tests.backends.on_device import compiled_on

SAMPLE = (op_table.leaves, op_table.loops)


def check(name: str, dtype: DType, *groups: op_table.Group) -> None:
    backend = checked(name)

    def compiled(graph: Graph) -> Executable:
        return compiled_on(backend, graph)

    op_table.check(compiled, dtype, groups, among(name))


def cells() -> Iterator[object]:
    """Each dialect, dtype and group."""
    for name in CHECKED:
        for dtype in among(name):
            for group in filter(lambda group: op_table.takes(group, dtype), op_table.GROUPS):
                yield pytest.param(name, dtype, group, id=f"{name}-{dtype}-{group.__name__}")


@pytest.mark.parametrize("name", CHECKED)
def test_a_sample_agrees_with_the_reference(name: str) -> None:
    check(name, dtypes.float32, *SAMPLE)


@pytest.mark.long
@pytest.mark.parametrize(("name", "dtype", "group"), list(cells()))
def test_every_op_agrees_with_the_reference(name: str, dtype: DType, group: op_table.Group) -> None:
    check(name, dtype, group)
