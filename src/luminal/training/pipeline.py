"""A training step whose layers lie on several ranks: microbatches run through them one behind the
other, their gradients are added in order, and each rank updates its own Parameters.

What one rank would compute that accumulates the same microbatches is computed here, bit by bit. Of
a Parameter that several stages read (tied embeddings) each stage adds its own gradients, and these
sums are added behind all microbatches, that of the last stage first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeGuard

import numpy as np

from luminal.base.dtypes import float32, int64
from luminal.base.errors import InputError
from luminal.base.generator import checked_seed
from luminal.base.records import dataclass
from luminal.distribute.pipeline.cut import Microbatch
from luminal.distribute.pipeline.pieces import Key
from luminal.distribute.pipeline.schedule import Piece, Schedule
from luminal.distribute.pipeline.simulate import Span, Timeline, simulated
from luminal.frontend.handle import work_dtype
from luminal.frontend.random import keyed as random
from luminal.frontend.random.keyed import keyed
from luminal.hlir.graph import Assign, Builder, Output, Sink
from luminal.hlir.graph import Graph as Frozen
from luminal.loaders.mapped import Array
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.nn.module import Module
from luminal.optim.clip import scaled_to_norm
from luminal.optim.optimizer import Optimizer
from luminal.optim.ranges import BOUND, check
from luminal.runtime.executable import Executable
from luminal.runtime.pipelined import Channel, Running, channels
from luminal.session.graph import Graph, compile
from luminal.session.pipeline import PipelineParallel, Staged, staged
from luminal.training.form import Batch, form_of, split
from luminal.training.program import (
    LossFunction,
    Recipe,
    in_mode,
    inputs_of,
    named,
    precision,
    rates_as_inputs,
    types_of,
)
from luminal.training.ranks import Ranks

LOSS = "loss"


class PipelineSteps:
    """The steps of a recipe whose model is a `PipelineParallel`; programs are compiled at the first
    batch of each shape. All ranks must call it alike.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        assert isinstance(recipe.model, PipelineParallel)
        self.model = recipe.model
        self._programs: dict[Any, _Programs] = {}
        self._sums: dict[tuple[Parameter, int], State] = {}
        self._last: _Programs | None = None
        self.owned: dict[Assignable, int] = {}
        """The stage of each Parameter and State that a step changes, the first of several."""

    def run(self, batch: Batch, number: int, rates: Sequence[float]) -> dict[str, Array]:
        """Step `number` on this rank's rows: the loss and, with `clip_norm`, the norm of the
        gradient of the whole batch.
        """
        programs = self._of(batch)
        results = programs.run(_microbatches(batch, self.model.microbatches), number, rates)
        self._last = programs
        return results

    @property
    def staged(self) -> Staged:
        """How the last step was cut, and its plan."""
        return self._run.staged

    @property
    def _run(self) -> _Programs:
        if self._last is None:
            raise InputError("PipelineStep: there was no step yet; take one first")
        return self._last

    def timeline(self) -> Timeline:
        """When each rank ran each piece of the last step, the update's left out. All ranks must
        ask.
        """
        pipe, last = self.model.place.pipe, self._run
        pipe.barrier("the clocks of ranks")
        now = time.perf_counter()
        rows = [(*span.piece, span.start - now, span.end - now) for span in last.spans]
        told = [json.loads(text) for text in pipe.exchange(json.dumps(rows).encode(), "times")]
        spans = [
            Span(rank, Piece(kind, stage, batch), start, end)
            for rank, of_rank in enumerate(told)
            for kind, stage, batch, start, end in of_rank
        ]
        begin = min(span.start for span in spans)
        moved = tuple(Span(s.rank, s.piece, s.start - begin, s.end - begin) for s in spans)
        return Timeline(pipe.size, moved)

    def simulated(self, measured: Timeline, message: float = 0.0) -> Timeline:
        """The timeline of the plan whose pieces take what they took in a measured one."""
        times = {span.piece: span.end - span.start for span in measured.spans}
        return simulated(self.staged.plan, lambda piece: times.get(piece, 0.0), message)

    def synchronize(self) -> None:
        """Brings what other ranks have updated here: all ranks must ask, before the whole model is
        read, saved or run.
        """
        pipe = self.model.place.pipe
        for held, stage in self.owned.items():
            holder = holder_of(held)
            value = np.ascontiguousarray(holder.numpy())
            target = np.empty_like(value)
            pipe.run("broadcast", value.reshape(-1), target.reshape(-1),
                     label=f"the value of {held.name}", root=stage % pipe.size)  # fmt: skip
            if stage % pipe.size != pipe.rank:
                holder.set(target.reshape(holder.shape))

    def of_all(self, state: Mapping[int, Any]) -> dict[int, Any]:
        """What each rank along the pipe knows of its Parameters' moments, by number, on all ranks;
        all must ask.
        """
        pipe = self.model.place.pipe
        numbers = dict(enumerate(self._recipe.optimizer.parameters))
        out: dict[int, Any] = {}
        for rank in range(pipe.size):
            mine = {k: entry for k, entry in state.items()
                    if self.owned.get(numbers[k], rank) % pipe.size == pipe.rank}  # fmt: skip
            out |= pipe.broadcast_object(mine, "moments of Parameters", root=rank)
        return dict(sorted(out.items()))

    def _of(self, batch: Batch) -> _Programs:
        key = types_of(batch)
        if key not in self._programs:
            micro = _microbatches(batch, self.model.microbatches)[0]
            self._programs[key] = self._compiled(micro)
        return self._programs[key]

    # --- recording and compiling

    def _compiled(self, micro: Batch) -> _Programs:
        recipe, place = self._recipe, self.model.place
        step, parameters = _recorded(recipe, micro)
        division = staged(self.model, step, recipe.backend)
        self._check_ranks(division)
        here = {s for s in range(self.model.stages) if s % place.pipe.size == place.pipe.rank}
        sums = {
            (p, s): self._sum_of(p, s)
            for name, p in parameters.items()
            for s in division.pieces.gradients[name]
            if s in here
        }
        options = {"backend": recipe.backend, "mode": recipe.mode}
        run = {}
        for key, piece in division.graphs.items():
            if key[1] in here:
                graph = _adding(piece.graph, {n: sums[p, key[1]] for n, p in parameters.items()
                                              if (p, key[1]) in sums})  # fmt: skip
                run[key] = division.compiled(key, graph, **options)
        self._note_owners(division, parameters, step)
        update = _Update(recipe, division, parameters, sums, options)
        shapes = {name: division.shape_of(name) for name in division.pieces.names}
        pairs = {*_ways(division), *update.ways}
        return _Programs(division, run, update, shapes, channels(place.pipe, pairs), recipe.model)

    def _check_ranks(self, division: Staged) -> None:
        """All ranks must have cut alike: Raises CollectiveError where one has not."""
        lines = [f"{key}: {piece.takes} -> {piece.gives}" for key, piece in division.graphs.items()]
        text = "\n".join([str(division.plan.schedule), *lines])
        self.model.place.pipe.check_same(text, "the stages of the model")

    def _sum_of(self, p: Parameter, stage: int) -> State:
        if (p, stage) not in self._sums:
            self._sums[p, stage] = sum_of(p, stage)
        return self._sums[p, stage]

    def _note_owners(
        self, division: Staged, parameters: Mapping[str, Parameter], step: Microbatch
    ) -> None:
        for name, p in parameters.items():
            self.owned[p] = division.pieces.gradients[name][-1]
        for sink in step.graph.sinks:
            if isinstance(sink, Assign):
                for (_, stage), piece in division.graphs.items():
                    if any(isinstance(s, Assign) and s.state is sink.state
                           for s in piece.graph.sinks):  # fmt: skip
                        self.owned[sink.state] = stage


