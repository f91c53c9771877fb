"""Every op on the interpreted device, near the reference; no access leaves its buffer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import luminal as lm
from luminal import dtypes
from luminal.dtypes import DType
from luminal.hlir.graph import Graph
from luminal.hlir.ops import OPS
from luminal.runtime.executable import Executable
from tests.backends.cpu import test_op_table as op_table
from tests.backends.interpreted.devices import compiled_on, made

SAMPLE = (lm.float32,)


def compiled(graph: Graph) -> tuple[Executable, None]:
    """As the CPU's, on a device."""
    return compiled_on(made()[0], graph), None


@pytest.mark.parametrize("group", op_table.GROUPS, ids=lambda group: str(group.__name__))
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=() if d in SAMPLE else pytest.mark.long) for d in dtypes.ALL],
    ids=str,
)
def test_every_op_agrees_with_the_reference(
    dtype: DType, group: Callable[[op_table.Table, DType], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if group is op_table.reductions and dtype not in OPS["Sum"].takes:
        pytest.skip("no reduction takes this dtype")
    monkeypatch.setattr(op_table, "compiled", compiled)
    table = op_table.Table()
    group(table, dtype)
    table.check()
