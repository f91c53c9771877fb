"""Outputs of models of images, compared with those of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import luminal as lm
from luminal.models.families import read_model
from tests.close import close_to_greatest
from tests.models.small_vision import (
    TINY,
    VARIANTS,
    saved,
    torch,
)


def check_outputs(name: str, folder: Path, backend: str) -> None:
    """Of three images."""
    theirs = saved(name, folder)
    size = (TINY | VARIANTS)[name].size
    pixels = np.random.default_rng(0).standard_normal((3, 3, size, size + 8)).astype(np.float32)
    if name.startswith("vit"):
        pixels = pixels[..., :size]
    graph = lm.Graph()
    images = graph.tensor((graph.dim("b", 1, 8), *pixels.shape[1:]), lm.float32, "images")
    read_model(folder)(images).output("out")
    with torch.no_grad():
        made = theirs(torch.from_numpy(pixels))
    wanted = made.logits if "logits" in made else made.last_hidden_state[:, 0]
    exe = graph.compile(backend)
    close_to_greatest(exe(images=pixels)["out"], wanted.numpy())
    close_to_greatest(exe(images=pixels[1:2])["out"], wanted[1:2].numpy())
