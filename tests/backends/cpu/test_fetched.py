"""Loads that fetch the next row: where they stand, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal import config
from luminal.backends.cpu.schedule.fetched import fetched
from luminal.backends.cpu.target import detect
from luminal.expand import interpreter, ir
from luminal.expand.expand import expand
from luminal.expand.ir import Fetch
from luminal.expand.verify import verify
from luminal.kernel.tile_ir import Kernel, Load
from tests.backends.cpu.tile_builder import native
from tests.fuzz.cpu_run import compiled

TINY = replace(detect(), l3_bytes=1 << 10)  # a cache that hardly anything fits
Record = Callable[[lm.Tensor], lm.Tensor]


def kernels(record: Record, *shape: int | None) -> tuple[Kernel, ...]:
    graph = lm.Graph()
    extents = [graph.dim("n", 1, 4096) if n is None else n for n in shape]
    record(graph.tensor(tuple(extents), name="x")).output("y")
    return tuple(compiled(graph.graph())[1].program.kernels)


def distances(kernel: Kernel) -> list[int]:
    return [each.ahead for each in kernel.statements() if isinstance(each, Load) and each.ahead]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (lambda x: x.softmax(-1), [48]),  # where the exponentials are taken
        (lambda x: x.log_softmax(-1), [48]),
        (lambda x: x.layer_norm(-1), []),  # little work in any loop
        (lambda x: x.exp().sum(-1), []),  # read once
        (lambda x: x.softmax(0), []),  # rows along another axis
    ],
)
def test_rows_are_fetched_where_much_is_computed(record: Record, expected: list[int]) -> None:
    placed = kernels(record, 64, 48)
    assert [d for kernel in placed for d in distances(fetched(kernel, TINY))] == expected
    assert all(fetched(kernel, detect()) == kernel for kernel in placed)


def test_rows_are_not_fetched_of_arrays_that_may_be_small_or_rows_that_are_large() -> None:
    (kernel,) = kernels(lambda x: x.softmax(-1), None, 48)
    assert fetched(kernel, TINY) == kernel
    (kernel,) = kernels(lambda x: x.softmax(-1), 8, 480)
    assert distances(fetched(kernel, TINY)) == [480]
    assert fetched(kernel, replace(TINY, l2_bytes=4096)) == kernel


def test_results_are_the_same_bits() -> None:
    (kernel,) = kernels(lambda x: x.softmax(-1), 9, 133)
    marked = fetched(kernel, TINY)
    expanded = expand(marked, 16)
    verify(expanded)
    assert any(isinstance(each, Fetch) for each in expanded.statements())
    assert "fetch b0" in expanded.text
    x = np.random.default_rng(0).standard_normal((9, 133), np.float32)
    found = [np.zeros_like(x) for _ in range(3)]
    for each, y in zip((kernel, marked), found, strict=False):
        native(each, detect())({"b0": x, "b1": y}, {})
    assert found[0].tobytes() == found[1].tobytes()
    memory = {"b0": x.ravel().copy(), "b1": found[2].ravel()}
    interpreter.run(expanded, memory, {})
    np.testing.assert_allclose(memory["b1"].reshape(9, 133), found[0], rtol=1e-6)


def test_a_line_is_fetched_once() -> None:
    """Of vectors of half a line: the next row's lines, each of them once."""
    with config.override(LUMINAL_TARGET="avx2"):
        (kernel,) = kernels(lambda x: x.softmax(-1), 64, 96)
    expanded = expand(fetched(kernel, TINY), 8)
    verify(expanded)
    fetches = [each for each in expanded.statements() if isinstance(each, Fetch)]
    near = {each.address for each in fetches}
    loads = [
        each for each in expanded.statements() if isinstance(each, ir.Load) and each.address in near
    ]
    asked = [each.distance * 4 // 64 for each in fetches]
    assert len(asked) == len(loads) // 2
    assert asked == sorted({(each.distance + 96) * 4 // 64 for each in loads})
