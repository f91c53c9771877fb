"""Loads that fetch the next row: where they stand, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu.target import cap as level_of
from luminal.backends.cpu.target import detect
from luminal.base import config
from luminal.expand import interpreter, ir
from luminal.expand.expand import expand
from luminal.expand.ir import Fetch
from luminal.expand.text import to_text
from luminal.expand.verify import verify
from luminal.kernel.tile_ir import Kernel, Load
from luminal.schedule.vectors.prefetch import AHEAD, with_prefetches
from luminal.shape.expression import ZERO
from tests.backends.cpu.tile_builder import native
from tests.close import close_each
from tests.fuzz.cpu_run import compiled
from tests.long_share import mostly_long
from tests.machines import LEVELS, NARROWER

TINY = replace(detect(), l3_bytes=1 << 10)  # a cache that hardly anything fits
Record = Callable[[lm.Tensor], lm.Tensor]


def kernels(record: Record, *shape: int | None) -> tuple[Kernel, ...]:
    graph = lm.Graph()
    extents = [graph.dim("n", 1, 4096) if n is None else n for n in shape]
    record(graph.tensor(tuple(extents), name="x")).output("y")
    return tuple(compiled(graph.graph())[1].program.kernels)


def distances(kernel: Kernel) -> list[int]:
    """Of loads that fetch, which here do at one distance."""
    loads = (each for each in kernel.statements() if isinstance(each, Load))
    return [each.prefetch.constant for each in loads if each.prefetch is not ZERO]


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
    assert [d for kernel in placed for d in distances(with_prefetches(kernel, TINY))] == expected
    assert all(with_prefetches(kernel, detect()) == kernel for kernel in placed)


def test_rows_are_not_fetched_of_arrays_that_may_be_small_or_rows_that_are_large() -> None:
    (kernel,) = kernels(lambda x: x.softmax(-1), None, 48)
    assert with_prefetches(kernel, TINY) == kernel
    (kernel,) = kernels(lambda x: x.softmax(-1), 8, 480)
    assert distances(with_prefetches(kernel, TINY)) == [480]
    assert with_prefetches(kernel, replace(TINY, l2_bytes=4096)) == kernel


def test_results_are_the_same_bits() -> None:
    (kernel,) = kernels(lambda x: x.softmax(-1), 9, 133)
    marked = with_prefetches(kernel, TINY)
    expanded = expand(marked, 16)
    verify(expanded)
    assert any(isinstance(each, Fetch) for each in expanded.statements())
    assert "fetch b0" in to_text(expanded)
    x = np.random.default_rng(0).standard_normal((9, 133), np.float32)
    found = [np.zeros_like(x) for _ in range(3)]
    for each, y in zip((kernel, marked), found, strict=False):
        native(each, detect())({"b0": x, "b1": y}, {})
    assert found[0].tobytes() == found[1].tobytes()
    memory = {"b0": x.ravel().copy(), "b1": found[2].ravel()}
    interpreter.run(expanded, memory, {})
    close_each(memory["b1"].reshape(9, 133), found[0])


@pytest.mark.skipif("avx2" not in LEVELS, reason="asks for vectors of half a line")
def test_a_line_is_fetched_once() -> None:
    """Of vectors of half a line: the next row's lines, each of them once."""
    with config.override(LUMINAL_TARGET="avx2"):
        (kernel,) = kernels(lambda x: x.softmax(-1), 64, 96)
    expanded = expand(with_prefetches(kernel, TINY), 8)
    verify(expanded)
    fetches = [each for each in expanded.statements() if isinstance(each, Fetch)]
    near = {each.address for each in fetches}
    loads = [
        each for each in expanded.statements() if isinstance(each, ir.Load) and each.address in near
    ]
    asked = [each.distance * 4 // 64 for each in fetches]
    assert len(asked) == len(loads) // 2
    assert asked == sorted({(each.distance + 96) * 4 // 64 for each in loads})


def scores(
    rows: int, length: int, width: int, dtype: str = "float32", cap: str = "native"
) -> Kernel:
    """Products of a few rows by those of a long matrix."""
    graph = lm.Graph()
    q, k = (graph.tensor((n, width), dtype, name) for name, n in (("q", rows), ("k", length)))
    (q.cast("float32") @ k.cast("float32").mT).output("y")
    with config.override(LUMINAL_TARGET=cap):
        *_, kernel = compiled(graph.graph())[1].program.kernels
    return kernel


@pytest.mark.parametrize("cap", mostly_long(["native", NARROWER], 1))
@pytest.mark.parametrize(
    ("rows", "width", "dtype", "is_fetched"),
    [
        (5, 64, "float32", True),
        (3, 128, "float32", True),
        (8, 128, "bfloat16", True),
        (8, 1024, "float32", False),  # of a tile that long lines are read before they are fetched
    ],
)
def test_lines_of_tiles_are_fetched_in_their_order_before_they_are_read(
    rows: int,
    width: int,
    dtype: str,
    is_fetched: bool,
    cap: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    length = 80
    kernel = scores(rows, length, width, dtype, cap)
    marked = with_prefetches(kernel, replace(TINY, l2_bytes=1 << 10))
    (matrix,) = (b for b in marked.buffers if b.size.constant == length * width)
    lanes = level_of(detect(), cap).vector_lanes(4)
    size, fetches, reads = matrix.dtype.size, [], {}

    def line(run: interpreter._Interpreter, statement: Fetch | ir.Load) -> int:
        element = size if isinstance(statement, Fetch) else statement.out.type.dtype.size
        return (int(run.scalar(statement.address)) + statement.distance) * element // 64

    def fetch(run: interpreter._Interpreter, statement: Fetch) -> None:
        fetches.append(line(run, statement))

    load = interpreter._Interpreter.RULES[ir.Load]

    def read(run: interpreter._Interpreter, statement: ir.Load) -> None:
        if statement.buffer == matrix.name:
            reads.setdefault(line(run, statement), len(fetches))
        load(run, statement)

    monkeypatch.setitem(interpreter._Interpreter.RULES, Fetch, fetch)  # type: ignore[arg-type]
    monkeypatch.setitem(interpreter._Interpreter.RULES, ir.Load, read)  # type: ignore[arg-type]
    memory = {b.name: np.zeros(int(b.size.evaluate({})), b.dtype.numpy) for b in marked.buffers}
    interpreter.run(expand(marked, lanes), memory, {})
    assert bool(fetches) == is_fetched
    if is_fetched:
        first = AHEAD // 64
        once = list(dict.fromkeys(fetches))
        assert once == list(range(first, first + len(reads)))
        for each, before in reads.items():
            assert each < first or fetches.index(each) < before, each
