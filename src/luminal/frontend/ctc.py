"""Connectionist temporal classification: the loss of sequences whose places in time are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from luminal import dtypes
from luminal.errors import DTypeError, ShapeError
from luminal.frontend.binary import maximum, where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import Array, describe, is_tensor, work_dtype
from luminal.frontend.indexing import gather, literal_of, take
from luminal.frontend.loss import reduced
from luminal.frontend.movement import concat, expand, narrow, stack
from luminal.frontend.ordered import cumsum
from luminal.frontend.precision import widens
from luminal.frontend.scan import scan
from luminal.shape.expression import Expression

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

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
    what: str, x: Tensor, given: Lengths, batch: Expression, most: Expression | None
) -> Tensor:
    """One length for each sequence (int64); those that are known are checked."""
    found = x.graph.constant(given if is_tensor(given) else np.asarray(given, np.int64))
    if not found.dtype.is_int:
        raise DTypeError(f"ctc_loss: {what} is {describe(found)}; pass integers")
    found = found.reshape(1) if found.ndim == 0 else found
    if found.extents != (batch,):
        raise ShapeError(f"ctc_loss: {what} is {describe(found)}; it takes ({batch},)")
    literal = literal_of(found)
    known = most is not None and most.is_const
    if literal is not None and literal.size:
        top = int(literal.max())
        if int(literal.min()) < 0 or (most is not None and known and top > most.value):
            raise ShapeError(
                f"ctc_loss: {what} {literal.tolist()} do not lie in 0..{most if known else '...'}"
            )
    return found.cast(dtypes.int64)


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
    base = where(top == NEVER, 0, top)
    total = (logs[0] - base).exp()
    for x in logs[1:]:
        total = total + (x - base).exp()
    return base + total.log()
