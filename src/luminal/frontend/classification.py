"""Losses of classifiers: negative log-likelihoods of class indices or of probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.errors import DTypeError, ShapeError
from luminal.frontend.binary import where
from luminal.frontend.handle import describe, work_dtype
from luminal.frontend.logits import log_softmax
from luminal.frontend.loss import reduced
from luminal.frontend.precision import widens
from luminal.frontend.reduce import count, number

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@widens
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """nll_loss(log_softmax(input), target): the classes stand in dim 1, or dim 0 of a vector.

    `target` holds class indices, (batch, ...), or probabilities in input's shape. Smoothing mixes
    in the even distribution. The mean is over the weights of the targets that are not ignored; over
    the batch for probabilities. Raises ShapeError where the shapes do not fit.
    """
    axis = _class_axis("cross_entropy", input)
    logs = log_softmax(input.cast(work_dtype(input.dtype)), axis)
    if target.dtype.is_float:
        return _soft(logs, target, axis, weight, reduction, label_smoothing).cast(_back(input))
    loss = _hard("cross_entropy", logs, target, axis, weight, ignore_index)
    if not label_smoothing:
        return _finished("cross_entropy", *loss, reduction).cast(_back(input))
    each, weights, kept = loss
    scaled = logs if weight is None else logs * _per_class(weight, logs, axis)
    even = where(kept, -scaled.mean(axis), 0)
    mixed = each * (1 - label_smoothing) + even * label_smoothing
    return _finished("cross_entropy", mixed, weights, kept, reduction).cast(_back(input))


@widens
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-input[target] * weight[target] of log-probabilities; classes in dim 1, or 0 of a vector.

    Targets equal to `ignore_index` give 0 and do not count in the mean over the weights.
    """
    axis = _class_axis("nll_loss", input)
    logs = input.cast(work_dtype(input.dtype))
    loss = _hard("nll_loss", logs, target, axis, weight, ignore_index)
    return _finished("nll_loss", *loss, reduction).cast(_back(input))


@widens
def focal_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    gamma: float = 2.0,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """cross_entropy with class indices, each loss times (1 - p)**gamma, p the target's probability.

    Weights and the mean are cross_entropy's. Lin et al. 2017, for more than two classes.
    """
    axis = _class_axis("focal_loss", input)
    logs = log_softmax(input.cast(work_dtype(input.dtype)), axis)
    if gamma:
        logs = logs * (-logs.expm1()) ** gamma
    loss = _hard("focal_loss", logs, target, axis, weight, ignore_index)
    return _finished("focal_loss", *loss, reduction).cast(_back(input))


def _back(input: Tensor) -> object:
    """The dtype of the result."""
    return input.dtype if input.dtype.is_float else work_dtype(input.dtype)


def _class_axis(what: str, input: Tensor) -> int:
    if input.ndim == 0:
        raise ShapeError(f"{what}: {describe(input)} has no dim of classes; give it one")
    return min(1, input.ndim - 1)


def _per_class(weight: Tensor, logs: Tensor, axis: int) -> Tensor:
    """`weight`, one per class, made to broadcast with `logs`."""
    if weight.extents != (logs.extents[axis],):
        raise ShapeError(
            f"cross_entropy: the weight is {describe(weight)}; "
            f"it takes one per class, ({logs.extents[axis]},)"
        )
    return weight.cast(logs.dtype).reshape(-1, *(1,) * (logs.ndim - 1 - axis))


def _hard(
    what: str, logs: Tensor, target: Tensor, axis: int, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Each target's loss, its weight, and whether it counts."""
    if not target.dtype.is_int:
        raise DTypeError(f"{what}: the target is {describe(target)}; pass class indices")
    rest = tuple(n for k, n in enumerate(logs.extents) if k != axis)
    if target.extents != rest:
        raise ShapeError(
            f"{what}: the target is {describe(target)}; "
            f"{describe(logs)} takes ({', '.join(map(str, rest))})"
        )
    kept = target != ignore_index if _fits(ignore_index, target) else target == target
    safe = where(kept, target, 0)
    picked = logs.gather(axis, safe.unsqueeze(axis)).squeeze(axis)
    weights = kept.cast(logs.dtype)
    if weight is not None:
        _per_class(weight, logs, axis)
        weights = where(kept, weight.cast(logs.dtype).take(safe), 0)
        picked = picked * weights
    return where(kept, -picked, 0), weights, kept


def _fits(number_: int, target: Tensor) -> bool:
    return number_ >= 0 or target.dtype.is_signed


def _finished(what: str, loss: Tensor, weights: Tensor, kept: Tensor, reduction: str) -> Tensor:
    """The losses, their sum, or the sum over that of the weights."""
    if reduction == "mean":
        return loss.sum() / weights.sum()
    return reduced(what, loss, reduction)


def _soft(
    logs: Tensor, target: Tensor, axis: int, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """The loss against probabilities of the classes."""
    if target.extents != logs.extents:
        raise ShapeError(
            f"cross_entropy: probabilities are {describe(target)}; they take {describe(logs)}"
        )
    chances = target.cast(logs.dtype)
    if smoothing:
        classes = number(logs, logs.extents[axis])
        chances = chances * (1 - smoothing) + smoothing / classes
    scaled = logs if weight is None else logs * _per_class(weight, logs, axis)
    loss = -(scaled * chances).sum(axis)
    if reduction == "mean":
        return loss.sum() / number(loss, count(loss, tuple(range(loss.ndim))))
    return reduced("cross_entropy", loss, reduction)
