"""Stores at computed positions by owners: each walks all and does what is its own, in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.scatter import owner_of
from luminal.algebra.terms import Term
from luminal.compiler.compile import lower_by_stages
from luminal.hlir.graph import Graph
from luminal.program.steps import NestStep
from luminal.selection import private_sums
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import checked
from tests.backends.groups import both_meanings
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case
from tests.long_share import long_but

ROWS, PLACES, WIDTH = 12, 5, 5


def embedding(cx: lm.Graph) -> lm.Tensor:
    table, ids = cx.tensor((PLACES, WIDTH), name="table"), cx.tensor((ROWS,), "int32", "ids")
    g = cx.tensor((ROWS, WIDTH), name="g")
    return lm.grad((table[ids] * g).sum(), [table])[0]


def copied(cx: lm.Graph) -> lm.Tensor:
    table, ids = cx.tensor((PLACES, WIDTH), name="table"), cx.tensor((ROWS,), "int32", "ids")
    return table.index_copy(0, ids, cx.tensor((ROWS, WIDTH), name="g") * 2)


def of_two(cx: lm.Graph) -> lm.Tensor:
    """Two coordinates are computed."""
    table = cx.tensor((PLACES, PLACES, WIDTH), name="table")
    ids = cx.tensor((ROWS,), "int32", "ids")
    values = cx.tensor((ROWS, WIDTH), name="g")
    return table.index_put((ids, (ids + 3) % PLACES), values, accumulate=True)


PROGRAMS: dict[str, Callable[[lm.Graph], lm.Tensor]] = {
    "embedding": embedding,
    "copied": copied,
    "of two": of_two,
}


def case(name: str) -> Case:
    cx = lm.Graph()
    PROGRAMS[name](cx).output("y")
    graph, rng = cx.graph(), np.random.default_rng(0)
    given = {}
    for node in graph.by_op()["Input"]:
        shape = [n.value for n in node.types[0].shape]
        is_float = node.types[0].dtype.is_float
        given[node.attrs.name] = (
            rng.standard_normal(shape, np.float32)
            if is_float
            else rng.integers(-PLACES, PLACES, shape, np.int32)
        )
    return Case(graph, given, {}, {})


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few positions there are."""
    monkeypatch.setattr(private_sums, "_cut", lambda *_: None)
    monkeypatch.setattr(private_sums, "_leaves_idle", lambda term, _: term.op == "Scatter")
    by_owners = private_sums._by_owners
    monkeypatch.setattr(private_sums, "_by_owners", lambda *given: by_owners(*given[:-1], 4))


def owned(graph: Graph) -> int:
    """The stores of CUDA's program that have owners."""
    steps = lower_by_stages(graph, offline.backend("cuda")).partition.steps
    nests = [step for step in steps if isinstance(step, NestStep)]
    entries = [x for step in nests for s in step.fused.stores for x in s.index or ()]
    return sum(isinstance(x, Term) and owner_of(x) is not None for x in entries)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", long_but(PROGRAMS, ("embedding",)))
def test_what_owners_store_by_both_meanings(name: str) -> None:
    run = case(name)
    assert owned(run.graph) == 1
    check_case(compiled_on(both_meanings.backend(), run.graph), run)


@pytest.mark.long
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_owners_store_on_the_shims(name: str) -> None:
    run = case(name)
    check_case(compiled_on(checked("cuda"), run.graph), run)


@pytest.mark.parametrize(("dtype", "count"), [("int32", 1), ("int64", 1), ("uint32", 0)])
def test_the_gradient_of_an_embedding_has_owners(dtype: str, count: int) -> None:
    """Of a large table: its few columns alone would leave units idle. What lies outside needs a
    sign.
    """
    cx = lm.Graph()
    table, ids = cx.tensor((5000, 96), name="table"), cx.tensor((2048,), dtype, "ids")
    g = cx.tensor((2048, 96), name="g")
    lm.grad((table[ids] * g).sum(), [table])[0].output("y")
    assert owned(cx.graph()) == count
