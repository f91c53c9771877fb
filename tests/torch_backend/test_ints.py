"""Ints of Python's that change between calls: those that a size can have share a program."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import luminal as lm
from tests.long_share import long_but
from tests.torch_backend.whole import compiled

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
]

FUNCTIONS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "factor": lambda x, n: x * n + n,
    "index": lambda x, n: x[n],
    "rolled": lambda x, n: x.roll(n, 0),
    "diagonal": lambda x, n: x.tril(n),
    "filled": lambda x, n: x.masked_fill(x > 0, n),
}


@pytest.mark.parametrize("name", long_but(FUNCTIONS, ("index", "factor")))
def test_ints_of_both_signs(name: str) -> None:
    function, x = FUNCTIONS[name], torch.randn(5, 5)
    fast = compiled(function)
    for n in (2, 3, -1, 0, -4):
        torch.testing.assert_close(fast(x, n), function(x, n))


def test_ints_beyond_any_size() -> None:
    fast, x = compiled(FUNCTIONS["factor"]), torch.arange(3)
    for n in (2, 3, 2**31, -(2**40), 2**62, 7):
        assert torch.equal(fast(x, n), x * n + n)


def test_counts_share_a_program() -> None:
    fast, x = compiled(FUNCTIONS["factor"]), torch.randn(3, requires_grad=True)
    before = lm.compile_count()
    for n in (2, 3, 50, 7):
        (found,) = torch.autograd.grad(fast(x, n).sum(), x)
        assert torch.equal(found, torch.full((3,), float(n)))
    assert lm.compile_count() == before + 4  # forward and backward: of the first, of all others
