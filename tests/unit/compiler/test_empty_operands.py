"""Nothing is read of an operand without elements, wherever its loads are placed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.close import close_each

Build = Callable[[lm.Graph, Callable[..., Any]], None]


def run(build: Build, dims: dict[str, int]) -> None:
    """By the tile interpreter, which raises for every access outside of a buffer."""
    graph = lm.Graph()
    inputs: dict[str, np.ndarray] = {}

    def given(*shape: Any) -> Any:
        name = f"x{len(inputs)}"
        sizes = [n if isinstance(n, int) else n.evaluate(dims) for n in shape]
        inputs[name] = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
        return graph.tensor(shape, name=name)

    build(graph, given)
    found = graph.compile(backend="interpreted")(inputs, dims=dims)
    expected = graph.compile(backend="reference")(inputs, dims=dims)
    for name, array in expected.items():
        close_each(found[name], array, err_msg=name)


def pointwise(graph: lm.Graph, given: Callable[..., Any]) -> None:
    for k, shape in enumerate([(0,), (3, 0), (0, 3), (2, 0, 3), (2, 3, 0), (0, 0)]):
        given(*shape).exp().output(f"y{k}")


def broadcast(graph: lm.Graph, given: Callable[..., Any]) -> None:
    (given(3, 0) + given(3, 1)).output("row")
    (given(2, 0, 3) * given(0, 1) + given()).output("all")
    given(0).reshape(0, 1).expand(0, 4).output("wide")


def reduced(graph: lm.Graph, given: Callable[..., Any]) -> None:
    x = given(3, 0)
    (x * 2).sum(1).output("sum")
    x.softmax(0).output("softmax")
    (x @ given(0, 4)).output("product")
    given(2, 3, 0).sum((0, 1)).output("sums")


def dynamic(graph: lm.Graph, given: Callable[..., Any]) -> None:
    n, m = graph.dim("n", 0, 8), graph.dim("m", 0, 1)
    x, y = given(n, m), given(m, n)
    (x + y.T).exp().output("sum")
    (given(n, 0) * 2).output("none")
    (x @ y).output("product")
    x.sum(0).output("columns")
    (given(3, n, m) * x).output("wide")


@pytest.mark.parametrize("build", [pointwise, broadcast, reduced], ids=lambda f: f.__name__)
def test_literal_extents(build: Build) -> None:
    run(build, {})


@pytest.mark.parametrize("dims", [(0, 0), (0, 1), (5, 0), (5, 1)], ids=str)
def test_dims(dims: tuple[int, int]) -> None:
    run(dynamic, dict(zip("nm", dims, strict=True)))
