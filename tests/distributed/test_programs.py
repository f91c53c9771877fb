"""Random programs on all ranks of a mesh give what they give on one.

Integers and bools bit by bit, floats within the reference's bounds, and bit by bit where no sum of
floats is cut. A seed is a program, a mesh and how leaves lie: `programs.drawn`, or
`programs.directed` for one step at the limit of a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import ShapeError
from luminal.distribute.layout import Cut
from luminal.distribute.mesh import Mesh
from luminal.distribute.parts import part
from luminal.shape.expression import symbol
from tests.distributed.compared import Seen, check
from tests.distributed.directed import DIRECTED
from tests.distributed.programs import Setting, directed, drawn
from tests.distributed.whole import on_ranks
from tests.fuzz.programs.form import Program
from tests.fuzz.programs.growth import Growth
from tests.long_share import mostly_long

CHUNK = 20
FEW = 8
MOST_MASKED = 0.02


def checked(programs: Iterable[tuple[Program, Setting]]) -> Seen:
    """What comparisons met. One program in four may stand on a cliff, such as a floor or a compare,
    where the reference's bounds tell nothing; elements of all programs together would be those of
    the largest.
    """
    seen, count, vague = Seen(), 0, 0
    for program, setting in programs:
        try:
            one = check(program, setting)
        except Exception as error:
            error.add_note(f"program {count} of these: {program}")
            raise
        seen, count = seen + one, count + 1
        vague += one.masked > MOST_MASKED * one.elements
    assert vague <= count // 4, f"{vague} of {count} programs: {seen}"
    return seen


@pytest.mark.parametrize("chunk", mostly_long(range(25), 1))
def test_ranks_agree_with_one(chunk: int) -> None:
    seen = checked(drawn(seed) for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)))
    assert seen.collectives >= CHUNK, seen
    assert seen.by_bits >= seen.elements // 20, seen


@pytest.mark.parametrize("step", dict.fromkeys(DIRECTED), ids=lambda step: step.__name__)
@pytest.mark.parametrize("chunk", mostly_long(range(25), 1))
def test_ranks_agree_at_the_limits_of_rules(step: Callable[[Growth], None], chunk: int) -> None:
    seen = checked(directed(seed, step) for seed in range(FEW * chunk, FEW * (chunk + 1)))
    assert seen.collectives, seen


@pytest.mark.parametrize("is_first", [True, False])
def test_a_sum_and_a_maximum_of_one_mesh_axis_are_reduced_before_they_meet(is_first: bool) -> None:
    graph = lm.Graph()
    x = graph.tensor((4, 3), name="x").shard("a")
    (x.sum(0) * x.amax(0) if is_first else x.amax(0) * x.sum(0)).output("y")
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    outputs, _, _ = on_ranks(graph.graph(), Mesh((2,), ("a",)), None, {}, {"x": array})
    np.testing.assert_array_equal(outputs["y"], array.sum(0) * array.max(0))


def test_an_extent_known_at_run_time_that_does_not_divide_is_refused() -> None:
    layout = ((), (Cut("a", 3, symbol("s", 1, 9)),))
    with pytest.raises(ShapeError, match="dimension 1 of 16 is cut into 3 parts"):
        part(np.zeros((2, 16)), layout, {"a": 0}, {"s": 5})
