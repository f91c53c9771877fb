"""What a training step takes by a plan: its seconds, what they go for, and a rank's memory.

Parts are priced as the programs of a rank (`parts.py`). What is left is arithmetic: stages of a
pipeline are runs of parts, simulated in the order of their schedule; gradients of a step are added
up over microbatches and sent once, behind the backward pass of the last one; with "zero3" weights
come and gradients go in every microbatch, beside the kernels of the layer before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from luminal.base.costs import Link
from luminal.base.records import dataclass
from luminal.distribute.mesh import EXPERT
from luminal.distribute.pipeline.cut import dealt
from luminal.distribute.pipeline.schedule import Piece, schedule_of
from luminal.distribute.pipeline.simulate import simulated
from luminal.distribute.pipeline.steps import Message
from luminal.distribute.pipeline.steps import Plan as Steps
from luminal.distribute.price import Passes, collective_seconds
from luminal.models.scaling.parts import Cut, Held, Part, Parts
from luminal.models.scaling.plan import PIPE, Plan
from luminal.models.scaling.shapes import Cluster

WIDTH = 4
"""Bytes of a Parameter, of its gradient and of each of AdamW's two moments: float32."""
GATHERED = 3
"""Whole layers that a rank has by "zero3": the one in use, the next one that comes, and a gradient
that goes.
"""
ROUNDS = 4
"""So many microbatches for each stage of a pipeline are simulated; more take as long as the last
ones of these did.
"""


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that a rank holds at its peak, by what they are. `buffers`: weights that are
    gathered to be used, and messages between stages.
    """

    weights: float
    gradients: float
    states: float
    activations: float
    buffers: float

    @property
    def all(self) -> float:
        """What these are together."""
        return self.weights + self.gradients + self.states + self.activations + self.buffers


@dataclass(frozen=True, slots=True)
class Times:
    """What the seconds of a step go for, on average over the ranks of a pipeline: `products` at the
    rate that the chip reaches; `kernels`, beyond that; `again`: what is computed again;
    `collectives` of layers, `gradients` and weights sent, as far as kernels wait for them; `idle`
    in the pipeline; the `update`. `hidden`: collectives that no kernel waits for, beside all these.
    """

    products: float
    kernels: float
    again: float
    collectives: float
    gradients: float
    idle: float
    update: float
    hidden: float

    @property
    def all(self) -> float:
        """The seconds of the step."""
        return (
            self.products + self.kernels + self.again + self.collectives + self.gradients
            + self.idle + self.update
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step by a plan; `tokens` and `flops` of it, of all ranks, in windows of `length`; `fits`:
    within a rank's memory?
    """

    plan: Plan
    times: Times
    memory: Memory
    fits: bool
    tokens: int
    length: int
    flops: float
    peak_flops: float

    @property
    def seconds(self) -> float:
        """How long the step takes."""
        return self.times.all

    @property
    def utilization(self) -> float:
        """The share of the chips' peak that the model's own operations take (MFU: Chowdhery et al.,
        arXiv 2204.02311).
        """
        return self.flops / (self.seconds * self.plan.ranks * self.peak_flops)


@dataclass(frozen=True, slots=True)
class Bound:
    """The seconds and the bytes of memory that a plan takes at least."""

    seconds: float
    memory: float


@dataclass(frozen=True, slots=True)
class _Stage:
    """What one rank does of a microbatch, and holds: a run of parts."""

    parts: Sequence[Part]
    forward: float
    back: float
    kernels: float
    again: float
    collectives: float
    saved: float
    above: float
    held: Held
    largest: float


