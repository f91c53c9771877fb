"""The record of target facts: what all devices have, and the layers above a backend may know."""

from __future__ import annotations

from luminal.base.dots import Dot
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Facts that all devices have, filled by a backend, whose own records add to them. Equal facts
    mean interchangeable programs.

    `dots` are the sums of products that there is an instruction for; `cores` is how many units work
    side by side for the process; `libraries` are those that kernels may call.
    """

    name: str
    dots: tuple[Dot, ...]
    cores: int
    libraries: tuple[str, ...] = ()
