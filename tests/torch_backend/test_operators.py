"""Operators of which PyTorch's database has few samples, or none with tensors that say how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.long_share import mostly_long
from tests.torch_backend.whole import compiled

INF, NAN = float("inf"), float("nan")


pytestmark = pytest.mark.usefixtures("fresh")


def as_eager(function: Callable[..., Any], *args: torch.Tensor, gradients: bool = False) -> None:
    """Compares results and, of the first argument, gradients."""
    fast = compiled(function)
    if not gradients:
        found, wanted = fast(*args), function(*args)
        torch.testing.assert_close(found, wanted, equal_nan=True)
        return
    x, *others = args
    mine, own = (x.clone().requires_grad_() for _ in range(2))
    found, wanted = fast(mine, *others), function(own, *others)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    flowing = torch.randn_like(wanted)
    found.backward(flowing), wanted.backward(flowing)
    torch.testing.assert_close(mine.grad, own.grad, equal_nan=True)


ROWS = torch.tensor([[1.0, 2, -3], [0, 5, 1], [NAN, -1, 2], [2, 2, 2], [INF, 0, 1], [3, -INF, 1]])
RUNS = torch.tensor([2, 0, 1, 3])


@pytest.mark.parametrize("reduce", mostly_long(["sum", "mean", "prod", "max", "min"], 1))
@pytest.mark.parametrize("initial", mostly_long([None, 1.5], 1))
def test_segment_reduce(reduce: str, initial: float | None) -> None:
    def reduced(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(x, reduce, lengths=lengths, axis=0, initial=initial)

    as_eager(reduced, ROWS, RUNS)
    as_eager(reduced, torch.randn(6, 2), RUNS, gradients=True)


def test_segments_of_rows_and_by_offsets() -> None:
    as_eager(
        lambda x, n: torch.segment_reduce(x, "max", lengths=n, axis=1),
        torch.randn(2, 5, 3), torch.tensor([[2, 3], [0, 5]]), gradients=True,
    )  # fmt: skip
    as_eager(
        lambda x, at: torch.segment_reduce(x, "sum", offsets=at, axis=0),
        torch.randn(6, 2), torch.tensor([0, 2, 2, 6]), gradients=True,
    )  # fmt: skip
    fast = compiled(lambda x, n: torch.segment_reduce(x, "sum", lengths=n, axis=0))
    with pytest.raises(RuntimeError, match="lengths are to be at least 0 and add up to the size"):
        fast(ROWS, torch.tensor([2, 1]))


def test_repeats_that_a_tensor_holds() -> None:
    def repeated(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return torch.repeat_interleave(x, counts, dim=0, output_size=6)

    as_eager(repeated, torch.randn(4, 3), torch.tensor([1, 0, 2, 3]), gradients=True)
    for wrong in ([1, 0, 2, 4], [5, -2, 2, 1]):
        with pytest.raises(RuntimeError, match="counts are to be at least 0, with the sum 6"):
            compiled(repeated)(torch.randn(4, 3), torch.tensor(wrong))
    with pytest.raises(Exception, match="the counts would decide the size; pass output_size="):
        compiled(lambda n: torch.repeat_interleave(n))(RUNS)


@pytest.mark.parametrize("dtype", mostly_long([torch.float32, torch.float64], 1))
def test_histograms(dtype: torch.dtype) -> None:
    x, weight = torch.randn(50, dtype=dtype), torch.rand(50, dtype=dtype)

    def histograms(x: torch.Tensor, weight: torch.Tensor, edges: torch.Tensor) -> Any:
        return (
            torch.histogram(x, 7), torch.histogram(x, 5, range=(-1.0, 0.5), density=True),
            torch.histogram(x, edges, weight=weight), torch.histogram(x[:0], 3),
            torch.histogram(x[:1], 3),
        )  # fmt: skip

    as_eager(histograms, x, weight, torch.tensor([-1, 0, 0.25, 3], dtype=dtype))
    ends = torch.tensor([1.0, NAN, 2, INF, -INF], dtype=dtype)
    as_eager(lambda x: torch.histogram(x, 4, range=(0.0, 2.0)), ends)
    with pytest.raises(RuntimeError, match="the range is not finite"):
        compiled(lambda x: torch.histogram(x, 4))(ends)


@pytest.mark.parametrize("dtype", mostly_long([torch.float32, torch.float64, torch.bfloat16], 1))
def test_fractional_pools(dtype: torch.dtype) -> None:
    flat, deep = torch.ops.aten.fractional_max_pool2d, torch.ops.aten.fractional_max_pool3d
    x = torch.randn(2, 3, 9, 11).to(dtype)
    x[0, 0, 2, 3] = NAN
    as_eager(
        lambda x, u: flat(x, (2, 3), (4, 5), u)[0], x, torch.rand(2, 3, 2).to(dtype), gradients=True
    )
    as_eager(
        lambda x, u: deep(x, (2, 3, 2), (4, 1, 3), u),
        torch.randn(2, 3, 9, 5, 6).to(dtype), torch.rand(2, 3, 3).to(dtype),
    )  # fmt: skip
    as_eager(
        lambda x, u: functional.fractional_max_pool2d(x, 2, (4, 5), _random_samples=u),
        torch.randn(3, 9, 11).to(dtype), torch.rand(1, 3, 2).to(dtype),
    )  # fmt: skip


RESIZES: list[Any] = [
    {"size": (5, 7)}, {"size": (20, 4)}, {"scale_factor": (0.3, 1.7)},
    {"size": (4, 9), "align_corners": True},
]  # fmt: skip


@pytest.mark.parametrize("mode", mostly_long(["bicubic", "bilinear"], 1))
def test_averaging_resizes(mode: str) -> None:
    """Of bytes to the bit: PyTorch's kernels multiply in fixed point."""

    def resized(x: torch.Tensor) -> list[torch.Tensor]:
        return [functional.interpolate(x, mode=mode, antialias=True, **how) for how in RESIZES]

    as_eager(resized, torch.randn(2, 3, 13, 9))
    as_eager(resized, torch.randint(0, 256, (2, 3, 13, 9), dtype=torch.uint8))
    as_eager(
        lambda x: functional.interpolate(x, (5, 12), mode=mode, antialias=True),
        torch.randn(1, 2, 13, 9, dtype=torch.float64).to(memory_format=torch.channels_last),
        gradients=True,
    )  # fmt: skip
