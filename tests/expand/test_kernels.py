"""Tile kernels written by hand and drawn at random: expanded, they mean what tile IR means."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from luminal.expand import interpreter
from luminal.expand.expand import expand
from luminal.expand.verify import verify
from luminal.kernel import tile_interpreter
from luminal.kernel.tile_ir import Kernel
from tests.backends.cpu.codegen import (
    test_render_fuzz,
    test_render_map,
    test_render_memory,
    test_render_reduce,
)
from tests.backends.cpu.tile_builder import compare

Array = np.ndarray[Any, Any]
LANES = (1, 4, 16)
WRITTEN = (test_render_map, test_render_memory, test_render_reduce)


def run_expanded(
    kernel: Kernel, arrays: Mapping[str, Array], params: Mapping[str, int] | None = None,
    rtol: float = 0.0,
) -> dict[str, Array]:  # fmt: skip
    """In the place of `run_all`: the interpreters of both IRs, with the same bits."""
    params = params or {}
    expected = {name: x.copy() for name, x in arrays.items()}
    tile_interpreter.run(kernel, expected, params)
    for lanes in LANES:
        found = {name: x.copy() for name, x in arrays.items()}
        expanded = expand(kernel, lanes)
        verify(expanded)
        interpreter.run(expanded, found, params)
        for name, array in found.items():
            compare(f"{name} by {lanes}", array, expected[name], rtol)
    return expected


def bare(value: Any) -> Any:
    """A parameter's value, or values, without what pytest.param marks it with."""
    if not hasattr(value, "values") or not hasattr(value, "marks"):
        return value
    return value.values if len(value.values) > 1 else value.values[0]


def calls(module: ModuleType) -> Iterator[tuple[str, Callable[[], None]]]:
    """The tests of a module, each with all its parameters bound."""
    for name, function in vars(module).items():
        if not name.startswith("test_"):
            continue
        marks = [m for m in getattr(function, "pytestmark", ()) if m.name == "parametrize"]
        for values in itertools.product(*(map(bare, m.args[1]) for m in marks)):
            given: dict[str, Any] = {}
            for mark, value in zip(marks, values, strict=True):
                names = mark.args[0]
                if isinstance(names, str):
                    given[names] = value
                else:
                    given |= zip(names, value, strict=True)
            yield f"{name}-{'-'.join(map(str, given.values()))}", partial(function, **given)


CALLS = [
    (module, *call) for module in WRITTEN for call in calls(module) if "run_all" in vars(module)
]
SAMPLE = {name for _, name, _ in CALLS[::14]}


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        pytest.param(*each, id=each[1], marks=() if each[1] in SAMPLE else pytest.mark.long)
        for each in CALLS
    ],
)
def test_kernels_by_hand(
    module: ModuleType, name: str, call: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_all", run_expanded)
    call()


@pytest.mark.parametrize(
    "seed",
    [pytest.param(s, marks=() if s % 50 == 12 else pytest.mark.long) for s in range(250)],
)
def test_random_kernels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_render_fuzz, "run_all", run_expanded)
    test_render_fuzz.check(seed)
