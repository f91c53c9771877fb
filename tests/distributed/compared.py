"""A random program on all ranks against the same program on one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from luminal.backends.reference import evaluate_with_bounds
from luminal.base import dtypes
from luminal.distribute import move, rings
from luminal.hlir.prune import pruned
from luminal.hlir.substitute import all_nodes
from tests.distributed.programs import Case, Setting, case_of
from tests.distributed.whole import on_ranks, spread
from tests.fuzz.programs.form import Program
from tests.numerics.tolerance import compare

Array = np.ndarray[Any, Any]


@dataclass
class Seen:
    """What a comparison met: elements compared, those masked as unstable, those equal in bits."""

    elements: int = 0
    masked: int = 0
    by_bits: int = 0
    collectives: int = 0

    def __add__(self, other: Seen) -> Seen:
        return Seen(
            self.elements + other.elements,
            self.masked + other.masked,
            self.by_bits + other.by_bits,
            self.collectives + other.collectives,
        )


def check(program: Program, setting: Setting) -> Seen:
    """Raises AssertionError where ranks differ from one, or from each other."""
    with patch.object(move, "SMALL", setting.small):
        return check_case(case_of(program, setting), setting)


def check_case(case: Case, setting: Setting) -> Seen:
    """As `check`, of what is recorded."""
    outputs, states, out = on_ranks(
        case.graph, setting.mesh, case.inputs, case.states, case.arrays, setting.order, case.dims
    )
    one = evaluate_with_bounds(pruned(case.graph), case.arrays, case.dims)
    assert outputs.keys() == one.outputs.keys()
    assert states.keys() == one.states.keys()
    seen = Seen(collectives=len(out.rows))
    is_exact = not adds_floats(case, setting)
    pairs = [(name, outputs[name], one.outputs[name]) for name in outputs]
    pairs += [(owner.name, states[owner], one.states[owner]) for owner in states]
    for name, array, bounded in pairs:
        compare(array, *bounded, name=name, max_unstable=1.0)
        seen.elements += array.size
        seen.masked += int(bounded.unstable.sum())
        if is_exact:
            seen.by_bits += array.size
            same = array.tobytes() == bounded.value.tobytes()
            nan = array != array  # a NaN is one whatever its payload
            equal = same or bool(((array == bounded.value) | nan).all())
            assert equal, f"{name}: no sum is cut, and points differ in their bits"
    return seen


def adds_floats(case: Case, setting: Setting) -> bool:
    """Is a sum of floats added over ranks, or added by NumPy in an order of its own?"""
    # The engine's sums are collectives, by which they are found; a ring's are not, nor those that
    # are joined at once.
    with patch.object(rings, "MOST_JOINED", 0):
        rank, _ = spread(case.graph, setting.mesh, case.inputs, case.states, "engine")
    return any(
        node.types[0].dtype.is_float
        if node.op.name == "Collective"
        and (node.attrs.reduction == "Sum" or node.attrs.kind == "permute")
        else node.op.name == "Sum" and node.types[0].dtype is dtypes.float64
        for node in all_nodes(rank.graph)
    )
