"""One case run: its values against PyTorch's in float64, its time against PyTorch eager.

The times are those of calls as users write them: a dict of arrays in and arrays out here, the
expression on tensors there (under `torch.inference_mode()` but for gradients). The sides take turns
in blocks. A pause stands before ours, so that the threads of OpenMP have stopped to spin
(`bench/block.py`), where eager took long enough to have used them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import luminal as lm
from bench.fuzz.case import TYPES, UPSTREAM, Array, Case, Input, flat
from bench.fuzz.others import Others
from bench.fuzz.values import Expected, Moved, array, difference
from bench.work import tensor

Call = Callable[[], Any]
TURNS = 4
BLOCK_SECONDS = 0.008
BATCH_SECONDS = 20e-6  # between two looks at the clock, which take 0.1 us
SPIN_PAUSE = 0.025  # libgomp's threads spin 10 to 16 ms after a call
TEAM_PAUSE = 0.001  # ours spin 0.2 ms
MOST_OTHERS = 0.15  # cores that others may keep busy meanwhile
TRIES = 3
SINGLE_THREAD_SECONDS = 6e-6  # what eager takes at least for work that it splits


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: its times in seconds by side, or what is `wrong` with it.
    `refused`: eager PyTorch cannot run it. `disturbed`: other processes kept the machine busy."""

    case: Case
    wrong: str = ""
    refused: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    elements: int = 0
    disturbed: bool = False

    @property
    def ratio(self) -> float:
        """Eager's time over ours."""
        return self.seconds["eager"] / self.seconds["ours"]


@dataclass(slots=True)
class Sides:
    """PyTorch's sides of a case, ready to be called; `ours` and `inductor` compile first."""

    ours: Call
    eager: Call
    tensors: Mapping[str, torch.Tensor]
    inductor: Call
    elements: int


def run(case: Case, *, timed: bool = True, inductor: bool = False) -> Outcome:
    """Checks the case and times it; what fails to compile or to run is `wrong` too."""
    with torch.inference_mode(False):
        sides = _sides(case)
        elements = sides.elements
        try:
            expected = _expected(case, sides)
        except (RuntimeError, NotImplementedError) as error:
            return Outcome(case, refused=str(error).splitlines()[0], elements=elements)
        elements = max(elements, *(each.numel() for each in expected.eager))
        try:
            call = sides.ours()
            ours = [array(each) for each in call().values()]
        except Exception as error:
            return Outcome(case, f"{type(error).__name__}: {error}", elements=elements)
        wrong = difference(ours, expected)
        del ours, expected
        if wrong or not timed:
            return Outcome(case, wrong, elements=elements)
        calls = {"ours": call, "eager": sides.eager}
        if inductor:
            calls["inductor"] = sides.inductor()
        seconds = measured(case, calls)
        return Outcome(case, seconds=seconds, elements=elements, disturbed=not seconds)


def _expected(case: Case, sides: Sides) -> Expected:
    """What PyTorch makes of it, raising what it raises."""
    with mode(case):
        eager = list(flat(sides.eager()))
    doubles = {
        name: held.double() if held.is_floating_point() else held
        for name, held in sides.tensors.items()
    }
    steps = Moved(eager[0].dtype)
    other = {name: steps.of(held) for name, held in sides.tensors.items()}
    with mode(case):
        exact = list(flat(_call(case, doubles)()))
        with steps:
            near = list(flat(_call(case, other)()))
    return Expected(eager, exact, near)


def mode(case: Case) -> AbstractContextManager[Any]:
    """What PyTorch runs under."""
    return torch.enable_grad() if case.gradients else torch.inference_mode()


def measured(case: Case, calls: Mapping[str, Call]) -> dict[str, float]:
    """Seconds of a call of each side; none where other processes kept the machine busy all along.

    Slow ratios are taken once more, from longer blocks: what a moment's noise would have made one
    case in fifty.
    """
    gc.collect()
    gc.disable()
    try:
        with mode(case):
            for _ in range(TRIES):
                others = Others()
                seconds = _in_turns(calls, TURNS, BLOCK_SECONDS)
                if seconds["eager"] < 1.05 * seconds["ours"]:
                    seconds = _in_turns(calls, 2 * TURNS, 2 * BLOCK_SECONDS)
                if others.cores() < MOST_OTHERS:
                    return seconds
            return {}
    finally:
        gc.enable()


def _in_turns(calls: Mapping[str, Call], turns: int, seconds: float) -> dict[str, float]:
    taken: dict[str, list[float]] = {side: [] for side in calls}
    pause = SPIN_PAUSE
    for _ in range(turns):
        for side, call in calls.items():
            time.sleep(TEAM_PAUSE if side != "ours" else pause)
            taken[side].append(_block(call, seconds))
        if all(max(taken[side]) < SINGLE_THREAD_SECONDS for side in calls if side != "ours"):
            pause = TEAM_PAUSE
    return {side: statistics.median(each) for side, each in taken.items()}


def _block(call: Call, seconds: float) -> float:
    """Seconds of a call: the median of batches, after calls that warm the caches again."""
    clock = time.perf_counter
    start = clock()
    call()
    once = clock() - start
    if once < seconds / 8:
        start = clock()
        for _ in range(4):
            call()
        once = (clock() - start) / 4
    batch = range(max(1, int(BATCH_SECONDS / once)))
    taken: list[float] = []
    end = clock() + seconds
    while (start := clock()) < end or len(taken) < 3:
        for _ in batch:
            call()
        taken.append((clock() - start) / len(batch))
    return statistics.median(taken)


def _sides(case: Case) -> Sides:
    arrays = case.arrays()
    tensors = {name: tensor(held) for name, held in arrays.items()}
    function = case.function(torch)
    upstream: tuple[int, ...] = ()
    if case.gradients:
        meta = [torch.empty_like(each, device="meta") for each in tensors.values()]
        (result,) = flat(function(*meta))
        upstream = tuple(result.shape)
        above = Input(UPSTREAM, _type_name(result.dtype), upstream)
        arrays[UPSTREAM] = above.array(np.random.default_rng(1))
        tensors[UPSTREAM] = tensor(arrays[UPSTREAM])
    return Sides(
        lambda: _compiled(case, arrays, upstream),
        _call(case, tensors),
        tensors,
        lambda: _inductor(case, tensors),
        max(held.size for held in arrays.values()),
    )


def _type_name(dtype: torch.dtype) -> str:
    return next(name for name, each in TYPES.items() if each.torch is dtype)


def _compiled(case: Case, arrays: dict[str, Array], upstream: tuple[int, ...]) -> Call:
    executable = lm.compile(case.graph(upstream))
    given = dict(arrays)
    return lambda: executable(given)


def _call(
    case: Case, tensors: Mapping[str, torch.Tensor], wrap: Callable[[Call], Call] = lambda f: f
) -> Call:
    """PyTorch's side: the function of the tensors, and the gradients if there are some."""
    function = wrap(case.function(torch))
    leaves = {name: tensors[name].detach().requires_grad_() for name in case.gradients}
    given = [leaves.get(each.name, tensors[each.name]) for each in case.inputs]
    if not leaves:
        return lambda: function(*given)
    variables, above = list(leaves.values()), tensors[UPSTREAM]

    def call() -> tuple[torch.Tensor, ...]:
        (result,) = flat(function(*given))
        return result, *torch.autograd.grad(result, variables, above)

    return call


def _inductor(case: Case, tensors: Mapping[str, torch.Tensor]) -> Call:
    """The case compiled by PyTorch's own compiler."""
    torch._dynamo.reset()
    call = _call(case, tensors, torch.compile)
    with mode(case):
        call()
    return call
