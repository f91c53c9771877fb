"""grad, value_and_grad, vjp, jvp, custom_vjp, backward: what they give, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DTypeError, GraphError, ShapeError
from tests.close import close

X = np.array([0.5, -1.0, 2.0])


def value(result: lm.Tensor, **inputs: Any) -> Any:
    """A Tensor's elements, by the reference."""
    result.output("asked")
    graph = result.graph
    read = {name for name, leaf in graph.leaves.items() if leaf.node in graph.graph().nodes()}
    found = lm.compile(graph, "reference")({k: x for k, x in inputs.items() if k in read})
    return found["asked"]


def graph_with_x() -> tuple[lm.Graph, lm.Tensor]:
    cx = lm.Graph()
    return cx, cx.tensor((3,), "float64", "x")


# --- grad -----------------------------------------------------------------------------------------


def test_one_variable_gives_one_gradient_of_its_type() -> None:
    _, x = graph_with_x()
    g = lm.grad((x * x).sum(), x)
    assert g.value.type == x.value.type
    np.testing.assert_array_equal(value(g, x=X), 2 * X)


def test_trees_of_variables_give_like_trees() -> None:
    cx, x = graph_with_x()
    y = cx.tensor((3,), "float64", "y")
    found = lm.grad((x * y).sum(), {"a": x, "b": [y, x]})
    assert set(found) == {"a", "b"}
    np.testing.assert_array_equal(value(found["b"][0], x=X, y=X + 1), X)


def test_what_is_not_used_has_zeros() -> None:
    cx, x = graph_with_x()
    other = cx.tensor((2, 2), "float32", "other")
    g = lm.grad(x.sum(), other)
    assert g.value.type == other.value.type
    np.testing.assert_array_equal(value(g), np.zeros((2, 2)))


def test_a_value_on_the_way_can_be_the_variable() -> None:
    _, x = graph_with_x()
    middle = x.exp()
    np.testing.assert_array_equal(value(lm.grad((middle * 3).sum(), middle), x=X), [3, 3, 3])


def test_a_loss_has_the_gradient_1_in_itself() -> None:
    _, x = graph_with_x()
    loss = x.sum()
    assert value(lm.grad(loss, loss), x=X) == 1


def test_a_parameter_is_a_variable() -> None:
    cx = lm.Graph()
    parameter = lm.Parameter((2,), "float32", "w")
    parameter.set([1.0, 3.0])
    w = cx.weight_of(parameter)
    np.testing.assert_array_equal(value(lm.grad((w * w).sum(), parameter)), [2, 6])


