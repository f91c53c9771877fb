"""The verifier of HLIR refuses what breaks a rule, and prints the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.errors import VerifyError
from luminal.hlir.attributes import (
    Body,
    ConstantAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    StateAttrs,
    ViewAttrs,
)
from luminal.hlir.graph import Assign, Builder, Graph, Output
from luminal.hlir.ops import OPS, Node, Value
from luminal.hlir.types import TensorType
from luminal.hlir.verify import verify
from luminal.memory.state import State
from luminal.shape import view as views
from luminal.shape.expression import Expression, const, symbol
from luminal.shape.view import index

F32, I32 = dtypes.float32, dtypes.int32


def row(*extents: int | Expression) -> tuple[Expression, ...]:
    return tuple(const(n) if isinstance(n, int) else n for n in extents)


def output(value: Value, **graph: Any) -> Graph:
    return Graph((Output(value, "y"),), **graph)


def node(name: str, args: tuple[Value, ...], attrs: Any, *types: TensorType) -> Value:
    """A node made by hand, past the Builder's checks."""
    return Node(OPS[name], args, attrs, types).value


def given(name: str = "x", *extents: int | Expression, dtype: Any = F32) -> Value:
    return Builder().input(name, row(*extents), dtype)


def wrong_type() -> Graph:
    return output(node("Exp", (given("x", 2),), None, TensorType(row(3), F32)))


def wrong_dtype() -> Graph:
    x = given("x", 2, dtype=I32)
    return output(node("Exp", (x,), None, x.type))


def wrong_attributes() -> Graph:
    x = given("x", 2)
    return output(node("Exp", (x,), InputAttrs("x", x.shape, F32), x.type))


def missing_result() -> Graph:
    x = given("x", 2)
    return output(node("Exp", (Value(x.node, 1),), None, x.type))


def view_of_view() -> Graph:
    x = given("x", 2, 3)
    flip = views.flip(x.shape, 0)
    inner = node("View", (x,), ViewAttrs(flip), x.type)
    return output(node("View", (inner,), ViewAttrs(flip), x.type))


def undeclared_dim() -> Graph:
    return output(given("x", symbol("n", 1, 4)))


def foreign_axis() -> Graph:
    attrs = IotaAttrs(index(1, const(2)), row(2), I32)
    return output(node("Iota", (), attrs, TensorType(row(2), I32)))


def undeclared_requirement() -> Graph:
    return output(given("x", 2), requirements=(symbol("n", 1, 4) < 3,))


def repeated_node() -> Graph:
    x = given("x", 2)
    a, b = (node("Exp", (x,), None, x.type) for _ in range(2))
    return output(node("Add", (a, b), None, x.type))


def repeated_input() -> Graph:
    x, y = given("x", 2), given("x", 2)
    return output(Builder().apply("Add", x, y))


def two_inputs_of_a_name() -> Graph:
    x, y = given("x", 2), given("x", 2, dtype=I32)
    return output(Builder().apply("Add", x, Builder().cast(y, F32)))


def short_literal() -> Graph:
    attrs = ConstantAttrs((2,), F32, b"1234")
    return output(node("Constant", (), attrs, TensorType(row(2), F32)))


def assigned_twice() -> Graph:
    state = State((2,), name="k")
    x = given("x", 2)
    return Graph((Assign(state, x), Assign(state, x)))


def assigned_another_shape() -> Graph:
    return Graph((Assign(State((2,), name="k"), given("x", 3)),))


def two_outputs_of_a_name() -> Graph:
    return Graph((Output(given("x", 2), "y"), Output(given("z", 2), "y")))


def loop(body: Body, trips: int = 2, **changes: Any) -> Graph:
    x = given("x", 2)
    attrs = LoopAttrs(const(trips), body, 1, (), ())._replace(**changes)
    return output(node("Loop", (x,), attrs, x.type))


def open_body() -> Graph:
    inner = Builder()
    carry, other = (inner.input(name, row(2), F32) for name in ("arg0", "arg1"))
    return loop(Body((carry.node,), (inner.apply("Add", carry, other),)))


def state_in_a_body() -> Graph:
    inner = Builder()
    carry = inner.input("arg0", row(2), F32)
    held = inner.make("State", (), StateAttrs(State((2,), name="k"))).value
    return loop(Body((carry.node,), (inner.apply("Add", carry, held),)))


def repeated_argument() -> Graph:
    carry = given("arg0", 2)
    x = given("x", 2)
    attrs = LoopAttrs(const(2), Body((carry.node, carry.node), (carry, carry)), 2, (), ())
    return output(node("Loop", (x, x), attrs, x.type, x.type))


def too_few_leaves() -> Graph:
    inner = Builder()
    carry, piece = (inner.input(name, row(2), F32) for name in ("arg0", "arg1"))
    body = Body((carry.node, piece.node), (inner.apply("Add", carry, piece),))
    b = Builder()
    x, y = b.input("x", row(2), F32), b.input("y", row(2), F32)
    return output(b.loop(const(3), body, [x], [[x, y]], [])[0])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (wrong_type, r"%1 = Exp %0 : f32\[3\]: the op gives f32\[2\]"),
        (wrong_dtype, r"%1 = Exp %0 : i32\[2\]: Exp: an operand is i32\[2\]; it takes f32, f64"),
        (wrong_attributes, r"the attributes are InputAttrs"),
        (missing_result, r"has no result 1"),
        (view_of_view, r"%2 = View %1 \[.*\] : f32\[2, 3\]: the operand is a View itself"),
        (undeclared_dim, r"%0 = Input x : f32\[n\]: n uses n, which is neither a declared dim"),
        (foreign_axis, r"%0 = Iota \(i1\) : i32\[2\]: i1 uses i1"),
        (undeclared_requirement, r"n <= 2 uses n, which is neither a declared dim"),
        (repeated_node, r"%2 = Exp %0 : f32\[2\]: this node is there twice"),
        (repeated_input, r"%1 = Input x : f32\[2\]: this node is there twice"),
        (two_inputs_of_a_name, r"Input x : i32\[2\]: two inputs have this name"),
        (short_literal, r"4 bytes of data, the type has 8"),
        (assigned_twice, r"State\(k: f32\[2\]\) is assigned twice"),
        (assigned_another_shape, r"State\(k: f32\[2\]\) is assigned a f32\[3\]"),
        (two_outputs_of_a_name, r"the name 'y' stands for f32\[2\] and for f32\[2\]"),
        (open_body, r"Loop .*: the body reads <Input f32\[2\]>, which is no argument of it"),
        (state_in_a_body, r"the body reads <State f32\[2\]>"),
        (repeated_argument, r"an argument of the body stands there twice"),
        (too_few_leaves, r"a list of 2 leaves for 3 trips"),
    ],
)
def test_refused(make: Callable[[], Graph], problem: str) -> None:
    with pytest.raises(VerifyError, match=problem):
        verify(make())


def test_a_right_graph_passes() -> None:
    b = Builder()
    s = symbol("s", 1, 4)
    x = b.input("x", (s, const(2)), F32)
    flipped = b.view(x, views.flip(x.shape, 0))
    constant = b.constant(np.zeros(2), F32)
    wide = b.view(constant, views.expand(row(2), x.shape))
    verify(output(b.sum(b.apply("Add", flipped, wide), 0), dims=(s,), requirements=(s < 4,)))
