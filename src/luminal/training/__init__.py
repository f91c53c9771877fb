"""The training loop around a step: data, checkpoints, `fit`.

`data.py` has datasets and batches (`prefetch.py` makes them ahead), `stream.py` those that others
make, whose draws `generators.py` repeats; `form.py` says what a batch is to a model. `program.py`
is the step as one program, `trainer.py` the state of a run, `fit.py` the loop, `callbacks.py` and
`loggers.py` (`event_file.py`: TensorBoard's format) what it calls; `checkpoint.py` is what a run
leaves on disk (`nested.py` its format, `checkpoint_parts.py` the files of several ranks,
`snapshots.py` what other ranks go on from), `metrics.py`, `plot.py` and `progress.py` what it
tells. `layers.py` knows which layer recorded what, for `statistics.py` and `detect_nan.py`.
`ranks.py` is who trains together, `leaves.py` a step whose bits do not depend on how many they are,
`pipeline.py` one whose layers lie on several. Parts of a step by themselves: `amp.py` (mixed
precision), `accumulate.py` (several batches), `ema.py` (averages).
"""

from luminal.training.accumulate import GradientAccumulator
from luminal.training.amp import AMPContext, GradScaler
from luminal.training.callbacks import Callback, EarlyStopping
from luminal.training.checkpoint import Checkpoint, CheckpointManager
from luminal.training.data import MNIST, ArrayDataset, Batches, Dataset, TextDataset
from luminal.training.ema import EMA
from luminal.training.fit import fit
from luminal.training.form import Batch
from luminal.training.loggers import TensorBoard, WandB
from luminal.training.pipeline import PipelineStep
from luminal.training.program import Recipe
from luminal.training.trainer import Record, Trainer

__all__ = [
    "EMA",
    "MNIST",
    "AMPContext",
    "ArrayDataset",
    "Batch",
    "Batches",
    "Callback",
    "Checkpoint",
    "CheckpointManager",
    "Dataset",
    "EarlyStopping",
    "GradScaler",
    "GradientAccumulator",
    "PipelineStep",
    "Recipe",
    "Record",
    "TensorBoard",
    "TextDataset",
    "Trainer",
    "WandB",
    "fit",
]