def test_a_gradient_from_above_lets_the_loss_have_a_shape() -> None:
    cx, x = graph_with_x()
    g = lm.grad(x * x, x, cx.constant([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal(value(g, x=X), 2 * X * [1, 10, 100])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradients_have_the_dtype_of_their_variable(dtype: str) -> None:
    cx = lm.Graph()
    x = cx.tensor((3,), dtype, "x")
    g = lm.grad((x.cast("float64").exp() * x.sum()).sum(), x)
    assert g.dtype.name == dtype


def test_gradients_of_gradients_of_gradients() -> None:
    _, x = graph_with_x()
    first = lm.grad((x**4).sum(), x)
    third = lm.grad(lm.grad(first.sum(), x).sum(), x)
    np.testing.assert_allclose(value(third, x=X), 24 * X)


def test_a_dynamic_dim() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 1, 64)
    x, w = cx.tensor((n, 3), "float64", "x"), cx.tensor((3, 2), "float64", "w")
    loss = ((x @ w).softmax(-1) * cx.constant([1.0, -1.0])).mean()
    gx, gw = lm.grad(loss, [x, w])
    gx.output("gx")
    gw.output("gw")
    executable = lm.compile(cx, "cpu")
    rng = np.random.default_rng(0)
    w_, d = rng.standard_normal((3, 2)), np.array([1.0, -1.0])
    for rows in (1, 5, 64):
        x_ = rng.standard_normal((rows, 3))
        e = np.exp(x_ @ w_)
        p = e / e.sum(-1, keepdims=True)
        z = (p * d - p * (p * d).sum(-1, keepdims=True)) / (2 * rows)
        found = executable({"x": x_, "w": w_})
        close(found["gx"], z @ w_.T)
        close(found["gw"], x_.T @ z, ulp=8)


# --- of functions ---------------------------------------------------------------------------------


def test_grad_of_a_function_is_a_function() -> None:
    cx, x = graph_with_x()
    y = cx.tensor((3,), "float64", "y")

    def loss(a: lm.Tensor, b: lm.Tensor) -> lm.Tensor:
        return (a * a * b).sum()

    first = lm.grad(loss)(x, y)
    second, same = lm.grad(loss, argnums=(1, 0))(x, y)
    found = value(first + 10 * second + 100 * same, x=X, y=X)
    np.testing.assert_array_equal(found, (2 + 10 + 200) * X * X)


def test_value_and_grad_gives_both() -> None:
    _, x = graph_with_x()
    loss, g = lm.value_and_grad(lambda a: (a * a).sum())(x)
    np.testing.assert_allclose(value(loss + g.sum(), x=X), (X * X).sum() + 2 * X.sum())


def test_vjp_pulls_back_any_structure() -> None:
    cx, x = graph_with_x()
    result, pull = lm.vjp(lambda a: {"sum": a.sum(), "double": a * 2}, x)
    (g,) = pull({"sum": cx.constant(10.0, "float64"), "double": cx.constant([1.0, 2.0, 3.0])})
    assert set(result) == {"sum", "double"}
    np.testing.assert_array_equal(value(g, x=X), [12, 14, 16])


def test_vjp_tells_a_wrong_structure() -> None:
    cx, x = graph_with_x()
    _, pull = lm.vjp(lambda a: (a, a * 2), x)
    with pytest.raises(ShapeError, match="another structure"):
        pull(cx.constant([1.0, 2.0, 3.0]))


def test_jvp_is_the_derivative_along_the_tangents() -> None:
    cx, x = graph_with_x()
    y = cx.tensor((3,), "float64", "y")
    dx, dy = np.array([1.0, 0.0, -2.0]), np.array([0.5, 0.5, 0.5])

    def call(a: lm.Tensor, b: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
        return a * b.sin(), a.sum()

    (first, _), (along, along_sum) = lm.jvp(call, (x, y), (cx.constant(dx), cx.constant(dy)))
    assert first.shape == along.shape
    Y = X + 0.3
    np.testing.assert_allclose(value(along, x=X, y=Y), dx * np.sin(Y) + X * np.cos(Y) * dy)
    cx.sinks.clear()
    np.testing.assert_allclose(value(along_sum, x=X, y=Y), dx.sum())


def test_jvp_of_what_does_not_depend_is_zero() -> None:
    cx, x = graph_with_x()
    _, along = lm.jvp(lambda a: a.graph.ones((2,), dtype="float64"), (x,), (cx.constant(X),))
    np.testing.assert_array_equal(value(along, x=X), [0, 0])


def test_jvp_takes_a_tangent_for_each_primal() -> None:
    _, x = graph_with_x()
    with pytest.raises(ShapeError, match="1 primals, but 2 tangents"):
        lm.jvp(lambda a: a, (x,), (x, x))


# --- derivatives of one's own ---------------------------------------------------------------------


def test_a_gradient_is_reversed() -> None:
    _, x = graph_with_x()
    reverse = lm.custom_vjp(lambda a: a, lambda g, y, a: -g)
    loss = (reverse(x) * x).sum()  # x itself keeps its derivative
    np.testing.assert_array_equal(value(lm.grad(loss, x), x=X), np.zeros(3))
    lm.compile(x.graph, "cpu")


def test_rules_get_numbers_and_give_none_for_zero() -> None:
    cx, x = graph_with_x()
    y = cx.tensor((3,), "float64", "y")
    scaled = lm.custom_vjp(lambda a, k, b: a * k + b, lambda g, out, a, k, b: (g * k * 100, None))
    gx, gy = lm.grad(scaled(x, 3.0, y).sum(), [x, y])
    np.testing.assert_array_equal(value(gx + gy, x=X, y=X), [300, 300, 300])


def test_two_derivatives_of_one_function_do_not_meet() -> None:
    _, x = graph_with_x()
    once = lm.custom_vjp(lambda a: a.exp(), lambda g, y, a: g)
    twice = lm.custom_vjp(lambda a: a.exp(), lambda g, y, a: g * 2)
    g = lm.grad((once(x) + 10 * twice(x) + 100 * x.exp()).sum(), x)
    np.testing.assert_allclose(value(g, x=X), 21 + 100 * np.exp(X))


def test_a_rule_is_differentiated_again() -> None:
    _, x = graph_with_x()
    cube = lm.custom_vjp(lambda a: a * a * a, lambda g, y, a: g * (3 * a * a))
    second = lm.grad(lm.grad(cube(x).sum(), x).sum(), x)
    np.testing.assert_allclose(value(second, x=X), 6 * X)


def test_a_function_of_no_tensors_has_no_derivative() -> None:
    with pytest.raises(GraphError, match="custom_vjp: the function takes Tensors"):
        lm.custom_vjp(lambda k: k, lambda g, y, k: g)(3)


def test_what_is_stopped_is_constant() -> None:
    _, x = graph_with_x()
    np.testing.assert_array_equal(value(lm.grad((x.stop_gradient() * x).sum(), x), x=X), X)


def test_a_custom_kernel_has_the_derivative_it_is_given() -> None:
    def double(a: Any, out: Any) -> None:
        out[...] = 2 * a

    def same(given: Any) -> Any:
        return given

    kernel = lm.custom_kernel(
        "double", double, results=same, vjp=lambda operands, results, gradients: gradients[0] * 2
    )
    _, x = graph_with_x()
    np.testing.assert_array_equal(value(lm.grad((kernel(x) * x).sum(), x), x=X), 4 * X)
    bare = lm.custom_kernel("bare", double, results=same)
    with pytest.raises(GraphError, match="bare: this custom kernel has no derivative"):
        lm.grad(bare(x).sum(), x)


# --- loops ----------------------------------------------------------------------------------------


def test_through_a_scan_and_again() -> None:
    cx, x = graph_with_x()
    w = cx.tensor((), "float64", "w")

    def step(h: lm.Tensor, row: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
        after = h * w + row
        return after, after * row

    last, ys = lm.scan(step, cx.constant(1.0, "float64"), x)
    loss = last * last + ys.sum()
    gw = lm.grad(loss, w)
    curved = value(lm.grad(gw, w) + 0 * gw, x=X, w=0.7)
    h = np.polynomial.Polynomial([1.0])
    total, variable = np.polynomial.Polynomial([0.0]), np.polynomial.Polynomial([0.0, 1.0])
    for row in X:
        h = h * variable + row
        total = total + h * row
    np.testing.assert_allclose(curved, (h * h + total).deriv(2)(0.7))


def test_through_a_scan_in_a_scan() -> None:
    _, x = graph_with_x()

    def inner(h: lm.Tensor, row: lm.Tensor) -> tuple[lm.Tensor, None]:
        return h * row, None

    def outer(h: lm.Tensor, row: lm.Tensor) -> tuple[lm.Tensor, None]:
        return lm.scan(inner, h + row, x)[0], None

    last, _ = lm.scan(outer, x.graph.constant(0.0, "float64"), x)
    found = value(lm.grad(last, x), x=X)

    def function(v: Any) -> float:
        h = 0.0
        for row in v:
            h = (h + row) * np.prod(v)
        return h

    steps = 1e-6 * np.eye(3)
    wanted = [(function(X + s) - function(X - s)) / 2e-6 for s in steps]
    # central differences of steps of 1e-6: 1e-16 / 1e-6 is lost
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_gradients_within_a_scan() -> None:
    """Steps of gradient descent to the roots of two."""
    cx = lm.Graph()
    x = cx.tensor((2,), "float64", "x")

    def step(a: lm.Tensor, _: Any) -> tuple[lm.Tensor, None]:
        return a - 0.1 * lm.grad((a * a - 2).square().sum(), a), None

    last, _ = lm.scan(step, x, None, length=60)
    close(value(last, x=np.array([1.0, 2.0])), np.sqrt([2, 2]), ulp=128)


def test_through_a_scan_of_a_dynamic_length() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 1, 32)
    x = cx.tensor((n,), "float64", "x")
    last, _ = lm.scan(lambda h, row: (h * 0.5 + row.sin(), None), cx.constant(0.0, "float64"), x)
    lm.grad(last, x).output("g")
    executable = lm.compile(cx, "cpu")
    for count in (1, 4, 32):
        rows = np.linspace(-1, 1, count)
        wanted = np.cos(rows) * 0.5 ** np.arange(count)[::-1]
        np.testing.assert_allclose(executable({"x": rows})["g"], wanted)


# --- backward -------------------------------------------------------------------------------------


def test_backward_adds_up() -> None:
    cx = lm.Graph()
    x, w = cx.tensor((3,), "float64", "x"), cx.weight((3,), "float64", "w")
    (x * w).sum().backward()
    (x * x).sum().backward()
    assert x.grad is not None
    w.set(np.ones(3))
    np.testing.assert_allclose(value(x.grad, x=X), 2 * X + 1)


# --- what is refused ------------------------------------------------------------------------------


def refused(error: type[Exception], text: str, call: Callable[[lm.Graph, lm.Tensor], Any]) -> None:
    cx, x = graph_with_x()
    with pytest.raises(error, match=text):
        call(cx, x)


def test_integers_have_no_derivative() -> None:
    def call(cx: lm.Graph, x: lm.Tensor) -> None:
        lm.grad(x.sum(), cx.tensor((3,), "int32", "k"))

    refused(DTypeError, r"grad: k: i32\[3\] holds int32; derivatives are taken with resp", call)


def test_a_loss_is_a_scalar() -> None:
    refused(ShapeError, r"is no scalar; reduce it \(loss.mean\(\)", lambda cx, x: lm.grad(x, x))


def test_a_loss_is_a_float() -> None:
    refused(DTypeError, "holds bool", lambda cx, x: lm.grad((x > 0).any(), x))


def test_a_gradient_from_above_has_the_shape_of_the_loss() -> None:
    refused(ShapeError, "another shape", lambda cx, x: lm.grad(x, x, cx.constant([1.0, 2.0])))


def test_variables_are_of_the_same_graph() -> None:
    def call(cx: lm.Graph, x: lm.Tensor) -> None:
        lm.grad(x.sum(), graph_with_x()[1])

    refused(GraphError, "differentiate with respect to Tensors of the loss's graph", call)


def test_variables_are_named() -> None:
    refused(GraphError, "no variables are given", lambda cx, x: lm.grad(x.sum()))


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("Bitcast", lambda x: x.bitcast("int64").bitcast("float64")),
        ("Or", lambda x: (x.bitcast("int64") | 1).bitcast("float64")),
        ("linalg.qr", lambda x: lm.linalg.qr(x.reshape(3, 1), "r").R),
        ("linalg.qr", lambda x: lm.linalg.qr(x.reshape(3, 1), "complete").Q),
    ],
)
def test_an_op_without_a_derivative_is_named(op: str, call: Any) -> None:
    name = "Bitcast" if op == "Or" else op
    refused(GraphError, f"{name}.* has no derivative", lambda cx, x: lm.grad(call(x).sum(), x))


def test_what_is_not_on_the_way_may_have_none() -> None:
    _, x = graph_with_x()
    mask = (x.bitcast("int64") & 1) == 0
    np.testing.assert_array_equal(value(lm.grad(lm.where(mask, x, x).sum(), x), x=X), [1, 1, 1])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_marks_and_known_derivatives_within_a_scan(backend: str) -> None:
    """The greatest of each row goes to the first of equals, in the body too."""
    cx = lm.Graph()
    x = cx.tensor((3, 4), "float64", "x")

    def step(h: lm.Tensor, row: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
        top = (row * h).max(0).values
        return top.tanh(), (row.relu() + top).clip(-1, 3)

    last, ys = lm.scan(step, cx.constant(1.0, "float64"), x)
    lm.grad(last * 10 + ys.sum(), x).output("g")
    rows = np.array([[1.0, 2.0, 2.0, 0.0], [0.0, 0.5, 0.5, 0.5], [-1.0, 3.0, 3.0, 1.0]])
    found = lm.compile(cx, backend)({"x": rows})["g"]

    leaf = torch.from_numpy(rows).requires_grad_()
    h, total = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for row in leaf:
        top = (row * h).max(0).values
        h, total = top.tanh(), total + (row.relu() + top).clip(-1, 3).sum()
    (h * 10 + total).backward()
    close(found, leaf.grad)


@pytest.mark.parametrize("place", [1, -1])
def test_arguments_are_numbered_from_both_ends(place: int) -> None:
    cx = lm.Graph()
    x, y = cx.tensor([2.0, 3.0]), cx.tensor([5.0, 7.0])
    found = lm.grad(lambda a, b: (a * b * b).sum(), argnums=place)(x, y)
    np.testing.assert_array_equal(found.numpy(), [20.0, 42.0])
    twice = lm.grad(lambda a, b: (a * b * b).sum(), argnums=(1, 0, -1))(x, y)
    np.testing.assert_array_equal([g.numpy() for g in twice], [[20, 42], [25, 49], [20, 42]])


@pytest.mark.parametrize("place", [2, -3, "x", None])
def test_an_argument_that_is_not_there(place: Any) -> None:
    x = lm.Graph().tensor([2.0])
    wanted = f"product: argnums has {place!r}, the call 2 positional arguments; number those from 0"

    def product(a: lm.Tensor, b: lm.Tensor) -> lm.Tensor:
        return (a * b).sum()

    with pytest.raises(GraphError, match=wanted):
        lm.grad(product, argnums=(place,))(x, x)


def test_a_function_of_arrays_says_how_it_is_called() -> None:
    with pytest.raises(
        GraphError, match=r"its result is .*; it must be a 0-d Tensor: call it with"
    ):
        lm.grad(lambda a: a.sum())(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("pull", "wanted"),
    [
        (lambda g, y, a, b: g, "pull gave 1 gradients for 2 Tensors; return one for each"),
        (lambda g, y, a, b: (g, g, g), "pull gave 3 gradients for 2 Tensors"),
        (lambda g, y, a, b: None, "pull gave 1 gradients for 2 Tensors"),
        (lambda g, y, a, b: (1.0, g), r"pull gave 1\.0 for 2 Tensors; return one for each"),
    ],
)
def test_a_rule_gives_a_gradient_for_each_tensor(pull: Any, wanted: str) -> None:
    x = lm.Graph().tensor([2.0])
    product = lm.custom_vjp(lambda a, b: a * b, pull)
    with pytest.raises(GraphError, match=wanted):
        lm.grad(product(x, x * 2).sum(), x)


def test_a_gradient_from_above_may_be_an_array() -> None:
    x = lm.Graph().tensor([2.0, 3.0])
    found = lm.grad(x * x, x, grad_outputs=np.array([1.0, 10.0], np.float32))
    np.testing.assert_array_equal(found.numpy(), [4.0, 60.0])
    assert lm.grad((x * x).sum(), x, grad_outputs=2.0).numpy().tolist() == [8.0, 12.0]
