"""The table of operators: (domain, name) to functions, each from the version on that it is of.

@operator("Reshape", known_inputs=(1,))
def reshape(call: Call, x: Tensor, shape: Array) -> Tensor: ...

A function takes the call and one argument for each input of the node: None for one that is left
out, an array for those that `known` counts, a value (see `values`) for others.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

from luminal.base.records import dataclass

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """One row: how calls of an operator are recorded.

    `known`: the inputs whose elements are needed to record it. `any_dtype`: it moves elements and
    does not compute with them, so that it takes those of narrow dtypes as their codes.
    """

    name: str
    domain: str
    since: int
    function: Function
    known: tuple[int, ...]
    any_dtype: bool


_rows: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str,
    since: int = 1,
    known_inputs: tuple[int, ...] = (),
    any_dtype: bool = False,
    domain: str = "",
) -> Callable[[Function], Function]:
    """Enters a function into the table, under one or several names."""

    def enter(function: Function) -> Function:
        for name in names:
            row = Operator(name, domain, since, function, known_inputs, any_dtype)
            _rows.setdefault((domain, name), []).append(row)
        return function

    return enter


def find(domain: str, name: str, version: int) -> Operator | None:
    """The newest row that is not newer than `version`; None where there is none."""
    rows = [row for row in _table().get((domain, name), ()) if row.since <= version]
    return max(rows, key=lambda row: row.since, default=None)


def names() -> list[tuple[str, str, int]]:
    """(domain, name, since) of every row, sorted."""
    return sorted((row.domain, row.name, row.since) for rows in _table().values() for row in rows)


@cache
def _table() -> dict[tuple[str, str], list[Operator]]:
    """All rows: the modules of `operators` enter theirs as they are imported."""
    from luminal.onnx import operators

    for module in pkgutil.iter_modules(operators.__path__):
        importlib.import_module(f"{operators.__name__}.{module.name}")
    return _rows
