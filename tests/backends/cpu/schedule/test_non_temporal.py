"""Results that are stored past the caches: which ones, and that they are right as they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu.target import detect
from luminal.kernel.tile_ir import Kernel
from luminal.kernel.tile_text import to_text
from luminal.schedule.vectors.non_temporal import with_non_temporal_stores
from tests.backends.cpu.tile_builder import TileBuilder, native, targets
from tests.fuzz.cpu_run import compiled
from tests.machines import level

# A cache that most results pass by.
TINY = replace(detect(), l3_bytes=1 << 10, stores_past_caches=True)
PROGRAMS = {
    "row": (lambda x: x.softmax(-1), True),
    "map": (lambda x: x * 2 + 1, True),
    "running": (lambda x: x.cumsum(-1), True),
    "much work": (lambda x: x.sin().exp().sqrt(), False),
    "turned": (lambda x: x.transpose(0, 1) + 0, False),
    "small": (lambda x: x.sum(-1), False),
}


def kernels(record: Callable[[lm.Tensor], lm.Tensor], *shape: int | None) -> list[Kernel]:
    graph = lm.Graph()
    extents = [graph.dim("n", 1, 4096) if n is None else n for n in shape]
    record(graph.tensor(tuple(extents), name="x")).output("y")
    return list(compiled(graph.graph())[1].program.kernels)


@pytest.mark.parametrize("name", PROGRAMS)
def test_large_results_that_are_written_by_lines_are_streamed(name: str) -> None:
    record, wanted = PROGRAMS[name]
    placed = kernels(record, 64, 48)
    assert (
        any(
            "out non_temporal" in to_text(with_non_temporal_stores(kernel, TINY))
            for kernel in placed
        )
        == wanted
    )
    assert all(with_non_temporal_stores(kernel, detect()) == kernel for kernel in placed)


def test_results_that_may_be_small_are_not_streamed() -> None:
    (kernel,) = kernels(lambda x: x * 2, None, 48)
    assert with_non_temporal_stores(kernel, TINY) == kernel


def test_who_sees_a_stream_by_itself_is_told_nothing() -> None:
    for kernel in kernels(PROGRAMS["map"][0], 64, 48):
        assert with_non_temporal_stores(kernel, replace(TINY, stores_past_caches=False)) == kernel
    assert not level("neon").target.stores_past_caches


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i8", "i32"])
@pytest.mark.parametrize("elements", [64, 67, 200])
def test_any_alignment_gives_the_same(dtype: str, elements: int) -> None:
    k = TileBuilder()
    k.buffer("x", 3 * elements, dtype=dtype)
    k.buffer("y", 3 * elements, "out", dtype)
    g = k.grid("g", 3)
    with k.loop("i", elements, unroll=4, vector=8) as i:
        k.store("y", g * elements + i.axis, k.load("x", g * elements + i.axis))
    kernel = k.kernel()
    marked = with_non_temporal_stores(kernel, replace(TINY, l3_bytes=64))
    assert "out non_temporal y" in to_text(marked)
    own = k.buffers[0].dtype.numpy
    x = np.random.default_rng(elements).integers(-60, 60, 3 * elements).astype(own)
    size = x.nbytes
    for target in targets():
        for at in (0, 4, 8, 16, 32, 48):
            raw = np.full(size + 256, 0x5A, np.uint8)
            first = -raw.ctypes.data % 64 + 64 + at
            y = raw[first : first + size].view(own)
            native(marked, target)({"x": x, "y": y}, {})
            assert y.tobytes() == x.tobytes()
            assert (raw[:first] == 0x5A).all()
            assert (raw[first + size :] == 0x5A).all()
