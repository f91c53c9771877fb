"""Small graphs on which the CPU once was wrong; each is named after what it needs."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.hlir.attributes import InputAttrs, StateAttrs
from luminal.hlir.parser import parse
from luminal.hlir.semantics import extents
from tests.fuzz.cpu_run import check
from tests.fuzz.graphs import Case

GRAPHS = {
    "a sum over an axis its operand lacks counts each position of a tile": """
      %0 = Input x : f32[]
      %1 = View %0 [] : f32[7, 5]
      %2 = Sum %1 axis=0 : f32[5]
      output y = %2""",
    "two sorts of one broadcast value are two operations": """
      %0 = Input x : i32[]
      %1 = View %0 [] : i32[2, 5]
      %2 = Sort %1 axis=0 : i32[2, 5], i64[2, 5]
      %3 = Sort %1 axis=1 : i32[2, 5], i64[2, 5]
      output y = %2.1
      output z = %3.1""",
    "a gather at an index of extent 1": """
      %0 = Input x : f32[4]
      %1 = Gather %0 [i0 + 2] : f32[1]
      output y = %1""",
    "stores do not take a second vector axis beside the reductions' one": """
      dim t in 1..4
      %0 = Input x : f64[1, 1]
      %1 = View %0 [0, 0] : f64[3, t + 1]
      %2 = Max %1 axis=0 : f64[t + 1]
      %3 = View %2 [i1] : f64[3, t + 1]
      %4 = Add %1, %3 : f64[3, t + 1]
      %5 = Sum %4 axis=0 : f64[t + 1]
      %6 = View %5 [i1] : f64[3, t + 1]
      %7 = Div %4, %6 : f64[3, t + 1]
      output y = %7""",
    "an axis of two reductions is not vectorised by the stores alone": """
      %0 = Input x : f32[3, 3]
      %1 = Max %0 axis=1 : f32[3]
      %2 = Max %1 axis=0 : f32[]
      %3 = View %2 [] : f32[3]
      %4 = Add %1, %3 : f32[3]
      %5 = Exp %4 : f32[3]
      %6 = Sum %5 axis=0 : f32[]
      %7 = View %6 [] : f32[3]
      %8 = Div %5, %7 : f32[3]
      output y = %8
      output z = %1""",
    "a scatter's axes may be split otherwise than its destination's": """
      %0 = Input x : f64[7, 4]
      %1 = Input y : f64[7]
      %2 = Input where : i64[7]
      %3 = Scatter add %0, %1 [1 - i0, %2] : f64[7, 4]
      %4 = View %3 [i0, i1 * 2 + i2] : f64[7, 2, 2]
      output z = %3
      output split = %4""",
    "an iota read at gathered positions": """
      %0 = Iota (i0 * 2 + i1 // 2) : i32[5, 4]
      %1 = Input p : i32[6]
      %2 = Input q : i64[6]
      %3 = Gather %0 [%1, %2] : i32[6]
      output y = %3""",
    "an empty output is no home for a value that others read": """
      %0 = Input x : f32[]
      %1 = Exp %0 : f32[]
      %2 = View %1 [] : f32[2, 0]
      %3 = View %1 [] : f32[3]
      output nothing = %2
      output y = %3""",
    "stores over some of the axes of others": """
      %0 = Input x : i32[]
      %1 = View %0 [] : i32[6]
      %2 = FloorDiv %1, %1 : i32[6]
      %3 = Sum %2 axis=0 : i32[]
      %4 = View %3 [] : i32[7, 3]
      %5 = FloorDiv %4, %4 : i32[7, 3]
      %6 = View %3 [] : i32[3, 7]
      %7 = Sum %6 axis=1 : i32[3]
      output y = %5
      output z = %7""",
    "a value moved by a gather is not computed in its reader's kernel": """
      %0 = Input x : f32[8]
      %1 = Max %0 axis=0 : f32[]
      %2 = View %1 [] : f32[4]
      %3 = Iota (i0 * 2) : f32[4]
      %4 = Mul %2, %3 : f32[4]
      %5 = Input where : i64[]
      %6 = Gather %4 [%5] : f32[]
      %7 = Add %1, %1 : f32[]
      output y = %6
      output z = %7""",
    "a loop assigns its states though its values are not needed": """
      %0 = Input x : f32[2]
      %1 = State s : f32[2]
      %2 = Loop trips=(1) carried=[%0] streams=[[%1]] invariants=[] y0=[s] : f32[2], f32[1, 2] {
        %0 = Input a : f32[2]
        %1 = Input b : f32[2]
        %2 = Add %0, %1 : f32[2]
        yield %2, %2
      }
      %3 = Gather %2.1 [i0 + 5, i0] : f32[2]
      output y = %3""",
    "a short sum whose first position is padding reads along one axis less there": """
      dim s in 1..6
      %0 = Input a : i64[s, 2]
      %1 = View %0 [i0, 2 - i2] where (i2 <= 2 & i2 >= 1) : i64[s, 3, 4]
      %2 = Input b : i64[4, 3]
      %3 = View %2 [i2, i1] : i64[s, 3, 4]
      %4 = Mul %1, %3 : i64[s, 3, 4]
      %5 = Sum %4 axis=2 : i64[s, 3]
      output y = %5""",
}


def case_of(body: str) -> Case:
    """The graph of these lines with random inputs and States, dims at 3."""
    graph = parse(f"graph {{{body}\n}}")
    dims = {dim.name: 3 for dim in graph.dims}
    rng = np.random.default_rng(7)
    inputs, states = {}, {}
    for node in graph.nodes():
        shape = extents(node.types[0].shape, dims)
        array = rng.normal(0, 2, shape).astype(node.types[0].dtype.numpy)
        if isinstance(node.attrs, InputAttrs):
            inputs[node.attrs.name] = array
        elif isinstance(node.attrs, StateAttrs):
            states[node.attrs.state] = array
    case = Case(graph, inputs, dims, states)
    case.reset()
    return case


@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name: str) -> None:
    check(case_of(GRAPHS[name]))


def test_what_windows_read_is_no_key_of_its_rows() -> None:
    """Rows that begin with the same integer are not the same: of 32 channels many do."""
    rng = np.random.default_rng(0)
    x, kernel = rng.integers(0, 2, (1, 32, 3, 5)), rng.integers(-9, 9, (3, 3))
    cx = lm.Graph()
    given, k = cx.tensor(x.shape, "int32", "x"), cx.tensor((3, 3), "int32", "k")
    lm.conv2d(given, k.expand(32, 1, 3, 3), padding=1, groups=32).output("y")
    found = lm.compile(cx)({"x": x.astype(np.int32), "k": kernel.astype(np.int32)})["y"]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    np.testing.assert_array_equal(found, np.einsum("nchwij,ij->nchw", windows, kernel))
