"""The text form of HLIR: one golden graph, and texts that are read back."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.errors import GraphError
from luminal.hlir.attributes import Body, CustomKernel
from luminal.hlir.graph import Assign, Builder, Graph, Output
from luminal.hlir.ops import Value
from luminal.hlir.parser import parse
from luminal.hlir.printer import to_text
from luminal.hlir.types import TensorType
from luminal.hlir.verify import verify
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape import view as views
from luminal.shape.expression import const, symbol

GOLDEN = """\
graph {
  dim s in 1..512
  dim past in 0..511
  require past + s <= 512
  %0 = Input x : f32[s, 2]
  %1 = View %0 [i1, i0] : f32[2, s]
  %2 = Sum %1 axis=1 : f32[2]
  %3 = Constant 0x0000803f00000040 : f32[2]  # [1.0, 2.0]
  %4 = Add %2, %3 : f32[2]
  %5 = Sort %4 axis=0 : f32[2], i64[2]
  %6 = State cache : f32[512, 2]
  %7 = Scatter set %6, %0 [i0 + past, i1] : f32[512, 2]
  output y = %4
  hidden order = %5.1
  assign cache = %7
}
"""


def golden() -> Graph:
    b = Builder()
    s, past = symbol("s", 1, 512), symbol("past", 0, 511)
    x = b.input("x", (s, const(2)), dtypes.float32)
    total = b.sum(b.view(x, views.permute(x.shape, (1, 0))), 1)
    y = b.apply("Add", total, b.constant(np.array([1.0, 2.0]), dtypes.float32))
    cache = State((512, 2), name="cache")
    place = [past + views.index(0, s), views.index(1, const(2))]
    written = b.scatter(b.state(cache), place, x)
    _, order = b.sort(y, 0)
    sinks = (Output(y, "y"), Output(order, "order", hidden=True), Assign(cache, written))
    return Graph(sinks, (s, past), (past + s <= 512,))


def round_trip(graph: Graph, **kernels: CustomKernel) -> Graph:
    verify(graph)
    text = to_text(graph)
    again = parse(text, kernels)
    verify(again)
    assert to_text(again) == text
    return again


def test_golden_text() -> None:
    assert to_text(golden()) == GOLDEN


def test_golden_text_is_read_back() -> None:
    again = round_trip(golden())
    assert again.dims == golden().dims
    assert again.requirements == golden().requirements
    state = again.sinks[2]
    assert isinstance(state, Assign)
    assert repr(state.state) == "State(cache: f32[512, 2])"


def test_odd_names() -> None:
    b = Builder()
    dim = symbol("batch size: n", 1, 4)
    names = ['a "b" : c', "x y", "a\\", "[(", "ü\n", "min"]
    inputs = [b.input(name, (dim, const(2)), dtypes.int8) for name in names]
    total = inputs[0]
    for value in inputs[1:]:
        total = b.apply("Add", total, value)
    again = round_trip(Graph((Output(total, "out, 1 = %0"),), (dim,)))
    found = {node.attrs.name for node in again.nodes() if node.op.name == "Input"}
    assert found == set(names)


def test_equal_names_get_suffixes() -> None:
    b = Builder()
    weights = [Parameter((2,), name="w") for _ in range(2)]
    states = [State((2,), name=name) for name in ("k", "k", "k.1")]
    values = [b.weight(f"layer.{n}.w", w) for n, w in enumerate(weights)]
    values += [b.state(state) for state in states]
    total = values[0]
    for value in values[1:]:
        total = b.apply("Add", total, value)
    sinks = (Output(total, "y"), *(Assign(state, total) for state in states))
    text = to_text(round_trip(Graph(sinks)))
    assert "Weight layer.0.w of w :" in text
    assert "Weight layer.1.w of w.1 :" in text
    assert "assign k.1.1 = " in text


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("extents", [(), (0,), (3,), (50, 3)])
def test_literals_are_exact(dtype: dtypes.DType, extents: tuple[int, ...]) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (*extents, dtype.size), np.uint8)
    array = bits.view(dtype.numpy)[..., 0] if dtype.kind != "bool" else bits[..., 0] > 99
    value = Builder().constant(array, dtype)
    again = round_trip(Graph((Output(value, "y"),)))
    assert again.roots[0].node.attrs == value.node.attrs


def test_loops_and_custom_kernels() -> None:
    b, inner = Builder(), Builder()
    row = TensorType(tuple(map(const, (2,))), dtypes.float32)
    carry, piece, unused = (inner.input(f"arg{k}", *row) for k in range(3))
    body = Body(
        (carry.node, piece.node, unused.node), (inner.apply("Add", carry, piece), carry, piece)
    )
    x, y, z = (b.input(name, *row) for name in "xyz")
    states = tuple(State((2,), name="layer") for _ in range(2))
    streams = [[b.state(states[0]), y]]
    assigned = (None, states)
    final, ys, _ = b.loop(const(2), body, [x], streams, [z], assigned)
    twice, other = (CustomKernel("twice", None) for _ in range(2))
    (custom,) = b.custom(twice, [final], [row], const(3), const(4))
    (second,) = b.custom(other, [final], [row])
    graph = Graph((Output(custom, "a"), Output(second, "c"), Output(ys, "b")))
    text = to_text(round_trip(graph, **{"twice": twice, "twice.1": other}))
    assert "Custom twice chunks=(3) flops=(4) %" in text
    assert "Custom twice.1 chunks=(1) flops=(0) %" in text
    assert "trips=(2) carried=[%0] streams=[[%1, %2]] invariants=[%3] y1=[layer, layer.1]" in text
    assert "    yield %3, %0, %1\n" in text
    with pytest.raises(GraphError, match="the kernel 'twice' is not given; pass kernels="):
        parse(text)


def test_deep_graphs() -> None:
    b = Builder()
    x: Value = b.input("x", (const(1),), dtypes.float32)
    for _ in range(10_000):
        x = b.apply("Sin", x)
    round_trip(Graph((Output(x, "y"),)))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("%0 = Foo : f32[]", "there is no op 'Foo'"),
        ("%0 = Exp %3 : f32[]", "'%3' is no value"),
        ("%0 = Input x : f33[]", "'f33' is not an element type"),
        ("%0 = Input x : f32[n]", "unknown"),
        ("%0 = Constant 0x00 : i8[2", "expected one of"),
        ("%0 = Iota (i0) : f32[2] junk\n  nothing y = %0", "not output, hidden or assign"),
        ("%0 = Input x : f32[2]\n%1 = Exp %0 : f32[3]", r"the op gives f32\[2\]"),
        ("%0 = Input x : i32[2]\n%1 = Exp %0 : i32[2]", "Exp: an operand is i32"),
    ],
)
def test_wrong_texts_name_the_line(line: str, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        parse(f"graph {{\n{line}\n}}\n")
