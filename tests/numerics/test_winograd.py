"""Convolutions in tiles of 2 x 2 outputs (relaxed numerics) against float64, and when they stay."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.algebra.lower import lower
from luminal.algebra.terms import Term
from luminal.base.numerics import Numerics
from luminal.hlir.parser import parse
from luminal.nn import functional as F
from luminal.selection.fast import respell
from luminal.selection.rewrite import Respelled
from tests.machines import COSTS

Array = np.ndarray


def spelled(graph: lm.Graph, numerics: Numerics = Numerics.RELAXED) -> Respelled:
    return respell(lower(graph.graph()), COSTS, numerics)


def points(graph: lm.Graph, numerics: Numerics = Numerics.RELAXED) -> list[Term]:
    """The products that a program sums for each of the points of its tiles."""
    return [
        term
        for term in spelled(graph, numerics).order()
        if term.op == "Sum" and sum(".point" in a.name for a in term.axes) == 2
    ]


def random(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(found: Array, expected: torch.Tensor) -> None:
    """However the products are summed: a result's error is one of the terms that it sums."""
    assert found.shape == tuple(expected.shape)
    error = np.abs(found - expected.numpy()).max() / np.abs(expected.numpy()).max()
    assert error < 2e-6  # of sums of some 300 products


def check(graph: lm.Graph, x: Array, expected: torch.Tensor) -> None:
    assert points(graph)
    (found,) = lm.compile(graph, numerics="relaxed")({"x": x}).values()
    agree(found, expected)


