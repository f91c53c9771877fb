"""The table of aten operators: each is a function of Tensors, called with the schema's arguments.

`aten.add` stands for all overloads of add, `aten.add.Tensor` for one. Arguments come as the schema
has them: Tensors, numbers, Expressions for open sizes, Luminal's dtypes; those that say where a
tensor lies (device, layout, memory format) are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from luminal.base.complex_dtypes import ComplexDType
from luminal.base.dtypes import DType
from luminal.shape.expression import Expression
from luminal.torch_backend.errors import UnsupportedError

Row = Callable[..., Any]

ROWS: dict[str, Row] = {}

COMPLEX_ROWS: dict[str, Row] = {}
"""Rows that are called instead where an operand or the result is complex."""

KNOW_LAYOUT: set[Row] = set()
"""Rows that are told, as `held`, how their first operand lies in PyTorch: a tensor without data."""

KNOW_RESULTS: set[Row] = set()
"""Rows that are told, as `results`, what PyTorch plans to give: shapes and dtypes."""


class Planned(NamedTuple):
    """What a tensor will be."""

    shape: tuple[int | Expression, ...]
    dtype: DType | ComplexDType


def row(
    *names: str,
    knows_layout: bool = False,
    knows_results: bool = False,
    table: dict[str, Row] = ROWS,
) -> Callable[[Row], Row]:
    """Enters a function under names of aten operators."""

    def enter(function: Row) -> Row:
        for name in names:
            table[_full(name)] = function
        if knows_layout:
            KNOW_LAYOUT.add(function)
        if knows_results:
            KNOW_RESULTS.add(function)
        return function

    return enter


complex_row = partial(row, table=COMPLEX_ROWS)
"""Enters a function under names of aten operators, for complex operands or results."""


def rows(functions: Mapping[str, Row], table: dict[str, Row] = ROWS) -> None:
    """Enters functions that are the library's own."""
    for name, function in functions.items():
        table[_full(name)] = function


def _full(name: str) -> str:
    """A name with its namespace, `aten` if it has none (`prims::fma`)."""
    space, _, rest = name.rpartition("::")
    return f"{space or 'aten'}.{rest}"


def check_arguments(function: Row, args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raises UnsupportedError where a row has no place for an argument of the schema."""
    try:
        _signature(function).bind(*args, **named)
    except TypeError as error:
        raise UnsupportedError(str(error)) from error


_signature = cache(inspect.signature)


def find(target: Any, table: Mapping[str, Row] = ROWS) -> Row | None:
    """The row of an operator (an OpOverload), or None."""
    name = str(target)
    return table.get(name) or table.get(name.rpartition(".")[0])
