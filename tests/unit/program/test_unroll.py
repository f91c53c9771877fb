"""Loops of the launch list written out: the same values, with and without."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.compiler import compile
from luminal.frontend.tensor import Tensor
from luminal.hlir.graph import Graph
from luminal.program import verify
from luminal.program.launch_list import LoopLaunch, Program
from luminal.program.unroll import unroll
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant


def program(graph: Graph) -> Program:
    return compile.lower_to_program(graph, registry.compiling("cpu"))


def executable(graph: Graph, made: Program) -> Executable:
    return Executable(graph, (Variant({}, registry.compiling("cpu").runner(made)),))


def norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()


def layers(count: int) -> tuple[lm.Graph, list[lm.State]]:
    rng = np.random.default_rng(0)
    cx = lm.Graph()
    x, states = cx.tensor((cx.dim("s", 1, 9), 8), name="x"), []
    for _ in range(count):
        w = cx.constant(rng.standard_normal((8, 8)).astype(np.float32))
        states.append(lm.State((4, 8)))
        new = cx.read(states[-1]).slice_scatter((norm(x) @ w)[:1], 0, 1)
        cx.assign(states[-1], new)
        x = x + (norm(x) @ new.mT).softmax(-1) @ new
    x.output("y")
    return cx, states


@pytest.mark.parametrize("count", [4, 5])
def test_a_loop_of_layers_is_written_out(count: int) -> None:
    cx, states = layers(count)
    graph = cx.graph()
    rolled = program(graph)
    written = unroll(rolled)
    verify.verify(written)
    assert sum(isinstance(each, LoopLaunch) for each in rolled.launches) == 1
    assert not any(isinstance(each, LoopLaunch) for each in written.launches)
    assert written.kernels == rolled.kernels
    assert unroll(written) == written
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    found = []
    for each in (rolled, written):
        for state in states:
            state.reset()
        exe = executable(graph, each)
        found.append([exe(x=x)["y"], exe(x=x[:2])["y"], *(state.numpy() for state in states)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_trips_that_vary_and_slices_of_tensors_stay_loops() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 0, 9)
    rows = cx.tensor((n, 3), name="rows")
    last, _ = lm.scan(lambda c, row: (c * 0.5 + row, None), cx.zeros((3,)), rows)
    last.output("y")
    made = program(cx.graph())
    assert unroll(made) == made
    verify.verify(unroll(made))


def test_loops_within_loops() -> None:
    cx = lm.Graph()
    x = cx.tensor((3, 4), name="x")

    def inner(c: Tensor, _: object) -> tuple[Tensor, None]:
        return norm(c).sin(), None

    def outer(c: Tensor, _: object) -> tuple[Tensor, None]:
        return lm.scan(inner, c + 1.0, length=3)[0], None

    lm.scan(outer, x, length=2)[0].output("y")
    graph = cx.graph()
    made = program(graph)
    written = unroll(made)
    verify.verify(written)
    assert not any(isinstance(each, LoopLaunch) for each in written.launches)
    value = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    one, other = (executable(graph, each)(x=value)["y"] for each in (made, written))
    np.testing.assert_array_equal(one, other)
