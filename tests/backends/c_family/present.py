"""The backends that run texts of C, as the registry has them, and those with a device here.

A new row is found by its module's subclass of CBackend: no test lists devices.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import pytest

from luminal.backends.c_backend import CBackend
from luminal.backends.registry import BACKENDS, Row
from luminal.codegen.c_family.kernel import spell
from luminal.runtime.driver import Driver


def _kind(row: Row) -> type[CBackend] | None:
    found = (
        each
        for each in vars(import_module(row.module)).values()
        if isinstance(each, type) and issubclass(each, CBackend) and each is not CBackend
    )
    return next(found, None)


KINDS = {name: kind for name, row in BACKENDS.items() if (kind := _kind(row)) is not None}
ABSENT = {name: reason for name in KINDS if (reason := BACKENDS[name].unavailable()) is not None}
PRESENT = tuple(name for name in KINDS if name not in ABSENT)


def present() -> list[Any]:
    """Parameters of a test: the names of devices, or one that is skipped with the reasons."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in ABSENT.items())
    return [*PRESENT] or [pytest.param("none", marks=pytest.mark.skip(reason=reasons))]


@cache
def driver(name: str) -> Driver:
    """The first device of a backend, for kernels that are expanded already."""
    kind = KINDS[name]
    return kind.driver(lambda kernel: spell(kernel.expanded, kind.dialect), 0)  # type: ignore[attr-defined]
