"""A small run of `fit` with all that a resume has to bring back, in a process that may be killed.

    python -m tests.training.small_run FOLDER

trains with a checkpoint in FOLDER after every step, and writes the weights' digest to FOLDER/done.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from luminal import nn, optim
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, CheckpointManager, Record, fit

STEPS = 60


def examples(count: int = 100) -> ArrayDataset:
    """Points and a smooth function of them."""
    draw = np.random.default_rng(7)
    x = draw.standard_normal((count, 6)).astype(np.float32)
    return ArrayDataset(x, np.sin(x).sum(1, keepdims=True))


def network() -> nn.Module:
    """With dropout, running statistics and a Parameter that is read twice."""
    lm.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1)
    )


def run(steps: int = STEPS, **options: Any) -> tuple[nn.Module, Record]:
    """The model after so many steps."""
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(0.01, T_max=STEPS)
    data = Batches(examples(), 8, seed=5, drop_last=True)
    defaults: dict[str, Any] = {"progress": False, "clip_norm": 1.0, "seed": 9}
    settings = defaults | {"scheduler": scheduler} | options
    return model, fit(model, F.mse_loss, data, optimizer, steps=steps, **settings)


def moved(folder: Path, first: str, second: str) -> None:
    """What one device saves another loads: parameters, moments, statistics, and the place in the
    data. The steps after it are near those of a run that stayed on the CPU.
    """
    before, steps = 5, 8
    expected, alone = run(steps, backend="cpu")
    run(before, backend=first, checkpoint=folder)
    model, record = run(steps, backend=second, checkpoint=folder)
    assert (record.resumed, record.steps) == (before, steps)
    near = 1e-5  # of sums of a hundred float32 numbers, three steps later
    np.testing.assert_allclose(record.losses, alone.losses[before:], rtol=near)
    for name, array in expected.state_dict().items():
        # The norm takes the first bias away, so its gradient is noise, which Adam scales to 1.
        if name not in ("0.bias", "1.running_mean"):
            np.testing.assert_allclose(model.state_dict()[name], array, rtol=near, atol=near)


def digest(model: nn.Module) -> str:
    """Of every bit of Parameters and running statistics."""
    found = hashlib.blake2b(digest_size=16)
    for path, array in model.state_dict().items():
        found.update(f"{path} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def main(folder: Path) -> None:
    """Trains, from the newest checkpoint on."""
    manager = CheckpointManager(folder, keep_last=2)
    model, record = run(checkpoint=manager, checkpoint_every=1, log=folder / "log.jsonl")
    assert [row["step"] for row in record.history] == list(range(1, STEPS + 1))
    (folder / "done").write_text(digest(model))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
