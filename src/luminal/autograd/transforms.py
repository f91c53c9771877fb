"""What users call: grad, value_and_grad, vjp, jvp, custom derivatives, stop_gradient."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from luminal.autograd.reverse import check_graph, check_variable, check_view, gradients, seed
from luminal.base.errors import GraphError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import is_tensor
from luminal.frontend.pointwise.binary import graph_of
from luminal.frontend.pointwise.derivatives import Derivative, as_variable, enable_grad
from luminal.frontend.scan import Tree, flatten
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import MarkAttrs
from luminal.hlir.ops import Value
from luminal.memory.parameter import Parameter
from luminal.memory.state import State

Variable = Tensor | Parameter


def grad(
    loss: Tensor | Callable[..., Any],
    variables: Variable | Sequence[Variable] | None = None,
    grad_outputs: Tensor | None = None,
    *,
    argnums: int | Sequence[int] = 0,
) -> Any:
    """The gradients of a scalar loss: Tensors of its graph, each in its variable's shape and dtype.

    `variables`: a Tensor of the graph or a Parameter, or a sequence of them (any tree of them),
    which gives a like one; zeros for a variable that the loss does not depend on. `grad_outputs`
    stands for the gradient from above, and lets the loss have any shape. Gradients can be
    differentiated again.

    Of a function, `grad(f)(*args)` is the gradient of its scalar result in the arguments `argnums`:
    variables of its own, whatever else of the graph holds the same values.
    Raises DTypeError for variables of integers; GraphError for a value without a derivative on the
    way, named with its operation, and for a view where the loss also reads what it is a view of.
    """
    if not isinstance(loss, Tensor):
        if variables is not None:
            raise GraphError(f"grad: the loss is {loss!r}; pass a Tensor, or a function alone")
        return _of_function(loss, argnums, with_value=False)
    if variables is None:
        raise GraphError("grad: no variables are given; grad(loss, [w, x]) names them")
    leaves, tree = flatten(variables)
    return tree.build(_filled("grad", loss, leaves, grad_outputs))


def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Any:
    """A function that gives `function`'s scalar result and its gradients: one for an int of
    argnums, else a tuple. Arguments may be trees of Tensors.
    """
    return _of_function(function, argnums, with_value=True)


def vjp(
    function: Callable[..., Any], *primals: Any
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """(result, pull): `pull(cotangent)` gives a tuple with the gradient of every primal.

    Primals, the result and the cotangent (like the result) are trees of Tensors.
    """
    primals, tree, leaves = _fresh(primals)
    with enable_grad():
        result = function(*primals)
    outputs, out_tree = flatten(result)
    graph = graph_of("vjp", [*outputs, *leaves])

    def pull(cotangent: Any) -> tuple[Any, ...]:
        cotangents, cotangent_tree = flatten(cotangent)
        if cotangent_tree != out_tree:
            raise ShapeError("vjp: the cotangent has another structure than the function's result")
        seeds = [
            seed(y, graph.constant(g), "vjp") for y, g in zip(outputs, cotangents, strict=True)
        ]
        pulled = gradients(graph, outputs, seeds, [graph.bring(x) for x in leaves])
        full = [_zeros(x) if g is None else g for x, g in zip(leaves, pulled, strict=True)]
        built: tuple[Any, ...] = tree.build(full)
        return built

    return result, pull


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """(result, the derivative of the result along `tangents`), both trees like the result.

    Forward mode as reverse mode twice: a vjp is linear in the cotangent, and the vjp of that map,
    at the tangents, is the jvp (the cotangent itself drops out).
    """
    primals, _, leaves = _fresh(primals)
    along, _ = flatten(tuple(tangents))
    if len(along) != len(leaves):
        raise ShapeError(
            f"jvp: {len(leaves)} primals, but {len(along)} tangents; give one for each"
        )
    with enable_grad():
        result = function(*primals)
    outputs, tree = flatten(result)
    graph = graph_of("jvp", [*outputs, *leaves])
    for x in leaves:
        check_variable(x, "jvp")
    # The gradient is linear in the cotangent, so its value does not matter: it is differentiated
    # away.
    dummies = [_placeholder(graph, y, k) for k, y in enumerate(outputs)]
    back = gradients(graph, outputs, dummies, [x.value for x in leaves])
    pairs = [(g, graph.constant(t)) for g, t in zip(back, along, strict=True) if g is not None]
    pulled = gradients(
        graph,
        [g for g, _ in pairs],
        [seed(g, t, "jvp") for g, t in pairs],
        [u.value for u in dummies],
    )
    return result, tree.build(
        [_zeros(y) if t is None else t for y, t in zip(outputs, pulled, strict=True)]
    )


def custom_vjp(function: Callable[..., Any], pull: Callable[..., Any]) -> Callable[..., Tensor]:
    """`function` with a derivative of its own: `pull(g, y, *args)` stands for what its operations
    would give.

    g is the gradient of the result y (one Tensor), args are the call's. It returns the gradient of
    the only Tensor among the args, or a tuple with one for each of them; None is zero.
    """
    mark = object()

    @wraps(function)
    def recorded(*args: Any) -> Tensor:
        args = tuple(x.as_tensor() if isinstance(x, Parameter | State) else x for x in args)
        tensors = [x for x in args if is_tensor(x)]
        y = function(*args)
        if not is_tensor(y) or not tensors:
            raise GraphError(f"custom_vjp: the function takes Tensors and gives one, not {y!r}")
        graph = graph_of("custom_vjp", [y, *tensors])
        operands = tuple(map(graph.bring, tensors))

        def flow(g: Tensor, y: Tensor, now: Sequence[Tensor]) -> Sequence[Tensor | None]:
            remaining = iter(now)
            pulled = pull(g, y, *(next(remaining) if is_tensor(x) else x for x in args))
            many = pulled if isinstance(pulled, tuple | list) else (pulled,)
            wrong = [x for x in many if x is not None and not is_tensor(x)]
            if wrong or len(many) != len(now):
                raise GraphError(
                    f"custom_vjp: pull gave {wrong[0] if wrong else len(many)!r}"
                    f"{'' if wrong else ' gradients'} for {len(now)} Tensors; return one for each "
                    "in a tuple, None for zero"
                )
            return many

        # A Detach of its own, which compiles to nothing: the value as others record it keeps the
        # derivative of its operations.
        attrs = MarkAttrs((mark, operands, tuple(x for x in args if not is_tensor(x))))
        value = graph.builder.make("Detach", [graph.bring(y)], attrs).value
        graph.derivatives.setdefault(value, Derivative(operands, flow))
        return graph.wrap(value)

    return recorded


def stop_gradient(x: Tensor) -> Tensor:
    """`x`, a constant for derivatives; the same as `x.detach()`."""
    return x.stop_gradient()


def backward(loss: Tensor, gradient: Tensor | None = None) -> None:
    """Adds the loss's gradients to `grad` of all inputs and weights that it depends on."""
    graph = loss.graph
    leaves = [
        value
        for value in graph.differentiable()
        if value.dtype.is_float and getattr(value.node.attrs, "parameter", _ALWAYS).requires_grad
    ]
    seeds = [seed(loss, gradient, "backward")]
    for value, g in zip(leaves, gradients(graph, [loss], seeds, leaves), strict=True):
        if g is not None:
            parameter = getattr(value.node.attrs, "parameter", None)
            if parameter is None:
                _add(graph, value, g)
            else:
                _add(graph, parameter, parameter.in_order(g))
                parameter.differentiated = weakref.ref(graph)


