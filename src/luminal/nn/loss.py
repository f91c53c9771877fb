"""Losses and distances as layers; `reduction` is "mean", "sum" or "none".

Options are by keyword from where PyTorch's signatures have `size_average` and `reduce`, which are
gone here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.frontend.handle import Array
from luminal.frontend.losses import classification, loss
from luminal.frontend.tensor import Tensor
from luminal.memory.data import array_of
from luminal.memory.state import State
from luminal.nn.module import Module

REDUCTIONS = ("mean", "sum", "none")
Weights: TypeAlias = Array | list[float] | None
"""A factor for each class or element: a State of the layer, in its state_dict, as in PyTorch."""


class _Loss(Module):
    """Calls one function of `frontend` on its inputs, with the options it was made with."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        reduction: str,
        weight: Weights = None,
        pos_weight: Weights = None,
        **options: Any,
    ) -> None:
        if reduction not in (*REDUCTIONS, "batchmean"):
            reductions = ", ".join(REDUCTIONS)
            raise InputError(
                f"{type(self).__name__}: reduction {reduction!r} is not among {reductions}"
            )
        self.function = partial(function, reduction=reduction, **options)
        self.weight = _held("weight", weight)
        self.pos_weight = _held("pos_weight", pos_weight)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """The loss of x (and further inputs) with the target, which comes last."""
        held = {"weight": self.weight, "pos_weight": self.pos_weight}
        weights = {name: x.graph.read(s) for name, s in held.items() if s is not None}
        return self.function(x, *others, **weights)


def _held(name: str, weight: Weights) -> State | None:
    if weight is None:
        return None
    # A State and no Parameter: it belongs to the state_dict, as PyTorch's buffers do, but no
    # optimizer may move it.
    array = array_of(weight, float32, name)
    return State(array.shape, float32, array, name)


# --- differences ----------------------------------------------------------------------------------


class MSELoss(_Loss):
    """(x - y) ** 2."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(loss.mse_loss, reduction)


class RMSELoss(_Loss):
    """The root of MSELoss."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(loss.rmse_loss, reduction)


class L1Loss(_Loss):
    """The absolute difference: |x - y|."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(loss.l1_loss, reduction)


class SmoothL1Loss(_Loss):
    """|x - y| - beta / 2 from a difference of beta on, a parabola within."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(loss.smooth_l1_loss, reduction, beta=beta)


class HuberLoss(_Loss):
    """delta * SmoothL1Loss with beta = delta. Huber 1964."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(loss.huber_loss, reduction, delta=delta)


# --- classes and probabilities --------------------------------------------------------------------


class CrossEntropyLoss(_Loss):
    """-log softmax(x) at the target: class numbers, or a probability for each class (dim 1)."""

    def __init__(
        self,
        weight: Weights = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            classification.cross_entropy,
            reduction,
            weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )


class NLLLoss(_Loss):
    """-x at the target, where x holds the logarithms of probabilities (classes: dim 1)."""

    def __init__(
        self, weight: Weights = None, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(classification.nll_loss, reduction, weight, ignore_index=ignore_index)


class FocalLoss(_Loss):
    """CrossEntropyLoss of class numbers, times (1 - p)**gamma at the target. Lin et al. 2017."""

    def __init__(
        self,
        weight: Weights = None,
        gamma: float = 2.0,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            classification.focal_loss, reduction, weight, gamma=gamma, ignore_index=ignore_index
        )


class SigmoidFocalLoss(_Loss):
    """BCEWithLogitsLoss times (1 - p)**gamma at the target; `alpha` weighs positive examples."""

    def __init__(
        self, alpha: float | None = 0.25, gamma: float = 2.0, *, reduction: str = "mean"
    ) -> None:
        super().__init__(loss.sigmoid_focal_loss, reduction, alpha=alpha, gamma=gamma)


class BCELoss(_Loss):
    """-(y log x + (1 - y) log(1 - x)), each logarithm at least -100."""

    def __init__(self, weight: Weights = None, *, reduction: str = "mean") -> None:
        super().__init__(loss.binary_cross_entropy, reduction, weight)


class BCEWithLogitsLoss(_Loss):
    """BCELoss of sigmoid(x), stable; `pos_weight` is a factor for positive examples."""

    def __init__(
        self, weight: Weights = None, *, reduction: str = "mean", pos_weight: Weights = None
    ) -> None:
        super().__init__(loss.binary_cross_entropy_with_logits, reduction, weight, pos_weight)


class CTCLoss(_Loss):
    """-log of the probability of a sequence whose places in time are unknown; see `ctc_loss`.

    Called with log_probs, targets, input_lengths, target_lengths. Graves et al. 2006.
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        ctc_loss = classification.ctc_loss
        super().__init__(ctc_loss, reduction, blank=blank, zero_infinity=zero_infinity)


class KLDivLoss(_Loss):
    """y * (log y - x), x the logarithms of probabilities; "batchmean" divides by the batch."""

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(loss.kl_div, reduction, log_target=log_target)


class PoissonNLLLoss(_Loss):
    """exp(x) - y * x, or without `log_input` x - y * log(x + eps)."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        *,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:
        super().__init__(loss.poisson_nll_loss, reduction, log_input=log_input, full=full, eps=eps)


class GaussianNLLLoss(_Loss):
    """(log var + (x - y) ** 2 / var) / 2; called with x, y, var."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(loss.gaussian_nll_loss, reduction, full=full, eps=eps)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-y * x)), y of -1 and 1."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(loss.soft_margin_loss, reduction)


class MultiMarginLoss(_Loss):
    """max(0, margin - x[target] + x[k]) ** p over the other classes k."""

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Weights = None,
        *,
        reduction: str = "mean",
    ) -> None:
        super().__init__(loss.multi_margin_loss, reduction, weight, p=p, margin=margin)


class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - (x[j] - x[k])) over the target's classes j and all others k."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(loss.multilabel_margin_loss, reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """BCEWithLogitsLoss, the mean over classes."""

    def __init__(self, weight: Weights = None, *, reduction: str = "mean") -> None:
        super().__init__(loss.multilabel_soft_margin_loss, reduction, weight)


# --- distances ------------------------------------------------------------------------------------


class HingeEmbeddingLoss(_Loss):
    """x where the target is 1, max(0, margin - x) where it is -1."""

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(loss.hinge_embedding_loss, reduction, margin=margin)


class MarginRankingLoss(_Loss):
    """max(0, -y * (x1 - x2) + margin)."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(loss.margin_ranking_loss, reduction, margin=margin)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos - margin) where it is -1."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(loss.cosine_embedding_loss, reduction, margin=margin)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin); called with these three."""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        *,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            loss.triplet_margin_loss, reduction, margin=margin, p=p, eps=eps, swap=swap
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss of a distance of one's own, by default PairwiseDistance."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            loss.triplet_margin_with_distance_loss,
            reduction,
            distance_function=distance_function,
            margin=margin,
            swap=swap,
        )


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along `dim`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The broadcast shape without `dim`."""
        return loss.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last dim."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.options = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The broadcast shape without the last dim."""
        return loss.pairwise_distance(x1, x2, *self.options)
