"""Convolutional networks for handwritten digits, compiled by rules or by measured search.

    python examples/search_cnn.py                          the fast program of each network
    python examples/search_cnn.py --optimal                searches each, then runs both in turns
    python examples/search_cnn.py --optimal --seconds 20   with a time budget for each
    python examples/search_cnn.py --images t10k-images-idx3-ubyte.gz --labels ... --weights ...

Without `--images` the digits are drawn at random; weights are those a new network starts with
(`--weights` loads the plain network's from a safetensors file and reports how many it gets right).
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn
from luminal.frontend.tensor import Tensor
from luminal.loaders.safetensors_file import read_safetensors
from luminal.runtime.executable import Executable

BATCH = 64
PAIRS = 15


class PlainCNN(nn.Module):
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


class PoolCNN(nn.Module):
    """Two convolutions, each with relu and a pool: the largest of 2x2, then the mean of 2x2."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.pool1 = nn.MaxPool2d(2)
        self.pool2 = nn.AvgPool2d(2)
        self.head = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, 28, 28) pixels to (batch, 10) scores."""
        x = self.pool1(self.conv1(x).relu())
        x = self.pool2(self.conv2(x).relu())
        return self.head(x.flatten(1))


class DilatedCNN(nn.Module):
    """Dilated and strided convolutions, overlapping pools."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 16, 3, padding=2, dilation=2)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, 28, 28) pixels to (batch, 10) scores."""
        x = self.pool(self.conv1(x).relu())
        return self.head(self.conv2(x).relu().flatten(1))


NETWORKS = {"plain": PlainCNN, "pools": PoolCNN, "dilated": DilatedCNN}


def graph(network: nn.Module, batch: int = BATCH) -> lm.Graph:
    """The digit with the highest score, for a batch of images."""
    cx = lm.Graph(type(network).__name__)
    x = cx.tensor((batch, 1, 28, 28), name="x")
    scores = network.eval()(x).output("scores")
    scores.argmax(1).output("digits")
    return cx


def pools() -> lm.Graph:
    """For `luminal compile examples/search_cnn.py:pools`."""
    return graph(PoolCNN())


def read_images(path: Path) -> np.ndarray[Any, Any]:
    """Pixels (count, 1, 28, 28) of an IDX file, scaled and normalised."""
    with gzip.open(path) as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    return ((pixels / 255 - 0.1307) / 0.3081).astype(np.float32)


def read_labels(path: Path) -> np.ndarray[Any, Any]:
    """The digits of an IDX file."""
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=8)


def in_turns(first: Executable, second: Executable, images: Any) -> tuple[float, float]:
    """The least seconds of a run of two executables that take turns."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(PAIRS):
        for executable, times in zip((first, second), taken, strict=True):
            start = time.perf_counter()
            executable({"x": images})
            times.append(time.perf_counter() - start)
    return min(taken[0]), min(taken[1])


def accuracy(executable: Executable, images: Any, labels: Any) -> float:
    """The share of digits that the network gets right."""
    count = len(images) // BATCH * BATCH
    batches = (images[k : k + BATCH] for k in range(0, count, BATCH))
    found = np.concatenate([executable({"x": batch})["digits"] for batch in batches])
    return float(np.mean(found == labels[:count]))


def main() -> None:
    """Compiles the networks and says how fast they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, help="one of them instead of all")
    parser.add_argument("--optimal", action="store_true", help="search, and compare with fast")
    parser.add_argument("--seconds", type=float, help="time budget of each search")
    parser.add_argument("--candidates", type=int, default=600, help="most candidates of a search")
    parser.add_argument("--report", type=Path, help="folder for reports as HTML pages")
    parser.add_argument("--images", type=Path, help="IDX file of images, gzipped")
    parser.add_argument("--labels", type=Path, help="IDX file of labels, gzipped")
    parser.add_argument("--weights", type=Path, help="safetensors file for the plain network")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    images = rng.standard_normal((BATCH, 1, 28, 28), np.float32)
    if options.images is not None:
        images = read_images(options.images)
    for name in [options.network] if options.network else NETWORKS:
        network = NETWORKS[name]()
        if options.weights is not None and name == "plain":
            network.load_state_dict(read_safetensors(options.weights))
        cx = graph(network)
        fast = lm.compile(cx)
        if options.labels is not None and options.weights is not None and name == "plain":
            right = accuracy(fast, images, read_labels(options.labels))
            print(f"{name}: {right:.2%} of the digits are right")
        if not options.optimal:
            print(f"{name}: {in_turns(fast, fast, images[:BATCH])[0] * 1e6:,.0f} us a batch")
            continue
        mode = "optimal" if options.seconds is None else lm.TimeBudget(options.seconds)
        search = lm.SearchOptions(max_candidates=options.candidates)
        best = lm.compile(cx, mode=mode, search=search)
        a, b = in_turns(fast, best, images[:BATCH])
        found = best.report().search
        assert found is not None
        print(f"{name}: {found.decision}; {found.candidates} candidates")
        print(f"{name}: in turns fast {a * 1e6:,.0f} us, searched {b * 1e6:,.0f} us: {a / b:.2f}x")
        if options.report is not None:
            options.report.mkdir(parents=True, exist_ok=True)
            best.viz(options.report / f"mnist_{name}.html")


if __name__ == "__main__":
    main()
