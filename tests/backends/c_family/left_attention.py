"""Masks of drawn attention, and what tells its kernels by warp groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luminal.kernel.boxes import Begin
from luminal.kernel.tile_ir import Kernel, Retile

MASKS: dict[str, Callable[[Any, Any, int], Any]] = {
    "none": lambda i, j, before: None,
    "causal": lambda i, j, before: j <= i + before,
    "window": lambda i, j, before: (j <= i + before) & (j > i + before - 29),
    "some see nothing": lambda i, j, before: j < i - 4,
    "padded": lambda i, j, before: (j <= i + before) & (j >= 17),
}


def by_warp_groups(kernel: Kernel) -> bool:
    """Are products of what lanes hold begun and awaited?"""
    kinds = {type(each) for each in kernel.statements()}
    return {Begin, Retile} <= kinds
