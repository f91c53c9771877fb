"""`lm.autograd.grad`: torch.autograd.grad, for what asks for derivatives inside of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from luminal.autograd.transforms import Variable, differentiated
from luminal.base.errors import GraphError
from luminal.frontend.handle import describe, is_tensor
from luminal.frontend.pointwise.binary import graph_of
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.memory.state import State


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Variable | Iterable[Variable],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the outputs, summed, in each of the inputs: a tuple, as torch.autograd.grad.

    `inputs`: Tensors of the outputs' graph, Parameters. `grad_outputs`: the gradient from above of
    each output, in its shape; an output of one number needs none. Without `create_graph` the
    gradients are constants for derivatives of what is computed from them; with it they can be
    differentiated again, any number of times. An input that no output depends on is an error, or
    None with `allow_unused`, or zeros with `materialize_grads`. `retain_graph` means nothing here:
    a graph is kept. Raises GraphError, and what `lm.grad` raises.
    """
    what = "autograd.grad"
    if is_grads_batched:
        raise GraphError(
            f"{what}: is_grads_batched is not there; give lm.vmap a function of one cotangent: "
            "lm.vmap(lm.vjp(f, x)[1])(cotangents)"
        )
    if materialize_grads and allow_unused is False:
        raise GraphError(
            f"{what}: materialize_grads gives zeros for unused inputs, which allow_unused=False "
            "refuses; leave allow_unused out"
        )
    losses = [_output(what, y) for y in _many(outputs)]
    variables = _many(inputs)
    for name, values in (("outputs", losses), ("inputs", variables)):
        if not values:
            raise GraphError(f"{what}: got no {name}; give a Tensor, or several")
    above = [None] * len(losses) if grad_outputs is None else _many(grad_outputs)
    if len(above) != len(losses):
        raise GraphError(
            f"{what}: {len(above)} grad_outputs for {len(losses)} outputs; give one for each, or "
            "None for those of one number"
        )
    graph_of(what, losses)
    pulled = differentiated(what, losses, variables, above)
    return tuple(
        _result(what, k, x, g, create_graph, bool(allow_unused), materialize_grads)
        for k, (x, g) in enumerate(zip(variables, pulled, strict=True))
    )


def _many(values: Any) -> list[Any]:
    is_one = values is None or is_tensor(values) or isinstance(values, Parameter | State)
    return [values] if is_one or not isinstance(values, Iterable) else list(values)


def _output(what: str, y: Any) -> Tensor:
    if isinstance(y, Parameter | State):
        y = y.as_tensor()
    if not isinstance(y, Tensor):
        raise GraphError(
            f"{what}: an output is {y!r}, and must be a Tensor; of a function lm.grad(f) gives the "
            "gradient"
        )
    return y


def _result(
    what: str, number: int, x: Variable, g: Tensor | None, is_variable: bool, is_optional: bool,
    is_filled: bool,
) -> Tensor | None:  # fmt: skip
    if g is not None:
        return g if is_variable else g.detach()
    if is_filled:
        tensor = x.as_tensor() if isinstance(x, Parameter) else x
        return tensor.graph.zeros(tensor.extents, dtype=tensor.dtype)
    if is_optional:
        return None
    named = repr(x) if isinstance(x, Parameter) else describe(x)
    raise GraphError(
        f"{what}: the outputs do not depend on input {number}, {named}; take it out of the inputs, "
        "or pass allow_unused=True for None in its place. A Tensor made from what the outputs "
        "read, as x[:] or a copy, is not what they read: keep the Tensor that the model was "
        "called with"
    )
