"""Passes of few rows, cut along their steps: what the chunks and their kernel combine to."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.terms import Term
from luminal.backends.backend import Backend
from luminal.base.dtypes import int32
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.kernel.cascade import Rate
from luminal.kernel.tile_ir import Loop
from luminal.program.launch_list import walk
from luminal.selection.split_cascades import _Chunks
from luminal.shape.expression import const
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import checked
from tests.backends.c_family.offline import skip_without
from tests.backends.cpu.schedule.cascade_cases import case
from tests.backends.groups import both_meanings
from tests.backends.groups.decode_graphs import cutting, decode
from tests.backends.on_device import check_case, compiled_on
from tests.close import close
from tests.fuzz.graphs import Case
from tests.long_share import long_but, long_rows, mostly_long

ATTENTION = (
    "plain", "narrow values", "wide", "one query", "few queries", "grouped", "grouped, one query",
    "dynamic", "causal", "causal, dynamic", "causal, added", "causal, filled", "ahead",
    "behind, some see nothing", "window", "window and first", "window or first, long", "capped",
    "biased", "alibi", "log-sum-exp beside", "weighted", "raw scores again", "another product",
    "parts", "two axes of keys",
)  # fmt: skip
"""Cases whose sums all follow a maximum."""


def launches(graph: Graph, backend: Backend) -> list[str]:
    return [launch.label for launch in walk(lower_to_program(graph, backend).launches)]


@pytest.mark.parametrize("name", long_but(ATTENTION, ("grouped, one query", "causal, dynamic")))
def test_two_kernels_give_what_one_gives(name: str) -> None:
    backend, run = cutting(checked("cuda"), 32), case(name)
    assert len(launches(run.graph, backend)) == 2
    check_case(compiled_on(backend, run.graph), run)


def attention(queries: int, keys: int, width: int = 8) -> lm.Graph:
    cx = lm.Graph()
    named = {"q": (queries, width), "k": (keys, width), "v": (keys, width)}
    q, k, v = (cx.tensor(shape, name=name) for name, shape in named.items())
    bias = cx.tensor((queries, keys), name="bias")
    ((q @ k.mT + bias).softmax(-1) @ v).output("y")
    return cx


def drawn(queries: int, keys: int, width: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(keys)
    shapes = {"q": (queries, width), "k": (keys, width), "v": (keys, width)}
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    inputs["bias"] = np.zeros((queries, keys), np.float32)
    return inputs


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        scores = q.astype(np.float64) @ k.T + bias
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        return weights @ v


@pytest.mark.parametrize("keys", mostly_long([40, 33, 48], 1))
def test_both_meanings(keys: int) -> None:
    backend = cutting(both_meanings.backend(), 8)
    run = Case(attention(2, keys).graph(), drawn(2, keys), {}, {})
    assert len(launches(run.graph, backend)) == 2
    check_case(compiled_on(backend, run.graph), run)


@pytest.mark.parametrize("far", [0.0, 80.0, 1e4])
def test_maxima_of_chunks_may_be_far_apart(far: float) -> None:
    inputs = drawn(3, 100)
    inputs["bias"][:] = far * np.sin(np.arange(100) / 9)
    exe = compiled_on(cutting(checked("cuda"), 16), attention(3, 100).graph())
    # A score's own rounding is a relative error of what is computed of its exponential.
    close(exe(inputs)["y"], expected(**inputs).astype(np.float32), ulp=16 + far)


def test_what_is_masked_by_values_counts_for_nothing() -> None:
    """One chunk of query 0, all but one of 1, all of 2; scores of 3 and 4 are infinite and NaN."""
    inputs = drawn(5, 100)
    inputs["bias"][0, 16:32] = inputs["bias"][1, :90] = inputs["bias"][2] = -np.inf
    inputs["bias"][3, 40] = np.inf
    inputs["bias"][4, 50] = np.nan
    exe = compiled_on(cutting(checked("cuda"), 16), attention(5, 100).graph())
    found, wanted = exe(inputs)["y"], expected(**inputs).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found).all(1), [False, False, True, True, True])
    close(found, wanted, ulp=16)


@pytest.mark.parametrize("fault", ["half of the rescaling", "no mask"])
def test_planted_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = drawn(2, 100)
    run = Case(attention(2, 100).graph(), inputs, {}, {})
    backend = cutting(checked("cuda"), 16)
    if fault == "half of the rescaling":
        weights = _Chunks.weight

        def half(self: _Chunks, rate: Rate) -> Term:
            (exponent,) = weights(self, rate).args
            return self.terms.pointwise("Exp", (self._times(0.5, exponent),), exponent.dtype)

        monkeypatch.setattr(_Chunks, "weight", half)
    else:
        monkeypatch.setattr(
            "luminal.selection.split_cascades.only_inside", lambda terms, inside, x, monoid: x
        )
    assert len(launches(run.graph, backend)) == 2
    with pytest.raises(AssertionError, match="points differ"):
        check_case(compiled_on(backend, run.graph), run)


@pytest.mark.parametrize(
    ("name", "architecture"),
    long_rows([("cuda", "sm_80"), ("cuda", "sm_90a"), ("hip", "gfx942")], [("cuda", "sm_90a")]),
)
def test_the_kernels_of_a_decode_step_spill_nothing(name: str, architecture: str) -> None:
    skip_without(name)
    offline.check(decode(1), name, architecture)


def test_attention_of_a_decode_step_is_two_kernels() -> None:
    labels = launches(decode(1), offline.backend("cuda"))
    assert sum("Exp" in label and "Max" in label for label in labels) == 2


@pytest.mark.parametrize("width", mostly_long([7, 8, 24, 80], 1))
@pytest.mark.parametrize("queries", [1, 3])
def test_lanes_share_the_products_of_few_queries(queries: int, width: int) -> None:
    inputs = drawn(queries, 40, width)
    run = Case(attention(queries, 40, width).graph(), inputs, {}, {})
    for backend in (cutting(both_meanings.backend(), 8), cutting(checked("cuda"), 32)):
        program = lower_to_program(run.graph, backend)
        loops = [s for s in program.kernels[0].statements() if isinstance(s, Loop)]
        assert any(loop.stop is const(width) and loop.lanes.count > 1 for loop in loops)
        check_case(compiled_on(backend, run.graph), run)


@pytest.mark.parametrize("cached", [True, False])
def test_what_a_step_looks_up_is_read_in_the_pass(cached: bool) -> None:
    """Keys in blocks that a table names, of a text that ends within one, and those of no table."""
    cx = lm.Graph()
    count, blocks, size, width = cx.dim("count", 1, 40), 50, 4, 8
    table = cx.tensor((count,), int32, name="table")
    length = cx.tensor((), int32, name="length")
    q, k, v = (
        cx.tensor(shape, name=name)
        for name, shape in (
            ("q", (1, width)), ("k", (blocks, size, width)), ("v", (blocks, size, width)),
        )
    )  # fmt: skip
    keys, values = (x[table].flatten(0, 1) for x in (k, v))
    if not cached:
        keys = keys * 2
    seen = cx.arange(count * size) < length
    (lm.where(seen, q @ keys.mT, -np.inf).softmax(-1) @ values).output("y")
    rng = np.random.default_rng(0)
    inputs = {
        "table": rng.permutation(blocks)[:31].astype(np.int32),
        "length": np.asarray(31 * size - 2, np.int32),
        "q": rng.standard_normal((1, width), np.float32),
        "k": rng.standard_normal((blocks, size, width), np.float32),
        "v": rng.standard_normal((blocks, size, width), np.float32),
    }
    run = Case(cx.graph(), inputs, {"count": 31}, {})
    backend = cutting(checked("cuda"), 16)
    assert len(launches(run.graph, backend)) == 2
    check_case(compiled_on(backend, run.graph), run)
