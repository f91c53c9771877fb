"""Discrete Fourier transforms under the names of torch.fft, as products of matrices.

A transform of n = a * b elements is one of a and one of b with a factor between them (Cooley and
Tukey 1965). So all that is computed is products with matrices of at most `MOST` rows, which the
compiler is good at. A prime above `MOST` is a convolution of a length that is a power of 2
(Bluestein 1970). Factors are made in float64 and rounded once, from exponents that are reduced
exactly. Extents along which is transformed are literal; what is transformed has gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, InputError, ShapeError
from luminal.frontend.complex.tensor import ComplexTensor
from luminal.frontend.handle import Array, axis_of, is_tensor
from luminal.frontend.movement.padding import pad
from luminal.frontend.movement.views import concat, flip
from luminal.frontend.tensor import Tensor
from luminal.functions import roll
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.session.default_graph import constant

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

MOST = 64
"""Rows of a matrix of factors: 4096 elements are two products, and no matrix leaves the cache."""
NORMS = ("backward", "ortho", "forward")
Dims = Sequence[int] | None
Numbers = Tensor | ComplexTensor


# --- one dim --------------------------------------------------------------------------------------


def fft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexTensor:
    """The transform along `dim`, cut or filled with zeros to n elements. As torch.fft.fft.

    norm: "backward" (None) divides the inverse by n, "forward" this one, "ortho" both by sqrt(n).
    Raises ShapeError for an extent that is not literal, or 0.
    """
    return _along("fft", x, n, dim, lambda z: _scaled(_transform(z), norm, forward=True))


def ifft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexTensor:
    """The inverse of `fft`. As torch.fft.ifft."""
    return _along("ifft", x, n, dim, lambda z: _scaled(_inverse(z), norm, forward=False))


def rfft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexTensor:
    """The first n // 2 + 1 elements of `fft` of real x: the others are their conjugates. As
    torch.fft.rfft.
    """
    _check_real("rfft", x)
    z = fft(x, n, dim, norm)
    return z.narrow(dim, 0, _literal("rfft", z, dim) // 2 + 1)  # type: ignore[no-any-return]


def irfft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The n real elements whose `rfft` is x; an even number of them by default. As torch.fft.irfft.

    The imaginary part of the first element, and of the last one of an even n, does not count.
    """
    z = _numbers("irfft", x)
    count = 2 * (_literal("irfft", z, dim) - 1) if n is None else n
    if count < 1:
        raise ShapeError(f"irfft: n is {count}; give n >= 1")

    def real(half: ComplexTensor) -> ComplexTensor:
        # The other elements are the conjugates of the first ones, in reverse order.
        rest = half[..., 1 : (count + 1) // 2]
        real = concat([half.real, flip(rest.real, -1)], -1)
        whole = ComplexTensor(real, concat([half.imag, -flip(rest.imag, -1)], -1))
        return _scaled(_inverse(whole), norm, forward=False)

    return _along("irfft", z, count // 2 + 1, dim, real).real  # type: ignore[no-any-return]


def hfft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """`fft` of a sequence of n elements that is its own conjugate in reverse, of which x is the
    first half: n real elements. As torch.fft.hfft.
    """
    return irfft(_numbers("hfft", x).conj(), n, dim, _other(norm))


def ihfft(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexTensor:
    """The inverse of `hfft`. As torch.fft.ihfft."""
    return rfft(x, n, dim, _other(norm)).conj()


# --- several dims ---------------------------------------------------------------------------------


def fftn(x: Any, s: Dims = None, dim: Dims = None, norm: str | None = None) -> ComplexTensor:
    """`fft` along several dims: all, or the last ones that `s` has extents for."""
    return _over(fft, "fftn", x, s, dim, norm)


def ifftn(x: Any, s: Dims = None, dim: Dims = None, norm: str | None = None) -> ComplexTensor:
    """The inverse of `fftn`. As torch.fft.ifftn."""
    return _over(ifft, "ifftn", x, s, dim, norm)


def rfftn(x: Any, s: Dims = None, dim: Dims = None, norm: str | None = None) -> ComplexTensor:
    """`rfft` along the last of the dims, then `fft` along the others. As torch.fft.rfftn."""
    _check_real("rfftn", x)
    *others, last = _extents("rfftn", x, s, dim)
    z = rfft(x, last[1], last[0], norm)
    return reduce(lambda z, axis: fft(z, axis[1], axis[0], norm), reversed(others), z)


def irfftn(x: Any, s: Dims = None, dim: Dims = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`. As torch.fft.irfftn."""
    *others, last = _extents("irfftn", x, s, dim)
    z = reduce(lambda z, axis: ifft(z, axis[1], axis[0], norm), others, _numbers("irfftn", x))
    return irfft(z, None if s is None else last[1], last[0], norm)


def fft2(x: Any, s: Dims = None, dim: Dims = (-2, -1), norm: str | None = None) -> ComplexTensor:
    """`fftn` along the last two dims. As torch.fft.fft2."""
    return fftn(x, s, dim, norm)


def ifft2(x: Any, s: Dims = None, dim: Dims = (-2, -1), norm: str | None = None) -> ComplexTensor:
    """`ifftn` along the last two dims. As torch.fft.ifft2."""
    return ifftn(x, s, dim, norm)


def rfft2(x: Any, s: Dims = None, dim: Dims = (-2, -1), norm: str | None = None) -> ComplexTensor:
    """`rfftn` along the last two dims. As torch.fft.rfft2."""
    return rfftn(x, s, dim, norm)


def irfft2(x: Any, s: Dims = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` along the last two dims. As torch.fft.irfft2."""
    return irfftn(x, s, dim, norm)


# --- frequencies ----------------------------------------------------------------------------------


def fftfreq(n: int, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft` of n samples at a distance of d: float32 by default."""
    kind = dtypes.float32 if dtype is None else dtypes.dtype_of(dtype)
    return constant(kind.rounded(np.fft.fftfreq(n, d)))


def rfftfreq(n: int, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft` of n samples at a distance of d: float32 by default."""
    kind = dtypes.float32 if dtype is None else dtypes.dtype_of(dtype)
    return constant(kind.rounded(np.fft.rfftfreq(n, d)))


def fftshift(x: Any, dim: int | Dims = None) -> Any:
    """Frequency 0, the first element, is moved to the middle of all dims, or of some."""
    return _shifted("fftshift", x, dim, lambda n: n // 2)


def ifftshift(x: Any, dim: int | Dims = None) -> Any:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, dim, lambda n: -(n // 2))


def _shifted(what: str, x: Any, dim: int | Dims, shift: Callable[[int], int]) -> Any:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return roll(x, [shift(_literal(what, x, k)) for k in dims], [*dims])


# --- how ------------------------------------------------------------------------------------------


def _transform(z: ComplexTensor) -> ComplexTensor:
    """The transform along the last dim."""
    n = int(z.shape[-1])
    if n <= MOST:
        return _product(z, _matrix(n))
    a = _factor(n)
    if a == 1:
        return _bluestein(z, n)
    b = n // a
    # Element j = j1 * b + j2 and frequency k = k1 + a * k2: the exponent j * k is j1 * k1 of a,
    # j2 * k1 of n, and j2 * k2 of b.
    rows = _transform(z.unflatten(-1, (a, b)).transpose(-1, -2)).transpose(-1, -2)
    k1, j2 = np.arange(a)[:, None], np.arange(b)
    columns = _transform(_times(rows, _roots(k1 * j2, n)))
    return columns.transpose(-1, -2).flatten(-2)  # type: ignore[no-any-return]


def _factor(n: int) -> int:
    """A factor to split off: the greatest of at most MOST, else the least prime; 1 of a prime."""
    fitting = [a for a in range(2, MOST + 1) if n % a == 0]
    if fitting:
        return fitting[-1] if fitting[-1] < n else 1
    return next((a for a in range(MOST + 1, math.isqrt(n) + 1) if n % a == 0), 1)


def _bluestein(z: ComplexTensor, n: int) -> ComplexTensor:
    """j * k = (j**2 + k**2 - (k - j)**2) / 2: a convolution with w**(-m**2 / 2), by a longer
    transform whose length is a power of 2.
    """
    length = 1 << (2 * n - 2).bit_length()
    m = np.arange(n)
    chirp = _roots(m * m, 2 * n)
    around = np.zeros(length, np.complex128)
    around[:n] = chirp.conj()
    around[length - n + 1 :] = chirp[1:][::-1].conj()
    room = (0, length - n)
    held = _times(z, chirp)
    wide = ComplexTensor(pad(held.real, room), pad(held.imag, room))
    joined = _inverse(_times(_transform(wide), np.fft.fft(around) / length))
    return _times(joined[..., :n], chirp)


def _inverse(z: ComplexTensor) -> ComplexTensor:
    """n times the inverse: with the parts exchanged, before and after."""
    turned = _transform(ComplexTensor(z.imag, z.real))
    return ComplexTensor(turned.imag, turned.real)


def _roots(exponents: Array, n: int) -> Array:
    """exp(-2j * pi * e / n)."""
    angles = (-2 * np.pi / n) * (exponents % n)
    factors: Array = np.cos(angles) + 1j * np.sin(angles)
    return factors


@lru_cache(MOST)
def _matrix(n: int) -> Array:
    """The factors of a transform of n."""
    k = np.arange(n)
    return _roots(k[:, None] * k, n)


def _constants(z: ComplexTensor, factors: Array) -> tuple[Tensor, Tensor]:
    kind: DType = z.real.dtype
    graph = z.graph
    real, imag = (graph.constant(kind.rounded(part)) for part in (factors.real, factors.imag))
    return real, imag


def _product(z: ComplexTensor, matrix: Array) -> ComplexTensor:
    real, imag = _constants(z, matrix)
    return ComplexTensor(z.real @ real - z.imag @ imag, z.real @ imag + z.imag @ real)


def _times(z: ComplexTensor, factors: Array) -> ComplexTensor:
    real, imag = _constants(z, factors)
    return ComplexTensor(z.real * real - z.imag * imag, z.real * imag + z.imag * real)


# --- arguments ------------------------------------------------------------------------------------


def _numbers(what: str, x: Any) -> ComplexTensor:
    """What is transformed: floats of 32 or 64 bits, of integers float32."""
    if isinstance(x, ComplexTensor):
        return x
    x = x.as_tensor() if isinstance(x, Parameter | State) else x
    if not is_tensor(x):
        raise DTypeError(
            f"{what}: got a {type(x).__name__} in the place of a Tensor; pass lm.tensor(x)"
        )
    if x.dtype.is_storage:
        raise DTypeError(f"{what}: got {x.dtype.name}; cast it: x.float()")
    real = x if x.dtype.is_float else x.cast(dtypes.float32)
    return ComplexTensor(real, real * 0)


def _check_real(what: str, x: Any) -> None:
    if isinstance(x, ComplexTensor):
        raise DTypeError(f"{what}: takes real numbers, got a ComplexTensor; use {what[1:]}")


def _along(
    what: str, x: Any, n: int | None, dim: int, function: Callable[[ComplexTensor], ComplexTensor]
) -> ComplexTensor:
    """The function of x with `dim` as the last one, cut or filled with zeros to n elements."""
    z = _numbers(what, x)
    axis, extent = axis_of(what, dim, z.ndim), _literal(what, z, dim)
    count = extent if n is None else n
    if count < 1:
        raise ShapeError(f"{what}: n is {count}; give n >= 1")
    z = z.movedim(axis, -1)
    if count < extent:
        z = z[..., :count]
    elif count > extent:
        z = ComplexTensor(*(pad(part, (0, count - extent)) for part in (z.real, z.imag)))
    return function(z).movedim(-1, axis)  # type: ignore[no-any-return]


def _literal(what: str, x: Any, dim: int) -> int:
    extent = x.shape[axis_of(what, dim, x.ndim)]
    if not isinstance(extent, int):
        raise ShapeError(
            f"{what}: the extent of dim {dim} is {extent}; it must be literal, since the factors "
            "follow from it (or give n)"
        )
    return extent


def _scaled(z: ComplexTensor, norm: str | None, forward: bool) -> ComplexTensor:
    kind = "backward" if norm is None else norm
    if kind not in NORMS:
        raise InputError(f"fft: norm {norm!r} is not one of {', '.join(NORMS)}")
    n = int(z.shape[-1])
    if kind == "ortho":
        return z * (1 / math.sqrt(n))
    return z * (1 / n) if (kind == "forward") == forward else z


def _other(norm: str | None) -> str | None:
    """The norm of a transform that stands for its inverse."""
    return {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)


def _extents(what: str, x: Any, s: Dims, dim: Dims) -> list[tuple[int, int | None]]:
    """The dims, each with the number of elements asked for."""
    if dim is None:
        dims = [*(range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim))]
    else:
        dims = [axis_of(what, k, x.ndim) for k in ([dim] if isinstance(dim, int) else dim)]
    if len(set(dims)) < len(dims) or not len(dims):
        raise ShapeError(f"{what}: dims {dim}; name each once, and one at least")
    counts = [None if n == -1 else n for n in s] if s is not None else [None] * len(dims)
    if len(counts) != len(dims):
        raise ShapeError(f"{what}: s has {len(counts)} extents for {len(dims)} dims; give one each")
    return [*zip(dims, counts, strict=True)]


def _over(
    function: Callable[..., ComplexTensor], what: str, x: Any, s: Dims, dim: Dims, norm: str | None
) -> ComplexTensor:
    z = _numbers(what, x)
    for axis, n in _extents(what, x, s, dim):
        z = function(z, n, axis, norm)
    return z
