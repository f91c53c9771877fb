"""torch.nn.utils: clips the gradients that `backward` has found, and joins Parameters to a vector;
`rnn` has packed sequences.

Gradients are replaced, not changed in place: `p.grad` is another Tensor then, which
`optimizer.step()` takes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from luminal.base.errors import InputError, ShapeError
from luminal.frontend.tensor import Tensor
from luminal.memory.arrays import Array
from luminal.memory.data import array_of
from luminal.memory.parameter import Parameter
from luminal.nn.utils import rnn
from luminal.optim import clip

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]


def clip_grad_norm_(
    parameters: Parameter | Iterable[Parameter],
    max_norm: float | Tensor,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales `p.grad` of all Parameters by min(1, max_norm / (norm + 1e-6)); gives the norm of all
    of them together (0-d), as it was.

    With `error_if_nonfinite` the norm is computed at once, and InputError is raised where it is no
    finite number. `foreach` changes nothing. As torch.nn.utils.clip_grad_norm_.
    """
    held = _found("clip_grad_norm_", parameters)
    scaled, norm = clip.clip_grad_norm([p.grad for p in held], max_norm, norm_type)
    if error_if_nonfinite and not np.isfinite(norm.numpy()):
        raise InputError(
            f"clip_grad_norm_: the norm of the gradients is {norm.numpy()}; detect_nan finds where "
            "it comes from"
        )
    _replace(held, scaled)
    norm.graph.wanted(norm)
    return norm


def clip_grad_value_(
    parameters: Parameter | Iterable[Parameter], clip_value: float, foreach: bool | None = None
) -> None:
    """Cuts every element of `p.grad` of all Parameters to -clip_value .. clip_value.

    `foreach` changes nothing. As torch.nn.utils.clip_grad_value_.
    """
    held = _found("clip_grad_value_", parameters)
    _replace(held, clip.clip_grad_value([p.grad for p in held], clip_value))


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all elements of all Tensors together (0-d), as torch.nn.utils.get_total_norm."""
    return clip.grad_norm(list(tensors), norm_type)


def parameters_to_vector(parameters: Iterable[Parameter]) -> Array:
    """The values of all Parameters, one after the other, as an array of one dimension."""
    return np.concatenate([p.numpy().reshape(-1) for p in parameters])


def vector_to_parameters(vector: object, parameters: Iterable[Parameter]) -> None:
    """Sets Parameters to the parts of a vector, in order. Raises ShapeError, and sets none, unless
    it has as many elements as they have.
    """
    held = list(parameters)
    values = array_of(vector, None, "vector_to_parameters").reshape(-1)
    count = sum(p.numel() for p in held)
    if values.size != count:
        raise ShapeError(
            f"vector_to_parameters: {values.size} elements for {count}; give one for each element "
            "of the Parameters"
        )
    start = 0
    for p in held:
        p.set(values[start : start + p.numel()].reshape(p.shape))
        start += p.numel()


def _found(what: str, parameters: Parameter | Iterable[Parameter]) -> list[Parameter]:
    """Those that have a gradient; InputError where none has."""
    held = [parameters] if isinstance(parameters, Parameter) else list(parameters)
    for p in held:
        if not isinstance(p, Parameter):
            raise InputError(f"{what}: {p!r} is no Parameter; pass model.parameters()")
    held = [p for p in held if p.grad is not None]
    if not held:
        raise InputError(
            f"{what}: none of the {len(held)} parameters has a gradient; call loss.backward() first"
        )
    return held


def _replace(parameters: list[Parameter], gradients: list[Tensor]) -> None:
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = gradient
