"""Which results lie in one memory: those that do in eager mode, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from luminal import luminal_backend, pt2
from tests.long_share import long_but, mostly_long
from tests.torch_backend.whole import compiled

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.*is deprecated"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def whole_and_views(x: torch.Tensor) -> Any:
    y = x * 2
    return y, y.t(), y[0], y[:, 1:3]


def several_heads(x: torch.Tensor) -> Any:
    return (x @ x.t()).view(x.shape[0], 2, -1).transpose(0, 1).unbind(0)


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "whole": whole_and_views,
    "heads": several_heads,
    "chunks": lambda x: (x + 1).split(3),
    "strided": lambda x: ((y := x + 1).as_strided((2, 2), (7, 2), 3), y),
    "equal": lambda x: (x + 1, x + 1, torch.zeros(3), torch.zeros(3)),
    "expanded": lambda x: (x.sum(0, keepdim=True).expand(3, -1), x.sum(0)),
    "dtypes": lambda x: ((y := x + 1), y.view(torch.int32), y[:, 2:].view(torch.int64), y.t()),
    "dtypes of parts": lambda x: ((y := x + 1).view(torch.int16)[:, 3:], y[1:].view(torch.uint8)),
    "dtypes of an argument": lambda x: (x.view(torch.int16), x.t().view(torch.int32), x + 1),
    "argument": lambda x: (x.split(3)[0], x.diagonal(), x.unfold(0, 2, 1), x + 1),
}

SHORT = ("strided", "equal", "expanded", "dtypes", "argument")


@pytest.mark.parametrize("dynamic", mostly_long([True, False], 1), ids=["open", "literal"])
@pytest.mark.parametrize("name", long_but(FUNCTIONS, SHORT))
def test_a_write_is_seen_where_eager_mode_sees_it(name: str, dynamic: bool) -> None:
    x = torch.randn(6, 6)
    count = len(FUNCTIONS[name](x))
    fast = compiled(FUNCTIONS[name], dynamic=dynamic)
    for k in range(count):
        found, wanted = fast(x.clone()), FUNCTIONS[name](x.clone())
        if 0 not in wanted[k].stride():
            found[k].fill_(7)
            wanted[k].fill_(7)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_views_of_open_sizes() -> None:
    fast = torch.compile(whole_and_views, backend=luminal_backend, dynamic=True)
    for n in (4, 9):
        y, *views = fast(torch.randn(n, 5))
        y.zero_()
        assert [view.abs().sum().item() for view in views] == [0, 0, 0]
        assert [view.stride() for view in views] == [(1, 5), (1,), (5, 1)]


def test_gradients_lie_apart() -> None:
    x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    fast = compiled(lambda x, y: (x.view(-1) + y.reshape(-1)).exp())
    first, second = torch.autograd.grad(fast(x, y).sum(), (x, y))
    first.zero_()
    torch.testing.assert_close(second, (x + y).exp())


def last_rows(x: torch.Tensor) -> Any:
    x.mul_(2)
    part = x[x.shape[0] // 2 :]
    part[0] = 7
    return part


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("is_trained", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("dynamic", [False, True], ids=["literal", "open"])
def test_a_part_of_an_argument_that_is_written(dynamic: bool, is_trained: bool) -> None:
    fast = torch.compile(last_rows, backend=luminal_backend, dynamic=dynamic)
    for n in (4, 7):
        x = torch.randn(n, 3, requires_grad=is_trained)
        ours, theirs = x * 1, x * 1
        found, wanted = fast(ours), last_rows(theirs)
        torch.testing.assert_close((found, ours), (wanted, theirs))
        assert found.storage_offset() == wanted.storage_offset()
        assert found.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()


class Views(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return whole_and_views(x)


def test_results_of_an_exported_module() -> None:
    x = torch.randn(6, 6)
    y, turned, *_ = pt2.compile(Views(), (x,), search_iterations=0)(x)
    y.fill_(7)
    assert turned.eq(7).all()


OPEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "transposed": lambda x: (x.t() * 2, (x.t() + 1).t()),
    "three": lambda x: x.t()[:, None] * 2,
    "part": lambda x: x.t()[:-1].isnan(),
    "expanded": lambda x: ((y := x.sin()).expand(2, *y.shape), y.movedim(0, -1)),
    "chunks": lambda x: (x.chunk(2, 0)[0] * 1, x.chunk(2, 1)[1] * 1, *x.split(3)),
}


@pytest.mark.parametrize("is_trained", mostly_long([False, True], 1))
@pytest.mark.parametrize("name", long_but(OPEN, ("three", "part")))
def test_results_of_open_sizes_lie_as_in_eager_mode(name: str, is_trained: bool) -> None:
    fast = torch.compile(OPEN[name], backend=luminal_backend, dynamic=True, fullgraph=True)
    for n in (4, 5):
        for laid in (torch.randn(n, 6), torch.randn(6, n).t()):
            laid.requires_grad_(is_trained)
            wanted, found = OPEN[name](laid), fast(laid)
            torch.testing.assert_close(found, wanted)
            strides = [[each.stride() for each in group] for group in (found, wanted)]
            assert strides[0] == strides[1]