class PipelineStep:
    """One step after another of a `PipelineParallel`: `step(x, y)` takes this rank's rows of a
    batch, which all ranks along "pipe" give alike, and gives the loss of the whole.

    `loss_fn` and `clip_norm` as for `fit`; rates are those of the optimizer's groups.
    """

    def __init__(
        self,
        model: PipelineParallel,
        loss_fn: LossFunction,
        optimizer: Optimizer,
        clip_norm: float | None = None,
        *,
        amp: str | None = None,
        seed: int = 0,
        backend: str | None = None,
    ) -> None:
        if not isinstance(model, PipelineParallel):
            raise InputError(
                f"PipelineStep: got a {type(model).__name__}; give lm.distributed.PipelineParallel"
                "(model, backend)"
            )
        check("PipelineStep", BOUND, clip_norm=clip_norm)
        recipe = Recipe(
            model, loss_fn, optimizer, clip_norm, amp,
            seed=checked_seed("PipelineStep", seed), backend=backend, ranks=ranks_of(model),
        )  # fmt: skip
        check_pipeline(recipe)
        self._steps, self._number, self._optimizer = PipelineSteps(recipe), 0, optimizer
        self.grad_norm: float | None = None
        """The norm of the last step's gradients before they were clipped."""

    def __call__(self, *arrays: Any) -> float:
        """Takes a step; raises InputError where the rows do not divide into microbatches."""
        batch = tuple(np.asarray(array) for array in arrays)
        rates = [float(group["lr"]) for group in self._optimizer.param_groups]
        results = self._steps.run(batch, self._number, rates)
        self._number += 1
        if "grad_norm" in results:
            self.grad_norm = float(results["grad_norm"])
        return float(results[LOSS])

    @property
    def schedule(self) -> Schedule:
        """What each rank runs, in order; known after the first step."""
        return self._steps.staged.plan.schedule

    def timeline(self) -> Timeline:
        """When each rank ran each piece of the last step; `idle` is the share of time without. All
        ranks must ask.
        """
        return self._steps.timeline()

    def simulated(self, measured: Timeline, message: float = 0.0) -> Timeline:
        """What the last step would be if each piece took its time of a measured timeline, messages
        `message` seconds, and nothing else any.
        """
        return self._steps.simulated(measured, message)

    def synchronize(self) -> None:
        """Brings what other ranks have updated here: all ranks must ask, before the whole model is
        read, saved or run.
        """
        self._steps.synchronize()


