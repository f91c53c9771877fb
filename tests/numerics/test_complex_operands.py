"""Every kind of operand beside a complex Tensor: integers, bools and floats, arrays, Parameters and
numbers mean elements, whose imaginary part is 0, and no places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.base.errors import DTypeError
from luminal.session.eager import default_graph
from tests.close import close_to_greatest
from tests.long_share import long_but
from tests.numerics.draws import Draw

torch = pytest.importorskip("torch")

DRAW = Draw(0)
Z = DRAW.numbers(3, 4, dtype="complex64")
MASK, ROWS = DRAW.mask(Z), np.array([2, 0, 2])
PLACES = DRAW.places(3, 3, 4) % 3

CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda n, z, v: n.add(z, v, alpha=2) + n.add(v, z, alpha=2j),
    "sub": lambda n, z, v: n.sub(v, z, alpha=3) - (z - v),
    "method": lambda n, z, v: v.mul(z).add(z, alpha=2) - v.sub(z),
    "mul": lambda n, z, v: n.mul(v, z) + v * z,
    "div": lambda n, z, v: n.div(v, z) + z / (v * v + 1),
    "pow": lambda n, z, v: n.pow(z * z.conj() + 1, v) * n.ones(1),
    "matmul": lambda n, z, v: n.matmul(v.T, z) + z.mT @ v,
    "where": lambda n, z, v: n.where(n.tensor(MASK), z, v) + n.where(n.tensor(MASK), v, z),
    "masked_fill": lambda n, z, v: z.masked_fill(n.tensor(MASK), v[0, 0]),
    "cat": lambda n, z, v: n.cat([v, z], 1) + n.cat([z, v], 1),
    "diff": lambda n, z, v: n.diff(z, prepend=v, append=v),
    "index_add": lambda n, z, v: n.index_add(z, 0, n.tensor(ROWS), v, alpha=2j),
    "index_copy": lambda n, z, v: n.index_copy(z, 0, n.tensor(np.array([2, 0, 1])), v),
    "scatter_add": lambda n, z, v: n.scatter_add(z, 0, n.tensor(PLACES), v),
    "equal": lambda n, z, v: (z == v) | (v == z) | (n.ne(z, v) & n.eq(v, z)),
}
KINDS: dict[str, Callable[[Any], Any]] = {
    "ints": lambda v: lm.tensor(v.astype(np.int64)),
    "bools": lambda v: lm.tensor(v > 0),
    "floats": lambda v: lm.tensor(v.astype(np.float32)),
    "doubles": lambda v: lm.tensor(v),
    "a Parameter": lambda v: nn.Parameter(v.astype(np.float32)),
    "complex numbers": lambda v: lm.tensor(v.astype(np.complex64)),
    "wide complex numbers": lambda v: lm.tensor(v.astype(np.complex128)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", long_but(CALLS, {"index_add", "masked_fill", "add"}))
def test_operands_are_elements(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_graph(), "_backend", "reference")
    value = np.round(Draw(1).numbers(3, 4, dtype=float))
    given = KINDS[kind](value)
    if kind == "bools":
        value = value > 0
    is_wide = given.dtype in (lm.float64, lm.complex128)
    if is_wide and name in ("index_add", "index_copy", "scatter_add"):
        with pytest.raises(DTypeError, match=r"src has values of float64, f32.* has not; cast one"):
            CALLS[name](lm, lm.tensor(Z), given)
        return
    found = CALLS[name](lm, lm.tensor(Z), given).numpy()
    wide = torch.complex128 if is_wide and name != "masked_fill" else torch.complex64
    wanted = CALLS[name](torch, torch.tensor(Z).to(wide), torch.tensor(value).to(wide)).numpy()
    assert found.dtype == wanted.dtype
    close_to_greatest(found, wanted, 1e-5)  # powers, by logarithms in float32


BESIDE_ARRAYS: list[Callable[[Any, Any, Any], Any]] = [
    lambda n, z, a: z + a,
    lambda n, z, a: z * a,
    lambda n, z, a: n.diff(z, prepend=a),
    lambda n, z, a: n.where(z.real > 0, z, a),
]


def test_arrays_and_numbers_are_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_graph(), "_backend", "reference")
    z: Any = lm.tensor(Z)
    wide = Draw(2).numbers(3, 4)
    for array in (wide, wide.real, np.round(wide.real).astype(np.int64), wide.astype(np.complex64)):
        for call in BESIDE_ARRAYS:
            found, wanted = call(lm, z, array), call(np, Z, array)
            is_wide = array.dtype in (np.float64, np.complex128)
            assert found.dtype is (lm.complex128 if is_wide else lm.complex64)
            close_to_greatest(found.numpy(), wanted, 1e-6)
    numbers: list[Any] = [2, True, 0.5, 1 - 2j, np.float32(3), np.complex64(1j)]
    for number in numbers:
        filled = np.where(MASK, np.complex64(number), Z)
        assert np.array_equal(z.masked_fill(lm.tensor(MASK), number).numpy(), filled)
        padded = lm.nn.functional.pad(z, (1, 0), value=number).numpy()
        assert (padded[:, 0] == np.complex64(number)).all()


def test_real_dtypes_lose_nothing_unsaid() -> None:
    z: Any = lm.tensor(Z)
    for call in (
        lambda: z.to(lm.float32), lambda: z.to(dtype="float16"), lambda: z.to(z.real),
        lambda: z.sum(0, dtype=lm.float32), lambda: lm.mean(z, dtype=lm.float64),
        lambda: lm.array_api.linspace(0, 1j, 3, dtype=lm.array_api.float32),
    ):  # fmt: skip
        with pytest.raises(DTypeError, match=r"imaginary part|of complex numbers in|are complex"):
            call()
    assert z.sum(0, dtype=lm.complex128).dtype is z.to("complex128").dtype is lm.complex128
    assert lm.equal(z, z)
    assert not lm.equal(z, z + 1)
    assert z.sum(axis=0, keepdims=True).shape == (1, 4)
    with pytest.raises(DTypeError, match="maximum: takes real Tensors, got a ComplexTensor"):
        z.real.maximum(z)
