"""Derivatives that are known of a function as a whole, where those of its primitives would be poor.

A function that computes erf by polynomials, or avoids an overflow by cases, has a simple derivative
that its primitives do not show. `differentiated` notes it beside what was recorded: the value, the
operands, and the rule that `autograd` uses for it instead of the primitives' own.

Equal operations are one value, whoever recorded them first says how it is differentiated: relu and
`maximum(x, 0)` differ at 0 only. Where such values have to differ, they are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from luminal.base.records import dataclass
from luminal.frontend.handle import is_tensor
from luminal.hlir.attributes import MarkAttrs, WeightAttrs
from luminal.hlir.ops import Value

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

differentiable: ContextVar[bool] = ContextVar("luminal_differentiable", default=True)
"""Has what is recorded here a derivative? Not inside of `lm.no_grad`."""
NO_GRADIENT = MarkAttrs("no_grad")

Pull = Callable[["Tensor", "Tensor", Sequence["Tensor"]], Sequence["Tensor | None"]]
"""From the result's gradient, the result and the operands: each operand's gradient, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Derivative:
    """How the gradient of a value flows to `operands`, passing over all that lies between."""

    operands: tuple[Value, ...]
    pull: Pull


def as_variable(x: Tensor) -> Tensor:
    """`x` as a value of its own, with the derivative of an identity."""
    graph = x.graph
    value = graph.builder.make("Detach", [x.value], MarkAttrs((object(),))).value
    graph.derivatives[value] = Derivative((x.value,), lambda g, _y, _x: (g,))
    return graph.wrap(value)


def has_gradient(x: Tensor) -> bool:
    """Does `x` follow, by operations with derivatives, from what `requires_grad_` was called of, or
    from a Parameter that is trained?
    """
    seen, waiting = set[Value](), [x.value]
    while waiting:
        value = waiting.pop()
        if value in seen or not value.dtype.is_float:
            continue
        seen.add(value)
        node, derivative = value.node, x.graph.derivatives.get(value)
        is_trained = isinstance(node.attrs, WeightAttrs) and node.attrs.parameter.requires_grad
        if is_trained or node in x.graph.variables:
            return True
        if derivative is not None:
            waiting += derivative.operands
        elif node.op.name != "Detach":
            waiting += node.args
    return False


class _Differentiable:
    """A context or decorator: what is recorded inside has derivatives, or has none."""

    wanted = True

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """The context; of a function (a decorator without brackets) that function inside it."""
        context = super().__new__(cls)
        context._tokens = []
        return context if function is None else context(function)

    _tokens: list[Token[bool]]

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def calling(*args: P.args, **kwargs: P.kwargs) -> R:
            with type(self)():  # its own: threads may call it at the same time
                return function(*args, **kwargs)

        return calling

    def __enter__(self) -> None:
        self._tokens.append(differentiable.set(self.wanted))

    def __exit__(self, *error: object) -> None:
        differentiable.reset(self._tokens.pop())


class enable_grad(_Differentiable):
    """A context or decorator: what is recorded inside of it has derivatives, also inside of
    `no_grad`. As torch.enable_grad.
    """


class no_grad(_Differentiable):
    """A context or decorator: what is recorded inside of it is constant for derivatives. As
    torch.no_grad; a compile drops the difference.
    """

    wanted = False


# What follows from primitives is right, but poor where a function is made of cases, polynomials or
# bits: 0 times infinity of the branch not taken, digits lost, ties decided otherwise than in
# PyTorch. Forward the graph is the same as without.
def differentiated(
    rule: Callable[..., Any], *, marked: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Gives a function of Tensors its derivative: `rule(g, y, *args, **kwargs)`.

    g is the gradient of the result y; the others are the function's own. It returns the gradient of
    the only Tensor among them, or a tuple with one for each; None is zero. A function that is part
    of another one is passed over with it. `marked`: the result is a value of its own, so that equal
    operations recorded elsewhere keep their derivative; a compile drops the mark.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            if not differentiable.get():
                return function(*args, **kwargs)
            tensors = [x for x in (*args, *kwargs.values()) if is_tensor(x)]
            lengths = {id(x.graph): len(x.graph.builder) for x in tensors}
            result: Any = function(*args, **kwargs)
            if not tensors or not is_tensor(result) or not result.dtype.is_float:
                return result  # type: ignore[no-any-return]
            y: Tensor = result
            derivative = _derivative(y, tensors, args, kwargs, rule)
            if marked:
                return _marked(y, derivative, rule, args, kwargs)  # type: ignore[return-value]
            builder = y.graph.builder
            if y.value.node is builder.newest and len(builder) > lengths.get(id(y.graph), 0):
                y.graph.derivatives[y.value] = derivative
            return y  # type: ignore[return-value]

        return recorded

    return decorate


def _derivative(
    y: Tensor,
    tensors: Sequence[Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    rule: Callable[..., Any],
) -> Derivative:
    def pull(g: Tensor, y: Tensor, operands: Sequence[Tensor]) -> Sequence[Tensor | None]:
        remaining = iter(operands)
        now = [next(remaining) if is_tensor(x) else x for x in args]
        named = {key: next(remaining) if is_tensor(x) else x for key, x in kwargs.items()}
        gradients = rule(g, y, *now, **named)
        return gradients if isinstance(gradients, tuple) else (gradients,)

    return Derivative(tuple(map(y.graph.bring, tensors)), pull)


def _marked(
    y: Tensor,
    derivative: Derivative,
    rule: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Tensor:
    """`y` as a value of its own; equal calls give the same."""
    options = tuple(repr(x) for x in (*args, *kwargs.items()) if not is_tensor(x))
    attrs = MarkAttrs((rule, derivative.operands, options))
    value = y.graph.builder.make("Detach", [y.value], attrs).value
    y.graph.derivatives.setdefault(value, derivative)
    return y.graph.wrap(value)
