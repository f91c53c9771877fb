"""What Scatters give by several teams and schedules."""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.base import config
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.cpu.skewed import both, skewed
from tests.fuzz.cpu_run import compiled
from tests.fuzz.graphs import Case

Array = np.ndarray[Any, Any]


def results(case: Case) -> list[Array]:
    """Of one thread, of two, and of teams of three that run skewed."""
    exe, runner = compiled(case.graph)
    found = []
    for threads in (1, 2):
        with config.override(LUMINAL_THREADS=threads):
            found.append(exe(case.inputs, dims=case.dims)["y"].copy())
    for skew in both(3):
        with skewed(skew):
            again = Executable(case.graph, (Variant({}, runner),))
            found.append(again(case.inputs, dims=case.dims)["y"].copy())
    return found
