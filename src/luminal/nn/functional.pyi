# Made from the table of names, luminal/frontend/names/table.py, by `make names`.

from luminal.frontend.losses import classification as _classification
from luminal.frontend.losses import loss as _loss
from luminal.frontend.matrices import attention as _attention
from luminal.frontend.matrices import norms as _norms
from luminal.frontend.matrices import products as _products
from luminal.frontend.movement import embedding as _embedding
from luminal.frontend.movement import padding as _padding
from luminal.frontend.names import other_signatures as _other_signatures
from luminal.frontend.pointwise import activation as _activation
from luminal.frontend.pointwise import exponential as _exponential
from luminal.frontend.pointwise import trigonometric as _trigonometric
from luminal.frontend.random import drawing as _drawing
from luminal.frontend.reduce import normalization as _normalization
from luminal.frontend.windows import convolution as _convolution
from luminal.frontend.windows import grid_sample as _grid_sample
from luminal.frontend.windows import interpolate as _interpolate
from luminal.frontend.windows import pooling as _pooling
from luminal.frontend.windows import unfold as _unfold

adaptive_avg_pool1d = _pooling.adaptive_avg_pool1d
adaptive_avg_pool2d = _pooling.adaptive_avg_pool2d
adaptive_avg_pool3d = _pooling.adaptive_avg_pool3d
adaptive_max_pool1d = _pooling.adaptive_max_pool1d
adaptive_max_pool2d = _pooling.adaptive_max_pool2d
adaptive_max_pool3d = _pooling.adaptive_max_pool3d
affine_grid = _grid_sample.affine_grid
alpha_dropout = _drawing.alpha_dropout
avg_pool1d = _pooling.avg_pool1d
avg_pool2d = _pooling.avg_pool2d
avg_pool3d = _pooling.avg_pool3d
batch_norm = _normalization.batch_norm
bilinear = _products.bilinear
binary_cross_entropy = _loss.binary_cross_entropy
binary_cross_entropy_with_logits = _loss.binary_cross_entropy_with_logits
celu = _activation.celu
channel_shuffle = _unfold.channel_shuffle
conv1d = _convolution.conv1d
conv2d = _convolution.conv2d
conv3d = _convolution.conv3d
conv_transpose1d = _convolution.conv_transpose1d
conv_transpose2d = _convolution.conv_transpose2d
conv_transpose3d = _convolution.conv_transpose3d
cosine_embedding_loss = _loss.cosine_embedding_loss
cosine_similarity = _loss.cosine_similarity
cross_entropy = _classification.cross_entropy
ctc_loss = _classification.ctc_loss
dropout = _drawing.dropout
dropout1d = _drawing.dropout1d
dropout2d = _drawing.dropout2d
dropout3d = _drawing.dropout3d
elu = _activation.elu
embedding = _embedding.embedding
embedding_bag = _embedding.embedding_bag
feature_alpha_dropout = _drawing.feature_alpha_dropout
focal_loss = _classification.focal_loss
fold = _unfold.fold
gaussian_nll_loss = _loss.gaussian_nll_loss
gelu = _activation.gelu
glu = _activation.glu
grid_sample = _grid_sample.grid_sample
group_norm = _normalization.group_norm
gumbel_softmax = _drawing.gumbel_softmax
hardshrink = _activation.hardshrink
hardsigmoid = _activation.hardsigmoid
hardswish = _activation.hardswish
hardtanh = _activation.hardtanh
hinge_embedding_loss = _loss.hinge_embedding_loss
huber_loss = _loss.huber_loss
instance_norm = _normalization.instance_norm
interpolate = _interpolate.interpolate
kl_div = _loss.kl_div
l1_loss = _loss.l1_loss
layer_norm = _other_signatures.layer_norm
leaky_relu = _activation.leaky_relu
linear = _products.linear
local_response_norm = _normalization.local_response_norm
log_softmax = _normalization.log_softmax
logsigmoid = _exponential.log_sigmoid
lp_pool1d = _pooling.lp_pool1d
lp_pool2d = _pooling.lp_pool2d
lp_pool3d = _pooling.lp_pool3d
margin_ranking_loss = _loss.margin_ranking_loss
max_pool1d = _pooling.max_pool1d
max_pool2d = _pooling.max_pool2d
max_pool3d = _pooling.max_pool3d
max_unpool1d = _unfold.max_unpool1d
max_unpool2d = _unfold.max_unpool2d
max_unpool3d = _unfold.max_unpool3d
mish = _activation.mish
mse_loss = _loss.mse_loss
multi_margin_loss = _loss.multi_margin_loss
multilabel_margin_loss = _loss.multilabel_margin_loss
multilabel_soft_margin_loss = _loss.multilabel_soft_margin_loss
nll_loss = _classification.nll_loss
normalize = _norms.normalize
one_hot = _embedding.one_hot
pad = _padding.pad
pairwise_distance = _loss.pairwise_distance
pdist = _products.pdist
pixel_shuffle = _unfold.pixel_shuffle
pixel_unshuffle = _unfold.pixel_unshuffle
poisson_nll_loss = _loss.poisson_nll_loss
prelu = _activation.prelu
relu = _activation.relu
relu6 = _activation.relu6
rms_norm = _other_signatures.rms_norm
rmse_loss = _loss.rmse_loss
rrelu = _drawing.rrelu
scaled_dot_product_attention = _attention.scaled_dot_product_attention
selu = _activation.selu
sigmoid = _exponential.sigmoid
sigmoid_focal_loss = _loss.sigmoid_focal_loss
silu = _activation.silu
smooth_l1_loss = _loss.smooth_l1_loss
soft_margin_loss = _loss.soft_margin_loss
softmax = _normalization.softmax
softmin = _normalization.softmin
softplus = _exponential.softplus
softshrink = _activation.softshrink
softsign = _activation.softsign
tanh = _trigonometric.tanh
tanhshrink = _trigonometric.tanhshrink
threshold = _activation.threshold
triplet_margin_loss = _loss.triplet_margin_loss
triplet_margin_with_distance_loss = _loss.triplet_margin_with_distance_loss
unfold = _unfold.unfold
upsample = _interpolate.upsample
upsample_bilinear = _interpolate.upsample_bilinear
upsample_nearest = _interpolate.upsample_nearest

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "focal_loss",
    "fold",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "rmse_loss",
    "rrelu",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "sigmoid_focal_loss",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
