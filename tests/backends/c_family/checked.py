"""A kernel on the shims, beside its meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from luminal.backends.c_backend import CBackend, machine
from luminal.base.dots import MMA, Dot
from luminal.codegen.c_family.kernel import Spelled
from luminal.kernel import tile_ir
from luminal.runtime.driver import Driver
from luminal.schedule.groups.facts import USUAL, Groups
from tests.backends.c_family.dialects import DIALECTS
from tests.simt import compiling
from tests.simt.driver import CheckedDriver


@cache
def checked(name: str = "cuda", dots: tuple[Dot, ...] = MMA, copies: int | None = None) -> CBackend:
    """A device of the dialect with these dots, on the shims, whose lanes copy so many bytes to
    shared memory without registers: of CUDA 16 if nothing else is said, of others none.
    """
    copies = 16 * (name == "cuda") if copies is None else copies
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    own, row = DIALECTS[name], max(dot.row for dot in dots)

    class Checked(CBackend):
        dialect = own

        @staticmethod
        def driver(spell: Callable[[tile_ir.Kernel], Spelled], number: int) -> Driver:
            return CheckedDriver(name, own, spell, warp_size=row)

    Checked.base = name
    groups = Groups(
        2 * row, 4 * row, 32 << 10, is_rule=True, subgroup=row, copies=copies,
        copies_beside=own.copies_beside, begins_early=bool(own.depend),
    )  # fmt: skip
    return Checked(machine(name, 2, 32 << 10, 1 << 20, dots=dots), groups=groups)


@cache
def preferring(
    left: tuple[Dot, ...], dots: tuple[Dot, ...] = MMA, *, boxes: bool = False
) -> CBackend:
    """A device on the shims that prefers dots whose factors stay in shared memory."""
    made = checked(dots=dots)
    groups = replace(
        made.groups, lanes=128, most=256, shared_bytes=96 << 10, left=left, boxes=boxes, cluster=2,
        pipes=replace(USUAL, left=8192),
    )  # fmt: skip
    return replace(made, groups=groups)
