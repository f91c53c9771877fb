"""lm.jit: trees in and out, static arguments, symbolic lengths, what it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import luminal as lm

F32 = np.float32


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """The backend that functions are compiled for."""
    return str(request.param)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, F32)


def test_jit_takes_and_returns_trees(backend: str) -> None:
    calls = []

    @lm.jit(backend=backend)
    def f(x: Any, params: Any, scale: float = 2.0) -> Any:
        calls.append(1)
        return {"y": (x @ params["w"]) * scale, "pair": (x.sum(), [params["b"]], "text")}

    params = {"w": np.eye(2, dtype=F32), "b": ones(3)}
    for _ in range(3):
        result = f(ones(2, 2), params)
    assert result["y"].tolist() == [[2, 2], [2, 2]]
    assert result["pair"][0] == 4
    assert result["pair"][1][0].tolist() == [1, 1, 1]
    assert result["pair"][2] == "text"
    assert isinstance(result["y"], np.ndarray)
    assert len(calls) == 1
    f(ones(2, 2), params, scale=3.0)
    assert len(calls) == 1  # a number is an input
    f(ones(5, 2), params)
    assert len(calls) == f.entries == 2


def test_jit_static_arguments_compile_anew(backend: str) -> None:
    @lm.jit(static="axis", max_entries=2, backend=backend)
    def total(x: Any, axis: int) -> Any:
        return x.sum(axis)

    x = np.arange(6, dtype=F32).reshape(2, 3)
    assert total(x, 0).tolist() == [3, 5, 7]
    assert total(x, axis=1).tolist() == [3, 12]
    assert total(x, -1).tolist() == [3, 12]
    assert total.entries == 2
    with pytest.raises(lm.InputError, match="static axis: a list is not hashable; pass a tuple"):
        total(x, [0])


def test_jit_symbolic_lengths_compile_once(backend: str) -> None:
    @lm.jit(shapes={"x": ("s", 2)}, backend=backend)
    def f(x: Any) -> Any:
        return x.softmax(0)

    for n in range(1, 9):
        assert f(ones(n, 2)).shape == (n, 2)
    assert f.entries == 1


def test_jit_warns_on_the_third_recompile_for_a_new_length(backend: str) -> None:
    @lm.jit(backend=backend)
    def f(x: Any) -> Any:
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (1, 2, 3):
            f(ones(n, 2))
    with pytest.warns(UserWarning, match=r"shapes=\{\"x\": \('s', 2,\)\}"):
        f(ones(4, 2))


def test_jit_takes_arguments_it_does_not_use(backend: str) -> None:
    f = lm.jit(lambda x, mask: x * 2, backend=backend)  # type: ignore[call-overload]
    assert f(ones(2), mask=ones(3)).tolist() == [2, 2]


def test_jit_refuses_what_is_no_array(backend: str) -> None:
    f = lm.jit(lambda x: x, backend=backend)  # type: ignore[call-overload]
    with pytest.raises(lm.InputError, match="jit: x is a State; pass arrays"):
        f(lm.State((2,)))
    with pytest.raises(lm.DTypeError, match="jit: x: 'text' is not an array"):
        f("text")
    with pytest.raises(lm.DTypeError, match="jit: x: Luminal has no dtype complex64; cast it"):
        f(ones(1000) + 1j)
    with pytest.raises(lm.InputError, match=r"shapes \['y\[0\]'\] are no parameters of"):
        lm.jit(shapes={"y[0]": ("s",)})(lambda x: x)


def test_jit_records_default_graph_functions_into_its_own(backend: str) -> None:
    state = lm.State((3,))

    @lm.jit(backend=backend)
    def count(x: Any) -> Any:
        lm.assign(state, lm.read(state) + x)
        return lm.arange(3) * 2

    assert count(ones(3)).tolist() == [0, 2, 4]
    count(ones(3))
    assert state.numpy().tolist() == [2, 2, 2]
