"""The fastest plan for a number of ranks that fits into their memory, by a bounded search.

Plans are looked at in the order of what they take at least. That is known at three prices: for
nothing by formula (products, idle share, Parameters and moments), then of the parts that are priced
once for all plans that cut them alike, and at last by a whole prediction. A plan that takes more at
least than the best one so far goes no further. What is computed again is asked only where a plan
does not fit without, and larger microbatches only where smaller ones were nearly as good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import product

from luminal.base.errors import InputError, ShapeError
from luminal.base.records import dataclass
from luminal.models.decoder_config import DecoderConfig
from luminal.models.scaling.parts import Setting
from luminal.models.scaling.plan import ZERO, Plan
from luminal.models.scaling.predict import Prediction, Predictor, idle

MOST_EXPERT = 64
"""The most ranks that experts are cut over."""
MOST_PIPE = 32
"""The most stages, chunks of a rank counted."""
LEAST_PLACES = 2048
"""The fewest positions of a window on a rank: fewer are soon attended, and keys take as long."""
MOST_ROWS = 4
SAVED_BY_ROWS = 0.1
"""What a microbatch twice as large saves of a step at most."""
CHUNKS = (2, 4)
MOST = 2000
"""The most plans of one number of ranks whose parts are priced."""
FEW = 10
"""Where no plan fits, so many are predicted of those that need the least."""


@dataclass(frozen=True, slots=True)
class Found:
    """The plans that were predicted for a number of ranks: the best first, of those that fit by
    their time, of the others by their memory; `candidates`: how many there are, of which `looked`
    were looked at.
    """

    predictions: tuple[Prediction, ...]
    candidates: int
    looked: int

    @property
    def best(self) -> Prediction:
        """The plan that is chosen."""
        return self.predictions[0]

    @property
    def faster(self) -> Prediction | None:
        """The fastest of those that do not fit, where it is faster than the best one."""
        over = [p for p in self.predictions if not p.fits and p.seconds < self.best.seconds]
        return min(over, key=lambda p: p.seconds, default=None)


def search(predictor: Predictor, ranks: int) -> Found:
    """The plans for so many ranks. Raises InputError where none divides the model and the batch."""
    setting, memory = predictor.setting, predictor.cluster.machine.memory
    plans = [*candidates(setting, ranks)]
    # (seconds at least, has it been priced by its parts?, a number that tells equal ones apart)
    waiting = [(_seconds(predictor, plan), False, k, plan) for k, plan in enumerate(plans)]
    heapify(waiting)
    out: list[Prediction] = []
    over: list[tuple[float, float, Plan]] = []
    best, looked = math.inf, 0
    while waiting and waiting[0][0] < best and looked < MOST:
        _, is_priced, number, plan = heappop(waiting)
        if is_priced:
            out.append(predictor.predict(plan))
            best = min(best, out[-1].seconds if out[-1].fits else math.inf)
            continue
        if predictor.lasting(plan).all > memory:
            over.append((predictor.lasting(plan).all, math.inf, plan))
            continue
        looked += 1
        try:
            bound = predictor.least(plan)
        except ShapeError:  # a cut that does not divide the model
            continue
        if bound.memory <= memory:
            heappush(waiting, (bound.seconds, True, number, plan))
            larger = replace(plan, rows=2 * plan.rows)
            if plan.rows < MOST_ROWS and _divides(setting, larger):
                saved = bound.seconds * (1 - SAVED_BY_ROWS)
                heappush(waiting, (saved, False, number + len(plans), larger))
            continue
        over.append((bound.memory, bound.seconds, plan))
        if not plan.recompute and plan.sequence == 1:  # no compiler cuts both
            again = replace(plan, recompute=True)
            heappush(waiting, (bound.seconds, False, number - len(plans), again))
    if best == math.inf:
        out += _least(predictor, [plan for _, _, plan in sorted(over, key=lambda x: x[0])])
    else:
        quick = min(over, key=lambda each: each[1], default=None)
        if quick is not None and quick[1] < best:
            out.append(predictor.predict(quick[2]))
    if not out:
        raise InputError(
            f"simulate: no plan for {ranks} ranks divides a batch of {setting.batch} windows of "
            f"{setting.length} and the model's {setting.config.num_hidden_layers} layers and "
            f"{setting.config.num_key_value_heads} heads of keys; give another --devices or --batch"
        )
    out.sort(key=lambda p: (not p.fits, p.seconds if p.fits else p.memory.all))
    return Found(tuple(out), len(plans), looked)


def candidates(setting: Setting, ranks: int) -> Iterator[Plan]:
    """The plans that divide the batch, the layers, the heads, the inner layers and the experts,
    with the smallest microbatches and nothing computed again.
    """
    config = setting.config
    for tensor, sequence, expert, pipe in product(
        _tensors(config, ranks), _powers(ranks, setting.length // LEAST_PLACES),
        _experts(config, ranks), _divisors(ranks, min(MOST_PIPE, config.num_hidden_layers)),
    ):  # fmt: skip
        data, rest = divmod(ranks, tensor * sequence * expert * pipe)
        if rest or not data:
            continue
        for zero, (schedule, chunks) in product(
            ZERO if data > 1 else ("data",), _schedules(config, pipe)
        ):
            plan = Plan(
                pipe, data, expert, sequence, tensor, zero, schedule=schedule, chunks=chunks
            )
            if _divides(setting, plan):
                yield plan


def _divides(setting: Setting, plan: Plan) -> bool:
    """Do the plan's microbatches make up the batch?"""
    count, left = divmod(setting.batch, plan.data * plan.expert * plan.rows)
    return not left and (plan.schedule != "interleaved" or count % plan.pipe == 0)