class Predictor:
    """Predicts steps of one setting on one kind of cluster."""

    def __init__(self, parts: Parts, cluster: Cluster) -> None:
        self.parts, self.cluster = parts, cluster
        self.setting = parts.setting
        self.flops = parts.flops
        self._passes: dict[tuple[Part, Cut, bool], Passes] = {}
        self._held: dict[tuple[Part, Cut], Held] = {}

    def predict(self, plan: Plan) -> Prediction:
        """The step by a plan. Raises ShapeError or InputError where it does not divide the model or
        the batch.
        """
        count = plan.microbatches(self.setting.batch)
        stages = self._stages(plan)
        links = self.cluster.links(plan.mesh)
        span, live = self._span(plan, stages, count, links)
        busy = count * sum(stage.forward + stage.back for stage in stages) / plan.pipe
        of_ranks = [_joined(stages[rank :: plan.pipe]) for rank in range(plan.pipe)]
        shown = [self._sync(plan, stage, links) for stage in of_ranks]
        gradients = max(exposed for exposed, _, _ in shown)
        update = max(seconds for _, _, seconds in shown)
        kernels = count * sum(stage.kernels for stage in stages) / plan.pipe
        again = count * sum(stage.again for stage in stages) / plan.pipe
        products = self.flops / (plan.ranks * self.cluster.machine.flops)
        collectives = count * sum(stage.collectives for stage in stages) / plan.pipe
        exposed = busy - kernels
        beside = collectives - exposed + sum(sent for _, sent, _ in shown) / len(shown) - gradients
        times = Times(
            products, kernels - again - products, again, exposed, gradients, span - busy, update,
            max(0.0, beside),
        )  # fmt: skip
        memory = max(
            (self._memory(plan, rank, stages, live) for rank in range(plan.pipe)),
            key=lambda memory: memory.all,
        )
        return Prediction(
            plan,
            times,
            memory,
            memory.all <= self.cluster.machine.memory,
            self.setting.batch * self.setting.length,
            self.setting.length,
            self.flops,
            self.cluster.peak,
        )

    # --- what a plan takes at least

    def least(self, plan: Plan) -> Bound:
        """What a plan takes at least: its parts, the idle share by formula."""
        count = plan.microbatches(self.setting.batch)
        parts = [(self._part(*one, plan), n) for one, n in Counter(self._listed(plan)).items()]
        seconds = count * sum(n * (part.forward + part.back) for part, n in parts) / plan.pipe
        saved = sum(n * part.saved for part, n in parts) * min(count, plan.pipe) / plan.pipe
        above = max(part.above for part, _ in parts)
        if plan.zero == "zero3":
            above += GATHERED * WIDTH * max(part.largest for part, _ in parts)
        return Bound(
            seconds * (1 + idle(plan, self.setting.batch)), self.lasting(plan).all + saved + above
        )

    def lasting(self, plan: Plan) -> Memory:
        """What a rank holds for good, where stages have equally much."""
        layers = Counter(self.parts.each[1:-1]).items()
        held = WIDTH * sum(n * self.held(part, plan).all for part, n in layers) / plan.pipe
        return _lasting(plan, held)

    # --- stages

    def passes(self, part: Part, plan: Plan, again: bool) -> Passes:
        """What a part takes of a microbatch."""
        # The axes of a stage are the innermost ones, so what lies around them makes no difference.
        inner = self.cluster.links(plan.cut.mesh)
        key = part, plan.cut, again
        if key not in self._passes:
            machine = self.cluster.machine
            self._passes[key] = part.passes(plan.cut, again, machine, inner)
        return self._passes[key]

    def held(self, part: Part, plan: Plan) -> Held:
        """The elements of Parameters that a rank has of a part, uncut by "data"."""
        key = part, plan.cut
        if key not in self._held:
            self._held[key] = part.held(plan.cut)
        return self._held[key]

    def _stages(self, plan: Plan) -> list[_Stage]:
        """The stages, such that the slowest takes as little as can be."""
        costs = {one: self._part(*one, plan) for one in set(self._listed(plan))}
        listed = [costs[one] for one in self._listed(plan)]
        ends = _ends(plan.pipe * plan.chunks, [one.forward + one.back for one in listed])
        return [_joined(listed[a:b]) for a, b in zip([0, *ends], [*ends, len(listed)], strict=True)]

    def _listed(self, plan: Plan) -> list[tuple[Part, bool]]:
        """All parts in order, and whether they are computed again: layers only."""
        parts = self.parts.each
        return [(part, plan.recompute and 0 < k < len(parts) - 1) for k, part in enumerate(parts)]

    def _part(self, part: Part, again: bool, plan: Plan) -> _Stage:
        passes = self.passes(part, plan, again)
        held = self.held(part, plan)
        forward, back = passes.forward.seconds, passes.back.seconds
        kernels = passes.forward.kernels + passes.back.kernels
        collectives = passes.forward.collectives + passes.back.collectives
        more = 0.0
        if again:
            more = passes.back.kernels - self.passes(part, plan, False).back.kernels
        if plan.zero == "zero3" and plan.data > 1:
            link = self.cluster.links(plan.mesh)["data"]
            gather = _seconds("all_gather", WIDTH * held.all / plan.data, plan.data, link)
            scatter = _seconds("reduce_scatter", WIDTH * held.all, plan.data, link)
            # Those of a layer run beside the kernels of its neighbour, which takes as long.
            forward, back = max(forward, gather), max(back, gather + scatter)
            collectives += 2 * gather + scatter
        above = max(passes.forward.peak, passes.back.peak) - passes.saved
        return _Stage(
            (part,), forward, back, kernels, more, collectives, passes.saved, above, held,
            held.all,
        )  # fmt: skip

    # --- time

    def _span(
        self, plan: Plan, stages: Sequence[_Stage], count: int, links: dict[str, Link]
    ) -> tuple[float, tuple[int, ...]]:
        """The seconds in which all microbatches pass, and of how many each rank keeps values."""
        if plan.pipe == 1:
            return count * sum(stage.forward + stage.back for stage in stages), (len(stages),)
        link = links[PIPE]
        between = self._between(plan)
        message = link.latency + between / (link.apart or link.bandwidth)
        times = tuple((stage.forward, stage.back) for stage in stages)
        return span(plan.schedule, plan.pipe, count, times, message)

    def _between(self, plan: Plan) -> float:
        """The bytes that a rank sends to the next stage for a microbatch."""
        setting = self.setting
        places = plan.rows * setting.length / plan.sequence
        return places * setting.config.hidden_size * min(4, setting.widest)

    def _sync(
        self, plan: Plan, stage: _Stage, links: dict[str, Link]
    ) -> tuple[float, float, float]:
        """Seconds at the end of a step: those that ranks wait for gradients and weights, all of
        these, and those of the update.
        """
        held, cut = stage.held, 1 if plan.zero == "data" else plan.data
        sent = {"data": held.all, EXPERT: held.dense, "sequence": held.all}
        back = after = 0.0
        for axis in ("data", EXPERT, "sequence"):
            ranks, size = getattr(plan, axis), WIDTH * sent[axis]
            if axis == "data" and plan.zero == "zero1":
                back += _seconds("reduce_scatter", size, ranks, links.get(axis))
                after += _seconds("all_gather", size / ranks, ranks, links.get(axis))
            elif axis != "data" or plan.zero == "data":
                size /= 1 if axis == "data" else cut
                back += _seconds("all_reduce", size, ranks, links.get(axis))
        last = stage.back * (len(stage.parts) - 1) / len(stage.parts)
        update = 7 * WIDTH * held.all / cut / self.cluster.machine.bandwidth
        return max(back - last, back / len(stage.parts)) + after, back + after, update

    # --- memory

    def _memory(
        self, plan: Plan, rank: int, stages: Sequence[_Stage], live: tuple[int, ...]
    ) -> Memory:
        """What a rank of the pipeline holds; `live`: of how many microbatches and stages."""
        mine = stages[rank :: plan.pipe]
        held = WIDTH * sum(stage.held.all for stage in mine)
        largest = WIDTH * max(stage.largest for stage in mine)
        lasting = _lasting(plan, held)
        kept = max(stage.saved for stage in mine)
        # Values of some stages of some microbatches, of all of which one is being worked on.
        activations = live[rank] * kept if plan.pipe > 1 else sum(stage.saved for stage in mine)
        activations += max(stage.above for stage in mine)
        buffers = 4 * self._between(plan) if plan.pipe > 1 else 0.0
        if plan.zero == "zero3":
            buffers += GATHERED * largest
        return replace(lasting, activations=activations, buffers=buffers)


