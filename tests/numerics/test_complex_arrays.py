"""Complex arrays of `lm.array_api` beside NumPy's: functions one by one, and drawn compositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.close import close_to_greatest
from tests.long_share import mostly_long

xp = lm.array_api
Case = Callable[[Any, Any, Any, Any], Any]

SHARE = {"complex64": 1e-5, "complex128": 1e-13}
"""Of the greatest element: sums of a dozen products, quotients and functions of some ulp."""


# Of complex a and b and real x, all (3, 4).
FUNCTIONS: dict[str, Case] = {
    "arithmetic": lambda n, a, b, x: (a + b * x - a / b) * (2 - 1j) + 1 / a - 2,
    "powers": lambda n, a, b, x: a**2 + n.pow(a, b) + n.square(b),
    "functions": lambda n, a, b, x: n.exp(a) + n.log(b) + n.sqrt(a) + n.sin(b) + n.tanh(a),
    "inverse functions": lambda n, a, b, x: n.acosh(a) + n.asin(b) + n.atan(a) + n.log1p(b),
    "parts": lambda n, a, b, x: n.real(a) + n.imag(b) + n.abs(a) + abs(b) + n.real(x),
    "conjugates": lambda n, a, b, x: n.conj(a) * n.sign(b) + n.positive(a) - n.reciprocal(b),
    "a real conjugate": lambda n, a, b, x: n.conj(x),
    "equal": lambda n, a, b, x: (a == a) & (a != b) & (a == x + 0 * a),
    "finite": lambda n, a, b, x: n.isfinite(a) | n.isnan(b) | n.isinf(a),
    "chosen": lambda n, a, b, x: n.where(x > 0, a, b),
    "moved": lambda n, a, b, x: n.flip(n.permute_dims(n.roll(a, 1, axis=0), (1, 0)), axis=0),
    "shaped": lambda n, a, b, x: n.expand_dims(n.reshape(a, (2, 6)), axis=1),
    "joined": lambda n, a, b, x: n.concat([a, n.stack([b[0], a[1]])]),
    "parted": lambda n, a, b, x: n.unstack(a)[1] + n.broadcast_to(b[0, :1], (4,)),
    "repeated": lambda n, a, b, x: n.repeat(n.tile(a, (1, 2)), 2, axis=0),
    "triangles": lambda n, a, b, x: n.tril(a) - n.triu(b, k=1),
    "taken": lambda n, a, b, x: n.take(a, n.asarray([2, 0]), axis=1),
    "sums": lambda n, a, b, x: n.sum(a, axis=0) + n.mean(b, axis=0) + n.sum(a),
    "products": lambda n, a, b, x: n.prod(a, axis=1) + n.prod(b, axis=-1) * n.prod(a),
    "products kept": lambda n, a, b, x: n.prod(a, axis=0, keepdims=True),
    "running sums": lambda n, a, b, x: n.cumulative_sum(a, axis=1),
    "matrices": lambda n, a, b, x: a @ n.matrix_transpose(b) + n.matmul(x, b.T),
    "vecdot": lambda n, a, b, x: n.vecdot(a, b) + n.linalg.vecdot(b, x, axis=-1),
    "tensordot": lambda n, a, b, x: n.tensordot(a, x, axes=([1], [1])),
    "outer": lambda n, a, b, x: n.linalg.outer(a[0], b[1]) + n.linalg.outer(a[0], x[1]),
    "norms": lambda n, a, b, x: n.linalg.vector_norm(a, axis=1) + n.linalg.vector_norm(b),
    "truth": lambda n, a, b, x: n.any(a, axis=0) & n.all(b * 0) | (n.count_nonzero(a) > 5),
    "rounded": lambda n, a, b, x: n.round(a * 3),
    "grids": lambda n, a, b, x: n.meshgrid(a[0], x[0])[0] * n.broadcast_arrays(x[0], a[1])[0],
    "traces": lambda n, a, b, x: n.linalg.trace(a) + n.linalg.diagonal(b)[0],
    "indexed": lambda n, a, b, x: a[1:, ::2] + b[x > 5][:1].sum() if n is np else a[1:, ::2],
    "made": lambda n, a, b, x: n.zeros_like(a) + n.ones((3, 4), dtype=a.dtype) + n.full_like(b, 1j),
    "identity": lambda n, a, b, x: n.eye(3, dtype=a.dtype) @ a + n.empty_like(b) * 0
    if n is xp else n.eye(3, dtype=a.dtype) @ a,
    "transforms": lambda n, a, b, x: n.fft.fft(a, axis=0) + n.fft.ifft(b, norm="ortho"),
    "transforms of reals": lambda n, a, b, x: n.fft.irfft(n.fft.rfft(x), n=4) + n.fft.hfft(a, n=4),
    "several dims": lambda n, a, b, x: n.fft.ifftn(n.fft.fftn(a, axes=(0, 1)), axes=(0, 1)),
    "shifted": lambda n, a, b, x: n.fft.fftshift(a, axes=1) + n.fft.ifftshift(b),
}  # fmt: skip


def numbers(seed: int, dtype: str) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    a, b = ((rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))).astype(dtype)
            for _ in range(2))  # fmt: skip
    return a, b, rng.standard_normal((3, 4)).astype(a.real.dtype)


def check(case: Case, dtype: str, seed: int = 0) -> None:
    """The dtype and shape of NumPy, and its values of complex128."""
    operands = numbers(seed, dtype)
    found = np.asarray(case(xp, *(xp.asarray(x, copy=True) for x in operands)))
    typed = np.asarray(case(np, *operands))
    assert (found.dtype, found.shape) == (typed.dtype, typed.shape)
    exact = case(np, *(x.astype(np.complex128 if x.dtype.kind == "c" else float) for x in operands))
    close_to_greatest(found, exact, SHARE[dtype])


@pytest.mark.usefixtures("interpreted_chains")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_numpys(name: str) -> None:
    check(FUNCTIONS[name], "complex64")


@pytest.mark.long
@pytest.mark.parametrize("dtype", SHARE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_are_numpys(name: str, dtype: str) -> None:
    check(FUNCTIONS[name], dtype)


# --- drawn ----------------------------------------------------------------------------------------

STEPS: tuple[Case, ...] = (
    lambda n, a, b, x: a * b,
    lambda n, a, b, x: a / (abs(b) + 1) - 0.5j,
    lambda n, a, b, x: n.exp(a / (n.abs(a) + 1)),
    lambda n, a, b, x: n.conj(a) + n.real(b),
    lambda n, a, b, x: n.sqrt(b) * n.imag(a),
    lambda n, a, b, x: n.where(x > 0, a, n.sign(b)),
    lambda n, a, b, x: a - n.mean(a, axis=0, keepdims=True),
    lambda n, a, b, x: n.cumulative_sum(a, axis=1) / 2,
    lambda n, a, b, x: (a @ n.matrix_transpose(n.conj(b))) @ b / 8,
    lambda n, a, b, x: n.fft.fft(a, norm="ortho"),
    lambda n, a, b, x: n.roll(n.flip(a, axis=1), 1, axis=0),
    lambda n, a, b, x: n.log(n.abs(a) + 1 + 0j * b),
    lambda n, a, b, x: n.sin(x) + n.tanh(a / (n.abs(a) + 1)),
    lambda n, a, b, x: n.reshape(n.permute_dims(a, (1, 0)), (3, 4)) * x,
)


def composed(seed: int) -> Case:
    """Eight steps, each of two of the values so far."""
    rng = np.random.default_rng(seed)
    drawn = [(rng.integers(len(STEPS)), rng.integers(k + 2), rng.integers(k + 2)) for k in range(8)]

    def case(n: Any, a: Any, b: Any, x: Any) -> Any:
        values = [a, b]
        for step, first, second in drawn:
            values.append(STEPS[step](n, values[first], values[second], x))
        return sum(values[1:], start=values[0]) if n is np else _sum(values)

    return case


def _sum(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


@pytest.mark.usefixtures("interpreted_chains")
@pytest.mark.parametrize("seed", mostly_long(range(60), 6))
def test_drawn_compositions(seed: int) -> None:
    check(composed(seed), "complex128", seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_drawn_compositions_compiled(seed: int) -> None:
    check(composed(seed), "complex128", seed)


# --- as arrays ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interpreted_chains")
def test_writing_and_sharing() -> None:
    a, b, _ = numbers(0, "complex64")
    z = xp.asarray(a, copy=True)
    before = z * 1
    z[0, 0] = 5
    z[1] = xp.asarray(b[1])
    z[a.real < 0] = 1j
    wanted = a.copy()
    wanted[0, 0], wanted[1] = 5, b[1]
    wanted[a.real < 0] = 1j
    assert np.array_equal(np.asarray(z), wanted)
    assert np.array_equal(np.asarray(before), a)
    z += 1
    assert np.array_equal(np.asarray(z), wanted + 1)
    held = z + 0
    out = np.from_dlpack(z)
    assert out.dtype == np.complex64
    later = z + 1
    out[...] = 0
    assert np.array_equal(np.asarray(held), wanted + 1)
    assert np.array_equal(np.asarray(later), wanted + 1 + 1)
    assert np.array_equal(np.asarray(z + 1), np.ones((3, 4)))
    shared = xp.asarray(out)
    out[0, 0] = 3j
    assert complex(shared[0, 0]) == complex(xp.sum(shared)) == 3j
    with pytest.raises(lm.DTypeError, match=r"x\[...\] = value: x holds float32, .* complex64"):
        xp.ones(2)[0] = xp.asarray(1j)


def test_dtypes_and_numbers() -> None:
    z = xp.asarray([1 + 2j, 3])
    assert z.dtype is xp.complex64
    assert repr(z) == "Array([1.+2.j, 3.+0.j], dtype=complex64)"
    assert xp.asarray(np.ones(1, complex)).dtype is xp.complex128
    assert xp.astype(xp.ones(2), xp.complex128).dtype is xp.complex128
    assert (z + xp.ones((), dtype=xp.float64)).dtype is xp.complex128
    assert (z + xp.ones(2, dtype=xp.int32)).dtype is xp.complex64
    with pytest.raises(lm.DTypeError, match=r"float: the array is complex64; take real\(x\)"):
        float(z[0])
    with pytest.raises(lm.DTypeError, match=r"as float32 would lose its imaginary part; take real"):
        xp.astype(z, xp.float32)
    with pytest.raises(lm.DTypeError, match="argmax: takes real Tensors, got a ComplexTensor"):
        xp.argmax(z)
    assert xp.broadcast_arrays(z, xp.ones(2))[1].dtype is xp.float32
    assert xp.meshgrid(z, xp.ones(2))[1].dtype is xp.float32
    x, y = xp.asarray([1j, 2, 0]), xp.asarray([0, 1j, 1])
    wanted = np.asarray([2, -1j, -1])  # as of real vectors, nothing is conjugated
    assert np.allclose(np.asarray(xp.linalg.cross(x, y)), wanted)
    with pytest.raises(lm.DTypeError, match="less: takes real Tensors, got a ComplexTensor"):
        z < z  # noqa: B015
