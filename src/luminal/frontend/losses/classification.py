"""Losses of classifiers and of sequences whose places in time are unknown (CTC)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.handle import Array, describe, is_tensor, work_dtype
from luminal.frontend.losses.loss import reduced
from luminal.frontend.matrices.matmul import widens
from luminal.frontend.movement.indexing import gather, literal_of, take
from luminal.frontend.movement.views import concat, expand, narrow, stack
from luminal.frontend.pointwise.binary import maximum, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.normalization import log_softmax
from luminal.frontend.reduce.reductions import count, cumsum, greatest, number
from luminal.frontend.scan import scan
from luminal.shape.expression import Expression

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
    x = input.cast(work_dtype(input.dtype))
    logs = log_softmax(x, axis)
    if target.dtype.is_float:
        return _soft(logs, target, axis, weight, reduction, label_smoothing).cast(_back(input))
    loss = _hard("cross_entropy", x, target, axis, weight, ignore_index, _log_chance)
    if not label_smoothing:
        return _finished("cross_entropy", *loss, reduction).cast(_back(input))
    losses, weights, kept = loss
    scaled = logs if weight is None else logs * _per_class(weight, logs, axis)
    even = where(kept, -scaled.mean(axis), 0)
    mixed = losses * (1 - label_smoothing) + even * label_smoothing
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
        # 1 - p = -(exp(log p) - 1), which expm1 computes without cancellation near p = 1.
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


def _chosen(x: Tensor, target: Tensor, axis: int) -> Tensor:
    """The elements of x at the targets, which has no axis of classes."""
    return gather(x, axis, target.unsqueeze(axis)).squeeze(axis)


# Written out, the gradient would be zeros as many as logits, into which few numbers are scattered,
# and two kernels would read logarithms that a third has stored. So each computes them of the
# logits: three passes over these, of 16 bits if they are, and no other value is as large.
def _log_chance_derivative(
    g: Tensor, y: Tensor, x: Tensor, target: Tensor, axis: int
) -> tuple[Tensor, None]:
    classes = x.graph.arange(x.extents[axis])
    is_target = target.unsqueeze(axis) == classes.reshape(-1, *(1,) * (x.ndim - 1 - axis))
    g = g.unsqueeze(axis)
    return where(is_target, g, 0) - log_softmax(x, axis).exp() * g, None


@differentiated(_log_chance_derivative)
def _log_chance(x: Tensor, target: Tensor, axis: int) -> Tensor:
    """log_softmax(x) at the targets, where alone it is computed; to the bit."""
    top = greatest(x, (axis,), keepdim=True).stop_gradient()
    total = (x - top).exp().sum(axis)
    return _chosen(x, target, axis) - top.squeeze(axis) - total.log()


def _hard(
    what: str,
    logs: Tensor,
    target: Tensor,
    axis: int,
    weight: Tensor | None,
    ignore_index: int,
    pick: Callable[[Tensor, Tensor, int], Tensor] = _chosen,
) -> tuple[Tensor, Tensor, Tensor]:
    """Each target's loss, its weight, and whether it counts; `pick` gives its logarithm."""
    if not target.dtype.is_int:
        raise DTypeError(
            f"{what}: the target is {describe(target)}; pass class indices: .to(lm.int64)"
        )
    rest = tuple(n for k, n in enumerate(logs.extents) if k != axis)
    if target.extents != rest:
        raise ShapeError(
            f"{what}: the target is {describe(target)}; "
            f"{describe(logs)} takes ({', '.join(map(str, rest))}); reshape it"
        )
    # An ignored target may be no class at all; it reads class 0, and the loss is set to 0 after.
    kept = target != ignore_index if _can_equal(ignore_index, target) else target == target
    safe = where(kept, target, 0)
    picked = pick(logs, safe, axis)
    weights = kept.cast(logs.dtype)
    if weight is not None:
        _per_class(weight, logs, axis)
        weights = where(kept, weight.cast(logs.dtype).take(safe), 0)
        picked = picked * weights
    return where(kept, -picked, 0), weights, kept


def _can_equal(number_: int, target: Tensor) -> bool:
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
            f"cross_entropy: probabilities are {describe(target)}; they take {describe(logs)}; "
            "if these are class indices, write .to(lm.int64)"
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


# --- ctc ------------------------------------------------------------------------------------------


Lengths: TypeAlias = "Tensor | Sequence[int] | Array | int"

NEVER = -np.inf  # the logarithm of the probability 0


