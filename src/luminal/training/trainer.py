"""Trainer: the state of a run, and one step after another."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import InputError, LoadError, LuminalError, NonFiniteError
from luminal.base.records import dataclass
from luminal.loaders.mapped import Array
from luminal.memory.part import Piece, value_or_piece
from luminal.memory.state import Assignable
from luminal.memory.stored import Stored
from luminal.nn.module import Module
from luminal.optim import saved
from luminal.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from luminal.optim.ranges import as_number
from luminal.runtime.results import Results
from luminal.session.pipeline import PipelineParallel
from luminal.training.callbacks import Callback, by_name
from luminal.training.checkpoint import CheckpointManager
from luminal.training.data import Batches
from luminal.training.detect_nan import first_nan
from luminal.training.form import Batch, rows_of
from luminal.training.leaves import LeafSteps
from luminal.training.metrics import Row
from luminal.training.pipeline import PipelineSteps, is_cut_twice
from luminal.training.plot import svg_of, write_plot
from luminal.training.program import Losses, Program, Recipe, Steps, inputs_at
from luminal.training.ranks import Ranks
from luminal.training.snapshots import Snapshots
from luminal.training.statistics import statistics_row
from luminal.training.stream import Stream

COLUMNS = (
    "step", "loss", "lr", "grad_norm", "seconds", "samples_per_second", "tokens_per_second",
    "epoch", "activations", "gradients",
)  # fmt: skip
"""What `fit` puts into a row itself."""
Scheduler = LRScheduler | ReduceLROnPlateau
Validation = Batches | Stream | Callable[[Module], Mapping[str, float]]
"""What gives batches whose mean loss is the `validation_loss`, or a function that gives numbers by
name.
"""


@dataclass(slots=True)
class Record:
    """How a run went.

    `history`: a row of metrics for each step, that of earlier runs too where a log holds them;
    `steps`: those done in all; `interrupted`: Ctrl-C ended it; `stopped`: why a callback did;
    `resumed`: the step it went on from; `plan`: why "auto" has chosen its plan. A notebook shows
    it with a picture of the losses.
    """

    history: list[Row] = field(default_factory=list)
    steps: int = 0
    interrupted: bool = False
    resumed: int = 0
    plan: str = ""
    stopped: str = ""

    def __repr__(self) -> str:
        """A few lines: `history` holds the rest."""
        why = "by Ctrl-C" if self.interrupted else f"early: {self.stopped}" * bool(self.stopped)
        ended = f", ended {why}" if why else ""
        begun = f" (from step {self.resumed} on)" if self.resumed else ""
        lines = [f"{self.steps} steps{begun}{ended}", self.plan.partition(";")[0]]
        if self.history:
            losses, last = self.losses, self.history[-1]
            lines += [
                f"loss {losses[0]:.4g} at first, {losses[-1]:.4g} at last, {min(losses):.4g} at "
                "best",
                f"validation loss {self.validation_loss:.4g}" if self.validation_loss else "",
                f"learning rate {last['lr']:.4g}",
                f"{sum(row['seconds'] for row in self.history):.4g} s in steps",
            ]
        return "\n".join(line for line in lines if line)

    def plot(self, path: str | Path) -> None:
        """Draws training and validation losses over steps into a file, .svg or .html."""
        write_plot(self.history, path)

    def _repr_html_(self) -> str:
        """The picture and the few lines."""
        return f"{svg_of(self.history)}<pre>{escape(repr(self))}</pre>"

    @property
    def losses(self) -> list[float]:
        """The training loss of each step."""
        return [row["loss"] for row in self.history]

    @property
    def validation_loss(self) -> float | None:
        """The loss of the last validation."""
        losses = (
            row["validation_loss"] for row in reversed(self.history) if "validation_loss" in row
        )
        return next(losses, None)


# No random state is kept: order follows from seed and epoch, dropout's key from seed and step. So a
# run that goes on from a checkpoint ends in the same bits as one that was never stopped.
class Trainer:
    """The state of a run and one step after another; `fit` is the loop around it."""

    def __init__(
        self,
        recipe: Recipe,
        data: Batches | Stream,
        scheduler: Scheduler | None = None,
        validate: Validation | None = None,
        manager: CheckpointManager | None = None,
        *,
        statistics: int | None = None,
        detect_nan: bool = False,
        leaves: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.recipe, self.data, self.scheduler = recipe, data, scheduler
        self.manager = manager
        self.record = Record()
        self.epoch_ended = False
        self.callbacks = list(callbacks)
        self._steps, self._losses = Steps(recipe), Losses(recipe)
        self._whole: LeafSteps | PipelineSteps | None = None  # steps that are no one program
        if leaves is not None:
            self._whole = LeafSteps(recipe, leaves, self._steps.scaler)
        elif isinstance(recipe.model, PipelineParallel):
            self._whole = PipelineSteps(recipe)
        self.snapshots = None if is_cut_twice(recipe.model) else Snapshots.of(recipe.ranks)
        self._validate = validate
        self._statistics, self._detect_nan = statistics, detect_nan
        self._metric: float | None = None  # of a validation after the last step

    # --- steps

    def rows(self, total: int | None, validate_every: int | None = None) -> Generator[Row]:
        """Takes the steps up to `total`, or as many as the data has; the metrics of each."""
        # Batches come from a thread, which must end when the steps do, whatever ends them.
        with closing(_endless(self.data, self.recipe.ranks)) as batches:
            while not self.is_over(total):
                epoch = self.data.epoch
                taken = [*islice(batches, self.recipe.accumulate)]
                if not taken:  # a run that went on from where the data ends now
                    return
                row = self.step(taken)
                self.epoch_ended = self.data.epoch > epoch
                row["epoch"] = epoch
                last = self.is_over(total)
                if self._validate is not None and (
                    last or is_time(self.record.steps, validate_every, self.epoch_ended)
                ):
                    row |= self.validated()
                yield row
                if self.snapshots is not None:
                    self.snapshots.step_ended(self.record.steps, self.state_dict, is_last=last)

    def is_over(self, total: int | None) -> bool:
        """Are `total` steps done, or has the data no more?"""
        return self.record.steps == total or self.data.ended

    def stop(self, why: str) -> None:
        """Ends the run after this step, with a checkpoint. On a mesh one rank's wish is enough."""
        self.record.stopped = self.record.stopped or why or "a callback"

    def step(self, batches: Sequence[Batch]) -> Row:
        """One step, of as many batches as are accumulated; its metrics."""
        start = time.perf_counter()
        self._metric = None
        rates = self.rates()
        runs: list[Mapping[str, Array]]
        if self._whole is not None:
            (batch,) = batches
            runs = [self._whole.run(batch, self.record.steps, rates)]
        else:
            runs = [self._run(batch, k, rates) for k, batch in enumerate(batches)]
        results, loss = runs[-1], sum(float(run["loss"]) for run in runs) / len(runs)
        if not math.isfinite(loss):
            self._warn(loss)
        if self.scheduler is not None and not isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step()
        self.record.steps += 1
        seconds = time.perf_counter() - start
        row: Row = {"step": self.record.steps, "loss": loss, "lr": rates[0]}
        if "grad_norm" in results:
            row["grad_norm"] = float(results["grad_norm"])
        # The names of the batches' own loss are taken; of more groups each has a rate of its own.
        row |= {f"lr.{k}": rate for k, rate in enumerate(rates) if k}
        firsts, parts = [batch[0] for batch in batches], self.recipe.ranks.parts
        samples = sum(map(rows_of, batches)) * parts
        row |= {"seconds": seconds, "samples_per_second": samples / seconds}
        # Integers in rows are ids of tokens; of other examples there is no such rate.
        if firsts[0].ndim > 1 and firsts[0].dtype.kind in "iu":
            row["tokens_per_second"] = sum(first.size for first in firsts) * parts / seconds
        return row | statistics_row(results)

    def _run(self, batch: Batch, k: int, rates: Sequence[float]) -> Results:
        """Batch `k` of a step."""
        number, every, count = self.record.steps, self._statistics, self.recipe.accumulate
        is_last = k == count - 1
        statistics = is_last and every is not None and (number + 1) % every == 0
        program = self._steps.program(batch, is_last=is_last, statistics=statistics)
        inputs = inputs_at(batch, number * count + k, rates if is_last else ())
        if not self._detect_nan:
            return program.executable(inputs)
        # States move on in a run, so what it began with has to be copied before.
        before = {held: np.array(held.numpy()) for held in program.assigned()}
        results = program.executable(inputs)
        if not (math.isfinite(results["loss"]) and all(map(_is_finite, before))):
            self._undo(program, inputs, before)
        return results

    def synchronize(self) -> None:
        """Brings what only other ranks have trained here: all ranks must ask, before the model is
        read.
        """
        if isinstance(self._whole, PipelineSteps):
            self._whole.synchronize()

    def rates(self) -> list[float]:
        """The learning rate of each of the optimizer's groups now."""
        groups = self.recipe.optimizer.param_groups
        if self.scheduler is None:
            return [float(group["lr"]) for group in groups]
        rates = self.scheduler.get_last_lr()
        if len(rates) != len(groups):
            raise InputError(
                f"fit: the scheduler has {len(rates)} rates, the optimizer {len(groups)} groups; "
                "make the scheduler with a list of one rate for each group"
            )
        return rates

    def validated(self) -> Row:
        """The metrics of a validation."""
        self.synchronize()
        if isinstance(self._validate, Batches | Stream):
            metrics = {"validation_loss": self._losses.mean(self._validate)}
        else:
            assert self._validate is not None
            metrics = _numbers(self._validate(self.recipe.model))
            # Rates and the choice of checkpoints follow from them, which must be those of all.
            metrics = self.recipe.ranks.agreed(metrics, "metrics of a validation")
        self._metric = metrics.get("validation_loss")
        if isinstance(self.scheduler, ReduceLROnPlateau):
            if self._metric is None:
                raise InputError(
                    "fit: ReduceLROnPlateau follows the validation_loss, but validate gave "
                    f"{', '.join(metrics) or 'nothing'}; give it that name too"
                )
            self.scheduler.step(self._metric)
        return metrics

    def _warn(self, loss: float) -> None:
        """Warns of a loss that is not finite, where the one before was."""
        history = self.record.history
        if self.recipe.ranks.is_first and (not history or math.isfinite(history[-1]["loss"])):
            warnings.warn(
                f"fit: the loss of step {self.record.steps + 1} is {loss}; detect_nan=True names "
                "the first operation that makes a NaN",
                stacklevel=4,
            )

    def _undo(
        self, program: Program, inputs: Mapping[str, Array], before: Mapping[Assignable, Array]
    ) -> None:
        """Puts back what was there before a step that is not finite, and raises NonFiniteError."""
        for held, value in before.items():
            held.set(value)
        graph = program.executable.graph
        used = {node.attrs.name: inputs[node.attrs.name] for node in graph.by_op()["Input"]}
        raise NonFiniteError(
            f"fit: step {self.record.steps + 1}: {first_nan(graph, used)}; the "
            "model is as it was before this step: look at its batch, lower the learning rate or "
            "give clip_norm"
        )

    # --- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of the run depends on; of what is cut over a mesh this rank's parts."""
        self.synchronize()
        optimizer = saved.state_dict(self.recipe.optimizer, value_or_piece)
        if isinstance(self._whole, PipelineSteps):
            optimizer["state"] = self._whole.of_all(optimizer["state"])
        return {
            "model": state_of(self.recipe.model),
            "besides": {name: value_or_piece(held) for name, held in self.besides().items()},
            "optimizer": optimizer,
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if self._steps.scaler is None else self._steps.scaler.state_dict(),
            "data": self.data.state_dict(),
            "seed": self.recipe.seed,
            "steps": self.record.steps,
            "callbacks": {name: c.state_dict() for name, c in by_name(self.callbacks).items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there. Raises InputError or LoadError for the state of another run; then a
        run of one rank has changed nothing.
        """
        recipe = self.recipe
        if state["seed"] != recipe.seed:
            raise InputError(
                f"fit: the checkpoint is of a run with seed {state['seed']}, this one has "
                f"{recipe.seed}; give the same seed, or resume=False"
            )
        if recipe.ranks.size > 1:  # to keep what was there would take its memory once more
            self._load(state)
            return
        # All or nothing: a state that fits half is put back as a whole.
        before = self.state_dict()
        try:
            self._load(state)
        except LuminalError:
            self._load(before)
            raise

    def _load(self, state: Mapping[str, Any]) -> None:
        self.data.load_state_dict(state["data"])
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self._steps.scaler is not None and state["scaler"] is not None:
            self._steps.scaler.load_state_dict(state["scaler"])
        load_model(self.recipe.model, state["model"])
        besides = state.get("besides", {})
        for name, held in self.besides().items():
            if name not in besides:
                raise LoadError(
                    f"fit: the checkpoint has no {name}; give the optimizer and the loss the "
                    "Parameters that they had, or resume=False"
                )
            held.set(besides[name])
        saved.load_state_dict(self.recipe.optimizer, state["optimizer"], self.recipe.ranks.hold)
        for name, callback in by_name(self.callbacks).items():
            if kept := state.get("callbacks", {}).get(name):
                callback.load_state_dict(kept)
        self.record.steps = state["steps"]

    def model_state(self) -> dict[str, Any]:
        """Copies of the model's Parameters and States by path; of what is cut this rank's parts."""
        self.synchronize()
        return {path: _copied(held) for path, held in state_of(self.recipe.model).items()}

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Sets what `model_state` gave, also where it comes from a checkpoint."""
        load_model(self.recipe.model, {path: _settable(path, x) for path, x in state.items()})

    def besides(self) -> dict[str, Assignable]:
        """What a run changes outside of the model: Parameters that the optimizer has from elsewhere
        (by their number there), running statistics of a loss that is a module.
        """
        recipe = self.recipe
        inside = {p for _, p in recipe.model.named_parameters(remove_duplicate=False)}
        besides: dict[str, Assignable] = {
            f"parameter {k} of the optimizer": p
            for k, p in enumerate(recipe.optimizer.parameters)
            if p not in inside
        }
        if isinstance(recipe.loss_fn, Module):
            buffers = recipe.loss_fn.named_buffers(remove_duplicate=False)
            besides |= {f"{path} of the loss": buffer for path, buffer in buffers}
        return besides

    def save(self, must: bool = True) -> None:
        """Writes a checkpoint, if there is a manager; where it need not be, an error warns."""
        if self.manager is None:
            return
        try:
            engine = self.recipe.ranks.together
            path = self.manager.save(self.record.steps, self.state_dict(), self._metric, engine)
            for callback in self.callbacks:
                callback.on_checkpoint(self, path)
        except InputError as error:
            if must:
                raise
            warnings.warn(f"{error}; training goes on", stacklevel=2)

    def resumed(self, plan: str = "", *, anew: bool = False) -> Record:
        """Goes on from the newest checkpoint, if there is one; the record of the run, of a `plan`.

        What ranks before these have left goes first, and is all that counts for a run that begins
        `anew`.
        """
        checkpoint = None if self.snapshots is None else self.snapshots.restore()
        if checkpoint is None and self.manager is not None and not anew:
            checkpoint = self.manager.restore(engine=self.recipe.ranks.together)
        if checkpoint is not None:
            self.load_state_dict(checkpoint.state)
        self.record.resumed, self.record.plan = self.record.steps, plan
        return self.record


def state_of(model: Module) -> dict[str, Array | Piece]:
    """A module's Parameters and all its States by path, also those that its files leave out; of
    what is cut over a mesh this rank's parts.
    """
    buffers = {
        path: value_or_piece(buffer) for path, buffer in model.named_buffers(remove_duplicate=False)
    }
    return model.state_by(value_or_piece) | buffers


def _copied(held: Array | Piece) -> Array | Piece:
    """A value, or a part of one, that steps do not change."""
    return replace(held, array=held.array.copy()) if isinstance(held, Piece) else held.copy()


def _settable(path: str, held: Any) -> Any:
    """What a Parameter can be set to: of a part that which is known of the whole."""
    whole = isinstance(held, Piece)
    return Stored(path, held.shape, [(held.start, held.array)]) if whole else held


def load_model(model: Module, state: Mapping[str, Any]) -> None:
    """Sets what `state_of` gave. Raises LoadError where names or shapes differ."""
    names = model.state_by(lambda held: held)
    model.load_state_dict({path: state[path] for path in names if path in state})
    for path, buffer in model.named_buffers(remove_duplicate=False):
        if path in state:
            buffer.set(state[path])


def _numbers(metrics: Any) -> dict[str, float]:
    """What a validation gave by name, as numbers of Python's."""
    if not isinstance(metrics, Mapping):
        raise InputError(f"fit: validate gave {metrics!r}; it must give numbers by name, as a dict")
    taken = [name for name in metrics if name in COLUMNS]
    if taken:
        raise InputError(f"fit: validate gave {taken[0]!r}, which is a name of the step's own")
    return {name: as_number(f"fit: validate: {name}", value) for name, value in metrics.items()}


def _endless(data: Batches | Stream, ranks: Ranks) -> Generator[Batch]:
    """This rank's part of the batches of epoch after epoch."""
    while not data.ended:
        yield from data.part(ranks.place, ranks.parts)


def is_time(step: int, every: int | None, epoch_ended: bool) -> bool:
    """Whether `every` so many steps is now; at the end of an epoch where that is not said."""
    return epoch_ended if every is None else step % every == 0


def _is_finite(held: Assignable) -> bool:
    return not held.dtype.is_float or bool(np.isfinite(held.numpy()).all())
