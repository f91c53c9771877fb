"""Statistics of activations and gradients, as outputs of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.movement.views import stack
from luminal.frontend.tensor import Tensor
from luminal.loaders.mapped import Array
from luminal.memory.parameter import Parameter
from luminal.nn.module import Module

NAMES = ("mean", "std", "min", "max", "zeros")
ACTIVATION, GRADIENT = "activation:", "gradient:"  # what the names of outputs begin with


def record_activations(results: Mapping[str, Tensor]) -> None:
    """Outputs with the statistics of what each layer gave, by its path."""
    for path, result in results.items():
        if result.dtype.is_float:
            _statistics(result).output(f"{ACTIVATION}{path}")


def record_gradients(gradients: Mapping[Parameter, Tensor], model: Module) -> None:
    """Outputs with the statistics of each Parameter's gradient, by its path."""
    # Reversed, so that of a tied Parameter the first path is left.
    paths = {parameter: path for path, parameter in reversed([*model.named_parameters()])}
    for parameter, gradient in gradients.items():
        path = paths.get(parameter, parameter.name)
        _statistics(gradient).output(f"{GRADIENT}{path}")


def _statistics(x: Tensor) -> Tensor:
    """f32 (5,): the mean, the standard deviation over all elements, the ends, the share of 0."""
    flat = x.cast(float32).flatten()
    mean = flat.mean()
    std = (flat - mean).square().mean().sqrt()
    return stack([mean, std, flat.amin(), flat.amax(), (flat == 0).cast(float32).mean()])


def statistics_row(results: Mapping[str, Array]) -> dict[str, Any]:
    """What such outputs hold, for a row of metrics; {} where there are none."""
    by_kind: dict[str, dict[str, dict[str, float]]] = {}
    for kind, begin in (("activations", ACTIVATION), ("gradients", GRADIENT)):
        rows = {
            name.removeprefix(begin): dict(zip(NAMES, map(float, array), strict=True))
            for name, array in results.items()
            if name.startswith(begin)
        }
        if rows:
            by_kind[kind] = rows
    return by_kind