def _add(graph: Recorder, variable: Value | Parameter, g: Tensor) -> None:
    before = graph.gradients.get(variable)
    graph.gradients[variable] = g if before is None else before + g


class _ALWAYS:
    requires_grad = True


def _of_function(function: Callable[..., Any], argnums: Any, *, with_value: bool) -> Any:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @wraps(function)
    def with_gradients(*args: Any, **kwargs: Any) -> Any:
        places = [place(function.__name__, k, len(args)) for k in numbers]
        chosen = list(dict.fromkeys(places))
        fresh, tree, leaves = _fresh(tuple(args[k] for k in chosen))
        args = tuple(fresh[chosen.index(k)] if k in chosen else x for k, x in enumerate(args))
        with enable_grad():
            value = function(*args, **kwargs)
        loss, *_ = value if isinstance(value, tuple) else (value,)
        if not is_tensor(loss):
            raise GraphError(
                f"{function.__name__}: its result is {loss!r}; it must be a 0-d Tensor: call it "
                "with Tensors, or with arrays through lm.jit(lm.grad(function))"
            )
        derivatives = tree.build(_filled(function.__name__, loss, leaves, None))
        out = (
            derivatives[0]
            if isinstance(argnums, int)
            else tuple(derivatives[chosen.index(k)] for k in places)
        )
        return (value, out) if with_value else out

    return with_gradients


