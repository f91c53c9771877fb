"""Functions with the signatures of torch.nn.functional: activations, normalisations, losses.

What torch.nn.functional takes in another way than Tensor's methods is written here, all else is the
methods' own functions under its names.
"""

from __future__ import annotations

from luminal.frontend.foreign import in_place
from luminal.frontend.handle import of_tensors as _of_tensors
from luminal.frontend.losses.classification import cross_entropy, ctc_loss, focal_loss, nll_loss
from luminal.frontend.losses.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    pairwise_distance,
    poisson_nll_loss,
    rmse_loss,
    sigmoid_focal_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.frontend.matrices.products import bilinear, linear, pdist
from luminal.frontend.movement.embedding import embedding, embedding_bag, one_hot
from luminal.frontend.movement.padding import pad
from luminal.frontend.names.shaped_norms import layer_norm, rms_norm
from luminal.frontend.pointwise import activation
from luminal.frontend.pointwise.activation import (
    gelu,
    glu,
    hardshrink,
    prelu,
    softshrink,
    softsign,
)
from luminal.frontend.pointwise.exponential import log_sigmoid as logsigmoid
from luminal.frontend.pointwise.exponential import sigmoid, softplus
from luminal.frontend.pointwise.trigonometric import tanh, tanhshrink
from luminal.frontend.random import drawing
from luminal.frontend.random.drawing import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    gumbel_softmax,
)
from luminal.frontend.reduce.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    local_response_norm,
    log_softmax,
    softmax,
    softmin,
)
from luminal.frontend.reduce.norms import normalize
from luminal.frontend.tensor import Tensor
from luminal.frontend.windows.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from luminal.frontend.windows.grid import affine_grid, grid_sample
from luminal.frontend.windows.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from luminal.frontend.windows.resample import Mode, Scale, Size, interpolate
from luminal.frontend.windows.windows import (
    channel_shuffle,
    fold,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
)

__all__ = [
    # activations
    "celu",
    "elu",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    # normalisations
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "normalize",
    "rms_norm",
    # products, convolutions
    "bilinear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "linear",
    "scaled_dot_product_attention",
    # pooling
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    # windows and resampling
    "affine_grid",
    "channel_shuffle",
    "fold",
    "grid_sample",
    "interpolate",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
    "pixel_shuffle",
    "pixel_unshuffle",
    "unfold",
    "pad",
    # tables, dropout
    "alpha_dropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
    "embedding",
    "embedding_bag",
    "one_hot",
    # losses and distances
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "focal_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "pairwise_distance",
    "pdist",
    "poisson_nll_loss",
    "rmse_loss",
    "sigmoid_focal_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]

celu = in_place(activation.celu)
elu = in_place(activation.elu)
hardsigmoid = in_place(activation.hardsigmoid)
hardswish = in_place(activation.hardswish)
hardtanh = in_place(activation.hardtanh)
leaky_relu = in_place(activation.leaky_relu)
mish = in_place(activation.mish)
relu = in_place(activation.relu)
relu6 = in_place(activation.relu6)
rrelu = in_place(drawing.rrelu)
selu = in_place(activation.selu)
silu = in_place(activation.silu)
threshold = in_place(activation.threshold)


def upsample(
    x: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name."""
    return interpolate(x, size, scale_factor, mode, align_corners)


def upsample_nearest(
    x: Tensor, size: Size | None = None, scale_factor: Scale | None = None
) -> Tensor:
    """`interpolate` by the nearest element."""
    return interpolate(x, size, scale_factor, "nearest")


def upsample_bilinear(
    x: Tensor, size: Size | None = None, scale_factor: Scale | None = None
) -> Tensor:
    """`interpolate` of two dims by straight lines, corners aligned."""
    return interpolate(x, size, scale_factor, "bilinear", True)


for _name in __all__:
    globals()[_name] = _of_tensors(globals()[_name])
