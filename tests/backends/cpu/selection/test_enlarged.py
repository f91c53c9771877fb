"""Convolutions of enlarged pictures: taps that meet one element are one, and values are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.backends import registry
from luminal.base.numerics import Numerics
from luminal.compiler.compile import lower_by_stages
from luminal.program.selection_text import to_text
from tests.close import close_to_greatest
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any, dict[str, Any], int]] = {
    # picture, weight, scale, options of the convolution, axes along which fewer taps are left
    "twice as large": ((2, 16, 5, 9), (3, 16, 3, 3), 2, {"padding": 1}, 2),
    "five taps": ((1, 20, 4, 6), (2, 20, 5, 5), 2, {"padding": 2}, 2),
    "without zeros around": ((1, 17, 6, 7), (4, 17, 3, 3), 2, {}, 2),
    "more zeros than taps": ((1, 16, 4, 4), (2, 16, 3, 3), 2, {"padding": 3}, 2),
    "thrice, four taps": ((1, 16, 5, 4), (3, 16, 4, 4), 3, {"padding": (0, 3)}, 2),
    "wide only": ((1, 16, 5, 6), (3, 16, 3, 3), (1, 2), {"padding": 1}, 1),
    "twice and thrice": ((1, 16, 4, 5), (3, 16, 3, 4), (2, 3), {"padding": (1, 0)}, 2),
    "a sound": ((2, 16, 11), (5, 16, 3), 2, {"padding": 1}, 1),
    "groups": ((1, 32, 5, 4), (6, 16, 3, 3), 2, {"padding": 1, "groups": 2}, 2),
    "a body": ((1, 16, 2, 3, 4), (2, 16, 3, 3, 3), 2, {"padding": 1}, 3),
    "a part of the large one": ((1, 16, 6, 6), (3, 16, 3, 3), 2, {"padding": 1, "first": 2}, 1),
    "one tap more than copies": ((1, 16, 5, 4), (3, 16, 3, 3), 3, {"padding": 1}, 0),
    "steps": ((1, 16, 5, 4), (3, 16, 3, 3), 2, {"padding": 1, "stride": 2}, 0),
    "taps apart": ((1, 16, 5, 4), (3, 16, 3, 3), 2, {"padding": 2, "dilation": 2}, 0),
    "few channels": ((1, 3, 5, 4), (3, 3, 3, 3), 2, {"padding": 1}, 0),
}


def enlarged(shape: tuple[int, ...], weight: tuple[int, ...], scale: Any, options: Any) -> lm.Graph:
    cx = lm.Graph()
    x, w = cx.tensor(shape, name="x"), cx.weight(weight, name="w")
    _convolved(lm.nn.functional, len(shape))(x * 2, w, scale, options).output("y")
    return cx


def _convolved(functions: Any, rank: int) -> Callable[..., Any]:
    conv = getattr(functions, f"conv{rank - 2}d")

    def convolved(x: Any, w: Any, scale: Any, options: Any) -> Any:
        large = functions.interpolate(x, scale_factor=scale, mode="nearest")
        first, how = options.get("first", 0), {k: v for k, v in options.items() if k != "first"}
        return conv(large[:, :, first:] if first else large, w, **how) + 1

    return convolved


def selection(graph: lm.Graph, numerics: Numerics = Numerics.STANDARD) -> str:
    stages = lower_by_stages(graph.graph(), registry.compiling("cpu"), numerics)
    return to_text(stages.selection)


@pytest.mark.parametrize("name", mostly_long(list(CASES), 2))
def test_windows_over_enlarged_pictures(name: str) -> None:
    shape, weight, scale, options, axes = CASES[name]
    graph = enlarged(shape, weight, scale, options)
    assert sum(f"axis {a}.met" in selection(graph) for a in _axes(graph)) == axes
    draw = np.random.default_rng(len(name)).standard_normal
    x, w = draw(shape, np.float32), draw(weight, np.float32)
    arrays = torch.from_numpy(x).double() * 2, torch.from_numpy(w).double()
    expected = _convolved(torch.nn.functional, len(shape))(*arrays, scale, options)
    close_to_greatest(lm.compile(graph)(x=x, w=w)["y"], expected.numpy(), 1e-6)


def _axes(graph: lm.Graph) -> list[str]:
    return [
        line.split()[1]
        for line in selection(graph).splitlines()
        if ".met" not in line and "axis" in line
    ]


def test_exact_numerics_add_in_the_graph_s_order() -> None:
    graph = enlarged(*CASES["twice as large"][:4])
    assert ".met" not in selection(graph, Numerics.EXACT)


def test_what_is_not_finite_stays_where_it_is() -> None:
    """A number of the convolution is a number, and nothing else becomes one."""
    shape, weight, scale, options, _ = CASES["twice as large"]
    draw = np.random.default_rng(3).standard_normal
    x, w = draw(shape, np.float32), draw(weight, np.float32)
    x[0, 0, 0, 0], x[0, 3, 4, 8], x[1, 5, 2, 2] = np.nan, np.inf, -np.inf
    w[1, 2, 1, 0], w[2, 3, 2, 2] = np.inf, np.nan
    graph = enlarged(shape, weight, scale, options)
    expected, found = (
        np.asarray(lm.compile(graph, backend=backend)(x=x, w=w)["y"])
        for backend in ("reference", "cpu")
    )
    finite = np.isfinite(expected)
    assert 0 < finite.sum() < finite.size
    np.testing.assert_array_equal(np.isfinite(found), finite)
    close_to_greatest(np.where(finite, found, 0), np.where(finite, expected, 0), 1e-5)