def idle(plan: Plan, batch: int) -> float:
    """The idle time of a pipeline in terms of its work, by formula: (p - 1) / (v m) for p ranks, v
    chunks and m microbatches (Narayanan et al., SC 2021); for zero bubble 0, at the least.
    """
    if plan.schedule == "zero_bubble":
        return 0.0
    return (plan.pipe - 1) / (plan.chunks * plan.microbatches(batch))


def _lasting(plan: Plan, held: float) -> Memory:
    """Weights, gradients and moments of a rank whose Parameters have so many bytes before they are
    cut over "data".
    """
    cut = plan.data if plan.zero == "zero3" else 1
    states = 2 * held / (1 if plan.zero == "data" else plan.data)
    return Memory(held / cut, held / cut, states, 0.0, 0.0)


def _joined(parts: Sequence[_Stage]) -> _Stage:
    """Parts as one stage."""

    def total(name: str) -> Any:
        return sum(getattr(part, name) for part in parts)

    return _Stage(
        [one for part in parts for one in part.parts],
        total("forward"),
        total("back"),
        total("kernels"),
        total("again"),
        total("collectives"),
        total("saved"),
        max(part.above for part in parts),
        Held(sum(p.held.dense for p in parts), sum(p.held.experts for p in parts)),
        max(part.largest for part in parts),
    )


def _ends(stages: int, seconds: Sequence[float]) -> list[int]:
    """Where all stages but the first begin, of parts that take so many seconds each."""
    until = np.concatenate(([0.0], np.cumsum(seconds)))
    costs = [until[end] - until[: end + 1] for end in range(len(until))]
    for one in costs:
        one[-1] = np.inf  # no stage is empty
    return dealt(stages, costs, np.maximum)[1]


def _seconds(kind: str, size: float, ranks: int, link: Link | None) -> float:
    return 0.0 if ranks == 1 or link is None else collective_seconds(kind, size, ranks, link)


@cache
def span(
    schedule: str, ranks: int, count: int, times: tuple[tuple[float, float], ...], message: float
) -> tuple[float, tuple[int, ...]]:
    """The seconds of so many microbatches, and the most pieces that each rank keeps values of."""
    most = ROUNDS * ranks
    if count > most:  # each round of the rest takes as long as the last one did
        more, live = span(schedule, ranks, most, times, message)
        less, _ = span(schedule, ranks, most - ranks, times, message)
        return more + (count - most) * (more - less) / ranks, live
    steps = Steps.of(schedule_of(schedule, ranks, len(times), count))

    def takes(piece: Piece) -> float:
        forward, back = times[piece.stage]
        return {"F": forward, "I": back / 2, "W": back / 2}.get(piece.kind, 0.0)

    def arrives(_: Message) -> float:
        return message

    line = simulated(steps, takes, arrives)
    return line.seconds, line.at_most
