"""`Module.from_torch`: the forward equals PyTorch's, for every layer with a twin in luminal.nn."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn as theirs

import luminal as lm
from luminal import nn
from tests.close import close

Case = Callable[[], tuple[Any, ...]]
randn = torch.randn


def picture() -> torch.Tensor:
    return randn(2, 4, 10, 10)


def row() -> torch.Tensor:
    return randn(2, 4, 12)


def encoder_layer(**options: Any) -> theirs.Module:
    return theirs.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


LAYERS: dict[str, Case] = {
    "Linear": lambda: (theirs.Linear(4, 3), randn(2, 4)),
    "Linear without bias": lambda: (theirs.Linear(4, 3, bias=False), randn(2, 4)),
    "Bilinear": lambda: (theirs.Bilinear(3, 4, 2), randn(5, 3), randn(5, 4)),
    "Conv1d dilated": lambda: (theirs.Conv1d(4, 2, 3, dilation=2), row()),
    "Conv2d in groups": lambda: (
        theirs.Conv2d(4, 6, (3, 1), 2, (1, 0), groups=2, bias=False),
        picture(),
    ),
    "Conv2d reflected": lambda: (
        theirs.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
        picture(),
    ),
    "Conv2d same": lambda: (
        theirs.Conv2d(4, 6, 3, padding="same", padding_mode="circular"),
        picture(),
    ),
    "Dropout1d": lambda: (theirs.Dropout1d(0.2), row()),
    "Conv3d": lambda: (theirs.Conv3d(2, 3, 2), randn(1, 2, 4, 4, 4)),
    "ConvTranspose1d": lambda: (theirs.ConvTranspose1d(4, 2, 3, 2), row()),
    "ConvTranspose2d": lambda: (theirs.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, dilation=2), picture()),
    "ConvTranspose3d": lambda: (theirs.ConvTranspose3d(2, 3, 2), randn(1, 2, 3, 3, 3)),
    "BatchNorm1d untracked": lambda: (
        theirs.BatchNorm1d(4, affine=False, track_running_stats=False),
        randn(5, 4),
    ),
    "BatchNorm2d": lambda: (theirs.BatchNorm2d(4, eps=1e-2), picture()),
    "BatchNorm2d without bias": lambda: (theirs.BatchNorm2d(4, bias=False), picture()),
    "BatchNorm3d": lambda: (theirs.BatchNorm3d(2), randn(2, 2, 3, 3, 3)),
    "InstanceNorm1d": lambda: (theirs.InstanceNorm1d(4), row()),
    "InstanceNorm2d": lambda: (
        theirs.InstanceNorm2d(4, affine=True, track_running_stats=True),
        picture(),
    ),
    "InstanceNorm3d": lambda: (theirs.InstanceNorm3d(2), randn(2, 2, 3, 3, 3)),
    "GroupNorm": lambda: (theirs.GroupNorm(2, 4), picture()),
    "LayerNorm": lambda: (theirs.LayerNorm((10, 10), bias=False), picture()),
    "LayerNorm plain": lambda: (theirs.LayerNorm(10, elementwise_affine=False), picture()),
    "RMSNorm": lambda: (theirs.RMSNorm(10, eps=1e-3), picture()),
    "LocalResponseNorm": lambda: (theirs.LocalResponseNorm(2, 0.1), picture()),
    "Embedding": lambda: (theirs.Embedding(5, 3, padding_idx=-1), torch.tensor([0, 1, 4])),
    "EmbeddingBag": lambda: (theirs.EmbeddingBag(5, 3, mode="sum"), torch.tensor([[0, 1], [3, 4]])),
    "MaxPool1d": lambda: (theirs.MaxPool1d(3, ceil_mode=True), row()),
    "MaxPool2d": lambda: (theirs.MaxPool2d(3, 2, 1, return_indices=True), picture()),
    "MaxPool3d": lambda: (theirs.MaxPool3d(2), randn(1, 2, 4, 4, 4)),
    "AvgPool1d": lambda: (theirs.AvgPool1d(3), row()),
    "AvgPool2d": lambda: (theirs.AvgPool2d(3, 2, 1, count_include_pad=False), picture()),
    "AvgPool3d": lambda: (theirs.AvgPool3d(2, divisor_override=3), randn(1, 2, 4, 4, 4)),
    "LPPool1d": lambda: (theirs.LPPool1d(3, 2), row().abs()),
    "LPPool2d": lambda: (theirs.LPPool2d(2, 3), picture()),
    "LPPool3d": lambda: (theirs.LPPool3d(2, 2), randn(1, 2, 4, 4, 4)),
    "AdaptiveAvgPool1d": lambda: (theirs.AdaptiveAvgPool1d(5), row()),
    "AdaptiveAvgPool2d": lambda: (theirs.AdaptiveAvgPool2d((3, None)), picture()),
    "AdaptiveAvgPool3d": lambda: (theirs.AdaptiveAvgPool3d(2), randn(1, 2, 4, 4, 4)),
    "AdaptiveMaxPool1d": lambda: (theirs.AdaptiveMaxPool1d(5), row()),
    "AdaptiveMaxPool2d": lambda: (theirs.AdaptiveMaxPool2d(3, return_indices=True), picture()),
    "AdaptiveMaxPool3d": lambda: (theirs.AdaptiveMaxPool3d(2), randn(1, 2, 4, 4, 4)),
    "MaxUnpool1d": lambda: (theirs.MaxUnpool1d(2), randn(1, 1, 2), torch.tensor([[[1, 2]]])),
    "MaxUnpool2d": lambda: (theirs.MaxUnpool2d(2), randn(1, 1, 1, 2), torch.tensor([[[[1, 2]]]])),
    "MaxUnpool3d": lambda: (
        theirs.MaxUnpool3d(2),
        randn(1, 1, 1, 1, 2),
        torch.tensor([[[[[1, 2]]]]]),
    ),
    "Upsample": lambda: (theirs.Upsample(None, 2, "bilinear", align_corners=True), picture()),
    "Upsample to a size": lambda: (theirs.Upsample(size=(5, 7)), picture()),
    "UpsamplingNearest2d": lambda: (theirs.UpsamplingNearest2d(scale_factor=2), picture()),
    "UpsamplingBilinear2d": lambda: (theirs.UpsamplingBilinear2d((4, 5)), picture()),
    "PixelShuffle": lambda: (theirs.PixelShuffle(2), picture()),
    "PixelUnshuffle": lambda: (theirs.PixelUnshuffle(2), picture()),
    "ChannelShuffle": lambda: (theirs.ChannelShuffle(2), picture()),
    "Fold": lambda: (theirs.Fold((4, 4), 2), randn(1, 4, 9)),
    "Unfold": lambda: (theirs.Unfold(3, padding=1, stride=2), picture()),
    "Flatten": lambda: (theirs.Flatten(2), picture()),
    "Unflatten": lambda: (theirs.Unflatten(1, (2, 2)), picture()),
    "CosineSimilarity": lambda: (theirs.CosineSimilarity(dim=0), randn(4), randn(4)),
    "PairwiseDistance": lambda: (
        theirs.PairwiseDistance(1.5, keepdim=True),
        randn(3, 4),
        randn(3, 4),
    ),
    "RNN": lambda: (theirs.RNN(4, 5, nonlinearity="relu"), randn(6, 2, 4)),
    "GRU": lambda: (theirs.GRU(4, 5, bias=False, dropout=0.1, num_layers=2), randn(6, 2, 4)),
    "LSTM": lambda: (
        theirs.LSTM(4, 5, 2, bidirectional=True, batch_first=True, proj_size=3),
        randn(2, 6, 4),
    ),
    "RNNCell": lambda: (theirs.RNNCell(4, 5, False, "relu"), randn(2, 4)),
    "GRUCell": lambda: (theirs.GRUCell(4, 5), randn(2, 4)),
    "LSTMCell": lambda: (theirs.LSTMCell(4, 5), randn(2, 4)),
    "MultiheadAttention": lambda: (
        theirs.MultiheadAttention(8, 2, kdim=5, vdim=6, batch_first=True, add_bias_kv=True),
        randn(2, 3, 8),
        randn(2, 4, 5),
        randn(2, 4, 6),
    ),
    "MultiheadAttention without bias": lambda: (
        theirs.MultiheadAttention(8, 2, bias=False, add_zero_attn=True),
        *(randn(3, 2, 8),) * 3,
    ),
    "TransformerEncoderLayer": lambda: (
        encoder_layer(activation="gelu", norm_first=True),
        randn(2, 5, 8),
    ),
    "TransformerEncoderLayer with a module": lambda: (
        encoder_layer(activation=theirs.SiLU(), bias=False, layer_norm_eps=1e-2),
        randn(2, 5, 8),
    ),
    "TransformerEncoder": lambda: (
        theirs.TransformerEncoder(encoder_layer(), 2, norm=theirs.LayerNorm(8)),
        randn(2, 5, 8),
    ),
    "TransformerDecoderLayer": lambda: (
        theirs.TransformerDecoderLayer(8, 2, 16),
        randn(5, 2, 8),
        randn(4, 2, 8),
    ),
    "TransformerDecoder": lambda: (
        theirs.TransformerDecoder(theirs.TransformerDecoderLayer(8, 2, 16), 2),
        randn(5, 2, 8),
        randn(4, 2, 8),
    ),
    "Transformer": lambda: (
        theirs.Transformer(8, 2, 1, 2, 16, batch_first=True),
        randn(2, 5, 8),
        randn(2, 4, 8),
    ),
    "CTCLoss": lambda: (
        theirs.CTCLoss(blank=1, reduction="sum"),
        randn(5, 2, 4).log_softmax(-1),
        torch.tensor([[0, 2], [3, 3]]),
        torch.tensor([5, 5]),
        torch.tensor([2, 1]),
    ),
    "CrossEntropyLoss": lambda: (
        theirs.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1),
        randn(4, 3),
        torch.tensor([0, 1, 2, 2]),
    ),
    "NLLLoss": lambda: (theirs.NLLLoss(ignore_index=0), randn(3, 4), torch.tensor([0, 1, 3])),
    "BCELoss": lambda: (theirs.BCELoss(reduction="none"), torch.rand(4), torch.rand(4)),
    "BCEWithLogitsLoss": lambda: (
        theirs.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 3.0])),
        randn(4, 2),
        torch.rand(4, 2),
    ),
    "GaussianNLLLoss": lambda: (
        theirs.GaussianNLLLoss(full=True),
        randn(4),
        randn(4),
        torch.rand(4),
    ),
    "PoissonNLLLoss": lambda: (
        theirs.PoissonNLLLoss(log_input=False, full=True),
        torch.rand(4),
        torch.rand(4) * 5,
    ),
    "HuberLoss": lambda: (theirs.HuberLoss(delta=0.3, reduction="sum"), randn(4), randn(4)),
    "SmoothL1Loss": lambda: (theirs.SmoothL1Loss(beta=0.3), randn(4), randn(4)),
    "KLDivLoss": lambda: (
        theirs.KLDivLoss(reduction="batchmean", log_target=True),
        randn(2, 3),
        randn(2, 3),
    ),
    "CosineEmbeddingLoss": lambda: (
        theirs.CosineEmbeddingLoss(0.2),
        randn(3, 4),
        randn(3, 4),
        torch.tensor([1, -1, 1]),
    ),
    "HingeEmbeddingLoss": lambda: (
        theirs.HingeEmbeddingLoss(0.5),
        randn(3),
        torch.tensor([1.0, -1.0, 1.0]),
    ),
    "MarginRankingLoss": lambda: (
        theirs.MarginRankingLoss(0.5),
        randn(3),
        randn(3),
        torch.tensor([1, -1, 1]),
    ),
    "MultiMarginLoss": lambda: (
        theirs.MultiMarginLoss(2, 0.5),
        randn(3, 4),
        torch.tensor([1, 0, 3]),
    ),
    "MultiLabelMarginLoss": lambda: (
        theirs.MultiLabelMarginLoss(),
        randn(1, 4),
        torch.tensor([[3, 0, -1, 1]]),
    ),
    "MultiLabelSoftMarginLoss": lambda: (
        theirs.MultiLabelSoftMarginLoss(torch.tensor([1.0, 2.0])),
        randn(3, 2),
        torch.ones(3, 2),
    ),
    "TripletMarginLoss": lambda: (
        theirs.TripletMarginLoss(0.5, swap=True),
        *(randn(3, 4) for _ in range(3)),
    ),
    "TripletMarginWithDistanceLoss": lambda: (
        theirs.TripletMarginWithDistanceLoss(distance_function=theirs.PairwiseDistance(3.0)),
        *(randn(3, 4) for _ in range(3)),
    ),
    **{
        name: (lambda f=f: (f(), randn(4), randn(4)))
        for name, f in (
            ("L1Loss", theirs.L1Loss),
            ("MSELoss", theirs.MSELoss),
        )
    },
    "SoftMarginLoss": lambda: (theirs.SoftMarginLoss(), randn(3), torch.tensor([1.0, -1.0, 1.0])),
    "Sequential": lambda: (
        theirs.Sequential(
            theirs.Linear(4, 4),
            theirs.Sequential(theirs.ReLU(inplace=True), theirs.Dropout(0.3)),
            theirs.Identity(),
        ),
        randn(2, 4),
    ),
    "Sequential by name": lambda: (
        theirs.Sequential(OrderedDict(first=theirs.Linear(4, 3), then=theirs.ReLU())),
        randn(2, 4),
    ),
    "a Sequential of one's own": lambda: (Block(4), randn(2, 4)),
}

ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "CELU": (0.5,), "ELU": (0.5,), "GELU": ("tanh",), "GLU": (1,), "SELU": (), "Hardshrink": (0.3,),
    "Hardsigmoid": (), "Hardswish": (), "Hardtanh": (-2.0, 0.5), "LeakyReLU": (0.3,),
    "LogSigmoid": (), "LogSoftmax": (1,), "Mish": (), "PReLU": (4,), "ReLU": (), "ReLU6": (),
    "RReLU": (0.1, 0.4), "Sigmoid": (), "SiLU": (), "Softmax": (1,), "Softmax2d": (),
    "Softmin": (0,), "Softplus": (2.0, 3.0), "Softshrink": (0.3,), "Softsign": (), "Tanh": (),
    "Tanhshrink": (), "Threshold": (0.1, 3.0), "AlphaDropout": (0.3,),
    "FeatureAlphaDropout": (0.3,), "Dropout": (0.2,), "Dropout2d": (0.2,), "Dropout3d": (0.2,),
    "Identity": (),
}  # fmt: skip
"""Layers of any shape: their options."""

PADS = {
    f"{kind}Pad{rank}d": ((1, 2, 0, 1, 1, 1)[: 2 * rank], *((3.0,) if kind == "Constant" else ()))
    for kind in ("Circular", "Constant", "Reflection", "Replication", "Zero")
    for rank in (1, 2, 3)
}


class Block(theirs.Sequential):
    """Another name for what is built from parts."""

    def __init__(self, width: int) -> None:
        super().__init__(theirs.Linear(width, width), theirs.Tanh())


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [leaf for part in found for leaf in leaves(part)]
    return [] if found is None else [found]


def agree(module: theirs.Module, *inputs: torch.Tensor) -> nn.Module:
    """The twin computes what the module does."""
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim < 2:  # norms start as the identity
                parameter.add_(torch.rand_like(parameter) * 0.3)
        expected = leaves(module(*inputs))
    made = nn.Module.from_torch(module)
    found = leaves(lm.jit(made, backend="reference")(*inputs))
    assert len(found) == len(expected)
    for ours, other in zip(found, expected, strict=True):
        assert str(other.dtype) == f"torch.{ours.dtype}"
        close(ours, other.numpy(), ulp=16)
    return made


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("case", LAYERS)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_layers_compute_the_same(case: str) -> None:
    agree(*LAYERS[case]())


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_compute_the_same(name: str) -> None:
    made = agree(getattr(theirs, name)(*ACTIVATIONS[name]), randn(2, 4, 3, 2))
    assert type(made).__name__ == name


@pytest.mark.parametrize("name", PADS)
def test_pads_compute_the_same(name: str) -> None:
    rank = int(name[-2])
    agree(getattr(theirs, name)(*PADS[name]), randn(1, 2, *(4, 5, 6)[:rank]))


def test_every_layer_of_both_libraries_has_a_case() -> None:
    both = {
        name for name in nn.__all__
        if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module)
        and hasattr(theirs, name)
    }  # fmt: skip
    cases = {name.partition(" ")[0] for name in LAYERS} | ACTIVATIONS.keys() | PADS.keys()
    containers = {"Module", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"}
    assert both - cases == containers


def test_values_modes_ties_and_gradients_are_as_there() -> None:
    linear = theirs.Linear(3, 3)
    module = theirs.Sequential(linear, theirs.ReLU(), linear, theirs.Linear(3, 3))
    module[3].weight = linear.weight
    module[1].eval()
    module.training = False
    linear.bias.requires_grad = False
    made = nn.Sequential.from_torch(module)
    assert made[0] is made[2]
    assert made[3].weight is made[0].weight  # type: ignore[attr-defined]
    modes = {path: each.training for path, each in module.named_modules(remove_duplicate=False)}
    assert {
        path: each.training for path, each in made.named_modules(remove_duplicate=False)
    } == modes
    assert [p.requires_grad for p in made.parameters()] == [True, False, True]
    state = module.state_dict()
    assert {name: array.tolist() for name, array in made.state_dict().items()} == {
        name: value.tolist() for name, value in state.items()
    }
    with torch.no_grad():
        linear.weight.zero_()
    assert made.state_dict()["0.weight"].any()  # a copy


def test_containers_keep_their_names() -> None:
    module = theirs.ModuleDict(
        {
            "list": theirs.ModuleList([theirs.Linear(2, 1), theirs.Identity()]),
            "held": theirs.ParameterList(
                [theirs.Parameter(torch.ones(2)), torch.nn.Parameter(randn(1))]
            ),
            "named": theirs.ParameterDict({"a": theirs.Parameter(torch.ones(3))}),
            "chain": theirs.Sequential(OrderedDict(up=theirs.Linear(1, 2), down=theirs.Tanh())),
        }
    )
    made = nn.Module.from_torch(module)
    assert [*made.state_dict()] == [*module.state_dict()]
    chain = made["chain"]  # type: ignore[index]
    assert chain.up is chain[0]
    assert [type(each).__name__ for each in chain] == ["Linear", "Tanh"]
    chain.append(nn.ReLU())
    assert [name for name, _ in chain.parts()] == ["up", "down", "2"]
    with pytest.raises(AttributeError, match="a Sequential has no attribute 'other'"):
        chain.other  # noqa: B018


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes_are_as_there(dtype: torch.dtype) -> None:
    module = theirs.Sequential(theirs.Linear(4, 4), theirs.BatchNorm1d(4)).to(dtype).eval()
    x = randn(3, 4).to(dtype)
    made = nn.Module.from_torch(module)
    kept = made.state_dict()
    assert {str(v.dtype)[6:] for v in module.state_dict().values()} == {
        str(a.dtype) for a in kept.values()
    }
    found = lm.jit(made, backend="reference")(x)
    with torch.no_grad():
        np.testing.assert_allclose(
            found.astype(np.float64), module(x).double().numpy(), rtol=torch.finfo(dtype).eps * 8,
            atol=torch.finfo(dtype).eps * 8,
        )  # fmt: skip


def test_mixed_training_and_running_statistics() -> None:
    module = theirs.Sequential(theirs.Conv2d(2, 3, 3), theirs.BatchNorm2d(3, momentum=None))
    module(randn(2, 2, 5, 5))
    module(randn(2, 2, 5, 5))
    made = nn.Module.from_torch(module)
    x = randn(2, 2, 5, 5)
    found = lm.jit(made)(x)
    close(found, module(x).detach().numpy())
    for name, array in made.state_dict().items():
        close(array, module.state_dict()[name].numpy())


# --- what is refused ------------------------------------------------------------------------------


class Overridden(theirs.Conv2d):
    """It computes otherwise, though `forward` is PyTorch's."""

    def _conv_forward(self, x: Any, weight: Any, bias: Any) -> Any:
        return super()._conv_forward(x, weight - 1, bias)


