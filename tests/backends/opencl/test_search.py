"""What searches on a device keep is right, another schedule where one is better, and not slower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import config
from luminal.kernel.tile_text import to_text
from tests.backends.opencl import devices  # noqa: F401  skips where there is none

OPTIONS = lm.SearchOptions(max_candidates=40, stop_below_us=0)
TURNS = 50
NOISE = 1.1
"""What the least times of one program's runs, in turns with another's, differ by."""

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, int], ...]]] = {
    "a row by a matrix": (lambda a, w: a @ w, ((1, 1024), (1024, 2048))),
    "another row, and an epilogue": (lambda a, w: a @ w * 2 + 1, ((1, 2048), (2048, 1024))),
    "an odd product": (lambda a, b: a @ b, ((200, 300), (300, 70))),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with config.override(LUMINAL_CACHE_DIR=tmp_path / "cache"):
        yield


def compiled(name: str, **how: Any) -> lm.Executable:
    fn, shapes = PROGRAMS[name]
    cx = lm.Graph()
    fn(*(cx.tensor(shape, name=f"x{k}") for k, shape in enumerate(shapes))).output("y")
    return cx.compile("opencl", **how)


def texts(exe: lm.Executable) -> list[str]:
    """The kernels of a program."""
    (variant,) = exe._variants
    return [to_text(kernel) for kernel in variant.runner.program.kernels]


def seconds(exe: lm.Executable, given: dict[str, Any]) -> float:
    """Of the launches of one run, by the device's clock."""
    rows = exe.profile(given, runs=1).kernels
    return sum(row.seconds or 0.0 for row in rows)


def search(name: str) -> bool:
    """Does a search find another program than `fast`? What it keeps is right and not slower."""
    fast, best = compiled(name), compiled(name, mode="optimal", search=OPTIONS)
    rng = np.random.default_rng(0)
    given = {
        f"x{k}": rng.standard_normal(shape).astype(np.float32)
        for k, shape in enumerate(PROGRAMS[name][1])
    }
    expected = PROGRAMS[name][0](*(array.astype(np.float64) for array in given.values()))
    # a search may choose any order of sums
    np.testing.assert_allclose(best(given)["y"], expected, rtol=1e-4, atol=1e-4)
    taken = [(seconds(best, given), seconds(fast, given)) for _ in range(TURNS)]
    least, of_fast = map(min, zip(*taken, strict=True))
    assert least <= of_fast * NOISE, f"{name}: {least} s after a search, {of_fast} s by rule"
    print(f"{name}: {least * 1e6:.0f} us after a search, {of_fast * 1e6:.0f} us by rule")
    return texts(best) != texts(fast)


@pytest.mark.long
def test_a_search_finds_other_schedules_that_are_no_slower() -> None:
    found = [name for name in PROGRAMS if search(name)]
    assert found