def place(what: str, number: Any, count: int) -> int:
    """The argument that one of `argnums` is; negative ones count from the end."""
    if not isinstance(number, int) or not -count <= number < count:
        raise GraphError(
            f"{what}: argnums has {number!r}, the call {count} positional arguments; number those "
            "from 0"
        )
    return number % count


# Equal operations are one value, and views of views are one view. A Detach that compiles to nothing
# keeps the argument apart from what a closure or an outer derivative holds.
def _fresh(arguments: Sequence[Any]) -> tuple[tuple[Any, ...], Tree, list[Any]]:
    """The arguments of a function with values of their own in the place of its Tensors, their
    tree, its leaves. So what else of the graph is equal to an argument stays apart from it, and
    so do views of it, which would else be composed with those that it is made of.
    """
    leaves, tree = flatten(tuple(arguments))
    leaves = [x.as_tensor() if isinstance(x, Parameter | State) else x for x in leaves]
    variables = [as_variable(x) if is_tensor(x) and x.dtype.is_float else x for x in leaves]
    return tree.build(variables), tree, variables


def _filled(
    what: str, loss: Tensor, variables: Sequence[Variable], above: Tensor | None
) -> list[Tensor]:
    """The gradients of a loss, zeros for variables that it does not depend on."""
    pulled = differentiated(what, [loss], variables, [above])
    pairs = zip(variables, pulled, strict=True)
    return [_of_value(x, _zeros(_in_memory(loss.graph, x))) if g is None else g for x, g in pairs]


def differentiated(
    what: str,
    outputs: Sequence[Tensor],
    variables: Sequence[Variable],
    above: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of the outputs together, each in its variable's form; None where there is none.

    `above`: the gradient that comes into each output, None for 1.
    """
    graph = outputs[0].graph
    for x in variables:
        if not (is_tensor(x) or isinstance(x, Parameter)):
            raise GraphError(f"{what}: {x!r} is no Tensor and no Parameter")
    tensors = [_in_memory(graph, x) for x in variables]
    for x in tensors:
        check_variable(x, what)
    check_graph(graph, tensors, what)
    for x in tensors:
        for y in outputs:
            check_view(y, x, what)
    seeds = [
        seed(y, None if g is None else graph.constant(g), what)
        for y, g in zip(outputs, above, strict=True)
    ]
    pulled = gradients(graph, outputs, seeds, [x.value for x in tensors])
    pairs = zip(variables, pulled, strict=True)
    return [None if g is None else _of_value(x, g) for x, g in pairs]


def _in_memory(graph: Recorder, x: Variable) -> Tensor:
    """What every reader of it reads: a Parameter's Weight, if need be as its rows lie."""
    if not isinstance(x, Parameter):
        return x
    return graph.weight_of(x) if x.order is None else graph.leaf_of(x)


def _of_value(x: Variable, g: Tensor) -> Tensor:
    """The gradient of a variable from that of what `_in_memory` gives."""
    return x.in_order(g) if isinstance(x, Parameter) else g


def _zeros(x: Tensor) -> Tensor:
    return x.graph.zeros(x.extents, dtype=x.dtype)


def _placeholder(graph: Recorder, y: Tensor, number: int) -> Tensor:
    """Stands for a cotangent that drops out of the result."""
    check_variable(y, "jvp")
    attrs = MarkAttrs((object(), number))
    return graph.wrap(graph.builder.make("Detach", [_zeros(y).value], attrs).value)
