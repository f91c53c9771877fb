"""Numbers for what egglog need not look into: axes, leaves, Expressions, index maps, opaque
operations; and literals as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from luminal.algebra.terms import Phase, axis_order
from luminal.base.dtypes import DType
from luminal.hlir.ops import Value
from luminal.rules.notation import number_text
from luminal.shape.expression import Expression, Symbol


class Interned:
    """The tables of one e-graph. A number is where the object stands in its table."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Any]] = {name: [] for name in ("axis", *KINDS)}
        self._numbers: dict[tuple[str, Any], int] = {}

    def number(self, kind: str, key: Any) -> tuple[int, bool]:
        """The number of an object, and whether it is new."""
        table = self.tables[kind]
        index = self._numbers.setdefault((kind, key), len(table))
        if index == len(table):
            table.append(key)
            return index, True
        return index, False

    def axis(self, axis: Symbol) -> int:
        return self.number("axis", axis)[0]

    def axes(self, axes: Iterable[Symbol]) -> str:
        """A set of axes in egglog."""
        numbers = sorted(map(self.axis, axes))
        return f"(set-of {' '.join(map(str, numbers))})" if numbers else "(set-empty)"

    def axes_of(self, numbers: Iterable[int]) -> tuple[Symbol, ...]:
        return axis_order(self.tables["axis"][number] for number in numbers)


KINDS = ("Leaf", "Index", "Opaque", "At")


def positions(expr: Expression) -> frozenset[Symbol]:
    """The axes in an Expression."""
    return frozenset(s for s in expr.symbols() if s.extent is not None)


def is_fixed(axis: Symbol) -> bool:
    """Is the extent of the axis a literal?"""
    return axis.extent is not None and axis.extent.is_const


def index_phase(expr: Expression) -> Phase:
    """LITERAL if the values can be computed before any run."""
    fixed = all(s.extent is not None and is_fixed(s) for s in expr.symbols())
    return Phase.LITERAL if fixed else Phase.RUN


def literal_text(data: bytes, dtype: DType) -> str:
    """One element's exact value as text, the same for the same number of any dtype.

    A NaN keeps its bits.
    """
    value = np.frombuffer(data, dtype.numpy)[0]
    if dtype.kind == "bool":
        return str(int(bool(value)))
    if dtype.is_int:
        return str(int(value))
    if value != value:
        return f"nan:{data.hex()}"
    return number_text(float(value))


def literal_data(text: str, dtype: DType) -> bytes:
    """The element that `literal_text`, or a rule's number, stands for in `dtype`."""
    if text.startswith("nan:"):
        return bytes.fromhex(text[4:])
    if dtype.is_float:
        return dtype.rounded(float(text)).tobytes()
    bits = int(float(text)) if "." in text or "e" in text else int(text)
    return bytes(np.asarray(bits).astype(dtype.numpy).tobytes())


def leaf_text(value: Value) -> str:
    """What a leaf is, without a number of its own."""
    attrs = value.node.attrs
    name = getattr(attrs, "name", None) or getattr(getattr(attrs, "state", None), "name", "")
    return f"{value.node.op.name} {name}"
