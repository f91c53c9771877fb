"""A convolutional network that learns to read handwritten digits.

    python examples/mnist_cnn.py path/to/mnist              two epochs, then the share it gets right
    python examples/mnist_cnn.py path/to/mnist --optimal    searches the training step first
    python examples/mnist_cnn.py path/to/mnist --checkpoint runs/mnist

The folder holds MNIST's four IDX files, gzipped or not.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.runtime.executable import Executable
from luminal.training import MNIST, Batches, Dataset, Record, fit
from luminal.training.program import Recipe, Steps, inputs_at

BATCH = 64
PAIRS = 15


class DigitCNN(nn.Module):
    """Two 3x3 convolutions with relu, a pool, and two dense layers with dropout."""

    def __init__(self, narrow: int = 32, wide: int = 64, hidden: int = 128) -> None:
        self.conv1 = nn.Conv2d(1, narrow, 3)
        self.conv2 = nn.Conv2d(narrow, wide, 3)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(wide * 12 * 12, hidden)
        self.fc2 = nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, 28, 28) pixels to (batch, 10) scores."""
        x = F.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2)
        x = self.fc1(self.dropout(x.flatten(1))).relu()
        scores: Tensor = self.fc2(x)
        return scores


class Accuracy:
    """The share of a data set's digits that a network gets right; compiled once."""

    def __init__(self, dataset: Dataset) -> None:
        self._batches = Batches(dataset, 100, shuffle=False)
        self._executable: Executable | None = None

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """A row of metrics for `fit`."""
        if self._executable is None:
            cx = lm.Graph("digits")
            images = cx.tensor((cx.dim("n", 1, 100), 1, 28, 28), name="images")
            model.eval()(images).argmax(1).output("digits")
            model.train()
            self._executable = lm.compile(cx)
        right = [
            self._executable({"images": images})["digits"] == labels
            for images, labels in self._batches.once()
        ]
        return {"accuracy": float(np.mean(np.concatenate(right)))}


def train(
    model: nn.Module,
    learned: Dataset,
    tested: Dataset,
    epochs: int = 2,
    mode: str = "fast",
    checkpoint: Path | None = None,
) -> Record:
    """Trains by Adam; the accuracy on `tested` is in the last row of the record's history."""
    data = Batches(learned, BATCH, seed=0, drop_last=True)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    return fit(
        model, F.cross_entropy, data, optimizer, epochs=epochs, mode=mode,
        validate=Accuracy(tested), checkpoint=checkpoint,
    )  # fmt: skip


def compare(learned: Dataset, seconds: float) -> None:
    """Searches the training step, and runs it and that of the rules in turns."""
    batch = next(iter(Batches(learned, BATCH)))
    taken: dict[str, list[float]] = {}
    steps = {}
    for name in ("fast", f"{seconds:g}s"):
        model = DigitCNN()
        recipe = Recipe(model, F.cross_entropy, optim.Adam(model.parameters(), lr=1e-3), mode=name)
        steps[name] = Steps(recipe).program(batch).executable
    inputs = inputs_at(batch, 0, [1e-3])
    for _ in range(PAIRS):
        for name, step in steps.items():
            start = time.perf_counter()
            step(inputs)
            taken.setdefault(name, []).append(time.perf_counter() - start)
    fast, best = (min(each) for each in taken.values())
    found = [*steps.values()][1].report().search
    assert found is not None
    tried = f"{found.structure.candidates} structures, {found.schedules.candidates} schedules"
    print(f"{found.decision}; {tried} tried")
    print(f"in turns fast {fast * 1e3:.2f} ms, searched {best * 1e3:.2f} ms: {fast / best:.2f}x")


def main() -> None:
    """Trains and tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with MNIST's four IDX files")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimal", action="store_true", help="search the training step")
    parser.add_argument("--seconds", type=float, default=60, help="time budget of the search")
    parser.add_argument("--checkpoint", type=Path, help="folder to write, and to go on from")
    options = parser.parse_args()
    learned, tested = MNIST(options.folder), MNIST(options.folder, train=False)
    if options.optimal:
        compare(learned, options.seconds)
    lm.manual_seed(options.seed)
    mode = f"{options.seconds:g}s" if options.optimal else "fast"
    record = train(DigitCNN(), learned, tested, options.epochs, mode, options.checkpoint)
    if record.history:
        print(f"{record.history[-1]['accuracy']:.2%} of the test digits are right")


if __name__ == "__main__":
    main()
