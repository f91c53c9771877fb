"""The standard's extension of Fourier transforms, by those of `lm.fft`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal import fft as transforms
from luminal.array_api.array import Array, of_arrays, of_memory
from luminal.array_api.complex_numbers import WHOLE
from luminal.base.complex_dtypes import any_dtype_of
from luminal.base.dtypes import float32
from luminal.frontend.foreign import check_device


def _along_one(transform: Callable[..., Any]) -> Callable[..., Any]:
    def called(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return transform(x, n, axis, norm)

    return _named(called, transform)


def _along_several(transform: Callable[..., Any]) -> Callable[..., Any]:
    def called(
        x: Any,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Any:
        return transform(x, s, axes, norm)

    return _named(called, transform)


def _shifting(transform: Callable[..., Any]) -> Callable[..., Any]:
    def called(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Any:
        return transform(x, axes)

    return _named(called, transform)


def _named(called: Callable[..., Any], transform: Callable[..., Any]) -> Callable[..., Any]:
    called.__name__ = called.__qualname__ = transform.__name__
    called.__doc__ = transform.__doc__
    return of_arrays(called, WHOLE)


fft, ifft, rfft, irfft, hfft, ihfft = map(
    _along_one,
    (
        transforms.fft, transforms.ifft, transforms.rfft, transforms.irfft, transforms.hfft,
        transforms.ihfft,
    ),
)  # fmt: skip
fftn, ifftn, rfftn, irfftn = map(
    _along_several, (transforms.fftn, transforms.ifftn, transforms.rfftn, transforms.irfftn)
)
fftshift, ifftshift = map(_shifting, (transforms.fftshift, transforms.ifftshift))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of `fft` of n samples at a distance of d: float32 by default."""
    check_device("fftfreq", device)
    return of_memory(np.fft.fftfreq(n, d).astype(any_dtype_of(dtype or float32).numpy))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of `rfft` of n samples at a distance of d: float32 by default."""
    check_device("rfftfreq", device)
    return of_memory(np.fft.rfftfreq(n, d).astype(any_dtype_of(dtype or float32).numpy))


__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip
