"""Losses between two tensors: the functional forms of PyTorch's, with its names and defaults.

`reduction` is "mean" over all elements, "sum", or "none". 16-bit floats are computed in f32 and
cast down once; integers give float32.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from luminal.base.errors import ShapeError
from luminal.base.lines import user_level
from luminal.frontend.handle import axes_of, is_tensor, numpy_names
from luminal.frontend.matrices.matmul import widens
from luminal.frontend.matrices.norms import vector_norm
from luminal.frontend.pointwise.binary import unified, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.exponential import log_sigmoid
from luminal.frontend.reduce.statistics import mean

if TYPE_CHECKING:
    from luminal.base.dtypes import DType
    from luminal.frontend.tensor import Tensor


def reduced(what: str, loss: Tensor, reduction: str) -> Tensor:
    """The elements' losses as `reduction` says; ShapeError for an unknown one."""
    if reduction == "mean":
        return mean(loss)
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ShapeError(f'{what}: reduction={reduction!r}; use "mean", "sum" or "none"')


def _floats(what: str, *operands: Tensor) -> tuple[list[Tensor], DType]:
    """The operands in one shape and float compute dtype, and the dtype that results go back to."""
    return unified(what, operands, floating=True)


def _pair(what: str, input: Tensor, target: Tensor) -> tuple[list[Tensor], DType]:
    """`_floats` of what is compared element by element; warns where that broadcasts."""
    shapes = [tuple(x.extents) if is_tensor(x) else np.shape(x) for x in (input, target)]
    if all(shapes) and shapes[0] != shapes[1]:
        shown = [f"({', '.join(map(str, shape))})" for shape in shapes]
        warnings.warn(
            f"{what}: the input has the shape {shown[0]}, the target {shown[1]}; they are "
            "broadcast, and every pair counts: reshape one to the shape of the other",
            stacklevel=user_level(),
        )
    return _floats(what, input, target)


def _elementwise(
    what: str, of: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor,
    weight: Tensor | None, reduction: str,
) -> Tensor:  # fmt: skip
    """`of` a and b, times `weight`; a weighted mean divides by the sum of the weights."""
    (x, y), result = _pair(what, a, b)
    loss = of(x, y)
    if weight is None:
        return reduced(what, loss, reduction).cast(result)
    (loss, scale), _ = _floats(what, loss, weight)
    weighted = loss * scale
    # A mean over weights, not over elements: doubling all weights changes nothing.
    if reduction == "mean":
        return (weighted.sum() / scale.sum()).cast(result)
    return reduced(what, weighted, reduction).cast(result)


# --- distances ------------------------------------------------------------------------------------


@widens
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The square of the difference, (input - target)**2."""
    return _elementwise("mse_loss", lambda x, y: (x - y).square(), input, target, weight, reduction)


@widens
def rmse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The root of mse_loss, taken last; where that is 0 the gradient is 0."""
    (x, y), result = _pair("rmse_loss", input, target)
    squares = mse_loss(x, y, reduction)
    # sqrt has an infinite slope at 0, and 0 * inf is NaN.
    is_some = squares != 0
    return where(is_some, where(is_some, squares, 1).sqrt(), 0).cast(result)


@widens
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The size of the difference, |input - target|."""
    return _elementwise("l1_loss", lambda x, y: abs(x - y), input, target, weight, reduction)


@widens
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d**2 / (2 beta) where d = |input - target| is below `beta`, else d - beta / 2."""
    if beta == 0:
        return l1_loss(input, target, reduction)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        d = x - y
        size = abs(d)
        return where(size < beta, 0.5 * d * d / beta, size - 0.5 * beta)

    return _elementwise("smooth_l1_loss", loss, input, target, None, reduction)


@widens
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d**2 / 2 where d = |input - target| is at most `delta`, else delta * (d - delta / 2)."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        d = x - y
        size = abs(d)
        return where(size <= delta, 0.5 * d * d, delta * (size - 0.5 * delta))

    return _elementwise("huber_loss", loss, input, target, weight, reduction)


# --- probabilities --------------------------------------------------------------------------------


def _logs(p: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of p and of 1 - p, at least -100 as in PyTorch."""
    return p.log().maximum(-100), (-p).log1p().maximum(-100)


def _surprise_derivative(g: Tensor, y: Tensor, p: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    # The clamped logarithms have no slope at 0 and 1, where learning would stop.
    of_one, of_zero = _logs(p)
    return g * (p - t) / (p * (1 - p)).maximum(1e-12), g * (of_zero - of_one)


@differentiated(_surprise_derivative)
def _surprise(p: Tensor, t: Tensor) -> Tensor:
    of_one, of_zero = _logs(p)
    return -(t * of_one + (1 - t) * of_zero)


@widens
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input)) of probabilities; logs are >= -100.

    Gradients stay finite at probabilities of 0 and 1, where input * (1 - input) counts as 1e-12.
    """
    (p, t), result = _pair("binary_cross_entropy", input, target)
    loss = _surprise(p, t)
    if weight is not None:
        loss = loss * weight
    return reduced("binary_cross_entropy", loss, reduction).cast(result)


@widens
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), without its overflow; `pos_weight` scales target 1.

    (1 - t) * x - (1 + (pos_weight - 1) * t) * log(sigmoid(x)).
    """
    (x, t), result = _pair("binary_cross_entropy_with_logits", input, target)
    # log(sigmoid(x)) as one function: sigmoid alone rounds to 0 or 1 far from 0.
    log_one = -log_sigmoid(x)
    if pos_weight is not None:
        log_one = log_one * (1 + (pos_weight - 1) * t)
    loss = (1 - t) * x + log_one
    if weight is not None:
        loss = loss * weight
    return reduced("binary_cross_entropy_with_logits", loss, reduction).cast(result)


@widens
def sigmoid_focal_loss(
    input: Tensor,
    target: Tensor,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> Tensor:
    """binary_cross_entropy_with_logits times (1 - p)**gamma, p the target's probability.

    `alpha` weighs target 1, 1 - alpha target 0; None: neither. Lin et al. 2017.
    """
    (x, t), result = _floats("sigmoid_focal_loss", input, target)
    loss = binary_cross_entropy_with_logits(x, t, reduction="none")
    if gamma:
        # 1 - sigmoid(x) is sigmoid(-x), without its cancellation.
        missed = x.sigmoid() * (1 - t) + (-x).sigmoid() * t
        loss = loss * missed**gamma
    if alpha is not None:
        loss = loss * (alpha * t + (1 - alpha) * (1 - t))
    return reduced("sigmoid_focal_loss", loss, reduction).cast(result)


@widens
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log(target) - input) of log-probabilities `input`; 0 where target is 0.

    "batchmean" is the sum divided by the first extent. With `log_target`, target is a logarithm.
    """
    (x, t), result = _floats("kl_div", input, target)
    loss = t.exp() * (t - x) if log_target else t.xlogy(t) - t * x
    if reduction == "batchmean":
        total = loss.sum()
        rows = total.graph.constant(loss.extents[0] if loss.ndim else 1)
        return (total / rows.cast(total.dtype)).cast(result)
    return reduced("kl_div", loss, reduction).cast(result)


@widens
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input, or input - target * log(input + eps); `full` adds Stirling's."""
    (x, t), result = _floats("poisson_nll_loss", input, target)
    loss = x.exp() - t * x if log_input else x - t * (x + eps).log()
    if full:
        stirling = t * t.log() - t + 0.5 * (2 * math.pi * t).log()
        loss = loss + where(t > 1, stirling, 0)
    return reduced("poisson_nll_loss", loss, reduction).cast(result)


@widens
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(v) + (input - target)**2 / v) / 2 with v = max(var, eps); `full` adds log(2 pi) / 2.

    `var` has input's shape, or lacks its last dim, or has 1 there.
    """
    if not isinstance(var, float | int) and var.ndim == input.ndim - 1:
        var = var.unsqueeze(-1)
    (x, t, v), result = unified("gaussian_nll_loss", (input, target, var), floating=True)
    v = v.maximum(eps)
    loss = 0.5 * (v.log() + (x - t).square() / v)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced("gaussian_nll_loss", loss, reduction).cast(result)


# --- margins --------------------------------------------------------------------------------------


@widens
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1."""
    (x, y), result = _floats("hinge_embedding_loss", input, target)
    near = where(y == -1, 0, x)
    far = where(y == 1, 0, (margin - x).maximum(0))
    return reduced("hinge_embedding_loss", near + far, reduction).cast(result)


