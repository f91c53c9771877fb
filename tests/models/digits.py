"""A CNN with weights trained by PyTorch, on real digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import luminal as lm
from examples.search_cnn import PlainCNN, read_images, read_labels
from luminal.loaders.safetensors_file import read_safetensors


def check_digits(shared_data: Path, backend: str, count: int) -> None:
    """At least 99% of the first digits are read right."""
    net = PlainCNN()
    net.load_state_dict(read_safetensors(shared_data / "mnist/cnn.safetensors"))
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 1, 10000), 1, 28, 28), name="x")
    digits = net.eval()(x).argmax(1).output("digits")
    exe = lm.compile(cx, backend=backend)
    images = read_images(shared_data / "mnist/t10k-images-idx3-ubyte.gz")
    labels = read_labels(shared_data / "mnist/t10k-labels-idx1-ubyte.gz")
    found = [exe({"x": images[k : k + 20]})[digits] for k in range(0, count, 20)]
    assert np.mean(np.concatenate(found) == labels[:count]) >= 0.99
