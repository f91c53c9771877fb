"""Every op of HLIR's table in the texts of each dialect that the shims run: see op_table.py.

Each cell is a dialect, a dtype and a group of the table; those of a dtype that a dialect lacks are
refused by its name (f64 in Metal).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import CompileError
from luminal.hlir.graph import Graph
from luminal.runtime.executable import Executable
from tests.backends import op_table
from tests.backends.c_family.dialects import CHECKED, DIALECTS, among, checked
from tests.backends.on_device import compiled_on
from tests.long_share import long_but

SAMPLE = (op_table.leaves, op_table.loops)
REFUSED = [(name, dtype) for name in CHECKED for dtype in dtypes.ALL if dtype not in among(name)]


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


@pytest.mark.parametrize(("name", "dtype"), REFUSED)
def test_what_a_dialect_has_no_name_for_is_refused_by_it(name: str, dtype: DType) -> None:
    with pytest.raises(CompileError, match=f"{DIALECTS[name].name} computes no {dtype.short}; "):
        check(name, dtype, op_table.loops)


@pytest.mark.parametrize("name", long_but(CHECKED, ("metal",)))
def test_a_sample_agrees_with_the_reference(name: str) -> None:
    check(name, dtypes.float32, *SAMPLE)


@pytest.mark.long
@pytest.mark.parametrize(("name", "dtype", "group"), list(cells()))
def test_every_op_agrees_with_the_reference(name: str, dtype: DType, group: op_table.Group) -> None:
    check(name, dtype, group)
