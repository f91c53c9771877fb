"""`torch.signal.windows`: closed formulas over positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import luminal as lm

Tensor = lm.Tensor


def _positions(count: int, sym: bool, start: float, width: float) -> Tensor:
    """`count` positions from `start`; symmetric windows reach `start + width`."""
    divisor = count - 1 if sym else count
    return lm.arange(count).cast("float64") * (width / max(divisor, 1)) + start


def general_cosine(count: int, *, a: Sequence[float], sym: bool = True, dtype: Any = None,
                   **_: Any) -> Tensor:  # fmt: skip
    if count == 1:
        return lm.ones((1,), dtype or lm.float32)
    k = _positions(count, sym, 0.0, 2 * math.pi)
    total = k * 0.0
    for order, factor in enumerate(a):
        total = total + (k * order).cos() * (factor * (-1) ** order)
    return total.cast(dtype or lm.float32)


def general_hamming(count: int, *, alpha: float = 0.54, **how: Any) -> Tensor:
    return general_cosine(count, a=[alpha, 1 - alpha], **how)


def hamming(count: int, **how: Any) -> Tensor:
    return general_hamming(count, **how)


def hann(count: int, **how: Any) -> Tensor:
    return general_hamming(count, alpha=0.5, **how)


def blackman(count: int, **how: Any) -> Tensor:
    return general_cosine(count, a=[0.42, 0.5, 0.08], **how)


def nuttall(count: int, **how: Any) -> Tensor:
    return general_cosine(count, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], **how)


def bartlett(count: int, *, sym: bool = True, dtype: Any = None, **_: Any) -> Tensor:
    if count == 1:
        return lm.ones((1,), dtype or lm.float32)
    k = _positions(count, sym, -1.0, 2.0)
    return (1 - k.abs()).cast(dtype or lm.float32)


def cosine(count: int, *, sym: bool = True, dtype: Any = None, **_: Any) -> Tensor:
    if count == 1:
        return lm.ones((1,), dtype or lm.float32)
    divisor = count if sym else count + 1
    k = (lm.arange(count).cast("float64") + 0.5) * (math.pi / max(divisor, 1))
    return k.sin().cast(dtype or lm.float32)


def gaussian(count: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None,
             **_: Any) -> Tensor:  # fmt: skip
    if count == 1:
        return lm.ones((1,), dtype or lm.float32)
    k = lm.arange(count).cast("float64") - (count - 1 if sym else count) / 2
    return (-(k / std).square() / 2).exp().cast(dtype or lm.float32)


def exponential(count: int, *, center: Any = None, tau: float = 1.0, sym: bool = True,
                dtype: Any = None, **_: Any) -> Tensor:  # fmt: skip
    if count == 1:
        return lm.ones((1,), dtype or lm.float32)
    middle = (count - 1 if sym else count) / 2 if center is None else center
    k = lm.arange(count).cast("float64") - middle
    return (-k.abs() / tau).exp().cast(dtype or lm.float32)
