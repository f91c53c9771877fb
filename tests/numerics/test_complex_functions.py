"""Functions of complex numbers beside NumPy's, at special values too, and their gradients beside
PyTorch's; Tensors of a complex dtype that are made from nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DTypeError
from luminal.frontend.complex.functions import FUNCTIONS
from luminal.session.eager import default_graph
from tests.close import close_to_greatest
from tests.long_share import long_but

torch = pytest.importorskip("torch")

inf, nan = np.inf, np.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 3e30, -3e30, 100.0, -200.0, 1000.0, inf, -inf]
GRID = np.array([complex(x, y) for x in SPECIAL for y in SPECIAL])
SHARE = {"complex64": 3e-6, "complex128": 1e-13}
"""Of |f(z)|: some ulp of exp and of logarithms, whose results are multiplied."""
NUMPYS = {"sgn": "sign"} | {
    f"a{f}": f"arc{f}" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")
}
NAMES = [n for n in FUNCTIONS if not n.startswith("arc") and n != "sigmoid"]
NAMES += ["reciprocal", "abs", "angle"]
QUICK = ("exp", "sqrt", "reciprocal", "acos")


def tensor(z: Any) -> Any:
    return lm.complex(*(lm.tensor(np.ascontiguousarray(part)) for part in (z.real, z.imag)))


def is_left_out(name: str, z: Any) -> Any:
    """Beside poles squares underflow, and of two infinite parts not all angles are known."""
    x, y = np.abs(z.real), np.abs(z.imag)
    beside = {
        "atan": (x < 1e-20) & (y == 1),
        "atanh": (y < 1e-20) & (x == 1),
        **dict.fromkeys(("tan", "tanh"), np.isinf(x) & np.isinf(y)),
    }
    return beside.get(name, np.zeros(z.shape, np.bool_))


def check_special_values(name: str, dtype: str) -> None:
    """Where NumPy gives numbers or infinities, here is the same; where it gives NaN, anything."""
    z = GRID.astype(dtype)
    z = z[~is_left_out(name, z)]
    got = getattr(lm, name)(tensor(z)).numpy()
    with np.errstate(all="ignore"):
        wide = z if name == "expm1" else z.astype(np.complex128)
        wanted = getattr(np, NUMPYS.get(name, name))(wide).astype(got.dtype)
        size = np.where(np.isfinite(wanted), np.abs(wanted), 1)
        least = 1e-29 if name == "log1p" else 1e-37  # where NumPy's log1p is log(1 + z)
        told = np.isnan(wanted)
        for ours, theirs in ((got.real, wanted.real), (got.imag, wanted.imag)):
            fits = (ours == theirs) | (np.abs(ours - theirs) <= SHARE[dtype] * size + least)
            # exp(x) may overflow where its product with a small sine does not: here, or in NumPy.
            fits |= (
                (np.isinf(ours) | np.isinf(theirs)) & (np.abs(z) >= 100) & (ours * theirs > 1e26)
            )
            where = np.flatnonzero(~(fits | told))
            assert not where.size, [(z[k], got[k], wanted[k]) for k in where[:5]]


@pytest.mark.parametrize("name", QUICK)
def test_special_values_are_numpys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_graph(), "_backend", "reference")
    check_special_values(name, "complex64")


@pytest.mark.long
@pytest.mark.parametrize("dtype", SHARE)
@pytest.mark.parametrize("name", NAMES)
def test_compiled_special_values_are_numpys(name: str, dtype: str) -> None:
    check_special_values(name, dtype)


def test_quotients_are_numpys() -> None:
    values = [
        complex(x, y) for x in (0.0, 1.0, -2.5, 3e30, inf, nan) for y in (0.0, -2.0, 1e-30, inf)
    ]
    a, b = np.array([*itertools.product(values, values)], np.complex64).T
    with np.errstate(all="ignore"):
        found, wanted = (tensor(a) / tensor(b)).numpy(), a / b
    somewhere = b != 0  # there, NumPy divides the parts by 0 each
    fits = np.isclose(found, wanted, 3e-6, 1e-37, equal_nan=True) | np.isnan(wanted)
    assert fits[somewhere].all(), [(a[k], b[k], found[k]) for k in np.flatnonzero(~fits)[:5]]
    far = tensor(np.array([complex(inf, 0), complex(0, inf), 3e30 + 3e30j], np.complex64))
    assert np.allclose((1 / far).numpy() * 3e30, [0, 0, 0.5 - 0.5j])


POWERS: dict[str, Callable[[Any], Any]] = {
    "a root": lambda z: z**0.5,
    "to a complex number": lambda z: z ** (0.3 + 1j),
    "of a number": lambda z: 2**z,
    "a negative power": lambda z: z**-3,
    "a whole float": lambda z: z**2.0,
}


@pytest.mark.parametrize("name", long_but(POWERS, {"a root", "of a number"}))
def test_powers_are_numpys(name: str) -> None:
    z = np.array([0, 1, -1, 2 - 3j, 1j, -0.5 - 0j, -2.5], np.complex64)
    z = z[z != 0] if name == "a negative power" else z
    close_to_greatest(POWERS[name](tensor(z)).numpy(), POWERS[name](z), 3e-6)  # exp of a logarithm


def test_zero_to_a_power() -> None:
    z = tensor(np.zeros(2, np.complex64))
    assert (z**0.5).numpy().tolist() == (z ** (1 + 0j)).numpy().tolist() == [0, 0]
    assert (z ** (0 * z)).numpy().tolist() == [1, 1]
    assert np.isnan((z ** (-1 - 1j)).numpy()).all()


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    name: lambda t, z, name=name: getattr(t, name)(z) for name in [*NAMES, "sgn", "square"]
    if name not in ("abs", "angle")
} | {
    "quotient": lambda t, z: z / (z * z + 3 - 1j) + 2 / z,
    "powers": lambda t, z: z**0.5 + z ** (0.3 + 1j) + 2**z + z**-3,
}  # fmt: skip


@pytest.mark.parametrize("name", long_but(GRADIENTS, {"sqrt", "quotient"}))
def test_gradients_are_pytorchs(name: str) -> None:
    """Off the cuts, where PyTorch's formulas take either side."""
    rng = np.random.default_rng(1)
    pairs = np.concatenate([rng.standard_normal((40, 2)), [[2, 1e-3], [0, 2], [0.3, 0], [1, 1e-4]]])
    above = rng.standard_normal(pairs.shape)
    theirs = torch.tensor(pairs, requires_grad=True)
    value = torch.view_as_real(GRADIENTS[name](torch, torch.view_as_complex(theirs)))
    (value * torch.tensor(above)).sum().backward()

    def loss(x: Any) -> Any:
        found = lm.view_as_real(GRADIENTS[name](lm, lm.view_as_complex(x)))
        return (found * lm.tensor(above)).sum()

    close_to_greatest(lm.grad(loss)(lm.tensor(pairs)).numpy(), theirs.grad.numpy(), 1e-9)


