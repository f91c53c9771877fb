"""The training loop around a step: data, checkpoints, `fit`.

`data.py` has datasets and batches (`prefetch.py` makes them ahead), `program.py` the step as one
program, `trainer.py` the state of a run, `fit.py` the loop; `checkpoint.py` is what a run leaves on
disk (`nested.py` its format), `metrics.py`, `plot.py` and `progress.py` what it tells. `layers.py`
knows which layer recorded what, for `statistics.py` and `detect_nan.py`.
"""

from luminal.training.checkpoint import Checkpoint, CheckpointManager
from luminal.training.data import MNIST, ArrayDataset, Batch, Batches, Dataset, TextDataset
from luminal.training.fit import fit
from luminal.training.trainer import Record, Trainer

__all__ = [
    "MNIST",
    "ArrayDataset",
    "Batch",
    "Batches",
    "Checkpoint",
    "CheckpointManager",
    "Dataset",
    "Record",
    "TextDataset",
    "Trainer",
    "fit",
]
