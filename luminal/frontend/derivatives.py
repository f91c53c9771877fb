"""Derivatives that are known of a function as a whole, where those of its primitives would be poor.

A function that computes erf by polynomials, or avoids an overflow by cases, has a simple derivative
that its primitives do not show. `differentiated` notes it beside what was recorded: the value, the
operands, and the rule that `autograd` uses for it instead of the primitives' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from luminal.frontend.handle import is_tensor
from luminal.hlir.ops import Value

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

Pull = Callable[["Tensor", "Tensor", Sequence["Tensor"]], Sequence["Tensor | None"]]
"""From the result's gradient, the result and the operands: each operand's gradient, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Derivative:
    """How the gradient of a value flows to `operands`, passing over all that lies between."""

    operands: tuple[Value, ...]
    pull: Pull


def differentiated(rule: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Gives a function of Tensors its derivative: `rule(g, y, *args, **kwargs)`.

    g is the gradient of the result y; args are the function's own. It returns the gradient of the
    only Tensor among the args, or one for each of them; None is zero.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            tensors = [x for x in args if is_tensor(x)]
            result: Any = function(*args, **kwargs)
            if tensors and is_tensor(result) and result.dtype.is_float:
                _note(result, tensors, args, kwargs, rule)
            return result  # type: ignore[no-any-return]

        return recorded

    return decorate


def _note(
    y: Tensor, tensors: Sequence[Tensor], args: Any, kwargs: Any, rule: Callable[..., Any]
) -> None:
    graph = y.graph
    if y.value in graph.derivatives or y.value.node is not graph.builder.newest:
        return  # recorded before, or no operation of its own

    def pull(g: Tensor, y: Tensor, operands: Sequence[Tensor]) -> Sequence[Tensor | None]:
        given = iter(operands)
        found = rule(g, y, *(next(given) if is_tensor(x) else x for x in args), **kwargs)
        return found if isinstance(found, tuple) else (found,)

    graph.derivatives[y.value] = Derivative(tuple(map(graph.bring, tensors)), pull)
