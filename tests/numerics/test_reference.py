"""The reference interpreter: leaves, States, Loops, its trace, and error bounds op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.backends.reference import Bounded, evaluate, evaluate_with_bounds
from luminal.backends.reference.bound_rules import RULES
from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.hlir.attributes import Body
from luminal.hlir.graph import Assign, Builder, Graph, Output
from luminal.hlir.ops import OPS, Node, Value
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape import view as views
from luminal.shape.expression import Expression, const, symbol
from tests.numerics.tolerance import compare

F32 = dtypes.float32


def row(*extents: int | Expression) -> tuple[Expression, ...]:
    return tuple(const(n) if isinstance(n, int) else n for n in extents)


def output(*values: Value) -> Graph:
    return Graph(tuple(Output(value, f"y{k}") for k, value in enumerate(values)))


# --- runs -----------------------------------------------------------------------------------------


def test_weights_inputs_dims_and_trace() -> None:
    b = Builder()
    weight = Parameter((2,), name="w")
    weight.set(np.float32([10, 20]))
    s = symbol("s", 1, 8)
    x = b.input("x", (s, const(2)), F32)
    wide = b.view(b.weight("w", weight), views.expand(row(2), x.shape))
    graph = Graph((Output(b.apply("Add", x, wide), "y"), Output(x, "kept", hidden=True)), (s,))
    seen: list[tuple[str, tuple[int, ...]]] = []

    def trace(node: Node, arrays: tuple[Any, ...], seconds: float) -> None:
        assert seconds >= 0
        seen.append((node.op.name, arrays[0].shape))

    given = np.float32([[1, 2], [3, 4], [5, 6]])
    found = evaluate(graph, {"x": given}, {"s": 3}, trace)
    np.testing.assert_array_equal(found["y"], given + np.float32([10, 20]))
    np.testing.assert_array_equal(found["kept"], given)
    assert found["kept"] is not given
    assert seen == [("Input", (3, 2)), ("Weight", (2,)), ("View", (3, 2)), ("Add", (3, 2))]
    with pytest.raises(InputError, match=r"input 'x': f32\[s, 2\] is not given; pass an array"):
        evaluate(graph, {}, {"s": 3})


def test_states_are_read_before_any_is_assigned() -> None:
    b = Builder()
    a, c = State((3,), init=1.0, name="a"), State((3,), init=2.0, name="c")
    a.set(np.float32([1, 2, 3]))
    flipped = b.view(b.state(a), views.flip(row(3), 0))
    sinks = (Assign(a, b.state(c)), Assign(c, flipped), Output(b.state(a), "old"))
    found = evaluate(Graph(sinks), {})
    np.testing.assert_array_equal(found["old"], [1, 2, 3])
    np.testing.assert_array_equal(a.numpy(), [2, 2, 2])
    np.testing.assert_array_equal(c.numpy(), [3, 2, 1])


def cumulative_body() -> Body:
    """carry' = carry + piece * scale; y = carry'."""
    inner = Builder()
    carry, piece, scale = (inner.input(f"arg{k}", row(2), F32) for k in range(3))
    total = inner.apply("Add", carry, inner.apply("Mul", piece, scale))
    return Body((carry.node, piece.node, scale.node), (total, total))


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_loop_over_a_tensor(trips: int) -> None:
    b = Builder()
    n = symbol("n", 0, 8)
    first, scale = b.input("first", row(2), F32), b.input("scale", row(2), F32)
    pieces = b.input("pieces", row(n, 2), F32)
    final, ys = b.loop(n, cumulative_body(), [first], [pieces], [scale])
    graph = Graph((Output(final, "final"), Output(ys, "ys")), (n,))
    x = np.arange(2 * trips, dtype=np.float32).reshape(trips, 2)
    inputs = {"first": np.float32([1, 2]), "scale": np.float32([2, 3]), "pieces": x}
    found = evaluate(graph, inputs, {"n": trips})
    steps = np.cumsum(np.concatenate([[[1, 2]], x * [2, 3]]), axis=0)
    np.testing.assert_array_equal(found["ys"], steps[1:])
    np.testing.assert_array_equal(found["final"], steps[-1])
    assert found["ys"].dtype == np.float32
    bounded = evaluate_with_bounds(graph, inputs, {"n": trips}).outputs["ys"]
    compare(found["ys"], *bounded)


def test_loop_over_lists_assigns_a_state_per_trip() -> None:
    b = Builder()
    states = tuple(State((2,), init=float(k), name="layer") for k in range(3))
    first, scale = b.input("first", row(2), F32), b.input("scale", row(2), F32)
    leaves = [b.state(state) for state in states]
    final, _ = b.loop(const(3), cumulative_body(), [first], [leaves], [scale], (states,))
    ones = np.ones(2, np.float32)
    found = evaluate(output(final), {"first": ones, "scale": ones})
    np.testing.assert_array_equal(found["y0"], [4, 4])
    assert [state.numpy()[0] for state in states] == [1, 2, 4]


def test_deep_graphs_run() -> None:
    b = Builder()
    x = b.input("x", row(1), F32)
    for _ in range(10_000):
        x = b.apply("Cos", x)
    found = evaluate(output(x), {"x": np.zeros(1, np.float32)})
    assert abs(found["y0"][0] - 0.739085) < 1e-5


# --- bounds ---------------------------------------------------------------------------------------


def test_every_op_has_an_error_rule() -> None:
    own = {"Input", "Weight", "State", "Loop", "Collective"}  # the interpreter's
    assert set(RULES) == set(OPS) - own


def bounds_of(name: str, *columns: list[float]) -> Bounded:
    """The op on operands that were rounded once: x * 1."""
    b = Builder()
    args, inputs = [], {}
    for k, column in enumerate(columns):
        inputs[f"x{k}"] = np.float32(column)
        x = b.input(f"x{k}", row(len(column)), F32)
        args.append(b.apply("Mul", x, b.constant(np.ones(len(column)), F32)))
    return evaluate_with_bounds(output(b.apply(name, *args)), inputs).outputs["y0"]


@pytest.mark.parametrize(
    ("name", "columns", "unstable"),
    [
        ("Floor", ([1.5, 2.0, 2.9999998],), [0, 1, 1]),
        ("Recip", ([1.0, 1e-30, 0.0],), [0, 0, 0]),
        ("Log", ([1.0, 0.5, -1.0],), [0, 0, 0]),
        ("Exp", ([1.0, 88.72284, 100.0],), [0, 1, 0]),
        ("Div", ([1.0, 3.4028233e38, -3.4028233e38], [3.0, 1.0, 1.0]), [0, 1, 1]),
        ("LessThan", ([1.0, 1.0, 0.0], [1.0, 1.1, 0.0]), [1, 0, 0]),
        ("FloorDiv", ([6.0, 7.0, -6.0], [3.0, 3.0, 3.0]), [1, 0, 1]),
        ("Mod", ([6.0, 7.0, 0.5], [3.0, 3.0, 3.0]), [1, 0, 0]),
        ("Mul", ([1e20, 3.4028233e38, 2.0], [1e20, 1.0, np.inf]), [1, 1, 0]),
        ("Maximum", ([1.0, np.nan, 1e30], [2.0, 0.0, 1.0]), [0, 0, 0]),
    ],
)
def test_unstable_points(name: str, columns: tuple[list[float], ...], unstable: list[int]) -> None:
    assert bounds_of(name, *columns).unstable.tolist() == [bool(u) for u in unstable]


def test_errors_grow_as_derivatives_say() -> None:
    eps = float(np.finfo(np.float32).eps)
    x = [0.5, 4.0]
    for name, slope in {"Sqrt": [0.7071, 0.25], "Recip": [4, 0.0625], "Log": [2, 0.25]}.items():
        found = bounds_of(name, x)
        expected = eps * (np.array(slope) * x + np.abs(found.value))
        # slopes are written in four digits, and bounds count second order terms
        np.testing.assert_allclose(found.error, expected, rtol=1e-3)


def test_cancellation_and_reductions() -> None:
    b = Builder()
    x = b.input("x", row(3), F32)
    doubled = b.apply("Add", x, x)
    total, top = b.sum(doubled, 0), b.max(doubled, 0)
    sign = b.apply("LessThan", total, b.constant(np.array(0.0), F32))
    picked = b.apply("Select", sign, total, top)
    given = {"x": np.float32([1e6, -1e6, 0.25])}
    found = evaluate_with_bounds(output(total, top, picked), given).outputs
    eps = float(np.finfo(np.float32).eps)
    # slopes are written in four digits, and bounds count second order terms
    assert found["y0"].error == pytest.approx(2 * 4e6 * eps, rel=1e-3)
    # slopes are written in four digits, and bounds count second order terms
    assert found["y1"].error == pytest.approx(2e6 * eps, rel=1e-3)
    assert found["y2"].unstable
    exact = evaluate_with_bounds(output(b.max(x, 0)), given).outputs["y0"]
    assert exact.error == 0


def test_sums_and_products_near_the_limits_are_unstable() -> None:
    """3.4028233e38 and its slack are beyond the largest float32, 3.4028235e38."""
    b = Builder()
    ones = b.constant(np.ones(3), F32)
    x = b.apply("Mul", b.input("x", row(3), F32), ones)
    graph = output(b.sum(x, 0), b.scan(x, "add", 0), b.scan(x, "mul", 0))
    for column, unstable in (
        ([2.0, -3.0, 4.0], ([0], [0, 0, 0], [0, 0, 0])),
        ([1.0, 3.4028233e38, 1.0], ([1], [0, 1, 1], [0, 1, 1])),
        ([1e-20, 1e-20, 1.0], ([0], [0, 0, 0], [0, 1, 1])),
    ):
        outputs = evaluate_with_bounds(graph, {"x": np.float32(column)}).outputs
        for bound, wanted in zip(outputs.values(), unstable, strict=True):
            assert bound.unstable.ravel().tolist() == [bool(u) for u in wanted]


def test_a_lower_value_that_may_be_the_greatest_gives_its_error() -> None:
    """1 within 1, and -1 within 2: either may be the greater one; -9 within 2 is below 1."""
    b = Builder()
    ones = b.constant(np.ones(3), F32)
    x, y = (b.apply("Mul", b.input(name, row(3), F32), ones) for name in "xy")
    graph = output(b.scan(b.apply("Add", x, y), "max", 0))
    eps = float(np.finfo(np.float32).eps)
    for low, errors in ((-1, [2e6, 4e6, 4e6]), (-9, [2e6, 2e6, 4e6])):
        high = np.float32([1e6 + 1, 2e6 + low, 2e6 + 1])
        given = {"x": high, "y": np.float32([-1e6, -2e6, -2e6])}
        bound = evaluate_with_bounds(graph, given).outputs["y0"]
        # the sizes of the terms are written in one digit
        np.testing.assert_allclose(bound.error, eps * np.array(errors), rtol=1e-3)


def test_storage_casts_round_more_and_exact_ones_not_at_all() -> None:
    b = Builder()
    x = b.input("x", row(2), F32)
    once = b.cast(x, dtypes.bfloat16)
    twice = b.cast(b.apply("Add", x, x), dtypes.bfloat16)
    whole = b.cast(b.apply("Add", x, x), dtypes.int32)
    outputs = evaluate_with_bounds(output(once, twice, whole), {"x": np.float32([1, 1.6])}).outputs
    assert outputs["y0"].error.tolist() == [0, 0]
    # slopes are written in four digits, and bounds count second order terms
    assert outputs["y1"].error[0] == pytest.approx(2 / 128, rel=1e-3)
    assert outputs["y2"].unstable.tolist() == [True, False]


def test_sorted_rows() -> None:
    b = Builder()
    x = b.input("x", row(2, 3), F32)
    values, order = b.sort(b.apply("Sin", x), 1)
    given = {"x": np.float32([[3, 1, 1], [0.1, 0.3, 0.2]])}
    found = evaluate_with_bounds(output(values, order), given).outputs
    assert not found["y0"].unstable.any()
    assert found["y1"].unstable.tolist() == [[False, True, True], [False] * 3]


# --- compare --------------------------------------------------------------------------------------


def test_compare_reports_places() -> None:
    value, error = np.float32([1, 2, 3]), np.array([1e-7, 0, 0])
    stable = np.zeros(3, np.bool_)
    compare(np.float32([1 + 2e-7, 2, 3]), value, error, stable)
    with pytest.raises(AssertionError, match=r"y: 1 of 3 points differ\n  \[0\]: .*error bounds"):
        compare(np.float32([1 + 2e-6, 2, 3]), value, error, stable, name="y")
    with pytest.raises(AssertionError, match=r"2 of 3 points"):
        compare(np.float32([np.nan, 2, np.inf]), value, error, stable)
    compare(np.float32([9, 2, 3]), value, error, np.array([True, False, False]), max_unstable=0.5)
    with pytest.raises(AssertionError, match=r"33% of the points are unstable"):
        compare(value, value, error, np.array([True, False, False]))
    with pytest.raises(AssertionError, match="dtype float64, expected float32"):
        compare(value.astype(np.float64), value, error, stable)
    with pytest.raises(AssertionError, match=r"1 of 2 points"):
        compare(np.int8([1, 2]), np.int8([1, 3]), np.zeros(2), np.zeros(2, np.bool_))
    special = np.float32([np.nan, np.inf, -np.inf])
    compare(special, special, np.zeros(3), stable)
