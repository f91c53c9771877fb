"""Groups to loop nests on tiny graphs: the once-per-point law, tiles and rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import luminal as lm
from luminal.compiler.compile import lower_to_program
from luminal.kernel.tile_ir import Contract, Kernel, Load, Loop, Map, Reduce, Store
from luminal.kernel.tile_verify import verify
from luminal.shape.expression import TRUE
from tests.unit.kernel.machine import MACHINE


def kernel(fn: Callable[..., Any], *shapes: tuple[Any, ...]) -> Kernel:
    """The only kernel of a graph, verified."""
    cx = lm.Graph()
    s = cx.dim("s", 1, 64)
    named = [tuple(s if n == "s" else n for n in shape) for shape in shapes]
    fn(*(cx.tensor(shape, name=f"x{k}") for k, shape in enumerate(named))).output("y")
    (found,) = lower_to_program(cx.graph(), MACHINE).kernels
    verify(found)
    return found


def count(found: Kernel, kind: type) -> int:
    return sum(isinstance(statement, kind) for statement in found.statements())


def depths(found: Kernel) -> dict[int, int]:
    """How deep in loops each Map stands, by the tile it defines."""
    out: dict[int, int] = {}

    def walk(body: Any, depth: int) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                walk(statement.body, depth + 1)
            elif isinstance(statement, Map):
                out[statement.out.id] = depth

    walk(found.body, 0)
    return out


def test_a_map_over_matching_operands_is_one_loop() -> None:
    found = kernel(lambda x, y: (x + y) * x, (7, 3, 5), (7, 3, 5))
    (loop,) = [s for s in found.statements() if isinstance(s, Loop)]
    assert loop.stop.value == 105
    assert loop.vector == 8
    assert count(found, Load) == 2


def test_what_is_free_of_a_loop_is_computed_before_it() -> None:
    found = kernel(lambda x, y: x * y.exp(), (64, 64), (64, 1))
    inner = max(depths(found).values())
    exps = [s.out.id for s in found.statements() if isinstance(s, Map) and s.op == "Exp"]
    assert [depths(found)[k] for k in exps] == [inner - 1]


def test_softmax_computes_each_exponential_once() -> None:
    found = kernel(lambda x: x.softmax(-1), (8, 64))
    maps = [s.op for s in found.statements() if isinstance(s, Map)]
    assert maps.count("Exp") == 1
    (row,) = found.scratch
    assert row.size.value == 64
    # maximum, sum, result: three loops over the row in one over the rows
    loops = [s for s in found.statements() if isinstance(s, Loop)]
    assert [loop.stop.value for loop in loops if loop.vector > 1] == [64, 64, 64]


def test_sibling_reductions_share_their_loop() -> None:
    found = kernel(lambda x: x.sum(1) * x.max(1)[0], (8, 64))
    (carried,) = [s for s in found.statements() if isinstance(s, Loop) and s.carries]
    assert len(carried.carries) == 2
    assert count(found, Load) == 1
    assert count(found, Reduce) == 2


def test_a_matrix_product_contracts_a_tile() -> None:
    found = kernel(lambda x, w: x @ w, (64, 64), (64, 64))
    assert count(found, Contract) == 1
    (carried,) = [s for s in found.statements() if isinstance(s, Loop) and s.carries]
    (carry,) = carried.carries
    assert len(carry.result.axes) == 2  # rows and columns of the register tile


def test_a_sum_over_an_axis_that_the_operand_lacks_carries_a_partial_per_lane() -> None:
    found = kernel(lambda x: x.reshape(8, 1).expand(8, 64).sum(1), (8,))
    for loop in (s for s in found.statements() if isinstance(s, Loop) and s.carries):
        for carry in loop.carries:
            assert loop.tile == 1 or loop.axis in carry.result.axes


def test_no_store_stands_in_two_vector_loops() -> None:
    found = kernel(lambda x: x.softmax(0), (3, "s"))

    def walk(body: Any, vectors: int) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                walk(statement.body, vectors + (statement.vector > 1))
            elif isinstance(statement, Store):
                assert vectors <= 1

    walk(found.body, 0)


def test_symbolic_extents_become_parameters() -> None:
    found = kernel(lambda x: x.sum(1), ("s", 12))
    assert [p.name for p in found.params] == ["p0"]
    assert str(found.buffers[0].size) == "p0 * 12"


def test_concatenation_is_a_copy_of_each_part() -> None:
    found = kernel(lambda x, y: lm.cat([x, y], 1), (6, 40), (6, 70))
    assert not count(found, Map)
    assert all(s.guard is TRUE for s in found.statements() if isinstance(s, Load))


def test_padding_is_masked_near_the_ends_only() -> None:
    found = kernel(lambda x: x.pad([(0, 0), (3, 5)]) + 1, (6, 200))
    masked = [s.guard is not TRUE for s in found.statements() if isinstance(s, Load)]
    assert masked == [True, False, True]


def test_short_windows_are_written_out() -> None:
    found = kernel(lambda x: x.avg_pool2d(2), (1, 4, 64, 64))
    assert not any(s.carries for s in found.statements() if isinstance(s, Loop))
    assert count(found, Load) == 4
