"""Operations on literals are computed by the reference, once and for all."""

from __future__ import annotations

import numpy as np

from luminal.egraph.guards import Guards
from luminal.egraph.handlers.handler import each
from luminal.egraph.intern import literal_data, literal_text
from luminal.egraph.table import New, Node, Table
from luminal.hlir.attributes import CastAttrs
from luminal.hlir.ops import OPS


@each()
def fold(table: Table, number: int, node: Node, guards: Guards) -> New | None:
    """`op(literals) -> literal`, by the reference's own operation."""
    if not node.is_pointwise:
        return None
    args = []
    for arg in node.args:
        literal = table.literal(arg)
        if literal is None:
            return None
        assert literal.dtype is not None
        data = literal_data(literal.attrs, literal.dtype)
        args.append(np.frombuffer(data, literal.dtype.numpy))
    meaning = OPS[node.op].evaluate
    assert meaning is not None
    dtype = table.dtype[number]
    (value,) = meaning(CastAttrs(dtype), {}, args)
    return New("Literal", literal_text(value.tobytes(), dtype), (), dtype)
