"""Three real programs to look at: a decoder, a training step, a detector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.models.decoder import Decoder
from luminal.models.yolo import Yolo, YoloConfig
from luminal.nn import functional as F
from tests.serve.small_decoder import CONFIG


def llama(layers: int = 32) -> lm.Executable:
    """A Llama with random weights of small sizes."""
    lm.manual_seed(0)
    cx = lm.Graph()
    ids = cx.tensor((8,), dtype=lm.int32, name="ids")
    config = replace(CONFIG, layers=CONFIG.layers[:1] * layers)
    Decoder(config)(ids).output("logits")
    exe = lm.compile(cx)
    exe.profile({"ids": np.arange(8, dtype=np.int32)})
    return exe


class Cnn(nn.Module):
    """Three convolutions and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)))
        self.head = nn.Linear(8, 10)

    def forward(self, images: lm.Tensor) -> lm.Tensor:
        """(n, 3, h, w) to (n, 10)."""
        x = F.relu(self.stem(images))
        for block in self.blocks:
            x = F.relu(block(x)) + x
        return self.head(x.mean((2, 3)))


def training_step() -> lm.Executable:
    """A step of AdamW on a small CNN."""
    lm.manual_seed(0)
    cx = lm.Graph("step")
    images, labels = (
        cx.tensor((4, 3, 16, 16), name="images"),
        cx.tensor((4,), lm.int64, name="labels"),
    )
    model = Cnn()
    loss = F.cross_entropy(model(images), labels).output("loss")
    optim.AdamW(model.parameters(), lr=0.01).step(loss)
    exe = lm.compile(cx)
    random = np.random.default_rng(0)
    exe.profile({"images": random.standard_normal((4, 3, 16, 16)).astype(np.float32),
                 "labels": random.integers(0, 10, 4)})  # fmt: skip
    return exe


def detector() -> lm.Executable:
    """A YOLO of small sizes, searched for a moment."""
    lm.manual_seed(0)
    cx = lm.Graph()
    images = cx.tensor((1, 3, 64, 64), name="images")
    boxes, scores = Yolo(YoloConfig(8, 3, 1 / 3, 1 / 16, 512))(images)
    boxes.output("boxes")
    scores.output("scores")
    exe = lm.compile(cx, mode=lm.TimeBudget(5))
    exe.profile({"images": np.zeros((1, 3, 64, 64), np.float32)})
    return exe
