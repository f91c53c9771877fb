"""A backend with matrix dots, and kernels of it that are changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from luminal.backends.c_backend import machine
from luminal.base.dots import MADE_UP, Dot
from luminal.kernel.tile_ir import Contract, Kernel
from tests.backends.groups.both_meanings import SMALL, Both


@cache
def backend(dots: tuple[Dot, ...] = MADE_UP) -> Both:
    """A device of groups with these dots: of as few lanes as multiply together, and more."""
    together = max(dot.together for dot in dots)
    groups = replace(SMALL, lanes=2 * together, most=4 * together, subgroup=together, copies=True)
    return Both(machine("groups", 2, 32 << 10, 1 << 20, dots=dots), groups=groups)


def dots_of(kernel: Kernel) -> set[Dot]:
    contracts = (each for each in kernel.statements() if isinstance(each, Contract))
    return {each.dot for each in contracts if each.dot.is_matrix}


Change = Callable[[Any], Any]


def changed(body: tuple[Any, ...], change: Change) -> tuple[Any, ...]:
    """A body of either IR with its statements changed, outer ones after those inside."""
    return tuple(
        change(replace(each, body=changed(each.body, change)) if hasattr(each, "body") else each)
        for each in body
    )