def ranks_of(model: PipelineParallel) -> Ranks:
    """This rank as `fit` sees it: its rows are those of its place along the mesh axis "data"."""
    axes = ("data",) if "data" in model.mesh.names else ()
    return Ranks.along(axes, model.mesh, model.engine)


def check_pipeline(recipe: Recipe) -> None:
    """Raises InputError for what a pipeline does not have."""
    for name, is_asked in (
        ("accumulate", recipe.accumulate > 1),
        ('amp="float16"', recipe.amp == "float16"),
        ("memory_limit", recipe.memory_limit is not None),
    ):
        if is_asked:
            fix = {"accumulate": "give microbatches= instead"}.get(name, "leave it out")
            raise InputError(f"{name}: a PipelineParallel has none; {fix}")


def is_cut_twice(model: Module) -> TypeGuard[PipelineParallel]:
    """Is it a pipeline whose stages are cut over more mesh axes? What ranks hold of it is not saved
    together.
    """
    return isinstance(model, PipelineParallel) and bool(model.place.mesh)


def _microbatches(batch: Batch, count: int) -> list[Batch]:
    """The parts of a batch, in order."""
    rows = {len(array) for array in batch if array.ndim}
    if len(rows) != 1:
        shapes = ", ".join(str(array.shape) for array in batch)
        raise InputError(
            f"PipelineParallel: a batch of arrays {shapes}; give each as many rows as the others"
        )
    for n in rows:
        if n % count or not n:
            raise InputError(
                f"PipelineParallel: a batch of {n} rows does not divide into {count} microbatches; "
                f"give {-(-max(n, 1) // count) * count} rows, or another number of microbatches"
            )
    return split(batch, count)


def _recorded(recipe: Recipe, micro: Batch) -> tuple[Microbatch, dict[str, Parameter]]:
    """The step of one microbatch, and the Parameter of each of its gradients."""
    graph = Graph("a microbatch")
    tensors = inputs_of(graph, micro, recipe.ranks)
    number, place = (graph.tensor((), int64, name) for name in ("step", "microbatch"))
    key = random.fold_in(random.fold_in(random.key(graph, recipe.seed), number), place)
    with in_mode(recipe.model, training=True), keyed(key), precision(recipe):
        loss = form_of(micro).loss(recipe.model, recipe.loss_fn, tensors)
    gradients = recipe.optimizer.gradients(loss)
    loss.output(LOSS)
    parameters = {}
    for k, (p, gradient) in enumerate(gradients.items()):
        gradient.cast(work_dtype(p.dtype)).output(f"gradient.{k}")
        parameters[f"gradient.{k}"] = p
    step = Microbatch(graph.graph(), LOSS, tuple(parameters), [*graph.builder], graph.pulled)
    return step, parameters


def _adding(graph: Frozen, sums: Mapping[str, State]) -> Frozen:
    """A piece whose gradients are added to their sums."""
    builder, sinks = Builder(), list[Sink]()
    for sink in graph.sinks:
        if isinstance(sink, Output) and sink.name in sums:
            held = builder.state(sums[sink.name])
            sinks.append(Assign(sums[sink.name], builder.apply("Add", held, sink.value)))
        else:
            sinks.append(sink)
    return Frozen(tuple(sinks), graph.dims, graph.requirements)


