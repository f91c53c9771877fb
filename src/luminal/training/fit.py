"""`fit`: a model, a loss, data and an optimizer to a trained model and a record of how it went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from luminal.base.errors import InputError
from luminal.base.generator import checked_seed
from luminal.base.near_names import suggesting
from luminal.distribute.mesh import EXPERT, Mesh
from luminal.nn.module import Module
from luminal.optim.lr_scheduler import ReduceLROnPlateau
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import BOUND, COUNT, check
from luminal.search.options import CompilationMode
from luminal.session.parallel import Plan
from luminal.session.pipeline import PipelineParallel
from luminal.training.callbacks import Callback, as_callbacks
from luminal.training.checkpoint import CheckpointManager
from luminal.training.data import Batches
from luminal.training.interrupt import Interrupt, noticed_interrupts
from luminal.training.leaves import check_leaves
from luminal.training.metrics import MetricsLog, Row
from luminal.training.pipeline import check_pipeline, is_cut_twice, ranks_of
from luminal.training.plan import decided
from luminal.training.plot import check_plot
from luminal.training.program import LossFunction, Recipe
from luminal.training.progress import display
from luminal.training.ranks import Ranks
from luminal.training.snapshots import check_count
from luminal.training.stream import Source, Stream
from luminal.training.trainer import Record, Scheduler, Trainer, Validation, is_time

CALLABLE: Any = Callable
Validate = Batches | Iterable[Any] | Callable[[Module], Any]
Callbacks = Callback | Callable[[Trainer, Row], Any] | Sequence[Any]


@suggesting
def fit(
    model: Module,
    loss_fn: LossFunction,
    data: Batches | Source,
    optimizer: Optimizer,
    *,
    epochs: int = 1,
    steps: int | None = None,
    scheduler: Scheduler | None = None,
    clip_norm: float | None = None,
    amp: str | None = None,
    accumulate: int = 1,
    validate: Validate | None = None,
    validate_every: int | None = None,
    checkpoint: str | Path | CheckpointManager | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    seed: int = 0,
    mode: CompilationMode | str = "fast",
    backend: str | None = None,
    memory_limit: int | str | None = None,
    log: str | Path | None = None,
    plot: str | Path | None = None,
    statistics: int | None = None,
    detect_nan: bool = False,
    callbacks: Callbacks | None = None,
    progress: bool = True,
    mesh: Mesh | None = None,
    plan: Plan | None = None,
    leaves: int | None = None,
) -> Record:
    """Trains `model` in place: a step is one call of a program that the first batch compiles.

    Steps are in training mode; modules that alone are in eval mode are held there.

    `data`: Batches, or anything that gives batches: a DataLoader, a list, a generator (of one
    epoch), a function that is called for each epoch. A batch is a tuple of arrays or of PyTorch's
    tensors, with the loss `loss_fn(model(*batch[:-1]), batch[-1])`, a scalar; or a dict, whose
    "labels" or "target" go to the loss and whose others are the model's arguments by name; or one
    array, with the loss `loss_fn(model(x))`.
    `epochs` counts passes over `data`, unless `steps` says how many steps to take in all.
    `scheduler` is stepped after each step (ReduceLROnPlateau after each validation, with its loss),
    and its rates are inputs of the program; without one they are those of the optimizer's groups.
    `clip_norm` bounds the norm of all gradients together (math.inf only reports it). `amp`:
    products in "bfloat16" or "float16", the latter with scaled losses; Parameters stay as they are.
    `accumulate` so many batches make a step, of the mean of their gradients: a call for each.
    `memory_limit`: bytes or "200MB", what a step may hold besides the model; see `lm.compile`.
    `backend`: the device; by default that of `lm.device`.

    `validate`: Batches or another source, whose mean loss in eval mode is the `validation_loss`, or
    a function of the model that gives numbers by name; every `validate_every` steps, or each epoch.
    `checkpoint`: a folder or a CheckpointManager; written every `checkpoint_every` steps or each
    epoch, at the end, and when Ctrl-C is pressed. With `resume` a run goes on from the newest: it
    ends in the same bits as one that was never stopped. `seed` is that of dropout; the order of
    batches follows from the seed of `data`, first values from `lm.manual_seed`.

    `callbacks`: a `training.Callback`, a function of the run and the row of a step, or several:
    `EarlyStopping`, `TensorBoard`, `WandB`. `log`: a file of metrics, a JSON object a step; `plot`:
    a picture of the losses, .svg or .html.
    `statistics`: every so many steps the row has those of each layer's result and each gradient.
    `detect_nan` keeps the values from before each step, and where the loss or a new value is not
    finite raises NonFiniteError, which names the first operation that made a NaN and its layer; the
    model is then as it was before that step.

    `mesh`: all ranks of an `lm.Mesh` call this alike and train one model together. Each loads and
    computes its rows of every batch, losses and norms are those of whole batches, and the first
    rank shows and logs. `plan`: how the model is cut, as for `lm.shard`: "data" by default, which
    cuts batches only, "zero1", "zero3", "tensor", "tensor+zero1", specs by patterns; a model that
    `lm.shard` has cut stays so; "auto" takes the plan, and without a mesh the mesh of all ranks,
    that the step is predicted to be fastest by within a rank's memory (`record.plan` says why,
    `lm.distributed.Auto` sets that memory). Batches must divide by the ranks. Each rank writes its
    parts of a checkpoint, from which any other mesh goes on. A `PipelineParallel` has its own.

    `leaves`: a power of two. Batches are cut into so many, whose gradients are added as one tree:
    the bits of a run are then the same on any number of ranks that divides them, and on one. For
    losses that are means of rows, as with `accumulate`, whose place it takes.
    """
    check(
        "fit", COUNT, epochs=epochs, steps=steps, accumulate=accumulate,
        validate_every=validate_every, checkpoint_every=checkpoint_every, statistics=statistics,
        leaves=leaves,
    )  # fmt: skip
    check("fit", BOUND, clip_norm=clip_norm)
    _check_kinds(model, data, optimizer, scheduler, validate, checkpoint, plot)
    _check_needed(validate_every, validate, checkpoint_every, checkpoint)
    source = _source(data, accumulate, epochs if steps is None else None)
    recipe = Recipe(
        model, loss_fn, optimizer, clip_norm, amp, accumulate, checked_seed("fit", seed), mode,
        backend, memory_limit,
    )  # fmt: skip
    mesh, plan, why = decided(plan, recipe, source, mesh, leaves)
    counts = epochs, steps, validate_every, checkpoint_every
    ranks = _joined(mesh, plan, recipe, source, leaves, statistics, detect_nan, counts)
    manager = CheckpointManager(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
    trainer = Trainer(
        replace(recipe, ranks=ranks), source, scheduler, _validation(validate), manager,
        statistics=statistics, detect_nan=detect_nan, leaves=leaves,
        callbacks=as_callbacks(callbacks),
    )  # fmt: skip
    ranks.cut(model, plan, trainer.besides())
    total = steps or source.steps_in(epochs, accumulate)
    record = trainer.resumed(why, anew=not resume)
    _take_steps(trainer, total, validate_every, checkpoint_every, log, progress)
    if plot is not None and record.history and ranks.is_first:
        record.plot(plot)
    return record


def _source(data: Batches | Source, accumulate: int, epochs: int | None) -> Batches | Stream:
    """Batches as they are, all else that gives some as a Stream."""
    return data if isinstance(data, Batches) else Stream(data, accumulate, epochs)


def _validation(validate: Validate | None) -> Validation | None:
    """What a Trainer takes; InputError for what gives its batches once."""
    if isinstance(validate, Batches) or not isinstance(validate, Iterable):
        return validate
    stream = Stream(validate, name="validate")
    stream.check_again()
    return stream


def _joined(
    mesh: Mesh | None, plan: Plan | None, recipe: Recipe, data: Batches | Stream,
    leaves: int | None, statistics: int | None, detect_nan: bool, counts: tuple[int | None, ...],
) -> Ranks:  # fmt: skip
    """This rank among all. Raises InputError for what several cannot do together, and
    CollectiveError where they call `fit` with other numbers.
    """
    if isinstance(recipe.model, PipelineParallel):
        _check_pipeline(recipe, mesh, plan, leaves, statistics, detect_nan)
        ranks = ranks_of(recipe.model)
        data.join(ranks)
        data.check_parts(ranks.parts * recipe.model.microbatches, "the microbatches")
    else:
        ranks = Ranks.of(mesh, plan, recipe.model)
        data.join(ranks)
        check_count(ranks, data.parts_at_most(leaves))
    if detect_nan and ranks.size > 1:
        raise InputError(
            "fit: detect_nan=True computes a step again on one rank, and the mesh has "
            f"{ranks.size}; run the same seed and batches without mesh= to look for a NaN"
        )
    axes = " and ".join(map(repr, ranks.axes))
    data.check_parts(ranks.parts, f"the ranks of mesh axis {axes}")
    _check_leaves(leaves, ranks, plan, data, recipe.accumulate, statistics, detect_nan)
    epochs, steps, validate_every, checkpoint_every = counts
    ranks.check_alike(
        recipe.optimizer, data, epochs=epochs, steps=steps, clip_norm=recipe.clip_norm,
        amp=recipe.amp, accumulate=recipe.accumulate, seed=recipe.seed, leaves=leaves,
        statistics=statistics, validate_every=validate_every, checkpoint_every=checkpoint_every,
    )  # fmt: skip
    return ranks


def _check_pipeline(
    recipe: Recipe, mesh: Mesh | None, plan: Any, leaves: int | None, statistics: int | None,
    detect_nan: bool,
) -> None:  # fmt: skip
    """InputError for what does not go with a pipeline."""
    check_pipeline(recipe)
    for name, is_asked in (
        ("mesh", mesh is not None), ("plan", plan is not None), ("leaves", leaves is not None),
        ("statistics", statistics is not None), ("detect_nan", detect_nan),
    ):  # fmt: skip
        if is_asked:
            has = name in ("mesh", "plan")
            fix = f"give PipelineParallel its {name}" if has else "leave it out"
            raise InputError(f"fit: {name} does not go with a PipelineParallel; {fix}")


def _check_leaves(
    leaves: int | None, ranks: Ranks, plan: Any, data: Batches | Stream, accumulate: int,
    statistics: int | None, detect_nan: bool,
) -> None:  # fmt: skip
    """InputError for what does not go with leaves."""
    if leaves is None:
        return
    is_cut_elsewhere = plan is not None and (
        not isinstance(plan, str) or "tensor" in plan or EXPERT in ranks.axes
    )
    check_leaves(leaves, ranks, is_cut_elsewhere)
    data.check_parts(leaves, "the leaves")
    for name, wanted in (
        ("accumulate", accumulate > 1), ("statistics", statistics), ("detect_nan", detect_nan),
    ):  # fmt: skip
        if wanted:
            raise InputError(
                f"fit: {name} sees whole batches, and leaves= cuts them; leave one out"
            )


def _take_steps(
    trainer: Trainer, total: int | None, validate_every: int | None, checkpoint_every: int | None,
    log: str | Path | None, progress: bool,
) -> None:  # fmt: skip
    """Trains to the end, to Ctrl-C or to where a callback ends it; notes, shows and saves what
    comes out.
    """
    record, ranks = trainer.record, trainer.recipe.ranks
    if log is None and trainer.snapshots is not None:
        log = trainer.snapshots.log  # other ranks that go on have the rows of these, too
    rows = MetricsLog(log, record.steps) if log is not None and ranks.is_first else None
    record.history = rows.rows if rows is not None else []
    if log is not None and not ranks.is_first:
        record.history = ranks.agreed(None, "rows of the log")
    elif log is not None:
        ranks.agreed(record.history, "rows of the log")
    shown = display(total, record.steps, progress and ranks.is_first)
    # Of a stream `total` is what it says of itself; it ends where it ends.
    last = None if isinstance(trainer.data, Stream) and trainer.data.counts_epochs else total
    with (
        noticed_interrupts() as interrupt, _closed(rows), closing(shown), _told(trainer),
        closing(trainer.rows(last, validate_every)) as taken,
    ):  # fmt: skip
        # A callback of a run that goes on may have ended it.
        is_ended = _is_ended(trainer, interrupt)
        for row in () if is_ended else taken:
            for callback in trainer.callbacks:
                callback.on_step(trainer, row)
                if trainer.epoch_ended:
                    callback.on_epoch(trainer, row)
            if rows is not None:
                rows.add(row)
            else:
                record.history.append(row)
            shown.show(row)
            is_ended = _is_ended(trainer, interrupt)
            is_over = is_ended or trainer.is_over(last)
            if is_over or is_time(record.steps, checkpoint_every, trainer.epoch_ended):
                trainer.save(must=is_over)
            if is_ended:
                break
    trainer.synchronize()


def _is_ended(trainer: Trainer, interrupt: Interrupt) -> bool:
    """Did Ctrl-C or a callback end the run? All ranks must ask."""
    # Signals reach ranks between different steps, and all must end after the same one.
    record, ranks = trainer.record, trainer.recipe.ranks
    pressed = "Ctrl-C" if interrupt.requested else ""
    why = ranks.said(pressed or record.stopped, "does the run end")
    record.interrupted = why == "Ctrl-C"
    record.stopped = "" if record.interrupted else why
    return bool(why)


@contextmanager
def _told(trainer: Trainer) -> Iterator[None]:
    """Tells callbacks of begin and end."""
    for callback in trainer.callbacks:
        callback.on_begin(trainer)
    try:
        yield
    finally:
        for callback in trainer.callbacks:
            callback.on_end(trainer)


def _check_kinds(
    model: Any, data: Any, optimizer: Any, scheduler: Any, validate: Any, checkpoint: Any,
    plot: Any,
) -> None:  # fmt: skip
    """Raises InputError for an argument that is something else than `fit` takes."""
    _check_kind("model", model, Module, "an nn.Module")
    source = "Batches(dataset, size), or what gives batches: a DataLoader, a list, a function"
    is_none = isinstance(data, str | bytes | Mapping | Module)
    _check_kind("data", data, Batches if is_none else Batches | Iterable | CALLABLE, source)
    _check_kind("optimizer", optimizer, Optimizer, "one of luminal.optim")
    _check_kind("scheduler", scheduler, Scheduler | None, "one of optim.lr_scheduler, or None")
    batches = "Batches, what gives batches, or a function"
    _check_kind("validate", validate, Batches | Iterable | CALLABLE | None, batches)
    if plot is not None:
        check_plot(plot)  # before the steps, not after
    _check_kind("checkpoint", checkpoint, str | Path | CheckpointManager | None, "a folder")
    if is_cut_twice(model) and checkpoint is not None:
        raise InputError(
            f"fit: checkpoint: the mesh has the axes {', '.join(model.mesh.names)}, and a pipeline "
            'is only saved on one of "pipe" alone; leave checkpoint or the other axes out'
        )
    if isinstance(scheduler, ReduceLROnPlateau) and validate is None:
        raise InputError("fit: ReduceLROnPlateau follows the validation loss; give validate=")


def _check_needed(
    validate_every: int | None, validate: object, checkpoint_every: int | None, checkpoint: object
) -> None:
    for name, every, needs, needed in (
        ("validate_every", validate_every, "validate", validate),
        ("checkpoint_every", checkpoint_every, "checkpoint", checkpoint),
    ):
        if every is not None and needed is None:
            raise InputError(f"fit: {name}={every}, but there is no {needs}; give both")


def _check_kind(name: str, value: Any, kind: Any, words: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"fit: {name} is a {type(value).__name__}; it must be {words}")


@contextmanager
def _closed(log: MetricsLog | None) -> Iterator[None]:
    try:
        yield
    finally:
        if log is not None:
            log.close()
