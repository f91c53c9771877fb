"""Matrix products, convolution and pooling against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from luminal.base.errors import ShapeError
from tests.close import close
from tests.numerics.recording import run

pytestmark = pytest.mark.usefixtures("every_backend")

rng = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(0, 1, shape).astype(np.float32)


SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)), ((7, 1, 3, 4), (2, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)),
    ((1, 4), (4, 1)), ((3, 0), (0, 2)), ((0, 4), (4, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_of_all_ranks(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = normal(*left), normal(*right)
    close(run(lambda x, y: x @ y, a, b), a @ b, ulp=8)


def test_matmul_dtypes() -> None:
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((3, 40), (40, 2)))
    close(run(lambda x, y: x @ y, a, b), a.astype(np.int32) @ b.astype(np.int32))
    x, y = normal(3, 40).astype(BF16), normal(40, 2).astype(BF16)
    expected = run(lambda p, q: p @ q, x.astype(np.float32), y.astype(np.float32)).astype(BF16)
    np.testing.assert_array_equal(run(lambda p, q: p @ q, x, y), expected)
    c = normal(2, 3)
    close(run(lambda p: np.eye(2, dtype=np.float32) @ p, c), c)
    close(run(lambda p: p @ [[1.0], [1.0], [1.0]], c), c.sum(1, keepdims=True))


def test_symbolic_matmul() -> None:
    a, b = normal(2, 3, 4), normal(2, 4, 3)
    shapes, dims = [(2, "s", 4), (2, 4, "s")], {"s": 3}
    close(run(lambda x, y: x @ y, a, b, shapes=shapes, dims=dims), a @ b, ulp=8)
    close(run(lambda x, y: y @ x, a, b, shapes=shapes, dims=dims), b @ a, ulp=8)


def test_matmul_errors() -> None:
    with pytest.raises(ShapeError, match=r"matmul: inner dims differ: \(4, 8\) @ \(6, 2\); 8 != 6"):
        run(lambda x, y: x @ y, normal(4, 8), normal(6, 2))
    with pytest.raises(ShapeError, match=r"matmul: .*has no dims; use \* for scalars"):
        run(lambda x: x.sum() @ x, normal(3))
    with pytest.raises(ShapeError, match=r"mul\(.*\): broadcast"):
        run(lambda x, y: x @ y, normal(2, 3, 4), normal(3, 4, 5))


CONVOLUTIONS = [
    {}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"groups": 2},
    {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2), "groups": 4},
]  # fmt: skip


@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_conv2d_like_torch(options: dict[str, Any]) -> None:
    x, bias = normal(2, 4, 9, 8), normal(8)
    w = normal(8, 4 // options.get("groups", 1), 3, 2)
    tensors = [torch.from_numpy(a) for a in (x, w, bias)]
    expected = torch.nn.functional.conv2d(*tensors, **options).numpy()
    close(run(lambda a, b, c: a.conv2d(b, c, **options), x, w, bias), expected, ulp=16)


def test_conv2d_of_a_symbolic_batch_and_height() -> None:
    x, w = normal(2, 3, 8, 7), normal(4, 3, 3, 3)
    expected = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), stride=2)
    shapes = [("n", 3, "h", 7), w.shape]
    fn = lambda a, b: a.conv2d(b, stride=2)  # noqa: E731
    found = run(fn, x, w, shapes=shapes, dims={"n": 2, "h": 8})
    close(found, expected.numpy(), ulp=16)


POOLS = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2}, {"kernel_size": (3, 2), "padding": 1},
    {"kernel_size": 3, "stride": (1, 2), "padding": (1, 0)},
]  # fmt: skip


@pytest.mark.parametrize("options", POOLS)
def test_pools_like_torch(options: dict[str, Any]) -> None:
    x = normal(2, 3, 9, 8) - 5
    t, functional = torch.from_numpy(x), torch.nn.functional
    close(run(lambda a: a.max_pool2d(**options), x), functional.max_pool2d(t, **options).numpy())
    found = run(lambda a: a.avg_pool2d(**options), x)
    close(found, functional.avg_pool2d(t, **options).numpy())
    found = run(lambda a: a.avg_pool2d(**options, count_include_pad=False), x)
    close(found, functional.avg_pool2d(t, **options, count_include_pad=False).numpy())


def test_max_pool2d_dilates() -> None:
    x = normal(1, 2, 9, 9)
    expected = torch.nn.functional.max_pool2d(torch.from_numpy(x), 3, 2, 1, 2).numpy()
    close(run(lambda a: a.max_pool2d(3, 2, 1, 2), x), expected)


def test_convolution_errors() -> None:
    x, w = normal(1, 3, 5, 5), normal(4, 2, 3, 3)
    with pytest.raises(
        ShapeError, match=r"conv2d: .* in 1 groups takes 2 channels and gives 4; .* has 3"
    ):
        run(lambda a, b: a.conv2d(b), x, w)
    with pytest.raises(ShapeError, match="conv2d: takes"):
        run(lambda a, b: a[0, 0].conv2d(b), x, w)
    with pytest.raises(ShapeError, match="max_pool2d: padding 2 exceeds half of the window"):
        run(lambda a: a.max_pool2d(3, padding=2), x)
