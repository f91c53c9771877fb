"""Layers and the Module they derive from; Parameter names are PyTorch's."""

from luminal.nn.activation import GELU, Flatten, ReLU, Sigmoid, SiLU, Softmax, Tanh
from luminal.nn.attention import Attention, KVCache, causal_mask
from luminal.nn.convolution import AvgPool2d, Conv2d, MaxPool2d
from luminal.nn.feed_forward import SwiGLU
from luminal.nn.linear import Embedding, Linear
from luminal.nn.module import Module, ModuleList, Sequential
from luminal.nn.norm import BatchNorm1d, BatchNorm2d, LayerNorm, RMSNorm
from luminal.nn.rotary import RotaryEmbedding

__all__ = [
    "Module",
    "ModuleList",
    "Sequential",
    "Linear",
    "Embedding",
    "RMSNorm",
    "LayerNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv2d",
    "MaxPool2d",
    "AvgPool2d",
    "ReLU",
    "GELU",
    "SiLU",
    "Tanh",
    "Sigmoid",
    "Softmax",
    "Flatten",
    "RotaryEmbedding",
    "Attention",
    "KVCache",
    "causal_mask",
    "SwiGLU",
]
