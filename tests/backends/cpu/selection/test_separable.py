"""Windows that are reduced along one axis after the other (`selection/separable.py`), and axes
walked as one around them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm


def _pooled(
    shape: tuple[int, ...], pool: Callable[[Any, Any], Any], last: bool = False, **options: Any
) -> tuple[lm.Executable, np.ndarray, np.ndarray]:
    """The executable of `pool(functions, x)`, what it gives, and what PyTorch does."""
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    x[0, 1, 2, 3] = np.nan
    cx = lm.Graph()
    given = cx.tensor(x.shape, name="x")
    order = (0, len(shape) - 1, *range(1, len(shape) - 1))
    pool(lm.nn.functional, given.permute(order) if last else given).output("y")
    executable = lm.compile(cx, **options)
    right = pool(
        torch.nn.functional, torch.from_numpy(x).permute(order) if last else torch.from_numpy(x)
    )
    return executable, executable({"x": x})["y"], right.numpy()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "pool",
    [
        lambda f, x: f.max_pool2d(x, (13, 9), 1, (6, 4)),
        lambda f, x: f.max_pool2d(x, (13, 9), (2, 3), (6, 0)),
        lambda f, x: f.max_pool2d(x, (9, 7), 1, (0, 3), (2, 3)),
        lambda f, x: f.max_pool2d(f.pad(x, (3, 3, 4, 4)), (9, 7), 1),  # of zeros around
        lambda f, x: f.avg_pool2d(x, (16, 8), 1, (8, 4)),
        lambda f, x: f.avg_pool2d(x, (8, 16), (1, 2), (4, 0), ceil_mode=True),
        lambda f, x: f.avg_pool2d(x, 8, 1, 4, count_include_pad=False) * 0.5,
    ],
)
def test_each_axis_in_its_turn(last: bool, pool: Callable[[Any, Any], Any]) -> None:
    """K + L steps for K * L: 20 ms to 0.12 for the greatest of 26 x 26."""
    executable, found, right = _pooled((2, 60, 50, 7) if last else (2, 7, 60, 50), pool, last)
    steps = sum(kernel.flops for kernel in executable.report().kernels)
    assert steps < 50 * max(found.size, 2 * 7 * 60 * 50)  # of 63 to 128 at once
    np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-6)


def test_in_three_dims() -> None:
    executable, found, right = _pooled(
        (3, 2, 20, 30),
        lambda f, x: f.max_pool3d(x.reshape(1, 3, 2, 20, 30), (2, 9, 9), 1, (1, 4, 4)),
    )
    assert len(executable.report().kernels) > 1
    np.testing.assert_array_equal(found, right)


def test_sums_in_another_order_are_a_choice_of_numerics() -> None:
    def pool(f: Any, x: Any) -> Any:
        return f.avg_pool2d(x, 9, 1, 4)

    executable, found, right = _pooled((2, 7, 60, 50), pool, numerics="exact")
    assert max(kernel.flops for kernel in executable.report().kernels) > 81 * found.size
    # 81 terms of one size: 8 ulp, as exact numerics keep their order
    np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-6)


def test_few_taps_are_not_worth_another_kernel() -> None:
    executable, found, right = _pooled((2, 7, 60, 50), lambda f, x: f.max_pool2d(x, 3, 2, 1))
    assert len(executable.report().kernels) == 1
    np.testing.assert_array_equal(found, right)
