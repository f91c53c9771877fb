"""A CNN with weights trained by PyTorch, on real digits."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.frontend.tensor import Tensor
from luminal.loaders.safetensors_file import read_safetensors


class DigitCNN(nn.Module):
    """Three 3x3 valid convolutions 1-8-16-24, each with relu; batch norm; two dense layers."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.conv3 = nn.Conv2d(16, 24, 3)
        self.norm1 = nn.BatchNorm2d(24)
        self.fc1 = nn.Linear(24 * 22 * 22, 32)
        self.fc2 = nn.Linear(32, 10)
        self.norm2 = nn.BatchNorm1d(10)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, 28, 28) pixels, normalised, to (batch, 10) scores."""
        for conv in (self.conv1, self.conv2, self.conv3):
            x = conv(x).relu()
        x = self.norm1(x).flatten(1)
        return self.norm2(self.fc2(self.fc1(x).relu()))


def read_images(folder: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Pixels (10000, 1, 28, 28), scaled and normalised, and labels."""
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return ((pixels / 255 - 0.1307) / 0.3081).astype(np.float32), labels


@pytest.mark.parametrize(
    ("backend", "count"),
    [("reference", 40), ("cpu", 1000), pytest.param("cpu", 10000, marks=pytest.mark.long)],
)
def test_accuracy(shared_data: Path, backend: str, count: int) -> None:
    net = DigitCNN()
    net.load_state_dict(read_safetensors(shared_data / "mnist/cnn.safetensors"))
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 1, 10000), 1, 28, 28), name="x")
    digits = net.eval()(x).argmax(1).output("digits")
    exe = lm.compile(cx, backend=backend)
    images, labels = read_images(shared_data / "mnist")
    found = [exe({"x": images[k : k + 20]})[digits] for k in range(0, count, 20)]
    assert np.mean(np.concatenate(found) == labels[:count]) >= 0.99
