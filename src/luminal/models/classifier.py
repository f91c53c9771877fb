"""Images to labels: a trunk that makes a vector of an image, and a layer that reads it."""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.nn import Linear, Module


class Classifier(Module):
    """What a trunk makes of images, (batch, trunk.width), to logits of labels."""

    def __init__(self, trunk: Module, width: int, labels: int, dtype: Any = float32) -> None:
        self.trunk = trunk
        self.head = Linear(width, labels, dtype=dtype)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, labels)."""
        logits: Tensor = self.head(self.trunk(images))
        return logits
