"""Networks written once for Luminal's `nn` and for PyTorch's, which share the names of layers."""

from __future__ import annotations

from typing import Any

BLOCKS = (3, 4, 6, 3)
CLASSES = 1000


def resnet50(nn: Any, width: int = 64) -> Any:
    """ResNet-50 (He et al. 2015, with the stride in the 3x3, as torchvision has it) of layers of
    `nn`; `width` channels first.
    """

    class Bottleneck(nn.Module):  # type: ignore[misc]
        def __init__(self, entering: int, inner: int, stride: int) -> None:
            super().__init__()
            leaving = 4 * inner
            self.conv1 = nn.Conv2d(entering, inner, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(inner)
            self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(inner)
            self.conv3 = nn.Conv2d(inner, leaving, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(leaving)
            self.relu = nn.ReLU()
            self.downsample = None
            if stride != 1 or entering != leaving:
                self.downsample = nn.Sequential(
                    nn.Conv2d(entering, leaving, 1, stride=stride, bias=False),
                    nn.BatchNorm2d(leaving),
                )

        def forward(self, x: Any) -> Any:
            beside = x if self.downsample is None else self.downsample(x)
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            return self.relu(self.bn3(self.conv3(y)) + beside)

    layers: list[Any] = [
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    channels = width
    for stage, count in enumerate(BLOCKS):
        inner = width << stage
        for block in range(count):
            layers.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
            channels = 4 * inner
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]
    return nn.Sequential(*layers)
