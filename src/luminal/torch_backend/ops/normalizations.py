"""Norms with the statistics that their backward passes read, each one stored as PyTorch stores it.

The normalised values are the library's functions; statistics are values of their own, which a
compile leaves out where nothing reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import luminal as lm
from luminal.nn import functional
from luminal.torch_backend.ops.registry import Planned, row

Tensor = lm.Tensor
Results = Sequence[Planned]


def _as_planned(tensors: Sequence[Tensor], results: Results) -> tuple[Tensor, ...]:
    """Statistics in PyTorch's dtypes: of 16 bits or float32, as those of the operands are."""
    return tuple(x.cast(held.dtype) for x, held in zip(tensors, results, strict=True))


def _moments(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """The mean, and 1 over the root of variance plus eps, with dims kept; float32 of 16 bits."""
    x = x.cast(x.dtype.compute)
    mean = x.mean(dims, keepdim=True)
    # In two steps: the mean of squares less the square of the mean cancels where values are far
    # from 0.
    variance = (x - mean).square().mean(dims, keepdim=True)
    return mean, (variance + eps).rsqrt()


@row("native_layer_norm", knows_results=True)
def layer_norm(
    x: Tensor, shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float,
    *, results: Results,
) -> tuple[Tensor, ...]:  # fmt: skip
    dims = tuple(range(-len(shape), 0))
    mean, scale = _moments(x, dims, eps)
    y = functional.layer_norm(x, tuple(shape), weight, bias, eps)
    return _as_planned((y, mean, scale), results)


@row("_fused_rms_norm")
def rms_norm(
    x: Tensor, shape: Sequence[Any], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-len(shape), 0))
    least = x.dtype.epsilon if eps is None else eps
    scale = (x.cast(x.dtype.compute).square().mean(dims, keepdim=True) + least).rsqrt()
    return functional.rms_norm(x, tuple(shape), weight, eps), scale


@row("native_group_norm")
def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: Any, channels: Any, area: Any,
    group: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y = functional.group_norm(x, group, weight, bias, eps)
    mean, scale = _moments(x.reshape(batch, group, channels * area // group), (2,), eps)
    return y, mean.reshape(batch, group).cast(x.dtype), scale.reshape(batch, group).cast(x.dtype)


@row("_native_batch_norm_legit_no_training", knows_results=True)
def batch_norm_inference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, eps: float, *, results: Results,
) -> tuple[Tensor, ...]:  # fmt: skip
    y = functional.batch_norm(x, mean, variance, weight, bias, False, momentum, eps)
    nothing = lm.zeros((0,), x.dtype)
    return _as_planned((y, nothing, nothing), results)


@row("_native_batch_norm_legit.no_stats", knows_results=True)
def batch_norm_of_batch(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float,
    eps: float, *, results: Results,
) -> tuple[Tensor, ...]:  # fmt: skip
    return _as_planned(_of_batch(x, weight, bias, momentum, eps), results)


def _of_batch(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y = functional.batch_norm(x, None, None, weight, bias, True, momentum, eps)
    mean, scale = _moments(x, _all_but_channels(x), eps)
    return y, mean.reshape(-1), scale.reshape(-1)


@row("_native_batch_norm_legit_functional", knows_results=True)
def batch_norm_training(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    training: bool, momentum: float, eps: float, *, results: Results,
) -> tuple[Tensor, ...]:  # fmt: skip
    if not training:
        normalized = batch_norm_inference(
            x, weight, bias, mean, variance, momentum, eps, results=results[:3]
        )
        return *normalized, mean, variance
    y, of_batch, scale = _of_batch(x, weight, bias, momentum, eps)
    # Running variances are divided by n - 1, those that normalise by n: PyTorch has both.
    unbiased = x.cast(x.dtype.compute).var(_all_but_channels(x))
    moved = [
        (old * (1 - momentum) + new * momentum).cast(old.dtype)
        for old, new in ((mean, of_batch), (variance, unbiased))
    ]
    return _as_planned((y, of_batch, scale, *moved), results)


def _all_but_channels(x: Tensor) -> tuple[int, ...]:
    return tuple(k for k in range(x.ndim) if k != 1)
