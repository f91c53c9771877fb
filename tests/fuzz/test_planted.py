"""The campaign finds faults that are planted in the compiler, each within a few programs.

If one of these tests fails, the comparison has gone blind: it would find no real fault either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from luminal.algebra.lower import Lowering
from luminal.base import config
from luminal.frontend.reduce import normalization
from luminal.kernel import reductions
from luminal.memory.parameter import Parameter
from luminal.program import memory_plan
from tests.fuzz.campaign import Tally, how_of, programs
from tests.fuzz.programs.check import check
from tests.long_share import long_but

Plant = Callable[[pytest.MonkeyPatch], None]
MOST_PROGRAMS = 60


def wrong_sign(patch: pytest.MonkeyPatch) -> None:
    """A factor of -1 is lost, so `a - b` comes out as `a + b`."""
    right = Lowering.pointwise

    def wrong(self: Any, op: str, args: Any, dtype: Any) -> Any:
        factor = args[-1]
        if op == "Mul" and factor.op == "Literal" and factor.attrs.value(factor.dtype) == -1:
            return args[0]
        return right(self, op, args, dtype)

    patch.setattr(Lowering, "pointwise", wrong)


def swapped_axis(patch: pytest.MonkeyPatch) -> None:
    """Softmax runs along the dim before the one that it is asked for."""
    right = normalization._softmax

    def wrong(x: Any, axis: int) -> Any:
        return right(x, max(0, axis - 1))

    patch.setattr(normalization, "_softmax", wrong)


def short_guard(patch: pytest.MonkeyPatch) -> None:
    """Loops that are cut to where a condition holds stop one position early."""
    right = reductions.ranges

    def wrong(*given: Any) -> Any:
        found = right(*given)
        return found and {s: (start, stop - 1) for s, (start, stop) in found.items()}

    patch.setattr(reductions, "ranges", wrong)


def stale_weights(patch: pytest.MonkeyPatch) -> None:
    """What is computed from a Weight is not computed again when it is set."""
    patch.setattr(Parameter, "changed", lambda self: None)


def shared_memory(patch: pytest.MonkeyPatch) -> None:
    """Buffers share memory in the epoch in which one is read and the other written."""
    right = memory_plan.conflicts

    def wrong(lifetimes: Any) -> Any:
        return right(
            [memory_plan.Lifetime(e.loops, e.first, max(e.first, e.last - 1)) for e in lifetimes]
        )

    patch.setattr(memory_plan, "conflicts", wrong)


FAULTS: dict[str, tuple[str, Plant]] = {
    plant.__name__: (kind, plant)
    for kind, plant in (
        ("dag", wrong_sign),
        ("torch", swapped_axis),
        ("torch", short_guard),
        ("torch", stale_weights),
        ("torch", shared_memory),
    )
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with config.override(LUMINAL_CACHE_DIR=tmp_path):  # wrong code stays here
        yield


@pytest.mark.parametrize("name", long_but(FAULTS, ("wrong_sign", "swapped_axis", "stale_weights")))
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, plant = FAULTS[name]
    plant(monkeypatch)
    for number, (seed, program) in enumerate(programs(kind, range(MOST_PROGRAMS), 60, Tally())):
        try:
            check(program, how_of(kind, seed, "standard", 0.0))
        except AssertionError:
            print(f"{name}: found by program {number}")
            return
    raise AssertionError(f"{name}: not found by {MOST_PROGRAMS} programs")