@widens
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)), target 1 or -1."""
    (x, y), result = _floats("soft_margin_loss", input, target)
    return reduced("soft_margin_loss", (-y * x).softplus(threshold=80), reduction).cast(result)


@widens
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    (a, b, y), result = _floats("margin_ranking_loss", input1, input2, target)
    return reduced("margin_ranking_loss", (-y * (a - b) + margin).relu(), reduction).cast(result)


@widens
@numpy_names
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """sum(x1 * x2) / (max(norm(x1), eps) * max(norm(x2), eps)) along `dim`; both broadcast."""
    (a, b), result = _floats("cosine_similarity", x1, x2)
    axes = axes_of("cosine_similarity", dim, a.ndim)
    lengths = (vector_norm(x, 2, axes, True).maximum(eps) for x in (a, b))
    # Divided before the product: the product of two lengths may leave the range of floats.
    first, second = (x / n for x, n in zip((a, b), lengths, strict=True))
    return (first * second).sum(axes).cast(result)


@widens
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - c where target is 1, max(0, c - margin) where it is -1; c the last dims' cosine."""
    (a, b), result = _floats("cosine_embedding_loss", input1, input2)
    tiny = 1e-12  # PyTorch's: the cosine of a vector of zeros is 0
    squares = ((x * x).sum(-1) + tiny for x in (a, b))
    first, second = squares
    cosine = (a * b).sum(-1) / (first * second).sqrt()
    near, far = 1 - cosine, (cosine - margin).relu()
    loss = where(target == 1, near, where(target == -1, far, 0))
    return reduced("cosine_embedding_loss", loss, reduction).cast(result)


@widens
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """norm(x1 - x2 + eps, p) along the last dim; both broadcast."""
    (a, b), result = _floats("pairwise_distance", x1, x2)
    return vector_norm(a - b + eps, p, -1, keepdim).cast(result)


@widens
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) of p-distances.

    With `swap`, the negative's distance is the lesser of those to anchor and positive.
    """

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative,
        distance_function=distance, margin=margin, swap=swap, reduction=reduction,
    )  # fmt: skip


@widens
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any function of two tensors as the distance."""
    distance = distance_function or pairwise_distance
    (a, p, n), result = _floats("triplet_margin_loss", anchor, positive, negative)
    near, far = distance(a, p), distance(a, n)
    if swap:
        far = far.minimum(distance(p, n))
    return reduced("triplet_margin_loss", (near - far + margin).relu(), reduction).cast(result)


# --- many labels ----------------------------------------------------------------------------------


@widens
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum over classes c but the target t of max(0, margin - x[t] + x[c])**p / classes.

    input (batch, classes) with target (batch,), or (classes,) with (). weight: per target class.
    """
    (x,), result = _floats("multi_margin_loss", input)
    x = x.reshape(1) if x.ndim == 0 else x
    target = target.reshape(x.extents[:-1])
    target_score = x.gather(-1, target.unsqueeze(-1))
    loss = (margin - target_score + x).relu() ** p
    if weight is not None:
        loss = loss * weight.cast(x.dtype).take(target).unsqueeze(-1)
    others = target.unsqueeze(-1) != x.graph.iota(x.extents, -1)
    return reduced("multi_margin_loss", mean(where(others, loss, 0), -1), reduction).cast(result)


@widens
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over the last dim of binary_cross_entropy_with_logits."""
    (x, y), result = _floats("multilabel_soft_margin_loss", input, target)
    loss = binary_cross_entropy_with_logits(x, y, weight, "none")
    return reduced("multilabel_soft_margin_loss", mean(loss, -1), reduction).cast(result)


@widens
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """sum over target classes t and others c of max(0, 1 - (input[t] - input[c])) / classes.

    A row of `target` holds class indices up to the first -1; input and target (batch, classes).
    """
    (x,), result = _floats("multilabel_margin_loss", input)
    x = x.reshape(1) if x.ndim == 0 else x
    target = target.reshape(x.extents)
    # All before the first -1; what stands behind it is padding.
    listed = (target < 0).cast("int32").cumsum(-1) == 0
    hits = (target.unsqueeze(-1) == x.graph.iota(x.extents, -1).unsqueeze(-2)) & listed.unsqueeze(
        -1
    )
    other = ~hits.any(-2).unsqueeze(-2)
    target_scores = x.gather(-1, where(listed, target, 0)).unsqueeze(-1)
    margins = where(listed.unsqueeze(-1) & other, (1 - (target_scores - x.unsqueeze(-2))).relu(), 0)
    loss = margins.sum((-2, -1)) / x.graph.constant(x.extents[-1]).cast(x.dtype)
    return reduced("multilabel_margin_loss", loss, reduction).cast(result)
