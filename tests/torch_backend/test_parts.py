"""Graphs that PyTorch runs in part: what crosses the borders between parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from luminal import luminal_backend
from tests.long_share import long_rows, mostly_long

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
    pytest.mark.filterwarnings("ignore:luminal. PyTorch runs"),
]


def in_parts(function: Callable[..., Any]) -> Any:
    return torch.compile(function, backend=luminal_backend)


def pooled(x: torch.Tensor) -> torch.Tensor:
    samples = torch.full((1, 2, 2), 0.3)
    values, places = functional.fractional_max_pool2d(
        x * 2, 2, output_size=3, return_indices=True, _random_samples=samples
    )
    return values.sin() + places


def test_an_operator_with_several_results_stays_whole() -> None:
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    found, wanted = in_parts(pooled)(x), pooled(x)
    torch.testing.assert_close(found, wanted)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted.sum(), x)[0])


@torch.library.custom_op("luminal_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    """Its kernel gives bfloat16, its description float32, as some of PyTorch's own."""
    return x.bfloat16() / 2


@halved.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_results_have_the_dtypes_that_the_graph_says() -> None:
    x = torch.randn(9)
    found = in_parts(lambda x: halved(x + 1) * 3)(x)
    torch.testing.assert_close(found, (x + 1).bfloat16().float() / 2 * 3)


def test_dropout_that_is_drawn_again_backward() -> None:
    def block(x: torch.Tensor) -> Any:
        return checkpoint(lambda y: functional.dropout(y, 0.5) * y, x, use_reentrant=False)

    x = (torch.rand(20, 20) + 1).requires_grad_()
    y = in_parts(block)(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, y != 0)


def test_complex_numbers_that_are_made_and_read() -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.complex(x, x + 1) * torch.polar(x.abs(), x)) * 2

    x = torch.randn(5)
    torch.testing.assert_close(in_parts(turned)(x), turned(x))


def test_complex_arguments_that_are_written() -> None:
    def written(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        z.mul_(2).add_(x * 3)
        x.add_(1)
        return (x * z.abs()).exp()

    ours, theirs = ([torch.ones(3), torch.full((3,), 1 + 2j)] for _ in range(2))
    torch.testing.assert_close(in_parts(written)(*ours), written(*theirs))
    torch.testing.assert_close(ours, theirs)


def test_rows_that_differ_in_length() -> None:
    rows = [torch.randn(3, 4), torch.randn(2, 4)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    found = in_parts(lambda x: x * 2)(nested)
    torch.testing.assert_close(found.values(), nested.values() * 2)


@pytest.mark.parametrize(
    "dtype", mostly_long([torch.bfloat16, torch.float16], 1), ids=["bf16", "f16"]
)
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_statistics_of_sixteen_bits(norm: str, dtype: torch.dtype) -> None:
    def layer(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (5,), a, b)

    def batch(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(x, a, b, training=True)

    function = {"layer": layer, "batch": batch}[norm]
    fast = torch.compile(
        function, backend=luminal_backend, fullgraph=True, options={"fallback": "error"}
    )
    x, a, b = torch.randn(4, 5).to(dtype), torch.zeros(5).to(dtype), torch.ones(5).to(dtype)
    found, wanted = (a.clone(), b.clone()), (a.clone(), b.clone())
    close = {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(fast(x, *found), function(x, *wanted), **close)
    torch.testing.assert_close(found, wanted, **close)


def cleared(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.index_fill_(0, torch.tensor([0]), 7.0)
    return x, x.numel() * x, x.t(), y.sum() + x


def counted(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.contiguous()
    z.index_fill_(0, torch.tensor([0]), 7.0)
    w = z.numel() * z
    (y.sum() + z).copy_(w.flip(0))
    return x, z, w, z.T


@pytest.mark.parametrize(
    ("function", "shape"),
    long_rows(
        product([cleared, counted], [(5, 4), (4, 4)]), [(cleared, (5, 4)), (counted, (4, 4))]
    ),
)
def test_sizes_that_only_shapes_or_products_tell(
    function: Callable[..., Any], shape: tuple[int, int]
) -> None:
    fast = torch.compile(function, backend=luminal_backend, dynamic=True)
    fast(torch.randn(shape), torch.randn(3, 1))
    for n in (5, 6, 7):  # two arguments of one memory become a single one, whose sizes are its own
        mine = torch.randn(n, 4)
        theirs = mine.clone()
        found, wanted = fast(mine, mine[:1]), function(theirs, theirs[:1])
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(mine, theirs)
