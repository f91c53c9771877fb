"""Pictures that windows pass over, stored as lanes want them (`selection/pictures.py`)."""

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from tests.machines import needs_wide


def _compiled(**options: int | tuple[int, int]) -> tuple[lm.Executable, torch.Tensor, np.ndarray]:
    """A convolution of a picture with its channels last, what is right, and what came out."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 20, 70, 5), np.float32)
    w = rng.standard_normal((6, 5, 3, 15), np.float32)
    cx = lm.Graph()
    picture, weight = cx.tensor(x.shape, name="x"), cx.tensor(w.shape, name="w")
    picture.permute(0, 3, 1, 2).conv2d(weight, **options).output("y")
    executable = lm.compile(cx)
    found = executable({"x": x, "w": w})["y"]
    first = torch.from_numpy(x).double().permute(0, 3, 1, 2)
    right = torch.nn.functional.conv2d(first, torch.from_numpy(w).double(), **options)
    return executable, right, found


@pytest.mark.parametrize(
    "options", [{}, {"padding": (1, 7)}, {"stride": 3, "padding": (2, 5)}, {"dilation": (2, 3)}]
)
def test_a_picture_with_channels_last_is_laid_out_once(
    options: dict[str, int | tuple[int, int]],
) -> None:
    """Zeros, steps and gaps included; without that each load of the window is lane by lane."""
    executable, right, found = _compiled(**options)
    assert len(executable.report().kernels) == 2
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-4)  # of sums of 225 products


@needs_wide
@pytest.mark.parametrize(
    ("channels", "results", "image", "window", "options", "kernels"),
    [
        (15, 22, (10, 16), (7, 7), {"stride": 3, "padding": (3, 0)}, 2),  # parts of sums are dear,
        (54, 16, (33, 15), (17, 2), {"padding": (8, 1)}, 2),  # and so are values for all lanes
        (35, 35, (71, 51), (2, 19), {"stride": 2, "padding": (1, 9), "groups": 35}, 1),
        (96, 96, (56, 56), (7, 7), {"padding": 3, "groups": 96}, 2),  # masks at every tap, and
        (96, 96, (56, 56), (3, 3), {"padding": 1, "groups": 96}, 1),  # at the edges alone
        (64, 64, (14, 14), (3, 3), {"padding": 1}, 1),  # nothing is gained
    ],
)
def test_a_picture_is_stored_where_that_gains(
    channels: int,
    results: int,
    image: tuple[int, int],
    window: tuple[int, int],
    options: dict[str, Any],
    kernels: int,
) -> None:
    """Each of these takes up to twice as long the other way."""
    cx = lm.Graph()
    picture = cx.tensor((1, *image, channels), name="x").permute(0, 3, 1, 2)
    groups = options.get("groups", 1)
    weight = cx.weight((results, channels // groups, *window), name="w")
    picture.conv2d(weight, **options).permute(0, 2, 3, 1).output("y")
    executable = lm.compile(cx)
    assert len(executable.report().kernels) == kernels