SHAPES = [  # pictures, channels, results, height, width, padding, groups
    (1, 32, 32, 14, 14, 1, 1),
    (1, 33, 40, 7, 9, 1, 1),
    (3, 32, 36, 13, 8, 0, 1),
    (2, 32, 48, 9, 15, 2, 1),
    (1, 64, 64, 10, 11, 1, 2),
    (1, 32, 32, 32, 32, 1, 1),  # 256 tiles: a spare one
    (4, 32, 32, 16, 17, (1, 0), 1),
    (1, 48, 32, 56, 55, 1, 1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_agrees_with_pytorch(shape: tuple[int, ...]) -> None:
    n, channels, results, height, width, padding, groups = shape
    x = random((n, channels, height, width), 1)
    taps, bias = random((results, channels // groups, 3, 3), 2), random((results,), 3)
    graph = lm.Graph()
    given = graph.tensor(x.shape, name="x")
    w, b = (graph.weight_of(lm.Parameter(each)) for each in (taps, bias))
    F.conv2d(given, w, b, padding=padding, groups=groups).relu().output("y")
    tensors = [torch.from_numpy(each).double() for each in (x, taps, bias)]
    conv = torch.nn.functional.conv2d(*tensors, padding=padding, groups=groups)
    check(graph, x, conv.relu())


def test_halved_and_doubled_pictures_that_split_its_axes() -> None:
    x, first, second = random((1, 32, 16, 16), 1), random((32, 32, 3, 3), 2), random((32,) * 2, 3)
    second = np.broadcast_to(second[:, :, None, None], (32, 32, 3, 3)) + first
    graph = lm.Graph()
    y = graph.tensor(x.shape, name="x")
    y = F.conv2d(y, graph.weight_of(lm.Parameter(first)), padding=1)
    y = F.interpolate(F.avg_pool2d(y, 2), scale_factor=2.0, mode="nearest") + y
    F.conv2d(y, graph.weight_of(lm.Parameter(second)), padding=1).output("y")
    names = {a.name for term in spelled(graph).order() for a in term.axes}
    assert len(points(graph)) == 2
    assert sum(name.endswith(".of2") for name in names) == 2  # the halves split the first one's
    f = torch.nn.functional
    a, b, c = (torch.from_numpy(each).double() for each in (x, first, second))
    y = f.conv2d(a, b, padding=1)
    y = f.interpolate(f.avg_pool2d(y, 2), scale_factor=2.0) + y
    check(graph, x, f.conv2d(y, c, padding=1))


def test_new_weights_are_transformed_anew() -> None:
    x = random((1, 32, 8, 8), 1)
    taps = lm.Parameter(random((32, 32, 3, 3), 2))
    graph = lm.Graph()
    F.conv2d(graph.tensor(x.shape, name="x"), graph.weight_of(taps), padding=1).output("y")
    run = lm.compile(graph, numerics="relaxed")
    for seed in (2, 3):
        taps.set(random((32, 32, 3, 3), seed))
        tensors = [torch.from_numpy(each).double() for each in (x, taps.numpy())]
        agree(run({"x": x})["y"], torch.nn.functional.conv2d(*tensors, padding=1))


@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.STANDARD])
def test_neighbours_of_what_is_not_finite_stay_numbers(numerics: Numerics) -> None:
    x, taps = random((1, 32, 8, 8), 1), random((32, 32, 3, 3), 2)
    x[0, 0, 3, 3] = np.inf
    graph = lm.Graph()
    w = graph.weight_of(lm.Parameter(taps))
    F.conv2d(graph.tensor(x.shape, name="x"), w, padding=1).output("y")
    assert not points(graph, numerics)
    found = lm.compile(graph, numerics=numerics)({"x": x})["y"]
    window = np.zeros((8, 8), bool)
    window[2:5, 2:5] = True
    np.testing.assert_array_equal(~np.isfinite(found), np.broadcast_to(window, found.shape))


CONV = {"shape": (1, 32, 12, 12), "taps": (32, 32, 3, 3), "padding": 1}
OTHERS = {
    "few channels": CONV | {"shape": (1, 31, 12, 12), "taps": (32, 31, 3, 3)},
    "few results": CONV | {"taps": (31, 32, 3, 3)},
    "few tiles": CONV | {"shape": (1, 32, 6, 6)},
    "many tiles": CONV | {"shape": (1, 32, 66, 66)},
    "strides": CONV | {"stride": 2, "shape": (1, 32, 24, 24)},
    "dilation": CONV | {"dilation": 2},
    "five taps": CONV | {"taps": (32, 32, 5, 5), "padding": 2},
    "one row of taps": CONV | {"taps": (32, 32, 1, 3), "padding": (0, 1)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_stay(name: str) -> None:
    def made(shape: tuple[int, ...], taps: tuple[int, ...], **options: object) -> lm.Graph:
        graph = lm.Graph()
        weight = graph.weight_of(lm.Parameter(np.zeros(taps, np.float32)))
        F.conv2d(graph.tensor(shape, name="x"), weight, **options).output("y")
        return graph

    assert points(made(**CONV))
    assert not points(made(**OTHERS[name]))


DIAGONAL = """graph {
  %0 = Input x : f32[32, 40]
  %1 = View %0 [i2, i1 + i3 + i4] : f32[32, 36, 32, 3, 3]
  %2 = Weight w : f32[32, 32, 3, 3]
  %3 = View %2 [i0, i2, i3, i4] : f32[32, 36, 32, 3, 3]
  %4 = Mul %1, %3 : f32[32, 36, 32, 3, 3]
  %5 = Sum %4 axis=4 : f32[32, 36, 32, 3]
  %6 = Sum %5 axis=3 : f32[32, 36, 32]
  %7 = Sum %6 axis=2 : f32[32, 36]
  output y = %7
}"""


def test_two_taps_along_one_axis_stay() -> None:
    order = respell(lower(parse(DIAGONAL)), COSTS, Numerics.RELAXED).order()
    assert not any(".point" in a.name for term in order for a in term.axes)


@pytest.mark.parametrize(("size", "tiles"), [(30, 15 * 15), (32, 16 * 17)])
def test_channels_lie_in_different_cache_sets(size: int, tiles: int) -> None:
    graph = lm.Graph()
    taps = graph.weight_of(lm.Parameter(np.zeros((32, 32, 3, 3), np.float32)))
    F.conv2d(graph.tensor((1, 32, size, size)), taps, padding=1).output("y")
    (term,) = points(graph)
    extents = [a.extent for a in term.axes if a.name.endswith(".tile")]
    assert np.prod([extent.value for extent in extents if extent is not None]) == tiles


def test_taps_of_a_run_or_of_other_dtypes_stay() -> None:
    graph = lm.Graph()
    x, taps = graph.tensor((1, 32, 12, 12)), graph.tensor((32, 32, 3, 3))
    F.conv2d(x, taps, padding=1).output("y")
    assert not points(graph)
    graph = lm.Graph()
    taps = graph.weight_of(lm.Parameter(np.zeros((32, 32, 3, 3))))
    F.conv2d(graph.tensor((1, 32, 12, 12), np.float64), taps, padding=1).output("y")
    assert not points(graph)


@pytest.mark.long
def test_a_search_keeps_what_tiles_store() -> None:
    graph = lm.Graph()
    x, taps = random((1, 32, 12, 12), 1), random((32, 32, 3, 3), 2)
    weight = graph.weight_of(lm.Parameter(taps))
    F.conv2d(graph.tensor(x.shape, name="x"), weight, padding=1).output("y")
    options = lm.SearchOptions(max_candidates=6, workers=1)
    found = lm.compile(graph, numerics="relaxed", mode="optimal", search=options)
    tensors = [torch.from_numpy(each).double() for each in (x, taps)]
    agree(found({"x": x})["y"], torch.nn.functional.conv2d(*tensors, padding=1))