class MoE(theirs.Module):
    """A name that luminal.nn knows, of another layer."""


def with_forward() -> theirs.Module:
    layer = theirs.Linear(2, 2)
    layer.forward = lambda x: x  # type: ignore[method-assign]
    return layer


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an option": (
        lambda: theirs.Sequential(theirs.Embedding(3, 2, max_norm=1.0)),
        "0: Embedding has max_norm=1.0; luminal.nn.Embedding has no max_norm",
    ),
    "scaled gradients": (
        lambda: theirs.EmbeddingBag(3, 2, scale_grad_by_freq=True),
        "has scale_grad_by_freq=True",
    ),
    "a dim that depends": (
        theirs.Softmax,
        "Softmax has dim=None, which depends on x; name the dim",
    ),
    "no twin": (lambda: theirs.SyncBatchNorm(3), "SyncBatchNorm has no twin in luminal.nn"),
    "deep inside": (
        lambda: theirs.Sequential(
            OrderedDict(a=theirs.ModuleList([theirs.FractionalMaxPool2d(2, 1)]))
        ),
        r"a\.0: FractionalMaxPool2d has no twin",
    ),
    "of one's own": (MoE, "MoE has no twin in luminal.nn; write it with luminal.nn, and call"),
    "nothing at all": (theirs.Module, "Module has no twin"),
    "changed inside": (lambda: Overridden(2, 2, 1), "Overridden has no twin"),
    "changed outside": (with_forward, "Linear has a forward set on the object; remove it"),
    "hooks": (
        lambda: theirs.Sequential(torch.nn.utils.spectral_norm(theirs.Linear(2, 2))),
        "0: Linear has hooks, as weight_norm makes",
    ),
    "parametrized": (
        lambda: torch.nn.utils.parametrizations.weight_norm(theirs.Linear(2, 2)),
        "has no twin",
    ),
    "lazy": (lambda: theirs.LazyLinear(2), "LazyLinear has hooks, .* or call the module once"),
    "a function": (
        lambda: encoder_layer(activation=torch.sigmoid),
        "has activation='sigmoid', a function of PyTorch's tensors; give a module of torch.nn",
    ),
    "no module": (lambda: [1], "takes a module of PyTorch, got a list"),
    "a function for a module": (lambda: torch.relu, "takes a module of PyTorch, got a builtin"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refusals_name_the_layer(case: str) -> None:
    make, text = REFUSED[case]
    with pytest.raises(lm.InputError, match=f"^from_torch: .*{text}"):
        nn.Module.from_torch(make())


def test_a_class_takes_its_own_kind() -> None:
    assert isinstance(nn.Linear.from_torch(theirs.Linear(2, 2)), nn.Linear)
    with pytest.raises(
        lm.InputError, match=r"^Linear.from_torch: got a ReLU; call ReLU.from_torch"
    ):
        nn.Linear.from_torch(theirs.ReLU())


# --- values from other mappings -------------------------------------------------------------------


SOURCES: dict[str, Callable[[dict[str, torch.Tensor], Path], Any]] = {
    "torch": lambda state, _: state,
    "numpy": lambda state, _: {name: value.numpy() for name, value in state.items()},
    "lists": lambda state, _: {name: value.tolist() for name, value in state.items()},
    "strided": lambda state, _: {
        n: v.mT.contiguous().mT if v.ndim > 1 else v for n, v in state.items()
    },
    "gradients": lambda state, _: {n: v.clone().requires_grad_() for n, v in state.items()},
    "arrays": lambda state, _: {n: lm.array_api.asarray(v) for n, v in state.items()},
    "ours": lambda state, _: {n: lm.tensor(v) for n, v in state.items()},
    "safetensors": lambda state, path: _saved(state, path / "a.safetensors"),
    "gguf": lambda state, path: _gguf(state, path / "a.gguf"),
}


def _saved(state: dict[str, torch.Tensor], path: Path) -> Any:
    safetensors.torch.save_file(state, path)
    return lm.load(path)


def _gguf(state: dict[str, torch.Tensor], path: Path) -> Any:
    lm.save_gguf(path, state)
    return lm.load(path)


@pytest.mark.parametrize("source", SOURCES)
def test_load_state_dict_takes_any_mapping(source: str, tmp_path: Path) -> None:
    module = theirs.Sequential(theirs.Linear(3, 2), theirs.PReLU())
    state = copy.deepcopy(module.state_dict())
    made = nn.Sequential(nn.Linear(3, 2), nn.PReLU())
    made.load_state_dict(SOURCES[source](state, tmp_path))
    for name, array in made.state_dict().items():
        assert array.tobytes() == state[name].numpy().tobytes()


def test_saved_modules_are_read_by_the_safetensors_library(tmp_path: Path) -> None:
    """Bit for bit, bfloat16 too, which NumPy's door of that library lacks."""
    made = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).bfloat16(), nn.Linear(2, 1).half())
    lm.save(tmp_path / "a.safetensors", made.state_dict())
    found = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert [*sorted(found)] == [*sorted(made.state_dict())]
    for name, array in made.state_dict().items():
        assert str(found[name].dtype) == f"torch.{array.dtype}"
        assert lm.from_dlpack(found[name]).numpy().tobytes() == array.tobytes()
    lm.save_gguf(tmp_path / "a.gguf", made.state_dict())
    for name, array in lm.load(tmp_path / "a.gguf").items():
        assert (array.dtype, array.tobytes()) == (
            found_dtype(made, name),
            made.state_dict()[name].tobytes(),
        )


def found_dtype(made: nn.Module, name: str) -> Any:
    return made.state_dict()[name].dtype
