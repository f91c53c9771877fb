"""The training loop around a step: data, checkpoints, `fit`.

`data.py` has datasets and batches (`prefetch.py` makes them ahead), `checkpoint.py` what a run
leaves on disk (`nested.py` is its format), `fit.py` the loop.
"""

from luminal.training.checkpoint import Checkpoint, CheckpointManager
from luminal.training.data import MNIST, ArrayDataset, Batch, Batches, Dataset, TextDataset

__all__ = [
    "MNIST",
    "ArrayDataset",
    "Batch",
    "Batches",
    "Checkpoint",
    "CheckpointManager",
    "Dataset",
    "TextDataset",
]
