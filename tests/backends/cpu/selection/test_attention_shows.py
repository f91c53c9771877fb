"""What attention from the plain graph must show: one kernel, no scores in memory, masked blocks not
visited, results as near to float64 as float32 allows. Counts, bytes and errors; times are measured
by `make bench-check`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import luminal as lm
from bench.attention import HEADS, WIDTH, error, graph
from luminal.backends.cpu import backend, target
from luminal.compiler.compile import lower_to_program
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program
from luminal.schedule.vectors import cascade
from tests.backends.cpu.schedule.tile_work import work
from tests.long_share import mostly_long

LENGTHS = (
    512, 1024, *mostly_long([2048, 4096, 8192], 0),
)  # fmt: skip
ROUNDING = 2.0**-25  # half of a unit in the last place: so many additions walk off by its root
SCRATCH = 1 << 17  # bytes: block of scores, packed queries and sums lie in the first caches
BLOCK = 40  # rows and columns by which a block of rows may pass the diagonal


def program(length: int, causal: bool) -> Program:
    return lower_to_program(graph(length, causal).graph(), backend.current())


def counted(length: int, causal: bool) -> Counter[str]:
    (kernel,) = program(length, causal).kernels
    return work(kernel)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
def test_one_kernel_that_moves_the_operands_and_the_result(length: int, causal: bool) -> None:
    made = program(length, causal)
    (launch,) = made.launches
    assert not made.prologue
    assert launch.bytes.evaluate({}) == 4 * HEADS * length * WIDTH * 4  # q, k, v and y in float32
    kinds = [buffer.kind for buffer in made.buffers]
    assert kinds.count(BufferKind.INPUT) == 3
    assert kinds.count(BufferKind.OUTPUT) == 1
    assert len(kinds) == 4  # nothing between
    (kernel,) = made.kernels
    scratch = sum(int(b.size.evaluate({})) * b.dtype.size for b in kernel.scratch)
    assert scratch <= SCRATCH


@pytest.mark.parametrize("length", LENGTHS)
def test_all_is_computed_once(length: int) -> None:
    counts = counted(length, causal=False)
    assert counts["Contract"] == 2 * HEADS * WIDTH * length**2
    many = target.current().registers >= cascade.MANY_REGISTERS
    rescaled = 1 / (cascade.STEP_BLOCK if many else cascade.SHORT_BLOCK)  # a sum, once a block
    assert HEADS * length**2 <= counts["Exp"] <= (1.006 + rescaled) * HEADS * length**2


@pytest.mark.parametrize("length", LENGTHS)
def test_masked_blocks_are_not_visited(length: int) -> None:
    """Of the scores on and below the diagonal each is computed, and few beside them."""
    seen = HEADS * length * (length + 1) // 2
    counts = counted(length, causal=True)
    most = HEADS * length * (length + BLOCK) // 2
    assert 2 * WIDTH * seen <= counts["Contract"] <= 2 * WIDTH * most
    assert seen <= counts["Exp"] <= 1.01 * most
    assert counts["Select"] < 0.2 * counts["Exp"]  # only blocks on the diagonal are masked


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
def test_results_are_as_near_to_float64_as_float32_allows(length: int, causal: bool) -> None:
    random = np.random.default_rng(length)
    inputs = {name: random.standard_normal((HEADS, length, WIDTH), np.float32) for name in "qkv"}
    exe = lm.compile(graph(length, causal))
    found = exe(inputs)["y"]
    assert error(found, inputs, causal, random) < ROUNDING * np.sqrt(length)
    memory = exe.memory_report()
    assert memory.arena_bytes == 0
    assert memory.scratch_bytes <= SCRATCH * target.current().cores
