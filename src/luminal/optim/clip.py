"""Clipping of gradients, all together by their norm or each element by its size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

from luminal.base.errors import InputError
from luminal.frontend.handle import Pair, is_tensor, work_dtype
from luminal.frontend.pointwise.binary import maximum
from luminal.frontend.scan import flatten
from luminal.frontend.tensor import Tensor
from luminal.optim.ranges import BOUND, check

Gradients = TypeVar("Gradients")
"""A Tensor, or lists and dicts of Tensors; None stands for no gradient."""

TINY = 1e-6  # PyTorch's: keeps a norm of 0 from dividing


def grad_norm(gradients: Any, norm_type: float = 2.0) -> Tensor:
    """The norm of all elements of all gradients together: a 0-d float32 or float64."""
    order = float(norm_type)
    # |z|**2 is the sum of the squares of both parts, other powers are not.
    is_whole = _is_real if order == 2 else _is_complex
    whole = _leaves("grad_norm", gradients, is_whole)
    leaves: list[Tensor] = [g if is_tensor(g) else abs(g) for g in whole]
    if not order > 0:
        raise InputError(f"grad_norm: norm_type={norm_type}; it is greater than 0, or infinity")
    work = max((work_dtype(g.dtype) for g in leaves), key=lambda dtype: dtype.size)
    sizes = [abs(g.cast(work)) for g in leaves if g.numel() != 0]
    if not sizes:
        return leaves[0].graph.constant(0.0, work)
    if math.isinf(order):
        return reduce(maximum, [x.amax() for x in sizes])
    # The usual norm needs no logarithm, by which other powers are computed.
    powers = [(x * x if order == 2 else x**order).sum() for x in sizes]
    total = reduce(Tensor.__add__, powers)
    return total.sqrt() if order == 2 else total ** (1 / order)


def clip_grad_norm(
    gradients: Gradients, max_norm: float | Tensor, norm_type: float = 2.0
) -> tuple[Gradients, Tensor]:
    """Gradients times min(1, max_norm / (norm + 1e-6)), and the norm of all of them together.

    They are given back in their structure and dtypes. Pascanu et al. 2013; as
    torch.nn.utils.clip_grad_norm_, which changes them in place.
    """
    if not is_tensor(max_norm):
        check("clip_grad_norm", BOUND, max_norm=max_norm)
    norm = grad_norm(gradients, norm_type)
    return scaled_to_norm(gradients, norm, max_norm), norm


def scaled_to_norm(gradients: Gradients, norm: Tensor, max_norm: float | Tensor) -> Gradients:
    """Gradients of this norm times min(1, max_norm / (norm + 1e-6))."""
    factor = (max_norm / (norm + TINY)).minimum(1.0)
    leaves, tree = flatten(gradients)
    scaled: Gradients = tree.build([(g * factor).cast(g.dtype) for g in leaves])
    return scaled


def clip_grad_value(gradients: Gradients, clip_value: float) -> Gradients:
    """Every element cut to -clip_value .. clip_value, of complex ones each part."""
    check("clip_grad_value", BOUND, clip_value=clip_value)
    _leaves("clip_grad_value", gradients)
    leaves, tree = flatten(gradients)
    clipped: Gradients = tree.build([g.clip(-clip_value, clip_value) for g in leaves])
    return clipped


def clipped(
    gradients: Gradients, clip_norm: float | Tensor | None, clip_value: float | None
) -> tuple[Gradients, Tensor | None]:
    """Both ways, by value first, where they are asked for; and the norm, if it was needed."""
    if clip_value is not None:
        gradients = clip_grad_value(gradients, clip_value)
    if clip_norm is None:
        return gradients, None
    return clip_grad_norm(gradients, clip_norm)


def _is_complex(gradient: Any) -> bool:
    return isinstance(gradient, Pair)


def _is_real(gradient: Any) -> bool:
    return is_tensor(gradient)


def _leaves(what: str, gradients: Any, is_leaf: Callable[[Any], bool] = _is_real) -> Sequence[Any]:
    leaves, _ = flatten(gradients, is_leaf)
    if not leaves:
        raise InputError(f"{what}: got no gradients; pass those of lm.grad(loss, variables)")
    return leaves