def _schedules(config: DecoderConfig, pipe: int) -> list[tuple[str, int]]:
    if pipe == 1:
        return [("1f1b", 1)]
    most = min(MOST_PIPE, config.num_hidden_layers) // pipe
    interleaved = [("interleaved", chunks) for chunks in CHUNKS if chunks <= most]
    return [("1f1b", 1), ("zero_bubble", 1), *interleaved]


def _tensors(config: DecoderConfig, ranks: int) -> list[int]:
    if config.experts is not None:  # ranks along "tensor" would repeat what experts compute
        return [1]
    sizes = (config.num_key_value_heads, config.intermediate_size, config.vocab_size)
    return [n for n in _powers(ranks, 8) if all(size % n == 0 for size in sizes)]


def _experts(config: DecoderConfig, ranks: int) -> list[int]:
    count = 1 if config.experts is None else config.experts.count
    return [n for n in _powers(ranks, min(MOST_EXPERT, count)) if count % n == 0]


def _powers(ranks: int, most: int) -> list[int]:
    """The powers of two that divide so many ranks."""
    return [n for n in _divisors(ranks, max(most, 1)) if n & (n - 1) == 0]


def _divisors(count: int, most: int) -> list[int]:
    return [n for n in range(1, min(count, most) + 1) if count % n == 0]


def _seconds(predictor: Predictor, plan: Plan) -> float:
    """The seconds that a plan takes at least, before any part of it is priced."""
    products = predictor.flops / (plan.ranks * predictor.cluster.machine.flops)
    return products * (1 + idle(plan, predictor.setting.batch))


def _least(predictor: Predictor, plans: Sequence[Plan]) -> list[Prediction]:
    """Predictions for those of plans that need the least memory, all that can be computed again."""
    again = [plan if plan.sequence > 1 else replace(plan, recompute=True) for plan in plans]
    bounds: list[tuple[float, int, Plan]] = []
    for number, plan in enumerate(dict.fromkeys(again)):
        with suppress(ShapeError):  # a cut that does not divide the model
            bounds.append((predictor.least(plan).memory, number, plan))
    return [predictor.predict(plan) for _, _, plan in sorted(bounds)[:FEW]]