def test_no_part_is_infinity_times_0() -> None:
    z, x = tensor(np.array([1 + 2j, 3j], np.complex64)), lm.tensor([inf, 1.0])
    assert (z + x).numpy().tolist() == [inf + 2j, 1 + 3j]
    assert lm.stack([z, x]).numpy()[1].tolist() == [inf, 1]
    assert lm.where(x > 1, x, z).numpy().tolist() == [inf, 3j]
    assert z.isfinite().numpy().all()
    assert (z + x).isinf().numpy().tolist() == [True, False]
    assert (z * nan).isnan().numpy().all()
    assert z.isreal().numpy().tolist() == [False, False]


def test_tensors_of_a_complex_dtype() -> None:
    z = tensor(np.array([[1 + 2j, 3j]]))
    x = lm.ones(2, 3)
    made: dict[str, tuple[Any, Any]] = {
        "zeros_like": (lm.zeros_like(z), np.zeros((1, 2))),
        "ones_like": (lm.ones_like(z, dtype=lm.complex64), np.ones((1, 2), np.complex64)),
        "full_like": (lm.full_like(z, 2 - 1j), np.full((1, 2), 2 - 1j)),
        "empty_like": (lm.empty_like(z), np.zeros((1, 2))),
        "of a real one": (lm.zeros_like(x, dtype=lm.complex64), np.zeros((2, 3), np.complex64)),
        "new_zeros": (z.new_zeros(3), np.zeros(3)),
        "new_full": (z.new_full((2,), 1j), np.full(2, 1j)),
        "zeros": (lm.zeros(2, 3, dtype=lm.complex64), np.zeros((2, 3), np.complex64)),
        "ones": (lm.ones((2,), dtype="complex128"), np.ones(2)),
        "full": (lm.full((2,), 1j), np.full(2, 1j, np.complex64)),
        "eye": (lm.eye(2, 3, dtype=np.complex128), np.eye(2, 3)),
        "by torch's dtype": (lm.zeros(2, dtype=torch.cfloat), np.zeros(2, np.complex64)),
    }
    for name, (found, wanted) in made.items():
        assert isinstance(found, lm.ComplexTensor), name
        dtype = "complex64" if wanted.dtype == np.complex64 else "complex128"
        assert found.dtype.name == dtype, name
        assert np.array_equal(found.numpy(), wanted), name
    assert lm.zeros_like(z, dtype=lm.float32).dtype is lm.float32
    with pytest.raises(DTypeError, match=r"full: 1j is complex; .* lm\.complex64"):
        lm.full((2,), 1j, dtype=lm.float32)
