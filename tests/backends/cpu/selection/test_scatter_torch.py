"""Scatters of sizes above toys against PyTorch, and how their work is shared out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.backends.cpu import backend, target
from luminal.base import config
from luminal.compiler.compile import lower_to_program
from luminal.kernel.tile_ir import Loop
from luminal.nn import functional
from luminal.program.launch_list import KernelLaunch
from tests.backends.cpu.selection.scatter_results import results
from tests.fuzz.graphs import Case
from tests.long_share import mostly_long
from tests.machines import NARROWER

Array = np.ndarray[Any, Any]
Build = Callable[[dict[str, Any]], Any]


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def wild(*shape: int) -> Array:
    values = normal(*shape)
    some = values.reshape(-1)[::97]
    some[:] = np.resize([np.nan, np.inf, -np.inf, -0.0], some.shape)
    return values


def below(n: int, *shape: int) -> Array:
    return np.random.default_rng(n).integers(0, n, shape)


def integers(*shape: int) -> Array:
    return np.random.default_rng(1).integers(-(2**31), 2**31, shape).astype(np.int32)


# --- what is computed


def index_add(t: dict[str, Any]) -> Any:
    return t["x"].index_add(0, t["i"], t["s"])


def index_add_of_columns(t: dict[str, Any]) -> Any:
    return t["x"].index_add(1, t["i"], t["s"])


def index_add_of_bfloat16(t: dict[str, Any]) -> Any:
    return t["x"].bfloat16().index_add(0, t["i"], t["s"].bfloat16()).float()


def index_copy(t: dict[str, Any]) -> Any:
    return t["x"].index_copy(0, t["i"], t["s"])


def scatter(t: dict[str, Any]) -> Any:
    return t["x"].scatter(-1, t["i"].argsort(-1), t["s"])


def scatter_add(t: dict[str, Any]) -> Any:
    return t["x"].scatter_add(0, t["i"], t["s"])


def scatter_add_along_the_middle(t: dict[str, Any]) -> Any:
    return t["x"].scatter_add(1, t["i"], t["s"])


def scatter_add_along_the_last_axis(t: dict[str, Any]) -> Any:
    return t["x"].scatter_add(-1, t["i"], t["s"])


def amax(t: dict[str, Any]) -> Any:
    return t["x"].scatter_reduce(0, t["i"], t["s"], "amax")


def product(t: dict[str, Any]) -> Any:
    return t["x"].scatter_reduce(0, t["i"], t["s"], "prod")


def put_at_pairs(t: dict[str, Any]) -> Any:
    return t["x"].index_put((t["i"], t["j"]), t["s"], accumulate=True)


def under_a_mask(t: dict[str, Any]) -> Any:
    return t["x"].index_add(0, t["i"], t["s"] * (t["s"] > 0))


def bincount(t: dict[str, Any]) -> Any:
    return t["i"].bincount(size=77)


def torch_bincount(t: dict[str, Any]) -> Any:
    return torch.bincount(t["i"], minlength=77)


def embedding(t: dict[str, Any]) -> Any:
    return lm.grad((functional.embedding(t["i"], t["w"]) * t["g"]).sum(), [t["w"]])[0]


def torch_embedding(t: dict[str, Any]) -> Any:
    rows = t["w"].shape[0]
    return torch.ops.aten.embedding_dense_backward(t["g"], t["i"], rows, -1, False)


def in_a_loop(t: dict[str, Any]) -> Any:
    """What is added to is carried."""
    step = lambda x, given: (x.index_add(0, given[0], given[1] * 2), None)  # noqa: E731
    return lm.scan(step, t["x"], (t["i"], t["s"]))[0]


def torch_loop(t: dict[str, Any]) -> Any:
    x = t["x"]
    for i, s in zip(t["i"], t["s"], strict=True):
        x = x.index_add(0, i, s * 2)
    return x


SAME: dict[Build, dict[str, Array]] = {
    index_add: {"x": normal(300, 200), "i": below(300, 500), "s": wild(500, 200)},
    index_add_of_columns: {"x": normal(300, 40), "i": below(40, 150), "s": normal(300, 150)},
    index_add_of_bfloat16: {"x": normal(300, 72), "i": np.arange(280), "s": normal(280, 72)},
    index_copy: {
        "x": normal(90, 5, 7), "i": np.random.default_rng(0).permutation(90), "s": wild(90, 5, 7),
    },
    scatter: {"x": normal(200, 333), "i": normal(200, 333), "s": wild(200, 333)},
    scatter_add: {"x": normal(200, 130), "i": below(200, 333, 130), "s": wild(333, 130)},
    scatter_add_along_the_middle: {
        "x": integers(12, 30, 40), "i": below(30, 12, 77, 40), "s": integers(12, 77, 40),
    },
    scatter_add_along_the_last_axis: {
        "x": normal(200, 30), "i": below(30, 200, 333), "s": normal(200, 333),
    },
    amax: {"x": normal(40, 60), "i": below(40, 99, 60), "s": normal(99, 60)},
    product: {"x": normal(40, 60), "i": below(40, 99, 60), "s": normal(99, 60)},
    put_at_pairs: {
        "x": normal(50, 60, 24), "i": below(50, 700), "j": below(60, 700), "s": normal(700, 24),
    },
    under_a_mask: {"x": normal(90, 45), "i": below(90, 400), "s": normal(400, 45)},
}  # fmt: skip
OTHERS: dict[Build, tuple[Build, dict[str, Array]]] = {
    bincount: (torch_bincount, {"i": below(77, 300_000)}),
    embedding: (torch_embedding, {"i": below(512, 4, 256), "w": normal(512, 384),
                                  "g": normal(4, 256, 384)}),
    in_a_loop: (torch_loop, {"x": normal(60, 72), "i": below(60, 9, 50), "s": normal(9, 50, 72)}),
}  # fmt: skip
CASES = {build: (build, arrays) for build, arrays in SAME.items()} | OTHERS


def recorded(build: Build, arrays: dict[str, Array]) -> lm.Graph:
    cx = lm.Graph()
    build({key: cx.tensor(x.shape, str(x.dtype), name=key) for key, x in arrays.items()}).output(
        "y"
    )
    return cx


@pytest.mark.parametrize("machine", mostly_long(["native", NARROWER], 1))
@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_as_pytorch(build: Build, machine: str) -> None:
    """The same bits for any team."""
    theirs, arrays = CASES[build]
    graph = recorded(build, arrays).graph()
    read = [node.attrs.name for node in graph.by_op()["Input"]]
    with config.override(LUMINAL_TARGET=machine):
        first, *others = results(Case(graph, {name: arrays[name] for name in read}, {}, {}))
    expected = theirs({key: torch.from_numpy(x) for key, x in arrays.items()})
    # atomic additions in any order: sums of many terms, which may cancel
    np.testing.assert_allclose(first, expected.numpy(), rtol=2e-5, atol=2e-4)
    assert all(found.tobytes() == first.tobytes() for found in others)


# --- how it is shared out


def shared_out(graph: lm.Graph) -> list[tuple[int, int]]:
    """(chunks, widest vector) of each launch."""
    program = lower_to_program(graph.graph(), backend.current())
    found = []
    for launch in program.launches:
        assert isinstance(launch, KernelLaunch)
        loops = [s for s in program.kernels[launch.kernel].statements() if isinstance(s, Loop)]
        chunks = int(launch.chunks.evaluate({}))
        found.append((chunks, max((loop.vector for loop in loops), default=1)))
    return found


def test_rows_that_may_meet_are_shared_out_by_columns() -> None:
    arrays = {"x": normal(4096, 256), "i": below(4096, 4096), "s": normal(4096, 256)}
    _, (chunks, lanes) = shared_out(recorded(index_add, arrays))
    assert chunks >= 4
    assert lanes == target.current().vector_lanes(4)


def test_neighbouring_axes_that_are_free_are_one() -> None:
    """Rows of 5 times 7 elements fill vectors that rows of 7 would not."""
    arrays = {"x": normal(90, 5, 7), "i": below(90, 1000), "s": normal(1000, 5, 7)}
    _, (_, lanes) = shared_out(recorded(index_add, arrays))
    assert lanes == target.current().vector_lanes(4)


def test_a_histogram_is_counted_in_parts() -> None:
    launches = shared_out(recorded(bincount, {"i": below(77, 1_000_000)}))
    assert max(chunks for chunks, _ in launches) >= 16


def test_as_many_places_as_values_are_not_counted_in_parts() -> None:
    arrays = {"x": normal(100_000), "i": below(100_000, 100_000), "s": normal(100_000)}
    _, (chunks, _) = shared_out(recorded(scatter_add, arrays))
    assert chunks == 1


def test_exact_floats_are_added_in_order() -> None:
    arrays = {"x": normal(77), "i": below(77, 200_000), "s": normal(200_000)}
    graph = recorded(scatter_add, arrays)
    expected = arrays["x"].copy()
    np.add.at(expected, arrays["i"], arrays["s"])
    found = lm.compile(graph, numerics="exact")(arrays)["y"]
    assert found.tobytes() == expected.tobytes()
    close = lm.compile(graph)(arrays)["y"]
    # atomic additions in any order: sums of many terms, which may cancel
    np.testing.assert_allclose(close, expected, rtol=1e-4, atol=1e-3)
    assert close.tobytes() != expected.tobytes()
