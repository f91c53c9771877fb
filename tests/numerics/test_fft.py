"""Fourier transforms beside NumPy's in float64, and complex numbers beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DTypeError, InputError, ShapeError
from tests.close import close_to_greatest

torch = pytest.importorskip("torch")

SHARE = 1e-6
"""Of the greatest element: float32 rounds to 1e-7 of it, and a sum of n terms is off by some
sqrt(log n) of that."""
SIZES = [*range(1, 65), 67, 81, 97, 121, 127, 128, 210, 251, 257, 360, 509, 1000, 1009, 4096]
QUICK = (1, 2, 6, 64, 67, 81)
"""A size of each kind: a matrix, a prime beyond the greatest matrix, a product of sizes."""
rng = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def ours(z: np.ndarray[Any, Any], dtype: str = "float32") -> Any:
    return lm.complex(*(lm.tensor(np.ascontiguousarray(p, dtype)) for p in (z.real, z.imag)))


@pytest.mark.parametrize(
    "n", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in SIZES]
)
def test_transforms_of_any_size_are_numpys(n: int) -> None:
    z, norm = numbers(2, n).astype(np.complex64), ("backward", "ortho", "forward")[n % 3]
    wide, x = z.astype(np.complex128), ours(z)
    half = lm.fft.rfft(x.real, norm=norm)
    for got, expected in (
        (lm.fft.fft(x, norm=norm), np.fft.fft(wide, norm=norm)),
        (lm.fft.ifft(x, norm=norm), np.fft.ifft(wide, norm=norm)),
        (half, np.fft.rfft(wide.real, norm=norm)),
        (lm.fft.irfft(half, n=n, norm=norm), wide.real),
    ):
        close_to_greatest(got.numpy(), expected, SHARE)


def test_float64_has_its_own_precision() -> None:
    z = numbers(2, 210)
    got = lm.fft.fft(ours(z, "float64"))
    assert got.dtype is lm.complex128
    close_to_greatest(got.numpy(), np.fft.fft(z), 1e-14)  # as SHARE, of float64


SEVERAL: dict[str, Callable[[Any, Any], Any]] = {
    "fftn": lambda fft, z: fft.fftn(z),
    "ifftn of some": lambda fft, z: fft.ifftn(z, s=(4, 7), dim=(0, 2), norm="ortho"),
    "fft2": lambda fft, z: fft.fft2(z),
    "ifft2": lambda fft, z: fft.ifft2(z, norm="forward"),
    "rfft2": lambda fft, z: fft.rfft2(z.real),
    "irfft2": lambda fft, z: fft.irfft2(z, s=(5, 7)),
    "rfftn": lambda fft, z: fft.rfftn(z.real, s=(4, 6), dim=(1, 0)),
    "irfftn": lambda fft, z: fft.irfftn(z, norm="ortho"),
    "along a dim, cut": lambda fft, z: fft.fft(z, n=3, dim=1),
    "along a dim, filled": lambda fft, z: fft.fft(z, n=9, dim=-2),
    "hfft": lambda fft, z: fft.hfft(z, n=9, norm="ortho"),
    "ihfft": lambda fft, z: fft.ihfft(z.real),
    "shifted": lambda fft, z: fft.ifftshift(fft.fftshift(fft.fftshift(z, dim=1)), dim=(0, 2)),
    "frequencies": lambda fft, z: fft.fftfreq(7, 0.5) + fft.fftshift(fft.fftfreq(7)),
    "real frequencies": lambda fft, z: fft.rfftfreq(8, 2.0),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_dims_are_as_in_pytorch(name: str) -> None:
    z = numbers(3, 5, 6).astype(np.complex64)
    got, expected = SEVERAL[name](lm.fft, ours(z)), SEVERAL[name](torch.fft, torch.tensor(z))
    close_to_greatest(got.numpy(), expected.resolve_conj().numpy(), SHARE)


COMPLEX: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "arithmetic": lambda t, a, b, x: (a * b + x * a - b / a) / (a - 2j) + 1j * x - (3 - a),
    "quotients": lambda t, a, b, x: x / a + 1 / b + a / 2 - x,
    "powers": lambda t, a, b, x: a**3 + a.pow(0) + b**0.5 + t.square(a),
    "functions": lambda t, a, b, x: t.exp(a) + t.log(b) + t.sqrt(a) + t.conj(b) + t.sgn(a),
    "parts": lambda t, a, b, x: a.real + t.imag(a) + t.abs(b) + t.angle(b) + a.abs().exp(),
    "made": lambda t, a, b, x: t.polar(t.abs(x), x) + t.complex(x, x) + t.view_as_complex(
        t.view_as_real(a)
    ),
    "products": lambda t, a, b, x: a @ b.mT + t.einsum("ij,kj->ik", b, a),
    "hermitian": lambda t, a, b, x: (a @ b.mH) @ (a @ b.mH).H,
    "moved": lambda t, a, b, x: t.cat([a, b]).reshape(3, -1).T[1:, ::2].flip(0).unsqueeze(1),
    "joined with real": lambda t, a, b, x: t.stack([a, t.complex(x, 0 * x)]).sum((0, -1)),
    "sums": lambda t, a, b, x: a.sum() + b.mean(0).cumsum(0) + t.roll(a, 1, 0).sum(0),
    "chosen": lambda t, a, b, x: t.where(x > 0, a, b) * (a == a) + (a != b),
    "padded": lambda t, a, b, x: t.nn.functional.pad(a, (1, 2)),
    "beside real": lambda t, a, b, x: t.diff(a, dim=1, prepend=x[:, :1].to(a.dtype))
    if t is torch else t.diff(a, dim=1, prepend=x[:, :1]),
    "filled": lambda t, a, b, x: t.nn.functional.pad(a, (1, 2), "constant", 0.5)[:, :4]
    + a.masked_fill(x > 0, 2) + a.masked_fill(x > 0, 1 + 2j),
    "added": lambda t, a, b, x: t.add(a, b, alpha=2) - a.sub(b, alpha=0.5) + a.neg()
    + a.scatter_add(1, (x > 0).long(), b) + a.index_add(0, t.tensor([2, 0, 0]), b),
    "numbers": lambda t, a, b, x: x * (2 + 1j) + (1 - 1j) / (x * x + 1) - 2j,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_those_of_pytorch(name: str) -> None:
    a, b = (numbers(3, 4).astype(np.complex64) for _ in range(2))
    x = rng.standard_normal((3, 4)).astype(np.float32)
    got = COMPLEX[name](lm, ours(a), ours(b), lm.tensor(x))
    expected = COMPLEX[name](torch, torch.tensor(a), torch.tensor(b), torch.tensor(x))
    if not expected.is_complex():
        assert lm.is_tensor(got)
    else:
        assert got.dtype is lm.complex64
    close_to_greatest(got.numpy(), expected.resolve_conj().numpy(), 3e-6)  # quotients, powers


def test_arrays_of_numpy_beside_tensors() -> None:
    a, x = numbers(3, 4).astype(np.complex64), rng.standard_normal((3, 4)).astype(np.float32)
    z, t = ours(a), lm.tensor(x)
    for got, wanted in (
        (z * a, a * a), (t * a, x * a), (t + a, x + a), (a[0, 0] * t, a[0, 0] * x),
        (a / z, a / a), (x * z, x * a), (z - a.T.copy().T, 0 * a), (t @ a.T, x @ a.T),
    ):  # fmt: skip
        close_to_greatest(got.numpy(), wanted, 3e-6)


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "rfft": lambda t, x: t.abs(t.fft.rfft(x)).square().sum(),
    "a filter": lambda t, x: (
        t.fft.irfft(t.fft.rfft(x, norm="ortho") * t.exp(1j * x[:, :10]), n=18) ** 3
    ).sum(),
    "a prime, through abs": lambda t, x: t.fft.fft(x, n=67).abs().sum(),
    "angles": lambda t, x: (t.fft.fft(x).angle() * t.arange(18.0)).sum(),
    "abs at 0": lambda t, x: t.complex(x * 0, x * 0).abs().sum() + x.sum(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    x = rng.standard_normal((2, 18)).astype(np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    GRADIENTS[name](torch, theirs).backward()
    got = lm.grad(lambda x: GRADIENTS[name](lm, x))(lm.tensor(x))
    close_to_greatest(got.numpy(), theirs.grad.numpy(), 1e-5)  # angles divide by small numbers


def test_what_it_cannot_do_is_said() -> None:
    x, z = lm.ones(4), ours(numbers(4))
    with pytest.raises(DTypeError, match=r"rfft: takes real numbers, got a ComplexTensor; use fft"):
        lm.fft.rfft(z)
    with pytest.raises(InputError, match="norm 'all' is not one of backward, ortho, forward"):
        lm.fft.fft(x, norm="all")
    with pytest.raises(ShapeError, match="fft: n is 0; give n >= 1"):
        lm.fft.fft(x, n=0)
    with pytest.raises(DTypeError, match=r"softmax: takes real Tensors, got a ComplexTensor"):
        lm.softmax(z, 0)
    with pytest.raises(AttributeError, match=r"ComplexTensor has no 'relu'.*z\.real and z\.imag"):
        z.relu()
    with pytest.raises(ShapeError, match=r"view_as_complex: the shape is \(4,\)"):
        lm.view_as_complex(x)
    with pytest.raises(TypeError, match="a ComplexTensor does not change"):
        z[0] = 1
    graph = lm.Graph()
    with pytest.raises(ShapeError, match=r"the extent of dim -1 is n; it must be literal"):
        lm.fft.fft(graph.tensor((graph.dim("n"),)))
