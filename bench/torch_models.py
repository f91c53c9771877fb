"""Ten networks in plain PyTorch, of the shapes that people run, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as f


@dataclass(frozen=True, slots=True)
class Network:
    """How to make a module, and arguments for it."""

    name: str
    make: Callable[[], nn.Module]
    arguments: Callable[[], tuple[Tensor, ...]]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = f.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class _Layer(nn.Module):
    """A transformer layer, norms before (`first`) or after its halves."""

    def __init__(self, width: int, heads: int, first: bool = True) -> None:
        super().__init__()
        self.first = first
        self.attention = _Attention(width, heads)
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x + self.attention(self.a(x))
            return x + self.down(f.gelu(self.up(self.b(x))))
        x = self.a(x + self.attention(x))
        return self.b(x + self.down(f.gelu(self.up(x))))


class _Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.norm = nn.LayerNorm(768)
        self.layers = nn.Sequential(*(_Layer(768, 12, first=False) for _ in range(2)))

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.layers(self.norm(self.words(ids) + self.places(places)))


class _ViT(nn.Module):
    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.layers = nn.Sequential(*(_Layer(width, 6) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


def _conv(inner: int, outer: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    conv = nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outer))


class _Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = _conv(inner, outer, 3, stride), _conv(outer, outer)
        same = inner == outer and stride == 1
        self.beside = nn.Identity() if same else _conv(inner, outer, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return f.relu(self.beside(x) + self.b(f.relu(self.a(x))))


def _resnet18() -> nn.Module:
    layers: list[nn.Module] = [_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Residual(width, outer, stride), _Residual(outer, outer, 1)]
        width = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class _Inverted(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int, growth: int) -> None:
        super().__init__()
        wide = inner * growth
        expand = [] if growth == 1 else [_conv(inner, wide, 1), nn.ReLU6()]
        depthwise = [_conv(wide, wide, 3, stride, wide), nn.ReLU6()]
        self.layers = nn.Sequential(*expand, *depthwise, _conv(wide, outer, 1))
        self.residual = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


def _mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = [_conv(3, 32, 3, 2), nn.ReLU6()]
    width = 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for growth, outer, count, stride in (*stages, (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(count):
            layers.append(_Inverted(width, outer, stride if k == 0 else 1, growth))
            width = outer
    head = [_conv(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(1280, 1000))


class _ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of a picture."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNext(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.spread(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(f.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def _convnext() -> nn.Module:
    first = [nn.Conv2d(3, 96, 4, 4), _ChannelNorm(96), *(_ConvNext(96) for _ in range(3))]
    second = [_ChannelNorm(96), nn.Conv2d(96, 192, 2, 2), *(_ConvNext(192) for _ in range(3))]
    return nn.Sequential(*first, *second)


class _Gpt2(nn.Module):
    """A decode step of GPT-2: one token, after those whose keys and values are given."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(50257, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        length = past.shape[4]
        x = self.words(ids) + self.places.weight[length : length + 1]
        present = []
        for layer, (keys, values) in zip(self.layers, past.unbind(0), strict=True):
            assert isinstance(layer, _Layer)
            split = layer.attention.into(layer.a(x)).unflatten(-1, (3, self.heads, -1))
            q, k, v = split.permute(2, 0, 3, 1, 4)
            present.append(torch.stack([k, v]))
            k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            y = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
            x = x + layer.attention.out(y)
            x = x + layer.down(f.gelu(layer.up(layer.b(x)), approximate="tanh"))
        return self.norm(x) @ self.words.weight.T, torch.stack(present)


class _LlamaBlock(nn.Module):
    def __init__(self, width: int = 1024, heads: int = 16, inner: int = 2816) -> None:
        super().__init__()
        self.heads = heads
        self.a, self.b = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.a(x)
        heads = (p(y).unflatten(-1, (self.heads, -1)) for p in (self.q, self.k, self.v))
        q, k, v = (each.transpose(1, 2) for each in heads)
        q, k = (each * cos + _turned(each) * sin for each in (q, k))
        y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        y = self.b(x)
        return x + self.down(f.silu(self.gate(y)) * self.up(y))


def _turned(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class _Whisper(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.a = nn.Conv1d(80, width, 3, padding=1)
        self.b = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.places = nn.Parameter(torch.randn(1500, width) * 0.02)
        self.layers = nn.Sequential(*(_Layer(width, 8) for _ in range(2)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = f.gelu(self.b(f.gelu(self.a(x)))).transpose(1, 2) + self.places
        return self.norm(self.layers(x))


class _UNetBlock(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, inner), nn.GroupNorm(8, outer)
        self.a, self.b = nn.Conv2d(inner, outer, 3, 1, 1), nn.Conv2d(outer, outer, 3, 1, 1)
        self.beside = nn.Conv2d(inner, outer, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(f.silu(self.first(x)))
        return self.beside(x) + self.b(f.silu(self.second(y)))


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 64, 3, 1, 1), nn.Conv2d(64, 4, 3, 1, 1)
        self.down, self.inner = _UNetBlock(64, 64), _UNetBlock(64, 128)
        self.up = _UNetBlock(192, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.first(x))
        y = f.interpolate(self.inner(f.avg_pool2d(x, 2)), scale_factor=2.0, mode="nearest")
        return self.last(self.up(torch.cat([x, y], 1)))


class _Mixer(nn.Module):
    def __init__(self, tokens: int = 196, width: int = 512) -> None:
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 256), nn.GELU(), nn.Linear(256, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2048), nn.GELU(), nn.Linear(2048, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.a(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.b(x))


def _mixer() -> nn.Module:
    return nn.Sequential(*(_Mixer() for _ in range(4)))


def _random(*shapes: Sequence[int]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(*shape) for shape in shapes)


def _tokens(count: int, vocabulary: int) -> Tensor:
    return torch.randint(vocabulary, (1, count))


_PICTURE = (1, 3, 224, 224)
_TURNS = (512, 64)  # positions and width of a head

NETWORKS = (
    Network("BERT-base, 2 layers, 128 tokens", _Bert, lambda: (_tokens(128, 30522),)),
    Network("ViT-small, 4 layers", _ViT, _random((4, *_PICTURE[1:]))),
    Network("ResNet-18", _resnet18, _random(_PICTURE)),
    Network("MobileNetV2", _mobilenet_v2, _random(_PICTURE)),
    Network("ConvNeXt-tiny, 6 blocks", _convnext, _random(_PICTURE)),
    Network(
        "GPT-2, a decode step",
        _Gpt2,
        lambda: (_tokens(1, 50257), torch.randn(12, 2, 1, 12, 255, 64)),
    ),
    Network("Llama block, 512 tokens", _LlamaBlock, _random((1, 512, 1024), _TURNS, _TURNS)),
    Network("Whisper encoder, 2 layers", _Whisper, _random((1, 80, 3000))),
    Network("U-Net, 3 blocks", _UNet, _random((1, 4, 64, 64))),
    Network("MLP-mixer, 4 layers", _mixer, _random((1, 196, 512))),
)
