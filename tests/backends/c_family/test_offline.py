"""Kernels of the op table and of ten models compile for chips that are not here, and spill nothing
under default schedules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.graph import Graph
from tests.backends import op_table
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import among
from tests.backends.c_family.offline import TARGETS, Compiler, skip_without
from tests.backends.c_family.small_models import MODELS
from tests.long_share import long_rows

# --- the op table ---------------------------------------------------------------------------------


def table_of(group: op_table.Group, dtype: DType, name: str) -> Graph:
    table = op_table.Table(among(name))
    group(table, dtype)
    return Graph(tuple(table.outputs))


@pytest.mark.parametrize(("name", "architecture"), long_rows(TARGETS, TARGETS[::3]))
def test_a_sample_of_the_op_table(name: str, architecture: str) -> None:
    skip_without(name)
    graph = table_of(op_table.loops, dtypes.float32, name)
    assert offline.check(graph, name, architecture) > 1


@pytest.mark.long
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize(("name", "architecture"), TARGETS)
def test_the_op_table(name: str, architecture: str, dtype: DType) -> None:
    skip_without(name)
    if dtype not in among(name):
        pytest.skip(f"{name} computes no {dtype}")
    for group in op_table.GROUPS:
        if op_table.takes(group, dtype):
            offline.check(table_of(group, dtype, name), name, architecture)


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("name", "architecture"), TARGETS)
def test_kernels_of_models(name: str, architecture: str, model: str, tmp_path: Path) -> None:
    skip_without(name)
    for graph in MODELS[model](tmp_path):
        assert offline.check(graph, name, architecture) > 3


def test_a_kernel_that_spills_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    spilling = Compiler(("sm_80",), lambda: None, lambda text, architecture: 8)
    monkeypatch.setitem(offline.COMPILERS, "cuda", spilling)
    graph = table_of(op_table.loops, dtypes.bool_, "cuda")
    with pytest.raises(AssertionError, match="8 spilled for sm_80"):
        offline.check(graph, "cuda", "sm_80")
