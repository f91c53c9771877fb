"""Many cases of indexing functions in one graph, compared with NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.close import close
from tests.numerics.recording import run

Case = tuple[Callable[..., Any], Any]


def check(cases: dict[str, Case], *arrays: np.ndarray[Any, Any]) -> None:
    """Each function of the arrays against what it should give; all in one graph."""
    found = run(lambda *xs: {name: list_of(fn(*xs)) for name, (fn, _) in cases.items()}, *arrays)
    for name, (_, expected) in cases.items():
        for actual, wanted in zip(found[name], list_of(expected), strict=True):
            try:
                close(actual, numpy_of(wanted))
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None


def list_of(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def numpy_of(x: Any) -> Any:
    return x.contiguous().numpy() if isinstance(x, torch.Tensor) else x
