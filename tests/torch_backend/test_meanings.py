"""Where the library's meaning is not PyTorch's (docs/ops.md), the door gives PyTorch's."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from luminal import luminal_backend
from tests.long_share import long_but, long_rows, mostly_long

pytestmark = pytest.mark.usefixtures("fresh")

NAN = float("nan")
INTEGERS = torch.tensor([[200, 100], [3, 255]], dtype=torch.uint8)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "sign of NaN": (torch.sign, (torch.tensor([NAN, -2.0, 0.0]),)),
    "sgn of NaN": (torch.sgn, (torch.tensor([NAN, -2.0, 0.0]),)),
    "heaviside of NaN": (torch.heaviside, (torch.tensor([NAN, 0.0]), torch.tensor([1.0, 2.0]))),
    "hardswish of infinities": (
        torch.nn.functional.hardswish, (torch.tensor([-math.inf, math.inf, NAN, -4.0, 1.0, 3e38]),)
    ),
    "angle of float64": (torch.angle, (torch.tensor([-2.0, 0.0, NAN], dtype=torch.float64),)),
    "sum of uint8": (torch.sum, (INTEGERS,)),
    "prod of uint8": (lambda x: torch.prod(x, 1), (INTEGERS,)),
    "cumsum of uint8": (lambda x: torch.cumsum(x, 1), (INTEGERS,)),
    "cumprod of uint8": (lambda x: torch.cumprod(x, 1), (INTEGERS,)),
    "all of uint8": (lambda x: torch.all(x, 1), (INTEGERS,)),
    "any of uint8": (lambda x: torch.any(x, 1), (INTEGERS,)),
    "trace of uint8": (torch.trace, (INTEGERS,)),
    "matmul of uint8 wraps": (torch.matmul, (INTEGERS, INTEGERS)),
    "addmm of int8 wraps": (torch.addmm, (INTEGERS.to(torch.int8),) * 3),
    "dot of int16 wraps": (torch.dot, (torch.full((9,), 30000, dtype=torch.int16),) * 2),
    "arange of int32 by fractions": (
        lambda x: x + torch.arange(0, 5.5, 1.5, dtype=torch.int32), (torch.zeros(4),)
    ),
    "arange of int64 by fractions": (
        lambda x: x + torch.arange(-2.5, 2.5, 1, dtype=torch.int64), (torch.zeros(4),)
    ),
    "addmm without the product": (
        lambda x: torch.addmm(torch.ones(2, 2), x, x, alpha=0, beta=2), (torch.full((2, 2), NAN),)
    ),
    "addbmm without the product": (
        lambda x: torch.addbmm(torch.ones(2, 2), x, x, alpha=0), (torch.full((3, 2, 2), NAN),)
    ),
    "baddbmm with NaN of the product": (
        lambda x: torch.baddbmm(torch.ones(3, 2, 2), x, x, alpha=0), (torch.full((3, 2, 2), NAN),)
    ),
    "products of no terms by infinite numbers": (
        lambda x: (
            torch.addmm(x[0], x[0, :, :0], x[0, :0], alpha=math.inf),
            torch.addmv(x[0, 0], x[0, :, :0], x[0, 0, :0], alpha=NAN),
            torch.baddbmm(x, x[..., :0], x[:, :0], alpha=math.inf),
            torch.addbmm(x[0], x[:0], x[:0], alpha=math.inf),
        ),
        (torch.ones(2, 2, 2),),
    ),
    "norms of nothing": (
        lambda x: [f(x, p) for p in (3, 1e300) for f in (torch.norm, torch.linalg.vector_norm)],
        (torch.ones(0, 3),),
    ),
    "distance of nothing": (lambda x: torch.dist(x, x, 1e300), (torch.ones(0, 3),)),
    "margins of two dtypes": (
        torch.nn.functional.soft_margin_loss,
        (torch.tensor([0.3, -20, 60]).bfloat16(), torch.tensor([1.0, -1, 1])),
    ),
    "nansum over no dims": (
        lambda x: (x.nansum(dim=()).exp(), x.nanmean(dim=(), keepdim=True)),
        (torch.tensor([[1, NAN], [2, 3]]),),
    ),
    "trials of integers": (
        lambda x: x.clone().geometric_(1 - 1e-9), (torch.zeros(4, dtype=torch.uint8),)
    ),
    "addbmm rounds after each matrix": (
        lambda x, y: torch.addbmm(x, y, y.mT, beta=0.2, alpha=0.6).float(),
        (torch.randn(8, 8).bfloat16(), torch.randn(3, 8, 4).bfloat16()),
    ),
    "threshold of NaN": (
        lambda x: torch.nn.functional.threshold(x, 0.0, 5.0), (torch.tensor([NAN, -1.0, 1.0]),)
    ),
    "threshold that is NaN": (
        lambda x: torch.nn.functional.threshold(x, NAN, 5.0), (torch.tensor([-1.0, 1.0]),)
    ),
    "threshold of integers": (
        lambda x: torch.nn.functional.threshold(x, -1.5, 7), (torch.arange(-4, 4),)
    ),
    "shifted chebyshev of uint8": (
        torch.special.shifted_chebyshev_polynomial_u, (INTEGERS, torch.full((2, 2), 2.0))
    ),
    "sum over no dims": (lambda x: x.sum(dim=()), (torch.ones(2, 3),)),
    "amax over no dims": (lambda x: x.amax(dim=()), (torch.arange(6.0).view(2, 3),)),
    "mean over no dims": (lambda x: x.mean(dim=()), (torch.arange(6.0).view(2, 3),)),
    "mod of integers": (torch.remainder, (torch.tensor([7, -7]), torch.tensor([3, 3]))),
    "median of even counts": (lambda x: x.median(), (torch.tensor([4.0, 1.0, 3.0, 2.0]),)),
    "std": (lambda x: x.std(0), (torch.randn(5, 2),)),
    "take of the flattened": (torch.take, (torch.arange(6.0).view(2, 3), torch.tensor([4, -1]))),
    "repeat": (lambda x: x.repeat(2, 3), (torch.arange(4.0).view(2, 2),)),
    "lp_pool of negative sums": (
        lambda x: torch.nn.functional.lp_pool1d(x, 3, 2), (-torch.ones(1, 1, 4),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", long_but(CASES, [*CASES][::4]))
def test_the_door_has_the_meaning_of_pytorch(name: str) -> None:
    function, args = CASES[name]
    fast = torch.compile(
        function, backend=luminal_backend, fullgraph=True, options={"fallback": "error"}
    )
    torch.testing.assert_close(fast(*args), function(*args), equal_nan=True)


@pytest.mark.parametrize(
    ("of_parameters", "training"),
    long_rows(product([torch.bfloat16, torch.float32], [True, False]), [(torch.bfloat16, True)]),
)
def test_norms_of_bfloat16(training: bool, of_parameters: torch.dtype) -> None:
    """Statistics have PyTorch's dtypes, which are those of the parameters."""
    torch.manual_seed(0)
    norms = torch.nn.Sequential(
        torch.nn.BatchNorm1d(4), torch.nn.LayerNorm(8), torch.nn.InstanceNorm1d(4)
    )
    norms = norms.to(of_parameters).train(training)
    wide = copy.deepcopy(norms).float()
    fast = torch.compile(
        norms, backend=luminal_backend, fullgraph=True, options={"fallback": "error"}
    )
    x = torch.randn(3, 4, 8, dtype=torch.bfloat16, requires_grad=True)
    exact = x.detach().float().requires_grad_()
    for found, y in ((fast(x), x), (wide(exact), exact)):
        (found.float() * torch.linspace(-1, 2, 96).view(3, 4, 8)).sum().backward()
        assert found.dtype is y.dtype
    # bfloat16's digit, 2**-8, in several sums in a row; values are up to 3
    torch.testing.assert_close(fast(x).float(), wide(exact), rtol=0.02, atol=0.05)
    assert (x.grad.float() - exact.grad).abs().max() < 0.05 * exact.grad.abs().max()


