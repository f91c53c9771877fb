"""What the formulas of optimizers share: one formula for every parameter of a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.frontend.handle import is_tensor, work_dtype
from luminal.frontend.tensor import Tensor

Tensors: TypeAlias = Sequence[Tensor]
Rate: TypeAlias = float | Tensor
"""A learning rate, or a momentum: a number, which is part of the program, or a 0-d Tensor."""


def each(
    what: str, formula: Callable[..., Sequence[Tensor]], parameters: Tensors, *others: Tensors
) -> tuple[list[Tensor], ...]:
    """`formula(parameter, gradient, *moments)` of every parameter: a list for each result.

    It gives the new parameter and the new moments. Operands are cast to float32 (float64 for
    parameters of float64), results back to the dtypes of what they replace. Raises ShapeError for
    lists of different lengths.
    """
    counts = {len(parameters), *map(len, others)}
    if len(counts) > 1:
        lengths = ", ".join(str(len(column)) for column in (parameters, *others))
        raise ShapeError(
            f"{what}: the lists hold {lengths} Tensors; give one of each per parameter"
        )
    results: tuple[list[Tensor], ...] = tuple([] for _ in range(len(others)))
    for old, gradient, *moments in zip(parameters, *others, strict=True):
        # Squares and quotients in 16 bits would lose most of their digits; only what is stored is
        # rounded.
        work = work_dtype(old.dtype)
        new = formula(*(x.cast(work) for x in (old, gradient, *moments)))
        for column, value, before in zip(results, new, (old, *moments), strict=True):
            column.append(value.cast(before.dtype))
    return results


def rate_of(lr: Rate, dtype: DType) -> Rate:
    """A learning rate or momentum as an operand beside Tensors of `dtype`."""
    return lr.cast(dtype) if is_tensor(lr) else lr


def bias_correction(beta: Rate, step: Tensor, dtype: DType) -> Tensor:
    """1 - beta**step, without its cancellation where beta is near 1."""
    # As a function of the step and not a product that is carried along: exact after any number of
    # steps, and nothing to store.
    # Of beta 0 no logarithm is there, and 1 - 0**step is 1.
    if is_tensor(beta):
        return -(step.cast(dtype) * beta.cast(dtype).log()).expm1()
    exponent = math.log(beta) if beta else -math.inf
    return -(step.cast(dtype) * exponent).expm1()


def signed(gradient: Tensor, maximize: bool) -> Tensor:
    """The direction that is descended along."""
    return -gradient if maximize else gradient


def decayed(g: Tensor, p: Tensor, weight_decay: float) -> Tensor:
    """The gradient with that of weight_decay / 2 * p**2."""
    return g + weight_decay * p if weight_decay else g


def shrunk(p: Tensor, rate: Rate, weight_decay: float) -> Tensor:
    """A parameter after decoupled decay."""
    return p * (1 - rate * weight_decay) if weight_decay else p


def mixed(moment: Tensor, value: Tensor, beta: Rate) -> Tensor:
    """beta * moment + (1 - beta) * value: a running mean's next value."""
    # One product less than the formula has, and exact where both are equal.
    return moment + (value - moment) * (1 - rate_of(beta, moment.dtype))


def with_decay(
    p: Tensor, g: Tensor, rate: Rate, weight_decay: float, decoupled: bool
) -> tuple[Tensor, Tensor]:
    """The parameter and the gradient: decay makes the one smaller, or is part of the other."""
    if decoupled:
        return shrunk(p, rate, weight_decay), g
    return p, decayed(g, p, weight_decay)
