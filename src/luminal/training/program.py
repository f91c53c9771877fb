"""The step of a run as a program: forward, backward, clipping and update in one call.

Where a step takes several batches, all but the last run another program, without the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from luminal.base.dtypes import dtype_of, int64
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.frontend.handle import describe, is_tensor
from luminal.frontend.random import keyed as random
from luminal.frontend.random.keyed import keyed
from luminal.frontend.tensor import Tensor
from luminal.hlir.graph import Assign
from luminal.loaders.mapped import Array
from luminal.memory.state import Assignable
from luminal.nn.module import Module
from luminal.optim.optimizer import Optimizer
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.graph import Graph, compile
from luminal.training.accumulate import GradientAccumulator
from luminal.training.amp import AMPContext, GradScaler
from luminal.training.data import Batches
from luminal.training.form import Batch, form_of
from luminal.training.layers import noted_results
from luminal.training.ranks import ALONE, Ranks
from luminal.training.statistics import record_activations, record_gradients
from luminal.training.stream import Stream

LossFunction = Callable[..., Tensor]
"""From what the model gives and the batch's target, if it has one, to a scalar."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a step is made from; the fields are named as the arguments of `fit`."""

    model: Module
    loss_fn: LossFunction
    optimizer: Optimizer
    clip_norm: float | None = None
    amp: str | None = None
    accumulate: int = 1
    seed: int = 0
    mode: CompilationMode | str = "fast"
    backend: str | None = None
    memory_limit: int | str | None = None
    ranks: Ranks = ALONE

    def compiled(self, graph: Graph) -> Executable:
        """The program of a training step on this rank."""
        return compile(
            graph, self.backend, self.mode, memory_limit=self.memory_limit, mesh=self.ranks.mesh
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled step for batches of one shape."""

    executable: Executable

    def assigned(self) -> list[Assignable]:
        """What a run changes."""
        return [sink.state for sink in self.executable.graph.sinks if isinstance(sink, Assign)]


class Steps:
    """The programs of a run, compiled at the first batch of each shape.

    `scaler` is there for float16, whose gradients would vanish without it.
    """

    def __init__(self, recipe: Recipe) -> None:
        for k, group in enumerate(recipe.optimizer.param_groups):
            if is_tensor(group["lr"]):
                raise InputError(
                    f"fit: group {k} has the Tensor {describe(group['lr'])} as its lr; give a "
                    "number: fit makes it an input of its own graph, which a scheduler changes"
                )
        self._recipe = recipe
        self._programs: dict[Any, Program] = {}
        self.scaler = GradScaler() if recipe.amp == "float16" else None
        self._accumulator = None
        if recipe.accumulate > 1:
            self._accumulator = GradientAccumulator(
                recipe.optimizer, recipe.accumulate, self.scaler
            )

    def program(self, batch: Batch, *, is_last: bool = True, statistics: bool = False) -> Program:
        """The program for batches like this one, the last of a step or not."""
        key = (types_of(batch), is_last, statistics)
        if key not in self._programs:
            self._programs[key] = self._compiled(batch, is_last, statistics)
        return self._programs[key]

    def _compiled(self, batch: Batch, is_last: bool, statistics: bool) -> Program:
        return Program(self._recipe.compiled(self.recorded(batch, is_last, statistics)))

    def recorded(self, batch: Batch, is_last: bool = True, statistics: bool = False) -> Graph:
        """The graph of a step of such batches."""
        recipe = self._recipe
        graph = Graph("training step")
        tensors = inputs_of(graph, batch, recipe.ranks)
        number = graph.tensor((), int64, "step")
        # Dropout is a function of seed and step, so a run that was stopped draws what it would have
        # drawn.
        key = random.fold_in(random.key(graph, recipe.seed), number)
        with (
            in_mode(recipe.model, training=True), keyed(key), precision(recipe),
            noted_results(recipe.model, graph, statistics) as results,
        ):  # fmt: skip
            loss = form_of(batch).loss(recipe.model, recipe.loss_fn, tensors)
        loss.output("loss")
        if statistics:
            record_activations(results)
            record_gradients(recipe.optimizer.gradients(loss), recipe.model)
        if is_last:
            with rates_as_inputs(recipe.optimizer, graph):
                norm = self._record_update(loss)
            if norm is not None:
                norm.output("grad_norm")
        else:
            assert self._accumulator is not None
            self._accumulator.add(loss)
        return graph

    def _record_update(self, loss: Tensor) -> Tensor | None:
        recipe = self._recipe
        if self._accumulator is not None:
            return self._accumulator.step(loss, recipe.clip_norm)
        if self.scaler is not None:
            return self.scaler.step(recipe.optimizer, loss, recipe.clip_norm)
        return recipe.optimizer.step(loss, recipe.clip_norm)


class Losses:
    """The loss of a model in eval mode; programs are compiled at the first batch of each shape."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._programs: dict[Any, Executable] = {}

    def mean(self, data: Batches | Stream) -> float:
        """The mean over batches, each weighted by its number of examples."""
        total, count, ranks = 0.0, 0, self._recipe.ranks
        # The last batch may be smaller; a mean of means would count its examples more.
        for rows, batch in data.counted(ranks.place, ranks.parts):
            # One that does not divide is whole on every rank, which all compute the same then.
            is_cut = rows % ranks.parts == 0
            total += float(self._program(batch, is_cut)(named(batch))["loss"]) * rows
            count += rows
        if not count:
            raise InputError("fit: validate gave no batch; give what has one each time it is asked")
        return total / count

    def _program(self, batch: Batch, is_cut: bool) -> Executable:
        key = (types_of(batch), is_cut)
        if key not in self._programs:
            recipe = self._recipe
            graph = Graph("validation")
            tensors = inputs_of(graph, batch, recipe.ranks if is_cut else ALONE)
            with in_mode(recipe.model, training=False), precision(recipe):
                form_of(batch).loss(recipe.model, recipe.loss_fn, tensors).output("loss")
            self._programs[key] = compile(graph, recipe.backend, mesh=recipe.ranks.mesh)
        return self._programs[key]


def precision(recipe: Recipe) -> AMPContext:
    """What forward passes are recorded in."""
    return AMPContext(recipe.amp or "bfloat16", enabled=recipe.amp is not None)


def inputs_of(graph: Graph, batch: Batch, ranks: Ranks = ALONE) -> list[Tensor]:
    """An Input for every array of a batch, of which `batch` is this rank's part."""
    tensors = []
    for name, array in named(batch).items():
        rows = (len(array) * ranks.parts,) if array.ndim else ()
        x = graph.tensor((*rows, *array.shape[1:]), dtype_of(array), name)
        tensors.append(x.shard(ranks.axes) if ranks.axes and rows else x)
    return tensors


def inputs_at(batch: Batch, number: int, rates: Sequence[float]) -> dict[str, Array]:
    """What step `number` reads: the batch, the number, and the rate of each group."""
    named_rates = {f"lr.{k}": np.array(rate, np.float32) for k, rate in enumerate(rates)}
    return {**named(batch), "step": np.array(number), **named_rates}


def named(batch: Batch) -> dict[str, Array]:
    """The arrays of a batch by the names of their Inputs."""
    return {f"batch.{k}": array for k, array in enumerate(batch)}


def types_of(batch: Batch) -> tuple[Any, ...]:
    """The form of a batch, and its arrays' shapes and dtypes."""
    return form_of(batch), *((array.shape, array.dtype) for array in batch)


# Schedules stay plain numbers that know neither the graph nor the optimizer, and a new rate
# compiles nothing.
@contextmanager
def rates_as_inputs(optimizer: Optimizer, graph: Graph) -> Iterator[None]:
    """Inside the block the learning rates of an optimizer's groups are Inputs `lr.0`, `lr.1` ..."""
    before = [group["lr"] for group in optimizer.param_groups]
    for k, group in enumerate(optimizer.param_groups):
        group["lr"] = graph.tensor((), name=f"lr.{k}")
    try:
        yield
    finally:
        for group, lr in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = lr


@contextmanager
def in_mode(model: Module, *, training: bool) -> Iterator[None]:
    """Inside the block the model is in training mode, or it and all modules below in eval mode.

    One in training mode stays as it is: modules below may be held in eval mode.
    """
    before = [(module, module.training) for module in model.modules()]
    if not (training and model.training):
        model.train(training)
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