def trunc_div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


@pytest.mark.parametrize(
    "function",
    [torch.floor_divide, torch.remainder, torch.fmod, trunc_div],
    ids=["floor_divide", "remainder", "fmod", "div"],
)  # fmt: skip
def test_integers_divided_by_zero_raise(function: Callable[..., torch.Tensor]) -> None:
    fast = torch.compile(function, backend=luminal_backend, options={"fallback": "error"})
    a = torch.tensor([5, 6])
    torch.testing.assert_close(fast(a, torch.tensor([2, -4])), function(a, torch.tensor([2, -4])))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fast(a, torch.tensor([1, 0]))


def test_what_is_no_probability_raises() -> None:
    loss = torch.nn.functional.binary_cross_entropy
    fast = torch.compile(loss, backend=luminal_backend, options={"fallback": "error"})
    x, target = torch.tensor([0.0, 0.25, 1.0]), torch.tensor([0.0, 0.5, 1.0])
    torch.testing.assert_close(fast(x, target), loss(x, target))
    for wrong in (1.5, -0.5, NAN):
        with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
            fast(torch.tensor([0.0, 0.25, wrong]), target)


def test_targets_out_of_range_raise() -> None:
    fast = torch.compile(
        torch.nn.functional.cross_entropy, backend=luminal_backend, options={"fallback": "error"}
    )
    logits, targets = torch.randn(3, 4), torch.tensor([0, 3, -100])
    wanted = torch.nn.functional.cross_entropy(logits, targets)
    torch.testing.assert_close(fast(logits, targets), wanted)
    with pytest.raises(IndexError, match="index 4 is out of range for an extent of 4"):
        fast(logits, torch.tensor([0, 4, 1]))


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(
    "weights", mostly_long([[NAN, 1.0], [0.0, 0.0], [-1.0, 2.0], [math.inf, 1.0]], 1)
)
def test_multinomial_refuses_what_is_no_weight(weights: list[float], replacement: bool) -> None:
    def drawn(x: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(x, 2, replacement)

    fast = torch.compile(drawn, backend=luminal_backend)
    with pytest.raises(RuntimeError):
        drawn(torch.tensor(weights))
    with pytest.raises(RuntimeError, match=r"weights are finite|all weights"):
        fast(torch.tensor(weights))
    assert sorted(fast(torch.tensor([0.5, 1.0])).tolist())[-1] <= 1
