"""Jacobians and Hessians: a Loop over the rows, or the columns, of a unit matrix.

A vjp at a unit vector of the result is a row of the Jacobian, a jvp at one of the argument is a
column. What the function computes does not depend on the vector, so it is recorded once and stays
outside of the Loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from luminal.autograd.transforms import jvp, place, vjp
from luminal.base.errors import GraphError
from luminal.frontend.handle import is_tensor
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape.expression import product_of

Argnums = int | Sequence[int]


def jacrev(function: Callable[..., Tensor], argnums: Argnums = 0) -> Callable[..., Any]:
    """The Jacobian of a function of Tensors, by reverse mode: `jacrev(f)(x)`.

    Its shape is that of the result, then that of the argument. A sequence of `argnums` gives a
    tuple of Jacobians. For results that are smaller than arguments; else `jacfwd`. It can be
    differentiated again. As torch.func.jacrev. Raises GraphError where the result is no Tensor,
    and as `lm.vjp`.
    """

    @wraps(function)
    def jacobian(*args: Any) -> Any:
        args = _tensors(args)
        numbers, at = _chosen("jacrev", function, args, argnums)
        y, _ = vjp(at, *(args[k] for k in numbers))
        _check("jacrev", y)

        def row(carry: Any, unit: Tensor) -> tuple[Any, Any]:
            _, pull = vjp(at, *(args[k] for k in numbers))
            return carry, pull(unit.reshape(*y.extents))

        _, rows = scan(row, (), _units(y))
        whole = [r.reshape(*y.extents, *r.extents[1:]) for r in rows]
        return whole[0] if isinstance(argnums, int) else tuple(whole)

    return jacobian


def jacfwd(function: Callable[..., Tensor], argnums: Argnums = 0) -> Callable[..., Any]:
    """The Jacobian of a function of Tensors, by forward mode: `jacfwd(f)(x)`.

    Its shape is that of the result, then that of the argument. A sequence of `argnums` gives a
    tuple of Jacobians. For arguments that are smaller than results; else `jacrev`. It can be
    differentiated again. As torch.func.jacfwd. Raises GraphError where the result is no Tensor,
    and as `lm.jvp`.
    """

    @wraps(function)
    def jacobian(*args: Any) -> Any:
        args = _tensors(args)
        numbers, _ = _chosen("jacfwd", function, args, argnums)
        whole = [_columns(function, args, k) for k in numbers]
        return whole[0] if isinstance(argnums, int) else tuple(whole)

    return jacobian


def hessian(function: Callable[..., Tensor], argnums: int = 0) -> Callable[..., Tensor]:
    """The second derivatives of a function of Tensors in one argument: `hessian(f)(x)`.

    Its shape is that of the result, then that of the argument twice; of a scalar function of a
    vector it is the Hessian matrix. Forward over reverse mode, as torch.func.hessian.
    """
    return jacfwd(jacrev(function, argnums), argnums)


def _columns(function: Callable[..., Tensor], args: Sequence[Any], number: int) -> Tensor:
    """The Jacobian in one argument."""
    x = args[number]

    def at(value: Tensor) -> Tensor:
        return function(*args[:number], value, *args[number + 1 :])

    y = at(x)
    _check("jacfwd", y)

    def column(carry: Any, unit: Tensor) -> tuple[Any, Any]:
        _, tangent = jvp(at, (x,), (unit.reshape(*x.extents),))
        return carry, tangent

    _, columns = scan(column, (), _units(x))
    return columns.movedim(0, -1).reshape(*y.extents, *x.extents)  # type: ignore[no-any-return]


def _tensors(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, Parameters and States as Tensors."""
    return tuple(x.as_tensor() if isinstance(x, Parameter | State) else x for x in args)


def _chosen(
    what: str, function: Callable[..., Tensor], args: Sequence[Any], argnums: Argnums
) -> tuple[list[int], Callable[..., Tensor]]:
    """The positions of `argnums`, and the function of these arguments alone."""
    wanted = [argnums] if isinstance(argnums, int) else argnums
    numbers = [place(what, k, len(args)) for k in wanted]
    for k in numbers:
        if not is_tensor(args[k]):
            raise GraphError(
                f"{what}: argument {k} is a {type(args[k]).__name__}; pass a Tensor, or arrays "
                "through lm.jit"
            )

    def at(*chosen: Tensor) -> Tensor:
        by_position = dict(zip(numbers, chosen, strict=True))
        return function(*(by_position.get(k, x) for k, x in enumerate(args)))

    return numbers, at


def _check(what: str, y: Any) -> None:
    if not is_tensor(y):
        raise GraphError(f"{what}: the function gives {y!r}; it must give one Tensor")


def _units(x: Tensor) -> Tensor:
    """The unit vectors of a Tensor's elements, one a row."""
    return x.graph.eye(product_of(x.extents), dtype=x.dtype)
