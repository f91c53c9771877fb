"""A row of the table: an op, how to call it, and what NumPy, SciPy or PyTorch give for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import luminal as lm
from luminal.base.dtypes import dtype_of

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int64", "int8", "uint8")
WIDE = ("float32", "float64", "bfloat16", "int32")  # enough for ops that move or pick elements
ANY = ("float32", "bfloat16", "int64", "uint8", "bool")
CLASSES = ("odd", "0-d", "empty", "broadcast", "view", "dynamic", "special")

# Extents of one odd case are distinct, so that the dynamic class can name dims by their extent.
ODD, EMPTY = (3, 5, 7), (2, 0, 3)


@dataclass(frozen=True)
class Draw:
    """How an operand is drawn: uniform in low..high, as the cell's dtype unless it has its own."""

    low: float = -3.0
    high: float = 3.0
    dtype: str | None = None


@dataclass(frozen=True)
class Row:
    """One op. `shapes` has the operands' shapes for each shape class that the row is tested in.

    `view` and `dynamic` use those of `odd`, `special` is NaN, infinities and signed zeros.
    `expected` gets floats as float64; a float result is compared in the dtype of the first operand.
    """

    op: str
    call: Callable[..., Any]
    expected: Callable[..., Any]
    against: str
    dtypes: tuple[str, ...]
    draws: tuple[Draw, ...]
    shapes: Mapping[str, Sequence[Shape]]
    note: str = ""  # where NumPy and PyTorch differ, and whom we follow
    ulp: float = 1.0  # this many times the table's tolerance; needs its reason beside it
    largest: bool = False  # the tolerance counts of the largest value: sums, where terms cancel
    result: str | None = None  # the float result's dtype, where it is not the first operand's
    known: Mapping[str, str] = field(default_factory=dict)  # "dtype class" -> why it fails

    def cells(self) -> list[tuple[str, str]]:
        """(dtype, shape class) of every case; special values need floats."""
        return [
            (dtype, kind)
            for dtype in self.dtypes
            for kind in CLASSES
            if kind in self.shapes and not (kind == "special" and not dtype_of(dtype).is_float)
        ]


# --- oracles --------------------------------------------------------------------------------------


def by_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A torch function as one of arrays."""

    def of_arrays(*arrays: Array) -> Any:
        found = function(*(torch.from_numpy(np.array(a)) for a in arrays))
        if isinstance(found, torch.Tensor):
            return found.numpy()
        return tuple(each.numpy() for each in found)

    name = getattr(function, "__name__", "<lambda>")
    owner = "torch.nn.functional" if hasattr(F, name) and not hasattr(torch, name) else "torch"
    of_arrays.__name__, of_arrays.__module__ = name, owner
    return of_arrays


def method(op: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The call `x.op(*others, *args, **kwargs)`."""
    return lambda x, *others: getattr(x, op)(*others, *args, **kwargs)


def function(op: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The call `lm.op(*tensors, *args, **kwargs)`; dots lead into submodules."""

    def call(*tensors: Any) -> Any:
        found: Any = lm
        for part in op.split("."):
            found = getattr(found, part)
        return found(*tensors, *args, **kwargs)

    return call


# --- kinds of rows --------------------------------------------------------------------------------


def _shapes(of_one: Mapping[str, Shape], operands: int) -> dict[str, Sequence[Shape]]:
    return {kind: (shape,) * operands for kind, shape in of_one.items()}


def unary(
    op: str,
    expected: Callable[..., Any],
    over: tuple[float, float] = (-3, 3),
    dtypes: tuple[str, ...] = FLOATS,
    call: Callable[..., Any] | None = None,
    against: str = "",
    **more: Any,
) -> Row:
    """One operand, element by element: every shape class."""
    kinds = dict.fromkeys(("odd", "broadcast", "view", "dynamic"), ODD)
    shapes = _shapes({**kinds, "0-d": (), "empty": EMPTY, "special": (14,)}, 1)
    against = against or _name_of(expected)
    return Row(op, call or method(op), expected, against, dtypes, (Draw(*over),), shapes, **more)


BROADCAST = {1: [ODD], 2: [(3, 1, 7), (5, 1)], 3: [(3, 1, 7), (5, 1), (7,)], 4: [ODD, (7,), (), ()]}


def pointwise(
    op: str,
    expected: Callable[..., Any],
    *over: tuple[float, float],
    dtypes: tuple[str, ...] = FLOATS,
    call: Callable[..., Any] | None = None,
    against: str = "",
    special: bool = True,
    **more: Any,
) -> Row:
    """Several operands, element by element, an interval for each: every shape class."""
    count = len(over)
    kinds = dict.fromkeys(("odd", "view", "dynamic"), ODD)
    shapes = _shapes({**kinds, "0-d": (), "empty": EMPTY}, count)
    shapes["broadcast"] = BROADCAST[count]
    if special:
        shapes["special"] = tuple((14,) + (1,) * k for k in range(count))
    draws = tuple(Draw(*each) for each in over)
    against = against or _name_of(expected)
    return Row(op, call or method(op), expected, against, dtypes, draws, shapes, **more)


def along(
    op: str,
    expected: Callable[..., Any],
    over: tuple[float, float] = (-3, 3),
    dtypes: tuple[str, ...] = FLOATS,
    call: Callable[..., Any] | None = None,
    against: str = "",
    shape: Shape = ODD,
    zero_d: bool = False,
    empty: Shape | None = EMPTY,
    dynamic: bool = True,
    broadcast: bool = True,
    **more: Any,
) -> Row:
    """One operand that has dims: reductions, orders, movements. `zero_d`: takes a 0-d one too."""
    of_one = {"odd": shape, "view": shape}
    if zero_d:
        of_one["0-d"] = ()
    if empty is not None:
        of_one["empty"] = empty
    if dynamic:
        of_one["dynamic"] = shape
    if broadcast:
        of_one["broadcast"] = shape
    against = against or _name_of(expected)
    draws = (Draw(*over),)
    shapes = _shapes(of_one, 1)
    return Row(op, call or method(op), expected, against, dtypes, draws, shapes, **more)


def several(
    op: str,
    expected: Callable[..., Any],
    odd: Sequence[Shape],
    draws: Sequence[Draw] | None = None,
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16"),
    call: Callable[..., Any] | None = None,
    against: str = "",
    dynamic: bool = True,
    others: Mapping[str, Sequence[Shape]] | None = None,
    **more: Any,
) -> Row:
    """Operands of shapes of their own; `others` has those of further shape classes."""
    shapes: dict[str, Sequence[Shape]] = {"odd": odd, "view": odd, **(others or {})}
    if dynamic:
        shapes["dynamic"] = odd
    against = against or _name_of(expected)
    drawn = tuple(draws) if draws else (Draw(),) * len(odd)
    return Row(op, call or method(op), expected, against, dtypes, drawn, shapes, **more)


def _name_of(expected: Callable[..., Any]) -> str:
    """`numpy.exp`, for the document."""
    module = getattr(expected, "__module__", None) or "numpy"
    name = getattr(expected, "__name__", "")
    if isinstance(expected, np.ufunc):
        module = "numpy" if getattr(np, name, None) is expected else "scipy.special"
    owner = module if module.startswith("torch") else module.split(".")[0]
    if "lambda" in name:
        return "torch expression" if owner == "torch" else "numpy expression"
    return f"{owner}.{name}"