@widens
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that a path through `log_probs` spells the target. Graves 2006.

    `log_probs`: (time, batch, classes), or (time, classes) of one sequence; `targets`: class
    indices (batch, longest), or all in a row. Lengths: Tensors, or lists, which are checked. The
    mean divides each loss by its target's length (at least 1) first; `zero_infinity` gives 0 where
    the target does not fit into the time. A scan over time of the forward variable's logarithm.
    Raises ShapeError or DTypeError where the operands do not fit.
    """
    single = log_probs.ndim == 2
    probs = log_probs.unsqueeze(1) if single else log_probs
    if probs.ndim != 3:
        raise ShapeError(
            f"ctc_loss: {describe(log_probs)}; it takes (time, batch, classes) or (time, classes)"
        )
    if not targets.dtype.is_int:
        raise DTypeError(f"ctc_loss: the targets are {describe(targets)}; pass class indices")
    _check_blank(blank, probs.extents[2])
    batch = probs.extents[1]
    times = _lengths("input_lengths", probs, input_lengths, batch, probs.extents[0])
    counts = _lengths("target_lengths", probs, target_lengths, batch, None)
    labels = _padded(targets, counts, batch, single)
    work = work_dtype(log_probs.dtype)
    loss = _loss(probs.cast(work), labels, times, counts, blank)
    if zero_infinity:
        loss = where(loss == np.inf, 0, loss)
    if reduction == "mean":
        loss = loss / counts.maximum(1).cast(work)
    loss = reduced("ctc_loss", loss.squeeze(0) if single else loss, reduction)
    return loss.cast(log_probs.dtype) if log_probs.dtype.is_storage else loss


def _check_blank(blank: int, classes: Expression) -> None:
    if blank < 0 or (classes.is_const and blank >= classes.value):
        raise ShapeError(f"ctc_loss: blank is {blank}; it is one of the {classes} classes")


def _lengths(
    what: str, x: Tensor, lengths: Lengths, batch: Expression, most: Expression | None
) -> Tensor:
    """One length for each sequence (int64); those that are known are checked."""
    counts = x.graph.constant(lengths if is_tensor(lengths) else np.asarray(lengths, np.int64))
    if not counts.dtype.is_int:
        raise DTypeError(f"ctc_loss: {what} is {describe(counts)}; pass integers")
    counts = counts.reshape(1) if counts.ndim == 0 else counts
    if counts.extents != (batch,):
        raise ShapeError(f"ctc_loss: {what} is {describe(counts)}; it takes ({batch},)")
    literal = literal_of(counts)
    is_literal = most is not None and most.is_const
    if literal is not None and literal.size:
        top = int(literal.max())
        if int(literal.min()) < 0 or (most is not None and is_literal and top > most.value):
            raise ShapeError(
                f"ctc_loss: {what} {literal.tolist()} do not lie in 0.."
                f"{most if is_literal else '...'}"
            )
    return counts.cast(dtypes.int64)


def _padded(targets: Tensor, counts: Tensor, batch: Expression, single: bool) -> Tensor:
    """(batch, longest): targets given in a row are cut by their lengths."""
    if single and targets.ndim == 1:
        return targets.unsqueeze(0)
    if targets.ndim == 2:
        if targets.extents[0] != batch:
            raise ShapeError(
                f"ctc_loss: the targets are {describe(targets)}; they take ({batch}, ...)"
            )
        return targets
    if targets.ndim != 1:
        raise ShapeError(f"ctc_loss: the targets are {describe(targets)}; give (batch, longest)")
    literal = literal_of(counts)
    longest: Any = targets.extents[0]
    if literal is not None:
        longest = int(literal.max(initial=0))
    starts = cumsum(counts, 0) - counts
    places = starts.unsqueeze(1) + targets.graph.arange(longest)
    if targets.extents[0].is_const and targets.extents[0].value == 0:
        return expand(targets.unsqueeze(0), (batch, 0))
    return take(targets, places.minimum(targets.extents[0] - 1))


def _loss(probs: Tensor, labels: Tensor, times: Tensor, counts: Tensor, blank: int) -> Tensor:
    """-log p of each sequence.

    The label at odd positions is the target's, at even ones the blank. The carried value is, for
    each position, the logarithm of the probability of all paths that are there; it starts before
    the first step, at the first blank. A step stays, moves by one, or over a blank between labels
    that differ.
    """
    graph, batch = probs.graph, probs.extents[1]
    longest = labels.extents[1]
    inside = graph.arange(longest) < counts.unsqueeze(1)
    labels = where(inside, labels.cast(dtypes.int64), blank)
    blanks = graph.full((batch, longest), blank, dtypes.int64)
    last = graph.full((batch, 1), blank, dtypes.int64)
    # blank, a, blank, b, ..., blank: Graves' extended labelling.
    spelled = concat((stack((blanks, labels), 2).reshape(batch, 2 * longest), last), 1)
    differs = (spelled != blank) & (spelled != _shifted(spelled, 2, blank))
    position = graph.arange(2 * longest + 1)
    start = where(position == 0, 0.0, NEVER).cast(probs.dtype)
    start = expand(start.unsqueeze(0), (batch, 2 * longest + 1))

    def step(before: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        row, now = inputs
        by_two = where(differs, _shifted(before, 2, NEVER), NEVER)
        reached = _log_sum(before, _shifted(before, 1, NEVER), by_two)
        after = reached + gather(row, 1, spelled)
        # Sequences that have ended carry their last value on, so that one loop serves a batch.
        return where((now < times).unsqueeze(1), after, before), None

    final, _ = scan(step, start, (probs, graph.arange(probs.extents[0])))
    ends = (2 * counts).unsqueeze(1)
    at_blank = gather(final, 1, ends)
    at_label = where(ends > 0, gather(final, 1, (ends - 1).maximum(0)), NEVER)
    return -_log_sum(at_blank, at_label).squeeze(1)


def _shifted(x: Tensor, by: int, fill: float) -> Tensor:
    """x moved to the right along its last dim, `fill` before it."""
    lead = x.graph.full((x.extents[0], by), fill, x.dtype)
    return narrow(concat((lead, x), 1), 1, 0, x.extents[1])


def _log_sum_derivative(g: Tensor, y: Tensor, *logs: Tensor) -> tuple[Tensor, ...]:
    total = where(y == NEVER, 0, y)
    return tuple(g * (x - total).exp() for x in logs)


@differentiated(_log_sum_derivative)
def _log_sum(*logs: Tensor) -> Tensor:
    """log(sum(exp(x))) of tensors; -inf of nothing but -inf."""
    top = logs[0]
    for x in logs[1:]:
        top = maximum(top, x)
    # -inf - -inf would be NaN.
    base = where(top == NEVER, 0, top)
    total = (logs[0] - base).exp()
    for x in logs[1:]:
        total = total + (x - base).exp()
    return base + total.log()
