"""`scan` against Python loops, with trees, weights, states and nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.base.errors import DTypeError, GraphError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State
from luminal.shape.expression import symbol
from tests.close import close
from tests.numerics.recording import results, run

pytestmark = pytest.mark.usefixtures("every_backend")

rng = np.random.default_rng(0)
X = rng.normal(0, 1, (6, 3)).astype(np.float32)


def test_running_sum() -> None:
    def fn(x):  # type: ignore[no-untyped-def]
        return scan(lambda carry, row: (carry + row, carry * 2), np.zeros(3, np.float32), x)

    last, ys = run(fn, X)
    totals = np.cumsum(X, 0)
    close(last, totals[-1])
    close(ys, 2 * (totals - X), ulp=16)
    last, ys = run(fn, X, shapes=[("n", 3)], dims={"n": 6})
    close(last, totals[-1])
    last, ys = run(fn, X[:0], shapes=[(symbol("n", 0), 3)], dims={"n": 0})
    close(last, np.zeros(3, np.float32))
    assert ys.shape == (0, 3)


def test_recurrent_network_with_outer_weights() -> None:
    cx = Recorder()
    x, w = cx.tensor((6, 3), name="x"), cx.weight((4, 4), name="w")
    u = cx.tensor(rng.normal(0, 1, (3, 4)).astype(np.float32))
    w.set(rng.normal(0, 1, (4, 4)).astype(np.float32))

    def step(h, row):  # type: ignore[no-untyped-def]
        h = (h @ w + row @ u * 2.0).tanh()
        return h, h

    h, hs = scan(step, cx.zeros((4,)), x)
    for each in (h, hs):
        each.output()
    found = results(cx, [h, hs], {"x": X})
    expected, state = [], np.zeros(4, np.float32)
    for row in X:
        state = np.tanh(state @ w.parameter.numpy() + row @ cx.values["in0"] * 2)
        expected.append(state)
    close(found[0], expected[-1], ulp=64)
    close(found[1], np.stack(expected), ulp=64)
    loop = h.value.node
    assert loop.op.name == "Loop"
    assert [n.attrs.name for n in loop.attrs.body.arguments] == ["arg0", "arg1", "arg2", "arg3"]


def test_trees_length_and_unused_parts() -> None:
    def fn(x):  # type: ignore[no-untyped-def]
        def step(carry, _):  # type: ignore[no-untyped-def]
            a, (b, n) = carry["a"], carry["rest"]
            return {"a": b, "rest": (a + b, n + 1)}, {"pair": [a, b], "none": None}

        init = {"a": x[0, 0], "rest": (x[0, 1], 0)}
        return scan(step, init, length=5)

    carry, ys = run(fn, X)
    a, b = X[0, 0], X[0, 1]
    pairs = []
    for _ in range(5):
        pairs.append((a, b))
        a, b = b, a + b
    close(carry["a"], a)
    close(carry["rest"][1], np.int64(5))
    close(ys["pair"][1], np.array([p[1] for p in pairs]))
    assert ys["none"] is None


def test_scan_in_scan() -> None:
    def fn(x, y):  # type: ignore[no-untyped-def]
        def outer(total, row):  # type: ignore[no-untyped-def]
            def inner(t, v):  # type: ignore[no-untyped-def]
                return t + v * y.sum() + row.amax(), None

            return scan(inner, total, row)[0], total

        return scan(outer, x.sum() * 0, x)

    last, _ = run(fn, X, X[:2])
    expected = (X * X[:2].sum() + X.max(1, keepdims=True)).sum()
    close(last, expected, ulp=64)


def test_states_are_read_inside_and_assigned_outside() -> None:
    cx, kv = Recorder(), State((3,), init=2.0, name="kv")
    x = cx.tensor((6, 3), name="x")
    last, _ = scan(lambda c, row: (c + row * cx.read(kv), None), cx.zeros((3,)), x)
    cx.assign(kv, last)
    last.output()
    close(results(cx, [last], {"x": X})[0], (X * 2).sum(0), ulp=16)
    close(kv.numpy(), (X * 2).sum(0), ulp=16)


def test_errors() -> None:
    cx = Recorder()
    x, kv = cx.tensor((6, 3), name="x"), State((3,), name="kv")
    leaked = []

    def leak(carry, row):  # type: ignore[no-untyped-def]
        leaked.append(row)
        return carry, row

    def assign(carry, row):  # type: ignore[no-untyped-def]
        cx.assign(kv, carry)
        return carry, row

    zero = cx.zeros((3,))
    cases = [
        (lambda: scan(lambda c, r: (c.sum(), r), zero, x), ShapeError, r"carry starts as f32\[3\]"),
        (lambda: scan(lambda c, r: ((c, c), r), zero, x), ShapeError, "return the same structure"),
        (lambda: scan(lambda c, r: c, zero, x), GraphError, r"return \(carry, y\)"),
        (lambda: scan(lambda c, r: (c, r), zero, [x, x[:2]]), ShapeError, "has 6 trips"),
        (lambda: scan(lambda c, r: (c, r), zero), ShapeError, "give xs or length"),
        (lambda: scan(lambda c, r: (c, r), zero, x[0, 0]), ShapeError, "takes a leading dim"),
        (lambda: scan(lambda c, r: (c, r), 0.0, [1.0]), DTypeError, "none|no operand"),
        (lambda: scan(assign, zero, x), GraphError, "inside scan; return the value"),
        (lambda: scan(leak, zero, x)[1] + leaked[0], GraphError, "has left it; return such values"),
        (lambda: leaked[0].output("y"), GraphError, "not inside the function of scan; return"),
        (lambda: leaked[0].graph.tensor((3,)), GraphError, "make the input outside"),
    ]
    for make, error, text in cases:
        with pytest.raises(error, match=text):
            make()


def test_outer_tensors_are_indexed_by_values_of_the_body() -> None:
    table, picks = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([2, -1, 0])

    def rows(table: Tensor, picks: Tensor) -> Any:
        def step(total: Tensor, pick: Tensor) -> Any:
            return total + table.take(pick, 0), table.index_select(0, pick).squeeze(0)

        return scan(step, table.graph.zeros((3,)), picks)

    total, found = run(rows, table, picks)
    close(found, table[picks])
    close(total, table[picks].sum(0))
