"""Layers of torch.nn and ours, made by one call, in groups that are computed as one graph."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from luminal import nn

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)


@dataclass(frozen=True, eq=False)
class Row:
    """`build(nn)` or `build(torch.nn)`; `call(layer, *tensors)`, where layer(*tensors) won't do."""

    name: str
    build: Callable[[Any], Any]
    inputs: tuple[Array, ...]
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs)


def x(*shape: int) -> Array:
    return rng.normal(0, 1, shape).astype(np.float32)


def ids(limit: int, *shape: int) -> Array:
    return rng.integers(0, limit, shape)


SIGNAL, IMAGE, VOLUME = x(2, 4, 11), x(2, 4, 9, 8), x(2, 4, 5, 6, 7)
SEQUENCE, SAMPLES = x(5, 3, 4), x(3, 5, 4)
SOURCE, TARGET = x(6, 2, 8), x(4, 2, 8)
ODD = {"stride": 2, "padding": 1, "dilation": 2}
LINEAR = [
    Row("Identity", lambda nn: nn.Identity(7), (SIGNAL,)),
    Row("Flatten", lambda nn: nn.Flatten(1, 2), (IMAGE,)),
    Row("Unflatten", lambda nn: nn.Unflatten(1, (2, 2)), (IMAGE,)),
    Row("Linear", lambda nn: nn.Linear(5, 3), (x(2, 7, 5),)),
    Row("Linear-no-bias", lambda nn: nn.Linear(5, 3, bias=False), (x(5),)),
    Row("Bilinear", lambda nn: nn.Bilinear(3, 4, 5), (x(2, 6, 3), x(2, 6, 4))),
    Row("Bilinear-no-bias", lambda nn: nn.Bilinear(3, 4, 1, bias=False), (x(6, 3), x(6, 4))),
    Row("Embedding", lambda nn: nn.Embedding(9, 4), (ids(9, 2, 3),)),
    Row("Embedding-padding", lambda nn: nn.Embedding(9, 4, padding_idx=-2), (ids(9, 5),)),
    Row("EmbeddingBag", lambda nn: nn.EmbeddingBag(9, 4), (ids(9, 5, 3),)),
    Row(
        "EmbeddingBag-offsets",
        lambda nn: nn.EmbeddingBag(9, 4, mode="sum", padding_idx=2),
        (ids(9, 7), np.array([0, 3, 3]), x(7)),
        lambda layer, ids, offsets, weights: layer(ids, offsets, per_sample_weights=weights),
    ),
    Row("EmbeddingBag-max", lambda nn: nn.EmbeddingBag(9, 4, mode="max"), (ids(9, 5, 3),)),
    Row(
        "Sequential",
        lambda nn: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Dropout(), nn.Linear(6, 2)),
        (x(3, 4),),
    ),
]
CONVOLUTIONS = [
    Row("Conv1d", lambda nn: nn.Conv1d(4, 6, 3), (SIGNAL,)),
    Row("Conv1d-options", lambda nn: nn.Conv1d(4, 6, 3, groups=2, **ODD), (SIGNAL,)),
    Row("Conv1d-same", lambda nn: nn.Conv1d(4, 6, 4, padding="same", bias=False), (SIGNAL,)),
    Row("Conv1d-no-batch", lambda nn: nn.Conv1d(4, 6, 3), (SIGNAL[0],)),
    Row(
        "Conv1d-circular",
        lambda nn: nn.Conv1d(4, 2, 3, padding=2, padding_mode="circular"),
        (SIGNAL,),
    ),
    Row("Conv2d", lambda nn: nn.Conv2d(4, 6, (3, 2)), (IMAGE,)),
    Row("Conv2d-options", lambda nn: nn.Conv2d(4, 6, 3, groups=2, **ODD), (IMAGE,)),
    Row("Conv2d-depthwise", lambda nn: nn.Conv2d(4, 8, 3, padding=(1, 0), groups=4), (IMAGE,)),
    Row(
        "Conv2d-reflect",
        lambda nn: nn.Conv2d(4, 2, 3, padding=(2, 1), padding_mode="reflect"),
        (IMAGE,),
    ),
    Row(
        "Conv2d-replicate",
        lambda nn: nn.Conv2d(4, 2, (3, 4), padding="same", padding_mode="replicate"),
        (IMAGE,),
    ),
    Row("Conv3d", lambda nn: nn.Conv3d(4, 2, (2, 3, 2), stride=(1, 2, 1)), (VOLUME,)),
    Row("Conv3d-options", lambda nn: nn.Conv3d(4, 4, 2, padding=1, groups=2), (VOLUME,)),
    Row("ConvTranspose1d", lambda nn: nn.ConvTranspose1d(4, 6, 3), (SIGNAL,)),
    Row(
        "ConvTranspose1d-options",
        lambda nn: nn.ConvTranspose1d(4, 6, 3, output_padding=1, groups=2, **ODD),
        (SIGNAL,),
    ),
    Row("ConvTranspose2d", lambda nn: nn.ConvTranspose2d(4, 3, (3, 2), stride=2), (IMAGE,)),
    Row(
        "ConvTranspose2d-output-size",
        lambda nn: nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1),
        (IMAGE,),
        lambda layer, x: layer(x, output_size=(18, 15)),
    ),
    Row(
        "ConvTranspose3d",
        lambda nn: nn.ConvTranspose3d(4, 2, 2, stride=(1, 2, 1), bias=False),
        (VOLUME,),
    ),
]
POOLING = [
    Row("MaxPool1d", lambda nn: nn.MaxPool1d(3, 2, 1), (SIGNAL,)),
    Row("MaxPool1d-ceil", lambda nn: nn.MaxPool1d(3, 2, ceil_mode=True), (SIGNAL,)),
    Row("MaxPool2d", lambda nn: nn.MaxPool2d(3, 2, 1, dilation=2), (IMAGE,)),
    Row("MaxPool2d-indices", lambda nn: nn.MaxPool2d(2, return_indices=True), (IMAGE,)),
    Row(
        "MaxUnpool1d",
        lambda nn: nn.MaxUnpool1d(2, 2),
        (x(1, 2, 3), np.array([[[0, 3, 5], [1, 2, 4]]])),
    ),
    Row(
        "MaxUnpool2d",
        lambda nn: nn.MaxUnpool2d(2),
        (x(1, 1, 2, 2), np.array([[[[0, 3], [12, 11]]]])),
        lambda layer, x, indices: layer(x, indices, output_size=(5, 4)),
    ),
    Row("MaxPool3d", lambda nn: nn.MaxPool3d(2), (VOLUME,)),
    Row("AvgPool1d", lambda nn: nn.AvgPool1d(3, 2, 1), (SIGNAL,)),
    Row(
        "AvgPool2d",
        lambda nn: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        (IMAGE,),
    ),
    Row("AvgPool2d-divisor", lambda nn: nn.AvgPool2d(2, divisor_override=3), (IMAGE,)),
    Row("AvgPool3d", lambda nn: nn.AvgPool3d((2, 3, 2), 2), (VOLUME,)),
    Row("LPPool1d", lambda nn: nn.LPPool1d(2, 3, 2), (abs(SIGNAL),)),
    Row("LPPool2d", lambda nn: nn.LPPool2d(3, 2), (abs(IMAGE),)),
    Row("LPPool3d", lambda nn: nn.LPPool3d(2, 2), (abs(VOLUME),)),
    Row("AdaptiveAvgPool1d", lambda nn: nn.AdaptiveAvgPool1d(4), (SIGNAL,)),
    Row("AdaptiveAvgPool2d", lambda nn: nn.AdaptiveAvgPool2d((3, None)), (IMAGE,)),
    Row("AdaptiveAvgPool3d", lambda nn: nn.AdaptiveAvgPool3d(1), (VOLUME,)),
    Row("AdaptiveMaxPool1d", lambda nn: nn.AdaptiveMaxPool1d(4), (SIGNAL,)),
    Row(
        "AdaptiveMaxPool2d", lambda nn: nn.AdaptiveMaxPool2d((5, 3), return_indices=True), (IMAGE,)
    ),
    Row("AdaptiveMaxPool3d", lambda nn: nn.AdaptiveMaxPool3d((2, 3, 4)), (VOLUME,)),
]
NORMS = [
    Row("BatchNorm1d", lambda nn: nn.BatchNorm1d(4), (x(3, 4),)),
    Row("BatchNorm1d-length", lambda nn: nn.BatchNorm1d(4, eps=1e-3), (SIGNAL,)),
    Row("BatchNorm2d", lambda nn: nn.BatchNorm2d(4), (IMAGE,)),
    Row("BatchNorm2d-plain", lambda nn: nn.BatchNorm2d(4, affine=False), (IMAGE,)),
    Row("BatchNorm2d-untracked", lambda nn: nn.BatchNorm2d(4, track_running_stats=False), (IMAGE,)),
    Row("BatchNorm3d", lambda nn: nn.BatchNorm3d(4), (VOLUME,)),
    Row("LayerNorm", lambda nn: nn.LayerNorm(8), (IMAGE,)),
    Row("LayerNorm-2d", lambda nn: nn.LayerNorm((9, 8), bias=False), (IMAGE,)),
    Row("LayerNorm-plain", lambda nn: nn.LayerNorm(8, elementwise_affine=False), (IMAGE,)),
    Row("RMSNorm", lambda nn: nn.RMSNorm(8), (IMAGE,)),
    Row("RMSNorm-2d", lambda nn: nn.RMSNorm((9, 8), eps=1e-3), (IMAGE,)),
    Row("GroupNorm", lambda nn: nn.GroupNorm(2, 4), (IMAGE,)),
    Row("GroupNorm-plain", lambda nn: nn.GroupNorm(4, 4, affine=False), (SIGNAL,)),
    Row("InstanceNorm1d", lambda nn: nn.InstanceNorm1d(4, affine=True), (SIGNAL,)),
    Row("InstanceNorm2d", lambda nn: nn.InstanceNorm2d(4, track_running_stats=True), (IMAGE,)),
    Row("InstanceNorm3d-no-batch", lambda nn: nn.InstanceNorm3d(4), (VOLUME[0],)),
    Row("LocalResponseNorm", lambda nn: nn.LocalResponseNorm(3, 0.1, k=2.0), (IMAGE,)),
]
RECURRENT = [
    Row("RNN", lambda nn: nn.RNN(4, 6), (SEQUENCE,)),
    Row("RNN-relu", lambda nn: nn.RNN(4, 6, 2, nonlinearity="relu", bias=False), (SEQUENCE,)),
    Row("LSTM", lambda nn: nn.LSTM(4, 6), (SEQUENCE,)),
    Row(
        "LSTM-deep",
        lambda nn: nn.LSTM(4, 5, num_layers=2, bidirectional=True, dropout=0.5),
        (SEQUENCE,),
    ),
    Row(
        "LSTM-start",
        lambda nn: nn.LSTM(4, 6, batch_first=True),
        (SAMPLES, x(1, 3, 6), x(1, 3, 6)),
        lambda layer, x, h, c: layer(x, (h, c)),
    ),
    Row("LSTM-projected", lambda nn: nn.LSTM(4, 6, num_layers=2, proj_size=3), (SEQUENCE,)),
    Row("GRU", lambda nn: nn.GRU(4, 6), (SEQUENCE, x(1, 3, 6))),
    Row(
        "GRU-deep",
        lambda nn: nn.GRU(4, 5, num_layers=2, bidirectional=True, batch_first=True),
        (SAMPLES,),
    ),
    Row("GRU-no-batch", lambda nn: nn.GRU(4, 5, bias=False), (SEQUENCE[:, 0],)),
    Row("RNNCell", lambda nn: nn.RNNCell(4, 6, nonlinearity="relu"), (x(3, 4), x(3, 6))),
    Row("LSTMCell", lambda nn: nn.LSTMCell(4, 6), (x(3, 4),)),
    Row("GRUCell", lambda nn: nn.GRUCell(4, 6, bias=False), (x(3, 4), x(3, 6))),
]
PADDED = np.array([[False, False, False, True, False, True], [False] * 6])
BLOCKED = np.triu(np.ones((4, 6), bool), 3)
ATTENTION = [
    Row("MultiheadAttention", lambda nn: nn.MultiheadAttention(8, 2), (TARGET, SOURCE, SOURCE)),
    Row(
        "MultiheadAttention-widths",
        lambda nn: nn.MultiheadAttention(8, 4, kdim=5, vdim=3, bias=False, batch_first=True),
        (x(2, 4, 8), x(2, 6, 5), x(2, 6, 3)),
        lambda layer, q, k, v: layer(q, k, v, average_attn_weights=False),
    ),
    Row(
        "MultiheadAttention-masks",
        lambda nn: nn.MultiheadAttention(8, 2),
        (TARGET, SOURCE, PADDED, BLOCKED),
        lambda layer, q, k, padded, blocked: layer(
            q, k, k, key_padding_mask=padded, attn_mask=blocked
        ),
    ),
    Row(
        "MultiheadAttention-mask-per-head",
        lambda nn: nn.MultiheadAttention(8, 2),
        (TARGET, SOURCE, x(4, 4, 6)),
        lambda layer, q, k, mask: layer(q, k, k, attn_mask=mask, need_weights=False)[0],
    ),
    Row(
        "MultiheadAttention-extra-keys",
        lambda nn: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
        (TARGET, SOURCE, PADDED),
        lambda layer, q, k, padded: layer(q, k, k, key_padding_mask=padded),
    ),
    Row(
        "MultiheadAttention-no-batch",
        lambda nn: nn.MultiheadAttention(8, 2),
        (TARGET[:, 0], SOURCE[:, 0], SOURCE[:, 1]),
    ),
    Row("TransformerEncoderLayer", lambda nn: nn.TransformerEncoderLayer(8, 2, 16), (SOURCE,)),
    Row(
        "TransformerEncoderLayer-norm-first",
        lambda nn: nn.TransformerEncoderLayer(
            8, 2, 16, activation="gelu", norm_first=True, batch_first=True, bias=False
        ),
        (SOURCE,),
    ),
    Row(
        "TransformerDecoderLayer", lambda nn: nn.TransformerDecoderLayer(8, 2, 16), (TARGET, SOURCE)
    ),
    Row(
        "TransformerEncoder",
        lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, nn.LayerNorm(8)),
        (SOURCE, np.triu(np.ones((6, 6), bool), 1)),
        lambda layer, x, mask: layer(x, mask),
    ),
    Row(
        "TransformerDecoder",
        lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, norm_first=True), 2),
        (TARGET, SOURCE, BLOCKED),
        lambda layer, x, memory, mask: layer(x, memory, memory_mask=mask),
    ),
    Row("Transformer", lambda nn: nn.Transformer(8, 2, 1, 1, 16), (SOURCE, TARGET)),
]
OPTIONS: dict[str, tuple[Any, ...]] = {
    "ReLU": (), "ReLU6": (), "SELU": (), "SiLU": (), "Mish": (), "Tanh": (), "Sigmoid": (),
    "LogSigmoid": (), "Softsign": (), "Tanhshrink": (), "Hardsigmoid": (), "Hardswish": (),
    "LeakyReLU": (0.2,), "ELU": (0.7,), "CELU": (1.3,), "GELU": ("tanh",), "Softplus": (2.0, 3.0),
    "Hardtanh": (-0.5, 0.7), "Softshrink": (0.3,), "Hardshrink": (0.3,), "Threshold": (0.1, 20.0),
    "Softmax": (1,), "LogSoftmax": (1,), "Softmin": (1,), "Softmax2d": (), "GLU": (1,),
    "PReLU": (4,), "RReLU": (), "Dropout": (0.3,), "Dropout2d": (), "AlphaDropout": (),
}  # fmt: skip
ACTIVATIONS = [
    Row(name, lambda nn, name=name, options=options: getattr(nn, name)(*options), (2 * IMAGE,))
    for name, options in OPTIONS.items()
]
MOVES = [
    Row("Upsample", lambda nn: nn.Upsample(scale_factor=2), (SIGNAL,)),
    Row("Upsample-bilinear", lambda nn: nn.Upsample((5, 12), mode="bilinear"), (IMAGE,)),
    Row("Upsample-bicubic", lambda nn: nn.Upsample(scale_factor=1.5, mode="bicubic"), (IMAGE,)),
    Row("UpsamplingBilinear2d", lambda nn: nn.UpsamplingBilinear2d(scale_factor=2), (IMAGE,)),
    Row("PixelShuffle", lambda nn: nn.PixelShuffle(2), (IMAGE,)),
    Row("PixelUnshuffle", lambda nn: nn.PixelUnshuffle(2), (x(2, 3, 4, 6),)),
    Row("ChannelShuffle", lambda nn: nn.ChannelShuffle(2), (IMAGE,)),
    Row("Unfold", lambda nn: nn.Unfold((2, 3), 2, 1, (1, 2)), (IMAGE,)),
    Row("Fold", lambda nn: nn.Fold((4, 5), (2, 3), stride=(2, 1)), (x(2, 12, 6),)),
    Row("ConstantPad1d", lambda nn: nn.ConstantPad1d((1, 2), 3.5), (SIGNAL,)),
    Row("ZeroPad2d", lambda nn: nn.ZeroPad2d((1, -1, 2, 0)), (IMAGE,)),
    Row("ReflectionPad2d", lambda nn: nn.ReflectionPad2d((1, 2, 3, 0)), (IMAGE,)),
    Row("ReplicationPad3d", lambda nn: nn.ReplicationPad3d(2), (VOLUME,)),
    Row("CircularPad1d", lambda nn: nn.CircularPad1d(3), (SIGNAL,)),
]
CLASSES = x(5, 4)
SIGNS = np.array([1, -1, 1, 1, -1], np.float32)
SHARES = np.asarray(abs(x(5, 4)) / 8, np.float32)
PAIR, PAIR_SIGNS = (CLASSES, x(5, 4)), np.sign(x(5, 4))
LOSSES = [
    Row("MSELoss", lambda nn: nn.MSELoss(), PAIR),
    Row("L1Loss", lambda nn: nn.L1Loss(reduction="sum"), PAIR),
    Row("SmoothL1Loss", lambda nn: nn.SmoothL1Loss(reduction="none", beta=0.5), PAIR),
    Row("HuberLoss", lambda nn: nn.HuberLoss(delta=0.5), PAIR),
    Row("CrossEntropyLoss", lambda nn: nn.CrossEntropyLoss(), (CLASSES, ids(4, 5))),
    Row(
        "CrossEntropyLoss-smooth",
        lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2, reduction="none"),
        (x(5, 4, 3), ids(4, 5, 3)),
    ),
    Row("CrossEntropyLoss-shares", lambda nn: nn.CrossEntropyLoss(), (CLASSES, SHARES)),
    Row("NLLLoss", lambda nn: nn.NLLLoss(reduction="sum"), (CLASSES, ids(4, 5))),
    Row("BCELoss", lambda nn: nn.BCELoss(), (SHARES, SHARES[::-1].copy())),
    Row("BCEWithLogitsLoss", lambda nn: nn.BCEWithLogitsLoss(), (CLASSES, SHARES)),
    Row("KLDivLoss", lambda nn: nn.KLDivLoss(reduction="batchmean"), (CLASSES, SHARES)),
    Row("PoissonNLLLoss", lambda nn: nn.PoissonNLLLoss(full=True), (CLASSES, abs(4 * CLASSES))),
    Row("GaussianNLLLoss", lambda nn: nn.GaussianNLLLoss(), (*PAIR, SHARES)),
    Row("SoftMarginLoss", lambda nn: nn.SoftMarginLoss(), (CLASSES, PAIR_SIGNS)),
    Row("MultiMarginLoss", lambda nn: nn.MultiMarginLoss(margin=0.5), (CLASSES, ids(4, 5))),
    Row("MultiLabelSoftMarginLoss", lambda nn: nn.MultiLabelSoftMarginLoss(), (CLASSES, SHARES)),
    Row("HingeEmbeddingLoss", lambda nn: nn.HingeEmbeddingLoss(), (CLASSES, PAIR_SIGNS)),
    Row("MarginRankingLoss", lambda nn: nn.MarginRankingLoss(0.2), (x(5), x(5), SIGNS)),
    Row("CosineEmbeddingLoss", lambda nn: nn.CosineEmbeddingLoss(0.2), (*PAIR, SIGNS)),
    Row("TripletMarginLoss", lambda nn: nn.TripletMarginLoss(swap=True), (*PAIR, x(5, 4))),
    Row(
        "TripletMarginWithDistanceLoss",
        lambda nn: nn.TripletMarginWithDistanceLoss(margin=0.5),
        (*PAIR, x(5, 4)),
    ),
    Row(
        "MultiLabelMarginLoss",
        lambda nn: nn.MultiLabelMarginLoss(),
        (CLASSES[:2], np.array([[3, 0, -1, 1], [2, -1, 0, 0]])),
    ),
    Row("CosineSimilarity", lambda nn: nn.CosineSimilarity(), PAIR),
    Row("PairwiseDistance", lambda nn: nn.PairwiseDistance(3.0, keepdim=True), PAIR),
]
GROUPS = {
    "linear": LINEAR,
    "convolutions": CONVOLUTIONS,
    "pooling": POOLING,
    "norms": NORMS,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "activations": ACTIVATIONS,
    "moves": MOVES,
    "losses": LOSSES,
}


@cache
def torch_layer(row: Row) -> Any:
    """PyTorch's layer in eval mode, every value of its state_dict drawn anew."""
    layer, draws = row.build(torch.nn), np.random.default_rng(zlib.crc32(row.name.encode()))
    for name, value in layer.state_dict().items():
        if value.dtype == torch.float32:
            draw = (0.5, 1.5) if name.endswith("running_var") else (-0.8, 0.8)
            value[...] = torch.from_numpy(draws.uniform(*draw, tuple(value.shape)))
    return layer.eval()


def our_layer(row: Row) -> Any:
    """Ours, with the same state_dict."""
    layer = row.build(nn).eval()
    layer.load_state_dict({n: value.numpy() for n, value in torch_layer(row).state_dict().items()})
    return layer