def _ways(division: Staged) -> Iterator[tuple[int, int]]:
    """The pairs of ranks between which something is sent."""
    schedule = division.plan.schedule
    for _, source, target in division.pieces.messages:
        ends = schedule.rank_of(source), schedule.rank_of(target)
        if ends[0] != ends[1]:
            yield ends


@dataclass(slots=True)
class _Programs:
    """What this rank runs for batches of one shape."""

    staged: Staged
    run_: Mapping[Key, Executable]
    update: _Update
    shapes: Mapping[str, Any]
    channels: Mapping[tuple[int, int], Channel]
    model: Any
    running: Any = None
    spans: Sequence[Span] = ()

    def run(
        self, batches: Sequence[Batch], number: int, rates: Sequence[float]
    ) -> dict[str, Array]:
        """A step of all ranks together: the loss, and the norm if it was asked for."""
        pipe, division = self.model.place.pipe, self.staged
        if self.running is None:
            self.running = Running(
                division.plan, pipe.rank, {}, {k: p.takes for k, p in division.graphs.items()},
                division.pieces.messages, division.pieces.used_until, self.shapes, self.channels,
            )  # fmt: skip
        inputs_ = [
            {**named(batch), "step": np.array(number), "microbatch": np.array(i)}
            for i, batch in enumerate(batches)
        ]
        self.running.run = {key: _caller(exe, inputs_) for key, exe in self.run_.items()}
        is_first = self.running.first
        results, self.spans = self.running.step()
        out = {LOSS: self._mean_loss(results.get(LOSS, []))}
        return out | self.update.run(self.channels, rates, is_first)

    def _mean_loss(self, losses: Sequence[Array]) -> Array:
        pipe, count = self.model.place.pipe, self.model.microbatches
        mean = np.zeros(1, np.float32)
        root = self.staged.pieces.loss
        if losses:
            total = reduce(np.add, [np.float32(loss) for loss in losses])
            mean[0] = total * (np.float32(1) / np.float32(count))
        out = np.empty_like(mean)
        pipe.run("broadcast", mean, out, label="the loss", root=root % pipe.size)
        return out.reshape(())


def _caller(
    exe: Executable, inputs_: Sequence[Mapping[str, Array]]
) -> Callable[[Mapping[str, Array], int], Mapping[str, Array]]:
    def call(taken: Mapping[str, Array], microbatch: int) -> Mapping[str, Array]:
        inputs = {**inputs_[microbatch], **taken}
        return exe({name: inputs[name] for name in exe.input_names})

    return call


