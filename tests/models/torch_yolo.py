"""YOLOv8 and YOLO11 in plain PyTorch: rows of a table, modules named as in Ultralytics' files."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class Conv(nn.Module):
    def __init__(self, c1: int, c2: int, k: int = 1, s: int = 1, g: int = 1, act: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3)
        self.act = nn.SiLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, c: int, add: bool, e: float):
        super().__init__()
        self.cv1, self.cv2 = Conv(c, int(c * e), 3), Conv(int(c * e), c, 3)
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.add else y


class C3k(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.cv1, self.cv2, self.cv3 = Conv(c, c // 2), Conv(c, c // 2), Conv(c, c)
        self.m = nn.Sequential(Bottleneck(c // 2, True, 1.0), Bottleneck(c // 2, True, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat([self.m(self.cv1(x)), self.cv2(x)], 1))


class C2f(nn.Module):
    def __init__(self, c1: int, c2: int, n: int, kind: str, e: float = 0.5):
        super().__init__()
        c = int(c2 * e)
        self.cv1, self.cv2 = Conv(c1, 2 * c), Conv((2 + n) * c, c2)
        make = {
            "added": lambda: Bottleneck(c, True, 1.0),
            "plain": lambda: Bottleneck(c, False, 1.0),
            "half": lambda: Bottleneck(c, True, 0.5),
            "inner": lambda: C3k(c),
        }[kind]
        self.m = nn.ModuleList(make() for _ in range(n))

    def forward(self, x: Tensor) -> Tensor:
        y = list(self.cv1(x).chunk(2, 1))
        for m in self.m:
            y.append(m(y[-1]))
        return self.cv2(torch.cat(y, 1))


class SPPF(nn.Module):
    def __init__(self, c1: int, c2: int):
        super().__init__()
        self.cv1, self.cv2 = Conv(c1, c1 // 2), Conv(c1 // 2 * 4, c2)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        a = self.cv1(x)
        b = self.m(a)
        c = self.m(b)
        return self.cv2(torch.cat([a, b, c, self.m(c)], 1))


class Attention(nn.Module):
    def __init__(self, c: int, heads: int):
        super().__init__()
        self.heads, self.dim = heads, c // heads
        self.qkv = Conv(c, 2 * c, act=False)
        self.proj, self.pe = Conv(c, c, act=False), Conv(c, c, 3, g=c, act=False)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        key = self.dim // 2
        qkv = self.qkv(x).view(b, self.heads, 2 * self.dim, h * w)
        q, k, v = qkv[:, :, :key], qkv[:, :, key : 2 * key], qkv[:, :, 2 * key :]
        y = nn.functional.scaled_dot_product_attention(q.mT, k.mT, v.mT).mT
        return self.proj(y.reshape(b, c, h, w) + self.pe(v.reshape(b, c, h, w)))


class PSABlock(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.attn = Attention(c, max(c // 64, 1))
        self.ffn = nn.Sequential(Conv(c, 2 * c), Conv(2 * c, c, act=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.ffn(x)


class C2PSA(nn.Module):
    def __init__(self, c: int, n: int):
        super().__init__()
        self.cv1, self.cv2 = Conv(c, c), Conv(c, c)
        self.m = nn.Sequential(*(PSABlock(c // 2) for _ in range(n)))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.cv1(x).chunk(2, 1)
        return self.cv2(torch.cat([a, self.m(b)], 1))


class Detect(nn.Module):
    def __init__(self, channels: list[int], classes: int, separable: bool):
        super().__init__()
        c2, c3 = max(16, channels[0] // 4, 64), max(channels[0], min(classes, 100))

        def named(c: int) -> nn.Sequential:
            if not separable:
                return nn.Sequential(Conv(c, c3, 3), Conv(c3, c3, 3), nn.Conv2d(c3, classes, 1))
            return nn.Sequential(
                nn.Sequential(Conv(c, c, 3, g=c), Conv(c, c3)),
                nn.Sequential(Conv(c3, c3, 3, g=c3), Conv(c3, c3)),
                nn.Conv2d(c3, classes, 1),
            )

        self.cv2 = nn.ModuleList(
            nn.Sequential(Conv(c, c2, 3), Conv(c2, c2, 3), nn.Conv2d(c2, 64, 1)) for c in channels
        )
        self.cv3 = nn.ModuleList(named(c) for c in channels)

    def forward(self, levels: list[Tensor]) -> tuple[Tensor, Tensor]:
        boxes, scores = [], []
        for x, cv2, cv3, stride in zip(levels, self.cv2, self.cv3, (8, 16, 32), strict=True):
            b, _, h, w = x.shape
            sides = cv2(x).view(b, 4, 16, h * w).softmax(2)
            left, top, right, bottom = torch.einsum(
                "bski,k->bsi", sides, torch.arange(16.0)
            ).unbind(1)
            row, column = torch.meshgrid(
                torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij"
            )
            row, column = row.reshape(-1), column.reshape(-1)
            corners = [column - left, row - top, column + right, row + bottom]
            boxes.append(torch.stack(corners, -1) * stride)
            scores.append(cv3(x).flatten(2).mT.sigmoid())
        return torch.cat(boxes, 1), torch.cat(scores, 1)


V8 = """
conv 64, conv 128, c2f 128 3 added, conv 256, c2f 256 6 added, conv 512, c2f 512 6 added,
conv 1024, c2f 1024 3 added, sppf 1024,
up, cat 6, c2f 512 3 plain, up, cat 4, c2f 256 3 plain,
conv 256, cat 12, c2f 512 3 plain, conv 512, cat 9, c2f 1024 3 plain, detect 15 18 21
"""
V11 = """
conv 64, conv 128, quarter 256 2, conv 256, quarter 512 2, conv 512, c2f 512 2 inner,
conv 1024, c2f 1024 2 inner, sppf 1024, psa 2,
up, cat 6, c2f 512 2 half, up, cat 4, c2f 256 2 half,
conv 256, cat 13, c2f 512 2 half, conv 512, cat 10, c2f 1024 2 inner, detect 16 19 22
"""


class Yolo(nn.Module):
    """`depth`, `width` and `most` as in Ultralytics' tables of scales."""

    def __init__(self, table: str, classes: int, depth: float, width: float, most: int = 1024):
        super().__init__()
        self.rows = [row.split() for row in table.replace("\n", " ").split(",")]
        layers: list[nn.Module] = []
        sizes: list[int] = []
        for kind, *args in self.rows:
            last = sizes[-1] if sizes else 3
            numbers = [int(arg) for arg in args if arg.isdigit()]
            c = math.ceil(min(numbers[0], most) * width / 8) * 8 if numbers else last
            n = max(round(numbers[-1] * depth), 1) if numbers else 0
            if kind == "conv":
                layers.append(Conv(last, c, 3, 2))
            elif kind == "c2f":
                layers.append(C2f(last, c, n, args[-1]))
            elif kind == "quarter":
                layers.append(C2f(last, c, n, "half", 0.25))
            elif kind == "sppf":
                layers.append(SPPF(last, c))
            elif kind == "psa":
                layers.append(C2PSA(last, n))
                c = last
            elif kind == "up":
                layers.append(nn.Upsample(scale_factor=2))
            elif kind == "cat":
                layers.append(nn.Identity())
                c = last + sizes[numbers[0]]
            else:
                layers.append(Detect([sizes[k] for k in numbers], classes, table is V11))
            sizes.append(c)
        self.model = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Any:
        outputs: list[Any] = []
        for (kind, *args), layer in zip(self.rows, self.model, strict=True):
            if kind == "cat":
                x = torch.cat([x, outputs[int(args[0])]], 1)
            elif kind == "detect":
                x = layer([outputs[int(arg)] for arg in args])
            else:
                x = layer(x)
            outputs.append(x)
        return x
