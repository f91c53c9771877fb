"""What dtype operands meet in: every pair of dtypes, of tensors, 0-d tensors and Python numbers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base import dtypes
from luminal.base.errors import DTypeError
from luminal.frontend.graph import Recorder
from tests.long_share import long_but

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
KINDS = ("tensor", "0-d", "number")
NUMBERS: dict[str, Any] = {"bool": True, "int64": 2, "float32": 2.5}  # by their default dtype

OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    name: (getattr(operator, name), getattr(operator, name))
    for name in "add sub mul truediv floordiv mod pow lt eq and_".split()
} | {
    name: (lambda a, b, op=name: getattr(a, op)(b), getattr(torch, name))
    for name in "maximum minimum fmax atan2 logaddexp hypot copysign fmod".split()
}  # fmt: skip
# These take tensors only, in PyTorch.
TENSORS = frozenset("maximum minimum fmax logaddexp hypot".split())
# Filled with what their dtype does not hold: PyTorch cuts it off, Luminal says so.
REFUSING = frozenset(["masked_fill"])
LIBRARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "where": (lambda a, b: lm.where(a == a, a, b), lambda a, b: torch.where(a == a, a, b)),
    "addcmul": (lambda a, b: a.addcmul(a, b), lambda a, b: a.addcmul(a, b)),
    "masked_fill": (lambda a, b: a.masked_fill(a == a, b), lambda a, b: a.masked_fill(a == a, b)),
    "clip": (lambda a, b: a.clip(b, b), lambda a, b: a.clip(b, b)),
}


def array(kind: str, dtype: str) -> Any:
    """An operand of that kind; numbers have three dtypes."""
    if kind == "number":
        return NUMBERS[dtype]
    return np.ones((3,) if kind == "tensor" else (), dtypes.dtype_of(dtype).numpy)


def torch_of(x: Any, dtype: str) -> Any:
    return torch.ones(x.shape, dtype=getattr(torch, dtype)) if isinstance(x, np.ndarray) else x


def dtype_like_torch(name: str) -> list[str]:
    """Every pair for which PyTorch gives a dtype and Luminal another one, or none."""
    ours, theirs = (OPS | LIBRARY)[name]
    cx = Recorder()
    wrong = []
    for first, second in itertools.product(KINDS, KINDS):
        if "number" in (first, second) and (first == second or name in TENSORS):
            continue
        if first == "number" and name in LIBRARY:
            continue
        pairs = [NUMBERS if kind == "number" else DTYPES for kind in (first, second)]
        for a, b in itertools.product(*pairs):
            x, y = array(first, a), array(second, b)
            try:
                wanted = theirs(torch_of(x, a), torch_of(y, b)).dtype
            except (RuntimeError, TypeError):
                continue  # PyTorch has none: ours may
            given = [
                cx.tensor(z.shape, z.dtype) if isinstance(z, np.ndarray) else z for z in (x, y)
            ]
            try:
                found = str(ours(*given).dtype.name)
            except DTypeError as error:
                if name in REFUSING and "cast the tensor or the value" in str(error):
                    continue
                found = str(error)
            if found != str(wanted).removeprefix("torch."):
                wrong.append(f"{first} {a}, {second} {b}: {found}, PyTorch has {wanted}")
    return wrong


NAMES = [*OPS, *LIBRARY]


@pytest.mark.parametrize("name", long_but(NAMES, NAMES[::4]))
def test_the_dtype_of_every_pair(name: str) -> None:
    assert dtype_like_torch(name) == []
