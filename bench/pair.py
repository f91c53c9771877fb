"""Our time beside others', measured in one process in turns of blocks (`bench/block.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

import luminal as lm
from bench.block import Call, in_turns
from bench.limits import Counted, greatest, measured_now, median_of, rates
from bench.row import KEPT, OURS, Row
from luminal.runtime.roofline import Peaks

REPEATS = 7  # of what is timed on its own
TOLERANCE = 1e-3  # of results that only have to be of the same computation
NOTHING = Counted()


def compare(
    name: str,
    ours: Call,
    peers: Call | Mapping[str, Call],
    target: float,
    counted: Counted = NOTHING,
    tolerance: float = TOLERANCE,
) -> Row:
    """The best peer's median time over ours. `peers` by name; one alone is PyTorch.

    Each side hands out its result as a user would get it, and drops it before the next call. What
    is `counted` of a call is told as a rate, beside a limit that is measured after each turn.
    """
    if name in KEPT:
        return KEPT[name]
    others = peers if isinstance(peers, Mapping) else {"PyTorch": peers}
    found = ours()
    for peer, call in others.items():
        _check(f"{name}: {peer}", found, call(), tolerance)
    del found
    peaks: list[Peaks] = []
    taken = in_turns(
        {OURS: ours, **others}, (lambda: peaks.append(measured_now())) if counted else None
    )
    medians = median_of(taken)
    best = min(others, key=medians.__getitem__)
    ratios = [theirs / own for own, theirs in zip(taken[OURS], taken[best], strict=True)]
    reached = rates(counted, medians, greatest(peaks)) if counted else ()
    own = ", ".join([f"{_ms(medians[OURS])} ms", *(str(rate) for rate in reached[:1])])
    detail = f"{own}; {', '.join(f'{peer} {_ms(medians[peer])}' for peer in others)}"
    spread = min(ratios), max(ratios)
    return Row(name, medians[best] / medians[OURS], target, "x", spread, detail, taken, reached)


def caller(graph: lm.Graph, **inputs: np.ndarray) -> Callable[[], np.ndarray]:
    """The compiled graph's only output for these inputs, passed anew at each call."""
    executable = lm.compile(graph)
    return lambda: next(iter(executable(inputs).values()))


def in_pairs(ours: Call, theirs: Call) -> list[tuple[float, float]]:
    """(our seconds, their seconds) of each block."""
    taken = in_turns({OURS: ours, "theirs": theirs})
    return list(zip(*taken.values(), strict=True))


def array(result: Any) -> np.ndarray:
    """What a side hands out, in NumPy: PyTorch has no arrays of bfloat16."""
    is_narrow = isinstance(result, torch.Tensor) and result.dtype is torch.bfloat16
    return np.asarray(result.float() if is_narrow else result)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _check(name: str, ours: Any, theirs: Any, tolerance: float) -> None:
    own, peer = (array(side).astype(np.float64) for side in (ours, theirs))
    worst, scale = float(np.abs(own - peer).max()), float(np.abs(peer).max())
    if not worst <= tolerance * scale:
        raise AssertionError(f"{name} differs from ours by {worst:.3g} of {scale:.3g}")
