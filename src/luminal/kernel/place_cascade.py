"""Placement of a cascade (see `cascade.py`, `cascade_pass.py`)."""

from __future__ import annotations

from luminal.kernel.cascade import Cascade
from luminal.kernel.cascade_lanes import AlongLanes
from luminal.kernel.cascade_pass import Pass
from luminal.kernel.cascade_steps import AlongSteps
from luminal.kernel.cascade_work import CascadeTiling, Workspace
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused


def place_cascade(fused: Fused, cascade: Cascade, along: str, tiling: CascadeTiling) -> Placed:
    """The kernel of a cascade, with vectors along "lanes" or "steps"."""
    work = Workspace(fused, cascade, tiling)
    return Pass(work, AlongLanes(work) if along == "lanes" else AlongSteps(work)).run()
