"""Small collectives that become one: which do, where their buffers lie, what they compute."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from luminal.backends.cpu import backend as cpu
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import VerifyError
from luminal.hlir.graph import Builder, Graph, Output
from luminal.program import memory_plan
from luminal.program.buckets import MOST_BYTES
from luminal.program.verify import verify, verify_placement
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import run_local
from luminal.runtime.executable import Executable
from luminal.runtime.ranks import OnRanks
from luminal.runtime.variants import Variant
from luminal.shape.expression import const
from tests.distributed.graphs import Drawn, collective
from tests.distributed.together import check, members, program_of

SIZES = (3, 17, 64)


def several(
    sizes: tuple[int, ...] = SIZES, kinds: tuple[str, ...] = ("all_reduce",) * 3,
    types: tuple[DType, ...] = (dtypes.float32,) * 3, *, reductions: str = "SSS",
) -> Graph:  # fmt: skip
    """Collectives of values of their own, each read once all are there."""
    b, sinks = Builder(), []
    for k, (size, kind, dtype) in enumerate(zip(sizes, kinds, types, strict=True)):
        x = b.input(f"x{k}", (const(size),), dtype)
        by = "Sum" if reductions[k] == "S" else "Max"
        pairs = [(0, 1), (1, 0)] if kind == "permute" else []
        total = collective(
            b, kind, b.apply("Add", x, x), 2, reduction=by, pairs=pairs, label=f"g{k}"
        )
        sinks.append(Output(b.apply("Mul", total, total), f"y{k}"))
    return Graph(tuple(sinks))


@pytest.mark.parametrize("kind", ["all_reduce", "permute"])
def test_neighbours_are_one(kind: str) -> None:
    graph = several(kinds=(kind,) * 3)
    program = program_of(graph)
    assert members(program) == [3]

    def work(engine: Engine) -> list[np.ndarray]:
        backend = cpu.current()
        exe = Executable(
            graph, [Variant({}, backend.runner(program))], mesh=OnRanks({"data": engine})
        )
        inputs = {
            f"x{k}": np.arange(n, dtype=np.float32) + engine.rank for k, n in enumerate(SIZES)
        }
        return [np.array(exe(inputs)[f"y{k}"]) for k in range(3)]

    for rank, results in enumerate(run_local(2, work)):
        for size, y in zip(SIZES, results, strict=True):
            positions = np.arange(size)
            total = 4 * positions + 2 if kind == "all_reduce" else 2 * (positions + 1 - rank)
            np.testing.assert_array_equal(y, total.astype(np.float32) ** 2)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (several(types=(dtypes.float32, dtypes.int32, dtypes.int32)), [1, 2]),
        (several(reductions="SSM"), [2, 1]),
        (several((64, 64, 64), ("all_to_all", "all_reduce", "all_reduce")), [1, 2]),
        (several((64, 64, 64), ("all_gather",) * 3), [1, 1, 1]),
        (several((3, MOST_BYTES // 4 - 2, 64)), [1, 1, 1]),
        (several((3, MOST_BYTES // 4 + 1, 64)), [1, 1, 1]),
        (several((0, 3, 4)), [1, 2]),
    ],
)  # fmt: skip
def test_what_becomes_one(graph: Graph, expected: list[int]) -> None:
    assert sorted(members(program_of(graph))) == sorted(expected)


def test_a_result_that_is_read_before_the_next_operand_is_alone() -> None:
    b = Builder()
    x = b.input("x", (const(8),), dtypes.int32)
    first = collective(b, "all_reduce", b.apply("Add", x, x), 2)
    second = collective(b, "all_reduce", b.apply("Mul", first, x), 2)
    program = program_of(Graph((Output(b.apply("Mul", second, x), "y"),)))
    assert members(program) == [1, 1]


def test_buffers_of_one_collective_lie_side_by_side() -> None:
    program = program_of(several())
    verify(program)
    plan = memory_plan.plan(program, program.launches)
    assert [len(row) for row in plan.rows] == [3, 3]
    sizes = [program.buffers[number].bytes.value for number in plan.buffers]
    placement = memory_plan.place(plan, sizes)
    verify_placement(program, program.launches, plan, placement)
    apart = memory_plan.place(replace(plan, rows=()), [64 * (1 + k) for k in range(len(sizes))])
    with pytest.raises(VerifyError, match="are of one collective and do not lie side by side"):
        verify_placement(program, program.launches, plan, apart)


def drawn(seed: int, rank: int) -> Drawn:
    """Sums and exchanges of many small values, read in another order than they are made."""
    rng, b = random.Random(seed), Builder()
    inputs, totals = {}, []
    for k in range(rng.randint(4, 9)):
        size, dtype = (
            rng.choice((1, 5, 16, 33)),
            rng.choice((dtypes.float32,) * 4 + (dtypes.int32,)),
        )
        x = b.input(f"x{k}", (const(size),), dtype)
        inputs[f"x{k}"] = np.random.default_rng([seed, k, rank]).integers(-9, 9, size)
        inputs[f"x{k}"] = inputs[f"x{k}"].astype(dtype.numpy)
        kind = rng.choice(("all_reduce",) * 4 + ("permute", "all_gather"))
        pairs = [(0, 1)] if kind == "permute" else []
        total = collective(b, kind, b.apply("Add", x, x), 2, pairs=pairs)
        totals.append(b.apply("Mul", total, total))
        if rng.random() < 0.3:
            totals.append(collective(b, "all_reduce", totals[-1], 2))
    rng.shuffle(totals)
    outputs = (Output(total, f"y{k}") for k, total in enumerate(totals))
    return Drawn(Graph(tuple(outputs)), (), inputs, {})


def test_random_buckets() -> None:
    joined = 0
    for seed in range(6):
        ranks = [drawn(seed, rank) for rank in range(2)]
        check(ranks)
        joined += sum(count > 1 for count in members(program_of(ranks[0].graph)))
    assert joined > 5