class _Update:
    """The update of this rank's Parameters by the sums of their gradients."""

    def __init__(
        self, recipe: Recipe, division: Staged, parameters: Mapping[str, Parameter],
        sums: Mapping[tuple[Parameter, int], State], options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._recipe, self._division, self._sums = recipe, division, sums
        self._stages = {p: division.pieces.gradients[name] for name, p in parameters.items()}
        self._holders = {p: {*stages} for p, stages in self._stages.items()}
        for (_, stage), piece in division.graphs.items():
            for node in piece.graph.by_op().get("Weight", ()):
                if node.attrs.parameter in self._holders:
                    self._holders[node.attrs.parameter].add(stage)
        self._parameters = [*self._stages]
        works = (work_dtype(p.dtype) for p in self._parameters)
        self._work = max(works, key=lambda dtype: dtype.size, default=float32)  # of a norm
        self._others: dict[tuple[Parameter, int], State] = {}  # sums of other ranks' stages
        schedule = division.plan.schedule
        self._rank_of, self._pipe = schedule.rank_of, division.place.pipe
        self._own = [p for p in self._parameters if self._holds(p, self._pipe.rank)]
        self._norm = self._update = None
        if self._own:
            if recipe.clip_norm is not None:
                self._norm = self._compiled(self._record_powers, options)
            self._update = self._compiled(self._record_update, options)

    def _holds(self, p: Parameter, rank: int) -> bool:
        return any(self._rank_of(stage) == rank for stage in self._holders[p])

    @property
    def ways(self) -> list[tuple[int, int]]:
        """The pairs of ranks between which sums are sent: those that share a Parameter."""
        return [(source, target) for _, _, source, target in self._shared()]

    def _shared(self) -> Iterator[tuple[Parameter, int, int, int]]:
        """The Parameters of several ranks: whose stage's sum is sent from where to where."""
        for p in self._parameters:
            ranks = {self._rank_of(stage) for stage in self._holders[p]}
            for stage in self._stages[p]:
                for rank in sorted(ranks - {self._rank_of(stage)}):
                    yield p, stage, self._rank_of(stage), rank

    def run(
        self, channels_: Mapping[tuple[int, int], Channel], rates: Sequence[float], first: bool
    ) -> dict[str, Array]:
        """Updates; the norm of all gradients, if it was asked for."""
        self._exchange(channels_, first)
        inputs = {f"lr.{k}": np.array(rate, np.float32) for k, rate in enumerate(rates)}
        out: dict[str, Array] = {}
        if self._recipe.clip_norm is not None:
            out["grad_norm"] = inputs["grad_norm"] = self._total()
        if self._update is not None:
            self._update({name: inputs[name] for name in self._update.input_names})
        return out

    def _exchange(self, channels_: Mapping[tuple[int, int], Channel], first: bool) -> None:
        """Brings the sums of other ranks' stages for Parameters that are this one's too."""
        sent = []
        for p, stage, source, target in self._shared():
            label = f"the gradient of {p.name}"
            if source == self._pipe.rank:
                channel = channels_[source, target]
                array = np.ascontiguousarray(self._sums[p, stage].local())
                sent.append((channel, channel.send(array.reshape(-1), label)))
            elif target == self._pipe.rank:
                channel, held = channels_[source, target], self._others[p, stage]
                array = np.empty_like(held.local())
                channel.wait(channel.receive(array.reshape(-1), label), first=first)
                holder_of(held).set(array)
        for channel, ticket in sent:
            channel.wait(ticket, first=first)

    def _total(self) -> Array:
        """The norm of the gradients of all ranks, added in the order of Parameters."""
        mine: dict[str, float] = {}
        if self._norm is not None:
            powers = self._norm()
            mine = {name: float(powers[name]) for name in powers}
        told: dict[str, float] = {}
        for text in self._pipe.exchange(json.dumps(mine).encode(), "norms"):
            told |= json.loads(text)
        ordered = [self._work.numpy.type(told[f"power.{k}"]) for k in range(len(self._parameters))]
        return np.array(np.sqrt(reduce(np.add, ordered)))

    # --- recording

    def _compiled(self, record: Callable[[Graph], None], options: Mapping[str, Any]) -> Executable:
        graph = Graph("update")
        record(graph)
        with self._division.place.compiling():
            return compile(graph, mesh=self._division.place.mesh, **options)

    def _means(self, graph: Graph) -> dict[Parameter, Any]:
        """The gradients of this rank's Parameters: means over microbatches."""
        model = self._recipe.model
        assert isinstance(model, PipelineParallel)
        number = graph.constant(float(model.microbatches), float32)
        factor, means = 1 / number, {}
        for p in self._own:
            parts = []
            for stage in self._stages[p]:
                if (p, stage) not in self._sums:
                    self._others.setdefault((p, stage), sum_of(p, stage))
                held = {**self._sums, **self._others}[p, stage]
                parts.append(graph.read(held))
            total = reduce(lambda one, other: one + other, parts)
            means[p] = total * factor.cast(total.dtype)
        return means

    def _record_powers(self, graph: Graph) -> None:
        means = self._means(graph)
        for p, mean in means.items():
            size = abs(mean.cast(self._work))
            (size * size).sum().output(f"power.{self._parameters.index(p)}")

    def _record_update(self, graph: Graph) -> None:
        recipe, gradients = self._recipe, self._means(graph)
        if recipe.clip_norm is not None:
            norm = graph.tensor((), work_dtype(float32), "grad_norm")
            gradients = scaled_to_norm(gradients, norm, recipe.clip_norm)
        with rates_as_inputs(recipe.optimizer, graph):
            recipe.optimizer.apply(gradients)
        for held in self._sums.values():
            graph.assign(held, graph.zeros(held.shape, dtype=held.dtype))


def sum_of(p: Parameter, stage: int) -> State:
    """A State for the sum of a Parameter's gradients by one stage, which lies as its moments do."""
    total = State(p.shape, work_dtype(p.dtype), name=f"{p.name}.grad.{stage}")
    total.follows = p
    return total


def holder_of(held: Assignable) -> Assignable:
    """What has this rank's value: its part where it is cut over a mesh."""
    return held if held.part is None else held.part.holder
