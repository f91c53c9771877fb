"""Outputs of YOLO, compared with those of PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import luminal as lm
from luminal.models.families import read_model
from tests.close import close
from tests.models.small_yolo import saved, torch


def check_outputs(kind: str, folder: Path, backend: str) -> None:
    """Of two images that are no squares."""
    theirs = saved(kind, folder)
    pixels = np.random.default_rng(0).uniform(0, 1, (2, 3, 64, 96)).astype(np.float32)
    with torch.no_grad():
        wanted = [each.numpy() for each in theirs(torch.from_numpy(pixels))]
    graph = lm.Graph()
    boxes, scores = read_model(folder)(graph.tensor(pixels.shape, lm.float32, "x"))
    boxes.output("boxes")
    scores.output("scores")
    made = graph.compile(backend)(x=pixels)
    for found, other in zip((made["boxes"], made["scores"]), wanted, strict=True):
        close(found, other, ulp=8)
